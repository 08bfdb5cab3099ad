"""Tests of the sources of tasks: forms, their order, mistakes in files."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import sources
from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.datafile import read_rows
from agent_r1_env.errors import DataError, MissingExtra, UnknownName
from agent_r1_env.questions import hotpotqa
from agent_r1_env.task import Paragraph, SyntheticDataWarning, Task


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)


def official(number: int = 1, **changes: Any) -> dict[str, Any]:
    row = {
        "_id": f"q{number}",
        "question": f"Question {number}?",
        "answer": f"Answer {number}",
        "supporting_facts": [["Alpha", 0], ["Beta", 1]],
        "context": [["Alpha", ["First.", " Second."]], ["Beta", ["Third.", " Fourth.", " Fifth."]]],
        "type": "bridge",
        "level": "hard",
    }
    row.update(changes)
    return {key: value for key, value in row.items() if value is not None}


def hub_form(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["_id"],
        "question": row["question"],
        "answer": row["answer"],
        "type": row["type"],
        "supporting_facts": {
            "title": [title for title, _ in row["supporting_facts"]],
            "sent_id": [number for _, number in row["supporting_facts"]],
        },
        "context": {
            "title": [title for title, _ in row["context"]],
            "sentences": [sentences for _, sentences in row["context"]],
        },
    }


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


EXPECTED = Task(
    "q1",
    "Question 1?",
    ("Answer 1",),
    (("Alpha", 0), ("Beta", 1)),
    "bridge",
    {"sentences": {"Alpha": 2, "Beta": 3}},
)
PARAGRAPHS = (Paragraph("Alpha", "First. Second."), Paragraph("Beta", "Third. Fourth. Fifth."))


@pytest.mark.parametrize(
    "form", [official, lambda number: hub_form(official(number))], ids=["official", "hub"]
)
@pytest.mark.parametrize("as_lines", [False, True], ids=["list", "lines"])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_every_form_gives_the_same_tasks(tmp_path: Path, form: Any, as_lines: bool, zipped: bool) -> None:
    rows = [form(number) for number in (1, 2)]
    text = lines(rows) if as_lines else json.dumps(rows)
    file = tmp_path / "data.json"
    file.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())

    tasks = hotpotqa(data=file)

    assert [task.id for task in tasks] == ["q1", "q2"]
    assert tasks[0] == EXPECTED
    assert tasks.corpus == PARAGRAPHS
    assert not tasks.synthetic
    assert str(file) in tasks.origin


def test_sentences_without_their_own_space_get_one(tmp_path: Path) -> None:
    row = official(context=[["Alpha", ["First.", "Second."]], ["Beta", ["Third.", " Fourth.", "Fifth."]]])
    assert hotpotqa(data=write(tmp_path / "d.json", [row])).corpus[0].text == "First. Second."


def test_a_stray_fragment_keeps_the_spelling_of_its_file(tmp_path: Path) -> None:
    row = official(context=[["Alpha", ["He left", "."]], ["Beta", ["Third.", " Fourth.", " Fifth."]]])
    assert hotpotqa(data=write(tmp_path / "d.json", [row])).corpus[0].text == "He left."


def test_a_supporting_fact_out_of_range_is_kept(tmp_path: Path) -> None:
    row = official(supporting_facts=[["Alpha", 99], ["Nowhere", 0]])
    assert hotpotqa(data=write(tmp_path / "d.json", [row]))[0].supporting == (("Alpha", 99), ("Nowhere", 0))


def test_the_corpus_can_be_a_file_of_its_own(tmp_path: Path) -> None:
    data = write(tmp_path / "d.json", [official(context=None)])
    pages = [{"id": 0, "title": "Gamma", "text": "Sixth."}, {"title": "Delta", "text": "Seventh."}]
    for corpus in (write(tmp_path / "c.jsonl", lines(pages)), write(tmp_path / "c.json", pages)):
        tasks = hotpotqa(data=data, corpus=corpus)
        assert tasks.corpus == (Paragraph("Gamma", "Sixth."), Paragraph("Delta", "Seventh."))
        assert str(corpus) in tasks.origin


def test_equal_arguments_share_one_set_until_the_file_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "d.json", [official(1)])
    first = hotpotqa(data=file)
    assert hotpotqa(data=str(file)) is first
    write(file, [official(1), official(2)])
    assert len(hotpotqa(data=file)) == 2


# Mistakes: (content of the file, row, key, part of the message)
MISTAKES = [
    pytest.param("", None, None, "empty", id="empty-file"),
    pytest.param(" \n\n", None, None, "empty", id="blank-file"),
    pytest.param("[]", None, None, "empty", id="empty-list"),
    pytest.param("[{]", None, None, "line 1, column 3", id="not-json"),
    pytest.param("hello", 1, None, "line 1, column 1", id="text"),
    pytest.param(lines([official(1)]) + '{"_id": "q2"', 2, None, "line 2", id="torn-line"),
    pytest.param(json.dumps({"data": [official()]}, indent=1), None, None, "one JSON object", id="object"),
    pytest.param('{"data": []}', 1, "_id", "no '_id' or 'id'", id="object-in-a-line"),
    pytest.param("[[1, 2]]", 1, None, "expected an object, found list", id="list-of-lists"),
    pytest.param('"text"\n', 1, None, "expected an object, found str", id="line-is-text"),
    pytest.param([official(1), official(2, answer=None)], 2, "answer", "no 'answer'", id="no-answer"),
    pytest.param([official(answer=None, awnser="x")], 1, "answer", "'awnser'", id="misspelt-key"),
    pytest.param([official(answer="  ")], 1, "answer", "blank", id="blank-answer"),
    pytest.param([official(answer=7)], 1, "answer", "found int", id="number-as-answer"),
    pytest.param([official(question=None)], 1, "question", "no 'question'", id="no-question"),
    pytest.param([official(question="\ud800?")], 1, "question", "surrogate", id="lone-surrogate"),
    pytest.param([official(1), official(1)], 2, "_id", "'q1'", id="same-id-twice"),
    pytest.param([official(context=None)], 1, "context", "no 'context'", id="no-context"),
    pytest.param([official(context="x")], 1, "context", "list of", id="context-is-text"),
    pytest.param([official(context=[["Alpha"]])], 1, "context", "title, sentences", id="context-not-pairs"),
    pytest.param([official(context=[["Alpha", [1]]])], 1, "context", "texts", id="sentences-not-texts"),
    pytest.param([official(context=[["Alpha", "x"]])], 1, "context", "list", id="sentences-in-one"),
    pytest.param([official(supporting_facts=[["A", "0"]])], 1, "supporting_facts", "int", id="fact-is-text"),
    pytest.param(
        [official(supporting_facts={"title": ["A"], "sent_id": []})],
        1,
        "supporting_facts",
        "length",
        id="columns",
    ),
]


@pytest.mark.parametrize(("content", "row", "key", "message"), MISTAKES)
def test_a_mistake_in_a_file_names_file_row_and_key(
    tmp_path: Path, content: Any, row: int | None, key: str | None, message: str
) -> None:
    file = write(tmp_path / "data.json", content)
    with pytest.raises(DataError, match=message) as caught:
        hotpotqa(data=file)
    assert (str(caught.value.file), caught.value.row, caught.value.key) == (str(file), row, key)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_its_nearest_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "hotpot_dev.json", [official()])
    with pytest.raises(DataError, match="no such file; did you mean 'hotpot_dev.json'"):
        hotpotqa(data=tmp_path / "hotpto_dev.json")
    with pytest.raises(DataError, match="folder .* does not exist"):
        hotpotqa(data=tmp_path / "nowhere" / "hotpot_dev.json")


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(lines([official(1)]).encode() + b'{"_id": "\xff"}')
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        hotpotqa(data=file)


def test_a_broken_gzip_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "data.json.gz"
    file.write_bytes(gzip.compress(json.dumps([official()]).encode())[:-12])
    with pytest.raises(DataError, match="broken gzip file"):
        hotpotqa(data=file)
    with pytest.raises(DataError, match="cannot be read"):
        hotpotqa(data=tmp_path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps([official()]).encode())
    assert hotpotqa(data=file)[0] == EXPECTED


def test_a_corpus_mistake_names_its_row(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", lines([{"title": "A", "text": "x"}, {"title": "B"}]))
    with pytest.raises(DataError, match="no 'text'") as caught:
        list(read_paragraphs(file))
    assert caught.value.row == 2


def test_the_variable_may_name_a_file_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "validation.json", [official(5)])
    for place in (file, tmp_path):
        monkeypatch.setenv("AGENT_R1_HOTPOTQA", str(place))
        tasks = hotpotqa("validation", embedded=tmp_path / "unused")
        assert tasks[0].id == "q5"
        assert "AGENT_R1_HOTPOTQA" in tasks.origin
    write(tmp_path / "corpus.jsonl", lines([{"title": "Gamma", "text": "Sixth."}]))
    assert hotpotqa("validation").corpus == (Paragraph("Gamma", "Sixth."),)
    with pytest.raises(DataError, match=r"holds none of train\.json"):
        hotpotqa("train")


def test_a_path_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_R1_HOTPOTQA", str(tmp_path / "absent.json"))
    assert hotpotqa(data=write(tmp_path / "d.json", [official(7)]))[0].id == "q7"


def test_the_embedded_set_warns_once_that_it_is_synthetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "validation.json.gz").write_bytes(gzip.compress(json.dumps([official()]).encode()))
    sources._warn_synthetic.cache_clear()
    with pytest.warns(SyntheticDataWarning, match="synthetic.*source='hub'") as caught:
        tasks = hotpotqa(embedded=tmp_path)
    assert caught[0].filename == __file__
    assert tasks.synthetic
    assert "synthetic" in tasks.origin
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hotpotqa(embedded=tmp_path) is tasks
    monkeypatch.setenv("AGENT_R1_HOTPOTQA", str(tmp_path / "absent.json"))
    assert hotpotqa(source="embedded", embedded=tmp_path) is tasks


def test_an_embedded_folder_may_hold_lines_and_a_corpus(tmp_path: Path) -> None:
    rows = [official(1, context=None), official(2, context=None)]
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(lines(rows).encode()))
    pages = lines([{"title": "Gamma", "text": "Sixth."}])
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(pages.encode()))
    tasks = hotpotqa("train", embedded=tmp_path)
    assert [task.id for task in tasks] == ["q1", "q2"]
    assert tasks.corpus == (Paragraph("Gamma", "Sixth."),)
    assert "corpus.jsonl.gz" in tasks.origin
    with pytest.raises(DataError, match=r"HotpotQA holds none of validation\.json, .*hotpot_dev"):
        hotpotqa("validation", embedded=tmp_path)


def test_a_data_set_of_ones_own_is_a_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = sources.DataSet(
        name="Sums",
        variable="MY_SUMS",
        files={"train": [], "test": ["exam"]},
        task=lambda row: Task(f"sum-{row.number}", row.text("sum"), row.texts("result")),
    )
    rows = [{"sum": "1 + 1", "result": "2"}, {"sum": "2 + 2", "result": ["4", "four"]}]
    monkeypatch.setenv("MY_SUMS", str(write(tmp_path / "exam.jsonl", lines(rows)).parent))
    tasks = sources.load(sums, "test")
    assert [(task.id, task.answers) for task in tasks] == [("sum-1", ("2",)), ("sum-2", ("4", "four"))]
    assert (tasks.name, tasks.corpus) == ("Sums test", ())
    with pytest.raises(UnknownName, match="no split named 'validation' in Sums"):
        sources.load(sums)
    with pytest.raises(DataError, match="Sums is not on the Hugging Face Hub"):
        sources.load(sums, "test", source="hub")
    monkeypatch.delenv("MY_SUMS")
    with pytest.raises(DataError, match="no data of Sums were given: set data= or MY_SUMS$"):
        sources.load(sums, "test")


def test_wrong_arguments_name_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no split named 'valid'.*validation"):
        hotpotqa("valid")
    with pytest.raises(UnknownName, match="no source named 'hubb'; did you mean 'hub'"):
        hotpotqa(source="hubb")
    with pytest.raises(DataError, match="exclude each other"):
        hotpotqa(data=tmp_path / "d.json", source="hub")
    with pytest.raises(DataError, match="no data of HotpotQA were given"):
        hotpotqa()


def test_the_hub_is_read_in_its_own_form(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    asked = []

    class Loaded(list[dict[str, Any]]):
        dataset_size = 1000

    def load_dataset(name: str, config: str, split: str) -> Loaded:
        asked.append((name, config, split))
        return Loaded([hub_form(official(1))])

    fake = types.ModuleType("datasets")
    fake.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    sources._from_hub.cache_clear()
    tasks = hotpotqa("train", source="hub")
    assert tasks[0] == EXPECTED
    assert asked == [("hotpotqa/hotpot_qa", "distractor", "train")]
    assert "Hugging Face Hub" in tasks.origin

    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    fake.load_dataset = offline  # type: ignore[attr-defined]
    sources._from_hub.cache_clear()
    with pytest.raises(DataError, match="cannot load hotpotqa/hotpot_qa .*ConnectionError: no route$"):
        hotpotqa("train", source="hub")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="pip install"):
        hotpotqa("train", source="hub")


def test_rows_keep_their_line_numbers_over_blank_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "d.jsonl", '\n{"a": 1}\n\n{"a": 2}\n')
    assert [row.number for row in read_rows(file)] == [2, 4]
