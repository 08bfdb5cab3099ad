"""Questions to a SQLite database that nothing can change."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from agent_r1_env import workers
from agent_r1_env.errors import ToolError, nearest

_DEMO = Path(__file__).with_name("sql_demo.sql")
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
_SCHEMA = re.compile(
    r"\.(?:schema|tables?)|show\s+(?:tables|schema)|(?:describe|desc|\.schema)\s+(?P<table>.+)", re.I
)
_NO_FUNCTION = re.compile(r"not authorized to use function: (\w+)")
_NO_TABLE = re.compile(r"no such table: (?:\w+\.)?(.+)")
_NO_COLUMN = re.compile(r"no such column: (?:.+\.)?(.+)")
_ONE_ONLY = "one statement at a time"


class Sql:
    """Runs one reading statement a call, each on a connection of its own.

    Args:
        database: the file; a small invented one by default.
        max_rows: rows that are shown of a longer result.
        max_steps: millions of instructions of SQLite's machine that a query may take.
        seconds: that a query may take; a call that is given up ends its query at once.
        form: of a result: lines with a header, or a JSON list of objects.
        max_cell: characters that are shown of a longer value.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no SQLite database.
    """

    def __init__(
        self,
        database: str | None = None,
        max_rows: int = 50,
        max_steps: float = 50,
        seconds: float = 8,
        form: Literal["table", "json"] = "table",
        max_cell: int = 300,
    ) -> None:
        if form not in ("table", "json"):
            raise ValueError(f"form must be table or json, got {form!r}")
        if max_rows < 1 or max_cell < 1 or not max_steps > 0 or not seconds > 0:
            raise ValueError("max_rows, max_cell, max_steps and seconds must be above 0")
        self._file = None if database is None else Path(database).expanduser().resolve()
        if self._file is not None and not self._file.is_file():
            raise FileNotFoundError(f"no such database: {self._file}")
        self._max_rows, self._max_cell, self._form = max_rows, max_cell, form
        self._looks, self._seconds = max(1, int(max_steps * 1_000_000 / _INSTRUCTIONS)), seconds
        try:
            with self._open(threading.Event()) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as fault:
            raise ValueError(f"{self._file} cannot be read: {fault}") from fault

    async def __call__(self, query: str) -> str:
        """Answer with the rows, as the model will read them."""
        stop = threading.Event()
        running = workers.start(self._answer, {"query": query, "stop": stop}, _as_it_is)
        try:
            outcome = await asyncio.wrap_future(running)
        finally:
            stop.set()  # where the call is cancelled, its query ends at the next look
        if outcome.failure is not None:
            raise outcome.failure
        return str(outcome.value)

    def _answer(self, query: str, stop: threading.Event) -> str:
        statement = query.encode("utf-8", "replace").decode().strip().rstrip(";").strip()
        if not statement:
            raise ToolError("the query is empty; .schema shows the tables")
        asked = _SCHEMA.fullmatch(statement)
        with self._open(stop) as connection:
            if asked:
                return _schema(connection, (asked["table"] or "").strip("\"'`[] "))
            try:
                cursor = connection.execute(statement)
                rows = cursor.fetchmany(self._max_rows + 1)
            except (sqlite3.Error, sqlite3.Warning) as fault:
                raise ToolError(self._told(connection, fault)) from None
        columns = [column[0] for column in cursor.description or ()]
        more = len(rows) > self._max_rows
        return self._shown(columns, rows[: self._max_rows], more)

    @contextlib.contextmanager
    def _open(self, stop: threading.Event) -> Iterator[sqlite3.Connection]:
        """A connection that can only read, and only for so long."""
        if self._file is None:
            connection = sqlite3.connect(":memory:")
            connection.deserialize(_demo())
        else:
            connection = sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _text
            for limit, value in _LIMITS.items():
                connection.setlimit(limit, value)
            connection.set_authorizer(_allowed)
            connection.set_progress_handler(_Watch(self._looks, self._seconds, stop).look, _INSTRUCTIONS)
            yield connection
        finally:
            connection.close()

    def _told(self, connection: sqlite3.Connection, fault: Exception) -> str:
        """What went wrong and how to mend it, in one or two sentences."""
        text = str(fault)
        if text == "interrupted":
            return "the query took too long and was stopped; add a condition, or a LIMIT inside it"
        if _ONE_ONLY in text:
            return "only one statement can be run in a call"
        if match := _NO_FUNCTION.search(text):
            return f"{match[1]}() cannot be used here"
        if "authoriz" in text or "prohibited" in text or "readonly" in text:
            return "this database can only be read: use SELECT, WITH ... SELECT, or .schema"
        if "number of bindings" in text:
            return "? and :name stand for nothing here; write the values themselves"
        tables = _tables(connection)
        if match := _NO_TABLE.match(text):
            return f"{text}{_meant(match[1], tables)}; the tables are {', '.join(tables) or 'none'}"
        if match := _NO_COLUMN.match(text):
            columns = [column for names in tables.values() for column in names]
            known = "; ".join(f"{table}({', '.join(names)})" for table, names in tables.items())
            return f"{text}{_meant(match[1], columns)}; the tables are {known[:1000]}"
        return f"SQLite says: {text}"

    def _shown(self, columns: list[str], rows: list[tuple[Any, ...]], more: bool) -> str:
        if not columns:
            return "(no result)"
        if self._form == "json":
            names = [
                name if columns.index(name) == place else f"{name}_{place + 1}"
                for place, name in enumerate(columns)
            ]
            return json.dumps(
                [dict(zip(names, map(self._json, row), strict=True)) for row in rows], ensure_ascii=False
            )
        lines = [" | ".join(map(self._cell, columns)), *(" | ".join(map(self._cell, row)) for row in rows)]
        count = (
            f"first {len(rows)} rows; there are more" if more else f"{len(rows)} row{'s' * (len(rows) != 1)}"
        )
        return "\n".join([*lines, f"({count})"])

    def _cell(self, value: Any) -> str:
        if value is None:
            return "NULL"
        value = self._json(value)
        return str(value).replace("\r", "\\r").replace("\n", "\\n").replace("|", "\\|")

    def _json(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return f"<{len(value)} bytes>"
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON knows no infinity
        if isinstance(value, str) and len(value) > self._max_cell:
            return f"{value[: self._max_cell]}... ({len(value) - self._max_cell} more characters)"
        return value


class _Watch:
    """Stops a query that takes too many steps or too long, or that nobody waits for."""

    def __init__(self, looks: int, seconds: float, stop: threading.Event) -> None:
        self._left, self._end, self._stop = looks, time.monotonic() + seconds, stop

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


def _schema(connection: sqlite3.Connection, table: str) -> str:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    ).fetchall()
    chosen = [sql for name, sql in rows if not table or name.lower() == table.lower()]
    if table and not chosen:
        names = [name for name, _ in rows]
        raise ToolError(f"no such table: {table}{_meant(table, names)}; the tables are {', '.join(names)}")
    return "\n".join(f"{sql};" for sql in chosen) or "(the database has no tables)"


def _tables(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table and view."""
    tables: dict[str, list[str]] = {}
    with contextlib.suppress(sqlite3.Error):  # a view over a table that is gone
        for table, column in connection.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN "
            "('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY m.rowid, c.cid"
        ):
            tables.setdefault(table, []).append(column)
    return tables


def _meant(name: str, known: Any) -> str:
    guess = nearest(name, known)
    return f"; did you mean {guess}?" if guess else ""


@functools.cache
def _demo() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_DEMO.read_text("utf-8"))
        return connection.serialize()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _as_it_is(value: Any) -> Any:
    return value
