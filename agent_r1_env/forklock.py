"""A lock that survives a fork."""

from __future__ import annotations

import os
import threading
from types import TracebackType


class ForkLock:
    """A lock that is free in a forked process, whichever thread held it in the parent.

    It is kept for good; make one for a module, not one for each object.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
