"""``agent-r1 rollout`` in this process: what it plays, writes, prints and refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import pytest

from agent_r1_env.cli import main
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.episode import Episode, read_episodes
from agent_r1_env.serve_engine import EngineServer
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.store import Plan, key_of
from agent_r1_env.testing import tiny_tokenizer

GAME = "AgentR1/TextGame-v0"


class Plain(gym.Env[str, str]):
    """An environment with neither tasks nor policies."""

    observation_space = action_space = UnicodeText()


def keys(path: Path) -> set[tuple[int, int, int | None]]:
    found = [key_of(episode) for episode in read_episodes(path)]
    assert len(found) == len(set(found)), "an episode is there twice"
    return set(found)


def replies(episodes: list[Episode]) -> dict[object, list[str]]:
    return {key_of(episode): [step.reply for step in episode.steps] for episode in episodes}


def rollout(path: Path, *more: str) -> int:
    return main(["rollout", GAME, "--policy", "random", "--output", str(path), "--seed", "3", *more])


def test_it_plays_what_was_asked_for_and_says_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "episodes.jsonl"
    assert rollout(path, "--n", "12", "--samples", "3", "--concurrency", "4") == 0
    said = capsys.readouterr().out
    assert f"{GAME}: 12 episodes in " in said and "ended by" in said and "episodes/s" in said
    assert len(keys(path)) == 12
    assert len({episode.group for episode in read_episodes(path)}) == 4
    assert all(episode.steps and episode.task_id for episode in read_episodes(path))


def test_an_episode_is_the_same_whatever_runs_beside_it(tmp_path: Path) -> None:
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    assert rollout(one, "--n", "10", "--concurrency", "1") == 0
    assert rollout(many, "--n", "10", "--concurrency", "10") == 0
    assert replies(list(read_episodes(one))) == replies(list(read_episodes(many)))


@pytest.mark.filterwarnings("ignore:dropped a torn last line")
def test_a_file_that_is_there_is_gone_on_with_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    assert rollout(whole, "--n", "10") == 0
    lines = whole.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    assert rollout(part, "--n", "10") == 2
    assert "go on with it by --resume" in capsys.readouterr().err
    assert rollout(part, "--n", "10", "--resume", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["before"], facts["episodes"], facts["missing"]) == (4, 6, 0)
    assert replies(list(read_episodes(part))) == replies(list(read_episodes(whole)))


def test_what_the_time_limit_cut_is_missing_and_played_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "episodes.jsonl"
    assert rollout(path, "--n", "10", "--time-limit", "1e-6", "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["episodes"], facts["missing"], path.read_bytes()) == (0, 10, b"")
    assert rollout(path, "--n", "10", "--resume") == 0
    assert len(keys(path)) == 10


def test_an_endless_number_is_not_gone_through_when_the_time_is_up(tmp_path: Path) -> None:
    read = 0

    class Counted(Plan):
        def requests(self, *args):  # type: ignore[no-untyped-def]
            nonlocal read
            for request in super().requests(*args):
                read += 1
                yield request

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_r1_env.store.Plan", Counted)
        assert rollout(tmp_path / "x.jsonl", "--n", "100000000", "--time-limit", "1e-6") == 1
    assert read < 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([GAME], "give either --policy or --model", id="nobody"),
        pytest.param([GAME, "--policy", "x", "--model", "y"], "give either --policy or --model", id="two"),
        pytest.param([GAME, "--policy", "random", "--time-limit", "-1"], "finite number > 0", id="time"),
        pytest.param([GAME, "--policy", "random", "--time-limit", "nan"], "finite number > 0", id="nan"),
        pytest.param([GAME, "--model", "x", "--top-p", "3"], "must be > 0 and <= 1, got 3", id="top-p"),
        pytest.param([GAME, "--policy", "random", "--workers", "2"], "of --executor ray", id="workers"),
        pytest.param([GAME, "--policy", "random", "--max-attempts", "2"], "--max-attempts is of", id="tries"),
        pytest.param([GAME, "--policy", "random", "--tokenizer", "x"], "that of servers", id="tokenizer"),
        pytest.param([GAME, "--model", "localhost:8000"], "write http://host:port", id="no scheme"),
        pytest.param([GAME, "--model", "http://a:1,b:2"], "nor servers only", id="one without a scheme"),
        pytest.param([GAME, "--policy", "randon"], "did you mean 'random'", id="misspelt"),
        pytest.param(["AgentR1/TextGam-v0", "--policy", "random"], "TextGame", id="environment"),
        pytest.param([GAME, "--model", "folder", "--executor", "ray"], "vllm serve", id="folder on Ray"),
        pytest.param(
            [GAME, "--policy", "random", "--import", "no_such"], "cannot import 'no_such'", id="module"
        ),
        pytest.param(["RolloutCli/Plain-v0", "--model", "x"], "say how many episodes with --n", id="endless"),
        pytest.param(["RolloutCli/Plain-v0", "--policy", "x"], "no ToolEnv and has no policies", id="plain"),
    ],
)
def test_a_mistake_shows_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    gym.register("RolloutCli/Plain-v0", entry_point=Plain)
    path = tmp_path / "episodes.jsonl"
    try:
        status = main(["rollout", *arguments, "--output", str(path)])
    except SystemExit as stopped:  # of argparse
        status = int(stopped.code or 0)
    finally:
        del gym.registry["RolloutCli/Plain-v0"]
    assert status == 2
    assert said in capsys.readouterr().err
    assert not path.exists()


def test_a_folder_is_no_file_for_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollout(tmp_path, "--n", "2", "--resume") == 2
    assert "is a folder; name a file, such as" in capsys.readouterr().err


@pytest.mark.parametrize("interrupt", [signal.SIG_DFL, signal.SIG_IGN])
def test_sigterm_ends_a_run_that_ctrl_c_cannot_reach(tmp_path: Path, interrupt: signal.Handlers) -> None:
    """As in a script, whose jobs behind "&" ignore Ctrl-C."""
    path = tmp_path / "episodes.jsonl"
    code = (
        "import signal, sys\n"
        f"signal.signal(signal.SIGINT, {'signal.SIG_IGN' if interrupt else 'signal.default_int_handler'})\n"
        "from agent_r1_env.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    asked = ["rollout", GAME, "--policy", "random", "--n", "100000000", "--output", str(path)]
    process = subprocess.Popen([sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size) and time.monotonic() < end:
            time.sleep(0.05)
        process.terminate()
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "--resume goes on" in said


@pytest.mark.slow
def test_servers_behind_urls_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    path = tmp_path / "episodes.jsonl"
    asked: list[int] = []

    def policy(number: int) -> Callable[[str], str]:
        def said(prompt: str) -> str:
            asked.append(number)
            return "north"

        return said

    with (
        EngineServer(ScriptedEngine(policy(0), tokenizer)) as one,
        EngineServer(ScriptedEngine(policy(1), tokenizer)) as two,
    ):
        servers = ("--model", f"{one.url}, {two.url}", "--tokenizer", str(tmp_path / "tokenizer"))
        what = ("--n", "12", "--max-tokens", "16", "--output", str(path), "--json")
        assert main(["rollout", GAME, *servers, *what]) == 0
    assert set(asked) == {0, 1}
    episodes = list(read_episodes(path))
    assert len(episodes) == 12
    assert all(len(step.response_ids) == len(step.logprobs) > 0 for e in episodes for step in e.steps)
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens"] == sum(len(step.response_ids) for e in episodes for step in e.steps)
