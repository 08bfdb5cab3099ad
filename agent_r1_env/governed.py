"""A call that is governed by limits: slots, a rate, retries or a cache.

It is waited for on an event loop of its own, so that one order holds for all episodes of a process.
"""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from agent_r1_env import limits, workers
from agent_r1_env.calls import Call
from agent_r1_env.errors import TransientError
from agent_r1_env.messages import FailureKind, ToolResult

_GRACE = 0.1
"""Seconds that a cancelled coroutine may take to clean up before it counts as hanging."""


class Governed:
    """A call that has to wait for its turn, may be tried again, or is known already."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._future: Future[ToolResult] = workers.spawn(self._answer)

    def wait(self) -> ToolResult:
        return self._future.result()

    async def wait_async(self) -> ToolResult:
        return await asyncio.wrap_future(self._future)

    def leave(self) -> None:
        self._future.cancel()

    async def _answer(self) -> ToolResult:
        gate = self._call.tool.limits
        if gate is not None and gate.cache is not None:
            return await self._cached(gate.cache)
        return await self._attempts()

    async def _cached(self, cache: limits.Cache) -> ToolResult:
        tool = self._call.tool
        key = json.dumps([tool.name, tool.version, self._call.arguments], sort_keys=True)
        kept, sought = cache.get(key)
        if sought is not None:
            kept = await asyncio.wrap_future(sought)
        if isinstance(kept, ToolResult):
            return replace(kept, call_id=self._call.id, cached=True, seconds=0.0, attempts=0, queued=0.0)
        if sought is not None:  # whoever asked first had no luck
            return await self._attempts()
        found: ToolResult | None = None
        try:
            found = await self._attempts()
            return found
        finally:
            cache.settle(key, found if found is not None and found.ok else None)

    async def _attempts(self) -> ToolResult:
        retries, attempt, queued = self._call.tool.retries, 0, 0.0
        while True:
            attempt += 1
            result, failure, waited = await self._attempt()
            queued += waited
            if not isinstance(failure, TransientError) or attempt > retries.times:
                return replace(result, attempts=attempt if result.attempts else attempt - 1, queued=queued)
            await asyncio.sleep(retries.delay(attempt, failure.after))

    async def _attempt(self) -> tuple[ToolResult, BaseException | None, float]:
        """One attempt: its result, what the tool raised, and the seconds until it could begin."""
        began = time.monotonic()
        taken: list[limits.Slots] = []
        try:
            refusal = await self._turn(taken)
        except BaseException:
            _give(taken)
            raise
        queued = time.monotonic() - began
        if refusal is not None:
            _give(taken)
            return replace(refusal, queued=queued), None, queued
        result, failure = await self._timed(taken)
        return result, failure, queued

    async def _turn(self, taken: list[limits.Slots]) -> ToolResult | None:
        """Wait until the tool may run, or say why it will not; what is ``taken`` has to be given back."""
        call = self._call
        if (refusal := call.hung()) is not None:
            return refusal
        gate = call.tool.limits
        if gate is not None and gate.slots is not None and not await self._take(gate.slots, taken):
            return self._blocked(gate.slots)
        # Behind the slots: whoever waited for one would else begin later than the rate thinks.
        if gate is not None and gate.pace is not None:
            turn = gate.pace.turn(call.tool.timeout)
            if turn is None:
                rate = gate.pace.rate
                text = f"{call.tool.name} is busy; it takes {rate.calls} calls in {rate.seconds:g} s"
                return call.refuse(FailureKind.RATE_LIMITED, text)
            await asyncio.sleep(turn)
        if not await self._take(limits.RUNNING, taken):
            return self._blocked(limits.RUNNING)
        return None

    async def _take(self, slots: limits.Slots, taken: list[limits.Slots]) -> bool:
        if not await slots.wait():
            return False
        taken.append(slots)
        return True

    def _blocked(self, slots: limits.Slots) -> ToolResult:
        text = f"{self._call.tool.name} does not answer; {slots.hanging} earlier calls of it still run"
        if slots is limits.RUNNING:
            text = f"{self._call.tool.name} cannot be run; {slots.hanging} calls that do not answer still run"
        return self._call.refuse(FailureKind.TIMEOUT, text)

    async def _timed(self, taken: list[limits.Slots]) -> tuple[ToolResult, BaseException | None]:
        """Run the tool in its time; what is ``taken`` is given back when it has really ended."""
        call = self._call
        try:
            future = call.start()
        except BaseException:
            _give(taken)
            raise
        for each in taken:
            future.over.add_done_callback(each.give)
        try:
            outcome = await asyncio.wait_for(asyncio.wrap_future(future), call.tool.timeout)
            return call.result(outcome), outcome.failure
        except TimeoutError:
            return call.late(), None
        finally:
            workers.leave(call.run, future)
            if future.cancelled():
                asyncio.get_running_loop().call_later(_GRACE, _hang, taken, future.over)
            elif not future.done():
                _hang(taken, future.over)


def _give(taken: list[limits.Slots]) -> None:
    for each in taken:
        each.give()


def _hang(taken: list[limits.Slots], over: Future[Any]) -> None:
    if not over.done():
        for each in taken:
            each.hang(over)
