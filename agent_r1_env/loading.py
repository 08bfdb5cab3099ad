"""Python objects by the names that YAML files give them: ``./file.py:name`` and ``package.module:name``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_r1_env.errors import AgentR1Error, hint, nearest

_LOCK = threading.RLock()
# Modules loaded by path, with the state of the file that each was made from.
_LOADED: dict[Path, tuple[tuple[int, int], ModuleType]] = {}


class TargetFault(AgentR1Error, ImportError):
    """A name leads to no Python object."""


def load_target(target: str, folder: Path) -> Any:
    """The object that ``target`` names.

    Code beside a YAML file is run once in a process, and again when the file has changed.

    Args:
        target: ``./file.py:name``, relative to ``folder``, or ``package.module:name``.

    Raises:
        TargetFault: there is no such file, module or name, or running the file fails.
    """
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise TargetFault(f"{target!r} names no object; write ./file.py:name or package.module:name")
    if where.endswith(".py") or where.startswith("."):
        module = _module_at((folder / where).resolve(), where)
    else:
        module = _module_named(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = (
                [known for known in vars(found) if not known.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
            raise TargetFault(f"{where} holds no {part!r}{_meant(part, public)}")
        found = getattr(found, part)
    return found


def _meant(name: str, known: list[str]) -> str:
    guess = nearest(name, known)
    return f"; did you mean {guess!r}?" if guess else hint(name, known)


def _module_at(path: Path, shown: str) -> ModuleType:
    try:
        status = path.stat()
        source = path.read_bytes()
    except OSError:
        near = [f"./{other.name}" for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise TargetFault(f"no file {shown!r} in {path.parent}{_meant(shown, near)}") from None
    state = (status.st_mtime_ns, status.st_size)
    with _LOCK:
        if path in _LOADED and _LOADED[path][0] == state:
            return _LOADED[path][1]
        module = _run(path, source, shown)
        _LOADED[path] = (state, module)
    return module


def _run(path: Path, source: bytes, shown: str) -> ModuleType:
    """Run a file as a module. The compiled code is not cached on disk: the folder is the user's."""
    name = f"agent_r1_entry_{hashlib.sha256(bytes(path)).hexdigest()[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise TargetFault(f"{shown!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and annotations look their module up while it runs
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException as cause:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        if isinstance(cause, KeyboardInterrupt):
            raise
        raise TargetFault(f"running {shown} failed: {_told(cause, path)}") from cause
    return module


def _module_named(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name and (name == cause.name or name.startswith(f"{cause.name}.")):
            raise TargetFault(f"no module {name!r}; is it installed, or do you mean ./{name}.py?") from None
        raise TargetFault(f"importing {name} failed: {_told(cause)}") from cause
    except Exception as cause:
        raise TargetFault(f"importing {name} failed: {_told(cause)}") from cause


def _told(cause: BaseException, path: Path | None = None) -> str:
    """Type, text and, for code beside a YAML file, the line in it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == str(path)
    ]
    line = cause.lineno if isinstance(cause, SyntaxError) else lines[-1] if lines else None
    text = cause.msg if isinstance(cause, SyntaxError) else str(cause)
    return f"{type(cause).__name__}: {text}" + (f" (line {line})" if line else "")
