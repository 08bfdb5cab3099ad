"""The folder of a run, also as a kill leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
