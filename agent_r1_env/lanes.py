"""Threads that work jobs off in order, lent to whoever may block or is bound to one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Job = tuple[Future[Any], Callable[[], Any]]


class Lane:
    """One thread and the jobs that wait for it."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon, because a job that never returns must not keep the interpreter alive.
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def do(self, function: Callable[[], Any]) -> Future[Any]:
        """Run the function behind all that was asked before."""
        future: Future[Any] = Future()
        self._jobs.put((future, function))
        return future

    def end(self) -> None:
        """End the thread when its jobs are done."""
        self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # SystemExit of a job is its failure, not our end
                future.set_exception(error)
            del job, future, function  # an idle thread keeps nothing alive


class Lanes:
    """Lanes that are taken, given back and taken again."""

    def __init__(self, name: str) -> None:
        """``name`` is that of their threads."""
        self._name = name
        self._free: list[Lane] = []
        self._ended = False
        self._lock = threading.Lock()

    def take(self) -> Lane:
        """A lane that nobody else uses until it is given back."""
        with self._lock:
            self._ended = False
            return self._free.pop() if self._free else Lane(self._name)

    def give(self, lane: Lane) -> None:
        """Give a lane back when its jobs are done; any thread may."""
        with self._lock:
            if self._ended:
                lane.end()
            else:
                self._free.append(lane)

    def end(self) -> None:
        """End the threads that are free, and each other one when it is given back."""
        with self._lock:
            self._ended = True
            for lane in self._free:
                lane.end()
            self._free.clear()
