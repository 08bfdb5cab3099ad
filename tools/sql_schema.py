"""What a SQLite database holds, in the words that a query needs."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from agent_r1_env import database as databases
from agent_r1_env.errors import ToolError
from agent_r1_env.signature import Hidden
from agent_r1_env.task import Task

_DEMO = Path(__file__).with_name("sql_demo.sql")
_LONGEST_CELL = 60


class SqlSchema:
    """Describes tables one after the other, in the order in which they were made.

    Args:
        database: as of the tool ``sql``.
        sample_rows: rows that are shown of each table, from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no SQLite database.
    """

    def __init__(self, database: str | None = None, sample_rows: int = 3) -> None:
        if sample_rows < 0:
            raise ValueError(f"sample_rows must be 0 or more, got {sample_rows}")
        self._database = None if database is None else Path(database).expanduser().resolve()
        self._rows = sample_rows
        databases.check(self._database or _DEMO)

    def __call__(self, task: Hidden[Task | None], table: str = "") -> str:
        """Describe one table, or all."""
        with databases.opened(self._database or databases.place_of(task) or _DEMO) as connection:
            tables = list(databases.columns_of(connection))
            wanted = table.strip()
            chosen = [name for name in tables if not wanted or name.casefold() == wanted.casefold()]
            if wanted and not chosen:
                raise ToolError(databases.no_table(wanted, tables))
            return "\n\n".join(self._described(connection, name) for name in chosen) or "(no tables)"

    def _described(self, connection: sqlite3.Connection, table: str) -> str:
        lines = [table]
        foreign = {
            row[3]: f"{row[2]}.{row[4]}" if row[4] else row[2]  # without a column it is the primary key
            for row in _pragma(connection, "foreign_key_list", table)
        }
        for _, column, kind, needed, _, key in _pragma(connection, "table_info", table):
            notes = [str(kind)] if kind else []
            notes += ["primary key"] * bool(key) + ["not null"] * bool(needed and not key)
            notes += [f"refers to {foreign[column]}"] if column in foreign else []
            lines.append(f"  {column}{': ' if notes else ''}{', '.join(notes)}")
        return "\n".join([*lines, *self._sample(connection, table)])

    def _sample(self, connection: sqlite3.Connection, table: str) -> list[str]:
        if not self._rows:
            return []
        try:
            cursor = connection.execute(f"SELECT * FROM {databases.quoted(table)} LIMIT {self._rows}")
            rows = cursor.fetchall()
        except sqlite3.Error as fault:  # a view over a table that is gone, or one that takes too long
            return [f"  its rows cannot be read: {fault}"]
        if not rows:
            return ["  (no rows)"]
        names = " | ".join(column[0] for column in cursor.description)
        return ["  first rows:", f"    {names}", *(f"    {' | '.join(map(_cell, row))}" for row in rows)]


def _pragma(connection: sqlite3.Connection, name: str, table: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(f"PRAGMA {name}({databases.quoted(table)})").fetchall()
    except sqlite3.Error:  # a view over a table that is gone
        return []


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)
    text = text.replace("\r", "\\r").replace("\n", "\\n").replace("|", "\\|")
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
