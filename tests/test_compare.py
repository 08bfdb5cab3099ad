"""Tests of comparisons: which tasks are paired, what is found of them, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from evaluations import evaluation

from agent_r1_env.cli import main
from agent_r1_env.compare import compare, report
from agent_r1_env.errors import AgentR1Error, UnknownName
from agent_r1_env.statistics import MCNEMAR, PERMUTATION, paired

HOTPOTQA = "AgentR1/HotpotQA-v0"
WORSE, BETTER = [0.0] * 9 + [1.0], [1.0] * 9 + [0.0]


def test_the_difference_is_the_second_minus_the_first() -> None:
    found = compare(evaluation(WORSE), evaluation(BETTER), ["exact_match"])
    each = found.metrics["exact_match"]
    assert each == paired(WORSE, BETTER)
    assert (each.a, each.b, each.difference.mean) == (0.1, 0.9, pytest.approx(0.8))
    assert (each.higher, each.lower, each.test) == (9, 1, MCNEMAR)
    assert each.p == pytest.approx(22 / 1024)
    assert found.direction("exact_match") == "higher"
    turned = compare(evaluation(BETTER), evaluation(WORSE), ["exact_match"])
    assert turned.direction("exact_match") == "lower"


def test_tasks_are_paired_by_id_and_only_where_both_have_them() -> None:
    a = evaluation({"x": [1.0], "y": [0.0], "z": [1.0]})
    b = evaluation({"w": [0.0], "v": [0.0], "z": [0.0], "x": [1.0]})
    found = compare(a, b)
    assert (found.tasks, found.only_a, found.only_b) == (2, 1, 2)
    assert found.metrics["exact_match"] == paired([1.0, 1.0], [1.0, 0.0])
    assert "2 tasks in both, 1 only in A, 2 only in B" in report(found)


def test_samples_of_a_task_are_averaged_and_differing_numbers_of_them_are_said() -> None:
    a, b = evaluation({"x": [1.0, 0.0], "y": [0.0, 0.0]}), evaluation({"x": [1.0], "y": [1.0]})
    with pytest.warns(UserWarning, match="one has 2 and the other 1 samples"):
        found = compare(a, b, ["exact_match"])
    assert found.metrics["exact_match"] == paired([0.5, 0.0], [1.0, 1.0])
    assert found.metrics["exact_match"].test == PERMUTATION


def test_what_failed_is_left_out_and_said() -> None:
    broken = evaluation([1.0, 1.0], row={"error": None})
    lost = evaluation({"q0": [1.0]})
    lost = type(lost)(**{**{name: getattr(lost, name) for name in lost.__dataclass_fields__}, "failed": 1})
    with pytest.warns(UserWarning, match="1 episodes of model, tool_call failed"):
        found = compare(broken, lost)
    assert (found.tasks, found.only_a) == (1, 1)


def test_several_measures_are_corrected_for_their_number() -> None:
    found = compare(evaluation(WORSE), evaluation(BETTER))
    assert list(found.metrics) == ["exact_match", "f1"]
    assert found.corrected["exact_match"] == pytest.approx(2 * 22 / 1024)
    assert "p (Holm)" in report(found)
    assert "p (Holm)" not in report(compare(evaluation(WORSE), evaluation(BETTER), ["f1"]))


def test_measures_of_the_official_scorer_and_pass_at_k_are_paired() -> None:
    rows = {f"q{number}": {"joint_f1": number / 10} for number in range(10)}
    a = evaluation(WORSE, official={name: {"joint_f1": 0.0} for name in rows})
    found = compare(a, evaluation(BETTER, official=rows), ["official/joint_f1"])
    assert found.metrics["official/joint_f1"].b == pytest.approx(0.45)
    a, b = evaluation({"x": [1.0, 0.0], "y": [0.0, 0.0]}), evaluation({"x": [1.0, 0.0], "y": [0.0, 1.0]})
    assert compare(a, b, ["pass@2"]).metrics["pass@2"] == paired([1.0, 0.0], [1.0, 1.0])


def test_an_environment_without_answers_is_compared_by_its_reward() -> None:
    played = evaluation([0.5, 0.2], row={"metrics": {"won": 1.0}})
    assert list(compare(played, played).metrics) == ["reward"]


def test_equal_runs_do_not_differ() -> None:
    found = compare(evaluation(WORSE), evaluation(WORSE))
    assert {found.direction(name) for name in found.metrics} == {"no difference"}
    assert set(found.corrected.values()) == {1.0}
    text = report(found)
    assert "exact_match: no difference shown (p = 1.000)\n" in text
    assert "nan" not in text


def test_a_difference_that_is_not_shown_says_which_would_be() -> None:
    found = compare(
        evaluation([1.0, 0.0] * 20), evaluation([1.0, 0.0] * 15 + [0.0, 1.0] * 5), ["exact_match"]
    )
    assert f"; one of {found.metrics['exact_match'].detectable:.3f} would show 4 times in 5" in report(found)


def test_chance_is_called_a_difference_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(0)
    called = [
        compare(
            *(evaluation(rng.integers(2, size=40).astype(float).tolist()) for _ in range(2)),
            metrics=["reward"],
        ).direction("reward")
        for _ in range(200)
    ]
    assert sum(each != "no difference" for each in called) <= 16


def test_the_order_of_tasks_and_a_second_run_change_nothing() -> None:
    scores = {f"q{number}": [float(number % 7) / 7] for number in range(30)}
    turned = dict(reversed(scores.items()))
    other = evaluation({name: [1.0 - score[0] ** 2] for name, score in scores.items()})
    assert compare(evaluation(scores), other) == compare(evaluation(turned), other)
    assert compare(evaluation(scores), other, seed=1) != compare(evaluation(scores), other, seed=2)


def test_json_holds_plain_numbers() -> None:
    found = json.loads(json.dumps(compare(evaluation(WORSE), evaluation(WORSE)).to_dict(), allow_nan=False))
    assert found["metrics"]["exact_match"]["detectable"] is None
    assert (found["tasks"], found["metrics"]["f1"]["p"]) == (10, 1.0)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            {"env_id": "AgentR1/MuSiQue-v0"},
            "one environment can be compared, got AgentR1/HotpotQA-v0 and AgentR1/M",
        ),
        ({"data": "the file 'train.json'"}, "one has the file 'dev.json', the other the file 'train.json'"),
    ],
)
def test_other_questions_are_refused(other: dict[str, str], told: str) -> None:
    with pytest.raises(AgentR1Error, match=told):
        compare(evaluation([1.0]), evaluation([1.0], **other))  # type: ignore[arg-type]


def test_runs_without_a_task_in_common_are_refused() -> None:
    with pytest.raises(
        AgentR1Error, match="no task in common: model, tool_call has 1 and .* has 2 others; the same"
    ):
        compare(evaluation({"x": [1.0]}), evaluation({"y": [1.0], "z": [1.0]}))


def test_a_measure_that_cannot_be_paired_is_refused() -> None:
    a = evaluation([1.0])
    with pytest.raises(AgentR1Error, match="invalid_call_rate cannot be paired.*there are: exact_match, f1"):
        compare(a, a, ["invalid_call_rate"])
    with pytest.raises(UnknownName, match="no metric named 'f2'"):
        compare(a, a, ["f2"])
    with pytest.raises(AgentR1Error, match="official/em cannot be paired"):
        compare(a, evaluation([1.0], official={"q0": {"em": 1.0}}), ["official/em"])


# -- the command line


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with runs of two policies."""
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)
    for policy in ("oracle", "naive"):
        assert (
            main(["eval", HOTPOTQA, "--policy", policy, "--n", "20", "--output", str(tmp_path / policy)]) == 0
        )
    capsys.readouterr()
    return tmp_path


def test_the_command_says_which_run_is_higher(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "compare", str(runs / "naive"), str(runs / "oracle")]) == 0
    out = capsys.readouterr().out
    assert f"A: naive, tool_call ({runs / 'naive'})" in out
    assert "synthetic questions: 20 tasks in both\n" in out
    assert "exact_match: B is higher (p = " in out


def test_the_command_prints_json_of_named_measures(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["eval", "compare", str(runs / "naive"), str(runs / "oracle"), "--json", "--seed", "4"]
    assert main([*asked, "--metric", "official/joint_f1", "--metric", "steps"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["metrics"]) == ["official/joint_f1", "steps"]
    assert found["metrics"]["steps"]["difference"] == {"mean": 1.0, "low": 1.0, "high": 1.0}


@pytest.mark.filterwarnings("always:.*not complete")
def test_a_run_that_stopped_is_compared_with_a_warning(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = runs / "oracle" / "episodes.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:15]))
    assert main(["eval", "compare", str(runs / "naive"), str(runs / "oracle")]) == 0
    out, err = capsys.readouterr()
    assert "not complete: 15 of 20 episodes" in err
    assert "15 tasks in both, 5 only in A" in out


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (".", "naive", "holds 2 runs; name one of them: "),
        ("absent", "naive", "no evaluation there"),
        ("naive", "oracle/run.json", "no evaluation there"),
    ],
)
def test_what_is_no_single_run_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], a: str, b: str, told: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["eval", "compare", str(runs / a), str(runs / b)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
