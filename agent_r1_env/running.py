"""One valid call of a tool, on its way to a result: started at once, or governed by limits.

A tool without limits is run at once. One with slots, a rate, retries or a cache is waited for on an event
loop of its own, so that one order holds for all episodes of a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from agent_r1_env import limits, workers
from agent_r1_env.arguments import copied
from agent_r1_env.errors import RateLimited, TimedOut, ToolError, TransientError
from agent_r1_env.messages import FailureKind, ToolResult
from agent_r1_env.output import Cut, as_text, safe, shortened, veiled
from agent_r1_env.threads import Handed, Outcome, hand, outcome_here
from agent_r1_env.tool import Tool, ToolOutput

logger = logging.getLogger(__name__)


_LONGEST = threading.TIMEOUT_MAX / 2
"""Seconds, more than a century; Python refuses to wait for a lock for much longer."""
_GRACE = 0.1
"""Seconds that a cancelled coroutine may take to clean up before it counts as hanging."""


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


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a tool returned, as the model will read it; made where the tool ran, and so within its time."""

    text: str
    reward: float = 0.0
    answer: str | None = None
    done: bool = False
    simulated: str | None = None


def _show(value: Any) -> _Shown:
    if isinstance(value, ToolOutput):
        answer = None if value.answer is None else as_text(value.answer)
        if not math.isfinite(worth := float(value.reward)):
            raise ValueError(f"the reward of a call must be finite, got {worth}")
        return _Shown(as_text(value.content), worth, answer, bool(value.done), value.simulated)
    return _Shown(as_text(value))


@dataclass(frozen=True, slots=True)
class Call:
    """A valid call, ready to run."""

    tool: Tool
    id: str
    run: Callable[..., Any]
    arguments: dict[str, Any]
    filled: dict[str, Any]
    tokenizer: Any

    def start(self) -> workers.Started:
        return workers.start(self.run, self._given(), _show)

    def hand(self, then: Callable[[Any], None]) -> workers.Started | Handed:
        """Begin it where it costs least; ``then`` is called when nothing of it runs any more."""
        if not self.tool.awaited:
            return hand(self.run, self._given(), _show, then)
        return workers.start(self.run, self._given(), _show, then)

    def here(self) -> Outcome:
        """Make it on the caller's thread."""
        return outcome_here(self.run, self._given(), _show)

    def _given(self) -> dict[str, Any]:
        # A copy, for what a tool changes in it must change neither the record nor the next attempt.
        return {**copied(self.arguments), **self.filled}

    def hung(self) -> ToolResult | None:
        """A refusal, if too many earlier calls of this tool hang."""
        if (count := workers.hanging(self.run)) < workers.MAX_HANGING:
            return None
        return self.refuse(
            FailureKind.TIMEOUT, f"{self.tool.name} does not answer; {count} earlier calls of it still run"
        )

    def refuse(self, kind: FailureKind, reason: str) -> ToolResult:
        return replace(refused(self.id, self.tool.name, kind, reason), arguments=self.arguments)

    def late(self) -> ToolResult:
        tool = self.tool
        text = f"error: {tool.name} did not finish within {tool.timeout:g} s"
        return self._rewarded(
            ToolResult(
                self.id, tool.name, text, False, FailureKind.TIMEOUT, tool.timeout, 0, self.arguments, 1
            )
        )

    def result(self, outcome: Outcome) -> ToolResult:
        """What one attempt gave."""
        failure = outcome.failure
        if failure is None:
            shown: _Shown = outcome.value
            cut = self._cut(shown.text)
            return self._rewarded(
                ToolResult(
                    *(self.id, self.tool.name, cut.text, True, None, outcome.seconds, cut.characters),
                    *(self.arguments, 1),
                    reward=shown.reward,
                    answer=None if shown.answer is None else self._veiled(shown.answer),
                    done=shown.done,
                    simulated=shown.simulated,
                )
            )
        simulated = failure.simulated if isinstance(failure, ToolError) else None
        if isinstance(failure, TimedOut):
            return replace(self.late(), simulated=simulated)
        if not isinstance(failure, ToolError):
            logger.debug("tool %r raised", self.tool.name, exc_info=failure)
        reason = (
            told(failure) if isinstance(failure, ToolError) else f"{self.tool.name} raised {told(failure)}"
        )
        cut = self._cut(f"error: {reason}")
        kind = FailureKind.RATE_LIMITED if isinstance(failure, RateLimited) else FailureKind.TOOL_ERROR
        return self._rewarded(
            ToolResult(
                *(self.id, self.tool.name, cut.text, False, kind, outcome.seconds, cut.characters),
                *(self.arguments, 1),
                simulated=simulated,
            )
        )

    def _veiled(self, text: str) -> str:
        tool = self.tool
        return veiled(text, (*tool.secrets.values(), *tool.veiled)) if tool.secrets or tool.veiled else text

    def _cut(self, text: str) -> Cut:
        text = self._veiled(text)
        return shortened(text, self.tool.max_result_chars, self.tool.max_result_tokens, self.tokenizer)

    def _rewarded(self, result: ToolResult) -> ToolResult:
        rule = self.tool.reward
        if rule is None:
            return result
        if callable(rule):
            worth = float(rule(result))
        elif isinstance(rule, Mapping):
            worth = float(rule.get(result.error or "ok", 0.0))
        else:
            worth = float(rule) if result.ok else 0.0
        return replace(result, reward=result.reward + worth)


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


def refused(call_id: str, name: str, kind: FailureKind, reason: str) -> ToolResult:
    """The result of a call that was not run."""
    return ToolResult(call_id, name, f"error: {safe(reason)}", False, kind)


def told(failure: BaseException) -> str:
    """Type and text of what a tool raised; the text alone where the tool wrote it for the model."""
    try:
        text = str(failure)
    except Exception as unprintable:
        text = f"a message that cannot be shown ({type(unprintable).__name__})"
    if isinstance(failure, ToolError):
        return text or "the call failed"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__
