"""Questions to a SQLite database that nothing can change."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any, Literal

from agent_r1_env import database as databases
from agent_r1_env import workers
from agent_r1_env.errors import ToolError, nearest
from agent_r1_env.signature import Hidden
from agent_r1_env.task import Task

_DEMO = Path(__file__).with_name("sql_demo.sql")
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
        database: a file, or a script that makes one (``.sql``, ``.sql.gz``); by default the one that the
            task names in its data under "database", else a small invented one.
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
        # A place that is relative is meant from where the tool was made.
        self._database = None if database is None else Path(database).expanduser().resolve()
        self._max_rows, self._max_cell, self._form = max_rows, max_cell, form
        self._limits = databases.Limits(max_steps, seconds)
        databases.check(self._database or _DEMO)

    async def __call__(self, query: str, task: Hidden[Task | None]) -> str:
        """Answer with the rows, as the model will read them."""
        place = self._database or databases.place_of(task) or _DEMO
        stop = threading.Event()
        running = workers.start(self._answer, {"query": query, "place": place, "stop": stop}, _as_it_is)
        try:
            outcome = await asyncio.wrap_future(running)
        finally:
            stop.set()  # where the call is cancelled, its query ends at the next look
        if outcome.failure is not None:
            raise outcome.failure
        return str(outcome.value)

    def _answer(self, query: str, place: str | Path, stop: threading.Event) -> str:
        statement = query.encode("utf-8", "replace").decode().strip().rstrip(";").strip()
        if not statement:
            raise ToolError("the query is empty; .schema shows the tables")
        asked = _SCHEMA.fullmatch(statement)
        with databases.opened(place, self._limits, stop) as connection:
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
        tables = databases.columns_of(connection)
        if match := _NO_TABLE.match(text):
            return databases.no_table(match[1], tables)
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


def _schema(connection: sqlite3.Connection, table: str) -> str:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    ).fetchall()
    chosen = [sql for name, sql in rows if not table or name.lower() == table.lower()]
    if table and not chosen:
        raise ToolError(databases.no_table(table, [name for name, _ in rows]))
    return "\n".join(f"{sql};" for sql in chosen) or "(the database has no tables)"


def _meant(name: str, known: Any) -> str:
    guess = nearest(name, known)
    return f"; did you mean {guess}?" if guess else ""


def _as_it_is(value: Any) -> Any:
    return value
