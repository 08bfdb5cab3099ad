"""Tests of the search tool."""

from __future__ import annotations

import gc
import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import mapped
from agent_r1_env.bm25 import Index
from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.errors import DataError
from agent_r1_env.hits import Hit, words
from agent_r1_env.questions import hotpotqa
from agent_r1_env.task import Paragraph, Task, TaskSet

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


def corpus_file(folder: Path, rows: list[Any], name: str = "corpus.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


TEXTS = [{"title": title, "text": text} for title, text in BANDS]


@pytest.fixture(params=["in-memory", "saved", "opened-again"])
def indexed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes an index of texts in each of the ways in which there can be one."""

    def make(texts: list[str]) -> Index:
        if request.param == "in-memory":
            return Index([Paragraph("", text) for text in texts])
        file = corpus_file(tmp_path, [{"text": text} for text in texts])
        if request.param == "opened-again":
            Index.open(file, tmp_path / "kept")
            gc.collect()
        return Index.open(file, tmp_path / "kept")

    return make


def texts(hits: list[Hit]) -> list[str]:
    return [hit.text for hit in hits]


def test_asking_for_more_than_there_is_gives_what_there_is(indexed: Any) -> None:
    assert texts(indexed(["red apple", "red pear"]).search("red", 5)) == ["red apple", "red pear"]


def test_equally_good_paragraphs_are_both_found_first(indexed: Any) -> None:
    hits = indexed(["alpha", "beta", "gamma", "rapid beta", "rapid delta", "rapid beta"]).search("rapid", 6)
    assert texts(hits) == ["rapid beta", "rapid delta", "rapid beta"]
    assert hits[0].score == hits[1].score == hits[2].score > 0


@pytest.mark.parametrize("query", ["zebra", "", "the", "\U0001f642", "the zebra \U0001f642"])
def test_a_query_of_unknown_words_finds_nothing(indexed: Any, query: str) -> None:
    assert indexed(["red apple", "green pear"]).search(query, 2) == []


def test_a_corpus_without_words_is_searched_in_vain(indexed: Any) -> None:
    assert indexed(["", ""]).search("text", 2) == []


def test_an_empty_text_is_never_a_hit(indexed: Any) -> None:
    assert texts(indexed(["", "one real text"]).search("one real text", 2)) == ["one real text"]


def test_scores_are_those_of_bm25s(indexed: Any) -> None:
    import bm25s

    corpus = [text for _, text in BANDS]
    theirs = bm25s.BM25(method="lucene", backend="numpy")
    theirs.index([words(text) for text in corpus], show_progress=False)
    for query in ("who is who", "oslo capital", "an english singer"):
        known = [word for word in words(query) if word in theirs.vocab_dict]
        assert indexed(corpus).scores(words(query)).tolist() == theirs.get_scores(known).tolist()


def test_the_best_of_many_are_those_of_a_full_sort() -> None:
    random = np.random.default_rng(0)
    draws = random.zipf(1.3, (12_000, 4)) % 50  # so that many scores are equal
    index = Index([Paragraph("", " ".join(f"w{number}" for number in draw)) for draw in draws])
    for query in (["w1"], ["w1", "w2", "w3"], ["w49"], ["w7", "w7", "w1"], ["w0", "none"]):
        scores = index.scores(query)
        order = np.argsort(-scores, kind="stable")
        for k in (1, 3, 100, 1000, 5000):
            expected = [str(row) for row in order[:k] if scores[row] > 0]
            assert [hit.id for hit in index.search(" ".join(query), k)] == expected


def test_a_saved_index_answers_as_one_in_memory(search: Any, tmp_path: Path) -> None:
    file = corpus_file(tmp_path, TEXTS)
    saved = search.Search(corpus=file, index=tmp_path / "kept", top_k=4)
    here = search.Search(tasks_over(*BANDS), top_k=4)
    for query in ("The Who", "who am i", "beyonce", "capital", "singer oslo", "zebra", "..."):
        assert saved(query) == here(query)


def test_a_corpus_named_in_config_is_searched_in_place_of_the_tasks(search: Any, tmp_path: Path) -> None:
    file = corpus_file(tmp_path, [{"title": "Rome", "text": "The capital of Italy."}])
    assert search.Search(tasks_over(*BANDS), corpus=file)("capital") == "[1] Rome: The capital of Italy."
    assert "Oslo" in search.Search(tasks_over(*BANDS), default_corpus=file)("capital")


def test_nothing_to_search_is_told_when_the_tool_is_made(search: Any) -> None:
    with pytest.raises(ValueError, match="set corpus to a file of paragraphs"):
        search.Search()


def test_several_queries_are_answered_in_their_order(search: Any) -> None:
    tool = search.Search(tasks_over(*BANDS))
    assert tool.batch(["Oslo", "", "zebra"]) == [tool("Oslo"), tool(""), tool("zebra")]


def test_the_tool_alone_searches_the_paragraphs_of_hotpotqa() -> None:
    alone = gym.make("AgentR1/SearchTool-v0")
    inside = gym.make("AgentR1/HotpotQA-v0", source="embedded")
    corpus = inside.unwrapped.tasks.corpus  # type: ignore[attr-defined]
    assert list(alone.unwrapped.tool.run.index.paragraphs) == list(corpus)  # type: ignore[attr-defined]
    alone.reset(seed=0)
    assert alone.step(corpus[0].title)[0].startswith(f"[1] {corpus[0].title}: ")
    alone.close()
    inside.close()


def test_the_tool_alone_is_a_sound_environment() -> None:
    check_env(gym.make("AgentR1/SearchTool-v0", max_calls=2).unwrapped, skip_render_check=True)


def test_an_index_is_built_once_and_then_opened_without_reading_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = corpus_file(tmp_path, TEXTS)
    Index.open(file, tmp_path / "kept")
    gc.collect()

    def never(*_: Any) -> Any:
        raise AssertionError("the corpus was read again")

    for where in ("agent_r1_env.bm25.read_paragraphs", "agent_r1_env.derived.digest"):
        monkeypatch.setattr(where, never)
    assert Index.open(file, tmp_path / "kept").search("Oslo", 1)[0].title == "Oslo"


def folders(kept: Path) -> list[Path]:
    return [path for path in kept.iterdir() if path.is_dir()]


def test_a_touched_corpus_keeps_its_index_and_a_changed_one_gets_another(tmp_path: Path) -> None:
    file, kept = corpus_file(tmp_path, TEXTS), tmp_path / "kept"
    Index.open(file, kept)
    os.utime(file, (1, 1))
    assert len(Index.open(file, kept)) == len(BANDS)
    assert len(folders(kept)) == 1
    corpus_file(tmp_path, [*TEXTS, {"title": "Rome", "text": "A city."}])
    assert Index.open(file, kept).search("rome", 1)[0].text == "A city."
    assert len(folders(kept)) == 2


def test_a_deleted_index_is_built_again(tmp_path: Path) -> None:
    file, kept = corpus_file(tmp_path, TEXTS), tmp_path / "kept"
    Index.open(file, kept)
    gc.collect()
    shutil.rmtree(folders(kept)[0])
    assert Index.open(file, kept).search("oslo", 1)[0].title == "Oslo"


def test_words_whose_hashes_begin_alike_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mapped._hash
    monkeypatch.setattr(mapped, "_hash", lambda text: bytes(8) + whole(text)[8:])
    index = Index.open(corpus_file(tmp_path, TEXTS), tmp_path / "kept")
    assert [hit.title for hit in index.search("Beyoncé", 9)] == ["Beyoncé"]
    assert index.search("zebra", 9) == []


def test_a_damaged_index_is_named_with_the_remedy(tmp_path: Path) -> None:
    file, kept = corpus_file(tmp_path, TEXTS), tmp_path / "kept"
    Index.open(file, kept)
    gc.collect()
    (folders(kept)[0] / "data.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"the saved index is damaged .*; delete it"):
        Index.open(file, kept)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = corpus_file(tmp_path, TEXTS)
    with pytest.raises(DataError, match="cannot keep what is made of .*corpus.jsonl'.*name another folder"):
        Index.open(file, file / "kept")


def test_callers_of_one_process_share_an_index(tmp_path: Path) -> None:
    file = corpus_file(tmp_path, TEXTS)
    opened: list[Index] = []
    threads = [threading.Thread(target=lambda: opened.append(Index.open(file))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    assert len(set(map(id, opened))) == 1


def test_a_saved_index_needs_no_bm25s(tmp_path: Path) -> None:
    """Its numba brings llvmlite, which must not be loaded before vLLM starts."""
    file, kept = corpus_file(tmp_path, TEXTS), tmp_path / "kept"
    Index.open(file, kept)
    code = (
        "import sys; from agent_r1_env.bm25 import Index\n"
        f"print(Index.open({str(file)!r}, {str(kept)!r}).search('oslo', 1)[0].title)\n"
        "print([name for name in ('bm25s', 'numba', 'llvmlite') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout == "Oslo\n[]\n", run.stderr


@pytest.mark.parametrize(
    ("row", "paragraph"),
    [
        pytest.param({"title": "A", "text": "b c"}, Paragraph("A", "b c"), id="title-and-text"),
        pytest.param({"text": "b c"}, Paragraph("", "b c"), id="text-alone"),
        pytest.param({"id": "7", "contents": '"A"\nb\nc'}, Paragraph("A", "b\nc"), id="search-r1"),
        pytest.param({"id": 7, "contents": "A\nb"}, Paragraph("A", "b"), id="search-r1-without-quotes"),
        pytest.param({"contents": "only text"}, Paragraph("", "only text"), id="contents-of-one-line"),
        pytest.param({"title": "A", "contents": "A\nb"}, Paragraph("A", "b"), id="kilt"),
        pytest.param({"title": "A", "contents": "b\nc"}, Paragraph("A", "b\nc"), id="title-and-contents"),
        pytest.param({"title": "\xc9", "text": "\xe9"}, Paragraph("\xc9", "\xe9"), id="unicode"),
        pytest.param({"title": "", "text": ""}, Paragraph("", ""), id="empty"),
    ],
)
@pytest.mark.parametrize("form", ["lines", "list", "zipped"])
def test_corpora_are_read_in_the_forms_they_come_in(
    tmp_path: Path, row: dict[str, Any], paragraph: Paragraph, form: str
) -> None:
    file = tmp_path / "corpus"
    text = json.dumps([row, row], ensure_ascii=False) if form == "list" else f"{json.dumps(row)}\n" * 2
    raw = text.encode("utf-8")
    file.write_bytes(gzip.compress(raw) if form == "zipped" else raw)
    assert list(read_paragraphs(file)) == [paragraph, paragraph]


WRONG_TYPE = b'{"title": "A", "text": "b"}\n{"text": 3}'


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(WRONG_TYPE, r"row 2, key 'text': expected a text, found int", id="type"),
        pytest.param(b'{"title": "A", "txt": "b"}', "did you mean it by 'txt'", id="misspelt"),
        pytest.param(b'{"text": "b"}\n{"text"', "row 2: not JSON", id="broken-json"),
        pytest.param(b'{"text": "b"}\n3\n', "row 2: expected an object, found int", id="no-object"),
        pytest.param(b'{"text": "b"}\n{"text": "\xff"}', "line 2 is not UTF-8", id="not-utf-8"),
        pytest.param(b'{"text": "\\ud800"}', "half of a surrogate pair", id="surrogate"),
        pytest.param(b"\x1f\x8b\x08broken", "broken gzip file", id="broken-gzip"),
        pytest.param(gzip.compress(b'{"text": "b"}\n' * 999)[:-20], "broken gzip file", id="cut-gzip"),
    ],
)
def test_a_wrong_corpus_is_named_with_its_place(tmp_path: Path, raw: bytes, message: str) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_bytes(raw)
    for folder in (None, tmp_path / "kept"):
        with pytest.raises(DataError, match=message):
            Index.open(file, folder)
    assert list((tmp_path / "kept").glob("*")) == []


def test_a_missing_corpus_is_named_with_its_neighbour(tmp_path: Path) -> None:
    corpus_file(tmp_path, TEXTS, "corpus.jsonl")
    with pytest.raises(DataError, match=r"no such file; did you mean 'corpus.jsonl'\?"):
        Index.open(tmp_path / "corpsu.jsonl", tmp_path / "kept")
