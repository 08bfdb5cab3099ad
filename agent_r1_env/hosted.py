"""An environment on a thread of its own, asked by coroutines.

Everything that may block is done there, so a slow environment stops no event loop, and one that is bound to
the thread which made it (a database connection, a browser) never meets another. An environment with a
coroutine ``step_async`` is awaited instead.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

_log = logging.getLogger(__name__)
_Job = tuple[Future[Any], Callable[[], Any]]
Environment = gym.Env[Any, Any]
StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]

GRACE = 5.0
"""Seconds that closing waits for a step under way; a thread can't be stopped, only left behind."""


class HostedEnv:
    """One environment of ``gym.make``, made on first use."""

    def __init__(self, env_id: str, env_kwargs: Mapping[str, Any]) -> None:
        self.env_id = env_id
        self._env_kwargs = dict(env_kwargs)
        self._env: Environment | None = None
        self._step_async: Callable[[str], Awaitable[StepResult]] | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon, because a step that never returns must not keep the interpreter alive.
        threading.Thread(target=self._serve, name=f"env-{env_id}", daemon=True).start()

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
        await self._do(self._make)
        self._step_async = _coroutine_step(self.env)

    async def reset(self, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        result: tuple[Any, dict[str, Any]] = await self._do(
            partial(self.env.reset, seed=seed, options=options)
        )
        return result

    async def step(self, action: str) -> StepResult:
        """One step; cancelling it cancels what is awaited, but not a thread."""
        if self._step_async is not None:
            return await self._step_async(action)
        result: StepResult = await self._do(partial(self.env.step, action))
        return result

    async def truncate(self, reason: str) -> tuple[float, dict[str, Any]]:
        """End the episode from outside: reward and info, which are bare where there is no ``truncate``."""
        truncate = getattr(self.env.unwrapped, "truncate", None)
        if truncate is None:
            return 0.0, {"stop_reason": reason}
        _, reward, _, _, info = await self._do(partial(truncate, reason))
        return float(reward), info

    def close(self) -> Future[None]:
        """Ask the thread to close the environment and end; the future tells when it has."""
        closed: Future[None] = Future()
        self._jobs.put((closed, self._close))
        self._jobs.put(None)
        return closed

    async def _do(self, function: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # SystemExit of an environment is its failure, not our end
                future.set_exception(error)
            del job, future, function  # an idle thread keeps nothing alive

    def _make(self) -> None:
        # Kept here and not by the coroutine, which may be cancelled while this thread works on.
        self._env = gym.make(self.env_id, disable_env_checker=True, **self._env_kwargs)

    def _close(self) -> None:
        try:
            if self._env is not None:
                self._env.close()
        except Exception:  # there is nothing left that it could spoil
            _log.warning("an environment %r failed to close", self.env_id, exc_info=True)


def _coroutine_step(env: Environment) -> Callable[[str], Awaitable[StepResult]] | None:
    """``step_async`` of the bare environment, unless a wrapper would miss the step."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        checks = isinstance(layer, OrderEnforcing | PassiveEnvChecker)
        if not checks and type(layer).step is not gym.Wrapper.step:
            return None
        layer = layer.env
    return getattr(layer, "step_async", None)


def close_all(envs: list[HostedEnv]) -> None:
    """Close environments at the same time, empty the list, and wait for them, at most ``GRACE`` seconds."""
    closing = _begin_to_close(envs)
    wait(closing.values(), timeout=GRACE)
    _tell_late(closing)


async def close_all_async(envs: list[HostedEnv]) -> None:
    """The same as ``close_all``, without blocking the event loop."""
    closing = _begin_to_close(envs)
    if closing:
        await asyncio.wait(map(asyncio.wrap_future, closing.values()), timeout=GRACE)
    _tell_late(closing)


def _begin_to_close(envs: list[HostedEnv]) -> dict[HostedEnv, Future[None]]:
    closing = {env: env.close() for env in envs}
    envs.clear()
    return closing


def _tell_late(closing: Mapping[HostedEnv, Future[None]]) -> None:
    for env, closed in closing.items():
        if not closed.done():
            _log.warning("an environment %r did not close within %g s and is left behind", env.env_id, GRACE)
