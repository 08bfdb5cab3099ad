r"""Answers in mathematics, read from LaTeX or plain typing.

What is read: numbers, letters, ``+ - * / ^ !``, ``\frac``, ``\sqrt[n]``, ``\binom``, ``\pm``, functions such
as ``\sin`` (not worked out); of these, equations and inequalities; of all these, lists, tuples, intervals,
sets, unions and matrices. Nothing is run as code, and length, depth and work are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from agent_r1_env.algebra import Algebra, Undecided, Value
from agent_r1_env.latextokens import SEPARATORS, Token, tokens_of
from agent_r1_env.mathvalues import MAX_EXPONENT, ValueReader, fraction_of

_RELATION_SIGNS = frozenset(("=", "<", ">", "<=", ">=", "!="))
_CLOSING = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",)}
_ENDS = frozenset(("end", ")", "]", "\\}", "}", "&", "\\row", "\\endmatrix", "\\cup")) | SEPARATORS


@dataclass(frozen=True, slots=True)
class Item:
    """One value.

    Attributes:
        step: the worth of the last digit, where the value was written as a decimal.
        digits: how many significant digits that decimal has.
        percent: a percent sign was behind it, which is not part of the value.
        base: of the number system that was written below it.
    """

    value: Value
    step: Fraction | None = None
    digits: int = 0
    percent: bool = False
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A comparison of two sides; ``sign`` is ``=``, ``!=``, ``<``, ``>``, ``<=`` or ``>=``."""

    left: Value
    sign: str
    right: Item


@dataclass(frozen=True, slots=True)
class Group:
    """Several forms.

    Attributes:
        kind: in any order "list", which has no brackets, "{}", "union", and "chain", of comparisons; in a
            fixed one "()", "[)" and so on, "matrix" and its "row".
    """

    kind: str
    parts: tuple[Form, ...]


Form = Item | Relation | Group


def read(text: str, algebra: Algebra, *, grouped: bool = True) -> Form:
    """What a cleaned text (``mathtext.plain``) says.

    Args:
        algebra: does the calculations.
        grouped: digits in groups of three, as in 1,234, are one number.

    Raises:
        Undecided: it is no mathematics, or takes too much work.
    """
    return _Reader(tokens_of(text, grouped=grouped), algebra).whole()


class _Reader(ValueReader):
    """Reads the tokens from first to last; those of a value with a sign of plus or minus, twice."""

    def __init__(self, tokens: list[Token], algebra: Algebra) -> None:
        super().__init__(tokens, algebra)
        self._given = tuple(tokens)
        self._pairs, self._commas = _brackets(tokens)

    def whole(self) -> Form:
        form = self._listed("list")
        self._expect("end")
        return form

    # -- lists and what is in them

    def _listed(self, kind: str) -> Form:
        """Forms between separators; a single one stands for itself, except in a set."""
        parts: list[Form] = []
        while True:
            parts += self._united()
            if self._next.kind not in SEPARATORS:
                break
            while self._next.kind in SEPARATORS:  # ", and"
                self._at += 1
        return parts[0] if len(parts) == 1 and kind != "{}" else Group(kind, tuple(parts))

    def _united(self) -> list[Form]:
        parts = self._element()
        while self._next.kind == "\\cup":
            self._at += 1
            parts += self._element()
            if self._next.kind != "\\cup":
                return [Group("union", tuple(parts))]
        return parts

    def _element(self) -> list[Form]:
        """A group, or a value or comparison; two of the latter where it has a sign of plus or minus."""
        if self._next.kind == "\\matrix":
            return [self._matrix()]
        if self._next.kind == "\\emptyset":
            self._at += 1
            return [Group("{}", ())]
        if self._next.kind == "name" and self._tokens[self._at + 1].kind == "in":
            self._at += 2
        if self._is_group():
            return [self._group()]
        start = self._at
        self._branched = False
        found: list[Form] = self._compared()
        if self._branched:
            self._tokens[start : self._at] = self._given[start : self._at]
            self._at, self._branch = start, -1
            found += self._compared()
            self._branch = 1
        return found

    def _is_group(self) -> bool:
        opening = self._next.kind
        if opening not in _CLOSING or (closing := self._pairs.get(self._at)) is None:
            return False
        alone = self._tokens[closing + 1].kind in _ENDS
        return alone and (opening == "\\{" or self._at in self._commas)

    def _group(self) -> Form:
        with_depth = self._deeper()
        opening = self._take().kind
        if opening == "\\{" and self._next.kind == "\\}":
            form: Form = Group("{}", ())
        else:
            form = self._listed("{}" if opening == "\\{" else opening)
        closing = self._take().kind
        self._depth = with_depth
        if closing not in _CLOSING[opening]:
            raise Undecided(f"{closing} does not close {opening}")
        if opening != "\\{" and isinstance(form, Group) and form.kind == opening:
            return Group(opening + closing, form.parts)
        return form

    def _matrix(self) -> Form:
        with_depth = self._deeper()
        self._at += 1
        rows: list[Form] = []
        row: list[Form] = []
        while True:
            row += self._united()
            between = self._take().kind
            if between == "&":
                continue
            rows.append(Group("row", tuple(row)))
            row = []
            if between == "\\row" and self._next.kind == "\\endmatrix":
                between = self._take().kind
            if between == "\\endmatrix":
                self._depth = with_depth
                return Group("matrix", tuple(rows))
            if between != "\\row":
                raise Undecided("the matrix has no end")

    def _compared(self) -> list[Form]:
        sides, signs = [self._item()], list[str]()
        while self._next.kind in _RELATION_SIGNS:
            signs.append(self._take().kind)
            sides.append(self._item())
        if not signs:
            return [sides[0]]
        relations = [
            Relation(left.value, sign, right)
            for left, sign, right in zip(sides, signs, sides[1:], strict=False)
        ]
        return [relations[0]] if len(relations) == 1 else [Group("chain", tuple(relations))]

    # -- values

    def _item(self) -> Item:
        if (based := self._based()) is not None:
            return based
        start = self._at
        value = self._sum()
        percent = self._next.kind == "%"
        step, digits = _precision(self._tokens[start : self._at])
        self._at += percent
        return Item(value, step, digits, percent)

    def _based(self) -> Item | None:
        """A whole number in another number system, as in 101_2."""
        following = [token.text for token in self._tokens[self._at : self._at + 6]]
        match following:
            case [digits, "_", base, *_] if digits.isdecimal() and base.isdecimal():
                self._at += 3
            case [digits, "_", "{", base, "}", *_] if digits.isdecimal() and base.isdecimal():
                self._at += 5
            case _:
                return None
        return Item(fraction_of(digits), base=int(base[:4]))


def _brackets(tokens: list[Token]) -> tuple[dict[int, int], set[int]]:
    """Where each bracket is closed, and which of them hold separators of their own."""
    pairs: dict[int, int] = {}
    separated: set[int] = set()
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token.kind in _CLOSING or token.kind == "{":
            opened.append(place)
        elif opened and token.kind in (")", "]", "\\}", "}"):
            pairs[opened.pop()] = place
        elif opened and token.kind in SEPARATORS:
            separated.add(opened[-1])
    return pairs, separated


_DECIMAL = re.compile(
    r"[-+]*(?P<mantissa>[0-9,]*\.[0-9]*)(?:[eE](?P<e>[-+]?[0-9]{1,4}))?"
    r"(?:(?:\*|\\times|\\cdot)10\^\{?(?P<power>[-+]?[0-9]{1,4})\}?)?"
)


def _precision(tokens: list[Token]) -> tuple[Fraction | None, int]:
    """The worth of the last digit of a decimal and its number of significant digits; None, 0 for others."""
    if len(tokens) > 10:
        return None, 0
    match = _DECIMAL.fullmatch("".join(token.text for token in tokens))
    if match is None:
        return None, 0
    whole, _, places = match["mantissa"].partition(".")
    exponent = int(match["e"] or 0) + int(match["power"] or 0) - len(places)
    if abs(exponent) > MAX_EXPONENT:
        return None, 0
    return Fraction(10) ** exponent, len((whole.replace(",", "") + places).lstrip("0"))
