"""The processes that some children of this one began, and their end; none where there is no /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

Process = tuple[int, str]
"""Process id, and the time of its start, since ids are used again."""


def descendants(mark: str) -> set[Process]:
    """Those of our children whose command line holds ``mark``, and all that came of them."""
    parents: dict[int, tuple[int, str]] = {}
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[pid] = _parent_and_start(pid)
            if parents[pid][0] == os.getpid() and mark.encode() in (entry / "cmdline").read_bytes():
                found.add(pid)
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return {(pid, parents[pid][1]) for pid in found}


def end(processes: set[Process], patience: float) -> None:
    """Wait that long for processes to end by themselves, and kill those that do not."""
    deadline = time.monotonic() + patience
    while left := {each for each in processes if _lives(each)}:
        if time.monotonic() > deadline:
            for pid, _ in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _lives(process: Process) -> bool:
    pid, start = process
    try:
        return _parent_and_start(pid)[1] == start
    except OSError:
        return False


def _parent_and_start(pid: int) -> tuple[int, str]:
    """Of a process that has not ended; one that only waits to be buried has."""
    # The name, in brackets, may hold anything; proc(5) counts from 1, and the state is the third field.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[1]), fields[19]
