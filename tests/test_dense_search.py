"""Tests of search by meaning, with a small encoder in place of a model."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import dense
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.dense import DenseIndex, SentenceTransformer, Settings, load_encoder
from agent_r1_env.errors import CatalogError, DataError, MissingExtra
from agent_r1_env.messages import FailureKind, ToolCall
from agent_r1_env.task import Paragraph, Task, TaskSet
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Toolbox

needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="needs faiss-cpu, of the extra dense")

PAGES = (
    Paragraph("Oslo", "the capital of norway on a fjord"),
    Paragraph("Norway", "a country with oslo"),
    Paragraph("", ""),
    Paragraph("Apple", "a red fruit"),
    Paragraph("Pear", "a green fruit"),
)
FULL = [page for page in PAGES if page.text]
CODE = '''
"""Counts words into 64 numbers; breaks on more than 512 words, as a model with a window would."""
import zlib

WINDOW = 512
calls = []

class Words:
    def __call__(self, texts):
        calls.append(len(texts))
        rows = []
        for text in texts:
            words = text.lower().split()
            if len(words) > WINDOW:
                raise RuntimeError("the text is longer than the window")
            row = [0.0] * 64
            for word in words:
                row[zlib.crc32(word.encode()) % 64] += 1.0
            rows.append(row)
        return rows

    def clamp(self, text):
        words = text.split()
        return text if len(words) <= WINDOW else " ".join(words[:WINDOW])

def bare(texts):
    return Words()(texts)

def flat(texts):
    return [1.0] * len(texts)

def nan(texts):
    return [[float("nan")] for _ in texts]

nothing = 3
'''


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "encoder.py"
    file.write_text(CODE)
    return file


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    rows = [{"title": page.title, "text": page.text} for page in PAGES]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def tool(code: Path, corpus: Path, tmp_path: Path) -> Callable[..., Tool]:
    """Makes the built-in tool over the corpus, with the small encoder."""

    def make(tasks: TaskSet | None = None, **config: Any) -> Tool:
        given = {"encoder": f"{code}:Words", "index": str(tmp_path / "kept"), **config}
        if tasks is None:
            given.setdefault("corpus", str(corpus))
        return load_tool(Catalog.open().tool("dense_search"), tasks, {"config": given})

    return make


def tasks_over(pages: tuple[Paragraph, ...]) -> TaskSet:
    return TaskSet([Task("t", "?", ("x",))], name="T", origin="a test", corpus=pages)


@needs_faiss
def test_the_nearest_paragraphs_come_first(tool: Callable[..., Tool]) -> None:
    assert tool(top_k=1)("red fruit apple") == "[1] Apple: a red fruit"
    assert tool(top_k=2)("fruit").splitlines()[0].startswith(("[1] Apple", "[1] Pear"))


@needs_faiss
def test_asking_for_more_than_there_is_gives_each_once(tool: Callable[..., Tool]) -> None:
    lines = tool(top_k=50)("oslo").splitlines()
    assert len(lines) == len(set(lines)) == len(FULL)


@needs_faiss
def test_places_that_faiss_cannot_fill_are_no_hits(code: Path) -> None:
    """A list of two cells, of which only the nearest is looked into, answers -1 for the rest."""
    settings = Settings(f"{code}:Words", factory="IVF2,Flat")
    index = DenseIndex(settings, load_encoder(settings.encoder), FULL)
    rows = index._vectors.search(dense._unit(settings, index.encode, ["red fruit"]), len(FULL))[1][0]
    assert -1 in rows
    hits, _ = index.search("red fruit", len(FULL))
    assert [hit.id for hit in hits] == [str(row) for row in rows if row >= 0]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(Paragraph(hit.title, hit.text) == FULL[int(hit.id)] for hit in hits)


@needs_faiss
def test_scores_are_cosines_and_stay_with_their_paragraphs(code: Path) -> None:
    settings = Settings(f"{code}:Words")
    index = DenseIndex(settings, load_encoder(settings.encoder), FULL)
    for page in FULL:
        hits, _ = index.search(f"{page.title}\n{page.text}", len(FULL))
        assert hits[0].text == page.text
        assert hits[0].score == pytest.approx(1.0)
        assert all(-1.001 <= hit.score < 0.999 for hit in hits[1:])


@needs_faiss
@pytest.mark.parametrize("pages", [(), (Paragraph("", ""), Paragraph("-", "!"))], ids=["none", "wordless"])
def test_an_empty_corpus_gives_no_hits(tool: Callable[..., Tool], pages: tuple[Paragraph, ...]) -> None:
    assert tool(tasks_over(pages))("oslo").startswith("No paragraph matches 'oslo'")


@needs_faiss
@pytest.mark.parametrize("query", ["", "   ", "?!", "\U0001f642"])
def test_a_query_without_words_is_explained(tool: Callable[..., Tool], query: str) -> None:
    assert "no words" in tool()(query)


@needs_faiss
def test_a_query_longer_than_the_window_is_clamped_with_a_note(tool: Callable[..., Tool]) -> None:
    (result,) = Toolbox([tool()]).run([ToolCall("dense_search", {"query": "fruit " * 20_000}, "0")])
    assert result.error is None
    assert result.content.splitlines()[-1] == "Only the first 512 words of the query were used."


@needs_faiss
def test_an_encoder_that_cannot_clamp_is_given_what_search_uses(
    tool: Callable[..., Tool], code: Path
) -> None:
    found = tool(encoder=f"{code}:bare")("fruit " * 20_000)
    assert found.splitlines()[-1] == "Only the first 256 words of the query were used."


@needs_faiss
def test_prefixes_are_put_before_queries_and_paragraphs(tool: Callable[..., Tool]) -> None:
    found = tool(query_prefix="pear ", passage_prefix="pear ", top_k=1)("pear")
    assert found == "[1] Pear: a green fruit"
    assert tool(query_prefix="apple apple apple ", top_k=1)("fruit") == "[1] Apple: a red fruit"


@needs_faiss
def test_a_saved_index_is_opened_without_encoding_the_corpus(tool: Callable[..., Tool], code: Path) -> None:
    first = tool()("oslo")
    module = sys.modules[type(load_encoder(f"{code}:Words")).__module__]
    module.calls.clear()
    gc.collect()
    assert tool()("oslo") == first
    assert module.calls == [1]


@needs_faiss
def test_another_corpus_encoder_or_setting_is_another_index(
    tool: Callable[..., Tool], code: Path, corpus: Path, tmp_path: Path
) -> None:
    def kept() -> int:
        return sum(path.is_dir() for path in (tmp_path / "kept").iterdir())

    tool()
    tool()
    assert kept() == 1
    tool(passage_prefix="x ")
    tool(encoder=f"{code}:bare")
    assert kept() == 3
    corpus.write_text('{"text": "only this"}\n')
    assert tool()("oslo") == "[1] only this"
    assert kept() == 4


@needs_faiss
def test_a_damaged_index_is_named_with_the_remedy(tool: Callable[..., Tool], tmp_path: Path) -> None:
    tool()
    gc.collect()
    next((tmp_path / "kept").glob("*/vectors.faiss")).write_bytes(b"no index")
    with pytest.raises(CatalogError, match="the saved index is damaged; delete its folder"):
        tool()


@needs_faiss
def test_tasks_are_encoded_once_for_all_tools(tool: Callable[..., Tool]) -> None:
    tasks = tasks_over(PAGES)
    one, other = tool(tasks), tool(tasks)
    assert one.run.index is other.run.index  # type: ignore[attr-defined]
    assert one("red fruit apple").startswith("[1] Apple")


@needs_faiss
def test_the_tool_is_an_environment(code: Path, tmp_path: Path) -> None:
    env = gym.make("AgentR1/DenseSearchTool-v0", encoder=f"{code}:Words", index=str(tmp_path / "kept"))
    env.reset(seed=0)
    assert env.step("Who was born there?")[0].startswith("[1] ")
    env.close()


@needs_faiss
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encoder": "{code}:flat"}, r"made \(4,\) of 4 texts"),
        ({"encoder": "{code}:nan"}, "made NaN or infinity of 4 texts"),
        ({"encoder": "{code}:nothing"}, "is int, not a function of a list of texts"),
        ({"encoder": "{code}:Wrods"}, "did you mean 'Words'"),
        ({"factory": "Falt"}, "FAISS knows no index 'Falt'"),
        ({"top_k": 0}, "top_k must be a whole number above 0"),
        ({"corpus": "/no/such/file"}, "no such file"),
        ({"encodr": "x"}, "did you mean 'encoder'"),
    ],
)
def test_a_mistake_in_config_is_told_when_the_tool_is_made(
    tool: Callable[..., Tool], code: Path, config: dict[str, Any], message: str
) -> None:
    given = {
        key: value.replace("{code}", str(code)) if isinstance(value, str) else value
        for key, value in config.items()
    }
    with pytest.raises(CatalogError, match=message):
        tool(**given)


@needs_faiss
def test_an_encoder_that_fails_is_an_error_for_the_model(tool: Callable[..., Tool], code: Path) -> None:
    made = tool(encoder=f"{code}:bare")
    made.run.index.encode = lambda texts: 1 / 0  # type: ignore[attr-defined]
    (result,) = Toolbox([made]).run([ToolCall("dense_search", {"query": "oslo"}, "0")])
    assert result.error is FailureKind.TOOL_ERROR


@pytest.mark.parametrize("package", ["faiss", "sentence_transformers"])
def test_a_missing_package_names_the_line_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    line = rf"{package} is not installed; run: pip install 'agent-r1-env\[dense\]'"
    with pytest.raises(MissingExtra, match=line):
        if package == "faiss":
            DenseIndex(Settings("x"), lambda texts: [[1.0] for _ in texts], FULL)
        else:
            SentenceTransformer("some/model")


class Model:
    """What ``SentenceTransformer`` uses of a model of that package."""

    max_seq_length = 8

    def __init__(self, name: str, device: str | None, local_files_only: bool) -> None:
        if local_files_only:
            raise OSError(f"no {name} here\nmore of it")
        self.tokenizer = self

    def encode(self, texts: list[str], show_progress_bar: bool, convert_to_numpy: bool) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]

    def num_special_tokens_to_add(self) -> int:
        return 2

    def __call__(self, text: str, add_special_tokens: bool, verbose: bool) -> dict[str, list[str]]:
        return {"input_ids": text.split()}

    def decode(self, ids: list[str], skip_special_tokens: bool) -> str:
        return " ".join(ids)


def test_a_model_reads_no_more_than_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("sentence_transformers")
    module.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    model = SentenceTransformer("some/model", download=True)
    assert model.clamp("a b c d e f") == "a b c d e f"
    assert model.clamp("a b c d e f g") == "a b c d e f"
    assert model(["abc"]) == [[3.0, 1.0]]


def test_a_model_is_not_fetched_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("sentence_transformers")
    module.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    with pytest.raises(DataError, match="no some/model here; download it first, or set download: true"):
        SentenceTransformer("some/model")
