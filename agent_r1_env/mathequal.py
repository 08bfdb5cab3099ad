r"""Whether an answer in mathematics equals the right one, as graders of GSM8K and MATH need it.

Exact, and by structure: fractions, decimals, percentages, mixed numbers, scientific notation, roots, pi and
polynomials are compared as exact values (``algebra``); equations and inequalities up to a common factor;
lists and sets in any order; tuples, intervals and matrices part by part. Rules where graders differ:

* A decimal in the gold answer stands for what rounds to it: the prediction may differ by half a unit of its
  last digit, yet by no more than 0.01 %. Golds that are no decimals are met exactly; 0.333 is not 1/3.
* A prediction of 15 or more significant digits, as a program prints it, may differ by a billionth of 0.1 %.
* Units, currency and degrees are left aside, and so are words behind a number of the gold answer, and all
  words of the prediction around its one value. 50% equals 50 and 1/2.
* "x = 5" equals 5, unless both sides are equations.

Without result stay identities of functions (sin, log, powers with letters), sums of roots under roots, and
unions or intervals written as inequalities: those equal only what is written alike. No computer algebra
system is used, and none is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from agent_r1_env import mathreading
from agent_r1_env.algebra import Algebra, Undecided, Value, number
from agent_r1_env.latextokens import FUNCTIONS, MAX_LENGTH
from agent_r1_env.mathreading import Form, Group, Item, Relation
from agent_r1_env.mathtext import final_answer, final_number, numbers_in, plain

RELATIVE_TOLERANCE = Fraction(1, 10_000)
"""Of predictions where the gold answer is a decimal."""
_PRINTED_DIGITS, _PRINTED_TOLERANCE = 15, Fraction(1, 10**12)
_MOST_PARTS = 100
_UNORDERED = frozenset(("list", "{}", "union", "chain"))

_SHORT_UNITS = """
mm cm dm km mi ft yd in oz lb lbs mg kg ml dl cl hr hrs min sec ms mph rpm cc sq cu deg rad usd eur gbp
"""
_UNITS = frozenset(_SHORT_UNITS.split())
_KEPT = FUNCTIONS - {"min"} | {"am", "pm", "or", "and", "pi", "sqrt", "inf", "infinity"}
_POWER = r"(?:\s*\^\s*(?:\{\s*[23]\s*\}|[23])(?![0-9]))?"
_PER = rf"(?:\s*/\s*[A-Za-z]+{_POWER})?"
_WORD = re.compile(rf"(?<![\\A-Za-z])(?P<word>[A-Za-z]{{2,}})(?![A-Za-z(]){_POWER}{_PER}")
_LONE_UNIT = re.compile(rf"(?<=[0-9}}])\s+[mgshlL]{_POWER}{_PER}$")
_FOREIGN_WORD = re.compile(r"[^\W\d_A-Za-z]{2,}")
_SPACE = re.compile(r"(?<![0-9])\s+|\s+(?![0-9])")
_GROUPED_IN_BRACKETS = re.compile(r"[(\[{].*[0-9],[0-9]{3}(?![0-9])", re.DOTALL)


def math_equal(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the prediction's final answer equals that of one of the golds, else 0.0.

    Never raises, and takes time in proportion to the length of the texts.
    """
    said = final_answer(prediction)
    forms: list[Form] | None = None
    for right in map(final_answer, golds):
        if _same_text(said, right):
            return 1.0
        if forms is None:
            forms = _forms(said, anywhere=True)
        if _any_equal(forms, _forms(right, anywhere=False)):
            return 1.0
    return 0.0


def _any_equal(said: Sequence[Form], right: Sequence[Form]) -> bool:
    comparison = _Comparison()
    try:
        return any(comparison.same(left, form) for left in said for form in right)
    except Undecided:
        return False


def _same_text(left: str, right: str) -> bool:
    """Equal as it stands, apart from typing and white space; words in any case."""
    if left == right:
        return bool(left)
    if max(len(left), len(right)) > MAX_LENGTH:
        return False
    keys = [_SPACE.sub("", plain(text)) for text in (left, right)]
    if all(key.isalpha() for key in keys):
        keys = [key.casefold() for key in keys]
    return keys[0] == keys[1] != ""


def _forms(text: str, *, anywhere: bool) -> list[Form]:
    """What a text can be read as: as it stands, and without units and words."""
    if len(text) > MAX_LENGTH:
        return []
    whole = plain(text)
    texts = dict.fromkeys((whole, _without_words(whole, anywhere=anywhere)))
    prose = len(texts) > 1 or _FOREIGN_WORD.search(whole) is not None
    if anywhere and prose and "\\" not in whole and len(numbers_in(whole)) == 1:
        texts[final_number(whole) or ""] = None
    forms: list[Form] = []
    algebra = Algebra()  # one for all readings, which bounds the work
    for each in texts:
        for grouped in (True, False) if _GROUPED_IN_BRACKETS.search(each) else (True,):
            try:
                forms.append(mathreading.read(each, algebra, grouped=grouped))
            except Undecided:
                continue
    return forms


def _without_words(text: str, *, anywhere: bool) -> str:
    """Without words that mean nothing in mathematics: those behind a number, or all of them."""

    def replaced(match: re.Match[str]) -> str:
        word, before = match["word"].lower(), text[: match.start()]
        attached = before[-1:].isalnum() and len(word) < 4 and word not in _UNITS
        meant = anywhere or any("0" <= character <= "9" for character in before)
        return match.group() if attached or word in _KEPT or not meant else " "

    return _LONE_UNIT.sub("", _WORD.sub(replaced, text)).strip(" .:*/")


class _Comparison:
    """Compares what was said, always on the left, with what is right."""

    def __init__(self) -> None:
        self._algebra = Algebra()

    def same(self, left: Form, right: Form) -> bool:
        if isinstance(left, Item) and isinstance(right, Item):
            return self._same_items(left, right)
        if isinstance(left, Group) and isinstance(right, Group):
            return self._same_groups(left, right)
        if isinstance(left, Relation) and isinstance(right, Relation):
            return self._same_relations(left, right)
        if isinstance(right, Item):
            return (found := self._solution(left)) is not None and self._same_items(found, right)
        if isinstance(left, Item):
            return (found := self._solution(right)) is not None and self._same_items(left, found)
        return False

    def _solution(self, form: Form) -> Item | None:
        """The last side of an equation whose other sides are names, or the same."""
        relations = form.parts if isinstance(form, Group) and form.kind == "chain" else (form,)
        last = relations[-1] if relations else None
        if not isinstance(last, Relation):
            return None
        for each in relations:
            if not isinstance(each, Relation) or each.sign != "=":
                return None
            if not each.left.is_name and not self._algebra.same(each.left, last.right.value):
                return None
        return last.right

    def _same_relations(self, left: Relation, right: Relation) -> bool:
        if left.sign == right.sign and self._algebra.same(left.left, right.left):
            return self._same_items(left.right, right.right)
        (one, sign), (other, wanted) = self._difference(left), self._difference(right)
        return sign == wanted and self._algebra.same(one, other)

    def _difference(self, relation: Relation) -> tuple[Value, str]:
        """A comparison with 0, the same for all that say the same up to a factor; never with ``<``."""
        minus = self._algebra.negative
        value = self._algebra.add(relation.left, minus(relation.right.value))
        if relation.sign in ("<", "<="):
            return self._algebra.scaled(minus(value), keep_sign=True), relation.sign.replace("<", ">")
        return self._algebra.scaled(value, keep_sign=relation.sign in (">", ">=")), relation.sign

    def _same_groups(self, left: Group, right: Group) -> bool:
        loose = {left.kind, right.kind} <= {"list", "{}"}
        fits = len(left.parts) == len(right.parts) <= _MOST_PARTS and (loose or left.kind == right.kind)
        if not fits:
            return False
        if right.kind not in _UNORDERED:
            return all(map(self.same, left.parts, right.parts))
        rest = list(left.parts)
        for part in right.parts:
            found = next((place for place, each in enumerate(rest) if self.same(each, part)), None)
            if found is None:
                return False
            del rest[found]
        return True

    def _same_items(self, left: Item, right: Item) -> bool:
        if left.base is not None and right.base is not None and left.base != right.base:
            return False
        if self._close(left, right):
            return True
        if left.percent == right.percent:
            return False
        return self._close(*(self._share(item) if item.percent else item for item in (left, right)))

    def _share(self, item: Item) -> Item:
        """A percentage as the number it is."""
        value = self._algebra.divide(item.value, number(100))
        return Item(value, item.step and item.step / 100, item.digits)

    def _close(self, left: Item, right: Item) -> bool:
        if self._algebra.same(left.value, right.value):
            return True
        if right.step is None and left.digits < _PRINTED_DIGITS:
            return False
        said, meant = left.value.approximate, right.value.approximate
        if said is None or meant is None:
            return False
        tolerance = abs(meant) * _PRINTED_TOLERANCE if left.digits >= _PRINTED_DIGITS else Fraction(0)
        if right.step is not None:
            tolerance = max(tolerance, min(right.step / 2, abs(meant) * RELATIVE_TOLERANCE))
        return abs(said - meant) <= tolerance
