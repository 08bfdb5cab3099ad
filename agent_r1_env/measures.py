"""The numbers of an evaluation by name, as tables show them and comparisons pair them.

Beside the metrics of the environment there are ``official/<name>`` of the data set's own scorer, ``pass@<k>``
where tasks have several samples, ``reward``, ``steps``, ``tool_calls``, ``prompt_tokens`` and
``reply_tokens`` of an episode, and the rates ``tool_call_rate``, ``invalid_call_rate``, ``answer_rate`` and
``truncation_rate``.

A sample passes if its reward is 1 where every reward is 0 or 1; else if its ``exact_match`` is 1. Where
neither tells, there is no pass@k.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from agent_r1_env.errors import unknown_name
from agent_r1_env.statistics import Interval, interval, pass_at_k, ratio
from agent_r1_env.summary import Evaluation, Row, is_count

HEADLINES = ("exact_match", "sub_exact_match", "f1")
"""Shown and compared unless others are named."""

_OFFICIAL = "official/"
_PASS = re.compile(r"pass@([1-9]\d*)")
_OF_EPISODES = ("steps", "tool_calls", "prompt_tokens", "reply_tokens")
_SHARES: dict[str, Callable[[Row], bool]] = {
    "answer_rate": lambda row: row["answer"] is not None,
    "truncation_rate": lambda row: bool(row["truncated"]),
}
_RATIOS = {"tool_call_rate": ("calling", "steps"), "invalid_call_rate": ("invalid_calls", "calls")}
_BETTER_HIGH = frozenset({*HEADLINES, "cover", "math_equal", "support_recall", "reward", "answer_rate"})
_BETTER_LOW = frozenset({"invalid_call_rate", "truncation_rate", "invalid_calls"})


def names(found: Evaluation) -> list[str]:
    """Every measure that an evaluation has: scores first, counts last."""
    scores = [name for name in found.metrics if not is_count(name)]
    counts = [name for name in found.metrics if is_count(name) and name not in _OF_EPISODES]
    known = [
        *(name for name in HEADLINES if name in scores),
        *(name for name in scores if name not in HEADLINES),
        *(_OFFICIAL + name for name in found.official),
        *(f"pass@{k}" for k in _sizes(found)),
        "reward",
        *(name for name in _OF_EPISODES if not _unknown(found, name)),
        *_RATIOS,
        *_SHARES,
        *counts,
    ]
    return list(dict.fromkeys(known))


def measure(found: Evaluation, name: str) -> Interval | None:
    """A measure with its interval over tasks; None where the evaluation has no such measure."""
    if name in _RATIOS:
        part, whole = _RATIOS[name]
        return ratio(_sums(found, part), _sums(found, whole))
    if name == "reward":
        return found.reward
    if name in _OF_EPISODES:
        return None if _unknown(found, name) else getattr(found, name)
    if name in found.metrics:
        return found.metrics[name]
    values = by_task(found, name)
    return interval(list(values.values())) if values else None


def by_task(found: Evaluation, name: str) -> dict[str, float]:
    """A measure for each task, by the task's id: the mean of its samples.

    Empty where the evaluation lacks the measure, and for rates of calls or replies, which a task without any
    does not have. Measures of the data set's own scorer go by its own ids, and are of the first sample.
    """
    if name.startswith(_OFFICIAL):
        official = name.removeprefix(_OFFICIAL)
        return {task: row[official] for task, row in found.official_rows.items() if official in row}
    if matched := _PASS.fullmatch(name):
        return _passes(found, int(matched[1]))
    if name in _SHARES:
        return _means(found, _SHARES[name])
    if name in _RATIOS or name not in names(found):
        return {}
    column = "calls" if name == "tool_calls" else name
    scores = {task: values for task, values in found.samples_of(column).items() if None not in values}
    return {task: fmean(values) for task, values in scores.items()}


def check_names(asked: Sequence[str], evaluations: Sequence[Evaluation]) -> None:
    """Refuse measures that none of the evaluations has.

    Raises:
        UnknownName: says the nearest one that there is.
    """
    known = dict.fromkeys(name for found in evaluations for name in names(found))
    for name in asked:
        if name not in known and not any(by_task(found, name) for found in evaluations):
            raise unknown_name("metric", name, known)


def headlines(evaluations: Sequence[Evaluation]) -> list[str]:
    """What is shown and compared unless others are named: ``HEADLINES``, else the reward.

    The reward stands beside them where an evaluation has none of them.
    """
    found = [name for name in HEADLINES if any(name in each.metrics for each in evaluations)]
    bare = any(not each.metrics.keys() & set(HEADLINES) for each in evaluations)
    return [*found, "reward"] if bare or not found else found


def better(name: str) -> int:
    """1 if more of it is better, -1 if less is, 0 if that is not known."""
    if name in _BETTER_HIGH or name.startswith((_OFFICIAL, "pass@")):
        return 1
    return -1 if name in _BETTER_LOW else 0


def decimals(name: str) -> int:
    """How many decimals are worth showing."""
    return {"prompt_tokens": 0, "reply_tokens": 1, "steps": 2, "tool_calls": 2}.get(name, 3)


def success(found: Evaluation) -> str | None:
    """The measure by which a sample passes, as the head of this module says."""
    scores = [score for values in found.samples_of("reward").values() for score in values]
    if all(score in (0.0, 1.0) for score in scores):
        return "reward"
    return "exact_match" if "exact_match" in found.metrics else None


def _passes(found: Evaluation, k: int) -> dict[str, float]:
    passing = success(found)
    if passing is None or found.samples == 1:
        return {}
    samples = {task: each for task, each in found.samples_of(passing).items() if len(each) >= k}
    if not samples:
        return {}
    good = [sum(score == 1.0 for score in scores) for scores in samples.values()]
    shares = pass_at_k([len(scores) for scores in samples.values()], good, k)
    return dict(zip(samples, shares.tolist(), strict=True))


def _sizes(found: Evaluation) -> list[int]:
    """k = 1, 2, 4, ... and the number of samples itself."""
    if found.samples == 1 or success(found) is None:
        return []
    powers = [1 << exponent for exponent in range(found.samples.bit_length())]
    return [*(power for power in powers if power < found.samples), found.samples]


def _unknown(found: Evaluation, name: str) -> bool:
    """Whether nobody counted it."""
    mean = getattr(found, name).mean
    return bool(mean != mean)


def _sums(found: Evaluation, column: str) -> list[float]:
    return [sum(values) for values in found.samples_of(column).values()]


def _means(found: Evaluation, of: Callable[[Row], bool]) -> dict[str, float]:
    values: defaultdict[str, list[bool]] = defaultdict(list)
    for row in found.rows:
        if row["error"] is None:
            values[row["task_id"]].append(of(row))
    return {task: fmean(each) for task, each in values.items()}
