"""Commands that are bounded while they run and wholly gone when they end.

Each runs below a supervisor (``supervisor.py``), a small process of its own, which finds and kills every
descendant. This side reads what the command writes up to a limit and no further, so that its memory stays
flat, and needs neither the main thread nor signals.

What holds on every Linux: a session and process group of its own, no descriptor but the three standard ones,
the environment that was given and nothing else, all descendants dead and reaped, no descriptor left open.
A command that is not ``confined`` has the user's rights, though, and may kill its supervisor: do not run with
it what you do not trust. See ``sandbox`` for what is meant to hold against code that nobody has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from agent_r1_env import workers
from agent_r1_env.bounds import FREE, USUAL, Bounds, Confinement, Ended, Finished

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_PIECE = 1 << 16
_FOLDER_MB = 64
"""Size of the private folder in memory, where no limit of files was given."""
_PATIENCE = 10.0
"""Seconds that killing everything may take; milliseconds are usual."""
_REPORTED: tuple[Ended, ...] = ("ended", "processes", "memory", "stopped", "refused")
"""What the supervisor says itself."""


async def run(
    make: Callable[..., Child],
    command: Sequence[str],
    *,
    seconds: float | None,
    env: Mapping[str, str] | None,
    given: bytes = b"",
) -> Finished:
    """Run a command to its end; when this returns, raises or is cancelled, nothing of it lives.

    Args:
        make: starts it, as ``Child`` does.
        seconds: until it is killed.
        env: its environment.
        given: its standard input.
    """
    began = time.monotonic()
    child = make(command, env=env, given=given)
    try:
        await child.collect(seconds)
    finally:
        await child.destroy_async()
    return child.finished(time.monotonic() - began)


class Child:
    """A command below its supervisor; whoever makes one has to ``destroy`` it.

    Attributes:
        out, err: what was read so far.
        channel: with ``talking``, the socket whose other end is the command's standard input; standard error
            then goes where standard output does, and processes are counted during ``ask`` alone.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: str,
        env: Mapping[str, str],
        given: bytes = b"",
        bounds: Bounds = USUAL,
        confinement: Confinement = FREE,
        talking: bool = False,
        after: Callable[[], object] | None = None,
    ) -> None:
        """Start it.

        Args:
            folder: in which it runs.
            env: its whole environment.
            given: its standard input.
            after: called when it is destroyed.

        Raises:
            OSError: the system gives no more processes or descriptors.
        """
        self.bounds = bounds
        self.out, self.err, self._said, self._answers = bytearray(), bytearray(), bytearray(), bytearray()
        self.channel: socket.socket | None = None
        self._out = self._err = self._report = self._control = -1
        self._why: Ended = "ended"
        self._ready = False
        self._wrapped = bool(confinement.prefix)
        self._after = after
        self._lock = threading.Lock()
        self._unread = threading.Event()
        self._unread.set()
        spec = {
            "folder": folder,
            "command": [*confinement.prefix, *command],
            "counting": not talking,
            "root": os.geteuid() == 0,
            "no_ctype": "LC_CTYPE" not in env,
            **_spec_of(bounds, confinement),
        }
        try:
            self._supervisor = self._start(spec, env, given, talking)
        except BaseException:
            self._close()
            raise

    def _start(
        self, spec: dict[str, Any], env: Mapping[str, str], given: bytes, talking: bool
    ) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as theirs:
            spec["control"], self._control = _pipe(theirs, writing=True)
            spec["report"], self._report = _pipe(theirs)
            out, self._out = _pipe(theirs)
            if talking:
                self.channel, other = socket.socketpair()
                theirs.callback(other.close)
                self.channel.setblocking(False)
                stdin, err = other.fileno(), out
            else:
                stdin = theirs.enter_context(_memory(given)).fileno()
                err, self._err = _pipe(theirs)
            return subprocess.Popen(
                [sys.executable, "-I", "-S", SUPERVISOR, marshal.dumps(spec).hex()],
                stdin=stdin,
                stdout=out,
                stderr=err,
                pass_fds=(spec["control"], spec["report"]),
                env=dict(env),
                cwd="/",
                start_new_session=True,
            )

    async def collect(self, seconds: float | None) -> None:
        """Read until the end of the command and all that it started, or until it used up what it may."""
        sources = {self._out: self.out, self._err: self.err, self._report: self._said}
        self._why = await self._read(sources, seconds, lambda: False)

    async def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        """Hand a request to a talking command: its answer of one byte, while ``out`` has what it wrote.

        What it started meanwhile is dead then. The answer is empty if the command is of no more use; once it
        is destroyed, ``finished`` tells why.
        """
        if self.channel is None:
            raise ValueError("only a command that was made to talk can be asked")
        channel = {self.channel.fileno(): self._answers}
        rest = {self._out: self.out, self._report: self._said}
        if not self._ready:  # it says so with a byte of its own, after which its processes are known
            self._why = await self._read(channel | rest, seconds, lambda: bool(self._answers or self._said))
            self._ready = bool(self._answers)
        del self.out[:], self._answers[:]
        if not self._ready or not await self._order_and_wait(b"c", rest, seconds):
            return b""
        sending = asyncio.create_task(_send(self.channel, request))
        try:
            self._why = await self._read(channel | rest, seconds, lambda: bool(self._answers or self._said))
        finally:
            sending.cancel()
        if self._why != "ended" or self._said or not await self._order_and_wait(b"e", rest, seconds):
            return b""
        if not _drain(self._out, self.out, self.bounds.output_bytes):
            self._why = "output"
            return b""
        return bytes(self._answers)

    async def _order_and_wait(
        self, order: bytes, rest: Mapping[int, bytearray], seconds: float | None
    ) -> bool:
        """Tell the supervisor something; whether it acknowledged."""
        if not self._order(order):
            return False
        self._why = await self._read(rest, seconds, lambda: bool(self._said))
        if self._why != "ended" or self._said != b"k":
            return False
        self._said.clear()
        return True

    def finished(self, seconds: float = 0.0) -> Finished:
        """What became of it; to be asked once it is destroyed."""
        said = self._said.decode("utf-8", "replace").lstrip("k").split(" ", 2)
        reason, status, detail = (*said, "", "")[:3]
        out, err = bytes(self.out), bytes(self.err)
        if self._why != "ended":
            return Finished(self._why, 0, out, err, seconds)
        ended: Ended = next((each for each in _REPORTED if each == reason), "lost")
        code = int(status or 0)
        if code > 128 and self._wrapped:  # how bubblewrap tells of a signal
            code = 128 - code
        return Finished(ended, code, out, err, seconds, detail)

    @property
    def alive(self) -> bool:
        """Whether its supervisor is."""
        return self._supervisor.poll() is None

    async def destroy_async(self) -> None:
        """``destroy`` without blocking the event loop, and to its end even if this is cancelled."""
        await asyncio.shield(asyncio.wrap_future(workers.start(self.destroy, {}, _same)))

    def destroy(self) -> None:
        """Kill it with all that it started, wait until that is done, and close everything. Idempotent."""
        with self._lock:
            if self._control < 0:
                return
            self._order(b"q")
            try:
                self._supervisor.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()  # namespaces die with it
                self._supervisor.wait()
            self._unread.wait(_PATIENCE)  # no number of a descriptor is free while somebody may read from it
            _drain(self._report, self._said, _PIECE)
            _drain(self._out, self.out, self.bounds.output_bytes - len(self.err))
            if self._err >= 0:
                _drain(self._err, self.err, self.bounds.output_bytes - len(self.out))
            self._close()

    def forget(self) -> None:
        """Close what a fork copied of it, without harm to the one that the parent holds."""
        self._supervisor.returncode = 0
        self._close()

    async def _read(
        self, sources: Mapping[int, bytearray], seconds: float | None, enough: Callable[[], bool]
    ) -> Ended:
        """Read several descriptors at once until it is enough, all are at their end, or a limit is hit."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Ended] = loop.create_future()
        left = {descriptor for descriptor in sources if descriptor >= 0}

        def ready(descriptor: int) -> None:
            room = self.bounds.output_bytes - len(self.out) - len(self.err)
            try:
                data = os.read(descriptor, _PIECE)
            except ConnectionResetError:  # a channel whose other end died with a request unread
                data = b""
            sources[descriptor].extend(data[: max(0, room)] if descriptor in (self._out, self._err) else data)
            if not data:
                loop.remove_reader(descriptor)
                left.discard(descriptor)
            if not over.done():
                if descriptor in (self._out, self._err) and len(data) > room:
                    over.set_result("output")
                elif not left or enough():
                    over.set_result("ended")

        self._unread.clear()
        for descriptor in left:
            loop.add_reader(descriptor, ready, descriptor)
        try:
            return await asyncio.wait_for(over, seconds)
        except TimeoutError:
            return "time"
        finally:
            for descriptor in left:
                loop.remove_reader(descriptor)
            self._unread.set()

    def _order(self, order: bytes) -> bool:
        """Tell the supervisor something; False if it is gone."""
        try:
            return os.write(self._control, order) == 1
        except BrokenPipeError:
            return False

    def _close(self) -> None:
        for descriptor in (self._out, self._err, self._report, self._control):
            if descriptor >= 0:
                os.close(descriptor)
        self._out = self._err = self._report = self._control = -1
        if self.channel is not None:
            self.channel.close()
        if self._after is not None:
            self._after()


async def _send(channel: socket.socket, request: bytes) -> None:
    with contextlib.suppress(OSError):  # it died, which its supervisor reports
        await asyncio.get_running_loop().sock_sendall(channel, request)


def _drain(descriptor: int, into: bytearray, limit: int) -> bool:
    """Read what is there already, up to a limit; False if there was more."""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(descriptor, _PIECE):
            into.extend(data)
            if len(into) > limit:
                del into[max(0, limit) :]
                return False
    return True


def _spec_of(bounds: Bounds, confinement: Confinement) -> dict[str, Any]:
    """What the supervisor has to know of them, as data that ``marshal`` can carry."""
    return {
        "limits": bounds.limits(),
        "processes": bounds.processes,
        "memory": bounds.memory_mb and bounds.memory_mb << 20,
        "size": (bounds.file_mb or _FOLDER_MB) << 20,
        "confined": confinement.confined,
        "namespaces": confinement.namespaces,
        "network": confinement.network,
        "readonly": confinement.readonly,
        "more": confinement.more,
    }


def _pipe(theirs: contextlib.ExitStack, *, writing: bool = False) -> tuple[int, int]:
    """A pipe as their end and ours; theirs is closed with the stack."""
    reader, writer = os.pipe()
    their, our = (reader, writer) if writing else (writer, reader)
    theirs.callback(os.close, their)
    os.set_blocking(our, False)
    return their, our


def _memory(data: bytes) -> BinaryIO:
    """A file in memory that holds ``data``, to be read from its beginning."""
    file = open(os.memfd_create("input"), "w+b", buffering=0)  # noqa: SIM115 - whoever calls closes it
    try:
        file.write(data)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _same(value: Any) -> Any:
    return value
