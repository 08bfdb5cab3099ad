"""Runs one command in bounds, and ends with it everything that it started.

A script of its own process, which imports nothing of this package: ``processes`` starts it. It becomes the
parent that all descendants of the command fall to, whatever they do (a PID namespace of which it is the init
process, else a child subreaper), so that it finds them all. It obeys single bytes from the control pipe:

c  a call begins: from now on processes are counted; acknowledged with ``k``
e  the call ends: kill whatever it started; acknowledged with ``k``
q  (or the end of the pipe, when whoever holds it is gone) kill everything and exit
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` takes longer than all else here
import ctypes
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than what is done here
    from collections.abc import Callable, Collection
    from typing import Any

    Spec = dict[str, Any]
    Living = Callable[[], Collection[int]]

_LIBC = ctypes.CDLL(None, use_errno=True)
_PDEATHSIG, _NO_NEW_PRIVS, _SUBREAPER, _CAPBSET_DROP, _DUMPABLE = 1, 38, 36, 24, 4
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    *(0x00020000, 0x04000000, 0x08000000),
    *(0x10000000, 0x20000000, 0x40000000),
)
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MOUNT_SETATTR, _ATTR_RDONLY, _AT_RECURSIVE = 442, 1, 0x8000
_DEVICES = ("null", "zero", "full", "random", "urandom")
_AT_A_TIME = 256
_INSIDE = 1000
"""The user that root is inside of a user namespace: not root, so that running a program drops all rights."""


def main(spec: Spec) -> None:
    control, report = spec["control"], spec["report"]
    ahead = _get_ahead()
    try:
        if spec["namespaces"]:
            _enter(spec)
        else:
            _call("prctl", _SUBREAPER, 1, 0, 0, 0)
    except OSError as refusal:
        os.write(report, f"refused 0 {refusal}".encode())
        os._exit(0)
    bell, clapper = os.pipe()
    os.set_blocking(clapper, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(clapper, warn_on_full_buffer=False)
    command = os.fork()
    if command == 0:
        try:
            if ahead:
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            _become(spec)
        except OSError as failure:
            os.write(2, f"{spec['command'][0]}: {failure.strerror}\n".encode())
        os._exit(127)
    for descriptor in (0, 1, 2):  # whoever reads them must see their end when the command's tree is gone
        os.close(descriptor)
    reason, status = _watch(spec, command, control, report, bell)
    if not spec["namespaces"]:  # else the kernel kills all when this process, their init, exits
        if _descendants():
            _kill(-command, signal.SIGKILL)  # the whole process group at once, as it may grow meanwhile
        _end(_descendants, ())
        _reap_all()
    os.write(report, f"{reason} {status}".encode())
    os._exit(0)


def _get_ahead() -> bool:
    """Run before all that it watches, if root may: what multiplies without end would keep it waiting."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    return True


def _watch(spec: Spec, command: int, control: int, report: int, bell: int) -> tuple[str, int]:
    """Wait until the command ends, or has to: why, and its exit status."""
    living = _all_but_me if spec["namespaces"] else _descendants
    interval = 20 if spec["namespaces"] else 100  # milliseconds; the second has to look through all of /proc
    counting, kept = spec["counting"], tuple[int, ...]()
    poll = select.poll()
    poll.register(control, select.POLLIN | select.POLLHUP)
    poll.register(bell, select.POLLIN)
    while True:
        ready = dict(poll.poll(interval if counting and (spec["processes"] or spec["memory"]) else None))
        if bell in ready:
            os.read(bell, 4096)
        status = _reap(command)
        order = os.read(control, 1) if control in ready and status is None else None
        if order in (b"", b"q"):
            return "stopped", 0
        counting = counting or order == b"c"
        if counting and (excess := _excess(spec, living)):
            return excess, 0
        if status is not None:
            return "ended", os.waitstatus_to_exitcode(status)
        if order == b"c":
            kept = kept or tuple(living())
        elif order == b"e":
            counting = False
            _end(living, kept)
        if order is not None:
            os.write(report, b"k")


def _excess(spec: Spec, living: Living) -> str:
    """What there is more of than allowed, in all processes together; "" if nothing."""
    if not spec["processes"] and not spec["memory"]:
        return ""
    pids = living()
    if spec["processes"] and len(pids) - spec["more"] > spec["processes"]:
        return "processes"
    if spec["processes"] and sum(map(_tasks, pids)) - spec["more"] > spec["processes"]:
        return "processes"
    # Pages that processes share count once, which takes long to find out; so it is asked last.
    memory = spec["memory"]
    if memory and sum(map(_resident, pids)) > memory and sum(map(_proportional, pids)) > memory:
        return "memory"
    return ""


def _become(spec: Spec) -> None:
    """Turn this process into the command."""
    _call("prctl", _PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    os.close(spec["control"])
    os.close(spec["report"])
    for name, value in spec["limits"]:
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A second more until SIGKILL, for SIGXCPU may be ignored.
        soft_and_hard = (value, value + 1) if name == "RLIMIT_CPU" and value != hard else (value, value)
        resource.setrlimit(kind, soft_and_hard)
    if spec["processes"] and spec["namespaces"] and not spec["root"] and _counts_by_namespace():
        # Far more than is counted, so that it is told; but what multiplies without end is stopped by it.
        most = 4 * (spec["processes"] + spec["more"]) + 16
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if spec["confined"]:
        _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
        if not spec["namespaces"]:  # root without its powers, as far as that goes
            for capability in range(64):
                _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    os.chdir(spec["folder"])
    if spec["no_ctype"]:  # Python sets it for itself where the environment names no locale
        os.environ.pop("LC_CTYPE", None)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(spec["command"][0], spec["command"])


def _counts_by_namespace() -> bool:
    """Whether the kernel limits the processes of a user in each user namespace, not in the whole machine."""
    return tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (5, 14)


def _enter(spec: Spec) -> None:
    """Go on as the init process of namespaces of our own; the process that called this waits for it."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | (0 if spec["network"] else _NEWNET))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user or _INSIDE} {user} 1")
    _write("/proc/self/gid_map", f"{group or _INSIDE} {group} 1")
    init = os.fork()
    if init:
        for descriptor in (0, 1, 2, spec["control"], spec["report"]):
            os.close(descriptor)
        os.waitpid(init, 0)
        os._exit(0)
    _call("prctl", _PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)  # nobody inside reads or changes this process
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    if spec["readonly"]:
        _furnish(spec["folder"], spec["size"])


def _furnish(folder: str, size: int) -> None:
    """A system that can only be read, few devices, no sockets of services, and one folder to write in."""
    if os.path.isdir("/run"):
        _mount("tmpfs", "/run", "tmpfs", _NOSUID | _NODEV, "size=4k,mode=755")
    held = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
    _mount("tmpfs", "/dev", "tmpfs", _NOSUID | _NOEXEC, "size=64k,mode=755")
    for name, descriptor in held.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY))
        _mount(f"/proc/self/fd/{descriptor}", f"/dev/{name}", None, _BIND)
        os.close(descriptor)
    os.symlink("/proc/self/fd", "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    os.mkdir("/dev/shm")
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY, 0, 0, 0)
    _call("syscall", _MOUNT_SETATTR, -100, b"/", _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
    _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, f"size={size},nr_inodes=16384,mode=700")
    _mount(folder, "/dev/shm", None, _BIND)


def _end(living: Living, kept: Collection[int]) -> None:
    """Kill all but ``kept``: stop them first, so that none is born while others die."""
    stopped: set[int] = set()
    while found := {pid for pid in living() if pid not in kept} - stopped:
        for pid in found:
            _kill(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        _kill(pid, signal.SIGKILL)
    while any(pid not in kept for pid in living()):
        time.sleep(0.001)


def _kill(pid: int, number: int) -> None:
    try:  # noqa: SIM105 - see the imports
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _reap(command: int) -> int | None:
    """Take leave of what ended, of some at a time: the status of the command, if it is one of them."""
    try:
        pid, status = os.waitpid(command, os.WNOHANG)
        if pid:
            return status
        for _ in range(_AT_A_TIME):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in (0, command):
                return status if pid else None
    except ChildProcessError:  # there is none left
        pass
    return None


def _reap_all() -> None:
    """Wait for every child; all are dead, and what a dead parent left behind has come to us."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def _all_but_me() -> Collection[int]:
    """What lives in our PID namespace."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != 1 and _parent(pid)]


def _descendants() -> Collection[int]:
    """What lives below this process, by the parents of all processes of the machine."""
    parents = {pid: _parent(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    tree = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tree - {os.getpid()}


def _parent(pid: int) -> int | None:
    """The parent of a process; None if it is dead already."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in b"ZX" else int(parent)


def _tasks(pid: int) -> int:
    """How many threads a process has."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _resident(pid: int) -> int:
    """Bytes of memory that a process has in use, with those that it shares."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _proportional(pid: int) -> int:
    """The same, but its part alone of what it shares."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")), 0)
    except OSError:
        return 0


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def _call(name: str, *arguments: Any) -> None:
    if getattr(_LIBC, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(marshal.loads(bytes.fromhex(sys.argv[1])))
