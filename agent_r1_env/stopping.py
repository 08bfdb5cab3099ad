"""Why an episode ends, and the budgets whose use ends it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum


class StopReason(StrEnum):
    """Why an episode ended. The first two end the task; all others are truncations."""

    ANSWER = "answer"
    """The model gave its final answer."""
    DONE = "done"
    """The task is over without an answer: a goal reached, a game won or lost."""
    MAX_STEPS = "max_steps"
    """The allowed number of replies is used up."""
    MAX_TOKENS = "max_tokens"
    """The model has written all the tokens that it may."""
    LENGTH = "length"
    """A reply was cut by its length limit; it counts as no answer."""
    PROMPT_OVERFLOW = "prompt_overflow"
    """The next prompt leaves no room for a reply."""
    TIME = "time"
    """The allowed time is used up."""
    TIME_LIMIT = "time_limit"
    """The time of the whole rollout is used up, see `Rollout`."""
    ERROR = "error"
    """Something outside the model's doing failed."""

    @property
    def terminates(self) -> bool:
        """Whether the task itself is over."""
        return self in (StopReason.ANSWER, StopReason.DONE)


TRUNCATIONS = [reason.value for reason in StopReason if not reason.terminates]


@dataclass(frozen=True, slots=True)
class Budget:
    """What one episode may use; None is no limit.

    Attributes:
        steps: replies. The one that uses up the budget still counts, its calls are run.
        calls: tool calls. Those beyond are refused, and the model is told so: it may still answer.
        tokens: tokens of all replies together, so what the model wrote and not what it read. The reply that
            goes beyond still counts.
        seconds: since ``reset``, looked at after each reply.

    Raises on construction:
        ValueError: a limit is not positive.
    """

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or (each.name == "calls" and value == 0):
                continue
            if not (math.isfinite(value) and value > 0) or (each.name != "seconds" and value != int(value)):
                kind = "positive" if each.name == "seconds" else "at least 1, and a whole number"
                raise ValueError(f"max_{each.name} must be {kind}, not {value!r}")

    def spent(self, steps: int, tokens: int | None, seconds: float) -> StopReason | None:
        """The reason to stop after a reply; None if there is none."""
        if self.steps is not None and steps >= self.steps:
            return StopReason.MAX_STEPS
        if self.tokens is not None and tokens is not None and tokens >= self.tokens:
            return StopReason.MAX_TOKENS
        if self.seconds is not None and seconds >= self.seconds:
            return StopReason.TIME
        return None
