"""Simulated latency: calls of tools that take their time, and some that never end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent_r1_env.around import (
    Around,
    Filled,
    Run,
    awaited,
    chosen,
    named,
    rate,
    surrounded,
    whole_seed,
)
from agent_r1_env.errors import TimedOut
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool

_MARGIN = 0.25
"""Seconds before the tool's timeout at which a longer wait is given up; less where that is short."""


class Latency:
    """Lets every call wait before it runs. The wait is real and counts towards the tool's timeout.

    Nothing is blocked meanwhile but the call itself: no thread, and no event loop. A wait that the tool's
    timeout ends is marked as simulated in records, and counted in ``metrics["simulated/latency"]``.

    Args:
        constant: seconds of each call.
        uniform: the least and the most seconds.
        lognormal: the median in seconds, and the standard deviation of the logarithm: with 1 every sixth call
            takes more than 2.7 times the median.
        hang: share of calls that never end; the tool's timeout ends them, and the tool does not run.
        tools: names of the tools that are slow; all by default.
        seed: other waits for the same seeds of the environment.

    Raises:
        ValueError: not exactly one distribution, unless calls hang and are not slow otherwise; seconds are
            negative or not finite; or a share is none.
    """

    def __init__(
        self,
        constant: float | None = None,
        *,
        uniform: Sequence[float] | None = None,
        lognormal: Sequence[float] | None = None,
        hang: float = 0.0,
        tools: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.hang = rate("hang", hang)
        given = {"constant": constant, "uniform": uniform, "lognormal": lognormal}
        asked = [name for name, value in given.items() if value is not None]
        if len(asked) > 1 or not (asked or self.hang):
            found = " and ".join(asked) or "none of them"
            raise ValueError(f"latency is one of constant, uniform and lognormal, or hang; got {found}")
        self.constant = 0.0 if constant is None else _seconds("constant", constant)
        self.uniform = None if uniform is None else _pair("uniform", uniform, "[least, most]")
        self.lognormal = None if lognormal is None else _pair("lognormal", lognormal, "[median, sigma]")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError(f"uniform is [least, most], got {uniform!r}")
        self.tools = named(tools)
        self.salt = f"latency/{whole_seed(seed)}"

    def __call__(self, tools: Sequence[Tool], tasks: TaskSet | None = None) -> list[Tool]:
        """The tools, slower.

        Raises:
            UnknownName: there is no tool of one of the names.
        """
        meant = chosen(tools, self.tools)
        return [self._slow(tool) if slow else tool for tool, slow in zip(tools, meant, strict=True)]

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Latency:
        return self

    def seconds(self, rng: np.random.Generator) -> float:
        """How long a call waits; without end if it hangs."""
        if self.hang and rng.random() < self.hang:
            return math.inf
        if self.uniform is not None:
            return float(rng.uniform(*self.uniform))
        if self.lognormal is not None:
            median, sigma = self.lognormal
            return median * math.exp(sigma * float(rng.standard_normal()))
        return self.constant

    def _slow(self, tool: Tool) -> Tool:
        filled = Filled.beside(tool, "rng")
        return surrounded(tool, lambda run: _Slow(run, self, filled, tool.timeout), filled)


class _Slow(Around):
    """A coroutine function that waits, then does what it holds."""

    def __init__(self, run: Run, latency: Latency, filled: Filled, timeout: float) -> None:
        super().__init__(run)
        self._latency, self._filled, self._timeout = latency, filled, timeout

    async def __call__(self, /, **arguments: Any) -> Any:
        seconds = self._latency.seconds(self._filled.luck(arguments, self._latency.salt).rng())
        # A time-out from outside would not be marked as simulated.
        patience = self._timeout - min(_MARGIN, self._timeout / 4)
        await asyncio.sleep(min(seconds, patience))
        if seconds > patience:
            failure = TimedOut("the time is up")
            failure.simulated = "latency"
            raise failure
        return await awaited(self.__wrapped__, self._filled.own(arguments))


def _seconds(name: str, value: Any) -> float:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be seconds from 0, got {value!r}")
    return float(value)


def _pair(name: str, value: Any, meaning: str) -> tuple[float, float]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name} is {meaning}, got {value!r}")
    return _seconds(name, value[0]), _seconds(name, value[1])
