"""Tests of the tool that describes a database, and of where it and the tool ``sql`` find theirs."""

from __future__ import annotations

import gzip
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import agent_r1_env  # noqa: F401 - registers the environment
from agent_r1_env import database
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError
from agent_r1_env.messages import ToolCall, ToolResult
from agent_r1_env.task import Task
from agent_r1_env.toolbox import Session, Toolbox

SCRIPT = """\
CREATE TABLE city (name TEXT PRIMARY KEY, people INTEGER NOT NULL, "odd | name" BLOB);
CREATE TABLE shop (id INTEGER PRIMARY KEY, city TEXT REFERENCES city, owner REFERENCES "no one" (id));
CREATE VIEW lost AS SELECT * FROM gone;
CREATE TABLE "a ""b" (x);
INSERT INTO city VALUES ('Oslo', 700, x'0001'), ('a|b', 300, NULL);
"""


def box(name: str, task: Task | None = None, **config: Any) -> Toolbox:
    made = Toolbox([load_tool(Catalog.open().tool(name), None, {"config": config})])
    made.begin(Session(task))
    return made


def asked(toolbox: Toolbox, **arguments: Any) -> ToolResult:
    return toolbox.run([ToolCall(next(iter(toolbox.tools)), arguments, "1")])[0]


def on(place: Path | str) -> Task:
    return Task("t", "What?", data={"database": str(place)})


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "town.sql.gz"
    path.write_bytes(gzip.compress(SCRIPT.encode()))
    return path


def test_tables_are_told_with_columns_references_and_first_rows(script: Path) -> None:
    assert asked(box("sql_schema", database=str(script))).content.splitlines() == [
        "city",
        "  name: TEXT, primary key",
        "  people: INTEGER, not null",
        "  odd | name: BLOB",
        "  first rows:",
        "    name | people | odd | name",
        "    Oslo | 700 | <2 bytes>",
        "    a\\|b | 300 | NULL",
        "",
        "shop",
        "  id: INTEGER, primary key",
        "  city: TEXT, refers to city",
        "  owner: refers to no one.id",
        "  (no rows)",
        "",
        "lost",
        "  its rows cannot be read: no such table: main.gone",
        "",
        'a "b',
        "  x",
        "  (no rows)",
    ]


def test_one_table_is_told_alone() -> None:
    content = asked(box("sql_schema"), table=" Author ").content
    assert content.startswith("author\n  id: INTEGER, primary key\n  name: TEXT, not null\n")
    assert "book" not in content


def test_an_unknown_table_is_told_with_the_nearest() -> None:
    assert asked(box("sql_schema"), table="boks").content == (
        "error: no such table: boks; did you mean book?; the tables are author, book, loan"
    )


def test_first_rows_can_be_left_out() -> None:
    assert "first rows" not in asked(box("sql_schema", sample_rows=0)).content
    with pytest.raises(CatalogError, match="sample_rows must be 0 or more, got -1"):
        box("sql_schema", sample_rows=-1)


@pytest.mark.parametrize("name", ["sql", "sql_schema"])
def test_the_database_of_the_task_is_read(name: str, script: Path) -> None:
    arguments = {"query": "SELECT * FROM city"} if name == "sql" else {}
    assert "Oslo" in asked(box(name, on(script)), **arguments).content
    if name == "sql":
        assert "no such table: city" in asked(box(name), **arguments).content


def test_a_configured_database_comes_before_that_of_the_task(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE river (name)")
    connection.close()
    assert asked(box("sql_schema", on(script), database=str(other))).content.startswith("river")


@pytest.mark.parametrize("name", ["sql", "sql_schema"])
def test_a_database_that_went_away_is_a_failed_call(name: str, tmp_path: Path) -> None:
    arguments = {"query": "SELECT 1"} if name == "sql" else {}
    for place in ("gone.db", "gone.sql"):
        result = asked(box(name, on(tmp_path / place)), **arguments)
        assert result.error == "tool_error"


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("x.sql", b"CREATE TABEL x (y)", 'near "TABEL": syntax error'),
        ("x.sql", b"\xff", "can't decode byte"),
        ("x.sql.gz", b"CREATE TABLE x (y)", "Not a gzipped file"),
    ],
)
def test_a_script_that_makes_no_database_is_told_early(
    file: str, content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CatalogError, match=told):
        box("sql", database=str(tmp_path / file))


def test_a_script_is_run_again_when_it_has_changed(tmp_path: Path) -> None:
    script = tmp_path / "x.sql"
    for table in ("first", "second_one"):
        script.write_text(f"CREATE TABLE {table} (x)")
        assert asked(box("sql_schema", database=str(script))).content.startswith(table)


def test_many_threads_may_read_one_script(script: Path) -> None:
    toolbox, start = box("sql", on(script)), threading.Barrier(8)

    def ask(number: int) -> str:
        start.wait(10)
        return asked(toolbox, query=f"SELECT {number} + people FROM city LIMIT 1").content

    with ThreadPoolExecutor(8) as pool:
        assert [text.split("\n")[1] for text in pool.map(ask, range(8))] == [str(700 + n) for n in range(8)]


def test_a_script_can_not_be_changed_by_a_query(script: Path) -> None:
    toolbox = box("sql", on(script))
    assert not asked(toolbox, query="DELETE FROM city").ok
    assert "Oslo" in asked(toolbox, query="SELECT name FROM city").content


def test_a_task_without_a_database_names_none() -> None:
    assert database.place_of(None) is None
    assert database.place_of(Task("t", "What?", data={"database": 3})) is None


def test_the_tool_is_an_environment() -> None:
    env: Any = gym.make("AgentR1/SqlSchemaTool-v0", max_calls=2)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    assert env.step("loan")[0].startswith(
        "loan\n  id: INTEGER, primary key\n  book_id: INTEGER, not null, ref"
    )
    assert env.step("{}")[0].startswith("author\n")  # no table is named, so all are told
    env.close()
