"""Reward terms: what an episode came to, as named numbers.

The scores of answers equal those of the official HotpotQA evaluation script, number for number.
``exact_match`` is strict; an answer that merely contains the right one scores in ``sub_exact_match``.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_r1_env.errors import look_up
from agent_r1_env.task import Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_VERDICTS = frozenset({"yes", "no", "noanswer"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended.

    Attributes:
        answer: the text of the final answer; None when there was none.
        calls: tool calls the model made, good or bad.
        invalid_calls: those that were malformed, named no tool, or had arguments that do not fit.
        steps: replies of the model.
    """

    answer: str | None
    task: Task
    calls: int = 0
    invalid_calls: int = 0
    steps: int = 0


Term = Callable[[Outcome], float]


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and surplus white space.

    So "3.5" equals "35"; typographic quotes and diacritics stay. That is the official rule.
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the prediction equals one of the golds after normalisation, else 0.0."""
    bare = normalize_answer(prediction)
    return float(any(bare == normalize_answer(gold) for gold in golds))


def sub_exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if one of the golds is part of the prediction after normalisation, else 0.0."""
    bare = normalize_answer(prediction)
    return float(any(normalize_answer(gold) in bare for gold in golds))


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


def get(name: str) -> Term:
    """The built-in term of that name.

    Raises:
        UnknownName: there is none; names the nearest one.
    """
    return look_up("reward term", name, TERMS)


def answered(outcome: Outcome) -> float:
    """1.0 if there is an answer with something in it."""
    return float(outcome.answer is not None and bool(outcome.answer.strip()))


def invalid_call_rate(outcome: Outcome) -> float:
    """Share of the tool calls that could not be run; 0.0 without calls."""
    return outcome.invalid_calls / outcome.calls if outcome.calls else 0.0


def _of_answer(score: Callable[[str, Sequence[str]], float]) -> Term:
    # A gold such as "A" normalises to nothing; without the first test, saying nothing would earn it.
    def term(outcome: Outcome) -> float:
        return score(outcome.answer or "", outcome.task.answers) if answered(outcome) else 0.0

    return term


TERMS: dict[str, Term] = {
    "exact_match": _of_answer(exact_match),
    "f1": _of_answer(f1),
    "sub_exact_match": _of_answer(sub_exact_match),
    "answered": answered,
    "invalid_call_rate": invalid_call_rate,
}
