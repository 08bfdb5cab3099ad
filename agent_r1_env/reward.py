"""Reward terms: what an episode came to, as named numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_r1_env.errors import look_up
from agent_r1_env.scoring import exact_match, f1, sub_exact_match
from agent_r1_env.task import Task


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
