"""The values in answers in mathematics, read by precedence and worked out while they are read."""

from __future__ import annotations

from fractions import Fraction

from agent_r1_env.algebra import Algebra, Undecided, Value, name, number
from agent_r1_env.latextokens import Token

MAX_DEPTH = 30
"""Brackets, roots, fractions and powers within one another."""
MAX_EXPONENT = 2_000
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class ValueReader:
    r"""Reads sums and what they are made of; may split tokens that it has read, but never adds any."""

    def __init__(self, tokens: list[Token], algebra: Algebra) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._algebra = algebra
        self._branch = 1  # which of the two signs \pm stands for
        self._branched = False  # whether there was one

    def _sum(self) -> Value:
        value = self._product()
        while (sign := self._next.kind) in ("+", "-", "\\pm", "\\mp"):
            self._at += 1
            right = self._product()
            value = self._algebra.add(value, self._signed(sign, right))
        return value

    def _signed(self, sign: str, value: Value) -> Value:
        if sign in ("\\pm", "\\mp"):
            self._branched = True
        minus = sign == "-" or sign == ("\\pm" if self._branch < 0 else "\\mp")
        return self._algebra.negative(value) if minus else value

    def _product(self) -> Value:
        value = self._factor()
        while True:
            kind = self._next.kind
            if kind in ("*", "/"):
                self._at += 1
                right = self._factor()
                value = (self._algebra.multiply if kind == "*" else self._algebra.divide)(value, right)
            elif self._starts_atom():
                value = self._algebra.multiply(value, self._power())
            else:
                return value

    def _starts_atom(self) -> bool:
        kind = self._next.kind
        if kind == "number":
            return self._tokens[self._at - 1].kind != "number"
        return kind in ("name", "function", "(", "[", "{", "\\frac", "\\sqrt", "\\binom")

    def _factor(self) -> Value:
        signs = []
        while self._next.kind in ("+", "-", "\\pm", "\\mp"):
            signs.append(self._take().kind)
        value = self._power()
        for sign in signs:
            value = self._signed(sign, value)
        return value

    def _power(self) -> Value:
        value = self._behind(self._atom())
        if self._next.kind != "^":
            return value
        self._at += 1
        return self._behind(self._algebra.power(value, self._exponent()))

    def _exponent(self) -> Value:
        """In braces, or one number or letter with its sign, which may have a power of its own."""
        if self._next.kind == "{":
            return self._argument()
        with_depth = self._deeper()
        sign = 1
        while self._next.kind in ("+", "-"):
            sign = -sign if self._take().kind == "-" else sign
        value = fraction_of(self._take().text) if self._next.kind == "number" else self._atom()
        if self._next.kind == "^":
            self._at += 1
            value = self._algebra.power(value, self._exponent())
        self._depth = with_depth
        return self._algebra.negative(value) if sign < 0 else value

    def _behind(self, value: Value) -> Value:
        while self._next.kind == "!":
            self._at += 1
            value = self._algebra.factorial(value)
        return value

    def _atom(self) -> Value:
        with_depth = self._deeper()
        token = self._take()
        if token.kind == "number":
            value = self._number(token.text)
        elif token.kind == "name":
            value = self._letter(token.text)
        elif token.kind == "function":
            value = self._function(token.text)
        elif token.kind == "\\frac":
            value = self._algebra.divide(self._argument(), self._argument())
        elif token.kind == "\\binom":
            value = self._algebra.choose(self._argument(), self._argument())
        elif token.kind == "\\sqrt":
            value = self._root()
        elif token.kind in _CLOSING:
            value = self._sum()
            self._expect(_CLOSING[token.kind])
        else:
            raise Undecided(f"a value is missing before {token.text!r}")
        self._depth = with_depth
        return value

    def _argument(self, *, split: bool = True) -> Value:
        r"""What \frac and others take: a part in braces, a letter or a number; with ``split``, one digit."""
        token = self._next
        if token.kind != "number":
            return self._atom()
        if split and len(token.text) > 1:
            self._tokens[self._at] = Token("number", token.text[1:])
            return fraction_of(token.text[0])
        self._at += 1
        return fraction_of(token.text)

    def _root(self) -> Value:
        degree = 2
        if self._next.kind == "[":
            index = self._atom().fraction
            if index is None or index.denominator > 1:
                raise Undecided("the degree of a root must be a whole number")
            degree = index.numerator
        return self._algebra.root(self._argument(split=False), degree)

    def _number(self, text: str) -> Value:
        """A number, and the fraction behind it if that makes a mixed number of it."""
        whole = fraction_of(text)
        if not text.isdecimal():
            return whole
        if self._next.kind == "\\frac":
            self._at += 1
            above, below = self._argument(), self._argument()
            mixed = _is_proper(above.fraction, below.fraction)
            part = self._algebra.divide(above, below)
            return (self._algebra.add if mixed else self._algebra.multiply)(whole, part)
        match self._tokens[self._at : self._at + 3]:
            case [("number", above_text), ("/", _), ("number", below_text)]:
                above, below = fraction_of(above_text), fraction_of(below_text)
                if _is_proper(above.fraction, below.fraction):
                    self._at += 3
                    return self._algebra.add(whole, self._algebra.divide(above, below))
        return whole

    def _letter(self, text: str) -> Value:
        return name(f"{text}_{self._subscript()}" if self._next.kind == "_" else text)

    def _subscript(self) -> str:
        self._at += 1
        parts = [self._take()]
        if parts[0].kind == "{":
            while parts[-1].kind not in ("}", "end"):
                parts.append(self._take())
            parts = parts[1:-1]
        return "".join(part.text for part in parts)

    def _function(self, called: str) -> Value:
        base = self._subscript() if self._next.kind == "_" else ""
        exponent = number(1)
        if self._next.kind == "^":
            self._at += 1
            exponent = self._exponent()
        if exponent.fraction == -1 and called in ("sin", "cos", "tan"):
            called, exponent = f"arc{called}", number(1)
        return self._algebra.power(self._algebra.call(called + base, *self._arguments()), exponent)

    def _arguments(self) -> list[Value]:
        """Of a function: in parentheses, or what is multiplied behind it."""
        if self._next.kind == "(":
            self._at += 1
            values = [self._sum()]
            while self._next.kind == ",":
                self._at += 1
                values.append(self._sum())
            self._expect(")")
            return values
        value = self._power()
        while self._starts_atom() and self._next.kind != "function":
            value = self._algebra.multiply(value, self._power())
        return [value]

    # -- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        """The next token; the end is taken again and again."""
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _expect(self, kind: str) -> None:
        if self._next.kind != kind:
            raise Undecided(f"expected {kind}, found {self._next.text!r}")
        self._at += kind != "end"

    def _deeper(self) -> int:
        """One level further in; gives the level to go back to."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Undecided(f"the answer is nested more than {MAX_DEPTH} deep")
        return self._depth - 1


def fraction_of(text: str) -> Value:
    """The value of the text of a number, commas and exponent included.

    Raises:
        Undecided: it is too large or too small, or a torn-off part of a number.
    """
    mantissa, _, exponent = text.replace(",", "").lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT):
        raise Undecided("the number is too large or too small")
    try:
        return number(Fraction(mantissa) * Fraction(10) ** int(exponent or 0))
    except ValueError:
        raise Undecided(f"{text!r} is no number") from None


def _is_proper(above: Fraction | None, below: Fraction | None) -> bool:
    whole = above is not None and below is not None and above.denominator == below.denominator == 1
    return whole and above is not None and below is not None and 0 < above < below
