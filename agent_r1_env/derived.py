"""What is made of a file once and then kept in a folder, such as the index of a corpus."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent_r1_env.corpus import digest
from agent_r1_env.errors import DataError

CACHE_VARIABLE = "AGENT_R1_CACHE"


def cache_folder() -> Path:
    """Where things are kept unless a folder is named: ``AGENT_R1_CACHE``, or in the user's own cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agent-r1-env"


def kept(source: Path, settings: str, folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder of what ``make`` makes of a file, made now if it isn't there yet.

    It is known by the file's content and the settings. The content is only read again when size or time of
    change are not what they were the last time. Whatever lies in ``folder`` may be deleted at any time.

    Args:
        settings: whatever else the result depends on.
        make: fills the empty folder that it is given.

    Raises:
        DataError: the file cannot be read, or the folder not be written.
    """
    try:
        return _kept(source.expanduser().absolute(), settings, folder.expanduser(), make)
    except OSError as error:
        reason = f"cannot keep what is made of {str(source)!r}: {error.strerror or error}"
        raise DataError(f"{reason}; name another folder", file=error.filename or folder) from error


def _kept(source: Path, settings: str, folder: Path, make: Callable[[Path], None]) -> Path:
    note = folder / f"{_short(str(source), settings)}.json"
    state = _state(source)
    known = _noted(note)
    if known.get("state") == state and (folder / str(known.get("key"))).is_dir():
        return folder / str(known["key"])
    key = _short(digest(source), settings)
    if not (folder / key).is_dir():
        _make(folder, key, make)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        json.dump({"source": str(source), "state": state, "key": key}, file)
    os.replace(file.name, note)
    return folder / key


def _make(folder: Path, key: str, make: Callable[[Path], None]) -> None:
    """Make it beside its place and move it there, so that nobody ever finds half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder))
    try:
        make(beside)
        os.chmod(beside, 0o755)
        os.rename(beside, folder / key)
    except OSError:
        if not (folder / key).is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _state(source: Path) -> list[int]:
    try:
        status = source.stat()
    except OSError:
        digest(source)  # says what is wrong, and what is near
        raise
    return [status.st_size, status.st_mtime_ns]


def _noted(note: Path) -> dict[str, object]:
    try:
        value = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _short(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
