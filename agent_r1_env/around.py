"""What simulations put around the function that runs a tool, and the random numbers that they draw.

Everything is drawn from the tool's hidden argument ``rng``, which is seeded by episode and call: equal seeds
and replies meet equal trouble, whatever else runs at the same time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from agent_r1_env import workers
from agent_r1_env.errors import unknown_name
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool

Run = Callable[..., Any]
Perturbation = Callable[[Sequence[Tool], TaskSet | None], list[Tool]]
"""Makes other tools of an environment's, whose tasks it may look at."""
_PASSED_ON = ("close", "get_state", "set_state")


@dataclass(frozen=True, slots=True)
class Luck:
    """What one attempt at a call draws.

    Attributes:
        word: 64 random bits of the attempt.
        salt: of whoever draws; draws with different salts have nothing to do with each other.
    """

    word: int
    salt: str

    @classmethod
    def of(cls, rng: np.random.Generator, salt: str, *, shared: bool) -> Luck:
        """The luck of the next attempt.

        Args:
            shared: the tool draws from ``rng``, too, and must not notice.
        """
        own = rng.spawn(1)[0] if shared else rng
        return cls(int(own.bit_generator.random_raw()), salt)

    def share(self) -> float:
        """A number from 0 to below 1. A generator would take ten times as long, on every call."""
        digest = blake2b(f"{self.word}/{self.salt}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)

    def rng(self) -> np.random.Generator:
        """A generator for all further draws of the attempt."""
        return np.random.default_rng([self.word, *self.salt.encode()])


class Around:
    """A tool's function inside another; it is closed and keeps its state as the tool's own does."""

    def __init__(self, run: Run) -> None:
        # Calls of it that hang are counted with those of the tool, and its coroutines run on the tool's loop.
        self.__wrapped__ = run

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self.__wrapped__, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, slots=True)
class Filled:
    """The hidden arguments of a call: which are the tool's own, and which are for its surroundings.

    Attributes:
        more: those that the tool doesn't ask for.
    """

    more: tuple[str, ...]

    @classmethod
    def beside(cls, tool: Tool, *names: str) -> Filled:
        """``names``, of which the tool may take some itself."""
        return cls(tuple(name for name in names if name not in tool.hidden))

    def own(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the tool gets."""
        return {name: value for name, value in arguments.items() if name not in self.more}

    def luck(self, arguments: dict[str, Any], salt: str) -> Luck:
        """The luck of an attempt with these arguments."""
        return Luck.of(arguments["rng"], salt, shared="rng" not in self.more)


def surrounded(tool: Tool, around: Callable[[Run], Run], filled: Filled) -> Tool:
    """The tool with ``around`` what runs it, in every episode.

    It is not inline, since it may wait. It has no cache: what is kept would be shared with environments that
    simulate nothing, and would let the trouble of an episode depend on others.
    """
    begin = tool.begin
    return replace(
        tool,
        run=around(tool.run),
        begin=None if begin is None else lambda: around(begin()),
        hidden=(*tool.hidden, *filled.more),
        cache=None,
        inline=False,
    )


def chosen(tools: Sequence[Tool], names: Sequence[str] | None) -> list[bool]:
    """Which of the tools are meant: those of these names, or all.

    Raises:
        UnknownName: there is no tool of one of the names.
    """
    known = [tool.name for tool in tools]
    for name in names or ():
        if name not in known:
            raise unknown_name("tool", name, known)
    return [names is None or name in names for name in known]


def named(names: Any, option: str = "tools") -> tuple[str, ...] | None:
    """Names of tools as a setting; None: all of them.

    Raises:
        ValueError: it is no list of names.
    """
    if names is None:
        return None
    if (
        isinstance(names, str)
        or not isinstance(names, Sequence)
        or not all(isinstance(n, str) for n in names)
    ):
        raise ValueError(f"{option} must be a list of names, got {names!r}")
    return tuple(names)


def rate(name: str, value: Any) -> float:
    """A share of all calls.

    Raises:
        ValueError: it is not a number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is a share of all calls, from 0 to 1, got {value!r}")
    return float(value)


def whole_seed(value: Any) -> int:
    """A seed.

    Raises:
        ValueError: it is not a whole number from 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"seed must be a whole number from 0, got {value!r}")
    return value


async def awaited(run: Run, arguments: dict[str, Any]) -> Any:
    """What ``run`` returns, without blocking the event loop; a plain function runs on a thread."""
    if workers.is_coroutine_function(run):
        return await run(**arguments)
    future = workers.start(run, arguments, _as_it_is)
    try:
        outcome = await asyncio.wrap_future(future)
    finally:
        workers.leave(run, future)
    if outcome.failure is not None:
        raise outcome.failure
    return outcome.value


def settled(value: Any) -> Any:
    """The value itself, where a plain function returned a coroutine for it; not on an event loop."""
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _as_it_is(value: Any) -> Any:
    return value
