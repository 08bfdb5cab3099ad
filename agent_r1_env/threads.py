"""Threads for the functions of tools, and the handing of one call to one of them.

All threads are daemons: none keeps the interpreter alive. A function that never returns keeps its thread and
nothing else, for every call that finds no idle thread gets a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NoReturn

MAX_IDLE = 64
"""Threads kept for the next calls; those beyond end when their call does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one call: its value, or what it raised."""

    value: Any
    failure: BaseException | None
    seconds: float


Finish = Callable[[Any], Any]


class Handed:
    """A call of a function that a thread has been given. It cannot be cancelled, only be left behind.

    Whoever waits for it sleeps on a bare lock. A ``Future`` does more than is needed here, at three times the
    cost of waking a thread and being woken by it.
    """

    __slots__ = ("_call", "_context", "_door", "_lock", "_outcome", "_then")

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: dict[str, Any],
        finish: Finish,
        then: Callable[[Any], Any],
    ) -> None:
        self._call = function, arguments, finish
        self._context = contextvars.copy_context()
        self._outcome: Outcome | None = None
        self._then = [then]
        self._lock, self._door = threading.Lock(), threading.Lock()
        self._door.acquire()

    @property
    def over(self) -> Handed:
        """Done when nothing of the call runs any more."""
        return self

    def done(self) -> bool:
        """Whether the function has returned."""
        return self._outcome is not None

    def cancel(self) -> bool:
        """Nothing can make a function stop."""
        return False

    def cancelled(self) -> bool:
        """No function ever is."""
        return False

    def result(self, timeout: float | None = None) -> Outcome:
        """What became of it.

        Raises:
            TimeoutError: it is not over after so many seconds.
        """
        if self._outcome is None:
            if not self._door.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError
            self._door.release()  # for whoever else waits
        assert self._outcome is not None
        return self._outcome

    def add_done_callback(self, then: Callable[[Any], Any]) -> None:
        """Call ``then`` with this once it is done, on its thread or at once; it must be quick, not raise."""
        with self._lock:
            if self._outcome is None:
                self._then.append(then)
                return
        then(self)

    def run(self) -> None:
        """Make the call."""
        outcome = self._context.run(outcome_of, *self._call)
        with self._lock:
            self._outcome = outcome
        for then in self._then:
            then(self)

    def open(self) -> None:
        """Wake whoever waits; the last thing that its thread does, or it would compete with whom it woke."""
        self._door.release()


def outcome_here(function: Callable[..., Any], arguments: dict[str, Any], finish: Finish) -> Outcome:
    """What becomes of a call that is made on the caller's own thread, however long it takes.

    As on a thread of its own, it sees a copy of the caller's context and raises nothing; but Ctrl-C is meant
    for the program and not for the tool.
    """
    outcome = contextvars.copy_context().run(outcome_of, function, arguments, finish, _refused)
    interrupted = isinstance(outcome.failure, KeyboardInterrupt)
    if interrupted and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt from outcome.failure
    return outcome


def outcome_of(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    finish: Finish,
    settle: Callable[[Any], Any] | None = None,
) -> Outcome:
    """What becomes of a call, made here and now; it never raises.

    Args:
        settle: what is done with a coroutine that a function returns; by default, it is run.
    """
    began = time.perf_counter()
    try:
        value = function(**arguments)
        # A function, such as a lambda, may hide a coroutine; a text is common and costly to ask.
        if type(value) is not str and inspect.isawaitable(value):
            value = asyncio.run(_settled(value)) if settle is None else settle(value)
        return Outcome(finish(value), None, time.perf_counter() - began)
    except BaseException as failure:  # SystemExit in a tool ends the call, not the process
        return Outcome(None, failure, time.perf_counter() - began)


async def _settled(value: Any) -> Any:
    return await value


def _refused(value: Any) -> NoReturn:
    if (close := getattr(value, "close", None)) is not None:
        close()  # else Python would say that nobody awaited it
    raise TypeError("an inline tool returned something to be awaited; take inline out of it")


class _Threads:
    """Daemon threads, reused while idle and created whenever none is."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Handed]] = []

    def give(self, call: Handed) -> None:
        try:
            inbox = self._idle.pop()  # list.pop and append are atomic, so no lock is held across a fork
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="agent-r1-tool", daemon=True).start()
        inbox.put(call)

    def _work(self, inbox: SimpleQueue[Handed]) -> None:
        stays = True
        while stays:
            call = inbox.get()
            call.run()
            if stays := len(self._idle) < MAX_IDLE:
                self._idle.append(inbox)
            call.open()
            del call  # else what it holds would live until the next one

    def forget(self) -> None:
        """In a forked child, which has none of its parent's threads."""
        self._idle = []


def hand(
    function: Callable[..., Any], arguments: dict[str, Any], finish: Finish, then: Callable[[Any], Any]
) -> Handed:
    """Begin a call on a thread and return at once.

    Args:
        finish: applied to the value where the call ran, and so within its time.
        then: called with the ``Handed`` once it is done, on its thread.

    Raises:
        RuntimeError: the system gives no more threads; then ``then`` is not called.
    """
    call = Handed(function, arguments, finish, then)
    _THREADS.give(call)
    return call


_THREADS = _Threads()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_THREADS.forget)
