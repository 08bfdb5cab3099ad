"""Runs the calls of one reply: at the same time, each within its own time, results in call order.

Nothing that a model writes raises here, and nothing that a tool does harms another call: not raising,
hanging, flooding, nor exiting.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from agent_r1_env import workers
from agent_r1_env.errors import ArgumentError, ToolError, nearest
from agent_r1_env.messages import CallError, ToolCall, ToolResult
from agent_r1_env.output import as_text, safe, shortened
from agent_r1_env.tool import Tool

logger = logging.getLogger(__name__)

MAX_CALLS = 64
"""Calls of one reply that are run; the model is told of those that are not."""


class Toolbox:
    """The tools of one environment, by name.

    Raises on construction:
        ValueError: two tools have the same name, or names that differ in case alone.
    """

    def __init__(self, tools: Sequence[Tool] = (), *, max_calls: int = MAX_CALLS) -> None:
        self.tools: dict[str, Tool] = {}
        self.max_calls = max_calls
        for tool in tools:
            twin = next((name for name in self.tools if name.lower() == tool.name.lower()), None)
            if twin is not None:
                raise ValueError(f"two tools are named {twin!r} and {tool.name!r}; rename one")
            self.tools[tool.name] = tool
        self._closed = False

    @functools.cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as chat templates and OpenAI-compatible servers expect them, in order."""
        return [tool.schema() for tool in self.tools.values()]

    def run(self, calls: Sequence[ToolCall | CallError]) -> list[ToolResult]:
        """Run the calls of one reply and wait for them.

        Safe in any thread, also in one whose event loop is running (which it blocks meanwhile).
        """
        started = [self._start(call, index) for index, call in enumerate(calls)]
        try:
            return [each if isinstance(each, ToolResult) else each.wait() for each in started]
        finally:
            _leave(started)

    async def run_async(self, calls: Sequence[ToolCall | CallError]) -> list[ToolResult]:
        """Run the calls of one reply without blocking the event loop; cancelling this cancels them."""
        started = [self._start(call, index) for index, call in enumerate(calls)]
        running = [each.wait_async() for each in started if not isinstance(each, ToolResult)]
        try:
            finished = iter(await asyncio.gather(*running))
            return [each if isinstance(each, ToolResult) else next(finished) for each in started]
        finally:
            _leave(started)

    def close(self) -> None:
        """Close every tool, each within its own time. A tool that fails to close is logged. Idempotent."""
        if self._closed:
            return
        self._closed = True
        closing = [
            (tool, workers.start(tool.close, {}, as_text)) for tool in self.tools.values() if tool.close
        ]
        for tool, future in closing:
            try:
                failure = future.result(tool.timeout).failure
            except TimeoutError:
                failure = TimeoutError(f"not closed within {tool.timeout:g} s")
            if failure is not None:
                logger.warning("tool %r failed to close: %s", tool.name, _told(failure))

    def _start(self, call: ToolCall | CallError, index: int) -> _Running | ToolResult:
        name = "" if isinstance(call, CallError) else call.name
        if index >= self.max_calls:
            text = f"not run: only the first {self.max_calls} calls of one reply are"
            return _refused(call.id, name, "too_many_calls", text)
        if isinstance(call, CallError):
            return _refused(call.id, name, "malformed", call.message)
        tool = self.tools.get(name)
        if tool is None:
            return _refused(call.id, name, "unknown_tool", self._unknown(name))
        try:
            arguments = tool.validate(call.arguments)
        except ArgumentError as refusal:
            return _refused(call.id, name, "invalid_arguments", str(refusal))
        if (hung := workers.hanging(tool.run)) >= workers.MAX_HANGING:
            text = f"{tool.name} does not answer; {hung} earlier calls of it still run"
            return _refused(call.id, name, "timeout", text)
        try:
            return _Running(tool, call.id, workers.start(tool.run, arguments, as_text))
        except RuntimeError as failure:  # the system gives no more threads
            return _refused(call.id, name, "raised", f"{tool.name} could not be started: {failure}")

    def _unknown(self, name: str) -> str:
        if not self.tools:
            return f"there is no tool {_quoted(name)}; there are no tools at all"
        guess = nearest(name[:200], self.tools)
        meant = f"; did you mean {guess!r}?" if guess else ""
        return f"there is no tool {_quoted(name)}{meant or ';'} the tools are {', '.join(self.tools)}"


class _Running:
    """A call that was started, and that has until its tool's timeout to finish."""

    def __init__(self, tool: Tool, call_id: str, future: Future[workers.Outcome]) -> None:
        self._tool, self._call_id, self._future = tool, call_id, future
        self._end = time.monotonic() + tool.timeout

    def wait(self) -> ToolResult:
        try:
            return self._result(self._future.result(max(0.0, self._end - time.monotonic())))
        except TimeoutError:
            return self._late()

    async def wait_async(self) -> ToolResult:
        waiting = asyncio.wrap_future(self._future)
        try:
            return self._result(await asyncio.wait_for(waiting, max(0.0, self._end - time.monotonic())))
        except TimeoutError:
            return self._late()

    def leave(self) -> None:
        workers.leave(self._tool.run, self._future)

    def _result(self, outcome: workers.Outcome) -> ToolResult:
        tool, failure = self._tool, outcome.failure
        if failure is None:
            text, cut = shortened(outcome.value, tool.max_chars)
            return ToolResult(self._call_id, tool.name, text, seconds=outcome.seconds, cut=cut)
        if not isinstance(failure, ToolError):
            logger.debug("tool %r raised", tool.name, exc_info=failure)
        told = _told(failure) if isinstance(failure, ToolError) else f"{tool.name} raised {_told(failure)}"
        text, cut = shortened(f"error: {told}", tool.max_chars)
        return ToolResult(self._call_id, tool.name, text, False, "raised", outcome.seconds, cut)

    def _late(self) -> ToolResult:
        text = f"error: {self._tool.name} did not finish within {self._tool.timeout:g} s"
        return ToolResult(self._call_id, self._tool.name, text, False, "timeout", self._tool.timeout)


def _leave(started: Iterable[_Running | ToolResult]) -> None:
    """Cancel what still runs; no more than a look at each call that is done."""
    for each in started:
        if not isinstance(each, ToolResult):
            each.leave()


def _refused(call_id: str, name: str, kind: str, reason: str) -> ToolResult:
    return ToolResult(call_id, name, f"error: {safe(reason)}", False, kind)


def _told(failure: BaseException) -> str:
    """Type and text of what a tool raised; the text alone where the tool wrote it for the model."""
    try:
        text = str(failure)
    except Exception as unprintable:
        text = f"a message that cannot be shown ({type(unprintable).__name__})"
    if isinstance(failure, ToolError):
        return text or "the call failed"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}...")
