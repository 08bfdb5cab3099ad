"""A rollout whose environments and tools live in Ray actors, on this machine or on many.

The engine is behind URLs that every actor asks by itself. Episodes come back as they end, each once: an
actor that dies, or whose node is lost, has its episodes begun again on others and is replaced.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agent_r1_env import formats
from agent_r1_env.dispatch import MAX_ATTEMPTS, MAX_IN_A_ROW, Job
from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.engines import Sampling
from agent_r1_env.episode import Episode
from agent_r1_env.episode_worker import WorkerSpec
from agent_r1_env.errors import UnknownName
from agent_r1_env.foreign import ForeignCalls
from agent_r1_env.play import EpisodeRequest, unplayed
from agent_r1_env.policy_rollout import NoEngine
from agent_r1_env.ray_actors import Actors
from agent_r1_env.rollout import Rollout


class RayRollout(Rollout):
    """``Rollout`` on Ray actors: the same episodes, for the same requests and seeds.

    Actors are started with the first run, and stay until ``close``; a run that is cancelled or raises ends
    them. Requests are handed out one at a time, so no more than ``concurrency`` episodes are under way or on
    their way back. An episode over which ``max_attempts`` actors died comes back with the stop reason
    "error".

    Attributes:
        spec: what each actor is made of.
        redone: times that an episode was begun again, in all runs.
        lost: actors that died.
    """

    def __init__(
        self,
        env_id: str,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        policy: PolicySpec,
        workers: int = 2,
        concurrency: int = 64,
        sampling: Sampling | None = None,
        max_prompt_tokens: int | None = None,
        on_episode: Callable[[Episode], Any] | None = None,
        representation: str = "steps",
        time_limit: float | None = None,
        enough: int | None = None,
        structured: bool = False,
        imports: Sequence[str] = (),
        address: str | None = None,
        cpus: float = 1.0,
        max_attempts: int = MAX_ATTEMPTS,
        max_in_a_row: int = MAX_IN_A_ROW,
    ) -> None:
        """Set up a rollout; nothing is started yet.

        Args:
            policy: who answers; what it names has to be reachable from every actor.
            workers: actors.
            concurrency: episodes at once, of all actors together.
            imports: modules that every actor imports first, such as one that registers the environment.
            address: of a running cluster, see `ray_session.Session`.
            cpus: that Ray sets aside for an actor; one that was started here sets none aside.
            max_in_a_row: actors that may die one after the other before an episode is played to its end.

        Raises:
            AgentR1Error: the environment is of this program alone.
            ValueError: a number is out of its range.
        """
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        super().__init__(
            env_id,
            env_kwargs,
            engine=NoEngine(),
            sampling=sampling,
            concurrency=concurrency,
            on_episode=on_episode,
            representation=representation,
            time_limit=time_limit,
            enough=enough,
        )
        options: dict[str, Any] = {"representation": representation, "structured": structured}
        options["max_prompt_tokens"] = max_prompt_tokens
        at_once = math.ceil(concurrency / workers)
        self.spec = WorkerSpec(
            EnvOrigin.of(env_id, imports), dict(env_kwargs or {}), policy, {**options, "concurrency": at_once}
        )
        bounds = {"max_attempts": max_attempts, "max_in_a_row": max_in_a_row}
        self._actors = Actors(self.spec, workers, at_once, cpus, address, **bounds)

    @property
    def redone(self) -> int:
        return self._actors.redone

    @property
    def lost(self) -> int:
        return self._actors.lost

    @property
    def pids(self) -> list[int]:
        """Process ids of the actors that are ready."""
        return self._actors.pids

    def close(self) -> None:
        """Close environments, end the actors, and Ray if it was started here; twice is harmless."""
        try:
            self._actors.close()
        finally:
            super().close()

    async def _ended(
        self, requests: Iterable[EpisodeRequest], policy_version: int | None
    ) -> AsyncGenerator[tuple[int, Episode], None]:
        self._actors.begin()
        try:
            async with aclosing(super()._ended(requests, policy_version)) as ended:
                async for each in ended:
                    yield each
        except BaseException:
            await self._actors.dismiss()
            raise
        finally:
            await self._actors.settle()

    async def _play(
        self,
        place: int,
        request: EpisodeRequest,
        version: int | None,
        making: asyncio.Lock,
        deadline: float | None,
    ) -> Episode:
        """One episode, on one actor after the other until one survives it."""
        request = replace(request, salt=request.salt or f"{version}/{place}")
        job, actors = Job(place), self._actors
        while not actors.crew.given_up(job):
            try:
                async with asyncio.timeout_at(deadline):
                    member = await actors.member_for(job)
            except TimeoutError:
                return unplayed(self.env_id, request, version)
            try:
                seconds = None
                if deadline is not None:
                    seconds = deadline - asyncio.get_running_loop().time()
                found = await actors.ask(member, request, self.sampling, version, seconds)
                if found is not None:
                    actors.crew.finished(member, job)
                    self._read_with(found.format)
                    return found.episode
            finally:
                actors.leave(member, job)
        error = f"WorkerLost: {job.deaths} workers died while they played this episode"
        return replace(unplayed(self.env_id, request, version), stop_reason="error", error=error)

    def _read_with(self, format: str | None) -> None:
        """Look out from now on for calls in another wire format than this one."""
        if self._foreign is None and format is not None:
            try:
                self._foreign = ForeignCalls(formats.get(format))
            except UnknownName:  # a class of the user's own
                return
