"""A coroutine run to its end from plain code, where an event loop runs already and where none does."""

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
        return asyncio.run(coroutine)
    return _run_aside(coroutine, name)


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
