"""Tests of the search tool."""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.task import Paragraph, Task, TaskSet, hotpotqa

MODULE = "search_tool_under_test"


@pytest.fixture(scope="module")
def search() -> Iterator[Any]:
    """The code beside ``tools/search.yaml``, found as the installed package finds it."""
    from agent_r1_env.catalog import builtin_root

    spec = importlib.util.spec_from_file_location(MODULE, builtin_root() / "tools" / "search.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[MODULE]


def tasks_over(*pages: tuple[str, str]) -> TaskSet:
    corpus = [Paragraph(title, text) for title, text in pages]
    return TaskSet([Task("t", "?", ("x",))], name="T", origin="a test", corpus=corpus)


BANDS = (
    ("The Who", "The Who are an English rock band formed in London."),
    ("Who Am I", "Who Am I is a song. Who wrote it is unknown; who sang it, who knows."),
    ("Beyoncé", "Beyoncé is an American singer."),
    ("Björk", "Björk is a singer from Iceland."),
    ("Oslo", "Oslo is the capital of Norway.\nIt lies on a fjord."),
    ("Norway", "Norway is a country. Its capital is Oslo."),
)


def test_hits_are_numbered_lines_of_title_and_text(search: Any) -> None:
    assert search.Search(tasks_over(*BANDS), top_k=2)("Oslo capital").splitlines() == [
        "[1] Oslo: Oslo is the capital of Norway. It lies on a fjord.",
        "[2] Norway: Norway is a country. Its capital is Oslo.",
    ]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        pytest.param("The Who", "The Who", id="made-of-common-words"),
        pytest.param("the who?", "The Who", id="case-and-punctuation"),
        pytest.param("beyonce", "Beyoncé", id="diacritics-left-out"),
        pytest.param("BEYONCÉ", "Beyoncé", id="upper-case"),
        pytest.param("ole gunnar solskjaer bjork", "Björk", id="diacritics-inside-a-word"),
        pytest.param("Beyonce\u0301", "Beyoncé", id="decomposed"),
        pytest.param("Ｏｓｌｏ", "Oslo", id="full-width"),
        pytest.param("Who Am I", "Who Am I", id="title"),
    ],
)
def test_the_paragraph_named_by_the_query_comes_first(search: Any, query: str, title: str) -> None:
    assert search.Search(tasks_over(*BANDS))(query).startswith(f"[1] {title}: ")


@pytest.mark.parametrize("query", ["", "   ", "...", "?!", "___", "🙂", "\ud800"])
def test_a_query_without_words_is_explained(search: Any, query: str) -> None:
    assert "no words" in search.Search(tasks_over(*BANDS))(query)


@pytest.mark.parametrize("query", ["zebra", "北京"])
def test_paragraphs_without_a_word_of_the_query_are_no_hits(search: Any, query: str) -> None:
    assert search.Search(tasks_over(*BANDS))(query).startswith(f"No paragraph matches '{query}'")
    assert search.Search(tasks_over(*BANDS), top_k=5)("capital").count("\n") == 1


def test_a_small_corpus_gives_what_it_has(search: Any) -> None:
    assert search.Search(tasks_over(*BANDS[:2]), top_k=50)("who").count("[") == 2
    assert "No paragraph" in search.Search(tasks_over())("who")
    assert "No paragraph" in search.Search(tasks_over(("-", "!"), ("?", ".")))("who")
    assert search.Search(tasks_over(("-", "!"), ("Oslo", "City.")))("oslo") == "[1] Oslo: City."


def test_equal_scores_keep_the_order_of_the_corpus(search: Any) -> None:
    pages = [(f"Page {number}", "same words here") for number in range(300)]
    found = search.Search(tasks_over(*pages), top_k=150)("same words")
    assert [line.split(":")[0].split("] ")[1] for line in found.splitlines()] == [t for t, _ in pages[:150]]


def test_a_very_long_query_is_cut_and_says_so(search: Any) -> None:
    found = search.Search(tasks_over(*BANDS))("oslo " * 20_000)
    assert found.startswith("[1] Oslo")
    assert "Only the first 256 words" in found


def test_top_k_must_be_a_count(search: Any) -> None:
    for wrong in (0, -1, 1.5, "3"):
        with pytest.raises(ValueError, match="top_k"):
            search.Search(tasks_over(*BANDS), top_k=wrong)


def test_one_index_serves_all_tools_of_a_corpus_even_from_many_threads(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    real = search.Index

    class Counted(real):  # type: ignore[misc]
        def __init__(self, corpus: Any) -> None:
            built.append(1)
            time.sleep(0.05)
            super().__init__(corpus)

    monkeypatch.setattr(search, "Index", Counted)
    tasks = tasks_over(*BANDS)
    found: list[str] = []
    tools = [search.Search(tasks) for _ in range(8)]
    threads = [threading.Thread(target=lambda tool=tool: found.append(tool("Oslo"))) for tool in tools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert len(found) == 8
    assert len(set(found)) == 1


def test_an_index_goes_with_its_tasks(search: Any) -> None:
    tasks = tasks_over(*BANDS)
    tool = search.Search(tasks)
    tool("Oslo")
    index = weakref.ref(search.index_of(tasks))
    assert index() is not None
    del tasks, tool
    gc.collect()
    assert index() is None


@given(query=st.text(max_size=40))
def test_any_text_gives_a_text(search: Any, query: str) -> None:
    assert search.Search(tasks_over(*BANDS))(query)


def test_gold_titles_of_real_questions_are_found_first(search: Any, shared_data: Path) -> None:
    folder = shared_data / "hotpotqa"
    tasks = hotpotqa(data=folder / "hotpot_dev_distractor_sample.json", corpus=folder / "corpus.jsonl")
    index = search.index_of(tasks)
    titles = {title for task in tasks for title, _ in task.supporting}
    assert [title for title in titles if index.best(search.words(title), 1)[0].title != title] == []
    gold = [(task.question, title) for task in tasks for title in {title for title, _ in task.supporting}]
    found = sum(title in [page.title for page in index.best(search.words(q), 10)] for q, title in gold)
    assert found / len(gold) > 0.88
