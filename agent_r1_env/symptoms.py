"""What tells from the logged metrics that a run goes wrong: a rule for each way in which it may.

A rule reads the last few updates together, because a single one of few tasks swings by chance, and compares
them with a limit, with the first updates, or with the best ones so far.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

REWARD, SCORE = "reward", "agent/exact_match"
_START = 5  # updates that stand for the beginning of a run
_HUGE = 1e12  # beyond it a number says nothing more, and sums of such numbers overflow
_WINDOWS = {
    REWARD: 10,
    SCORE: 10,
    "entropy": 3,
    "grad_norm": 3,
    "loss": 1,
    "frac_reward_zero_std": 5,
    "sampling/sampling_logp_difference/mean": 3,
    "agent/tokens_per_reply": 3,
    "agent/tool_call_rate": 3,
    "agent/invalid_call_rate": 5,
    "agent/repeat_call_rate": 5,
    "agent/truncated_fraction": 3,
    "agent/stop/length": 3,
    "agent/drift": 1,
    "agent/staleness/max": 1,
}
"""Updates that are read together, by metric."""
_ABSENT_IS_ZERO = ("agent/stop/length",)  # logged only where it happened


@dataclass(frozen=True)
class Sighting:
    """What a rule found.

    Attributes:
        severity: how far beyond its limit, as a ratio; 1 is just there.
        first: the first of the updates that it was read from.
        seen: the numbers, in words.
    """

    severity: float
    first: int
    seen: str


@dataclass
class Series:
    """One metric over the updates, of which only the last few are kept."""

    window: int
    steps: deque[int] = field(default_factory=deque)
    last: deque[float] = field(default_factory=deque)
    first: list[float] = field(default_factory=list)
    earlier: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, step: int, value: float) -> None:
        """Take in the value of one more update."""
        if len(self.last) == self.window:
            self.earlier.append(self.last.popleft())
            self.steps.popleft()
        self.steps.append(step)
        self.last.append(value)
        if len(self.first) < _START:
            self.first.append(value)
        if self.full:
            self.lowest, self.highest = min(self.lowest, self.level), max(self.highest, self.level)

    @property
    def full(self) -> bool:
        """Whether there are as many values as are read together."""
        return len(self.last) == self.window

    @property
    def level(self) -> float:
        """Of the last few updates together: their median, which one bad batch does not move."""
        return median(self.last)

    @property
    def start(self) -> float | None:
        """Of the first updates, once none of them is among the last few."""
        return median(self.first) if len(self.earlier) >= _START else None


class History:
    """The metrics of all updates so far, as rules read them.

    Attributes:
        step: the last update.
        broken: which of loss and gradient was not finite at the last update; None for neither.
        peak: the best score of several updates, and their reward; None while there is none.
    """

    def __init__(self) -> None:
        self._series = {name: Series(window) for name, window in _WINDOWS.items()}
        self.step = 0
        self.broken: str | None = None
        self.peak: tuple[float, float] | None = None

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take in one update; what is missing or no number leaves its metric as it was."""
        self.step = step
        self.broken = next((name for name in ("loss", "grad_norm") if _broken(metrics, name)), None)
        for name, series in self._series.items():
            default = 0.0 if name in _ABSENT_IS_ZERO and REWARD in metrics else None
            value = _number(metrics.get(name, default))
            if value is not None:
                series.add(step, value)
        score, reward = self.of(SCORE), self.of(REWARD)
        if score and reward and (self.peak is None or score.level >= self.peak[0]):
            self.peak = score.level, reward.level

    def of(self, name: str) -> Series | None:
        """A metric that this update has, and enough updates before it, too."""
        series = self._series[name]
        return series if series.full and series.steps[-1] == self.step else None

    def now(self, name: str) -> float | None:
        """A metric as it was last; None where it never was there."""
        series = self._series[name]
        return series.last[-1] if series.last else None


Rule = Callable[[History, Mapping[str, float]], Sighting | None]


def drift(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/drift")
    if found is None or found.level <= 0:
        return None
    return Sighting(
        found.level, found.steps[0], f"{found.level:g} trained tokens are not the tokens that were sampled"
    )


def not_finite(history: History, limits: Mapping[str, float]) -> Sighting | None:
    if history.broken is None:
        return None
    return Sighting(1.0, history.step, f"{history.broken} is not a finite number")


def gradient(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("grad_norm")
    if found is None or len(found.earlier) < 2 * _START:
        return None
    usual = median(found.earlier)
    severity = min(found.last) / max(limits["gradient"] * usual, limits["gradient_least"])
    return _beyond(severity, found, f"the gradient has length {found.level:.3g}, usually {usual:.3g}")


def entropy_low(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("entropy")
    if found is None:
        return None
    before = "" if found.start is None else f", after {found.start:.3f} at the start"
    severity = limits["entropy_low"] / max(found.level, limits["entropy_low"] / 1000)
    return _beyond(severity, found, f"the policy chooses with {found.level:.4f} nats a token{before}")


def entropy_high(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("entropy")
    if found is None or found.start is None:
        return None
    severity = found.level / (found.start + limits["entropy_rise"])
    return _beyond(severity, found, f"entropy rose from {found.start:.2f} to {found.level:.2f} nats a token")


def short_replies(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/tokens_per_reply")
    if found is None or found.start is None or found.start < limits["short_least"]:
        return None
    severity = limits["short_replies"] * found.start / max(found.level, 0.1)
    return _beyond(
        severity, found, f"a reply has {found.level:.1f} tokens, after {found.start:.1f} at the start"
    )


def long_replies(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/stop/length")
    if found is None:
        return None
    seen = f"{found.level:.0%} of the episodes end in a reply cut by max_completion_length"
    return _beyond(found.level / limits["long_replies"], found, seen)


def no_calls(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/tool_call_rate")
    if found is None or found.highest < limits["calls_used"] or max(found.last) >= limits["calls_gone"]:
        return None
    seen = f"{found.level:.1%} of the replies call a tool; it was {found.highest:.0%} before"
    return Sighting(1.0, found.steps[0], seen)


def invalid_calls(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found, calls = history.of("agent/invalid_call_rate"), history.of("agent/tool_call_rate")
    if found is None or calls is None or calls.level < limits["calls_gone"]:
        return None
    severity = (found.level - found.lowest) / limits["invalid_rise"]
    seen = f"{found.level:.0%} of the calls are invalid; it was {found.lowest:.0%} before"
    return _beyond(severity, found, seen)


def repeated_calls(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/repeat_call_rate")
    if found is None:
        return None
    seen = f"{found.level:.0%} of the calls repeat an earlier call of their episode"
    return _beyond(found.level / limits["repeated_calls"], found, seen)


def truncation(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("agent/truncated_fraction")
    if found is None:
        return None
    cut = history.of("agent/stop/length")  # which has a rule of its own
    share = found.level - (cut.level if cut else 0.0)
    seen = f"a limit ended {share:.0%} of the episodes"
    return _beyond(share / limits["truncation"], found, seen)


def no_variance(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("frac_reward_zero_std")
    if found is None or min(found.last) < 1:
        return None
    reward = history.now(REWARD)
    paid = "" if reward is None else f" ({reward:.3g} on average at the last)"
    return Sighting(
        1.0, found.steps[0], f"all episodes of each group got the same reward{paid}: nothing is learnt"
    )


def logp_gap(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of("sampling/sampling_logp_difference/mean")
    if found is None:
        return None
    limit, age = limits["logp_gap"], history.of("agent/staleness/max")
    overlapped = age is not None and age.highest > 0  # then it grows with each change of the weights
    if found.start is not None and not overlapped:
        limit = min(limit, max(limits["logp_growth"] * found.start, limits["logp_least"]))
    seen = f"engine and trainer differ by {found.level:.2g} in the log-prob of a token"
    return _beyond(found.level / limit, found, seen)


def reward_fell(history: History, limits: Mapping[str, float]) -> Sighting | None:
    found = history.of(REWARD)
    if found is None or found.start is None:
        return None
    gained, lost = found.highest - found.start, found.highest - found.level
    if gained < limits["gain_least"]:
        return None
    seen = f"the reward fell to {found.level:.3f}, after {found.highest:.3f} at its best"
    return _beyond(lost / (limits["reward_fell"] * gained), found, seen)


def reward_hacking(history: History, limits: Mapping[str, float]) -> Sighting | None:
    score, reward = history.of(SCORE), history.of(REWARD)
    if score is None or reward is None or history.peak is None:
        return None
    lost, won = history.peak[0] - score.level, reward.level - history.peak[1]
    seen = (
        f"the reward rose from {history.peak[1]:.3f} to {reward.level:.3f} while exact match fell from "
        f"{history.peak[0]:.3f} to {score.level:.3f}"
    )
    return _beyond(min(lost, won) / limits["hacking"], score, seen)


def _beyond(severity: float, read: Series, seen: str) -> Sighting | None:
    return Sighting(severity, read.steps[0], seen) if severity > 1 else None


def _broken(metrics: Mapping[str, Any], name: str) -> bool:
    """Whether it was logged and is not finite; files of metrics hold null then."""
    if name not in metrics:
        return False
    value = metrics[name]
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(max(-_HUGE, min(_HUGE, value)))
