"""One episode of a scripted policy, which looks at the environment itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode, Step

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Policy = Callable[[ToolEnv, np.random.Generator], str]
"""Called once a step; returns the whole reply. It may look at the task: it is on the developer's side."""


@dataclass(frozen=True)
class Play:
    """One episode to run: which sample of which task, and the seed of both."""

    task: int
    task_id: str
    sample: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What it is known by in the folder of an evaluation."""
        return self.task_id, self.sample


class _Broken(Exception):
    """The environment raised; carries type and text of what."""


def play(env: ToolEnv, env_id: str, policy: Policy, asked: Play) -> Episode:
    """Run one episode. Its random numbers depend on ``asked.seed`` alone.

    What the environment raises ends the episode with the stop reason "error" and is logged; what the policy
    raises is raised.
    """
    steps: list[Step] = []
    error: str | None = None
    info: Mapping[str, Any] = {}
    terminated = truncated = False
    try:
        terminated, truncated, info = _turns(env, policy, asked, steps)
    except _Broken as broken:
        error, truncated = str(broken), True
        _log.warning("an episode of %s ended in an error", env_id, exc_info=broken.__cause__)
    return Episode(
        env_id,
        asked.task_id,
        asked.seed,
        asked.task,
        tuple(steps),
        terminated,
        truncated,
        info.get("stop_reason") if error is None else "error",
        info.get("answer"),
        info.get("metrics", {}),
        error=error,
        sample=asked.sample,
    )


def _turns(
    env: ToolEnv, policy: Policy, asked: Play, steps: list[Step]
) -> tuple[bool, bool, Mapping[str, Any]]:
    rng = np.random.default_rng(asked.seed)
    prompt, info = _guarded(partial(env.reset, seed=asked.seed, options={"task": asked.task}))
    terminated = truncated = False
    while not (terminated or truncated):
        reply, start = policy(env, rng), time.perf_counter()
        observation, reward, terminated, truncated, info = _guarded(partial(env.step, reply))
        seconds = time.perf_counter() - start
        terms, calls = info["reward_terms"], info["calls"]
        steps.append(
            Step((), (), (), reward, prompt, reply, reward_terms=terms, calls=calls, tool_seconds=seconds)
        )
        prompt = observation
    return terminated, truncated, info


def _guarded(act: Callable[[], _T]) -> _T:
    try:
        return act()
    except (Exception, SystemExit) as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
