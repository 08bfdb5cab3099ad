"""Who may run a tool when: slots, rates, retries and cached results, for all environments of a process.

A ``Gate`` belongs to one tool, however many environments hold that tool. Whoever waits has a future, so a
slot can be given back by any thread; a lock is held for a few instructions only.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

Clock = Callable[[], float]
MAX_RUNNING = 1024
"""Calls that may run at the same time in one process, whatever their tools allow."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and after how long, a call that failed for the moment is tried again.

    Attributes:
        times: further attempts after the first.
        wait: seconds before the second attempt.
        factor: by which each wait is longer than the one before.
        longest: no wait is longer, in seconds.
    """

    times: int = 0
    wait: float = 0.5
    factor: float = 2.0
    longest: float = 30.0

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"retries must not be negative, got {self.times}")
        for name, least in (("wait", 0.0), ("factor", 1.0), ("longest", 0.0)):
            if not (value := getattr(self, name)) >= least or not math.isfinite(value):
                raise ValueError(f"{name} of retries must be finite and at least {least:g}, got {value!r}")

    def delay(self, attempt: int, asked: float | None = None) -> float:
        """Seconds to wait after the failed attempt of that number, from 1, or what was ``asked`` for."""
        wanted = self.wait * self.factor ** min(attempt - 1, 64) if asked is None else max(0.0, asked)
        return min(wanted, self.longest)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``calls`` begin within any ``seconds``."""

    calls: int
    seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.calls < 1 or not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(
                f"a rate is at least 1 call in a time above 0, got {self.calls} in {self.seconds!r} s"
            )


@dataclass(frozen=True, slots=True)
class Caching:
    """Results that are kept: the ``size`` used last, none longer than ``seconds``."""

    size: int = 10_000
    seconds: float = math.inf

    def __post_init__(self) -> None:
        if self.size < 1 or not self.seconds > 0:
            raise ValueError(
                f"a cache keeps at least 1 result for a time above 0, got {self.size}, {self.seconds!r} s"
            )


class Ending(Protocol):
    """What says when a call has really ended, such as a future."""

    def add_done_callback(self, then: Callable[[Any], Any], /) -> None:
        """Call ``then`` with it once it is done."""


class Slots:
    """A number of places, given in the order asked for.

    A place may be *hanging*: whoever took it gave up, but what they started still runs. It stays taken until
    that ends; when nothing but hanging calls is left, whoever waits is told at once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.hanging = 0
        self._taken = 0
        self._waiting: deque[Future[bool]] = deque()
        self._lock = threading.Lock()
        _ALL.add(self)

    def take(self) -> bool:
        """Take a place if one is free and nobody waits."""
        with self._lock:
            if self._taken >= self.limit or self._waiting:
                return False
            self._taken += 1
            return True

    async def wait(self) -> bool:
        """Take a place, as soon as there is one; False if all places hang."""
        with self._lock:
            if self._taken < self.limit and not self._waiting:
                self._taken += 1
                return True
            if self.hanging >= self.limit:
                return False
            turn: Future[bool] = Future()
            self._waiting.append(turn)
        try:
            return await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel() and turn.result():  # the place came in the same moment
                self.give()
            raise

    def give(self, _: object = None) -> None:
        """Give a place back."""
        with self._lock:
            self._taken -= 1
            turn = self._next()
        if turn is not None:
            turn.set_result(True)

    def hang(self, over: Ending) -> None:
        """Count a place as hanging until ``over`` is done. Whoever does that also gives it back."""
        with self._lock:
            self.hanging += 1
            refused = list(self._waiting) if self.hanging >= self.limit else []
            self._waiting = deque() if refused else self._waiting
        for turn in refused:
            if turn.set_running_or_notify_cancel():
                turn.set_result(False)
        over.add_done_callback(self._over)

    def _over(self, _: object) -> None:
        with self._lock:
            self.hanging -= 1

    def _next(self) -> Future[bool] | None:
        """Hand a free place to whoever waits longest; the lock is held."""
        while self._waiting and self._taken < self.limit:
            turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                self._taken += 1
                return turn
        return None

    def forget(self) -> None:
        """In a forked child, where nobody of the parent runs or waits."""
        self.hanging = self._taken = 0
        self._waiting, self._lock = deque(), threading.Lock()


class Pace:
    """Spaces calls out so that no window holds more than its rate allows."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._begun: deque[float] = deque(maxlen=rate.calls)
        self._lock = threading.Lock()
        _ALL.add(self)

    def turn(self, patience: float) -> float | None:
        """Seconds until this call may begin, which it now must; None if that is more than ``patience``."""
        with self._lock:
            now = self._clock()
            full = len(self._begun) == self.rate.calls
            begin = max(now, self._begun[0] + self.rate.seconds) if full else now
            if begin - now > patience:
                return None
            self._begun.append(begin)
        return begin - now

    def forget(self) -> None:
        """In a forked child, which has a rate of its own."""
        self._begun.clear()
        self._lock = threading.Lock()


class Cache:
    """Results by key, the least recently used given up first; what several seek at once is found once."""

    def __init__(self, caching: Caching, clock: Clock = time.monotonic) -> None:
        self.caching, self._clock = caching, clock
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._sought: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        _ALL.add(self)

    def get(self, key: str) -> tuple[Any, Future[Any] | None]:
        """What is kept, or None; and the future of whoever finds it out already, or None: it is for you.

        Whoever got None and None must call ``settle``.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is not None and self._clock() - found[0] <= self.caching.seconds:
                self._kept.move_to_end(key)
                return found[1], None
            self._kept.pop(key, None)
            if (sought := self._sought.get(key)) is not None:
                return None, sought
            seeking: Future[Any] = Future()
            self._sought[key] = seeking
            seeking.set_running_or_notify_cancel()  # whoever gives up waiting for it must not cancel it
            return None, None

    def settle(self, key: str, value: Any) -> None:
        """Keep what was found out and tell those who wait; None: nothing worth keeping."""
        with self._lock:
            if value is not None:
                self._kept[key] = (self._clock(), value)
                while len(self._kept) > self.caching.size:
                    self._kept.popitem(last=False)
            sought = self._sought.pop(key)
        sought.set_result(value)

    def forget(self) -> None:
        """In a forked child: what is kept is still right, but nobody finds anything out."""
        self._sought, self._lock = {}, threading.Lock()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Gate:
    """The limits of one tool, at work. None means that there is no such limit."""

    slots: Slots | None
    pace: Pace | None
    cache: Cache | None


def gate(owner: str | None, *, concurrency: int | None, rate: Rate | None, caching: Caching | None) -> Gate:
    """The gate of a tool: the same one for every tool of that owner with these limits, else a new one.

    Args:
        owner: what identifies the tool in this process, such as its file, name and config.
    """

    def make() -> Gate:
        return Gate(
            Slots(concurrency) if concurrency else None,
            Pace(rate) if rate else None,
            Cache(caching) if caching else None,
        )

    if owner is None:
        return make()
    key = (owner, concurrency, rate, caching)
    with _GATES_LOCK:
        found = _GATES.get(key)
        if found is None:
            found = _GATES[key] = make()
        return found


_ALL: weakref.WeakSet[Slots | Pace | Cache] = weakref.WeakSet()
_GATES: weakref.WeakValueDictionary[Any, Gate] = weakref.WeakValueDictionary()
_GATES_LOCK = threading.Lock()
RUNNING = Slots(MAX_RUNNING)
"""The places of the whole process."""


def _forget() -> None:
    global _GATES_LOCK
    _GATES_LOCK = threading.Lock()
    for each in list(_ALL):
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
