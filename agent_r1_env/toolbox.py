"""Runs the calls of one reply: at the same time, each within its own time, results in call order.

Tools that take the hidden argument ``state`` act on one another, so their calls run one after the other.

Nothing that a model writes raises here, and nothing that a tool does harms another call: not raising,
hanging, flooding, nor exiting.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from agent_r1_env import workers
from agent_r1_env.begun import Begun, Snapshot, begun
from agent_r1_env.calls import Call, refused, told
from agent_r1_env.errors import ArgumentError, nearest
from agent_r1_env.governed import Governed
from agent_r1_env.messages import CallError, FailureKind, ToolCall, ToolResult
from agent_r1_env.output import as_text
from agent_r1_env.running import Inline, Running, begin
from agent_r1_env.threads import Outcome
from agent_r1_env.tool import Tool

logger = logging.getLogger(__name__)

MAX_CALLS = 64
"""Calls of one reply that are run; the model is told of those that are not."""
_CLEANING = 0.2
"""Seconds that calls which were cancelled have to clean up before the results of their reply come back."""


_Started = Running | Governed | Inline | ToolResult
"""A call on its way, or refused."""


class Traffic(Protocol):
    """A recording of calls and what they gave."""

    def replayed(self, tool: Tool, arguments: Mapping[str, Any], task: str) -> ToolResult | None:
        """What the recording holds for the next such call; None: run the tool."""

    def record(self, tool: Tool, arguments: Mapping[str, Any], task: str, result: ToolResult) -> None:
        """Take note of what a call gave; called in the order of the calls of a reply."""


@dataclass
class Session:
    """What the tools of one episode share and the model never sees.

    Attributes:
        task: the task, with its right answers.
        seed: every call gets a random generator of its own, made of this and its number in the episode.
        state: for the tools to keep things in, from one call to the next.
        calls: how many calls were started.
    """

    task: Any = None
    seed: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    calls: int = 0

    @property
    def name(self) -> str:
        """What recordings know the episode by."""
        return str(getattr(self.task, "id", ""))

    def filled(self, names: Sequence[str]) -> dict[str, Any]:
        """The hidden arguments of the next call."""
        made: dict[str, Callable[[], Any]] = {
            "state": lambda: self.state,
            "task": lambda: self.task,
            "rng": lambda: np.random.default_rng([self.seed, self.calls]),
        }
        return {name: made[name]() for name in names}


class Toolbox:
    """The tools of one environment, by name.

    Raises on construction:
        ValueError: two tools have the same name, or names that differ in case alone; or one cuts its results
            in tokens and there is no tokenizer.
    """

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        max_calls: int = MAX_CALLS,
        tokenizer: Any = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self.max_calls = max_calls
        self.tokenizer = tokenizer
        self.traffic = traffic
        self.session = Session()
        for tool in tools:
            twin = next((name for name in self.tools if name.lower() == tool.name.lower()), None)
            if twin is not None:
                raise ValueError(f"two tools are named {twin!r} and {tool.name!r}; rename one")
            if tool.max_result_tokens is not None and tokenizer is None:
                raise ValueError(f"{tool.name} has max_result_tokens, so the environment needs a tokenizer")
            self.tools[tool.name] = tool
        self._runs: dict[str, Begun] = {}
        self._closing: list[_Closing] = []
        self._closed = False
        self._holders = _Holders()

    @functools.cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as chat templates and OpenAI-compatible servers expect them, in order."""
        return [tool.schema() for tool in self.tools.values()]

    def begin(self, session: Session) -> None:
        """Begin an episode: what tools kept of the last one is closed and forgotten."""
        self.end()
        self.session = session

    def end(self) -> None:
        """End the episode: close what tools began for it. Idempotent.

        A running event loop is not blocked: there, what is slow to close goes on beside the next episode.
        """
        self._closing += [_Closing(self.tools[name], run.close) for name, run in self._runs.items()]
        self._runs = {}
        wait = not _in_a_loop()
        self._closing = [each for each in self._closing if not each.ended(wait)]

    def run(self, calls: Sequence[ToolCall | CallError], left: int | None = None) -> list[ToolResult]:
        """Run the calls of one reply and wait for them.

        Safe in any thread, also in one whose event loop is running (which it blocks meanwhile).

        Args:
            left: calls that the episode still allows; those beyond are refused.
        """
        started: list[_Started] = []
        settled: dict[int, ToolResult] = {}
        turn: int | None = None
        try:
            for index, call in enumerate(calls):
                in_turn = self._takes_state(call)
                if in_turn and turn is not None:
                    settled[turn] = _wait(started[turn])
                started.append(self._start(call, index, left))
                turn = index if in_turn else turn
            return self._noted([settled.get(index) or _wait(each) for index, each in enumerate(started)])
        finally:
            _leave(started)
            if ending := _ending(started):
                concurrent.futures.wait(ending, _CLEANING)

    async def run_async(
        self, calls: Sequence[ToolCall | CallError], left: int | None = None
    ) -> list[ToolResult]:
        """Run the calls of one reply without blocking the event loop; cancelling this cancels them."""
        started: list[_Started] = []
        waiting: list[asyncio.Task[ToolResult]] = []
        turn: asyncio.Task[ToolResult] | None = None
        try:
            for index, call in enumerate(calls):
                in_turn = self._takes_state(call)
                if in_turn and turn is not None:
                    await turn
                started.append(self._start(call, index, left))
                if len(calls) == 1:
                    return self._noted([await _wait_async(started[0])])
                waiting.append(asyncio.ensure_future(_wait_async(started[-1])))
                turn = waiting[-1] if in_turn else turn
            return self._noted(await asyncio.gather(*waiting))
        finally:
            for each in waiting:
                each.cancel()
            _leave(started)
            if ending := [asyncio.wrap_future(each) for each in _ending(started)]:
                await asyncio.wait(ending, timeout=_CLEANING)

    def get_state(self) -> dict[str, Snapshot]:
        """What the tools keep for this episode, beside the session; not while calls run.

        A tool that is begun for each episode is asked by its ``get_state``, else it is copied whole. A
        recording that is replayed, a cache and whatever lies outside this process are not part of it.

        Raises:
            StateError: one of them cannot be copied.
        """
        taken = {name: run.snapshot() for name, run in self._runs.items()}
        return {name: snapshot for name, snapshot in taken.items() if snapshot is not None}

    def set_state(self, session: Session, tools: Mapping[str, Snapshot]) -> None:
        """Go on where ``get_state`` was called; what the tools keep now is closed and forgotten."""
        self.begin(session)
        for name, snapshot in tools.items():
            tool = self.tools[name]
            if tool.begin is not None:
                self._runs[name] = begun(name, tool.begin, tool.run, snapshot)

    def shared(self) -> Toolbox:
        """Another toolbox over the same tools, for episodes of its own; the last one closes the tools."""
        twin = Toolbox(
            list(self.tools.values()),
            max_calls=self.max_calls,
            tokenizer=self.tokenizer,
            traffic=self.traffic,
        )
        twin._holders = self._holders
        self._holders.add()
        return twin

    def replaced(self, tools: Sequence[Tool]) -> Toolbox:
        """A toolbox with other tools in place of this one, whose episode is at its end.

        Its tools are closed, apart from those whose ``close`` one of the new tools has taken over.

        Raises:
            ValueError: as the constructor does; then this one stays as it was.
        """
        if self._holders.count > 1:
            raise ValueError("the tools are shared with a clone, so they cannot be replaced")
        new = Toolbox(tools, max_calls=self.max_calls, tokenizer=self.tokenizer, traffic=self.traffic)
        kept = {id(tool.close) for tool in tools}
        self.tools = {name: tool for name, tool in self.tools.items() if id(tool.close) not in kept}
        self.close()
        return new

    def close(self) -> None:
        """Close every tool, each within its own time. A tool that fails to close is logged. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.end()
        if not self._holders.remove():
            return
        closes = [(tool, tool.close) for tool in self.tools.values()]
        self._closing += [_Closing(tool, close) for tool, close in closes if close is not None]
        for each in self._closing:
            each.ended(wait=True)

    def _takes_state(self, call: ToolCall | CallError) -> bool:
        """Whether a call has to wait for those before it that take the state of the episode, too."""
        tool = self.tools.get(call.name) if isinstance(call, ToolCall) else None
        return tool is not None and "state" in tool.hidden

    def _start(self, call: ToolCall | CallError, index: int, left: int | None) -> _Started:
        name = "" if isinstance(call, CallError) else call.name
        if left is not None and index >= left:
            text = "not run: no tool calls are left in this episode; give the final answer"
            return refused(call.id, name, FailureKind.TOO_MANY_CALLS, text)
        if index >= self.max_calls:
            first = f"{self.max_calls} calls" if self.max_calls > 1 else "call"
            text = f"not run: only the first {first} of one reply {'are' if self.max_calls > 1 else 'is'}"
            return refused(call.id, name, FailureKind.TOO_MANY_CALLS, text)
        if isinstance(call, CallError):
            return refused(call.id, name, FailureKind.MALFORMED_CALL, call.message)
        tool = self.tools.get(name)
        if tool is None:
            return refused(call.id, name, FailureKind.UNKNOWN_TOOL, self._unknown(name))
        try:
            arguments = tool.validate(call.arguments)
            converted = tool.converted(arguments)
        except ArgumentError as refusal:
            return refused(call.id, name, FailureKind.INVALID_ARGUMENTS, str(refusal))
        if self.traffic is not None:
            saved = self.traffic.replayed(tool, arguments, self.session.name)
            if saved is not None:
                return replace(saved, call_id=call.id)
        try:
            run = self._run_of(tool)
            filled = {**converted, **self._filled(tool)}
            return begin(Call(tool, call.id, run, arguments, filled, self.tokenizer))
        except Exception as failure:  # the system gives no more threads
            text = f"{tool.name} could not be started: {failure}"
            return replace(refused(call.id, name, FailureKind.TOOL_ERROR, text), arguments=arguments)

    def _noted(self, results: list[ToolResult]) -> list[ToolResult]:
        """The results, those of valid calls taken down where there is a recording.

        In the order of the calls, not in which they ended: equal calls are replayed in it.
        """
        if self.traffic is not None:
            for each in results:
                if each.arguments is not None:
                    self.traffic.record(self.tools[each.name], each.arguments, self.session.name, each)
        return results

    def _run_of(self, tool: Tool) -> Callable[..., Any]:
        """What runs a tool in this episode."""
        if tool.begin is None:
            return tool.run
        if tool.name not in self._runs:
            self._runs[tool.name] = begun(tool.name, tool.begin, tool.run)
        return self._runs[tool.name]

    def _filled(self, tool: Tool) -> dict[str, Any]:
        self.session.calls += 1
        if not tool.hidden and not tool.secrets:
            return {}
        return {**tool.secrets, **self.session.filled(tool.hidden)}

    def _unknown(self, name: str) -> str:
        if not self.tools:
            return f"there is no tool {_quoted(name)}; there are no tools at all"
        guess = nearest(name[:200], self.tools)
        meant = f"; did you mean {guess!r}?" if guess else ""
        return f"there is no tool {_quoted(name)}{meant or ';'} the tools are {', '.join(self.tools)}"


class _Holders:
    """How many toolboxes hold the same tools."""

    def __init__(self) -> None:
        self.count = 1
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1

    def remove(self) -> bool:
        """Whether the last one is gone."""
        with self._lock:
            self.count -= 1
            return self.count == 0


def _wait(started: _Started) -> ToolResult:
    return started if isinstance(started, ToolResult) else started.wait()


async def _wait_async(started: _Started) -> ToolResult:
    return started if isinstance(started, ToolResult) else await started.wait_async()


def _leave(started: Iterable[_Started]) -> None:
    """Cancel what still runs; no more than a look at each call that is done."""
    for each in started:
        if not isinstance(each, ToolResult):
            each.leave()


def _ending(started: Iterable[_Started]) -> list[concurrent.futures.Future[Any]]:
    """The ends of calls that were cancelled and clean up, such as by killing processes."""
    ending = [each.ending for each in started if isinstance(each, Running)]
    return [each for each in ending if each is not None]


class _Closing:
    """Something that is being closed, and has the tool's timeout for it."""

    def __init__(self, tool: Tool, close: Callable[[], Any]) -> None:
        self._tool = tool
        self._future: Future[Outcome] = workers.start(close, {}, as_text)
        self._end = time.monotonic() + tool.timeout

    def ended(self, wait: bool) -> bool:
        """Whether it is closed, or given up; if that went wrong it is logged."""
        left = self._end - time.monotonic()
        if not wait and left > 0 and not self._future.done():
            return False
        try:
            failure = self._future.result(max(0.0, left)).failure
        except TimeoutError:
            failure = TimeoutError(f"not closed within {self._tool.timeout:g} s")
        if failure is not None:
            logger.warning("tool %r failed to close: %s", self._tool.name, told(failure))
        return True


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}...")
