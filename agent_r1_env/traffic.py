"""Recorded tool traffic: every call and its result in a file, so that a run repeats without its tools.

The file holds one JSON object a line. A call is known by the task it was made for, the tool, its version and
the arguments; equal calls are replayed in their order.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_r1_env.errors import AgentR1Warning, DataError, unknown_name
from agent_r1_env.messages import FailureKind, ToolResult
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Traffic

_KEPT = (
    *("content", "ok", "error", "seconds", "cut", "attempts", "queued", "cached", "reward", "answer"),
    *("done", "simulated"),
)
_WAYS = ("record", "replay")


class NotRecordedWarning(AgentR1Warning):
    """A replayed run asked for a call that its recording does not hold."""


def opened(how: Mapping[str, str]) -> Traffic:
    """The recording that ``{"record": FILE}`` begins or ``{"replay": FILE}`` reads.

    All environments of a process that record to one file share the recording.

    Raises:
        UnknownName: another word than these two.
        DataError: the file to replay is missing or no recording, or the one to record to holds something.
    """
    if len(how) != 1 or (way := next(iter(how))) not in _WAYS:
        raise unknown_name("way of tool traffic", ", ".join(how) or "nothing", _WAYS)
    path = Path(how[way]).expanduser().absolute()
    with _LOCK:
        made = _OPEN.get((way, path))
        # A recording that went on since is read anew; one that was deleted is begun anew.
        if made is None or way == "replay" or not path.exists():
            made = _OPEN[way, path] = Recorder(path) if way == "record" else Replay(path)
        return made


class Recorder:
    """Writes what every call gave to a file."""

    def __init__(self, path: Path) -> None:
        if path.exists() and path.stat().st_size:
            raise DataError("holds something already; delete it or record to another file", file=path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.path = path

    def replayed(self, tool: Tool, arguments: Mapping[str, Any], task: str) -> None:
        """Nothing is known beforehand."""

    def record(self, tool: Tool, arguments: Mapping[str, Any], task: str, result: ToolResult) -> None:
        """Write one line; it is in the file when this returns."""
        row = {"tool": tool.name, "version": tool.version, "task": task, "arguments": arguments}
        # In ASCII, for a model can write line ends of Unicode and lone surrogates into arguments.
        line = json.dumps({**row, **{name: getattr(result, name) for name in _KEPT}})
        # One write at the end of the file, so that threads and forked processes need no lock between them.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)


class Replay:
    """Answers calls from a recording; each line once, in order, the last of its kind for ever."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: defaultdict[str, deque[ToolResult]] = defaultdict(deque)
        self._lock = threading.Lock()
        try:
            lines = path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            raise DataError("no such recording", file=path) from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                key = _key(row["tool"], row["version"], row["task"], row["arguments"])
                self._rows[key].append(_result(row))
            except (ValueError, KeyError, TypeError) as fault:
                raise DataError(f"no line of a recording: {fault}", file=path, row=number) from None

    def replayed(self, tool: Tool, arguments: Mapping[str, Any], task: str) -> ToolResult:
        """The next result of such a call, or one that says that none was recorded."""
        with self._lock:
            rows = self._rows.get(_key(tool.name, tool.version, task, arguments))
            if rows:
                return rows.popleft() if len(rows) > 1 else rows[0]
        warnings.warn(
            f"{self.path} holds no such call of {tool.name} for task {task!r}", NotRecordedWarning, 2
        )
        text = f"error: this call of {tool.name} is not in the recording"
        return ToolResult("", tool.name, text, False, FailureKind.NOT_RECORDED, arguments=arguments)

    def record(self, tool: Tool, arguments: Mapping[str, Any], task: str, result: ToolResult) -> None:
        """Nothing new is learned from a replay."""


def _key(tool: str, version: str, task: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps([tool, version, task, arguments], sort_keys=True)


def _result(row: Mapping[str, Any]) -> ToolResult:
    kept = {name: row[name] for name in _KEPT}
    kept["error"] = None if kept["error"] is None else FailureKind(kept["error"])
    return ToolResult("", row["tool"], arguments=row["arguments"], **kept)


_OPEN: dict[tuple[str, Path], Recorder | Replay] = {}
_LOCK = threading.Lock()
