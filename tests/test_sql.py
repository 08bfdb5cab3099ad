"""Tests of the tool that queries a database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_r1_env  # noqa: F401 - registers the environment
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError
from agent_r1_env.messages import ToolCall, ToolResult
from agent_r1_env.toolbox import Toolbox

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def box(timeout: float = 10, **config: Any) -> Toolbox:
    return Toolbox([load_tool(Catalog.open().tool("sql"), None, {"config": config, "timeout": timeout})])


def asked(toolbox: Toolbox, query: str) -> ToolResult:
    return toolbox.run([ToolCall("sql", {"query": query}, "1")])[0]


def queries_run() -> bool:
    """Whether a thread of this process is in a query of the tool."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name == "_answer" and frame.f_code.co_filename.endswith("sql.py"):
                return True
            frame = frame.f_back  # type: ignore[assignment]
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with odd values, in a file with an odd name."""
    path = tmp_path / "a b?c#d.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE city (name TEXT, people INTEGER, area REAL);"
            "CREATE INDEX by_name ON city (name);"
            "CREATE VIEW big AS SELECT name FROM city WHERE people > 500;"
            "INSERT INTO city VALUES ('Oslo', 700, 1.5), ('Bergen', 300, NULL), ('a|b\nc', NULL, 9e999);"
        )
        connection.execute("INSERT INTO city VALUES (?, ?, CAST(x'ff41' AS TEXT))", (b"\x00\x01", 2**60))
    connection.close()
    return path


def test_rows_are_a_compact_table(file: Path) -> None:
    assert asked(box(database=str(file)), "SELECT * FROM city;").content.splitlines() == [
        "name | people | area",
        "Oslo | 700 | 1.5",
        "Bergen | 300 | NULL",
        "a\\|b\\nc | NULL | inf",
        "<2 bytes> | 1152921504606846976 | \ufffdA",
        "(4 rows)",
    ]


def test_rows_can_be_json(file: Path) -> None:
    toolbox = box(database=str(file), form="json")
    rows = json.loads(asked(toolbox, "SELECT name, people, people * 2 AS name FROM city").content)
    assert rows[0] == {"name": "Oslo", "people": 700, "name_3": 1400}
    assert [row["name"] for row in rows] == ["Oslo", "Bergen", "a|b\nc", "<2 bytes>"]
    assert json.loads(asked(toolbox, "SELECT 9e999 AS x WHERE 0").content) == []


def test_long_results_are_cut_and_say_so() -> None:
    toolbox = box(max_rows=2, max_cell=5)
    content = asked(toolbox, "SELECT title FROM book ORDER BY id").content
    assert content.splitlines() == [
        "title",
        "The L... (11 more characters)",
        "Salt",
        "(first 2 rows; there are more)",
    ]
    assert asked(toolbox, "SELECT 1 AS a").content == "a\n1\n(1 row)"
    assert asked(toolbox, "SELECT 1 AS a WHERE 0").content == "a\n(0 rows)"


@pytest.mark.parametrize("query", [".schema", ".SCHEMA;", ".tables", "SHOW TABLES", "show tables;"])
def test_the_schema_is_shown_on_request(file: Path, query: str) -> None:
    assert asked(box(database=str(file)), query).content.splitlines() == [
        "CREATE TABLE city (name TEXT, people INTEGER, area REAL);",
        "CREATE VIEW big AS SELECT name FROM city WHERE people > 500;",
    ]


@pytest.mark.parametrize("query", [".schema author", "DESCRIBE author", "desc 'AUTHOR';"])
def test_the_schema_of_one_table_is_shown(query: str) -> None:
    assert asked(box(), query).content.startswith("CREATE TABLE author (")
    assert asked(box(), query).content.count("CREATE") == 1


def test_other_ways_to_learn_the_schema_work() -> None:
    toolbox = box()
    assert "author_id | INTEGER" in asked(toolbox, "PRAGMA table_info(book)").content
    assert "author_id" in asked(toolbox, "SELECT name FROM pragma_table_info('book')").content
    assert "book" in asked(toolbox, "SELECT name FROM sqlite_master").content


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "the query is empty; .schema shows the tables"),
        (
            "SELECT * FROM authors",
            "no such table: authors; did you mean author?; the tables are author, book, loan",
        ),
        (
            "SELECT titel FROM book",
            "no such column: titel; did you mean title?; the tables are author(id, name",
        ),
        (
            "SELECT b.titel FROM book b",
            "no such column: b.titel; did you mean title?; the tables are author(id",
        ),
        ("SELEC 1", 'SQLite says: near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "only one statement can be run in a call"),
        ("SELECT foo(1)", "SQLite says: no such function: foo"),
        ("SELECT ?", "? and :name stand for nothing here; write the values themselves"),
        ("SELECT printf('%.*c', 2000000000, 'x')", "printf() cannot be used here"),
        ("SELECT load_extension('x')", "load_extension() cannot be used here"),
        ("DESCRIBE boks", "no such table: boks; did you mean book?; the tables are author, book, loan"),
        ("SELECT \x00", "SQLite says: the query contains a null character"),
    ],
)
def test_mistakes_are_told_with_a_way_out(query: str, told: str) -> None:
    result = asked(box(), query)
    assert result.error == "tool_error"
    assert result.content.startswith(f"error: {told}")


CHANGES = [
    "DROP TABLE city",
    "DELETE FROM city",
    "INSERT INTO city VALUES ('x', 1, 1)",
    "UPDATE city SET people = 0",
    "UPDATE sqlite_master SET sql = ''",
    "DELETE FROM sqlite_master",
    "REPLACE INTO city VALUES ('x', 1, 1)",
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x (a)",
    "ALTER TABLE city ADD COLUMN x",
    "ATTACH 'other.db' AS other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT x",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = WAL",
    "PRAGMA user_version = 5",
    "PRAGMA temp_store_directory = '/'",
    "WITH x AS (SELECT 1) DELETE FROM city",
    "EXPLAIN DELETE FROM city",
    "CREATE VIRTUAL TABLE x USING fts3(a)",
]


@pytest.mark.parametrize("query", CHANGES)
def test_nothing_can_be_changed(file: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    before = file.read_bytes()
    toolbox = box(database=file.name)
    result = asked(toolbox, query)
    if query == "UPDATE sqlite_master SET sql = ''" or query == "DELETE FROM sqlite_master":
        assert not result.ok
    else:
        assert (
            result.content == "error: this database can only be read: use SELECT, WITH ... SELECT, or .schema"
        )
    assert "Oslo" in asked(toolbox, "SELECT * FROM city").content
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "query",
    [
        ENDLESS,
        "SELECT count(*) FROM book a, book b, book c, book d, book e, book f, "
        "book g, book h, book i, book j, book k, book l",
    ],
)
@pytest.mark.parametrize("config", [{"max_steps": 0.5, "seconds": 60}, {"max_steps": 1e6, "seconds": 0.1}])
def test_a_query_without_end_is_stopped(query: str, config: dict[str, float]) -> None:
    began = time.monotonic()
    result = asked(box(**config), query)
    assert time.monotonic() - began < 5
    assert result.content == (
        "error: the query took too long and was stopped; add a condition, or a LIMIT inside it"
    )


def test_a_query_without_end_may_still_give_its_first_rows() -> None:
    query = ENDLESS.replace("count(*)", "x")
    assert asked(box(max_rows=3), query).content == "x\n1\n2\n3\n(first 3 rows; there are more)"


def test_a_time_out_ends_the_query() -> None:
    toolbox = box(timeout=0.2, max_steps=1e6, seconds=600)
    assert asked(toolbox, ENDLESS).error == "timeout"
    until(lambda: not queries_run())


async def test_cancelling_a_call_ends_the_query() -> None:
    toolbox = box(max_steps=1e6, seconds=600)
    running = asyncio.create_task(toolbox.run_async([ToolCall("sql", {"query": ENDLESS}, "1")]))
    await asyncio.to_thread(until, queries_run)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.to_thread(until, lambda: not queries_run())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT zeroblob(1000000000)",
        "SELECT hex(zeroblob(100000000))",
        "SELECT replace(hex(x'00'), '0', (SELECT group_concat(title) FROM book)) || 'x'",
        "WITH RECURSIVE s(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM s) SELECT max(x) FROM s",
        "SELECT " + "(SELECT " * 5000,
        "SELECT 1" + " UNION SELECT 1" * 2000,
        "SELECT " + "1+" * 9000 + "1",
    ],
)
def test_large_values_and_queries_are_refused_at_once(query: str) -> None:
    began = time.monotonic()
    result = asked(box(), query)
    assert time.monotonic() - began < 5
    assert len(result.content) < 8100


def test_many_threads_may_ask_one_tool(file: Path) -> None:
    toolbox = box(database=str(file))
    start = threading.Barrier(8)

    def ask(number: int) -> list[str]:
        start.wait(10)
        return [asked(toolbox, f"SELECT {number} + people FROM city LIMIT 1").content for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for number, contents in enumerate(pool.map(ask, range(8))):
            assert set(contents) == {f"{number} + people\n{number + 700}\n(1 row)"}


def test_a_writer_beside_the_tool_is_seen(file: Path) -> None:
    toolbox = box(database=str(file))
    with sqlite3.connect(file) as writer:
        writer.execute("DELETE FROM city")
    writer.close()
    assert asked(toolbox, "SELECT count(*) AS n FROM city").content == "n\n0\n(1 row)"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"database": "nothing.db"}, "no such database: .*nothing.db"),
        ({"database": __file__}, "cannot be read: file is not a database"),
        ({"form": "csv"}, "form must be table or json, got 'csv'"),
        ({"max_rows": 0}, "max_rows, max_cell, max_steps and seconds must be above 0"),
        ({"databse": "x"}, "Sql takes no 'databse'; did you mean 'database'"),
    ],
)
def test_a_wrong_configuration_is_told_when_the_tool_is_loaded(config: dict[str, Any], told: str) -> None:
    with pytest.raises(CatalogError, match=told):
        box(**config)


FRAGMENTS = """
SELECT FROM WHERE book author title * , ( ) = 1 'x' ; AS a JOIN ON id NULL -- /* UNION ORDER BY LIMIT
.schema DESCRIBE PRAGMA table_info DELETE WITH RECURSIVE count sum ? :a x'00' " ` [ ]
"""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS.split()), st.text(max_size=3)), max_size=12).map(" ".join)
)
def test_whatever_is_asked_gets_an_answer(query: str) -> None:
    result = asked(SHARED, query)
    assert result.error in (None, "tool_error")
    assert " raised " not in result.content[:20]


SHARED = box(seconds=1)


def test_the_tool_is_an_environment() -> None:
    env: Any = gym.make("AgentR1/SqlTool-v0", max_rows=1)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    observation, *_ = env.step("SELECT name FROM author ORDER BY born LIMIT 1")
    assert observation == "name\nCilla Brandt\n(1 row)"
    env.close()
