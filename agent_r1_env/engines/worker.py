"""A thread that owns a blocking model and answers coroutines of any event loop.

Everything that touches the model happens on this one thread, so it needs no lock, an event loop is never
blocked while the model computes, and a tool that finishes meanwhile goes on at once. The thread rests while
nobody waits: whoever has got all answers may change the model's weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.errors import EngineError

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """A model that works on several requests at once; called from one thread only."""

    def admit(self, key: str, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        """Take a request on; raising refuses this one alone."""

    def cancel(self, keys: Sequence[str]) -> None:
        """Forget requests; unknown keys are nothing special."""

    def advance(self) -> Iterable[tuple[str, Generation | Exception]]:
        """Compute a little and return what got finished or failed; raising fails every request."""


@dataclass(frozen=True)
class _Ask:
    key: str
    prompt_ids: Sequence[int]
    sampling: Sampling
    answer: Future[Generation] = field(default_factory=Future)


@dataclass(frozen=True)
class _Drop:
    key: str
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class _Hold:
    still: Future[None] = field(default_factory=Future)
    go_on: threading.Event = field(default_factory=threading.Event)


_Message = _Ask | _Drop | _Hold | None  # None: end


class Worker:
    """Feeds a backend from any number of coroutines."""

    def __init__(self, backend: Backend, name: str, setup: Callable[[], Any] | None = None) -> None:
        """Start the thread; ``setup`` runs first on it, for state that belongs to a thread."""
        self._backend = backend
        self._name = name
        self._setup = setup or (lambda: None)
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._waiting: dict[str, _Ask] = {}
        self._keys = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """The backend's answer. Cancelling returns when the backend has forgotten the request.

        Raises:
            EngineError: the backend failed, or was closed.
        """
        if self._closed:
            raise EngineError(f"the engine {self._name!r} is closed")
        request = _Ask(f"{self._name}-{next(self._keys)}", prompt_ids, sampling)
        self._inbox.put(request)
        try:
            return await asyncio.wrap_future(request.answer)
        except asyncio.CancelledError:
            drop = _Drop(request.key)
            self._inbox.put(drop)
            await asyncio.wrap_future(drop.done)
            raise

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the thread off the backend meanwhile; requests wait.

        Raises:
            EngineError: it was closed.
        """
        if self._closed:
            raise EngineError(f"the engine {self._name!r} is closed")
        hold = _Hold()
        self._inbox.put(hold)
        hold.still.result()
        try:
            yield
        finally:
            hold.go_on.set()

    def close(self) -> None:
        """Fail whoever still waits and end the thread."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._setup()
        while True:
            messages = self._messages()
            for message in messages:
                self._handle(message)
            if None in messages:
                self._fail(EngineError("it was closed"))
                return
            if self._waiting:
                self._advance()

    def _messages(self) -> list[_Message]:
        """All that was asked since the last look; waits for something to do when idle."""
        messages = []
        if not self._waiting:
            messages.append(self._inbox.get())
            time.sleep(_LINGER)
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _handle(self, message: _Message) -> None:
        if isinstance(message, _Ask):
            self._admit(message)
        elif isinstance(message, _Drop):
            self._waiting.pop(message.key, None)
            self._forget([message.key])
            _settle(message.done, None)
        elif isinstance(message, _Hold):
            _settle(message.still, None)
            message.go_on.wait()

    def _admit(self, request: _Ask) -> None:
        try:
            self._backend.admit(request.key, request.prompt_ids, request.sampling)
        except Exception as error:
            _refuse(request.answer, error)
        else:
            self._waiting[request.key] = request

    def _advance(self) -> None:
        try:
            finished = list(self._backend.advance())
        except BaseException as error:  # whatever it is, nobody may wait for a dead thread
            self._fail(error)
            return
        for key, outcome in finished:
            request = self._waiting.pop(key, None)
            if request is None:
                continue
            if isinstance(outcome, Exception):
                _refuse(request.answer, outcome)
            else:
                _settle(request.answer, outcome)

    def _fail(self, cause: BaseException) -> None:
        """Tell everybody who waits; nobody hangs because the model died."""
        failed, self._waiting = self._waiting, {}
        self._forget(list(failed))
        for request in failed.values():
            # One exception each: a traceback grows with every place that raises it.
            error = EngineError(f"the engine {self._name!r} failed: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            _refuse(request.answer, error)

    def _forget(self, keys: list[str]) -> None:
        try:
            self._backend.cancel(keys)
        except Exception:
            _log.warning("the engine %r could not cancel %d requests", self._name, len(keys), exc_info=True)


_LINGER = 0.001
"""Seconds to wait for more requests after the first: episodes ask in bursts, and one batch beats two."""


def _settle(future: Future[Any], value: Any) -> None:
    """Set a result, unless the waiter is gone."""
    if future.set_running_or_notify_cancel():
        future.set_result(value)


def _refuse(future: Future[Any], error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
