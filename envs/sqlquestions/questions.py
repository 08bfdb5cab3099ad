"""Questions to databases, each with the query that answers it, in the form of Spider and BIRD."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_r1_env import database, sources
from agent_r1_env.datafile import Row
from agent_r1_env.task import Task, TaskSet

_LIMITS = database.Limits(max_steps=5000, seconds=60)
_MOST_ROWS = 1000
_FOLDERS = ("", "database", "databases", "dev_databases", "train_databases", "test_database")
_NAMES = ("{0}.sql.gz", "{0}.sql", "{0}.sqlite", "{0}.db", "{0}/{0}.sqlite", "{0}/{0}.db")
_SAFE_NAME = re.compile(r"[\w-][\w .-]*")
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)


def load(
    split: str = "validation",
    *,
    data: str | Path | None = None,
    databases: str | Path | None = None,
    source: str | None = None,
    embedded: str | Path | None = None,
    streaming: bool | None = None,
) -> TaskSet:
    """Questions of the embedded set, or of a file in the form of Spider or BIRD; see ``sources.load``.

    A row has ``question``, ``db_id`` and ``query`` (or ``SQL``), and may have ``evidence``, which is shown as
    a hint. Every query is run once, when the set is loaded or, with ``streaming``, when its question is
    drawn: what it gives is the right answer. Its rows may come in any order unless it says ORDER BY.

    Args:
        databases: the folder of the databases: ``<db_id>.sqlite`` or ``<db_id>/<db_id>.sqlite``, also as
            ``.db`` or as a script ``.sql`` or ``.sql.gz``. By default those beside the file, or in a folder
            ``database``, ``databases`` or ``dev_databases`` there.

    Raises:
        DataError: also where a database is missing, or a query fails on it.
    """
    folder = None if databases is None else str(Path(databases).expanduser().absolute())
    return sources.load(
        _data_set(folder), split, data=data, source=source, embedded=embedded, streaming=streaming
    )


@functools.cache
def _data_set(databases: str | None) -> sources.DataSet:
    return sources.DataSet(
        name="SQLQuestions",
        variable="AGENT_R1_SQLQUESTIONS",
        files={"train": ["train_spider"], "validation": ["dev"]},
        task=functools.partial(_task, databases=databases),
    )


def _task(row: Row, databases: str | None) -> Task:
    place, query = _place(row, databases), row.text("query", "SQL")
    rows = _run(row, place, query)
    hint = row.data.get("evidence")
    return Task(
        id=str(row.data.get("id", row.data.get("question_id", row.number))),
        question=row.text("question") + (f"\nHint: {hint}" if hint else ""),
        answers=(told(rows),),
        kind=str(row.data.get("kind", row.data.get("difficulty", ""))),
        data={
            "database": str(place),
            "query": query,
            "rows": rows,
            "ordered": _ORDER.search(query) is not None,
        },
    )


def _place(row: Row, databases: str | None) -> Path:
    """The file of the database that a row names."""
    name = row.text("db_id")
    beside = Path(row.file).absolute().parent
    folders = [Path(databases)] if databases is not None else [beside / each for each in _FOLDERS]
    if _SAFE_NAME.fullmatch(name) is None:
        raise row.error(f"{name!r} is no name of a database", "db_id")
    for folder in folders:
        for form in _NAMES:
            if (folder / form.format(name)).is_file():
                return folder / form.format(name)
    raise row.error(
        f"no database {name!r} in {folders[0]}; name the folder that holds it as databases=", "db_id"
    )


def _run(row: Row, place: Path, query: str) -> list[list[Any]]:
    try:
        with database.opened(place, _LIMITS) as connection:
            found = connection.execute(query).fetchmany(_MOST_ROWS + 1)
    except sqlite3.Error as fault:
        raise row.error(f"the query fails: {fault}", row.key_of("query", "SQL")) from None
    if len(found) > _MOST_ROWS:
        raise row.error(f"the query gives more than {_MOST_ROWS} rows", row.key_of("query", "SQL"))
    return [[value.hex() if isinstance(value, bytes) else value for value in each] for each in found]


def told(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as an answer is written."""
    lines = [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows]
    alone = all(len(row) == 1 for row in rows) and not any("," in line or "\n" in line for line in lines)
    return (", " if alone else "\n").join(lines) or "none"
