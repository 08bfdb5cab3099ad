"""Where a tool's code runs: threads for functions, an event loop of its own for coroutine functions.

All threads here are daemons. No call waits for another, no signal is used, and the main thread plays no part.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from agent_r1_env.threads import Finish, Handed, Outcome, hand

_T = TypeVar("_T")

MAX_HANGING = 128
"""Calls of one function that may hang at the same time; past that, no thread is wasted on it."""

STUCK_AFTER = 0.05
"""Seconds that an event loop has to answer after a time-out; then later calls go to a new one."""


class Started(Future[Outcome]):
    """A call that was begun."""

    def __init__(self, then: Callable[[Any], Any] | None = None, *, ends_apart: bool = False) -> None:
        """A call under way.

        Args:
            then: called when nothing of the call runs any more.
            ends_apart: ``end`` says when that is; else it is when the call is done.
        """
        super().__init__()
        self._then, self._runs = then, ends_apart
        self._ended: Future[None] | None = None  # made where it is asked for, which is seldom
        if not ends_apart and then is not None:
            self.add_done_callback(then)

    @property
    def over(self) -> Future[Any]:
        """Done when nothing of the call runs any more: a coroutine may go on after it was cancelled."""
        with self._condition:
            if not self._runs:
                return self
            self._ended = self._ended or Future()
            return self._ended

    def end(self) -> None:
        """Nothing of it runs any more; it is done already."""
        with self._condition:
            self._runs, ended = False, self._ended
        if ended is not None:
            ended.set_result(None)
        if self._then is not None:
            self._then(self)


def start(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    finish: Finish,
    then: Callable[[Any], Any] | None = None,
) -> Started:
    """Begin a call and return at once; the future never holds an exception.

    Cancelling the future cancels a coroutine. A function can only be left behind: what it returns
    later is dropped.

    Args:
        finish: applied to the value where the call ran, and so within its time.
        then: called when nothing of the call runs any more, on whatever thread that is.
    """
    if is_coroutine_function(function):
        return _loop_of(function).start(functools.partial(_awaited, function, arguments, finish), then)
    future = Started(then)
    future.set_running_or_notify_cancel()
    hand(function, arguments, finish, lambda handed: future.set_result(handed.result()))
    return future


def spawn(answer: Callable[[], Coroutine[Any, Any, _T]], *, loop: str = "") -> Future[_T]:
    """Run a coroutine of our own on a loop that no tool shares; cancelling the future cancels it.

    Args:
        loop: which of our loops. None of them is ever retired, so connections may live on one.
    """
    key = (spawn, loop)
    with _LOCK:
        if key not in _LOOPS:
            _LOOPS[key] = _Loop()
        running = _LOOPS[key]
    return asyncio.run_coroutine_threadsafe(answer(), running.loop)


def leave(function: Callable[..., Any], future: Future[Outcome] | Handed) -> None:
    """Give up waiting: cancel a coroutine; count a function among those that hang until it ends."""
    if future.cancel() or future.done():
        return
    code = _code(function)
    with _LOCK:
        _HANGING[code] += 1
    future.add_done_callback(lambda _: _ended(code))


def hanging(function: Callable[..., Any]) -> int:
    """How many calls of this function were left and still run."""
    return _HANGING[_code(function)] if _HANGING else 0


def _ended(code: Any) -> None:
    with _LOCK:
        _HANGING[code] -= 1


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` gives a coroutine; also told of callable instances and partials."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return False
    called = getattr(function, "__call__", None)  # noqa: B004 - the bound method, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def _awaited(function: Callable[..., Any], arguments: dict[str, Any], finish: Finish) -> Outcome:
    began = time.perf_counter()
    try:
        value = finish(await function(**arguments))
    except BaseException as failure:  # in a task, SystemExit would end the loop's thread
        return Outcome(None, failure, time.perf_counter() - began)
    return Outcome(value, None, time.perf_counter() - began)


class _Loop:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._answered = threading.Event()
        self._answered.set()
        threading.Thread(target=self._work, name="agent-r1-tool-loop", daemon=True).start()

    def _work(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def answers(self) -> bool:
        """Whether no coroutine blocks it: no question is left open, or it is answered soon."""
        return self._answered.wait(STUCK_AFTER)

    def start(
        self, call: Callable[[], Coroutine[Any, Any, Outcome]], then: Callable[[Any], Any] | None = None
    ) -> Started:
        future = Started(then, ends_apart=True)
        flight = _Flight(self, call, future)
        self.loop.call_soon_threadsafe(flight.begin)
        future.add_done_callback(flight.stop_if_cancelled)
        return future

    def ask(self) -> None:
        """Put the question that ``answers`` looks at, unless one is open."""
        if self._answered.is_set():
            self._answered.clear()
            self.loop.call_soon_threadsafe(self._answered.set)

    def retire(self) -> None:
        """Stop once what runs on it is done, if that ever happens."""
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(self._drain()))

    async def _drain(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.stop()


class _Flight:
    """A coroutine on its way through a loop. All but ``stop_if_cancelled`` is called on the loop's thread."""

    __slots__ = ("_call", "_future", "_loop", "_task")

    def __init__(
        self, loop: _Loop, call: Callable[[], Coroutine[Any, Any, Outcome]], future: Started
    ) -> None:
        self._loop, self._call, self._future = loop, call, future
        self._task: _Task | None = None

    def begin(self) -> None:
        if self._future.cancelled():
            self._future.end()
            return
        self._task = _Task(self._fly(), loop=self._loop.loop)
        self._task.lost = self._settle_if_lost

    def stop_if_cancelled(self, future: Future[Outcome]) -> None:
        if future.cancelled():
            self._loop.ask()
            self._loop.loop.call_soon_threadsafe(self._stop)

    async def _fly(self) -> None:
        self._settle(await self._call())

    def _stop(self) -> None:
        if self._task is not None:  # else it was cancelled before it began
            self._task.cancel()

    def _settle(self, outcome: Outcome) -> None:
        self._task = None
        with contextlib.suppress(InvalidStateError):  # cancelled: nobody waits any more
            self._future.set_result(outcome)
        self._future.end()

    def _settle_if_lost(self, _: asyncio.Task[None]) -> None:
        if self._task is not None:
            self._settle(Outcome(None, asyncio.CancelledError(), 0.0))


class _Task(asyncio.Task[None]):
    """The task of a flight, which tells itself how it ends: a callback would wait for the loop's next round.

    Only a task that is cancelled before its first step, by whatever runs on the loop, tells nothing.
    """

    lost: Callable[[asyncio.Task[None]], None]

    def cancel(self, msg: Any = None) -> bool:
        self.add_done_callback(self.lost)
        return super().cancel(msg)


def _loop_of(function: Callable[..., Any]) -> _Loop:
    """The loop of this code. Each tool has its own, so that one which blocks its loop stops no other."""
    code = _code(function)
    with _LOCK:
        loop = _LOOPS.get(code)
        if loop is not None and not loop.answers():
            loop.retire()
            loop = None
        if loop is None:
            loop = _LOOPS[code] = _Loop()
    return loop


def _code(function: Callable[..., Any]) -> Any:
    """What instances of a class, partials, wrappers and methods of the same function have in common."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif (inner := getattr(function, "__wrapped__", None)) is not None:
            function = inner
        else:
            break
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", type(function))


_HANGING: Counter[Any] = Counter()
_LOOPS: dict[Any, _Loop] = {}
# Loops of the process that this one was forked from: never used, never closed, for they are not ours.
_PARENTS: list[_Loop] = []
_LOCK = threading.Lock()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, and perhaps a lock that nobody will open."""
    global _LOCK
    _LOCK = threading.Lock()
    _PARENTS.extend(_LOOPS.values())
    _LOOPS.clear()
    _HANGING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
