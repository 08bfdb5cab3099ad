"""One sub-environment of a vector, on a thread of its own from its making to its end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import AutoresetMode


class Outcome(NamedTuple):
    """What became of something that a sub-environment did."""

    place: int
    value: Any
    failure: BaseException | None


def values(outcomes: Iterable[Outcome]) -> list[Any]:
    """The values, by sub-environment; or the first failure is raised."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.place)
    failures = [outcome.failure for outcome in ordered if outcome.failure is not None]
    for other in failures[1:]:
        failures[0].add_note(f"another sub-environment failed too: {other!r}")
    if failures:
        raise failures[0]
    return [outcome.value for outcome in ordered]


class SubStep(NamedTuple):
    """What a step of one sub-environment gave; ``final`` is what its episode came to, if it was reset."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    final: dict[str, Any] | None = None


class SubEnv:
    """One sub-environment and its thread.

    Attributes:
        ended: its episode is over. Kept here, not in the vector, so that a step which nobody waited for to
            its end leaves no doubt.
        closing: it is told to close, and does nothing more after that.
    """

    env: gym.Env[Any, Any]

    def __init__(self, index: int) -> None:
        self.index = index
        self.ended = False
        self.closing = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon, so that a step that hangs does not keep the interpreter alive.
        self._thread = threading.Thread(
            target=_work, args=(self._jobs,), name=f"agent-r1-env-{index}", daemon=True
        )
        self._thread.start()

    def begin(self, done: SimpleQueue[Outcome], act: Callable[[SubEnv], Any]) -> None:
        """Do something on the thread, after all that was begun before."""
        context = contextvars.copy_context()
        self._jobs.put(lambda: done.put(context.run(self._outcome, act)))

    def _outcome(self, act: Callable[[SubEnv], Any]) -> Outcome:
        try:
            return Outcome(self.index, act(self), None)
        except BaseException as failure:  # raised again where it is waited for
            failure.add_note(f"raised in sub-environment {self.index}")
            return Outcome(self.index, None, failure)

    def make(self, make: Callable[[], gym.Env[Any, Any]]) -> None:
        self.env = make()

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.ended = False
        return observation, info

    def step(self, action: Any, mode: AutoresetMode) -> SubStep:
        if self.ended and mode is AutoresetMode.NEXT_STEP:
            observation, info = self.reset(None, None)
            return SubStep(observation, 0.0, False, False, info)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.ended = bool(terminated or truncated)
        if not self.ended or mode is not AutoresetMode.SAME_STEP:
            return SubStep(observation, float(reward), terminated, truncated, info)
        final = {"final_obs": observation, "final_info": info}
        observation, info = self.reset(None, None)
        return SubStep(observation, float(reward), terminated, truncated, info, final)

    def close(self, done: SimpleQueue[Outcome]) -> None:
        """Close the environment, if it was made, and end the thread; idempotent, and does not wait."""
        if not self.closing:
            self.closing = True
            self.begin(done, lambda sub: sub.env.close() if hasattr(sub, "env") else None)
            self._jobs.put(None)

    def join(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # or the last one would keep the environment alive while this waits
