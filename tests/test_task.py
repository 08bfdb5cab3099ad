"""Tests of sets of tasks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_r1_env.errors import DataError, UnknownName
from agent_r1_env.task import Paragraph, Task, TaskSet


def test_a_task_is_found_by_id_and_by_place() -> None:
    tasks = TaskSet([Task("abc", "?", ("x",)), Task("def", "?", ("y",))], name="T", origin="a test")
    assert tasks.by_id("def") is tasks[1]
    assert tasks.index_of("abc") == 0
    assert tasks[0:2] == tuple(tasks)
    with pytest.raises(UnknownName, match="no task of id 'abd' in T; did you mean 'abc'"):
        tasks.by_id("abd")
    with pytest.raises(IndexError):
        tasks[2]


def test_a_set_needs_tasks_of_different_ids() -> None:
    with pytest.raises(DataError, match="no tasks"):
        TaskSet([], name="T", origin="a test")
    with pytest.raises(DataError, match="several tasks of one id"):
        TaskSet([Task("a", "?", ("x",)), Task("a", "?", ("y",))], name="T", origin="a test")


def test_duplicate_paragraphs_count_once() -> None:
    pages = [Paragraph("A", "x"), Paragraph("A", "y"), Paragraph("A", "x")]
    tasks = TaskSet([Task("a", "?", ("x",))], name="T", origin="a test", corpus=pages)
    assert tasks.corpus == (Paragraph("A", "x"), Paragraph("A", "y"))


def test_paragraphs_can_be_found_when_they_are_asked_for() -> None:
    asked = []

    def find() -> list[Paragraph]:
        asked.append(1)
        return [Paragraph("A", "x"), Paragraph("A", "x"), Paragraph("B", "y")]

    tasks = TaskSet([Task("a", "?")], name="T", origin="a test", corpus=find)
    assert "not read yet" in repr(tasks)
    assert not asked
    assert tasks.corpus == tasks.corpus == (Paragraph("A", "x"), Paragraph("B", "y"))
    assert asked == [1]
    assert "2 paragraphs" in repr(tasks)


def test_many_threads_find_the_paragraphs_once() -> None:
    asked = []
    begin = threading.Barrier(8)

    def find() -> list[Paragraph]:
        asked.append(1)
        time.sleep(0.05)  # the others come meanwhile, and must wait
        return [Paragraph("A", "x")]

    tasks = TaskSet([Task("a", "?")], name="T", origin="a test", corpus=find)

    def read(_: int) -> int:
        begin.wait(timeout=30)
        return len(tasks.corpus)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [1] * 8
    assert asked == [1]
