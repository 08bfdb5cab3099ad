"""Tests of the command line: output, exit status, one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env.cli import _settings, main
from agent_r1_env.episode import read_episodes
from agent_r1_env.testing import tiny_llama

HOTPOTQA = "AgentR1/HotpotQA-v0"


@pytest.fixture(autouse=True)
def embedded_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    return status, *capsys.readouterr()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line on stderr of a command that ends with status 2."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_json_alone_goes_to_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    arguments = ("--policy", "oracle", "--n", "5", "--seed", "1", "--json", "--episodes", file)
    status, out, err = run(capsys, "eval", HOTPOTQA, *arguments)
    found = json.loads(out)
    assert status == 0
    assert found["metrics"]["exact_match"]["mean"] == 1.0
    assert (found["env_id"], found["policy"], found["n"], found["seed"]) == (HOTPOTQA, "oracle", 5, 1)
    assert found["synthetic"]
    assert len(list(read_episodes(file))) == 5
    assert "episodes" not in err


def test_the_report_names_scores_source_and_ends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    status, out, _ = run(
        capsys, "eval", HOTPOTQA, "--policy", "random", "--n", "20", "--episodes", file, "--split", "train"
    )
    assert status == 0
    for part in (
        HOTPOTQA,
        "random: 20 episodes",
        "synthetic",
        "train.json.gz",
        "exact_match",
        "ended by: ",
        str(file),
    ):
        assert part in out


def test_real_questions_are_read_from_files(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    folder = shared_data / "hotpotqa"
    files = ("--data", folder / "hotpot_dev_distractor_sample.json", "--corpus", folder / "corpus.jsonl")
    status, out, err = run(capsys, "eval", HOTPOTQA, *files, "--policy", "oracle", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert (found["n"], found["synthetic"]) == (200, False)
    assert found["metrics"]["exact_match"]["mean"] == found["metrics"]["f1"]["mean"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("AgentR1/HotpotQQ-v0", "--policy", "oracle"), "Did you mean: `HotpotQA`"),
        (("AgentR1/HotpotQA-v9", "--policy", "oracle"), "v0"),
        (("no/such/id", "--policy", "oracle"), "Malformed"),
        ((HOTPOTQA, "--policy", "oracel"), "did you mean 'oracle'"),
        ((HOTPOTQA, "--policy", "oracle", "--split", "trian"), "did you mean 'train'"),
        ((HOTPOTQA, "--policy", "oracle", "--source", "hubb"), "did you mean 'hub'"),
        ((HOTPOTQA, "--policy", "oracle", "--data", "absent.json"), "absent.json: no such file"),
        ((HOTPOTQA, "--policy", "oracle", "--set", "spilt=train"), "did you mean 'split'"),
        ((HOTPOTQA, "--policy", "oracle", "--set", "split"), "--set takes KEY=VALUE"),
        ((HOTPOTQA, "--policy", "oracle", "--set", "max_steps=[1"), "--set max_steps:"),
        ((HOTPOTQA, "--policy", "oracle", "--set", "max_steps=0"), "--set: max_steps must be at least 1"),
        (("CartPole-v1", "--policy", "oracle"), "only a ToolEnv"),
        (("Me/Trip-v0", "--policy", "oracle", "--register", "absent"), "no such folder"),
        (
            (HOTPOTQA, "--model", "absent/model", "--engine", "transformers"),
            "cannot load the model 'absent/model'",
        ),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in fails(capsys, "eval", *arguments)


def test_a_row_without_an_answer_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_text('[{"_id": "a", "question": "?", "context": []}]')
    line = fails(capsys, "eval", HOTPOTQA, "--data", file, "--policy", "oracle")
    assert f"{file}, row 1, key 'answer'" in line


def test_a_place_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = fails(capsys, "eval", HOTPOTQA, "--policy", "oracle", "--episodes", tmp_path)
    assert f"{tmp_path}: Is a directory" in line


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("evaluate",),
        ("eval", HOTPOTQA),
        ("eval", HOTPOTQA, "--policy", "oracle", "--model", "x"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--n", "0"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--temperature", "-1"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--temperature", "nan"),
    ],
)
def test_wrong_usage_is_explained(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "usage: agent-r1" in err


def test_list_shows_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "list", "--json")
    found = json.loads(out)
    assert status == 0
    assert HOTPOTQA in found["environments"]
    assert "search" in found["tools"]
    assert "hermes" in found["formats"]
    assert "exact_match" in found["reward terms"]
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert HOTPOTQA in out


def test_a_folder_of_ones_own_takes_part(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "capitals.yaml").write_text(
        "name: Capitals\ntasks: {load: ./capitals.py:load}\npolicies: {right: ./capitals.py:right}\n"
    )
    (tmp_path / "envs" / "capitals.py").write_text(
        "from agent_r1_env import Task, TaskSet\n"
        "def load(country='Norway'):\n"
        "    task = Task('1', f'Capital of {country}?', ('Oslo',))\n"
        "    return TaskSet([task], name='capitals', origin='code')\n"
        "def right(env, rng):\n"
        "    return '<answer>Oslo</answer>'\n"
    )
    own = ("--register", tmp_path, "--namespace", "CliTest")
    try:
        status, out, _ = run(capsys, "eval", "CliTest/Capitals-v0", "--policy", "right", "--json", *own)
        assert status == 0
        assert json.loads(out)["reward"]["mean"] == 1.0
        assert "CliTest/Capitals-v0" in run(capsys, "list", *own)[1]
        assert "namespace" in fails(capsys, "list", "--register", tmp_path, "--namespace", "a/b")
    finally:
        gym.registry.pop("CliTest/Capitals-v0", None)


def test_version_and_doctor_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"agent-r1 {agent_r1_env.__version__}\n", "")
    status, out, _ = run(capsys, "doctor", "--json")
    assert status in (0, 1)
    assert json.loads(out)["environments"] is True


def test_the_module_runs_as_a_program_and_survives_a_closed_pipe() -> None:
    command = [sys.executable, "-W", "error", "-m", "agent_r1_env.cli", "list"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=buffered)
    assert (done.returncode, done.stderr) == (0, "")
    assert HOTPOTQA in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=60, env=buffered)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_libraries_print_stays_off_stdout(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_r1_env import evaluate as module

    real = module.evaluate

    def noisy(*arguments: Any, **options: Any) -> Any:
        print("from Python")
        os.write(1, b"from C\n")
        return real(*arguments, **options)

    monkeypatch.setattr(module, "evaluate", noisy)
    assert main(["eval", HOTPOTQA, "--policy", "oracle", "--n", "1", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["n"] == 1
    assert "from Python" in err
    assert "from C" in err


def test_train_passes_on_what_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_r1_env import train

    seen: list[Any] = []
    monkeypatch.setattr(train, "run", lambda *arguments, **options: seen.append((arguments, options)))
    every = "--model m --output o --seed 3 --resume --data d --corpus c --no-loss-mask --set eval.episodes=5"
    assert run(capsys, "train", "quickstart", *every.split())[0] == 0
    assert run(capsys, "train", "quickstart")[0] == 0
    given = {"model": "m", "output": "o", "seed": 3, "resume": True, "data": "d", "corpus": "c"}
    assert seen[0] == (
        ("quickstart",),
        given | {"loss_mask": False, "overrides": {"eval.episodes": 5}},
    )
    nothing = dict.fromkeys((*given, "loss_mask"), None) | {"resume": False, "overrides": {}}
    assert seen[1] == (("quickstart",), nothing)


def test_a_mistake_in_training_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no recipe named 'quikstart'" in fails(capsys, "train", "quikstart")
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nmodel: x\nenv: AgentR1/HotpotQA-v0\ntrl: {}\nadvantge: grpo\n")
    assert f"{file}:5:1: unknown key 'advantge'; did you mean 'advantage'" in fails(capsys, "train", file)


def test_values_on_the_command_line_follow_the_rules_of_the_files() -> None:
    pairs = ("a.b=1e-6", "c=on", "d=[1, x]", "e=", "f=x=y", "g=3")
    assert _settings(pairs) == {"a.b": 1e-6, "c": "on", "d": [1, "x"], "e": None, "f": "x=y", "g": 3}


@pytest.mark.slow
def test_a_model_is_scored_through_transformers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model, file = tiny_llama(tmp_path / "model"), tmp_path / "episodes.jsonl"
    options = ("--engine", "transformers", "--n", "2", "--max-tokens", "8", "--episodes", file, "--json")
    status, out, _ = run(capsys, "eval", HOTPOTQA, "--model", model, *options)
    found = json.loads(out)
    assert status == 0
    assert found["n"] == 2
    assert found["policy"] == str(model)
    assert all(step.response_ids for episode in read_episodes(file) for step in episode.steps)
