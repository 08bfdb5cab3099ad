"""The catalogue entry of questions to a database."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import fuzz
import gymnasium as gym
import pytest

import agent_r1_env  # noqa: F401 - registers the environment
from agent_r1_env import database
from agent_r1_env.catalog import Catalog, builtin_root
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import DataError
from agent_r1_env.evaluate import evaluate
from agent_r1_env.loading import load_target
from agent_r1_env.reward import Outcome
from agent_r1_env.task import SyntheticDataWarning, Task
from agent_r1_env.testing import answer, call

ID = "AgentR1/SQLQuestions-v0"
FOLDER = builtin_root() / "envs" / "sqlquestions"
SPLITS = ("train", "validation")
rows_match = load_target("./terms.py:rows_match", FOLDER)


def made(**options: Any) -> ToolEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"sqlquestions_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def rows(split: str) -> list[dict[str, Any]]:
    text = gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


# -- the embedded set


def test_the_scripts_make_the_committed_files_again() -> None:
    shops, questions = script("make_shops"), script("make_questions")
    for split in SPLITS:
        text = shops.script(shops.tables(shops.SEEDS[split])).encode()
        assert gzip.decompress((FOLDER / f"{split}.sql.gz").read_bytes()) == text
        lines = questions.encode(questions.questions(split))
        assert gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()) == lines


@pytest.mark.parametrize("split", SPLITS)
def test_all_kinds_of_questions_are_asked_about_equally_often(split: str) -> None:
    asked = rows(split)
    counts = Counter(row["kind"] for row in asked)
    assert set(counts) == {"lookup", "join", "aggregate", "group", "order", "nested", "dates", "list"}
    assert min(counts.values()) > len(asked) / 12
    assert len({row["question"] for row in asked}) == len(asked) >= 200


@pytest.mark.parametrize("split", SPLITS)
def test_references_of_the_database_hold_and_names_are_unique(split: str) -> None:
    with database.opened(FOLDER / f"{split}.sql.gz") as connection:
        tables = database.columns_of(connection)
        for table, columns in tables.items():
            for _, _, target, column, other, *_ in connection.execute(f"PRAGMA foreign_key_list({table})"):
                lost = f"SELECT {column} FROM {table} EXCEPT SELECT {other} FROM {target}"
                assert [value for (value,) in connection.execute(lost) if value is not None] == []
            if "name" in columns:
                twice = f"SELECT name FROM {table} GROUP BY name HAVING count(*) > 1"
                assert connection.execute(twice).fetchall() == []
        assert (
            sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables) > 3000
        )


def test_the_right_answers_are_those_that_plain_python_finds() -> None:
    """For three templates that need joins, dates and a set difference."""
    env = made()
    with database.opened(FOLDER / "validation.sql.gz") as connection:
        tables: dict[str, list[dict[str, Any]]] = {}
        for table, columns in database.columns_of(connection).items():
            found = connection.execute(f"SELECT * FROM {table}").fetchall()
            tables[table] = [dict(zip(columns, each, strict=True)) for each in found]
    city = {each["id"]: each["name"] for each in tables["city"]}
    buyers = {each["customer_id"] for each in tables["purchase"]}
    checked: Counter[str] = Counter()
    for task in env.tasks:
        words = task.question.split("?")[0].split()
        if task.question.endswith("never bought anything? List them in any order, separated by commas."):
            live = [each for each in tables["customer"] if city[each["city_id"]] == words[3]]
            idle = [each["name"] for each in live if each["id"] not in buyers]
            assert sorted(idle) == sorted(row[0] for row in task.data["rows"])
            checked["idle"] += 1
        elif task.question.startswith("How many purchases were paid by"):
            paid, month = words[6], words[8]
            count = sum(
                each["paid_by"] == paid and each["day"].startswith(month) for each in tables["purchase"]
            )
            assert task.answers == (str(count),)
            checked["paid"] += 1
        elif task.question.startswith("How many customers live in"):
            assert task.answers == (str(sum(city[e["city_id"]] == words[-1] for e in tables["customer"])),)
            checked["live"] += 1
    assert min(checked[name] for name in ("idle", "paid", "live")) >= 3


def test_the_embedded_set_says_that_it_is_synthetic() -> None:
    tasks = made(split="train").tasks
    assert tasks.synthetic and "embedded synthetic" in tasks.origin
    assert issubclass(SyntheticDataWarning, UserWarning)


def test_what_is_shipped_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.gz")) < 120_000


# -- scores of the scripted policies


@pytest.mark.parametrize(
    ("policy", "split", "score"),
    [
        ("oracle", "validation", 1.0),
        ("oracle", "train", 1.0),
        ("naive", "validation", 5 / 240),
        ("random", "validation", 0.0),
    ],
)
def test_policies_score_what_they_are_known_to(policy: str, split: str, score: float) -> None:
    found = evaluate(ID, policy=policy, env_kwargs={"split": split})
    assert found.reward.mean == pytest.approx(score, abs=1e-9)
    assert found.failed == 0


def test_the_same_seed_gives_the_same_episode() -> None:
    texts = []
    for _ in range(2):
        env = made()
        texts.append(list(fuzz.seen(env, 5, 20, ["SELECT", "name", "FROM", "customer"])))
        env.close()
    assert texts[0] == texts[1]


@pytest.mark.parametrize("steps", [1, 2])
def test_the_oracle_fits_into_few_steps(steps: int) -> None:
    assert evaluate(ID, policy="oracle", n=3, env_kwargs={"max_steps": steps}).reward.mean == 1.0


# -- the model sees no right answer


def test_arbitrary_replies_never_raise_and_show_neither_query_nor_answer(tmp_path: Path) -> None:
    (tmp_path / "town.sql").write_text(
        "CREATE TABLE town (n, secret);"
        + "".join(f"INSERT INTO town VALUES ({n}, '{'☃gold☃' if n == 77 else n}');" for n in range(90))
    )
    query = "SELECT secret FROM town WHERE n = 70 + 7"
    lines = [{"question": f"What? {n}", "db_id": "town", "query": query, "id": f"q{n}"} for n in range(3)]
    (tmp_path / "dev.json").write_text(json.dumps(lines))
    env = made(data=str(tmp_path / "dev.json"))
    words = ["town", ".schema", "SELECT n FROM town", "SELECT count(*) FROM town", "WHERE", "query", "answer"]
    texts = list(fuzz.seen(env, 0, 300, words))
    assert len(texts) >= 300
    assert all(
        any(mark in text for text in texts) for mark in ("first rows", "CREATE TABLE", "count(*)\\n90")
    )
    assert not any("☃" in text or "70 + 7" in text for text in texts)
    env.close()


def test_the_prompt_holds_neither_the_query_nor_the_answer() -> None:
    env = made()
    for number, task in enumerate(env.tasks):
        observation, info = env.reset(options={"task": number})
        shown = observation + json.dumps(info)
        assert task.data["query"] not in shown and "sqlquestions" not in shown
        if task.kind in ("join", "order"):
            assert task.answers[0] not in observation.rpartition("user")[2]


# -- the answer


def score(text: str | None, gold: list[list[Any]], ordered: bool = False) -> float:
    task = Task("t", "What?", ("x",), data={"rows": gold, "ordered": ordered})
    return float(rows_match(Outcome(text, task)))


ONE, LIST, PAIRS = [[1234.5]], [["Ann Lo"], ["Bo"], ["Cy"]], [["Ann", 3], ["Bo", None]]


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        ("1234.5", ONE, True),
        ("1,234.50", ONE, True),
        ("$1234.5", ONE, True),
        ("1.2345e3", ONE, True),
        ("-1234.5", ONE, False),
        ("1234.51", ONE, False),
        ("1234.5 euros", ONE, False),
        ("12345", ONE, False),
        ("1e9999", [[9e999]], False),
        ("", ONE, False),
        (None, ONE, False),
        ("[1234.5]", ONE, True),
        ("Ann Lo", [["ann  lo"]], True),
        ("the Ann-Lo.", [["Annlo"]], True),
        ("Lo, Ann", [["Lo, Ann"]], True),
        ("a", [["A"]], True),
        ("the", [["A"]], False),
        ("Cy, Bo, Ann Lo", LIST, True),
        ("Cy, Bo and Ann Lo", LIST, True),
        ("Cy, Bo, and Ann Lo", LIST, True),
        ("Cy; Bo; Ann Lo", LIST, True),
        ("- Cy\n- Bo\n- Ann Lo", LIST, True),
        ('["Cy", "Bo", "Ann Lo"]', LIST, True),
        ("Cy, Bo", LIST, False),
        ("Cy, Bo, Ann Lo, Di", LIST, False),
        ("Cy, Bo, Bo", LIST, False),
        ("Cy Bo Ann Lo", LIST, False),
        ("1,000, 2,000", [[2000], [1000]], True),
        ("1,2", [[2], [1]], True),
        ("Bo | NULL\nAnn | 3", PAIRS, True),
        ("| Ann | 3.0 |\n| Bo | none |", PAIRS, True),
        ('[["Ann", 3], ["Bo", null]]', PAIRS, True),
        ("Ann | 3", PAIRS, False),
        ("Ann, 3", [["Ann", 3]], True),
        ("none", [], True),
        ("None.", [], True),
        ("0", [], False),
        ("NULL", [[None]], True),
        ("0", [[None]], False),
        ("[" * 9000, ONE, False),
        ("1" * 9000, ONE, False),
        ("1" * 900_000, ONE, False),
    ],
)
def test_an_answer_is_compared_by_its_values(text: str | None, gold: list[list[Any]], right: bool) -> None:
    assert score(text, gold) == float(right)


def test_the_order_counts_where_the_query_has_one() -> None:
    assert score("Ann Lo, Bo, Cy", LIST, ordered=True) == 1.0
    assert score("Bo, Ann Lo, Cy", LIST, ordered=True) == 0.0


def test_the_right_answer_of_every_task_is_right_as_it_is_written() -> None:
    for split in SPLITS:
        for task in made(split=split).tasks:
            assert rows_match(Outcome(task.answers[0], task)) == 1.0


# -- real data


def spider(folder: Path, *rows: dict[str, Any]) -> Path:
    """A folder in the form of Spider: rows, and a database in its own folder."""
    place = folder / "database" / "pets" / "pets.sqlite"
    place.parent.mkdir(parents=True)
    with sqlite3.connect(place) as connection:
        connection.executescript(
            "CREATE TABLE pet (name TEXT, legs INTEGER, photo BLOB);"
            "INSERT INTO pet VALUES ('Rex, the dog', 4, x'00ff'), ('Tweety', 2, NULL);"
        )
    connection.close()
    (folder / "dev.json").write_text(json.dumps(rows))
    return folder / "dev.json"


def test_files_of_spider_and_bird_are_read(tmp_path: Path) -> None:
    file = spider(
        tmp_path,
        {"db_id": "pets", "query": "SELECT name, legs FROM pet ORDER BY legs", "question": "Which pets?"},
        {
            "question_id": 7, "db_id": "pets", "SQL": "SELECT name FROM pet WHERE legs > 3",
            "question": "Who?", "evidence": "legs counts legs", "difficulty": "simple",
        },
        {"db_id": "pets", "query": "SELECT photo FROM pet WHERE legs > 9", "question": "Whose photo?"},
        {"db_id": "pets", "query": "SELECT name FROM pet", "question": "All?"},
    )  # fmt: skip
    first, second, third, fourth = made(data=str(file)).tasks
    assert first.answers == ("Tweety | 2\nRex, the dog | 4",) and first.data["ordered"]
    assert (second.id, second.question, second.kind) == ("7", "Who?\nHint: legs counts legs", "simple")
    assert second.answers == ("Rex, the dog",) and not second.data["ordered"]
    assert third.answers == ("none",)
    assert fourth.answers == ("Rex, the dog\nTweety",)
    assert evaluate(ID, policy="oracle", env_kwargs={"data": str(file)}).reward.mean == 1.0


def test_a_set_is_found_through_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spider(tmp_path, {"db_id": "pets", "query": "SELECT count(*) FROM pet", "question": "How many?"})
    monkeypatch.setenv("AGENT_R1_SQLQUESTIONS", str(tmp_path))
    assert [task.answers for task in made().tasks] == [("2",)]


def test_databases_may_lie_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "How many?", "db_id": "train", "query": "SELECT count(*) FROM shop"}\n')
    assert made(data=str(file), databases=str(FOLDER)).tasks[0].answers == ("28",)
    with pytest.raises(
        DataError, match="no database 'train' in .*name the folder that holds it as databases="
    ):
        made(data=str(file))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"db_id": "../x", "query": "SELECT 1"}, "'../x' is no name of a database"),
        ({"db_id": "pets", "query": "SELECT weight FROM pet"}, "the query fails: no such column: weight"),
        ({"db_id": "pets", "query": "DELETE FROM pet"}, "the query fails: not authorized"),
        ({"db_id": "pets"}, "the row has no 'query' or 'SQL'"),
    ],
)
def test_a_wrong_row_is_told_with_its_place(row: dict[str, Any], told: str, tmp_path: Path) -> None:
    file = spider(tmp_path, {"question": "What?", **row})
    with pytest.raises(DataError, match=told) as error:
        made(data=str(file))
    assert str(file) in str(error.value)


def test_with_streaming_a_query_is_run_when_its_question_is_drawn(tmp_path: Path) -> None:
    good = {"db_id": "pets", "query": "SELECT count(*) FROM pet", "question": "How many?"}
    file = spider(tmp_path, good, {**good, "query": "SELECT weight FROM pet"})
    env = made(data=str(file), streaming=True)
    assert env.tasks[0].answers == ("2",)
    with pytest.raises(DataError, match="row 2, .*no such column: weight"):
        env.reset(options={"task": 1})


# -- what a model meets


def test_a_model_finds_its_way_by_schema_query_and_answer() -> None:
    env = made()
    env.reset(options={"task": env.tasks.index_of("validation-000")})
    _, _, _, _, info = env.step(call("sql_schema", table="customer"))
    assert info["calls"][0]["result"].startswith("customer\n  id: INTEGER, primary key\n")
    task = env.task
    assert task is not None
    *_, info = env.step(call("sql", query=task.data["query"]))
    found = info["calls"][0]["result"].splitlines()[1]
    _, reward, terminated, _, info = env.step(answer(found))
    assert (reward, terminated) == (1.0, True)
    assert info["metrics"]["rows_match"] == 1.0


def test_the_entry_is_sound() -> None:
    assert "SQLQuestions" in [entry.name for entry in Catalog.open().check()]
