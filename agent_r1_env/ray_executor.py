"""A rollout whose environments and tools live in Ray actors, on this machine or on many.

The engine is behind URLs that every actor asks by itself. Episodes come back as they end, each once: an
actor that dies, or whose node is lost, has its episodes begun again on others and is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agent_r1_env import formats, looping
from agent_r1_env.dispatch import MAX_ATTEMPTS, MAX_IN_A_ROW, Crew, Job
from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.engines import Sampling
from agent_r1_env.episode import Episode
from agent_r1_env.episode_worker import EpisodeWorker, Failure, Played, Ready, WorkerSpec
from agent_r1_env.errors import AgentR1Error, UnknownName, WorkerLost
from agent_r1_env.foreign import ForeignCalls
from agent_r1_env.hosted import GRACE
from agent_r1_env.play import EpisodeRequest, unplayed
from agent_r1_env.policy_rollout import NoEngine
from agent_r1_env.ray_session import Session, load
from agent_r1_env.rollout import Rollout

_log = logging.getLogger(__name__)

_PATIENCE = 300.0
"""Seconds until a run without a single worker is given up."""


@dataclass(eq=False)
class _Member:
    """One actor."""

    number: int
    actor: Any
    ready: Ready | None = None

    def __str__(self) -> str:
        return f"worker {self.number}" + (f" on {self.ready.host}" if self.ready else "")


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
        self._workers, self._at_once = workers, at_once
        self._address, self._cpus = address, cpus
        self._bounds = {"max_attempts": max_attempts, "max_in_a_row": max_in_a_row}
        self._crew = self._new_crew()
        self._session: Session | None = None
        self._members: list[_Member] = []
        self._made = 0
        self._past = (0, 0)  # of earlier runs
        self._starting: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    @property
    def redone(self) -> int:
        return self._past[0] + self._crew.redone

    @property
    def lost(self) -> int:
        return self._past[1] + self._crew.lost

    @property
    def pids(self) -> list[int]:
        """Process ids of the actors that are ready."""
        return [member.ready.pid for member in self._members if member.ready is not None]

    def close(self) -> None:
        """Close environments, end the actors, and Ray if it was started here; twice is harmless."""
        try:
            if self._members:
                looping.run(self._dismiss(), "ray")
        finally:
            if self._session is not None:
                self._session.close()
                self._session = None
            super().close()

    async def _ended(
        self, requests: Iterable[EpisodeRequest], policy_version: int | None
    ) -> AsyncGenerator[tuple[int, Episode], None]:
        self._begin()
        try:
            async with aclosing(super()._ended(requests, policy_version)) as ended:
                async for each in ended:
                    yield each
        except BaseException:
            await self._dismiss()
            raise
        finally:
            for task in self._starting:
                task.cancel()
            await asyncio.gather(*self._starting, return_exceptions=True)

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
        job = Job(place)
        while not self._crew.given_up(job):
            try:
                async with asyncio.timeout_at(deadline):
                    member = await self._member_for(job)
            except TimeoutError:
                return unplayed(self.env_id, request, version)
            try:
                seconds = None
                if deadline is not None:
                    seconds = deadline - asyncio.get_running_loop().time()
                found = await self._ask(member, request, version, seconds)
                if found is not None:
                    self._crew.finished(member, job)
                    self._read_with(found.format)
                    return found.episode
            finally:
                self._crew.dropped(member, job)
                self._news.set()
        error = f"WorkerLost: {job.deaths} workers died while they played this episode"
        return replace(unplayed(self.env_id, request, version), stop_reason="error", error=error)

    async def _ask(
        self, member: _Member, request: EpisodeRequest, version: int | None, seconds: float | None
    ) -> Played | None:
        """Have an actor play; None: it died over it."""
        ray = load()
        reference = member.actor.play.remote(request, self.sampling, version, seconds)
        try:
            found: Played | Failure = await reference
        except asyncio.CancelledError:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(reference)
            raise
        except ray.exceptions.RayTaskError as error:  # it lives, and what it played cannot be sent
            raise AgentR1Error(f"{member} could not send an episode: {error.cause!r}") from error
        except ray.exceptions.RayError as error:
            self._bury(member, error)
            return None
        if isinstance(found, Failure):
            raise found.raised(str(member))
        return found

    async def _member_for(self, job: Job) -> _Member:
        """The actor that plays it next; waits until one has room."""
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                member = self._crew.take(job)
                if isinstance(member, _Member):
                    return member
                self._news.clear()
                await self._news.wait()
        except BaseException:
            self._crew.let_go(job)
            self._news.set()
            raise

    def _new_crew(self) -> Crew:
        return Crew(self._at_once, **self._bounds)

    def _begin(self) -> None:
        """Get ready for a run on the event loop of now, with the actors of the last one and new ones."""
        if self._session is None:
            self._session = Session(self._address, self._workers)
        self._past = (self.redone, self.lost)
        self._crew, self._news, self._failure = self._new_crew(), asyncio.Event(), None
        self._starting = set()
        for member in list(self._members):
            if member.ready is not None:
                self._crew.join(member)
            else:  # too late for the last run
                self._members.remove(member)
                _kill(member)
        for _ in range(self._workers - len(self._members)):
            self._start()

    def _start(self) -> None:
        """Start an actor, which joins when it is ready."""
        ray = load()
        assert self._session is not None
        actor = ray.remote(EpisodeWorker).options(
            # Ray on this machine alone shares it with nobody, and further rollouts may want actors of it.
            num_cpus=0 if self._session.own else self._cpus,
            max_concurrency=self._at_once + 8,
            max_restarts=0,
            max_task_retries=0,
        )
        member = _Member(self._made, actor.remote(self.spec))
        self._made += 1
        self._members.append(member)
        task = asyncio.create_task(self._join(member))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _join(self, member: _Member) -> None:
        ray = load()
        try:
            found = await asyncio.wait_for(_result(member.actor.begin.remote()), _PATIENCE)
            if isinstance(found, Failure):
                raise found.raised(str(member))
            member.ready = found
            self._crew.join(member)
        except TimeoutError:
            _log.warning("%s was not ready within %g s; the run does without it", member, _PATIENCE)
            if not len(self._crew):
                self._failure = WorkerLost(
                    f"no worker was ready within {_PATIENCE:g} s; each asks Ray for {self._cpus:g} CPUs, "
                    f"and the cluster has {ray.cluster_resources().get('CPU', 0):g}"
                )
        except ray.exceptions.RayError as error:
            self._bury(member, error)
        except Exception as error:  # of this run, told to whoever waits for a worker
            self._failure = error
        self._news.set()

    def _bury(self, member: _Member, error: Exception) -> None:
        """An actor died: have another in its place."""
        if member not in self._members:
            return
        self._members.remove(member)
        _kill(member)
        reason = f"{member}: {_first_line(error)}"
        _log.warning("%s; its episodes are begun again", reason)
        try:
            if member in self._crew:
                self._crew.died(member, reason)
            else:
                self._crew.missed(reason)
            self._start()
        except WorkerLost as lost:
            self._failure = lost
        self._news.set()

    async def _dismiss(self) -> None:
        """End all actors, their environments first if they close in time."""
        members, self._members = self._members, []
        try:
            closing = [asyncio.ensure_future(_result(m.actor.close.remote())) for m in members if m.ready]
            if closing:
                await asyncio.wait(closing, timeout=GRACE)
            for each in closing:
                each.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
        finally:
            for member in members:
                _kill(member)

    def _read_with(self, format: str | None) -> None:
        """Look out from now on for calls in another wire format than this one."""
        if self._foreign is None and format is not None:
            try:
                self._foreign = ForeignCalls(formats.get(format))
            except UnknownName:  # a class of the user's own
                return


async def _result(reference: Any) -> Any:
    return await reference


def _kill(member: _Member) -> None:
    ray = load()
    with contextlib.suppress(ray.exceptions.RayError, ValueError):  # it is dead already
        ray.kill(member.actor, no_restart=True)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
