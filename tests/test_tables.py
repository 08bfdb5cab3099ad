"""Tests of tables: who stands in which cell, and that every format holds what was meant."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from evaluations import evaluation
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.cli import main
from agent_r1_env.errors import UnknownName
from agent_r1_env.measures import measure, names
from agent_r1_env.statistics import Interval
from agent_r1_env.summary import Evaluation
from agent_r1_env.tableformats import as_latex, as_markdown, as_text, by_suffix, write
from agent_r1_env.tables import Cell, Table, records, tables

HOTPOTQA, MUSIQUE, TWOWIKI = (f"AgentR1/{name}-v0" for name in ("HotpotQA", "MuSiQue", "2WikiMultihopQA"))
HOSTILE = [
    r"a_b & 50% $x$ #1 {y} ~ ^ \ <>|",
    "[2pt] begins",
    "*star",
    r"\input{x}",
    "tab\tnew\nline\x00",
    "x---y --model",
    "`quoted` \"double\" 'single'",
    r"\end{tabular}%",
    "}{",
    "naïve café 日本",
]


def shown(table: Table) -> dict[str, list[str | None]]:
    """The means of a table, by row."""
    return {
        name: [None if cell.value is None else f"{cell.value.mean:.2f}" for cell in cells]
        for name, cells in table.rows
    }


def one(*evaluations: Evaluation, metric: str = "exact_match") -> Table:
    (table,) = tables(evaluations, [metric])
    return table


def table_of(name: str) -> Table:
    cells = (Cell(Interval(0.5, 0.4, 0.6), best=True), Cell(None), Cell(Interval(*[float("nan")] * 3)))
    return Table(f"T {name}", f"C {name}", (name, "b", "c"), ((name, cells), ("second", cells)), (name,))


# -- methods by data sets


def test_rows_are_methods_and_columns_data_sets_with_their_mean() -> None:
    found = one(
        evaluation([1, 0], method="tool_call"),
        evaluation([0, 0], method="direct"),
        evaluation([1, 1, 1, 0], method="tool_call", env_id=MUSIQUE),
        evaluation([1, 0, 0, 0], method="direct", env_id=MUSIQUE),
    )
    assert (found.title, found.corner) == ("Exact match of model", "Method")
    assert found.columns == ("HotpotQA", "MuSiQue", "Avg")
    assert shown(found) == {"Direct": ["0.00", "0.25", "0.12"], "Tool call": ["0.50", "0.75", "0.62"]}
    assert list(shown(found)) == ["Direct", "Tool call"]


def test_columns_are_in_the_published_order_whatever_comes_first() -> None:
    wiki, hotpot, own = (evaluation([1], env_id=each) for each in (TWOWIKI, HOTPOTQA, "Me/Trip-v0"))
    assert one(own, wiki, hotpot).columns == ("HotpotQA", "2WikiMultihopQA", "Trip", "Avg")
    assert one(hotpot, own, wiki).columns == ("HotpotQA", "2WikiMultihopQA", "Trip", "Avg")


def test_a_missing_cell_leaves_no_average() -> None:
    found = one(
        evaluation([1], policy="a"), evaluation([0], policy="a", env_id=MUSIQUE), evaluation([1], policy="b")
    )
    assert shown(found) == {"a": ["1.00", "0.00", "0.50"], "b": ["1.00", None, None]}
    assert re.search(r"^b .* - +-$", as_text(found), re.MULTILINE)


def test_one_data_set_has_no_average() -> None:
    assert one(evaluation([1]), evaluation([0], policy="b")).columns == ("HotpotQA",)


def test_rows_name_no_more_than_tells_them_apart() -> None:
    def labels(*evaluations: Evaluation) -> list[str]:
        return [name for name, _ in one(*evaluations).rows]

    assert labels(evaluation([1])) == ["model"]
    assert labels(evaluation([1], method="direct"), evaluation([1])) == ["Direct", "Tool call"]
    assert labels(evaluation([1], policy="a", method="direct"), evaluation([1])) == [
        "a, Direct",
        "model, Tool call",
    ]
    assert labels(evaluation([1]), evaluation([1], seed=1)) == ["model, seed 0", "model, seed 1"]
    assert labels(evaluation({"q": [1, 0]}), evaluation([1]), evaluation([1], policy="b")) == [
        "model, samples 2",
        "model, samples 1",
        "b",
    ]
    assert labels(evaluation([1]), evaluation([1])) == ["model, run 1", "model, run 2"]


def test_synthetic_data_is_a_column_of_its_own_and_said() -> None:
    made = evaluation([1], data="the embedded synthetic file 'dev.json.gz'", synthetic=True)
    found = one(evaluation([0]), made)
    assert found.columns == ("HotpotQA", "HotpotQA (synthetic)", "Avg")
    assert any("made by a script" in note for note in found.notes)


def test_other_data_of_one_environment_is_another_column() -> None:
    found = one(evaluation([1]), evaluation([0], data="the file 'train.json'"))
    assert found.columns[:2] == (f"{HOTPOTQA}: the file 'dev.json'", f"{HOTPOTQA}: the file 'train.json'")


def test_a_file_is_the_same_in_another_folder() -> None:
    paths = ("the file '/home/a b/dev.json'", "the file '../dev.json'", "the file 'dev.json'")
    assert one(*(evaluation([1], data=path) for path in paths)).columns == ("HotpotQA",)


def test_the_best_of_each_column_is_marked() -> None:
    def best(metric: str, **row: Any) -> list[bool]:
        low = evaluation([0, 0], policy="low", row={**row, "truncated": True, "invalid_calls": 2})
        high = evaluation([1, 0], policy="high", row=row)
        return [cells[0].best for _, cells in one(low, high, metric=metric).rows]

    assert best("exact_match") == [False, True]
    assert best("truncation_rate") == [False, True]
    assert best("invalid_call_rate") == [False, True]
    assert best("steps") == [False, False]
    assert best("reward", reward=1.0) == [True, True]


def test_nothing_is_best_of_one() -> None:
    assert not one(evaluation([1])).rows[0][1][0].best


def test_what_failed_and_how_many_tasks_are_said() -> None:
    lost = evaluation([1, 1], policy="b", row={"error": "gone"})
    notes = " ".join(one(evaluation({"q": [1, 0], "r": [1, 1]}), lost).notes)
    assert "Tasks: HotpotQA 0 to 2 with 1 to 2 samples each." in notes
    assert "2 episodes failed" in notes


def test_pass_at_k_says_what_passes() -> None:
    found = one(evaluation({"q": [1.0, 0.0]}), metric="pass@2")
    assert shown(found) == {"model": ["1.00"]}
    assert "A sample passes if its reward is 1 (HotpotQA)." in found.notes


# -- the long form


def test_a_single_run_shows_all_of_its_measures() -> None:
    found = evaluation({"q": [1, 0]}, official={"q": {"sp_f1": 0.5}})
    (table,) = tables([found])
    assert [name for name, _ in table.rows] == names(found)
    assert {"official/sp_f1", "pass@2", "steps", "invalid_call_rate"} <= shown(table).keys()
    assert table.columns == ("model, HotpotQA",)


def test_the_long_form_has_a_column_for_each_run() -> None:
    (table,) = tables([evaluation([1]), evaluation([0], policy="b")], ["f1", "steps"], long=True)
    assert table.columns == ("model, HotpotQA", "b, HotpotQA")
    assert shown(table) == {"f1": ["0.75", "0.25"], "steps": ["3.00", "3.00"]}


def test_several_runs_show_a_table_for_each_headline() -> None:
    found = tables([evaluation([1]), evaluation([0], policy="b")])
    assert [table.title for table in found] == ["Exact match", "F1"]


def test_a_measure_that_no_run_has_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'exact_match'"):
        tables([evaluation([1])], ["exact_mach"])
    with pytest.raises(UnknownName, match="no metric named 'joint'"):
        records([evaluation([1])], ["joint"])


# -- formats


def test_csv_and_json_give_every_number_back() -> None:
    found = [evaluation({"q": [1, 0], "r": [0, 0]}, policy='a "b", c\nd'), evaluation([0.3, 1 / 3], seed=3)]
    expected = [(each.policy, each.seed, name, measure(each, name)) for each in found for name in names(each)]
    rows = list(csv.DictReader(io.StringIO(write(found, "csv"))))
    assert expected == [
        (
            row["policy"],
            int(row["seed"]),
            row["metric"],
            Interval(*(float(row[x]) for x in ("mean", "low", "high"))),
        )
        for row in rows
    ]
    data = json.loads(write(found, "json"))
    assert expected == [
        (row["policy"], row["seed"], row["metric"], Interval(row["mean"], row["low"], row["high"]))
        for row in data
    ]
    assert [{name: str(value) for name, value in row.items()} for row in data] == rows
    assert json.loads(write(found, "json", ["f1"])) == [row for row in data if row["metric"] == "f1"]


def test_what_is_not_known_is_empty_or_null() -> None:
    lost = evaluation([1], row={"error": "gone"})
    (row,) = csv.DictReader(io.StringIO(write([lost], "csv", ["reward"])))
    assert (row["tasks"], row["failed"], row["mean"], row["low"]) == ("0", "1", "", "")
    assert json.loads(write([lost], "json", ["reward"]))[0]["mean"] is None
    assert re.search(r"reward +-$", write([lost], "text"), re.MULTILINE)


def test_text_lines_up() -> None:
    found = one(
        evaluation([1, 0]), evaluation([0] * 4, env_id=MUSIQUE, policy="日本語"), metric="exact_match"
    )
    assert as_text(found).splitlines()[:6] == [
        "Exact match",
        "",
        "Method              HotpotQA               MuSiQue  Avg",
        "-------------------------------------------------------",
        "model   0.500 [0.095, 0.905]                     -    -",
        "日本語                     -  0.000 [0.000, 0.490]    -",
    ]


def test_notes_stand_once_below_several_tables() -> None:
    text = write([evaluation([1]), evaluation([0], policy="b")], "text")
    assert text.count("In brackets") == 1
    assert text.splitlines()[-1].startswith("Tasks: ")


def test_markdown_is_a_table_with_the_best_in_bold() -> None:
    found = one(evaluation([1, 0], policy="a_b"), evaluation([0, 0], policy="c|d"))
    assert as_markdown(found).splitlines()[2:6] == [
        "| Method | HotpotQA |",
        "| --- | ---: |",
        r"| a\_b | **0.500** [0.095, 0.905] |",
        r"| c\|d | 0.000 [0.000, 0.658] |",
    ]


def test_latex_is_a_table_with_the_best_in_bold() -> None:
    found = one(evaluation([1, 0], policy="a_b"), evaluation([0, 0], policy="[c]"))
    lines = as_latex(found).splitlines()
    assert lines[-6:-2] == [
        r"    \midrule",
        r"    a\_b & \textbf{0.500} {\footnotesize [0.095, 0.905]} \\",
        r"    {[}c] & 0.000 {\footnotesize [0.000, 0.658]} \\",
        r"    \bottomrule",
    ]
    assert r"95 \%" in lines[3]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_one_cell(name: str) -> None:
    table = table_of(name)
    assert_sound_latex(as_latex(table))
    for line in as_markdown(table).splitlines()[2:6]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 5, line
    assert len(as_text(table).splitlines()) == 8


@given(st.text(max_size=30))
def test_any_name_is_sound_latex(name: str) -> None:
    assert_sound_latex(as_latex(table_of(name)))


def assert_sound_latex(text: str) -> None:
    """Braces pair up, and nothing but our own commands and separators is left unescaped."""
    plain = re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", text)  # what escaping writes
    assert not re.search(r"[$#_~^<>|\"`]|--|\\\\[ \n]*[\[*]", plain)
    assert plain.count("{") == plain.count("}")
    commands = {*re.findall(r"\\[a-zA-Z]+", plain)}
    assert commands <= {
        *(r"\begin", r"\end", r"\caption", r"\centering", r"\textbf", r"\footnotesize", r"\usepackage"),
        *(r"\toprule", r"\midrule", r"\bottomrule"),
    }
    body = [line for line in plain.splitlines() if line.endswith(r"\\")]
    assert [line.count("&") for line in body] == [3, 3, 3]
    assert "%" not in plain.partition("\n")[2]


def test_characters_beyond_latin_ask_for_another_latex() -> None:
    assert "pdfLaTeX" not in as_latex(table_of("日本"))
    assert "LuaLaTeX" in as_latex(table_of("日本"))
    assert "LuaLaTeX" not in as_latex(table_of("Zürich"))


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("a.csv", "csv"),
        ("a.TEX", "latex"),
        ("a.md", "markdown"),
        ("x/a.json", "json"),
        ("a", "text"),
        (None, "text"),
    ],
)
def test_the_ending_of_a_file_names_the_format(file: str | None, form: str) -> None:
    assert by_suffix(file) == form


# -- the command line


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with runs of two policies."""
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)
    for policy in ("oracle", "naive"):
        assert (
            main(["eval", HOTPOTQA, "--policy", policy, "--n", "6", "--output", str(tmp_path / policy)]) == 0
        )
    capsys.readouterr()
    return tmp_path


def test_the_command_shows_runs_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "table", str(runs / "oracle"), str(runs / "naive"), "--metric", "f1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "F1"
    assert lines[2].split() == ["Method", "HotpotQA", "(synthetic)"]
    assert [line.split()[0] for line in lines[4:6]] == ["oracle", "naive"]
    assert main(["eval", "table", str(runs), "--json", "--metric", "official/joint_f1"]) == 0
    assert {row["policy"] for row in json.loads(capsys.readouterr().out)} == {"oracle", "naive"}


def test_the_command_writes_a_file_in_the_format_of_its_ending(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = runs / "table.tex"
    assert main(["eval", "table", str(runs), "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"written to {file}\n"
    assert file.read_text().count(r"\toprule") == 3
    assert main(["eval", "table", str(runs), "--out", str(file), "--format", "csv"]) == 0
    assert file.read_text().startswith("env_id,")


def test_an_evaluation_is_shown_in_every_format(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["eval", HOTPOTQA, "--policy", "oracle", "--n", "3"]
    begins = {"csv": "env_id,", "markdown": "**Measures**", "latex": "% needs", "json": "{", "text": HOTPOTQA}
    for form, start in begins.items():
        assert main([*asked, "--format", form]) == 0
        assert capsys.readouterr().out.startswith(start)
    file = runs / "report.json"
    assert main([*asked, "--out", str(file)]) == 0
    assert json.loads(file.read_text())["n"] == 3


def test_several_methods_end_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", HOTPOTQA, "--policy", "random", "--n", "3", "--method", "direct,tool_call"]) == 0
    out = capsys.readouterr().out
    assert "Exact match of random" in out
    assert re.search(r"^Direct +0", out, re.MULTILINE)


@pytest.mark.parametrize("command", [["table", "{runs}"], [HOTPOTQA, "--policy", "oracle", "--n", "1"]])
def test_a_file_that_cannot_be_is_refused_before_anything_runs(
    runs: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    command = [part.format(runs=runs) for part in command]
    assert main(["eval", *command, "--out", str(runs)]) == 2
    assert "a folder is there; --out takes a file" in capsys.readouterr().err
    assert main(["eval", *command, "--out", str(runs / "absent" / "x.csv")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_command_that_is_misspelt_is_no_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "tabel", "runs"])
    assert "'tabel' is no environment; did you mean agent-r1 eval table?" in capsys.readouterr().err


@pytest.mark.filterwarnings("always:.*not complete")
def test_a_run_that_stopped_is_shown_with_a_warning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = runs / "oracle" / "episodes.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    assert main(["eval", "table", str(runs), "--metric", "f1"]) == 0
    out, err = capsys.readouterr()
    assert "not complete: 2 of 6 episodes" in err
    assert "Tasks: HotpotQA (synthetic) 2 to 6." in out
