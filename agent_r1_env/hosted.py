"""An environment that coroutines ask, however it works.

What may block is done on a thread of the environment's own, so a slow environment stops no event loop, and
one that is bound to the thread which made it (a database connection, a browser) never meets another. An
environment with a coroutine ``step_async`` is awaited instead; with ``reset_async`` and ``truncate_async``
beside it, it needs no thread at all once it is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from agent_r1_env.lanes import Lane, Lanes

_log = logging.getLogger(__name__)
Environment = gym.Env[Any, Any]
StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]

GRACE = 5.0
"""Seconds that closing waits for a step under way; a thread can't be stopped, only left behind."""
_MOMENT = 0.02  # seconds for which environments are made at a stretch
_CLOSING = 32  # threads that close environments which have none


class HostedEnv:
    """One environment of ``gym.make``, made on first use.

    Attributes:
        settled: Whether all that was asked of it came back. What was cancelled may still go on, so an
            environment that is not settled must not be used again.
    """

    def __init__(self, env_id: str, env_kwargs: Mapping[str, Any], lanes: Lanes) -> None:
        self.env_id = env_id
        self.settled = True
        self._env_kwargs = dict(env_kwargs)
        self._env: Environment | None = None
        self._lanes = lanes
        self._lane: Lane | None = None
        self._step_async: Callable[[str], Awaitable[StepResult]] | None = None
        self._awaited: Any = None

    @property
    def env(self) -> Environment:
        """The environment itself.

        Raises:
            RuntimeError: it isn't made yet.
        """
        if self._env is None:
            raise RuntimeError(f"the environment {self.env_id!r} is not made yet; await make() first")
        return self._env

    async def make(self) -> None:
        """Make the environment; what ``gym.make`` raises is a mistake of the developer and raises here."""
        self._lane = self._lanes.take()
        await self._do(self._make)
        if self._can_be_awaited():
            lane, self._lane = self._lane, None
            self._lanes.give(lane)

    async def reset(self, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self.settled = False
        result: tuple[Any, dict[str, Any]]
        if self._awaited is not None:
            result = await self._awaited.reset_async(seed=seed, options=options)
        else:
            result = await self._do(partial(self.env.reset, seed=seed, options=options))
        self.settled = True
        return result

    async def step(self, action: str) -> StepResult:
        """One step; cancelling it cancels what is awaited, but not a thread."""
        self.settled = False
        result: StepResult
        if self._step_async is not None:
            result = await self._step_async(action)
        else:
            result = await self._do(partial(self.env.step, action))
        self.settled = True
        return result

    async def truncate(self, reason: str) -> tuple[float, dict[str, Any]]:
        """End the episode from outside: reward and info, which are bare where there is no ``truncate``."""
        if self._awaited is not None:
            _, reward, _, _, info = await self._awaited.truncate_async(reason)
            return float(reward), info
        truncate = getattr(self.env.unwrapped, "truncate", None)
        if truncate is None:
            return 0.0, {"stop_reason": reason}
        _, reward, _, _, info = await self._do(partial(truncate, reason))
        return float(reward), info

    def close(self, lane: Lane | None = None) -> Future[None]:
        """Close the environment on its thread, or on that of ``lane``; the future tells when it has."""
        own, self._lane = self._lane, None
        place = own or lane or self._lanes.take()
        closed = place.do(self._close)
        if place is not lane:
            place.do(partial(self._lanes.give, place))
        return closed

    @property
    def has_thread(self) -> bool:
        """Whether a thread is its own."""
        return self._lane is not None

    async def _do(self, function: Callable[[], Any]) -> Any:
        assert self._lane is not None, "only an environment with a thread is asked there"
        return await asyncio.wrap_future(self._lane.do(function))

    def _make(self) -> None:
        # Kept here and not by the coroutine, which may be cancelled while this thread works on.
        self._env = gym.make(self.env_id, disable_env_checker=True, **self._env_kwargs)

    def _can_be_awaited(self) -> bool:
        """Find out how to ask it; whether that is always by coroutines."""
        self._step_async = _coroutine_step(self.env)
        if self._step_async is not None and _needs_no_thread(self.env):
            self._awaited = self.env.unwrapped
        return self._awaited is not None

    def _close(self) -> None:
        try:
            if self._env is not None:
                self._env.close()
        except Exception:  # there is nothing left that it could spoil
            _log.warning("an environment %r failed to close", self.env_id, exc_info=True)


def _coroutine_step(env: Environment) -> Callable[[str], Awaitable[StepResult]] | None:
    """``step_async`` of the bare environment, unless a wrapper would miss the step."""
    return None if _wrapped(env, "step") else getattr(env.unwrapped, "step_async", None)


def _needs_no_thread(env: Environment) -> bool:
    """Whether the bare environment can be awaited in all it does, and nothing that blocks is missed by it."""
    bare = env.unwrapped
    if _wrapped(env, "reset"):
        return False
    return all(_awaitable(bare, name) for name in ("reset", "truncate"))


def _wrapped(env: Environment, name: str) -> bool:
    """Whether a wrapper does more in that method than to check the order of calls."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        checks = isinstance(layer, OrderEnforcing | PassiveEnvChecker)
        if not checks and getattr(type(layer), name) is not getattr(gym.Wrapper, name):
            return True
        layer = layer.env
    return False


def _awaitable(env: Environment, name: str) -> bool:
    """Whether a coroutine stands for a method: a method that was replaced since may well block."""
    twin = f"{name}_async"
    if not hasattr(env, twin) or name in vars(env):
        return False
    plain, awaited = (next(cls for cls in type(env).__mro__ if each in vars(cls)) for each in (name, twin))
    return issubclass(awaited, plain)


async def make_more(like: HostedEnv, count: int) -> list[HostedEnv]:
    """Up to ``count`` further environments like one that has no thread: as many as a moment allows.

    One at a time would wait for the event loop between any two of them.
    """
    lane = like._lanes.take()
    made: list[HostedEnv] = []

    def work() -> None:
        end = time.monotonic() + _MOMENT
        while len(made) < count and time.monotonic() < end:
            env = HostedEnv(like.env_id, like._env_kwargs, like._lanes)
            env._make()
            made.append(env)

    def close() -> None:
        for env in made:
            env._close()

    try:
        await asyncio.wrap_future(lane.do(work))
    except BaseException:
        lane.do(close)
        raise
    finally:
        lane.do(partial(like._lanes.give, lane))
    return [env for env in made if env._can_be_awaited()]


def close_all(envs: list[HostedEnv], lanes: Lanes) -> None:
    """Close environments at the same time, empty the list, and wait for them, at most ``GRACE`` seconds."""
    closing = _begin_to_close(envs, lanes)
    wait(closing.values(), timeout=GRACE)
    _tell_late(closing)


async def close_all_async(envs: list[HostedEnv], lanes: Lanes) -> None:
    """The same as ``close_all``, without blocking the event loop."""
    closing = _begin_to_close(envs, lanes)
    if closing:
        await asyncio.wait(map(asyncio.wrap_future, closing.values()), timeout=GRACE)
    _tell_late(closing)


def _begin_to_close(envs: list[HostedEnv], lanes: Lanes) -> dict[HostedEnv, Future[None]]:
    bare = [env for env in envs if not env.has_thread]
    closing = {env: env.close() for env in envs if env.has_thread}
    shared = [lanes.take() for _ in range(min(_CLOSING, len(bare)))]
    closing |= {env: env.close(shared[place % len(shared)]) for place, env in enumerate(bare)}
    for lane in shared:
        lane.do(partial(lanes.give, lane))
    envs.clear()
    return closing


def _tell_late(closing: Mapping[HostedEnv, Future[None]]) -> None:
    for env, closed in closing.items():
        if not closed.done():
            _log.warning("an environment %r did not close within %g s and is left behind", env.env_id, GRACE)
