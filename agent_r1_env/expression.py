"""Arithmetic as people write it, read by precedence and worked out while it is read.

From loose to tight: ``in`` (or ``to``), comparisons, ``+ -``, ``* / // % of``, a sign, ``^``, and what stands
behind a number: a unit, ``!`` or ``%``. Each part of an expression is looked at once; nothing is run as code.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from agent_r1_env import mathfunctions, quantity, units
from agent_r1_env.errors import nearest
from agent_r1_env.mathtokens import ExpressionFault, Token, tokens_of
from agent_r1_env.quantity import MathFault, Quantity, Shown
from agent_r1_env.units import Unit

_T = TypeVar("_T")

MAX_LENGTH = 2000
"""Characters of an expression."""
MAX_DEPTH = 50
"""Parentheses and signs within one another."""

_MOST_POWER = 4000
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SPELT = {"of": "of", "in": "in", "to": "in", "as": "in", "per": "/", "x": "*", "X": "*", "mod": "mod"}
_BINDS = {"in": 1, "^": 30}
_BINDS |= dict.fromkeys(("<", ">", "<=", ">=", "==", "!="), 2)
_BINDS |= dict.fromkeys("+-", 10) | dict.fromkeys(("*", "/", "//", "%", "of", "mod"), 20)
_SIGNED = 25
_ACTS: dict[str, Callable[[Quantity, Quantity], Quantity]] = {
    "+": quantity.add,
    "-": lambda left, right: quantity.add(left, right, -1),
    "*": quantity.multiply,
    "of": quantity.multiply,
    "/": quantity.divide,
    "//": quantity.floor_divide,
    "%": quantity.modulo,
    "mod": quantity.modulo,
    "^": quantity.power,
}
_TESTS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    ">": lambda order: order > 0,
    "<=": lambda order: order <= 0,
    ">=": lambda order: order >= 0,
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
}


def evaluate(text: str) -> str:
    """The result of an expression, as text.

    Raises:
        ExpressionFault: it is malformed, or has no result.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionFault(f"the expression is longer than {MAX_LENGTH} characters", MAX_LENGTH)
    value = _Reader(tokens_of(text)).whole()
    if isinstance(value, bool):
        return str(value).lower()
    return _placed(0, quantity.show, value)


class _Reader:
    """Works an expression out, from its first token to its last."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Quantity | bool:
        if self._next.kind == "end":
            raise ExpressionFault("the expression is empty", 0)
        value = self._value(0)
        result: Quantity | bool = value
        while (test := self._next.text) in _TESTS:
            at = self._take().start
            right = self._value(3)
            result = (result if isinstance(result, bool) else True) and _TESTS[test](
                _placed(at, quantity.compare, value, right)
            )
            value = right
        if self._next.text == "=" and self._tokens[self._at + 1].kind == "end":
            self._take()  # as on a calculator
        if self._next.kind != "end":
            raise self._misplaced()
        return result

    # -- looking at tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _after(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _operator(self) -> str | None:
        """The operator that comes next, if one does."""
        token = self._next
        if token.kind == "name":
            return _SPELT.get(token.text)
        if token.kind == "power":
            return None
        return token.text if token.text in _BINDS else None

    # -- values

    def _value(self, least: int) -> Quantity:
        """A part of the expression whose operators bind at least so tightly."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionFault(f"the expression is nested more than {MAX_DEPTH} deep", self._next.start)
        value = self._signed()
        while (operator := self._operator()) is not None and _BINDS[operator] >= least:
            if operator in _TESTS:
                break
            at = self._take().start
            if operator == "in":
                value = _placed(at, quantity.convert, value, self._units())
                continue
            right = self._value(_BINDS[operator] + (operator != "^"))
            value = _placed(at, _ACTS[operator], value, right)
        self._depth -= 1
        return value

    def _signed(self) -> Quantity:
        token = self._next
        if token.text == "-":
            self._take()
            return quantity.negative(self._value(_SIGNED))
        if token.text == "+":
            self._take()
            return self._value(_SIGNED)
        if token.text == "√":
            self._take()
            return _placed(token.start, mathfunctions.call, "sqrt", [self._value(_BINDS["^"] + 1)])
        return self._behind(self._atom())

    def _atom(self) -> Quantity:
        token = self._take()
        if token.kind == "number":
            value = Quantity(_number(token))
            if self._unit_next():
                return self._with_unit(value)
            if self._next.kind == "name" and self._next.text not in _SPELT and not _known(self._next.text):
                raise _unknown(self._next)  # a misspelt unit, before it is missed elsewhere
            return value
        if token.text == "(":
            value = self._value(0)
            self._close("(", token.start)
            value = Quantity(value.number, value.dimension, value.shown)
            return self._with_unit(value) if not value.shown and self._unit_next() else value
        if token.kind == "name":
            return self._named(token)
        self._at -= 1
        if token.kind == "end":
            raise ExpressionFault("the expression ends where a number is missing", token.start)
        raise ExpressionFault(f"a number is missing before {token.text!r}", token.start)

    def _behind(self, value: Quantity) -> Quantity:
        """A value with the marks behind it: ! and % and raised numbers."""
        while True:
            token = self._next
            if token.text == "!":
                self._take()
                value = _placed(token.start, mathfunctions.factorial, value)
            elif token.kind == "power":
                self._take()
                exponent = Quantity(Fraction(int(token.text.translate(_RAISED))))
                value = _placed(token.start, quantity.power, value, exponent)
            elif token.text == "%" and self._is_percent():
                self._take()
                if value.dimension:
                    raise ExpressionFault(
                        f"a percentage has no unit, but this is in {value.unit}", token.start
                    )
                value = Quantity(quantity.checked(value.number / 100), percent=True)
            else:
                return value

    def _is_percent(self) -> bool:
        """Whether the % that comes next is a percentage: then no value follows it."""
        after = self._after()
        if after.text in ("+", "-") and self._next.spaced and after.spaced and not self._after(2).spaced:
            hint = "write mod(a, b) for what is left of a division, or 5% without a space"
            raise ExpressionFault(f"this % may be two things; {hint}", self._next.start)
        if after.kind == "name":
            return after.text in _SPELT
        return after.kind != "number" and after.text not in ("(", "√")

    # -- names

    def _named(self, token: Token) -> Quantity:
        name = token.text
        if self._next.text == "(" and name in mathfunctions.FUNCTIONS:
            return _placed(token.start, mathfunctions.call, name, self._arguments())
        if name in mathfunctions.CONSTANTS:
            return Quantity(mathfunctions.CONSTANTS[name])
        if name in mathfunctions.FUNCTIONS and name != "min":
            raise ExpressionFault(f"{name} is a function; write {name}(x)", token.start)
        unit = units.find(name)
        if unit is not None:
            return quantity.of(1, self._raised(unit))
        raise _unknown(token)

    def _arguments(self) -> list[Quantity]:
        opening = self._take()
        values: list[Quantity] = []
        if self._next.text != ")":
            values.append(self._value(0))
            while self._next.text == ",":
                self._take()
                values.append(self._value(0))
        self._close("(", opening.start)
        return values

    def _close(self, opening: str, start: int) -> None:
        if self._next.text == ")":
            self._take()
            return
        if self._next.kind == "end":
            raise ExpressionFault(f"this {opening} is never closed", start)
        raise self._misplaced()

    # -- units

    def _unit_next(self) -> bool:
        """Whether what comes next is the unit of the number before it."""
        token = self._next
        if token.kind != "name" or self._after().text == "(":
            return False
        if token.text != "in":
            return token.text not in _SPELT and units.find(token.text) is not None
        after = self._after()  # an inch, unless a unit follows to convert to
        if after.kind != "name" or after.text in ("in", "to", "as"):
            return True
        return after.text in _SPELT or units.find(after.text) is None

    def _with_unit(self, value: Quantity) -> Quantity:
        """A number and its unit, and what follows in smaller ones: 5 ft 3 in."""
        start = self._next.start
        shown = self._raised_unit()
        total = _placed(start, quantity.of, value.number, shown)
        while self._next.kind == "number":
            token, last = self._take(), shown
            if not self._unit_next():
                self._at -= 1
                break
            at = self._next.start
            shown = self._raised_unit()
            part = _placed(at, quantity.of, _number(token), shown)
            smaller = quantity.of(1, shown).number < quantity.of(1, last).number
            if part.dimension != total.dimension or not smaller or total.zero:
                raise ExpressionFault("an operator is missing", token.start)
            total = _placed(token.start, quantity.add, total, part)
        return total

    def _raised_unit(self) -> Shown:
        token = self._take()
        unit = units.find(token.text)
        assert unit is not None  # the caller has looked
        return self._raised(unit)

    def _raised(self, unit: Unit) -> Shown:
        """A unit with its power, which belongs to it and not to the number before it."""
        if self._next.kind == "power":
            return ((unit, int(self._take().text.translate(_RAISED)[:3])),)
        if self._next.text != "^":
            return ((unit, 1),)
        sign = -1 if self._after().text == "-" else 1
        exponent = self._after(2 if sign < 0 else 1)
        if exponent.kind != "number" or not exponent.text.isdecimal() or not 0 < int(exponent.text[:3]) < 100:
            raise ExpressionFault(
                f"{unit.name} takes a whole number from 1 to 99 as its power", self._next.start
            )
        self._at += 3 if sign < 0 else 2
        return ((unit, sign * int(exponent.text)),)

    def _units(self) -> Shown:
        """The units to convert to, such as km/h."""
        shown = list(self._one_unit())
        while self._next.text in ("*", "/") or self._next.text == "per":
            sign = 1 if self._take().text == "*" else -1
            shown += [(unit, sign * times) for unit, times in self._one_unit()]
        return tuple(shown)

    def _one_unit(self) -> Shown:
        token = self._take()
        unit = units.find(token.text) if token.kind == "name" else None
        if unit is None and token.kind == "name":
            raise _unknown(token, "unit")
        if unit is None:
            self._at -= 1
            raise ExpressionFault("a unit is missing", token.start)
        return self._raised(unit)

    # -- faults

    def _misplaced(self) -> ExpressionFault:
        token, before = self._next, self._tokens[self._at - 1]
        if token.text == ")":
            return ExpressionFault("this ) was never opened", token.start)
        if token.text == ",":
            return ExpressionFault("a comma stands between groups of three digits or arguments", token.start)
        if token.text == "=":
            return ExpressionFault("= is no operator; write == to compare", token.start)
        if token.text in _TESTS:
            return ExpressionFault("a comparison cannot be part of something else", token.start)
        if token.kind == "name" and before.kind == "number" and token.text in ("j", "i"):
            return ExpressionFault("complex numbers are not supported", token.start)
        if token.kind == "name" and not _known(token.text):
            return _unknown(token)
        return ExpressionFault(f"an operator is missing before {token.text[:20]!r}", token.start)


def _placed(position: int, act: Callable[..., _T], *values: Any) -> _T:
    """What an act gives; its faults with the position."""
    try:
        return act(*values)
    except MathFault as fault:
        raise ExpressionFault(str(fault), position) from None
    except ArithmeticError:  # a fraction beyond what a float holds met a float
        text = "the numbers are too large or too small for a result that has to be rounded"
        raise ExpressionFault(text, position) from None


def _number(token: Token) -> Fraction:
    text = token.text.replace(",", "").replace("_", "")
    _, _, exponent = text.lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > _MOST_POWER):
        raise ExpressionFault("the number is too large or too small", token.start)
    value = Fraction(text if exponent else text.rstrip("."))
    _placed(token.start, quantity.checked, value)
    return value


def _known(name: str) -> bool:
    return name in mathfunctions.FUNCTIONS or name in mathfunctions.CONSTANTS or units.find(name) is not None


def _unknown(token: Token, kind: str = "name") -> ExpressionFault:
    known = [*units.names()] if kind == "unit" else [*mathfunctions.FUNCTIONS, *mathfunctions.CONSTANTS]
    guess = nearest(token.text[:20], known)
    if guess is None and kind == "name":
        guess = nearest(token.text[:20], [name for name in units.names() if len(name) > 3])
    meant = f"; did you mean {guess!r}?" if guess else ""
    return ExpressionFault(f"unknown {kind} {token.text[:20]!r}{meant}", token.start)
