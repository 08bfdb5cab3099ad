"""Which episodes of a run are played when, and which are handed out.

Each is a task of its own. A new one begins when another has ended and enough of those that ended were taken,
so whoever takes them slowly holds up the others and not the memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any

from agent_r1_env.episode import Episode
from agent_r1_env.errors import EngineError
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.stopping import StopReason

Play = Callable[[int, EpisodeRequest], Coroutine[Any, Any, Episode]]


class Schedule:
    """The episodes of one run, on one event loop."""

    def __init__(
        self,
        requests: Iterable[EpisodeRequest],
        play: Play,
        report: Callable[[Episode], Any],
        concurrency: int,
        enough: int | None = None,
    ) -> None:
        """Nothing begins yet.

        Args:
            play: plays the episode of a request, given its number from 0.
            report: is told of each episode that is handed out, when it ends.
            concurrency: episodes that run at once; as many more may have ended and wait to be taken.
            enough: episodes of a group that have to end by themselves and without a failure; the others are
                cancelled then.
        """
        self._waiting = enumerate(requests)
        self._play, self._report = play, report
        self._concurrency, self._enough = concurrency, enough
        self._tasks: dict[asyncio.Task[Episode | None], tuple[int, int]] = {}  # place and group
        self._ended: deque[tuple[int, Episode]] = deque()
        self._finished: Counter[int] = Counter()
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._open = True

    async def episodes(self) -> AsyncGenerator[tuple[int, Episode], None]:
        """The episodes in the order in which they end, each with the number of its request.

        The first failure of ``play``, ``report`` or the requests is raised at once. However this is left, no
        task is left behind.

        Raises:
            EngineError: something else than this object cancelled an episode, which would be missing.
        """
        try:
            self._fill()
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._ended:
                    yield self._ended.popleft()
                    self._fill()
                elif self._tasks:
                    self._news.clear()
                    await self._news.wait()
                else:
                    return
        finally:
            self._open = False
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        """Begin as many episodes as may run."""
        while self._open and len(self._tasks) < self._concurrency:
            if len(self._tasks) + len(self._ended) >= 2 * self._concurrency:
                return
            place, request = next(self._waiting, (-1, None))
            if request is None:
                self._open = False
            elif not self._has_enough(request.group):
                task = asyncio.create_task(self._one(place, request))
                self._tasks[task] = (place, request.group)
                task.add_done_callback(self._done)

    async def _one(self, place: int, request: EpisodeRequest) -> Episode | None:
        """The episode; None if its group had enough before it ended."""
        episode = await self._play(place, request)
        if self._has_enough(request.group):
            return None
        cut = episode.stop_reason == StopReason.TIME_LIMIT.value  # perhaps before it began
        if self._enough is not None and not episode.failed and not cut:
            self._finished[request.group] += 1
            if self._has_enough(request.group):
                self._cancel(request.group)
        self._report(episode)
        return episode

    def _done(self, task: asyncio.Task[Episode | None]) -> None:
        place, group = self._tasks.pop(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()
            episode = None if task.exception() else task.result()
            if episode is not None:
                self._ended.append((place, episode))
        elif not self._has_enough(group):  # and so none of ours, or nobody listens any more
            self._failure = self._failure or EngineError(
                f"episode {place} was cancelled from within; was the engine closed under it?"
            )
        if self._failure is None:
            try:
                self._fill()
            except Exception as error:  # of the requests; the loop would swallow it
                self._failure = error
        self._news.set()

    def _has_enough(self, group: int) -> bool:
        return self._enough is not None and self._finished[group] >= self._enough

    def _cancel(self, group: int) -> None:
        own = asyncio.current_task()
        for task, (_, of) in self._tasks.items():
            if of == group and task is not own:
                task.cancel()
