"""Ray actors that play episodes, kept at their number: while a run goes on, one that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from agent_r1_env import looping
from agent_r1_env.dispatch import Crew, Job
from agent_r1_env.engines import Sampling
from agent_r1_env.episode_worker import EpisodeWorker, Failure, Played, Ready, WorkerSpec
from agent_r1_env.errors import AgentR1Error, WorkerLost
from agent_r1_env.hosted import GRACE
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.ray_session import Session, load

_log = logging.getLogger(__name__)

_PATIENCE = 300.0
"""Seconds until a run without a single worker is given up."""


@dataclass(eq=False)
class Member:
    """One actor."""

    number: int
    actor: Any
    ready: Ready | None = None

    def __str__(self) -> str:
        return f"worker {self.number}" + (f" on {self.ready.host}" if self.ready else "")


class Actors:
    """The actors of a rollout, from its first run to ``close``.

    Attributes:
        crew: who of them has which episodes, in the run of now.
        session: what they run in; None before the first run.
    """

    def __init__(
        self, spec: WorkerSpec, workers: int, at_once: int, cpus: float, address: str | None, **bounds: int
    ) -> None:
        """Nothing is started yet.

        Args:
            spec: what each is made of.
            at_once: episodes that one plays at the same time.
            cpus: that a cluster sets aside for one.
            address: of a running cluster, see `ray_session.Session`.
            bounds: of `dispatch.Crew`.
        """
        self._spec, self._workers, self._at_once = spec, workers, at_once
        self._cpus, self._address, self._bounds = cpus, address, bounds
        self.crew = Crew(at_once, **bounds)
        self.session: Session | None = None
        self._members: list[Member] = []
        self._made = 0
        self._past = (0, 0)  # of earlier runs
        self._starting: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    @property
    def redone(self) -> int:
        """Times that an episode was begun again, in all runs."""
        return self._past[0] + self.crew.redone

    @property
    def lost(self) -> int:
        """Actors that died, in all runs."""
        return self._past[1] + self.crew.lost

    @property
    def pids(self) -> list[int]:
        """Process ids of those that are ready."""
        return [member.ready.pid for member in self._members if member.ready is not None]

    def begin(self) -> None:
        """Get ready for a run on the event loop of now, with the actors of the last one and new ones."""
        if self.session is None:
            self.session = Session(self._address, self._workers)
        self._past = (self.redone, self.lost)
        self.crew, self._news, self._failure = Crew(self._at_once, **self._bounds), asyncio.Event(), None
        self._starting = set()
        for member in list(self._members):
            if member.ready is not None:
                self.crew.join(member)
            else:  # too late for the last run
                self._members.remove(member)
                _kill(member)
        for _ in range(self._workers - len(self._members)):
            self._start()

    async def member_for(self, job: Job) -> Member:
        """The actor that plays it next; waits until one has room."""
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                member = self.crew.take(job)
                if isinstance(member, Member):
                    return member
                self._news.clear()
                await self._news.wait()
        except BaseException:
            self.crew.let_go(job)
            self._news.set()
            raise

    async def ask(
        self,
        member: Member,
        request: EpisodeRequest,
        sampling: Sampling,
        version: int | None,
        seconds: float | None,
    ) -> Played | None:
        """Have an actor play; None: it died over it.

        Args:
            seconds: until the time of the run is up; None: no limit.
        """
        ray = load()
        reference = member.actor.play.remote(request, sampling, version, seconds)
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

    def leave(self, member: Member, job: Job) -> None:
        """An actor has an episode no more, whatever became of it."""
        self.crew.dropped(member, job)
        self._news.set()

    async def settle(self) -> None:
        """The run is over: wait no more for actors that are not ready."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    async def dismiss(self) -> None:
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

    def close(self) -> None:
        """End the actors, and Ray if it was started here; twice is harmless."""
        try:
            if self._members:
                looping.run(self.dismiss(), "ray")
        finally:
            if self.session is not None:
                self.session.close()
                self.session = None

    def _start(self) -> None:
        """Start an actor, which joins when it is ready."""
        ray = load()
        assert self.session is not None
        actor = ray.remote(EpisodeWorker).options(
            # Ray on this machine alone shares it with nobody, and further rollouts may want actors of it.
            num_cpus=0 if self.session.own else self._cpus,
            max_concurrency=self._at_once + 8,
            max_restarts=0,
            max_task_retries=0,
        )
        member = Member(self._made, actor.remote(self._spec))
        self._made += 1
        self._members.append(member)
        task = asyncio.create_task(self._join(member))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _join(self, member: Member) -> None:
        ray = load()
        try:
            found = await asyncio.wait_for(_result(member.actor.begin.remote()), _PATIENCE)
            if isinstance(found, Failure):
                raise found.raised(str(member))
            member.ready = found
            self.crew.join(member)
        except TimeoutError:
            _log.warning("%s was not ready within %g s; the run does without it", member, _PATIENCE)
            if not len(self.crew):
                self._failure = WorkerLost(
                    f"no worker was ready within {_PATIENCE:g} s; each asks Ray for {self._cpus:g} CPUs, "
                    f"and the cluster has {ray.cluster_resources().get('CPU', 0):g}"
                )
        except ray.exceptions.RayError as error:
            self._bury(member, error)
        except Exception as error:  # of this run, told to whoever waits for a worker
            self._failure = error
        self._news.set()

    def _bury(self, member: Member, error: Exception) -> None:
        """An actor died: have another in its place."""
        if member not in self._members:
            return
        self._members.remove(member)
        _kill(member)
        reason = f"{member}: {_first_line(error)}"
        _log.warning("%s; its episodes are begun again", reason)
        try:
            if member in self.crew:
                self.crew.died(member, reason)
            else:
                self.crew.missed(reason)
            self._start()
        except WorkerLost as lost:
            self._failure = lost
        self._news.set()


async def _result(reference: Any) -> Any:
    return await reference


def _kill(member: Member) -> None:
    ray = load()
    with contextlib.suppress(ray.exceptions.RayError, ValueError):  # it is dead already
        ray.kill(member.actor, no_restart=True)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
