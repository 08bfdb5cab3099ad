"""Tests of tasks whose rows stay in their file."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import multiprocessing
import os
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import jsonrows, sources
from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.datafile import Row, read_rows
from agent_r1_env.errors import DataError, UnknownName
from agent_r1_env.jsonrows import JsonRows
from agent_r1_env.questions import hotpotqa, natural_questions
from agent_r1_env.streaming import HubRows, StreamedTaskSet, can_stream
from agent_r1_env.task import Paragraph, Task, TaskSet


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)
    monkeypatch.delenv("AGENT_R1_NATURALQUESTIONS", raising=False)


def question(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": f"q{number}", "question": f"Question {number}?", "golden_answers": [f"é{number}"]} | changes


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def task_of(row: Row) -> Task:
    return Task(row.text("id"), row.text("question"))


def streamed(file: Path) -> TaskSet:
    return natural_questions(data=file, streaming=True)


# -- rows

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(['"', "\\", '\\"', "[{", "}]", ","]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), min_size=1, max_size=8)


@given(rows=OBJECTS, indent=st.sampled_from([None, 0, 1]), ascii_only=st.booleans(), block=st.integers(1, 40))
@settings(deadline=None, max_examples=60)
def test_the_rows_of_a_list_are_found_whatever_they_hold(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, indent: int | None, ascii_only: bool, block: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "list.json"
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonrows, "_BLOCK", block)
        try:
            found = [row.data for row in JsonRows(file)]
        except DataError as error:
            assert "not UTF-8" in str(error)
            return
    assert found == rows


@given(rows=OBJECTS, blanks=st.lists(st.sampled_from(["", " ", "\t", "\r"]), max_size=8), end=st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_rows_of_lines_are_those_that_reading_it_whole_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, blanks: list[str], end: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "rows.jsonl"
    parts = [json.dumps(row) for row in rows]
    for place, blank in enumerate(blanks):
        parts.insert(place * 2 % (len(parts) + 1), blank)
    file.write_bytes(("\n".join(parts) + "\n" * end).encode())
    assert list(JsonRows(file)) == read_rows(file)


def test_rows_are_found_behind_a_byte_order_mark_and_white_space(tmp_path: Path) -> None:
    for text in ('\ufeff \n [ {"a": 1} ,\n{"a": 2}\n]\n ', '\ufeff\n{"a": 1}\r\n\r\n{"a": 2}'):
        rows = JsonRows(write(tmp_path / "rows", text))
        assert [row.data["a"] for row in rows] == [1, 2]
        assert rows[-1] == rows[1]
        assert rows[0:2] == list(rows)
        with pytest.raises(IndexError):
            rows[2]


# Mistakes: (content of the file, row, part of the message)
MISTAKES = [
    pytest.param("", None, "empty", id="empty-file"),
    pytest.param(" \n\n", None, "empty", id="blank-file"),
    pytest.param("[ ]", None, "list is empty", id="empty-list"),
    pytest.param("[1, 2]", 1, "expected an object, found '1, 2'", id="list-of-numbers"),
    pytest.param("[[1], [2]]", 1, "expected an object, found list", id="list-of-lists"),
    pytest.param('[{"id": "q1"}, {"id"', 2, "not closed; is the file cut off", id="cut-list"),
    pytest.param('[{"id": "q1"} {"id": "q2"}]', 1, "expected a comma and a row after it", id="no-comma"),
    pytest.param('[{"id": "q1"}, 5, {"id": "q2"}]', 1, "expected a comma and a row", id="number-between"),
    pytest.param('[{"id": "q1"},]', 1, "expected the end of the list", id="comma-at-the-end"),
    pytest.param('[{"id": "q1"}] {}', None, "after the list stands '{}'", id="more-after-the-list"),
    pytest.param('[{"id" "q1"}]', 1, "expecting ':' delimiter at character 6", id="broken-row-in-list"),
    pytest.param('{"id": "q1"}\n{"id": ', 2, "at line 2, column 8", id="torn-line"),
    pytest.param('{"id": "q1"}\n\n7\n', 3, "expected an object, found int", id="number-in-a-line"),
]


@pytest.mark.parametrize(("content", "row", "message"), MISTAKES)
def test_a_mistake_in_a_file_names_file_and_row(
    tmp_path: Path, content: str, row: int | None, message: str
) -> None:
    file = write(tmp_path / "rows", content)
    with pytest.raises(DataError, match=message) as caught:
        list(JsonRows(file))
    assert (str(caught.value.file), caught.value.row) == (str(file), row)


def test_bytes_that_are_not_utf8_name_their_row(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b'{"id": "q1"}\n{"id": "\xff"}\n')
    rows = JsonRows(file)
    assert rows[0].data == {"id": "q1"}
    with pytest.raises(DataError, match="row 2: not UTF-8 .byte 0xff") as caught:
        rows[1]
    assert caught.value.row == 2


# -- tasks


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", lines([question(number) for number in range(50)]))


def test_a_streamed_set_is_a_set_like_any_other(file: Path) -> None:
    held, tasks = natural_questions(data=file, streaming=False), streamed(file)
    assert isinstance(tasks, StreamedTaskSet) and not isinstance(held, StreamedTaskSet)
    assert (len(tasks), tasks.name, tasks.origin) == (len(held), held.name, held.origin)
    assert list(tasks) == list(held)
    assert tasks[3:7] == held[3:7]
    assert tasks[-1] == held[-1]
    assert [tasks.index_of(task.id) for task in held] == list(range(50))
    assert tasks.by_id("q7") == held.by_id("q7")
    assert streamed(file) is tasks
    for bad in (50, -51):
        with pytest.raises(IndexError):
            tasks[bad]
    with pytest.raises(UnknownName, match="no task of id 'q77' in Natural Questions validation; it has 50"):
        tasks.by_id("q77")


def test_an_environment_runs_on_streamed_tasks(file: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", lines([{"title": "Seven", "text": "The seventh."}]))
    env = gym.make(
        "AgentR1/HotpotQA-v0",
        data=write(tmp_path / "h.json", [question(7) | {"answer": "x"}]),
        corpus=corpus,
        streaming=True,
    )
    _, info = env.reset(seed=0, options={"task": "q7"})
    assert info["task_id"] == "q7"
    observation, *_ = env.step('<tool_call>{"name": "search", "arguments": {"query": "seventh"}}</tool_call>')
    assert "The seventh." in observation
    env.close()


def test_a_large_file_is_streamed_unless_one_asks_for_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(natural_questions(data=file), StreamedTaskSet)
    sources._from_file.cache_clear()
    monkeypatch.setattr(sources, "STREAMING_ABOVE", 100)
    assert isinstance(natural_questions(data=file), StreamedTaskSet)
    assert not isinstance(natural_questions(data=file, streaming=False), StreamedTaskSet)
    zipped = tmp_path / "rows.jsonl.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes(), compresslevel=0))
    assert not can_stream(zipped)
    assert not isinstance(natural_questions(data=zipped), StreamedTaskSet)


def test_a_gzipped_file_cannot_be_streamed(tmp_path: Path) -> None:
    zipped = tmp_path / "rows.jsonl.gz"
    zipped.write_bytes(gzip.compress(lines([question(1)]).encode()))
    with pytest.raises(DataError, match="gzipped file cannot be read from its middle; unpack it"):
        streamed(zipped)
    with pytest.raises(DataError, match="no such file; did you mean 'rows.jsonl.gz'"):
        streamed(tmp_path / "rows.jsonl")


def test_the_first_row_is_checked_at_once_and_the_others_when_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no 'question'") as caught:
        streamed(write(tmp_path / "a.jsonl", lines([{"id": "q1"}, question(2)])))
    assert caught.value.row == 1
    tasks = streamed(write(tmp_path / "b.jsonl", lines([question(1), {"id": "q2", "qestion": "?"}])))
    assert tasks[0].id == "q1"
    with pytest.raises(DataError, match="no 'question'; did you mean it by 'qestion'") as caught:
        tasks[1]
    assert (caught.value.row, caught.value.key) == (2, "question")


def test_an_id_that_occurs_twice_is_found_when_ids_are_searched(tmp_path: Path) -> None:
    tasks = streamed(write(tmp_path / "rows.jsonl", lines([question(1), question(2), question(1)])))
    assert len(tasks) == 3
    with pytest.raises(DataError, match="'q1' belongs to an earlier row") as caught:
        tasks.by_id("q2")
    assert (caught.value.row, caught.value.key) == (3, "id")


def test_ids_are_told_apart_though_their_numbers_are_equal(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    from agent_r1_env import streaming

    monkeypatch.setattr(streaming, "_digest", lambda task_id: np.uint64(len(task_id)))
    tasks = StreamedTaskSet(JsonRows(file), task_of, name="T", origin="a test")
    assert [tasks.index_of(f"q{number}") for number in range(50)] == list(range(50))
    with pytest.raises(UnknownName):
        tasks.index_of("zz")


def test_rows_are_read_once_for_all_searches_of_ids(file: Path) -> None:
    made = []
    tasks = StreamedTaskSet(
        JsonRows(file), lambda row: made.append(row.number) or task_of(row), name="T", origin="a test"
    )
    tasks.by_id("q7")
    assert len(made) <= 55
    made.clear()
    tasks.index_of("q8")
    assert made == [9]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def opened(file: Path) -> int:
    """Handles of this process on a file; what other threads open and close meanwhile does not count."""
    count = 0
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += handle.readlink() == file.resolve()
    return count


def test_files_are_closed_with_the_rows(file: Path) -> None:
    rows = [JsonRows(file) for _ in range(20)]
    rows += [copy.deepcopy(each) for each in rows]
    assert opened(file) == 40
    del rows
    assert opened(file) == 0


def test_a_file_that_was_changed_is_not_read_further(file: Path) -> None:
    tasks = streamed(file)
    with file.open("a") as stream:
        stream.write(lines([question(99)]))
    with pytest.raises(DataError, match="has changed since the tasks were loaded"):
        tasks[0]
    assert streamed(file).by_id("q99")


def test_a_file_that_was_replaced_is_read_as_it_was(file: Path, tmp_path: Path) -> None:
    tasks = streamed(file)
    os.replace(write(tmp_path / "new", lines([question(99)])), file)
    assert tasks[3].id == "q3"
    assert streamed(file)[0].id == "q99"
    with pytest.raises(DataError, match="has changed"):
        pickle.loads(pickle.dumps(tasks))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tasks: pickle.loads(pickle.dumps(tasks))])
def test_a_copy_reads_on_its_own(tmp_path: Path, copied: Any) -> None:
    row = question(1) | {"answer": "x", "context": [["Alpha", ["First.", "Second."]]]}
    tasks = hotpotqa(data=write(tmp_path / "rows.json", [row]), streaming=True)
    other = copied(tasks)
    assert other is not tasks
    assert list(other) == list(tasks)
    assert other.index_of("q1") == 0
    assert other.corpus == (Paragraph("Alpha", "First. Second."),)


def test_many_threads_read_at_once(file: Path) -> None:
    tasks = StreamedTaskSet(JsonRows(file), task_of, name="T", origin="a test")
    begin = threading.Barrier(8)

    def read(thread: int) -> list[str]:
        begin.wait(timeout=30)
        return [tasks.by_id(f"q{(thread * 7 + step) % 50}").id for step in range(100)]

    with ThreadPoolExecutor(8) as pool:
        for thread, found in enumerate(pool.map(read, range(8))):
            assert found == [f"q{(thread * 7 + step) % 50}" for step in range(100)]


def _read_in_child(tasks: TaskSet, found: Any) -> None:
    found.put([tasks.by_id(f"q{number}").id for number in range(50)])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_reads_on_while_the_parent_does(file: Path) -> None:
    tasks = streamed(file)
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    from agent_r1_env.task import READING

    with READING:  # as if another thread was searching ids at the time of the fork
        children = [
            context.Process(target=_read_in_child, args=(tasks, found), daemon=True) for _ in range(2)
        ]
        for child in children:
            child.start()
    expected = [f"q{number}" for number in range(50)]
    assert [tasks[number].id for number in range(50)] == expected
    assert [found.get(timeout=60) for _ in children] == [expected, expected]
    for child in children:
        child.join(timeout=60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_vector_of_processes_shares_one_streamed_set(tmp_path: Path) -> None:
    rows = [question(n) | {"answer": "x", "context": [["Seven", ["The seventh."]]]} for n in range(5)]
    options = {"data": write(tmp_path / "rows.json", rows), "streaming": True, "split": "train"}
    hotpotqa(**options)
    envs = gym.vector.AsyncVectorEnv(
        [lambda: gym.make("AgentR1/HotpotQA-v0", **options) for _ in range(3)], context="fork"
    )
    try:
        _, infos = envs.reset(seed=[0, 1, 2], options={"task": "q3"})
        assert list(infos["task_id"]) == ["q3"] * 3
        call = '<tool_call>{"name": "search", "arguments": {"query": "seventh"}}</tool_call>'
        observations, *_ = envs.step([call] * 3)
        assert all("The seventh." in observation for observation in observations)
    finally:
        envs.close()


def test_paragraphs_of_the_rows_are_collected_when_they_are_searched(tmp_path: Path) -> None:
    rows = [
        {"_id": f"q{n}", "question": "?", "answer": "x", "context": [["Alpha", ["One.", f"{n % 2}."]]]}
        for n in range(6)
    ]
    file = write(tmp_path / "rows.json", rows)
    tasks = hotpotqa(data=file, streaming=True)
    assert "not read yet" in repr(tasks)
    assert tasks.corpus == hotpotqa(data=file, streaming=False).corpus
    assert len(tasks.corpus) == 2


@pytest.mark.parametrize(
    "row",
    [
        {"context": [["Seven", ["The seventh.", "It is odd."]]], "supporting_facts": []},
        {
            "paragraphs": [
                {
                    "idx": 0,
                    "title": "Seven",
                    "paragraph_text": "The seventh. It is odd.",
                    "is_supporting": True,
                }
            ]
        },
    ],
    ids=["hotpotqa", "musique"],
)
def test_paragraphs_of_streamed_rows_are_searched_in_their_file(tmp_path: Path, row: dict[str, Any]) -> None:
    rows = [question(number) | {"answer": "x"} | row for number in range(3)]
    file = write(tmp_path / "rows.jsonl", lines(rows))
    name = "MuSiQue" if "paragraphs" in row else "HotpotQA"
    env = gym.make(f"AgentR1/{name}-v0", data=file, streaming=True)
    env.reset(seed=0)
    observation, *_ = env.step('<tool_call>{"name": "search", "arguments": {"query": "seventh"}}</tool_call>')
    assert observation.count("The seventh. It is odd.") == 1
    tasks = env.unwrapped.tasks  # type: ignore[attr-defined]
    assert "not read yet" in repr(tasks)
    assert tasks.corpus == tuple(read_paragraphs(tasks.corpus_file))
    env.close()


def test_a_large_corpus_stays_in_its_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "STREAMING_ABOVE", 10)
    corpus = write(tmp_path / "corpus.jsonl", lines([{"title": "Seven", "text": "The seventh."}]))
    tasks = natural_questions(data=file, corpus=corpus, streaming=False)
    assert tasks.corpus_file == corpus
    assert "not read yet" in repr(tasks)
    row = {"_id": "q1", "question": "?", "answer": "x"}
    env = gym.make("AgentR1/HotpotQA-v0", data=write(tmp_path / "h.json", [row]), corpus=corpus)
    env.reset(seed=0)
    observation, *_ = env.step('<tool_call>{"name": "search", "arguments": {"query": "seventh"}}</tool_call>')
    assert "The seventh." in observation
    assert "not read yet" in repr(env.unwrapped.tasks)  # type: ignore[attr-defined]
    env.close()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    rows = [question(n, context=[["T", ["x" * 4000]]], answer="x") for n in range(2000)]
    file = write(tmp_path / "rows.json", rows)
    del rows
    tracemalloc.start()
    tasks = hotpotqa(data=file, streaming=True)
    tasks.by_id("q1234")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert file.stat().st_size > 8_000_000
    assert peak < 4_000_000


# -- the Hub


class Loaded(list[dict[str, Any]]):
    """What ``datasets.load_dataset`` returns, as far as it is used."""

    dataset_size = 1000


def test_rows_of_the_hub_stay_there_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    loaded = Loaded([question(1), question(2)])
    fake = types.ModuleType("datasets")
    fake.load_dataset = lambda *_, **__: loaded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    sources._from_hub.cache_clear()
    held = natural_questions(source="hub")
    tasks = natural_questions(source="hub", streaming=True)
    assert isinstance(tasks, StreamedTaskSet) and not isinstance(held, StreamedTaskSet)
    assert list(tasks) == list(held) == [tasks[0], tasks[1]]
    assert tasks.by_id("q2") == held[1]
    assert tasks[0:2] == tuple(held)
    monkeypatch.setattr(Loaded, "dataset_size", sources.STREAMING_ABOVE + 1)
    sources._from_hub.cache_clear()
    assert isinstance(natural_questions(source="hub"), StreamedTaskSet)
    sources._from_hub.cache_clear()


def test_rows_of_the_real_package_are_read(file: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = HubRows(datasets.Dataset.from_list([question(number) for number in range(5)]), "a/set")
    assert [row.data for row in rows] == [question(number) for number in range(5)]
    assert rows[-1] == Row(question(4), "a/set", 5)
    assert rows[1:3] == list(rows)[1:3]
