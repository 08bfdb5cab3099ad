"""A server of the Model Context Protocol as a process that speaks on its standard input and output.

Beside what the SDK's own transport does, this one bounds what it keeps of a line, tells what the process
wrote when it failed, and leaves none of its descendants.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio.subprocess import Process

logger = logging.getLogger(__name__)

LARGEST = 16 << 20
"""Bytes of a line that are read; a longer one is dropped."""
_CHUNK = 1 << 16
_TAIL = 4096
_PATIENCE = 2.0
"""Seconds that a process has to end when it is asked to."""
_ID = re.compile(rb'"id": ?(\d+)')
_RUNNING: set[int] = set()


class Tail:
    """The last that a process wrote beside the protocol."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, chunk: bytes) -> None:
        self._bytes = (self._bytes + chunk)[-_TAIL:]

    def lines(self, count: int = 10) -> list[str]:
        """The last lines that are not empty."""
        lines = self._bytes.decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip()][-count:]


@contextlib.asynccontextmanager
async def stdio(
    command: Sequence[str], env: Mapping[str, str], tail: Tail, ended: Callable[[], None]
) -> AsyncIterator[Any]:
    """Start a server and give the two streams that the SDK's client speaks over.

    Args:
        env: all of its environment.
        ended: called when it ends by itself or speaks no more.

    Raises:
        OSError: it cannot be started.
    """
    import anyio

    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        start_new_session=True,
    )
    _RUNNING.add(process.pid)
    to_us, read = anyio.create_memory_object_stream[Any](0)
    write, from_us = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(each)
        for each in (_read(process, to_us, tail), _write(process, from_us), _listen(process, tail))
    ]
    watch = asyncio.create_task(_until_ended(process, tasks[:2]))

    def over(_: object) -> None:
        to_us.close()  # so that the session sees the end, even where a descendant holds the pipe
        ended()

    watch.add_done_callback(over)
    try:
        yield read, write
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.gather(*tasks, watch, return_exceptions=True)
            for stream in (to_us, read, write, from_us):
                stream.close()


def kill_all() -> None:
    """Kill every server that still runs, with its descendants."""
    for pid in list(_RUNNING):
        _kill(pid, signal.SIGKILL)


async def _read(process: Process, to_us: Any, tail: Tail) -> None:
    """Hand on what the server says, line by line."""
    import anyio
    from mcp.shared.message import SessionMessage

    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while chunk := await process.stdout.read(_CHUNK):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if (message := _message([*parts, end], size + len(end), tail)) is not None:
                    await to_us.send(SessionMessage(message))
                parts, size = [], 0
            size += len(rest)
            # Of a line that is too long the beginning is enough, to tell whose answer it would have been.
            if size > LARGEST:
                parts = [b"".join(parts)[:_TAIL]]
            else:
                parts.append(rest)


def _message(parts: list[bytes], size: int, tail: Tail) -> Any:
    """A line as a message, or None; in place of one that is too long, an error for whoever waits."""
    from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

    if size > LARGEST:
        asked = _ID.search(b"".join(parts)[:_TAIL])
        error = ErrorData(code=INTERNAL_ERROR, message=f"the answer is longer than {LARGEST} bytes")
        return asked and JSONRPCError(jsonrpc="2.0", id=int(asked[1]), error=error)
    line = b"".join(parts)
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if line.strip():
            logger.debug("a server wrote a line that is no message: %r", line[:200])
            tail.add(line[:_TAIL] + b"\n")
        return None


async def _write(process: Process, from_us: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        async for message in from_us:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()


async def _listen(process: Process, tail: Tail) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_CHUNK):
        tail.add(chunk)


async def _until_ended(process: Process, talk: Sequence[asyncio.Task[None]]) -> None:
    # Not process.wait(), which also waits for descendants that hold the pipes.
    while process.returncode is None and not any(task.done() for task in talk):
        await asyncio.wait(talk, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)


async def _stop(process: Process) -> None:
    """End a server as the protocol asks: close its input, wait, and use force; then end its descendants."""
    assert process.stdin is not None
    process.stdin.close()
    for signum in (signal.SIGTERM, signal.SIGKILL):
        await _ending(process, _PATIENCE)
        _kill(process.pid, signum)
    await _ending(process, _PATIENCE)
    _RUNNING.discard(process.pid)
    process._transport.close()  # type: ignore[attr-defined]  # else the pipes stay open until collected


async def _ending(process: Process, patience: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while process.returncode is None and loop.time() < end:
        await asyncio.sleep(0.01)


def _kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)
