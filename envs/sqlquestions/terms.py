"""Scores an answer that holds one value, several, or rows of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agent_r1_env.reward import Outcome
from agent_r1_env.scoring import normalize_answer

_NUMBER = re.compile(r"[-+]?[$€£]?(?:\d+|\d{1,3}(?:,\d{3})+)?(?:\.\d*)?(?:[eE][-+]?\d{1,3})?")
_SPLITS = (r"\s*[,;]\s*(?:and\s+)?|\s+and\s+", r",\s+|;\s*")
_LONGEST = 20_000
_TOLERANCE = 1e-6
Rows = Sequence[Sequence[Any]]


def rows_match(outcome: Outcome) -> float:
    """1.0 if the answer holds the rows that the right query gives, and no others.

    Numbers are compared by value, texts without case, punctuation and articles. The order counts where the
    query has one.
    """
    answer, data = (outcome.answer or "").strip(), outcome.task.data
    if not answer or len(answer) > _LONGEST:
        return 0.0
    gold: Rows = data["rows"]
    if not gold:
        return float(normalize_answer(answer) in ("none", "no rows", "nothing"))
    same = _same_in_order if data["ordered"] else _same_in_any_order
    return float(any(same(rows, gold) for rows in _readings(answer, len(gold), len(gold[0]))))


def _readings(answer: str, count: int, columns: int) -> Iterator[Rows]:
    """The ways to read a text as so many rows."""
    if count == columns == 1:
        yield [[answer]]
    try:
        listed = json.loads(answer) if answer.startswith("[") else None
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list):
        yield [each if isinstance(each, list) else [each] for each in listed]
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if columns > 1:
        yield [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    elif len(lines) > 1:
        yield [[line.removeprefix("- ")] for line in lines]
    for split in _SPLITS:
        parts = [part.strip() for part in re.split(split, " ".join(lines))]
        yield [[part] for part in parts] if columns == 1 else [parts]


def _same_in_order(rows: Rows, gold: Rows) -> bool:
    return len(rows) == len(gold) and all(map(_same_row, rows, gold))


def _same_in_any_order(rows: Rows, gold: Rows) -> bool:
    if len(rows) != len(gold):
        return False
    left = list(gold)
    for row in rows:
        place = next((number for number, other in enumerate(left) if _same_row(row, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _same_row(row: Sequence[Any], gold: Sequence[Any]) -> bool:
    return len(row) == len(gold) and all(map(_same, row, gold))


def _same(value: Any, gold: Any) -> bool:
    if value is None or gold is None:
        return str(value).casefold() in ("none", "null") and gold is None
    left, right = _number(value), _number(gold)
    if left is not None and right is not None:
        return math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=1e-9)
    text, other = str(value).strip(), str(gold).strip()
    # A value such as "A" normalises to nothing, which every article would equal.
    return text.casefold() == other.casefold() or normalize_answer(text) == normalize_answer(other) != ""


def _number(value: Any) -> float | None:
    text = str(value).strip()
    if _NUMBER.fullmatch(text) is None or not any(character.isdigit() for character in text):
        return None
    return float(re.sub("[$€£,]", "", text))
