"""Episodes as data, and the file that survives a killed process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent_r1_env.episode import Episode, EpisodeFile, Step, read_episodes
from agent_r1_env.errors import DataError

STEP = Step([1, 2], [3], [-0.5], reward=0.25, prompt="p", reply="r", calls=({"name": "add", "ok": True},))
EPISODE = Episode(
    "Test/E-v0", "t", 7, 2, (STEP, STEP), terminated=True, stop_reason="answer", answer="é\ud800"
)


def test_the_reward_of_an_episode_is_that_of_all_its_steps() -> None:
    steps = [replace(STEP, reward=reward) for reward in (0.1, -0.2, 1.0)]
    assert replace(EPISODE, steps=steps).reward == pytest.approx(0.9)


def test_reward_paid_outside_a_step_is_not_lost() -> None:
    assert Episode("e", "t", 0, 0, truncated=True, truncation_reward=0.5).reward == 0.5


def test_a_step_with_more_ids_than_logprobs_raises() -> None:
    with pytest.raises(ValueError, match="2 sampled ids but 1 log-probs"):
        Step([1], [2, 3], [-1.0])


def test_an_episode_survives_the_file(tmp_path: Path) -> None:
    with EpisodeFile(tmp_path / "deep" / "episodes.jsonl") as file:
        file.append(EPISODE)
        file.append(replace(EPISODE, answer=None, error="ValueError: x"))
    first, second = read_episodes(tmp_path / "deep" / "episodes.jsonl")
    assert first == replace(EPISODE, steps=first.steps)
    assert first.steps[0].response_ids == [3]
    assert second.failed


def test_numpy_values_and_numbers_without_json_are_written(tmp_path: Path) -> None:
    step = replace(
        STEP,
        response_ids=np.array([3, 4]),
        logprobs=np.array([-0.5, np.nan], dtype=np.float32),
        reward=np.float32(0.5),
        calls=({"seconds": np.float64(0.1), "odd": {1, 2}},),
    )
    path = tmp_path / "e.jsonl"
    with EpisodeFile(path) as file:
        file.append(replace(EPISODE, steps=[step], metrics={"f1": np.float32(np.inf)}))
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    (episode,) = read_episodes(path)
    assert episode.reward == 0.5
    assert episode.steps[0].response_ids == [3, 4]
    assert math.isnan(episode.steps[0].logprobs[1])


def test_an_episode_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    with EpisodeFile(tmp_path / "e.jsonl") as file:
        file.append(EPISODE)
        assert len(list(read_episodes(tmp_path / "e.jsonl"))) == 1


def test_ids_can_be_left_out(tmp_path: Path) -> None:
    with EpisodeFile(tmp_path / "e.jsonl", ids=False) as file:
        file.append(EPISODE)
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert episode.steps[0].response_ids == []
    assert episode.steps[0].reply == "r"
    assert episode.reward == EPISODE.reward


def test_a_torn_last_line_is_skipped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    with EpisodeFile(path) as file:
        file.append(EPISODE)
    path.write_bytes(path.read_bytes() * 2 + b'{"env_id": "Te')
    with pytest.warns(UserWarning, match="torn last line 3"):
        assert len(list(read_episodes(path))) == 2


@pytest.mark.parametrize("torn", [b'{"env_id": "Te\n', b"[1]\n", b'{"env_id": "E"}\n', b"\xff\n"])
def test_a_torn_line_elsewhere_raises_with_its_number(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "e.jsonl"
    with EpisodeFile(path) as file:
        file.append(EPISODE)
    whole = path.read_bytes()
    path.write_bytes(whole + torn + whole)
    with pytest.raises(DataError, match="row 2") as caught:
        list(read_episodes(path))
    assert caught.value.row == 2


def test_going_on_after_a_crash_drops_the_torn_line_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    with EpisodeFile(path) as file:
        file.append(EPISODE)
    path.write_bytes(path.read_bytes() + b"x" * 200_000)
    with pytest.warns(UserWarning, match="dropped a torn last line of 200000 bytes"):
        file = EpisodeFile(path)
    with file:
        file.append(EPISODE)
    assert len(list(read_episodes(path))) == 2


def test_a_file_without_a_whole_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"env')
    with pytest.warns(UserWarning, match="torn"), EpisodeFile(path) as file:
        file.append(EPISODE)
    assert len(list(read_episodes(path))) == 1


WRITER = """
import sys
from contextlib import nullcontext
from agent_r1_env.episode import Episode, EpisodeFile, Step
step = Step(list(range(500)), list(range(500)), [-1.0] * 500)
file = EpisodeFile(sys.argv[1])
while True:
    file.append(Episode("E", "t", 0, 0, (step,) * 5))
    print("written", flush=True)
"""


def test_a_killed_writer_leaves_a_readable_file(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    written = [writer.stdout.readline() for _ in range(5)]
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert written == ["written\n"] * 5
    with pytest.warns(UserWarning, match="torn") if not path.read_bytes().endswith(b"\n") else nullcontext():
        assert len(list(read_episodes(path))) >= 5
