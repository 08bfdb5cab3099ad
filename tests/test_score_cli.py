"""``agent-r1 score``, as a person uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: Any) -> tuple[int, str, str]:
        status = main(["score", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two HotpotQA questions; one prediction is right, the other is missing."""
    golds = [
        {"_id": "q-one", "answer": "Oslo", "supporting_facts": [["Oslo", 0]]},
        {"_id": "q-two", "answer": "Bergen", "supporting_facts": [["Bergen", 1]]},
    ]
    predictions = {"answer": {"q-one": "Oslo"}, "sp": {"q-one": [["Oslo", 0]], "q-two": []}}
    gold, said = tmp_path / "gold.json", tmp_path / "said.json"
    gold.write_text(json.dumps(golds))
    said.write_text(json.dumps(predictions))
    return said, gold


def test_metrics_come_as_json_with_what_is_missing(run: Run, files: tuple[Path, Path]) -> None:
    said, gold = files
    status, out, err = run("--dataset", "hotpotqa", "--predictions", said, "--gold", gold)
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert (found["em"], found["sp_f1"], found["joint_f1"]) == (0.5, 0.5, 0.5)
    assert found["questions"] == 2
    assert found["missing"] == {"answer": 1, "sp": 0}
    assert found["without_gold"] == 0
    assert found["unrounded"]["em"] == 0.5


def test_the_numbers_are_those_of_the_official_script(run: Run, shared_data: Path) -> None:
    folder = shared_data / "2wikimultihopqa"
    expected = json.loads((folder / "eval_expected.json").read_text(encoding="utf-8"))["metrics"]
    given = ("--predictions", folder / "eval_predictions.json", "--gold", folder / "2wiki_eval_sample.json")
    for name, more in {
        "no_aliases": (),
        "synthetic_aliases": ("--aliases", folder / "id_aliases_synthetic.jsonl"),
    }.items():
        status, out, _ = run("--dataset", "2wiki", *given, *more)
        found = json.loads(out)
        assert status == 0
        assert {key: found[key] for key in expected[name]} == pytest.approx(expected[name], abs=1e-9)
        assert found["unrounded"]["em"] == pytest.approx(expected[name]["em"] / 100, abs=5e-5)


def test_predictions_without_gold_are_counted_and_told(run: Run, files: tuple[Path, Path]) -> None:
    said, gold = files
    said.write_text(json.dumps({"answer": {"q-one": "Oslo", "q-twoo": "Bergen"}}))
    status, out, err = run("--dataset", "hotpotqa", "--predictions", said, "--gold", gold)
    assert (status, json.loads(out)["without_gold"]) == (0, 1)
    assert err == (
        "warning: predictions without a gold: 1, such as 'q-twoo'; the nearest id that has one is 'q-two'\n"
    )


@pytest.mark.parametrize(
    ("dataset", "text", "message"),
    [
        (
            "hotpot",
            "{}",
            "no data set named 'hotpot'; did you mean 'hotpotqa'? known: 2wiki, hotpotqa, musique",
        ),
        ("hotpotqa", '{"answer": {"x": "Oslo"}}', "have no id in common"),
        ("hotpotqa", '{"ansver": {}}', "did you mean it by 'ansver'?"),
        ("musique", '{"answer": {}, "sp": {}}', "this is the form of 'hotpotqa' and '2wiki'"),
    ],
)
def test_mistakes_end_in_one_line(
    dataset: str, text: str, message: str, run: Run, files: tuple[Path, Path]
) -> None:
    said, gold = files
    said.write_text(text)
    status, out, err = run("--dataset", dataset, "--predictions", said, "--gold", gold)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_only_2wiki_has_an_alias_file(run: Run, files: tuple[Path, Path]) -> None:
    said, gold = files
    given = ("--dataset", "hotpotqa", "--predictions", said, "--gold", gold, "--aliases", gold)
    assert run(*given)[0] == 2


def test_a_missing_file_is_told_with_its_neighbour(run: Run, files: tuple[Path, Path]) -> None:
    said, gold = files
    status, _, err = run(
        "--dataset", "hotpotqa", "--predictions", said, "--gold", gold.with_name("golds.json")
    )
    assert status == 2
    assert "did you mean 'gold.json'?" in err
