"""What runs a tool in one episode, made where the first call runs and so without making others wait."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from agent_r1_env import workers
from agent_r1_env.errors import StateError, ToolError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a tool kept at some moment of an episode.

    Attributes:
        value: what its ``get_state`` gave, or else a copy of the whole object.
        whole: it is the object.
    """

    value: Any
    whole: bool

    def restored(self, begin: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """What runs the tool from there on; the snapshot can be used again."""
        if self.whole:
            made: Any = copy.deepcopy(self.value)
            return cast(Callable[..., Any], made)
        made = begin()
        made.set_state(copy.deepcopy(self.value))
        return cast(Callable[..., Any], made)


def begun(
    name: str,
    begin: Callable[[], Callable[..., Any]],
    run: Callable[..., Any],
    snapshot: Snapshot | None = None,
) -> Begun:
    """What ``begin`` gives, once it is called; or what a snapshot holds.

    Args:
        run: what it will be like, a function or a coroutine function.
    """
    return (BegunAsync if workers.is_coroutine_function(run) else Begun)(name, begin, run, snapshot)


class Begun:
    """A function that is made at its first call."""

    def __init__(
        self,
        name: str,
        begin: Callable[[], Callable[..., Any]],
        run: Callable[..., Any],
        snapshot: Snapshot | None = None,
    ) -> None:
        self.__wrapped__ = run  # calls of it that hang are counted with those of other episodes
        self._name, self._begin, self._snapshot = name, begin, snapshot
        self._made: Callable[..., Any] | None = None
        self._over = False
        self._making, self._lock = threading.Lock(), threading.Lock()

    def __call__(self, **arguments: Any) -> Any:
        return self._ready()(**arguments)

    def close(self) -> Any:
        """Close what was made; what is still being made is closed as soon as it is there."""
        with self._lock:
            self._over = True
            made, self._made = self._made, None
        close = getattr(made, "close", None)
        return None if close is None else close()

    def snapshot(self) -> Snapshot | None:
        """What the tool keeps now; None if it was not called yet. Not while a call of it runs.

        Raises:
            StateError: it cannot be copied.
        """
        if self._made is None:
            return self._snapshot
        try:
            if hasattr(self._made, "get_state"):
                return Snapshot(copy.deepcopy(self._made.get_state()), whole=False)
            return Snapshot(copy.deepcopy(self._made), whole=True)
        except (TypeError, NotImplementedError, AttributeError, pickle.PicklingError) as fault:
            raise StateError(
                f"what the tool {self._name!r} keeps for the episode cannot be copied: {fault}; give its "
                "class get_state() and set_state(state)"
            ) from fault

    def _ready(self) -> Callable[..., Any]:
        with self._making:
            if self._made is not None:
                return self._made
            try:
                made = self._begin() if self._snapshot is None else self._snapshot.restored(self._begin)
            except Exception as failure:
                logger.warning("tool %r could not be started", self._name, exc_info=failure)
                reason = failure.__cause__ or failure  # without the file and line that a developer reads
                raise ToolError(f"{self._name} could not be started: {reason}") from failure
            with self._lock:
                if not self._over:
                    self._made = made
                    return made
        if (close := getattr(made, "close", None)) is not None:
            close()
        raise ToolError("the episode is over")


class BegunAsync(Begun):
    """A coroutine function that is made at its first call; calls begin in the order in which they come."""

    _entry: asyncio.Lock | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, **arguments: Any) -> Any:
        if self._entry is None or self._loop is not asyncio.get_running_loop():  # the last one was given up
            self._entry, self._loop = asyncio.Lock(), asyncio.get_running_loop()
        async with self._entry:
            made = self._made
            if made is None:  # on a thread, for what makes it may block
                outcome = await asyncio.wrap_future(workers.start(self._ready, {}, _as_it_is))
                if outcome.failure is not None:
                    raise outcome.failure
                made = outcome.value
        value = made(**arguments)
        return await value if inspect.isawaitable(value) else value


def _as_it_is(value: Any) -> Any:
    return value
