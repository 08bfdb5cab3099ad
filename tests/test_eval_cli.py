"""Tests of ``agent-r1 eval``: what it prints and writes, what it refuses, and that a killed run goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import eval_screen
from agent_r1_env.cli import main
from agent_r1_env.episode import read_episodes
from agent_r1_env.testing import answer, tiny_llama

HOTPOTQA = "AgentR1/HotpotQA-v0"
CAPITALS = """
name: Capitals
tasks: {load: ./capitals.py:load}
policies: {right: ./capitals.py:right, patient: ./capitals.py:patient}
"""
CODE = """
import os, time
from agent_r1_env import Task, TaskSet
def load(count=8):
    tasks = [Task(f"c{i}", f"Capital {i}?", (f"City {i}",)) for i in range(count)]
    return TaskSet(tasks, name="capitals", origin="code")
def right(env, rng):
    return f"<answer>{env.task.answers[0]}</answer>"
def patient(env, rng):
    # Waits before its fourth task until a file is there.
    while env.task.id == "c3" and not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    return f"<answer>{env.task.answers[0] if rng.random() < 0.5 else rng.integers(9)}</answer>"
"""


@pytest.fixture(autouse=True)
def embedded_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)


@pytest.fixture
def capitals(tmp_path: Path) -> Iterator[tuple[str | Path, ...]]:
    """The options that make the environment ``EvalTest/Capitals-v0`` known."""
    folder = tmp_path / "own"
    (folder / "envs").mkdir(parents=True)
    (folder / "envs" / "capitals.yaml").write_text(CAPITALS)
    (folder / "envs" / "capitals.py").write_text(CODE)
    yield "EvalTest/Capitals-v0", "--register", folder, "--namespace", "EvalTest"
    gym.registry.pop("EvalTest/Capitals-v0", None)


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


def scores(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    status, out, _ = run(capsys, "eval", *arguments, "--json")
    assert status == 0
    return json.loads(out)


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
        "random, tool_call: 20 episodes",
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


# -- methods, samples, shards


def test_several_methods_and_environments_are_a_list(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, capitals: tuple[str | Path, ...]
) -> None:
    common = ("--policy", "random", "--n", "2", "--output", tmp_path / "out")
    found = scores(capsys, HOTPOTQA, *common, "--method", "direct,naive_rag", "--method", "tool_call")
    assert [each["method"] for each in found] == ["direct", "naive_rag", "tool_call"]
    assert sorted(folder.name for folder in (tmp_path / "out").iterdir()) == [
        "AgentR1.HotpotQA-v0.direct",
        "AgentR1.HotpotQA-v0.naive_rag",
        "AgentR1.HotpotQA-v0.tool_call",
    ]
    status, out, _ = run(capsys, "eval", HOTPOTQA, *common, "--method", "direct,tool_call")
    assert status == 0
    assert out.count("2 episodes in 0.0 s") == 2  # they are there already
    status, _, _ = run(capsys, "eval", *capitals, HOTPOTQA, "--policy", "right")
    assert status == 2  # the other environment has no such policy


def test_samples_are_kept_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = (HOTPOTQA, "--policy", "random", "--n", "3", "--samples", "4", "--output", tmp_path / "out")
    found = scores(capsys, *arguments)
    assert (found["tasks"], found["samples"], found["n"]) == (3, 4, 12)
    assert "reward" in found["best"]
    assert "rows" not in found
    keys = [(each.task_id, each.sample) for each in read_episodes(tmp_path / "out" / "episodes.jsonl")]
    assert len(set(keys)) == 12


def test_top_k_is_that_of_every_method_that_searches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for method in ("naive_rag", "tool_call"):
        folder = tmp_path / method
        arguments = ("--policy", "naive", "--n", "2", "--method", method, "--top-k", "5", "--output", folder)
        scores(capsys, HOTPOTQA, *arguments)
        text = (folder / "episodes.jsonl").read_text()
        assert "\\n[5] " in text
        assert "\\n[6] " not in text


def test_shards_put_together_are_the_whole_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, capitals: tuple[str | Path, ...]
) -> None:
    common = (*capitals, "--policy", "right", "--samples", "2")
    whole = scores(capsys, *common, "--output", tmp_path / "whole")
    parts = [tmp_path / f"part{number}" for number in (1, 2, 3)]
    for number, part in enumerate(parts, start=1):
        found = scores(capsys, *common, "--output", part, "--shard", f"{number}/3")
        assert found["n"] < whole["n"]
    merged = scores(capsys, "merge", *parts, "--output", tmp_path / "merged")
    assert {**merged, "seconds": 0} == {**whole, "seconds": 0}
    again = scores(capsys, *common, "--output", tmp_path / "merged")  # the merged folder is the run's own
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}


def test_shards_that_do_not_belong_together_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, capitals: tuple[str | Path, ...]
) -> None:
    def part(name: str, *more: str) -> Path:
        scores(capsys, *capitals, "--policy", "right", "--output", tmp_path / name, *more)
        return tmp_path / name

    one, two = part("one", "--shard", "1/2"), part("two", "--shard", "2/2", "--seed", "1")
    third, merged = part("third", "--shard", "1/3"), ("--output", tmp_path / "merged")
    assert "seed is 0 there and 1 here" in fails(capsys, "eval", "merge", one, two, *merged)
    assert "shards are missing: 2/2" in fails(capsys, "eval", "merge", one, *merged)
    twice = shutil.copytree(one, tmp_path / "twice")
    assert "shard 1/2 is given twice" in fails(capsys, "eval", "merge", one, twice, *merged)
    assert "shards of different splits: 1/2, 1/3" in fails(capsys, "eval", "merge", one, third, *merged)
    assert "no evaluation there" in fails(capsys, "eval", "merge", tmp_path, *merged)


# -- going on


def test_the_same_command_goes_on_after_a_kill(tmp_path: Path, capitals: tuple[str | Path, ...]) -> None:
    go, out = tmp_path / "go", tmp_path / "out"
    arguments = ["eval", *map(str, capitals), "--policy", "patient", "--json", "--output"]
    command = [sys.executable, "-m", "agent_r1_env.cli", *arguments]
    environment = {**os.environ, "GO": str(go)}
    with subprocess.Popen([*command, str(out)], env=environment, stdout=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + 60
        while not (out / "episodes.jsonl").exists() or (out / "episodes.jsonl").read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            assert killed.poll() is None
            time.sleep(0.01)
        busy = subprocess.run(
            [*command, str(out)], env=environment, capture_output=True, text=True, timeout=60
        )
        killed.send_signal(signal.SIGKILL)
    assert busy.returncode == 2
    assert "another process is writing to" in busy.stderr
    with open(out / "episodes.jsonl", "ab") as file:
        file.write(b'{"env_id": "EvalTest/Capi')  # as if the kill had come in the middle of a line
    kept = (out / "episodes.jsonl").read_bytes().splitlines()[:3]
    go.touch()
    found = [
        json.loads(subprocess.run([*command, str(place)], env=environment, capture_output=True).stdout)
        for place in (out, tmp_path / "uninterrupted")
    ]
    assert {**found[0], "seconds": 0} == {**found[1], "seconds": 0}
    assert found[0]["n"] == 8
    lines = (out / "episodes.jsonl").read_bytes().splitlines()
    assert lines[:3] == kept
    assert len(lines) == 8


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (("--seed", "1"), "seed is 0 there and 1 here"),
        (("--n", "3"), "n is null there and 3 here"),
        (("--samples", "2"), "samples is 1 there and 2 here"),
        (("--shard", "1/2"), 'shard is "1/1" there and "1/2" here'),
        (("--set", "count=9"), "env_kwargs.count is null there and 9 here"),
        (("--method", "direct"), 'method is "tool_call" there and "direct" here'),
    ],
)
def test_another_run_is_refused_with_what_differs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    capitals: tuple[str | Path, ...],
    other: tuple[str, ...],
    told: str,
) -> None:
    common = (*capitals, "--policy", "right", "--output", tmp_path / "out")
    scores(capsys, *common)
    line = fails(capsys, "eval", *common, *other)
    assert told in line
    assert "choose another folder" in line


def test_a_folder_of_one_run_takes_no_several(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = (HOTPOTQA, "--policy", "random", "--n", "1", "--output", tmp_path)
    scores(capsys, *common)
    assert "holds a single run" in fails(capsys, "eval", *common, "--method", "direct,tool_call")


def test_predictions_score_alike_by_the_official_rules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shared_data: Path
) -> None:
    folder = shared_data / "hotpotqa"
    gold = folder / "hotpot_dev_distractor_sample.json"
    files = ("--data", gold, "--corpus", folder / "corpus.jsonl")
    found = scores(capsys, HOTPOTQA, *files, "--policy", "naive", "--output", tmp_path)
    predictions = ("--dataset", "hotpotqa", "--predictions", tmp_path / "predictions.json", "--gold", gold)
    status, out, _ = run(capsys, "score", *predictions)
    official = json.loads(out)
    assert status == 0
    assert official["em"] == pytest.approx(found["metrics"]["exact_match"]["mean"], abs=1e-12)
    assert official["f1"] == pytest.approx(found["metrics"]["f1"]["mean"], abs=1e-12)
    assert official["unrounded"] == pytest.approx(found["official"], abs=1e-12)
    assert official["sp_recall"] > 0


# -- a model behind a URL


class Chat(BaseHTTPRequestHandler):
    """Says what the question is, as its answer; refuses what comes after ``most`` replies."""

    most = 1000
    asked = 0

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "parrot"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Chat.asked += 1
        if Chat.asked > Chat.most:
            return self.reply({"error": {"message": "no credit is left"}}, 402)
        said = answer(body["messages"][-1]["content"].replace("Capital", "City").rstrip("?"))
        choice = {"message": {"content": said}, "finish_reason": "stop"}
        self.reply({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 4}})

    def reply(self, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    pytest.importorskip("httpx")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_behind_a_url_is_scored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, capitals: tuple[str | Path, ...], url: str
) -> None:
    found = scores(capsys, *capitals, "--url", url, "--output", tmp_path / "out", "--samples", "2")
    assert (found["policy"], found["n"], found["reply_tokens"]["mean"]) == ("parrot", 16, 4.0)
    assert found["reward"]["mean"] == 1.0
    run_file = json.loads((tmp_path / "out" / "run.json").read_text())["identity"]
    assert run_file["engine"] == ["OpenAIEngine", f"{url}/v1"]
    assert run_file["sampling"]["temperature"] == 1.0
    named = scores(capsys, *capitals, "--url", url, "--model", "mine", "--n", "1")
    assert named["policy"] == "mine"


def test_a_run_that_a_server_stops_goes_on(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capitals: tuple[str | Path, ...],
    url: str,
) -> None:
    command = (*capitals, "--url", url, "--concurrency", "1", "--output", tmp_path / "out")
    monkeypatch.setattr(Chat, "asked", 0)
    monkeypatch.setattr(Chat, "most", 5)
    status, out, err = run(capsys, "eval", *command)
    assert (status, out) == (2, "")
    assert "answered 402 Payment Required: no credit is left" in err
    assert f"what was done is in {tmp_path / 'out'}; the same command goes on from there" in err
    monkeypatch.setattr(Chat, "most", 1000)
    assert scores(capsys, *command)["n"] == 8
    assert Chat.asked == 6 + 3


def test_a_server_shows_no_tokenizer(capsys: pytest.CaptureFixture[str], url: str) -> None:
    line = fails(capsys, "eval", HOTPOTQA, "--url", url, "--set", "format=auto")
    assert "name the format" in line


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("httpx")
    line = fails(capsys, "eval", HOTPOTQA, "--url", "http://127.0.0.1:9", "--model", "m", "--n", "1")
    assert "no server answers at http://127.0.0.1:9/v1" in line


# -- mistakes and progress


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((HOTPOTQA, "--policy", "oracle", "--method", "naiv_rag"), "did you mean 'naive_rag'"),
        ((HOTPOTQA, "--policy", "oracle", "--method", "direct,"), "no method named ''"),
        ((HOTPOTQA, HOTPOTQA, "--policy", "oracle", "--data", "x"), "belong to one environment"),
        ((HOTPOTQA, "--url", "nowhere"), "is no address of a server"),
        (("merge", "absent", "--output", "x"), "absent: no evaluation there"),
    ],
)
def test_a_mistake_of_methods_and_servers_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in fails(capsys, "eval", *arguments)


def test_what_an_environment_cannot_be_asked_is_refused(
    capsys: pytest.CaptureFixture[str], capitals: tuple[str | Path, ...]
) -> None:
    assert "has no method 'naive_rag'" in fails(
        capsys, "eval", *capitals, "--policy", "right", "--method", "naive_rag"
    )
    assert "has no tool that searches" in fails(
        capsys, "eval", *capitals, "--policy", "right", "--top-k", "3"
    )


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_explained(capsys: pytest.CaptureFixture[str], shard: str) -> None:
    status, _, err = run(capsys, "eval", HOTPOTQA, "--policy", "oracle", f"--shard={shard}")
    assert status == 2
    assert "must be I/K with I from 1 to K" in err


def test_progress_is_a_line_now_and_then_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, capitals: tuple[str | Path, ...]
) -> None:
    monkeypatch.setattr(eval_screen, "_PAUSE", 0.0)
    _, _, err = run(capsys, "eval", *capitals, "--policy", "right")
    assert "EvalTest/Capitals-v0 tool_call: 8 of 8 episodes" in err
