"""SQLite databases that nothing can change, read within limits of steps and time."""

from __future__ import annotations

import contextlib
import functools
import gzip
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_r1_env.errors import nearest
from agent_r1_env.task import Task

_INSTRUCTIONS = 50
"""Instructions of SQLite's machine between two looks at the limits; few, for one alone may take long."""
_LONGEST_VALUE = 200_000
"""Bytes of a value: instr() of two such takes about a second, and nothing can stop it meanwhile."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LONGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
}
_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"}
# They reach beyond the database, or take as long as they are told to: printf('%.*c', 2000000000, 'x').
_FORBIDDEN = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zeroblob", "randomblob"}
_FORBIDDEN |= {"printf", "format"}
_SCRIPTS = (".sql", ".sql.gz")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may take.

    Attributes:
        max_steps: millions of instructions of SQLite's machine.
        seconds: of wall time.
    """

    max_steps: float = 50
    seconds: float = 8

    def __post_init__(self) -> None:
        if not self.max_steps > 0 or not self.seconds > 0:
            raise ValueError("max_steps and seconds must be above 0")


def place_of(task: Task | None) -> str | None:
    """The database that a task names in its data, under "database"."""
    place = None if task is None else task.data.get("database")
    return place if isinstance(place, str) else None


def check(place: str | Path) -> None:
    """Make sure that there is a database.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no SQLite database, nor a script that makes one.
    """
    path = Path(place).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such database: {path.resolve()}")
    try:
        with opened(path) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.Error, OSError, UnicodeDecodeError) as fault:
        raise ValueError(f"{path.resolve()} cannot be read: {fault}") from fault


@contextlib.contextmanager
def opened(
    place: str | Path, limits: Limits | None = None, stop: threading.Event | None = None
) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, and only for so long.

    Args:
        place: a SQLite file, or a script that makes a database (``.sql``, ``.sql.gz``), which is run once in
            a process and kept in memory.
        stop: ends a query that nobody waits for.

    Raises:
        sqlite3.Error: it is no database.
    """
    path = Path(place).expanduser().resolve()
    if path.name.endswith(_SCRIPTS):
        state = path.stat()
        connection = sqlite3.connect(":memory:")
        connection.deserialize(_made(path, state.st_mtime_ns, state.st_size))
    else:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.text_factory = _text
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.set_authorizer(_allowed)
        watch = _Watch(limits or Limits(), stop or threading.Event())
        connection.set_progress_handler(watch.look, _INSTRUCTIONS)
        yield connection
    finally:
        connection.close()


def columns_of(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table and view, in the order in which they were made; none of a broken view."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    )
    tables: dict[str, list[str]] = {name: [] for (name,) in names}
    for table, columns in tables.items():
        with contextlib.suppress(sqlite3.Error):  # a view over a table that is gone
            columns += [row[1] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")]
    return tables


def quoted(name: str) -> str:
    """A name as a query may hold it, whatever it is made of."""
    return '"' + name.replace('"', '""') + '"'


def no_table(name: str, tables: Collection[str]) -> str:
    """Tells the model that there is no such table, and which there are."""
    guess = nearest(name, tables)
    meant = f"; did you mean {guess}?" if guess else ""
    return f"no such table: {name}{meant}; the tables are {', '.join(tables) or 'none'}"


class _Watch:
    """Stops a query that takes too many steps or too long, or that nobody waits for."""

    def __init__(self, limits: Limits, stop: threading.Event) -> None:
        self._left = max(1, int(limits.max_steps * 1_000_000 / _INSTRUCTIONS))
        self._end, self._stop = time.monotonic() + limits.seconds, stop

    def look(self) -> int:
        self._left -= 1
        return self._left < 0 or self._stop.is_set() or time.monotonic() > self._end


def _allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """What a statement may do: read, and call harmless functions."""
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FORBIDDEN:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS:
        return sqlite3.SQLITE_OK
    # Asked for where a table-valued function is used first; real changes fail elsewhere.
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


@functools.lru_cache(maxsize=8)
def _made(script: Path, modified: int, size: int) -> bytes:
    raw = script.read_bytes()
    text = (gzip.decompress(raw) if script.name.endswith(".gz") else raw).decode("utf-8")
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(text)
        return connection.serialize()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
