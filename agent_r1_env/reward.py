"""Reward terms: what a reply or a whole episode came to, as named numbers.

An outcome term is a function of an ``Outcome`` and is paid once, at the end. A step term is a function of a
``Turn``, marked ``per_step``, and is paid with the reply that it judges; as a metric it is the sum over the
episode. A term with options is made by a function marked ``with_options``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_r1_env.errors import hint, look_up
from agent_r1_env.messages import INVALID_CALLS, FailureKind
from agent_r1_env.scoring import cover, exact_match, f1, sub_exact_match
from agent_r1_env.stopping import StopReason
from agent_r1_env.task import Task

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended.

    Attributes:
        answer: the text of the final answer; None when there was none.
        calls: tool calls the model made, good or bad.
        invalid_calls: those that were malformed, named no tool, or had arguments that do not fit.
        steps: replies of the model.
        stop: why the episode ended.
        tokens: of all replies; None where nobody counted them.
        unreadable: replies that held neither a call nor an answer.
        failures: number of failed calls by kind.
        records: all calls, as in ``info["calls"]``.
        state: what the tools kept in their hidden argument ``state``.
    """

    answer: str | None
    task: Task
    calls: int = 0
    invalid_calls: int = 0
    steps: int = 0
    stop: StopReason | None = None
    tokens: int | None = None
    unreadable: int = 0
    failures: Mapping[FailureKind, int] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply and what its calls gave.

    Attributes:
        reply: the whole text.
        tokens: of the reply; None where nobody counted them.
        calls: a record of each call, as in ``info["calls"]``.
        cut: the reply was cut by its length limit.
        unreadable: it held neither a call nor an answer.
    """

    task: Task
    reply: str
    tokens: int | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    cut: bool = False
    unreadable: bool = False


Term = Callable[[Outcome], float]
StepTerm = Callable[[Turn], float]
AnyTerm = Term | StepTerm


def per_step(term: _F) -> _F:
    """Mark a function of a ``Turn`` as a term that is paid with each reply."""
    term.per_step = True  # type: ignore[attr-defined]
    return term


def with_options(make: _F) -> _F:
    """Mark a function that makes a term of its options."""
    make.with_options = True  # type: ignore[attr-defined]
    return make


def is_per_step(term: AnyTerm) -> bool:
    """Whether a term is paid with each reply, and not once at the end."""
    return bool(getattr(term, "per_step", False))


def get(name: str, options: Mapping[str, Any] | None = None) -> AnyTerm:
    """The built-in term of that name.

    Raises:
        UnknownName: there is none; names the nearest one.
        ValueError: it takes no such options, or needs others.
    """
    return made(name, look_up("reward term", name, TERMS), options or {})


def made(name: str, given: Callable[..., Any], options: Mapping[str, Any]) -> AnyTerm:
    """A term as it is, or made of its options.

    Raises:
        ValueError: it takes no such options, or needs others.
    """
    takes = inspect.signature(given).parameters if getattr(given, "with_options", False) else {}
    for option in options:
        if option not in takes:
            raise ValueError(f"the reward term {name!r} takes no option {option!r}{hint(option, takes)}")
    if not takes:
        return given
    missing = [key for key, each in takes.items() if each.default is each.empty and key not in options]
    if missing:
        raise ValueError(f"the reward term {name!r} needs {' and '.join(missing)}")
    term: AnyTerm = given(**options)
    return term


def answered(outcome: Outcome) -> float:
    """1.0 if there is an answer with something in it."""
    return float(outcome.answer is not None and bool(outcome.answer.strip()))


def invalid_call_rate(outcome: Outcome) -> float:
    """Share of the tool calls that could not be run; 0.0 without calls."""
    return outcome.invalid_calls / outcome.calls if outcome.calls else 0.0


def well_formed(outcome: Outcome) -> float:
    """Half for an answer in the form asked for, half if every tool call could be run.

    An episode without a call has the second half, too: no call is asked of who needs none.
    """
    return (answered(outcome) + float(outcome.invalid_calls == 0)) / 2


def agent_r1(outcome: Outcome) -> float:
    """The exact match if ``format`` is 1, else ``format`` - 1, so from -1 to 1: the reward of Agent-R1
    (arXiv 2511.14460, equation 6)."""
    form = well_formed(outcome)
    return _exact_match(outcome) if form == 1.0 else form - 1.0


def support_recall(outcome: Outcome) -> float:
    """Share of the task's supporting paragraphs, by title, that the results of its searches began with.

    1.0 for a task without any.
    """
    wanted = {" ".join(title.split()) for title, _ in outcome.task.supporting}
    if not wanted:
        return 1.0
    lines = [line for record in outcome.records for line in _HIT.findall(str(record.get("result", "")))]
    return sum(any(line.startswith(f"{title}: ") for line in lines) for title in wanted) / len(wanted)


@per_step
def calls(turn: Turn) -> float:
    """Number of calls in the reply: with a negative weight, what a call costs."""
    return float(len(turn.calls))


@per_step
def invalid_calls(turn: Turn) -> float:
    """Number of calls in the reply that could not be run."""
    return float(sum(record["error"] in INVALID_CALLS for record in turn.calls))


@per_step
def unreadable(turn: Turn) -> float:
    """1.0 for a reply with neither a call nor an answer."""
    return float(turn.unreadable)


@per_step
def tokens(turn: Turn) -> float:
    """Tokens of the reply: with a negative weight, what a token costs."""
    return float(_counted(turn, "tokens"))


@with_options
def overlong(soft: int, hard: int) -> StepTerm:
    """How much too long a reply is: 0 up to ``soft`` tokens, 1 from ``hard`` on, linear between.

    With the weight -1 it is the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13), where
    ``hard`` is L_max and ``soft`` is L_max - L_cache; but here it is paid for each reply. A reply that was
    cut by its limit counts as ``hard``.

    Raises:
        ValueError: not 0 <= soft < hard.
    """
    if not 0 <= soft < hard:
        raise ValueError(f"overlong needs 0 <= soft < hard, got soft={soft!r} and hard={hard!r}")

    @per_step
    def term(turn: Turn) -> float:
        if turn.cut:
            return 1.0
        return min(1.0, max(0.0, (_counted(turn, "overlong") - soft) / (hard - soft)))

    return term


_HIT = re.compile(r"^\[\d+\] (.*)$", re.MULTILINE)


def _counted(turn: Turn, name: str) -> int:
    if turn.tokens is None:
        raise ValueError(
            f"the reward term {name!r} needs the tokens of each reply: give the environment a tokenizer, or "
            "step with Reply(text, tokens=number)"
        )
    return turn.tokens


def _of_answer(score: Callable[[str, Sequence[str]], float]) -> Term:
    # A gold such as "A" normalises to nothing; without the first test, saying nothing would earn it.
    def term(outcome: Outcome) -> float:
        return score(outcome.answer or "", outcome.task.answers) if answered(outcome) else 0.0

    return term


def _math_equal(prediction: str, golds: Sequence[str]) -> float:
    from agent_r1_env.mathequal import math_equal  # 40 ms that importing the package should not take

    return math_equal(prediction, golds)


_exact_match = _of_answer(exact_match)
TERMS: dict[str, Callable[..., Any]] = {
    "agent_r1": agent_r1,
    "answered": answered,
    "calls": calls,
    "cover": _of_answer(cover),
    "exact_match": _exact_match,
    "f1": _of_answer(f1),
    "format": well_formed,
    "invalid_call_rate": invalid_call_rate,
    "invalid_calls": invalid_calls,
    "math_equal": _of_answer(_math_equal),
    "overlong": overlong,
    "sub_exact_match": _of_answer(sub_exact_match),
    "support_recall": support_recall,
    "tokens": tokens,
    "unreadable": unreadable,
}
