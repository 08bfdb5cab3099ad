"""The objects of a class that run a tool: built and set up, one an episode or shared, and closed in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from agent_r1_env import workers
from agent_r1_env.entry import Entry
from agent_r1_env.output import veiled
from agent_r1_env.toollimits import filled_secrets


def built(entry: Entry, target: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """An object of the class that a tool's file names, set up.

    Raises:
        CatalogError: building it or its ``setup`` failed.
    """
    try:
        made: Callable[..., Any] = target(**given)
        if (setup := getattr(made, "setup", None)) is not None:
            outcome = workers.start(setup, {}, _as_it_is).result(entry.get("timeout"))
            if outcome.failure is not None:
                raise outcome.failure
    except Exception as cause:
        reason = f"building {target.__name__} failed: {type(cause).__name__}: {cause}"
        raise entry.error(veiled(reason, filled_secrets(entry).values()), "run") from cause
    return made


def by_episode(build: Callable[[], Callable[..., Any]]) -> dict[str, Any]:
    """How objects of one episode each are begun. The first is built now, so that its faults show early."""
    ready = [build()]

    def close() -> None:
        while ready:
            if (ending := getattr(ready.pop(), "close", None)) is not None:
                ending()

    return {"begin": lambda: ready.pop() if ready else build(), "close": close}


def _as_it_is(value: Any) -> Any:
    return value


class Shared:
    """Objects that several environments use, each closed when nobody uses it any more."""

    def __init__(self) -> None:
        self._held: dict[Any, tuple[Callable[..., Any], int]] = {}
        self._lock = threading.Lock()

    def take(self, key: Any, build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        with self._lock:
            held, users = self._held[key] if key in self._held else (build(), 0)
            self._held[key] = held, users + 1
            return held

    def give(self, key: Any) -> None:
        with self._lock:
            held, users = self._held.pop(key)
            if users > 1:
                self._held[key] = held, users - 1
                return
        if (close := getattr(held, "close", None)) is not None:
            close()


SHARED = Shared()
