"""Scores of an answer against the right ones, number for number those of the official HotpotQA script.

``exact_match`` is strict; an answer that merely contains the right one scores in ``sub_exact_match``, and in
``cover`` if it contains it word for word. Other data sets' rules: ``official``; numbers: ``mathequal``.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_VERDICTS = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and surplus white space.

    So "3.5" equals "35"; typographic quotes and diacritics stay. That is the official rule.
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def normalize_wording(text: str) -> str:
    """Like ``normalize_answer``, with articles left in."""
    return " ".join(text.lower().translate(_NO_PUNCTUATION).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the prediction equals one of the golds after normalisation, else 0.0."""
    bare = normalize_answer(prediction)
    return float(any(bare == normalize_answer(gold) for gold in golds))


def sub_exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if one of the golds is part of the prediction after normalisation, else 0.0.

    Letters count, not words: "no" is part of "another". ``cover`` is stricter.
    """
    bare = normalize_answer(prediction)
    return float(any(normalize_answer(gold) in bare for gold in golds))


def cover(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the words of one of the golds stand in the prediction, side by side, after normalisation.

    Whole words count, so "no" is not in "another", and ``exact_match <= cover <= sub_exact_match``. A gold of
    which normalisation leaves nothing, such as "A", is in no prediction that says something.
    """
    bare = f" {normalize_answer(prediction)} "
    return float(any(f" {normalize_answer(gold)} " in bare for gold in golds))


def f1(prediction: str, golds: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over words, counted with repetition; the best gold counts."""
    return max((overlap(prediction, gold)[0] for gold in golds), default=0.0)


def overlap(prediction: str, gold: str) -> tuple[float, float, float]:
    """F1, precision and recall over the words of one gold answer.

    All three are 0 when nothing is left of a side, and when "yes", "no" or "noanswer" stands
    against anything else: a verdict is right or wrong, never partly right.
    """
    left, right = normalize_answer(prediction), normalize_answer(gold)
    if left != right and (left in _VERDICTS or right in _VERDICTS):
        return 0.0, 0.0, 0.0
    left_words, right_words = left.split(), right.split()
    common = sum((Counter(left_words) & Counter(right_words)).values())
    if common == 0:
        return 0.0, 0.0, 0.0
    precision, recall = common / len(left_words), common / len(right_words)
    return 2 * precision * recall / (precision + recall), precision, recall
