"""Episodes on Ray actors: the same as here, each once, whatever dies; and nothing left behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env.elsewhere import PolicySpec
from agent_r1_env.engines import Sampling, TextEngine
from agent_r1_env.episode import Episode, EpisodeFile, read_episodes
from agent_r1_env.errors import AgentR1Error, EngineError, WorkerLost
from agent_r1_env.executors import Executor
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.ray_actors import Actors, Member
from agent_r1_env.ray_executor import RayRollout
from agent_r1_env.ray_session import Session
from agent_r1_env.rollout import Rollout

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow

ENV = "RayTest/Sums-v0"
SUMS = """
name: Sums
tasks: {load: ./sums.py:load}
tools: [add]
policies: {right: ./sums.py:right}
"""
ADD = """
name: add
description: Add two numbers.
run: ./add.py:add
parameters:
  type: object
  properties: {a: {type: integer}, b: {type: integer}}
  required: [a, b]
"""
ADD_CODE = """
import os, signal, time
def add(a: int, b: int) -> int:
    if b == 666:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return a + b
"""
CODE = """
import random
from agent_r1_env import Task, TaskSet, formats
from agent_r1_env.engines import Generation
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.errors import EngineError
from agent_r1_env.testing import ByteTokenizer

def load(count=20, poison=()):
    tasks = [Task(f"s{i}", f"{i} + {666 if i in poison else 1}?", (str(i + 1),)) for i in range(count)]
    return TaskSet(tasks, name="sums", origin="code")

def right(env, rng):
    if env.steps == 0:
        return env.format.render_call("add", {"a": int(rng.integers(9)), "b": 1})
    return env.render_answer(env.task.answers[0])

class Drawing(ScriptedEngine):
    '''Calls the tool with a number that is drawn, and then answers with one, by the seed of each reply.'''
    async def generate(self, prompt_ids, sampling):
        prompt = self.tokenizer.decode(list(prompt_ids), skip_special_tokens=False)
        drawn = random.Random(sampling.seed).randrange(1000)
        if "tool_response>\\n" in prompt:
            text = f"<answer>{drawn}</answer>"
        else:
            b = 666 if "666?" in prompt else drawn % 500
            text = formats.get("hermes").render_call("add", {"a": drawn, "b": b})
        ids = self._encode(text, sampling)
        return Generation(ids, [-0.001 * drawn] * len(ids), "stop")

def drawing():
    return Drawing(lambda prompt: "", ByteTokenizer())

def broken():
    raise EngineError("no server at http://nowhere")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalogue of the tests' own, registered here."""
    root = tmp_path_factory.mktemp("own")
    for name, text in {
        "envs/sums.yaml": SUMS,
        "envs/sums.py": CODE,
        "tools/add.yaml": ADD,
        "tools/add.py": ADD_CODE,
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    ids = agent_r1_env.register(root, "RayTest")
    yield root
    for env_id in ids:
        del gym.registry[env_id]


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """A small cluster, held open between the tests."""
    session = Session(None, 2)
    yield
    session.close()


def drawing(folder: Path) -> PolicySpec:
    return PolicySpec(factory=f"{folder / 'envs' / 'sums.py'}:drawing")


def requests(count: int) -> list[EpisodeRequest]:
    return [EpisodeRequest(number % 20, number, number % 20, number // 20) for number in range(count)]


def bare(episode: Episode) -> Episode:
    """The episode without what differs between two runs: times."""
    steps = [
        dataclasses.replace(
            step,
            generate_seconds=0.0,
            tool_seconds=0.0,
            calls=[{k: v for k, v in call.items() if k != "seconds"} for call in step.calls],
            prompt_ids=list(step.prompt_ids),
            response_ids=list(step.response_ids),
            logprobs=list(step.logprobs),
            versions=list(step.versions),
        )
        for step in episode.steps
    ]
    return dataclasses.replace(episode, steps=steps)


def test_a_worker_killed_half_way_changes_no_episode_and_doubles_none(
    ray: None, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "episodes.jsonl"
    ended: list[Episode] = []
    ahead: list[int] = []
    asked, sampling, read = requests(60), Sampling(seed=5), 0

    def one_by_one() -> Iterator[EpisodeRequest]:
        nonlocal read
        for request in asked:
            read += 1
            yield request

    def on_episode(episode: Episode) -> None:
        file.append(episode)
        ended.append(episode)
        ahead.append(read - len(ended))
        if len(ended) == 25:
            os.kill(rollout.pids[0], signal.SIGKILL)

    rollout = RayRollout(
        ENV, policy=drawing(folder), workers=2, concurrency=8, sampling=sampling, on_episode=on_episode
    )
    with EpisodeFile(path) as file, rollout:
        played = rollout.run(one_by_one(), policy_version=3)
        assert rollout.lost == 1 and 1 <= rollout.redone <= 4
    with Rollout(ENV, engine=drawing(folder).engine(), sampling=sampling) as local:
        here = local.run(asked, policy_version=3)
    assert [bare(episode) for episode in played] == [bare(episode) for episode in here]
    assert len({episode.steps[0].reply for episode in played}) > 40, "replies are drawn"
    written = Counter((episode.group, episode.sample, episode.seed) for episode in read_episodes(path))
    assert written == Counter((request.group, request.sample, request.seed) for request in asked)
    assert max(ahead) <= 8, "no more are asked for than may be under way"


def test_an_episode_that_kills_its_workers_becomes_an_error_and_no_other_does(
    ray: None, folder: Path
) -> None:
    kwargs = {"poison": [7]}
    with RayRollout(ENV, kwargs, policy=drawing(folder), workers=2, concurrency=4, max_attempts=2) as rollout:
        played = rollout.run(requests(20))
    assert [episode.group for episode in played] == list(range(20))
    assert [episode.group for episode in played if episode.failed] == [7]
    assert played[7].stop_reason == "error" and "2 workers died" in str(played[7].error)
    assert rollout.lost == 2


def test_workers_that_only_die_end_the_run_with_the_reason(ray: None, folder: Path) -> None:
    with RayRollout(
        ENV, {"poison": list(range(20))}, policy=drawing(folder), workers=1, concurrency=1, max_in_a_row=1
    ) as rollout:
        with pytest.raises(WorkerLost, match="1 in a row .* the last one: worker 0 on "):
            rollout.run(requests(20))
        assert rollout.pids == []


def test_what_a_worker_raises_is_raised_here_as_it_was(ray: None, folder: Path) -> None:
    broken = PolicySpec(factory=f"{folder / 'envs' / 'sums.py'}:broken")
    with (
        RayRollout(ENV, policy=broken, workers=1) as rollout,
        pytest.raises(EngineError, match="no server at http://nowhere"),
    ):
        rollout.run(requests(2))


def test_two_rollouts_share_a_ray_of_this_machine(ray: None, folder: Path) -> None:
    """As training and evaluation do; nobody waits for cores that the other one has set aside."""
    asked, options = requests(4), {"policy": drawing(folder), "workers": 2, "cpus": 3.0, "time_limit": 60.0}
    with RayRollout(ENV, **options) as one, RayRollout(ENV, **options) as other:
        assert {each.stop_reason for each in [*one.run(asked), *other.run(asked)]} == {"answer"}
        assert len({*one.pids, *other.pids}) >= 2


def test_the_time_limit_holds_while_no_worker_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actors, "begin", lambda self: None)
    with RayRollout(ENV, policy=drawing(folder), time_limit=0.2) as rollout:
        played = rollout.run(requests(3))
    assert [(each.stop_reason, len(each.steps)) for each in played] == [("time_limit", 0)] * 3


def test_an_episode_that_cannot_be_sent_kills_no_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.exceptions import RayTaskError

    async def unsent() -> None:
        raise RayTaskError("play", "a traceback", TypeError("cannot pickle a lock"))

    play = SimpleNamespace(remote=lambda *_: unsent())
    member = Member(0, SimpleNamespace(play=play))
    monkeypatch.setattr(Actors, "begin", lambda self: self.crew.join(member))
    with RayRollout(ENV, policy=drawing(folder)) as rollout:
        with pytest.raises(AgentR1Error, match="worker 0 could not send an episode: .*cannot pickle a lock"):
            rollout.run(requests(3))
        assert rollout.lost == 0


def left_behind(mark: str) -> list[str]:
    """The command lines of processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it is gone, or another user's
            continue
    return found


def test_after_ctrl_c_no_process_is_left_and_the_file_is_whole(folder: Path, tmp_path: Path) -> None:
    path, mark = tmp_path / "episodes.jsonl", f"RAY_TEST_MARK={os.getpid()}"
    temporary = Path("/tmp") / f"rt{os.getpid()}"
    temporary.mkdir()
    where = ("--register", str(folder), "--namespace", "RayTest", "--output", str(path))
    command = [sys.executable, "-m", "agent_r1_env.cli", "rollout", ENV, "--policy", "right", *where]
    name, _, value = mark.partition("=")
    running = subprocess.Popen(
        [*command, "--n", "5000", "--executor", "ray", "--workers", "2", "--concurrency", "4"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, name: value, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not (path.exists() and path.stat().st_size) and running.poll() is None:
            assert time.monotonic() < deadline, "no episode was written"
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, said
    assert "--resume goes on" in said
    deadline = time.monotonic() + 20
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
    assert len(list(read_episodes(path))) > 0


def test_actors_reach_the_engine_of_this_process_by_url(ray: None, folder: Path) -> None:
    engine = drawing(folder).engine()
    assert not isinstance(engine, TextEngine)
    asked, options = requests(12), {"sampling": Sampling(seed=5), "concurrency": 4}
    executor = Executor("ray", workers=1)
    with executor.rollout(ENV, None, engine=engine, **options) as rollout:
        played = rollout.run(asked, policy_version=1)
        again = rollout.run(asked, policy_version=2)
    with Executor().rollout(ENV, None, engine=engine, **options) as local:
        assert [bare(each) for each in played] == [bare(each) for each in local.run(asked, policy_version=1)]
    assert [each.policy_version for each in again] == [2] * 12
    assert again[0].steps[0].reply != played[0].steps[0].reply
