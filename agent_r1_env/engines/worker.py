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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent_r1_env.engines import Generation, Sampling, Tokenizer, room
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

    def sampled(self, keys: Sequence[str]) -> Mapping[str, int]:
        """How many ids each of these requests has drawn.

        Those under way count, and are drawn when this returns, so that the weights may change.
        """

    def refresh(self) -> None:
        """The weights are others now: what the old ones computed may serve no request that begins."""


@dataclass(frozen=True)
class _Ask:
    key: str
    prompt_ids: Sequence[int]
    sampling: Sampling
    answer: Future[Generation] = field(default_factory=Future)
    spans: list[tuple[int, int | None]] = field(default_factory=list)
    """For each change of the weights meanwhile: how many ids were drawn before it, and their last version."""


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
    """Feeds a backend from any number of coroutines. Whatever that raises, its thread stays alive.

    Attributes:
        version: The number of the weights of now; None: nobody counts.
    """

    def __init__(self, backend: Backend, name: str, setup: Callable[[], Any] | None = None) -> None:
        """Start the thread; ``setup`` runs first on it, for state that belongs to a thread.

        Raises:
            EngineError: that failed.
        """
        self._backend = backend
        self._name = name
        self.version: int | None = None
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._waiting: dict[str, _Ask] = {}
        self._keys: Iterator[int] = itertools.count()
        self._closed = False
        self._entrance = threading.Lock()  # nothing is put in behind the message that ends the thread
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready, setup), name=name, daemon=True)
        self._thread.start()
        try:
            ready.result()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            raise EngineError(f"the engine {name!r} cannot be used: {failure}") from error

    async def ask(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """The backend's answer. Cancelling returns when the backend has forgotten the request.

        Raises:
            EngineError: the backend failed, or was closed.
        """
        request = _Ask(f"{self._name}-{next(self._keys)}", prompt_ids, sampling)
        self._enter(request)
        try:
            return await asyncio.wrap_future(request.answer)
        except asyncio.CancelledError:
            drop = _Drop(request.key)
            if self._put(drop):  # else all is forgotten
                await asyncio.wrap_future(drop.done)
            raise

    @contextlib.contextmanager
    def updating(self, version: int | None) -> Iterator[None]:
        """Keep the thread off the backend while its weights are changed, then give them this number.

        Requests under way wait, and go on where they were. Where changing raises, the number stays.

        Raises:
            EngineError: it was closed, or the backend cannot say where its requests are.
        """
        hold = _Hold()
        self._enter(hold)
        try:
            hold.still.result()
            yield
            self.version = version
        finally:
            hold.go_on.set()

    def close(self) -> None:
        """Fail whoever still waits and end the thread; twice is harmless."""
        self._put(None)
        self._thread.join()

    def _enter(self, message: _Message) -> None:
        if not self._put(message):
            raise EngineError(f"the engine {self._name!r} is closed")

    def _put(self, message: _Message) -> bool:
        """Whether the thread will come to it: not once it is closed."""
        with self._entrance:
            if self._closed:
                return False
            self._closed = message is None
            self._inbox.put(message)
            return True

    def _run(self, ready: Future[None], setup: Callable[[], Any] | None) -> None:
        try:
            if setup is not None:
                setup()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
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
            self._rest(message)

    def _rest(self, hold: _Hold) -> None:
        """Note where every request is, and stand still while the weights change."""
        try:
            counts = self._backend.sampled(list(self._waiting))
            for key, request in self._waiting.items():
                request.spans.append((counts[key], self.version))
        except BaseException as error:
            _refuse(hold.still, self._told(error))
            return
        _settle(hold.still, None)
        while not (hold.go_on.wait(_LOOK) or self._closed):
            pass  # an update that hangs, or whose own thread closes this, must not keep it from ending
        try:
            self._backend.refresh()
        except BaseException as error:
            self._fail(error)

    def _admit(self, request: _Ask) -> None:
        try:
            self._backend.admit(request.key, request.prompt_ids, request.sampling)
        except BaseException as error:
            _refuse(request.answer, self._told(error))
        else:
            self._waiting[request.key] = request

    def _advance(self) -> None:
        try:
            finished = list(self._backend.advance())
        except BaseException as error:
            self._fail(error)
            return
        for key, outcome in finished:
            request = self._waiting.pop(key, None)
            if request is None:
                continue
            if isinstance(outcome, Exception):
                _refuse(request.answer, outcome)
            else:
                versions = _versions([*request.spans, (len(outcome.ids), self.version)])
                _settle(request.answer, replace(outcome, versions=versions) if versions else outcome)

    def _fail(self, cause: BaseException) -> None:
        """Tell everybody who waits; nobody hangs because the model died."""
        failed, self._waiting = self._waiting, {}
        self._forget(list(failed))
        for request in failed.values():
            # One exception each: a traceback grows with every place that raises it.
            _refuse(request.answer, self._failure(cause))

    def _told(self, error: BaseException) -> Exception:
        """What the waiter may raise; a panic of code in Rust, or an exit, would end an event loop."""
        return error if isinstance(error, Exception) else self._failure(error)

    def _failure(self, cause: BaseException) -> EngineError:
        error = EngineError(f"the engine {self._name!r} failed: {type(cause).__name__}: {cause}")
        error.__cause__ = cause
        return error

    def _forget(self, keys: list[str]) -> None:
        try:
            self._backend.cancel(keys)
        except BaseException:
            _log.warning("the engine %r could not cancel %d requests", self._name, len(keys), exc_info=True)


class WorkerEngine:
    """An engine that is a backend and its worker.

    Attributes:
        version: The number of the weights of now; None: nobody counts.
    """

    tokenizer: Tokenizer
    max_model_len: int
    _worker: Worker

    @property
    def version(self) -> int | None:
        return self._worker.version

    @version.setter
    def version(self, version: int | None) -> None:
        self._worker.version = version

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one reply.

        Raises:
            PromptTooLong: nothing fits behind the prompt; the model is not even asked.
            EngineError: the model failed.
        """
        limit = room(len(prompt_ids), self.max_model_len, sampling.max_tokens)
        return await self._worker.ask(prompt_ids, replace(sampling, max_tokens=limit))

    def updating(self, version: int | None) -> contextlib.AbstractContextManager[None]:
        """Hold the engine still while its weights are changed, then give them this number.

        Requests under way go on with the new weights where they were and keep what they have computed; those
        that begin later find nothing of the old weights in a cache.
        """
        return self._worker.updating(version)

    def close(self) -> None:
        """End the engine's thread; the model stays its owner's."""
        self._worker.close()


def _versions(spans: Sequence[tuple[int, int | None]]) -> list[int]:
    """The version of each id, of how many were there when each version ended; empty if one has no number."""
    length = spans[-1][0]
    found: list[int] = []
    for count, version in spans:
        new = min(count, length) - len(found)
        if new > 0 and version is None:
            return []
        found += [version or 0] * new
    return found


_LOOK = 0.1
"""Seconds between two looks of a held thread whether its engine was closed."""
_LINGER = 0.001
"""Seconds to wait for more requests after the first: episodes ask in bursts, and one batch beats two."""


def _settle(future: Future[Any], value: Any) -> None:
    """Set a result, unless the waiter is gone."""
    if future.set_running_or_notify_cancel():
        future.set_result(value)


def _refuse(future: Future[Any], error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
