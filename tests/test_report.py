"""The last screen, the bars and the curve of a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import plot, recipe, report
from agent_r1_env.catalog import Catalog
from agent_r1_env.progress import Progress, brief


def scores(em: float) -> dict[str, Any]:
    value = {"mean": em, "low": em - 0.05, "high": em + 0.05}
    return {
        "n": 200,
        "metrics": {"exact_match": value, "steps": value},
        "reward": value,
        "tool_call_rate": 0.6,
        "invalid_call_rate": 0.1,
        "synthetic": True,
        "data": "the embedded synthetic file",
    }


def found(**changes: Any) -> dict[str, Any]:
    seconds = {"start": 12.0, "train": 121.0}
    return {
        "output": "/o",
        "steps": 60,
        "before": scores(0.2),
        "after": scores(0.8),
        "best": None,
        "warnings": [],
        "seconds": seconds,
    } | changes


def test_the_screen_says_what_came_out_and_what_to_try_next() -> None:
    text = report.screen(recipe.load("quickstart"), "trainers/quickstart.yaml", found())
    assert "60 updates in 2 min 13 s (start 12 s, train 2 min 1 s)" in text
    assert "EM                    0.200 [0.150, 0.250]    0.800 [0.750, 0.850]    +0.600" in text
    assert "(questions from the embedded synthetic file" in text
    for file in ("reward.png", "episodes.jsonl", "policy"):
        assert f"/o/{file}" in text
    assert "agent-r1 train trainers/quickstart.yaml --no-loss-mask" in text


def test_the_command_evaluates_as_the_run_did() -> None:
    text = report.screen(recipe.load("quickstart"), "quickstart", found())
    (command,) = [line for line in text.splitlines() if "agent-r1 eval" in line]
    assert "--split validation" in command
    assert """--set 'tool_config={"search": {"top_k": 2}}'""" in command
    assert "--temperature 1 --n 200 --max-tokens 48" in command


def test_the_screen_names_the_best_policy_and_says_what_its_score_is_worth() -> None:
    best = {"step": 40, "metric": "exact_match", "value": 0.85}
    text = report.screen(recipe.load("quickstart"), "quickstart", found(best=best))
    assert "best       /o/best\n  EM 0.850 after update 40; chosen on these tasks" in text
    assert "--model /o/best" in text and "no better" not in text
    text = report.screen(
        recipe.load("quickstart"), "quickstart", found(best=best | {"value": 0.2, "step": 60})
    )
    assert "after the last update" in text and "no better than before training, which was 0.200" in text
    assert "--model /o/policy" in text


def test_the_screen_repeats_the_last_warning_of_each_kind() -> None:
    warnings = [{"kind": "no_calls", "step": step, "seen": f"seen at {step}"} for step in (9, 31)]
    text = report.screen(recipe.load("quickstart"), "quickstart", found(warnings=warnings))
    assert "warnings   /o/health.jsonl" in text
    assert "no_calls at update 31: seen at 31" in text and "seen at 9" not in text


def test_the_screen_does_without_an_evaluation() -> None:
    text = report.screen(recipe.load("hotpotqa_cpu"), "hotpotqa_cpu", found(before=None, after=None))
    assert "held-out" not in text and "/o/policy" in text


@pytest.mark.parametrize("name", Catalog.open().names("recipe"))
def test_every_recipe_has_a_screen(name: str) -> None:
    assert report.screen(recipe.load(name), name, found())


def test_each_step_is_a_plain_line_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.begin("training", 3)
    for step in (1, 2, 3):
        progress.at(step, 3, brief({"reward": step / 4, "step_time": 1.26}))
    progress.end()
    assert stream.getvalue().splitlines()[2] == "training 2/3  reward 0.500  1.3 s"


def test_many_small_steps_are_told_now_and_then() -> None:
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.begin("evaluation", 120)
    for step in range(1, 121):
        progress.at(step, 120, every=50)
    assert stream.getvalue().splitlines()[1:] == [
        "evaluation 50/120",
        "evaluation 100/120",
        "evaluation 120/120",
    ]


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(stream=stream)
    progress.begin("training", 2)
    progress.at(1, 2, "reward 0.5")
    progress.at(2, 2, "reward 0.7")
    progress.end()
    assert "2/2" in stream.getvalue() and "reward 0.7" in stream.getvalue()


def test_what_a_person_should_read_is_told_above_the_bar() -> None:
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.begin("training", 3)
    progress.busy("evaluating 3/4")
    progress.tell("warning: something")
    assert stream.getvalue().splitlines() == ["training ...", "warning: something"]


def test_a_quiet_run_says_nothing() -> None:
    stream = io.StringIO()
    progress = Progress(quiet=True, stream=stream)
    progress.begin("training", 2)
    progress.at(1, 2)
    progress.tell("a warning")
    assert stream.getvalue() == ""


def test_the_curve_is_drawn_from_the_metrics(tmp_path: Path) -> None:
    logged = [
        {"step": n, "reward": n / 10, "agent/exact_match": n / 10, "agent/tool_call_rate": None}
        for n in (1, 2)
    ]
    plot.save_curve(logged, tmp_path / "reward.png", "mine")
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")


def test_scores_on_held_out_tasks_are_drawn_where_there_are_any(tmp_path: Path) -> None:
    logged = [{"step": n, "reward": n / 10} for n in (1, 2)]
    score = {"eval/reward": 0.4, "eval/reward/low": 0.3, "eval/reward/high": 0.6}
    evaluated: list[dict[str, Any]] = [{"step": 0, **score}, {"step": 2, "eval/reward": None}]
    plot.save_curve(logged, tmp_path / "without.png", "mine")
    plot.save_curve(logged, tmp_path / "with.png", "mine", evaluated)
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


def test_nothing_is_drawn_before_the_first_update(tmp_path: Path) -> None:
    plot.save_curve([], tmp_path / "reward.png", "mine")
    assert not (tmp_path / "reward.png").exists()
