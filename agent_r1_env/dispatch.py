"""Which worker plays which episode, and what becomes of those that a worker had when it died.

Plain bookkeeping, without processes or time. Who killed a worker cannot be told from outside: everything that
it had under way is suspect. So an episode that may be tried but once more is tried on a worker that has
nothing else, and only what kills a worker alone is given up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from agent_r1_env.errors import WorkerLost

MAX_ATTEMPTS = 3
"""Workers that may die over an episode before it is given up; with 1, so is what a worker had beside it."""

MAX_IN_A_ROW = 16
"""Workers that may die one after the other before an episode is played to its end."""


@dataclass(eq=False)
class Job:
    """An episode to play.

    Attributes:
        deaths: of workers that had it.
    """

    number: int
    deaths: int = 0


class Crew:
    """The workers of a run and what each of them has.

    Attributes:
        played: jobs that were finished.
        redone: times that a job lost its worker and is to be begun again.
        lost: workers that died.
    """

    def __init__(
        self, at_once: int, *, max_attempts: int = MAX_ATTEMPTS, max_in_a_row: int = MAX_IN_A_ROW
    ) -> None:
        """Begin without workers.

        Args:
            at_once: jobs that a worker may have.

        Raises:
            ValueError: a number is below 1.
        """
        for name, number in {"max_attempts": max_attempts, "max_in_a_row": max_in_a_row}.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self._at_once, self._max_attempts, self._max_in_a_row = at_once, max_attempts, max_in_a_row
        self._jobs: dict[Hashable, set[Job]] = {}
        self._emptied: Hashable | None = None  # the worker that gets nothing until it has nothing
        self._in_a_row = 0
        self.played = self.redone = self.lost = 0

    def __contains__(self, worker: Hashable) -> bool:
        return worker in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def join(self, worker: Hashable) -> None:
        """A worker is ready."""
        self._jobs[worker] = set()

    def take(self, job: Job) -> Hashable | None:
        """The worker that is to play it, which has it from now on; None: it has to wait."""
        if self._last_try(job):
            return self._take_alone(job)
        free = [worker for worker, jobs in self._jobs.items() if self._has_room(worker, jobs)]
        if not free:
            return None
        worker = min(free, key=lambda each: len(self._jobs[each]))
        self._jobs[worker].add(job)
        return worker

    def finished(self, worker: Hashable, job: Job) -> None:
        """A worker has played it to its end."""
        self.dropped(worker, job)
        self.played += 1
        self._in_a_row = 0

    def dropped(self, worker: Hashable, job: Job) -> None:
        """It is not to be played any more."""
        self._jobs.get(worker, set()).discard(job)

    def died(self, worker: Hashable, reason: str) -> None:
        """A worker is no more; the second news of the same death is no news.

        Args:
            reason: for the error.

        Raises:
            WorkerLost: too many died in a row.
        """
        if worker not in self._jobs:
            return
        if self._emptied == worker:
            self._emptied = None
        jobs = self._jobs.pop(worker)
        for job in jobs:
            job.deaths += 1
            self.redone += not self.given_up(job)
        self.missed(reason)

    def missed(self, reason: str) -> None:
        """A worker died before it was ready.

        Raises:
            WorkerLost: too many died in a row.
        """
        self.lost += 1
        self._in_a_row += 1
        if self._in_a_row >= self._max_in_a_row:
            raise WorkerLost(
                f"workers die one after the other, {self._in_a_row} in a row without an episode that was "
                f"played to its end; the last one: {reason}"
            )

    def given_up(self, job: Job) -> bool:
        """Whether it has killed as many workers as it may."""
        return job.deaths >= self._max_attempts

    def let_go(self, job: Job) -> None:
        """A job that waits for a worker is not to be played any more."""
        if self._last_try(job):
            self._emptied = None  # whoever else waits to be alone asks again

    def _last_try(self, job: Job) -> bool:
        return 0 < job.deaths == self._max_attempts - 1

    def _take_alone(self, job: Job) -> Hashable | None:
        idle: Iterable[Hashable] = (worker for worker, jobs in self._jobs.items() if not jobs)
        worker = next(iter(idle), None)
        if worker is not None:
            self._emptied = None
            self._jobs[worker].add(job)
        elif self._emptied is None and self._jobs:
            self._emptied = min(self._jobs, key=lambda each: len(self._jobs[each]))
        return worker

    def _has_room(self, worker: Hashable, jobs: set[Job]) -> bool:
        return (
            len(jobs) < self._at_once
            and worker != self._emptied
            and not any(self._last_try(job) for job in jobs)
        )
