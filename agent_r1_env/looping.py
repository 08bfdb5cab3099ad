"""Coroutines run from plain code: to their end, whether a loop runs already or not, or in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


def run(coroutine: Coroutine[Any, Any, _T], name: str) -> _T:
    """Run a coroutine to its end, on a loop in another thread where this one has a loop that runs.

    Ctrl-C cancels it, waits for it and is raised again.

    Args:
        name: of the other thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(coroutine)
    return _run_aside(coroutine, name)


def _run_here(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """As ``asyncio.run``, but the task does not hold the answer.

    Where Python puts the handler of Ctrl-C back, it makes a text of the task, with all the ids of an answer,
    for an error that it drops.
    """
    answer: list[_T] = []

    async def main() -> None:
        answer.append(await coroutine)

    asyncio.run(main())
    return answer[0]


def _run_aside(coroutine: Coroutine[Any, Any, _T], name: str) -> _T:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    answer: Future[_T] = Future()

    async def main() -> _T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await coroutine

    def target() -> None:
        try:
            answer.set_result(asyncio.run(main()))
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=target, name=name)
    thread.start()
    try:
        return answer.result()
    except KeyboardInterrupt:
        loop, task = started.result()
        if task is not None and not answer.done():
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()


class LoopThread:
    """A thread with an event loop, for coroutines that go on while the caller does something else."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: whoever forgets to close it can still end the program.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run a coroutine; the future holds what it returns or raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def cancel(self) -> None:
        """Cancel all that runs, and return when it has ended."""
        self.begin(_cancel_others()).result()

    def close(self) -> None:
        """Cancel all that runs and end the thread; twice is harmless."""
        if self._thread.is_alive():
            self.cancel()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
