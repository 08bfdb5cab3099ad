"""The part of a rollout that plays in another process: one worker, made of plain data."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.engines import Engine, Sampling, TextEngine
from agent_r1_env.episode import Episode
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.policy_rollout import PolicyRollout
from agent_r1_env.rollout import Rollout


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker is made of.

    Attributes:
        options: of ``Rollout``, plain data too.
    """

    origin: EnvOrigin
    env_kwargs: Mapping[str, Any]
    policy: PolicySpec
    options: Mapping[str, Any] = field(default_factory=dict)

    def rollout(self) -> tuple[_Shared, Engine | TextEngine | None]:
        """A rollout that plays here, and its engine, which is to be closed after it."""
        if self.policy.policy is not None:
            scripted = _SharedPolicy(
                self.origin.env_id, self.env_kwargs, policy=self.policy.policy, **self.options
            )
            return scripted, None
        engine = self.policy.engine()
        try:
            return _Shared(self.origin.env_id, self.env_kwargs, engine=engine, **self.options), engine
        except BaseException:
            engine.close()
            raise


@dataclass(frozen=True)
class Failure:
    """What a worker raised: a mistake or a broken engine, which no other worker would fare better with.

    Attributes:
        error: None where it cannot be sent.
    """

    error: Exception | None
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure, as it can be sent."""
        text = f"{type(error).__name__}: {error}"
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # exceptions with arguments of their own; the text says what they say
            return cls(None, text)
        return cls(error, text)

    def raised(self, where: str) -> Exception:
        """The error to raise in its place."""
        if self.error is None:
            return AgentR1Error(f"{where}: {self.text}")
        self.error.add_note(f"raised in {where}")
        return self.error


@dataclass(frozen=True)
class Played:
    """An episode, and the name of the wire format that its environment reads, if it has one."""

    episode: Episode
    format: str | None


@dataclass(frozen=True)
class Ready:
    """Where a worker is."""

    host: str
    pid: int


class EpisodeWorker:
    """Plays one episode for each call of ``play``, any number at once on one event loop.

    Nothing is raised: what goes wrong is returned, since what is raised might not be able to travel.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._rollout: _Shared | None = None
        self._engine: Engine | TextEngine | None = None
        self._playing: set[asyncio.Task[Any]] = set()

    async def begin(self) -> Ready | Failure:
        """Make the engine; environments are made when they are needed."""
        try:
            self._spec.origin.register()
            self._rollout, self._engine = self._spec.rollout()
        except Exception as error:  # returned, see above
            return Failure.of(error)
        return Ready(socket.gethostname(), os.getpid())

    async def play(
        self, request: EpisodeRequest, sampling: Sampling, version: int | None, seconds: float | None
    ) -> Played | Failure:
        """Play one episode.

        Args:
            request: with its salt.
            version: number of the weights.
            seconds: until the time of the run is up; None: no limit.
        """
        assert self._rollout is not None, "begin comes first"
        task = asyncio.current_task()
        assert task is not None
        self._playing.add(task)
        try:
            self._rollout.sampling = sampling  # that of the run, so the same for all that play now
            episode = await self._rollout.play_one(request, version, seconds)
            return Played(episode, self._rollout.format)
        except Exception as error:  # returned, see above
            return Failure.of(error)
        finally:
            self._playing.discard(task)

    async def close(self) -> None:
        """Cancel what is played and close environments and engine."""
        others = self._playing - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        if self._rollout is not None:
            await asyncio.to_thread(self._rollout.close)
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)


class _Shared(Rollout):
    """A rollout of episodes that come one by one."""

    _lock: asyncio.Lock | None = None

    async def play_one(self, request: EpisodeRequest, version: int | None, seconds: float | None) -> Episode:
        """One episode, beside any number of others; cancelling it disturbs none of them."""
        self._lock = self._lock or asyncio.Lock()
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        return await self._play(0, request, version, self._lock, deadline)

    @property
    def format(self) -> str | None:
        """Name of the wire format of the environments, once one was made."""
        return None if self._foreign is None else self._foreign.format.name


class _SharedPolicy(_Shared, PolicyRollout):
    """The same, of a scripted policy."""
