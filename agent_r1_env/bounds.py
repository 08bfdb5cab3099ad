"""What a command may use, what it is shut off from, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_OPEN_FILES = 256
"""Of each process, whatever else is allowed."""

Ended = Literal["ended", "output", "time", "processes", "memory", "stopped", "refused", "lost"]
"""Why a command ended: by itself, for one of four limits, at our wish, because the machine cannot confine it
as asked, or because its supervisor was killed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a command may use; None is no limit.

    Attributes:
        output_bytes: of standard output and error together; what is longer ends the command.
        memory_mb: address space of each of its processes; and memory in use by all together, which is looked
            at as often as the processes are counted.
        cpu_seconds: of each of its processes.
        file_mb: size of each file that it writes.
        processes: processes and threads at one time, itself included. Counted every 20 ms (100 ms where
            there is no PID namespace); more of them end the command.
    """

    output_bytes: int = 1 << 20
    memory_mb: int | None = None
    cpu_seconds: int | None = None
    file_mb: int | None = None
    processes: int | None = None

    def limits(self) -> list[tuple[str, int]]:
        """For ``setrlimit``."""
        asked = {
            "RLIMIT_AS": self.memory_mb and self.memory_mb << 20,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_FSIZE": self.file_mb and self.file_mb << 20,
            "RLIMIT_NOFILE": _OPEN_FILES,
            "RLIMIT_CORE": 0,
        }
        return [(name, value) for name, value in asked.items() if value is not None]


USUAL = Bounds()


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a command is shut off from.

    Attributes:
        confined: no privileges, not even those of programs that give some.
        namespaces: PIDs, mounts, IPC and users of its own, with a /proc that shows its own processes alone.
        network: whether it keeps the network, where it has namespaces.
        readonly: with namespaces, the file system can only be read, but for the folder it runs in, which is
            an empty one in memory.
        prefix: words that stand before the command, of a program that confines it further.
        more: processes that belong to ``prefix`` and do not count.
    """

    confined: bool = False
    namespaces: bool = False
    network: bool = True
    readonly: bool = False
    prefix: tuple[str, ...] = ()
    more: int = 0


FREE = Confinement()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended and what it wrote; ``status`` is negative for a signal, and means "ended" alone."""

    ended: Ended
    status: int = 0
    out: bytes = b""
    err: bytes = b""
    seconds: float = 0.0
    detail: str = ""
