"""A command as a tool: ``process:`` in a tool's file says what is started for each call.

The command reads the arguments as one JSON object from its standard input and writes its result, as text, to
its standard output. Status 0 says that it went well. Any other is a failed call, of which the model reads the
end of standard error; 75 (``EX_TEMPFAIL``) says that it may go better the next time. No argument ever becomes
a word of the command, so none can be taken for an option or reach a shell.

When a call is over, or out of time, the command and all that it started are dead. By default it is not shut
in, though: ``level`` says whether it is, with the names and promises of ``agent_r1_env.sandbox``.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent_r1_env.bounds import Bounds, Finished
from agent_r1_env.entry import Entry
from agent_r1_env.errors import AgentR1Error, ToolError, TransientError
from agent_r1_env.processes import Child, run
from agent_r1_env.sandbox import Sandbox
from agent_r1_env.toollimits import filled_secrets, secrets_of

_ALWAYS = ("PATH", "HOME", "LANG")
_TOLD = 1000
"""Characters of standard error, or of output that is too long, that the model reads."""


def check(entry: Entry) -> None:
    """Check a command and its limits, without starting it.

    Raises:
        CatalogError: there is no such program or file, or a key that goes with another level.
    """
    _words(entry)
    if entry.get("config"):
        raise entry.error("a command takes no config; write words into command", "config", of_key=True)
    sandboxed = entry.get("process", "level") != "none"
    for key, fits in (("cwd", not sandboxed), ("network", sandboxed)):
        if entry.get("process", key) is not None and not fits:
            where = "level none" if key == "cwd" else "the levels process and bwrap"
            raise entry.error(f"{key!r} goes with {where} alone", "process", key, of_key=True)
    if not sandboxed and not os.path.isdir(_folder(entry)):
        raise entry.error(f"there is no folder {_folder(entry)}", "process", "cwd")


def load(entry: Entry) -> ProcessCall:
    """What starts the command that a file declares.

    Raises:
        CatalogError: as ``check`` does, or an environment variable is not set, or this machine can not give
            the level.
    """
    check(entry)
    words, env = _words(entry), _environment(entry)
    limits = {name: entry.get("process", name) for name in _LIMITS if entry.get("process", name) is not None}
    level = entry.get("process", "level")
    if level == "none":
        bounds = Bounds(**{_LIMITS[name]: value for name, value in limits.items()})
        base = {name: os.environ[name] for name in _ALWAYS if name in os.environ}
        return ProcessCall(functools.partial(Child, folder=_folder(entry), bounds=bounds), words, base | env)
    readable = {
        str(entry.path.parent),
        *(os.path.dirname(each) for each in (words[0], os.path.realpath(words[0]))),
    }
    try:
        sandbox = Sandbox(
            level=level,
            network=bool(entry.get("process", "network")),
            readable=tuple(sorted(readable)),
            **limits,
        )
    except (AgentR1Error, ValueError) as refusal:
        raise entry.error(str(refusal), "process", "level") from refusal
    return ProcessCall(sandbox.child, words, env)


class ProcessCall:
    """Starts a command for each call."""

    def __init__(self, make: Callable[..., Child], command: Sequence[str], env: dict[str, str]) -> None:
        """``make`` starts a command, as ``Child`` does."""
        self._make, self._command, self._env = make, command, env

    async def __call__(self, /, **arguments: Any) -> str | bytes:
        """Run the command to its end and return what it wrote.

        Raises:
            TransientError: its status says that it may go better the next time.
            ToolError: it failed, or hit a limit.
        """
        given = json.dumps(arguments).encode()
        found = await run(self._make, self._command, seconds=None, env=self._env, given=given)
        if found.ended != "ended" or found.status != 0:
            raise self._failure(found)
        return found.out if b"\0" in found.out else _text(found.out)

    def _failure(self, found: Finished) -> ToolError:
        name = os.path.basename(self._command[0])
        if found.ended == "output":
            return ToolError(f"{name} was stopped: it wrote too much\n{_text(found.out)[:_TOLD]}")
        if found.ended == "processes":
            return ToolError(f"{name} was stopped: it ran too many processes and threads at once")
        if found.ended == "memory":
            return ToolError(f"{name} was stopped: its processes used too much memory")
        if found.ended != "ended":
            return ToolError(f"{name} could not be run: {found.detail or found.ended}")
        how = f"exited with status {found.status}"
        if found.status < 0:
            how = f"was killed by {signal.Signals(-found.status).name}"
        said = _text(found.err)[-_TOLD:]
        kind = TransientError if found.status == os.EX_TEMPFAIL else ToolError
        return kind(f"{name} {how}: {said}" if said else f"{name} {how}")


_LIMITS = {
    "memory_mb": "memory_mb",
    "cpu_seconds": "cpu_seconds",
    "file_mb": "file_mb",
    "max_processes": "processes",
    "max_output_bytes": "output_bytes",
}
"""What the keys of a file are called in ``Bounds``."""


def _words(entry: Entry) -> list[str]:
    """The command, with programs and files as absolute paths."""
    words = list(entry.get("process", "command"))
    for index, word in enumerate(words):
        if word.startswith(("./", "../")):
            path = (entry.path.parent / word).resolve()
            if not path.exists():
                raise entry.error(f"there is no file {path}", "process", "command", index)
            words[index] = str(path)
    found = shutil.which(words[0])
    if found is None:
        if Path(words[0]).is_file():
            reason = f"{words[0]} is not executable; run: chmod +x {words[0]}"
        else:
            reason = (
                f"there is no program {words[0]!r} on the PATH; one beside this file is written ./{words[0]}"
            )
        raise entry.error(reason, "process", "command", 0)
    return [os.path.abspath(found), *words[1:]]


def _folder(entry: Entry) -> str:
    return str((entry.path.parent / (entry.get("process", "cwd") or ".")).resolve())


def _environment(entry: Entry) -> dict[str, str]:
    """The variables that are passed through, and the secrets: by their own name, or that of a mapping."""
    env = {}
    for index, name in enumerate(entry.get("process", "env")):
        if name not in os.environ:
            reason = f"the environment variable {name} is not set; export it first"
            raise entry.error(reason, "process", "env", index)
        env[name] = os.environ[name]
    own_names = isinstance(entry.get("secrets"), list)
    variables = secrets_of(entry)
    return env | {variables[key] if own_names else key: text for key, text in filled_secrets(entry).items()}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").rstrip("\n")
