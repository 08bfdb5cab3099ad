"""Python interpreters in sandboxes, started before they are needed and each used by one episode or call."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path

from agent_r1_env import workers
from agent_r1_env.bounds import Finished
from agent_r1_env.processes import Child
from agent_r1_env.sandbox import Sandbox

SNIPPET = str(Path(__file__).with_name("snippet.py"))
LINGER = 10.0
"""Seconds that started interpreters wait when nobody uses their pool any more."""


class Interpreter:
    """Runs pieces of code, one after another, in the same namespace."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.alive = True

    async def run(self, code: str, *, last: bool = False) -> Finished:
        """What the code wrote, and how it ended: as "ended" with status 0 or 1 while the interpreter lives.

        Args:
            last: wait for the code's threads and run its exit functions, as at the end of a script.
        """
        began, text = time.monotonic(), code.encode("utf-8", "surrogatepass")
        try:
            answer = await self.child.ask(len(text).to_bytes(8, "big") + bytes([last]) + text)
        except BaseException:
            await self.close_async()
            raise
        seconds = time.monotonic() - began
        if answer:
            return Finished("ended", 0 if answer[:1] == b"+" else 1, bytes(self.child.out), b"", seconds)
        await self.close_async()
        return self.child.finished(seconds)

    async def close_async(self) -> None:
        """Kill it; when this returns nothing of it lives."""
        self.alive = False
        await self.child.destroy_async()

    def close(self) -> None:
        """The same, blocking. Idempotent."""
        self.alive = False
        self.child.destroy()


class Pool:
    """A few interpreters of one kind of sandbox that wait for code."""

    def __init__(self, sandbox: Sandbox, size: int | None = None) -> None:
        self.sandbox = sandbox
        self.size = min(os.cpu_count() or 1, 8) if size is None else size
        self._ready: list[Child] = []
        self._lock = threading.Lock()
        self._starting = 0
        self._closed = False
        self.users = 0

    def take(self) -> Interpreter:
        """An interpreter that nobody used before, which the caller closes.

        Raises:
            OSError: the system gives no more processes or descriptors.
        """
        child = self._pop()
        while child is not None and not child.alive:  # whoever was short of memory killed it
            child.destroy()
            child = self._pop()
        workers.start(self.fill, {}, _same)
        return Interpreter(child or self._start())

    def _pop(self) -> Child | None:
        with self._lock:
            return self._ready.pop(0) if self._ready else None

    def fill(self) -> None:
        """Start what is missing."""
        while self._reserve():
            child = None
            try:
                child = self._start()
            finally:
                with self._lock:
                    self._starting -= 1
                    kept = child is not None and not self._closed
                    if child is not None and kept:
                        self._ready.append(child)
            if not kept:
                child.destroy()

    def _reserve(self) -> bool:
        """Take on to start one, if one is missing that nobody else is about to start."""
        with self._lock:
            missing = not self._closed and len(self._ready) + self._starting < self.size
            self._starting += missing
            return missing

    def close(self) -> None:
        """End those that wait."""
        with self._lock:
            self._closed = True
            ending, self._ready = self._ready, []
        for child in ending:
            child.destroy()

    def forget(self) -> None:
        """Let go of what a fork copied."""
        self._closed = True
        for child in self._ready:
            child.forget()

    def _start(self) -> Child:
        return self.sandbox.child([sys.executable, "-I", "-X", "utf8", SNIPPET], talking=True)


_POOLS: dict[Sandbox, Pool] = {}
_LOCK = threading.Lock()


def join(sandbox: Sandbox) -> Pool:
    """The pool of this process for a kind of sandbox; to be left again."""
    with _LOCK:
        pool = _POOLS.setdefault(sandbox, Pool(sandbox))
        pool.users += 1
        return pool


def leave(pool: Pool) -> None:
    """Use a pool no more. It ends a while after the last user left, since the next episode may come soon."""
    with _LOCK:
        pool.users -= 1
        if pool.users == 0:
            waiting = threading.Timer(LINGER, _end_if_unused, (pool,))
            waiting.daemon = True
            waiting.start()


def _end_if_unused(pool: Pool) -> None:
    with _LOCK:
        if pool.users or _POOLS.get(pool.sandbox) is not pool:
            return
        del _POOLS[pool.sandbox]
    pool.close()


def _forget_pools() -> None:
    """A forked child owns none of its parent's interpreters."""
    global _LOCK
    _LOCK = threading.Lock()
    for pool in _POOLS.values():
        pool.forget()
    _POOLS.clear()


def _same(value: object) -> object:
    return value


def _end_all() -> None:
    """End what waits; at the end of this process its loops and threads are no more."""
    for pool in list(_POOLS.values()):
        pool.close()


os.register_at_fork(after_in_child=_forget_pools)
atexit.register(_end_all)
