"""Which worker plays which request, and what becomes of the requests of a worker that dies.

Plain bookkeeping, without processes or time. A request is in one place at a time: not yet handed out, waiting
to be handed out again, or with one worker. So its episode is taken once, however often it is begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from agent_r1_env.errors import WorkerLost
from agent_r1_env.play import EpisodeRequest

MAX_ATTEMPTS = 3
"""Workers that may die over a request before it is given up."""

MAX_IN_A_ROW = 16
"""Workers that may die one after the other before an episode is played to its end."""


@dataclass(eq=False)
class Job:
    """A request under way.

    Attributes:
        number: its place among the requests, from 0.
        deaths: of workers that had it under way.
    """

    number: int
    request: EpisodeRequest
    deaths: int = 0


class Dispatch:
    """Hands the requests of one run to workers.

    Who killed a worker cannot be told from outside: everything that it had under way is suspect. So a request
    that may be tried but once more is tried on a worker that has nothing else, and only what kills a worker
    alone is given up.

    Attributes:
        played: requests that came back as episodes.
        redone: requests that were, or are to be, begun again.
        lost: workers that died.
        given_up: requests that killed a worker too often.
    """

    def __init__(
        self,
        requests: Iterable[EpisodeRequest],
        at_once: int,
        *,
        max_attempts: int = MAX_ATTEMPTS,
        max_in_a_row: int = MAX_IN_A_ROW,
    ) -> None:
        """Read ``requests`` as they are handed out; ``at_once`` is the bound for each worker."""
        self._new = enumerate(requests)
        self._more = True
        self._at_once = at_once
        self._max_attempts, self._max_in_a_row = max_attempts, max_in_a_row
        self._again: deque[Job] = deque()
        self._alone: deque[Job] = deque()
        self._under_way: dict[Hashable, dict[int, Job]] = {}
        self._emptied: Hashable | None = None  # the worker that gets nothing until it can play one alone
        self._in_a_row = 0
        self.played = self.redone = self.lost = self.given_up = 0

    @property
    def done(self) -> bool:
        """Nothing is under way and nothing is left to hand out; exact once ``next_for`` gave None."""
        return not (self._more or self._again or self._alone or any(self._under_way.values()))

    def next_for(self, worker: Hashable) -> Job | None:
        """What a worker is to play next beside what it has; None: nothing now."""
        mine = self._under_way.setdefault(worker, {})
        if len(mine) >= self._at_once or any(self._last_try(job) for job in mine.values()):
            return None
        if self._alone and not mine:
            job: Job | None = self._alone.popleft()
            self._emptied = None
        elif self._alone and self._emptied in (None, worker):
            self._emptied = worker
            return None
        else:
            job = self._again.popleft() if self._again else self._take_new()
        if job is not None:
            mine[job.number] = job
        return job

    def finished(self, worker: Hashable, number: int) -> None:
        """A worker has played a request to its end."""
        del self._under_way[worker][number]
        self.played += 1
        self._in_a_row = 0

    def died(self, worker: Hashable, reason: str) -> list[Job]:
        """A worker is no more; what it had under way is handed out again, but for what is returned.

        Returns:
            The requests that are given up.

        Raises:
            WorkerLost: too many died in a row; ``reason`` says of what the last one did.
        """
        self.lost += 1
        self._in_a_row += 1
        jobs = self._under_way.pop(worker, {}).values()
        if self._emptied == worker:
            self._emptied = None
        given_up = []
        for job in jobs:
            job.deaths += 1
            if job.deaths >= self._max_attempts:
                given_up.append(job)
                continue
            self.redone += 1
            (self._alone if self._last_try(job) else self._again).append(job)
        self.given_up += len(given_up)
        if self._in_a_row > self._max_in_a_row:
            raise WorkerLost(
                f"{self._in_a_row} workers died one after the other, and no episode was played meanwhile; "
                f"the last one: {reason}"
            )
        return given_up

    def _last_try(self, job: Job) -> bool:
        return 0 < job.deaths == self._max_attempts - 1

    def _take_new(self) -> Job | None:
        for number, request in self._new:
            return Job(number, request)
        self._more = False
        return None
