"""Tests of rows in parquet files."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.datafile import read_rows
from agent_r1_env.errors import DataError, MissingExtra
from agent_r1_env.parquet import ParquetRows
from agent_r1_env.questions import gsm8k, hotpotqa, musique
from agent_r1_env.streaming import StreamedTaskSet

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOTPOTQA", "MUSIQUE", "GSM8K"):
        monkeypatch.delenv(f"AGENT_R1_{name}", raising=False)


def write(path: Path, rows: list[dict[str, Any]], group: int = 3) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=group)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sums = [{"question": f"{number} + 1?", "answer": f"#### {number + 1}"} for number in range(10)]
    return write(tmp_path / "rows.parquet", sums)


def test_rows_are_found_in_every_row_group(file: Path) -> None:
    rows = ParquetRows(file)
    assert len(rows) == 10
    assert [rows[number].data["question"] for number in (9, 0, 4, 3, 2, -1)] == [
        f"{number} + 1?" for number in (9, 0, 4, 3, 2, 9)
    ]
    assert [row.number for row in rows] == list(range(1, 11))
    assert rows[2:5] == [rows[2], rows[3], rows[4]] == list(rows)[2:5]
    assert read_rows(file) == list(rows)
    for bad in (10, -11):
        with pytest.raises(IndexError):
            rows[bad]


def test_tasks_of_parquet_are_held_or_streamed(file: Path) -> None:
    held, streamed = (gsm8k("train", data=file, streaming=streaming) for streaming in (False, True))
    assert isinstance(streamed, StreamedTaskSet)
    assert list(streamed) == list(held)
    assert streamed.index_of("gsm8k-7") == 6
    assert pickle.loads(pickle.dumps(streamed))[6] == held[6]


@pytest.mark.parametrize(
    ("load", "real"),
    [
        (hotpotqa, "hotpotqa/hotpot_qa_hf_validation_sample.jsonl"),
        (musique, "musique/musique_ans_train_sample.jsonl"),
    ],
)
def test_real_rows_survive_the_way_through_parquet(
    shared_data: Path, tmp_path: Path, load: Any, real: str
) -> None:
    there = load(data=shared_data / real)
    rows = [row.data for row in read_rows(shared_data / real)]
    back = load(data=write(tmp_path / "rows.parquet", rows, group=16), streaming=True)
    assert list(back) == list(there)
    assert back.corpus == there.corpus


def test_the_row_group_that_is_held_is_not_pickled(tmp_path: Path) -> None:
    rows = ParquetRows(
        write(tmp_path / "rows.parquet", [{"a": f"{n}" * 1000} for n in range(300)], group=300)
    )
    small = len(pickle.dumps(rows))
    assert rows[299].number == 300
    assert len(pickle.dumps(rows)) == small < 2000


def test_a_folder_may_hold_parquet_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.rename(file.parent / "train.parquet")
    monkeypatch.setenv("AGENT_R1_GSM8K", str(file.parent))
    assert len(gsm8k("train")) == 10


def test_a_corpus_may_be_parquet(tmp_path: Path) -> None:
    file = write(tmp_path / "corpus.parquet", [{"title": "A", "text": "x"}, {"title": "B", "text": "y"}])
    assert [page.text for page in read_paragraphs(file)] == ["x", "y"]


def test_a_mistake_in_a_row_names_it(tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "answer": "#### 2"}, {"question": "2 + 2?", "answer": "four"}]
    file = write(tmp_path / "rows.parquet", rows)
    with pytest.raises(DataError, match="row 2, key 'answer'"):
        gsm8k("train", data=file)


def test_broken_empty_and_changed_files_are_reported(tmp_path: Path, file: Path) -> None:
    rows = ParquetRows(file)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet: broken parquet file: .*footer"):
        read_rows(cut)
    with pytest.raises(DataError, match="no rows"):
        ParquetRows(write(tmp_path / "empty.parquet", [{"a": 1}][:0]))
    with pytest.raises(DataError, match="no such file"):
        ParquetRows(tmp_path / "absent.parquet")
    write(file, [{"question": "?", "answer": "#### 1"}])
    with pytest.raises(DataError, match="has changed"):
        rows[0]


def test_without_pyarrow_the_pip_line_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtra, match=r"pyarrow is not installed; run: pip install 'agent-r1-env\[hub\]'"
    ):
        gsm8k("test", data=file)
