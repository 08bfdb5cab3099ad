"""A call on its way to a result: started at once where nothing limits it, or made on the spot."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import Future
from typing import Any

from agent_r1_env import limits, workers
from agent_r1_env.calls import Call
from agent_r1_env.governed import Governed
from agent_r1_env.messages import ToolResult

_LONGEST = threading.TIMEOUT_MAX / 2
"""Seconds, more than a century; Python refuses to wait for a lock for much longer."""


def begin(call: Call) -> Running | Governed | Inline | ToolResult:
    """Begin a call; a result comes back at once if it was refused. An inline one is over then.

    Raises:
        RuntimeError: the system gives no more threads.
    """
    if call.tool.inline:
        return Inline(call)
    if call.tool.limits is None and limits.RUNNING.take():
        if (refusal := call.hung()) is not None:
            limits.RUNNING.give()
            return refusal
        return Running(call)
    return Governed(call)


class Running:
    """A call that was started, and that has until its tool's timeout to finish."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._ended = False
        self._end = time.monotonic() + min(call.tool.timeout, _LONGEST)
        try:
            self._started = call.hand(limits.RUNNING.give)
        except BaseException:
            limits.RUNNING.give()
            raise

    def wait(self) -> ToolResult:
        try:
            outcome = self._started.result(max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            return self._call.late()
        self._ended = True
        return self._call.result(outcome)

    async def wait_async(self) -> ToolResult:
        if not await self._done():
            self._started.cancel()
            return self._call.late()
        self._ended = True
        return self._call.result(self._started.result())

    async def _done(self) -> bool:
        """Whether it is done, once it is or its time is up. A quarter of the cost of ``asyncio.wait_for``."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()

        def settle() -> None:
            if not waiting.done():
                waiting.set_result(None)

        def wake(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle)

        timer = loop.call_later(max(0.0, self._end - time.monotonic()), settle)
        self._started.add_done_callback(wake)
        try:
            await waiting
        finally:
            timer.cancel()
        return self._started.done()

    @property
    def ending(self) -> Future[Any] | None:
        """Done when a call that was cancelled is over; None if there is nothing to wait for."""
        over = self._started.over
        return over if isinstance(over, Future) and self._started.cancelled() and not over.done() else None

    def leave(self) -> None:
        if self._ended:
            return
        workers.leave(self._call.run, self._started)
        over = self._started.over
        if not self._started.done() or (self._started.cancelled() and not over.done()):
            limits.RUNNING.hang(over)


class Inline:
    """A call that was made where it was begun, by a tool whose author says that it returns at once."""

    def __init__(self, call: Call) -> None:
        self._call, self._outcome = call, call.here()

    def wait(self) -> ToolResult:
        return self._call.result(self._outcome)

    async def wait_async(self) -> ToolResult:
        return self.wait()

    def leave(self) -> None:
        """Nothing of it runs."""
