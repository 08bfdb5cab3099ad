"""The folder of a run, also as a kill leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_r1_env.health import Alert
from agent_r1_env.results import NothingToResume, Results, RunExists, open_results


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def checkpoint(folder: Path, step: int, state: str | None = "") -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "model.safetensors").touch()
    if state is not None:
        (path / "trainer_state.json").write_text(state or json.dumps({"global_step": step}))
    return path


def test_the_last_checkpoint_is_the_newest_by_number(results: Results) -> None:
    for step in (9, 100, 20):
        checkpoint(results.folder, step)
    assert results.last_checkpoint() == results.folder / "checkpoint-100"


@pytest.mark.parametrize("state", [None, '{"global_st', '{"global_step": 7}'], ids=["none", "torn", "other"])
def test_a_checkpoint_that_was_not_finished_is_passed_over(results: Results, state: str | None) -> None:
    whole = checkpoint(results.folder, 3)
    checkpoint(results.folder, 6, state)
    assert results.last_checkpoint() == whole


def test_a_checkpoint_without_weights_is_passed_over(results: Results) -> None:
    (checkpoint(results.folder, 3) / "model.safetensors").unlink()
    assert results.last_checkpoint() is None


def test_metrics_of_a_killed_run_are_read_and_cut(results: Results) -> None:
    for step in (1, 2, 3):
        results.log(step, {"reward": step / 10})
    with results.metrics.open("a") as file:
        file.write('{"step": 4, "rew')
    assert [entry["step"] for entry in results.logged()] == [1, 2, 3]
    results.forget_after(2)
    results.log(3, {"reward": 0.7})
    assert [entry["reward"] for entry in results.logged()] == [0.1, 0.2, 0.7]


def test_metrics_that_are_no_number_stay_json(results: Results) -> None:
    results.log(1, {"grad_norm": float("nan"), "loss": 0.5})
    assert results.metrics.read_text() == '{"step": 1, "grad_norm": null, "loss": 0.5}\n'


def test_notes_are_added_and_never_half_written(results: Results) -> None:
    results.note(state="running", seed=1)
    results.note(state="finished")
    assert results.notes() == {"state": "finished", "seed": 1}
    assert [path.name for path in results.folder.iterdir()] == ["run.json"]


def test_a_new_run_takes_the_next_free_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for expected in ("mine", "mine-2", "mine-3"):
        opened = open_results("mine", None, resume=False)
        assert opened.folder == tmp_path / "out" / expected
        opened.note(state="running")
    assert open_results("mine", None, resume=True).folder == tmp_path / "out" / "mine-3"


def test_a_named_folder_is_neither_overwritten_nor_invented(tmp_path: Path) -> None:
    with pytest.raises(NothingToResume, match="no run"):
        open_results("mine", tmp_path / "out", resume=True)
    open_results("mine", tmp_path / "out", resume=False).note(state="running")
    with pytest.raises(RunExists, match="--resume"):
        open_results("mine", tmp_path / "out", resume=False)


def alert(step: int, kind: str = "drift") -> Alert:
    return Alert(step, step, kind, "seen", "advice", 1.0)


def test_scores_of_evaluations_are_kept_apart_from_updates(results: Results) -> None:
    results.log_evaluation(0, {"reward": 0.1})
    results.log(1, {"reward": 0.2})
    for reward in (0.3, 0.4):  # repeated by a resumed run
        results.log_evaluation(1, {"reward": reward})
    assert results.logged() == [{"step": 1, "reward": 0.2}]
    assert results.evaluated() == [{"step": 0, "eval/reward": 0.1}, {"step": 1, "eval/reward": 0.4}]


def test_a_resumed_run_forgets_the_warnings_that_it_may_give_again(results: Results) -> None:
    for step, kind in ((3, "drift"), (7, "drift"), (8, "no_calls")):
        results.warn(alert(step, kind))
    assert [entry["step"] for entry in results.warnings()] == [3, 7, 8]
    assert {kind: each["step"] for kind, each in results.notes()["health"].items()} == {
        "drift": 7,
        "no_calls": 8,
    }
    results.forget_after(5)
    assert [entry["step"] for entry in results.warnings()] == [3]
    assert list(results.notes()["health"]) == ["drift"]


def test_the_best_policy_and_its_record_are_replaced_together(results: Results) -> None:
    assert results.best_record() is None
    for step in (1, 2):
        results.new_best.mkdir()
        (results.new_best / "weights").write_text(str(step))
        results.place_best({"step": step})
    assert (results.best_record(), (results.best / "weights").read_text()) == ({"step": 2}, "2")
    assert [path.name for path in results.folder.iterdir()] == ["best"]


def test_a_kill_between_two_best_policies_loses_neither(results: Results) -> None:
    results.new_best.mkdir()
    results.place_best({"step": 1})
    results.best.rename(results.folder / ".best.old")
    assert results.best_record() == {"step": 1}
    assert results.best.is_dir()
