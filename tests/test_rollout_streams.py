"""Streams of episodes, limits of time, groups that have enough, and what is left after each: nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode
from agent_r1_env.errors import EngineError
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.testing import ByteTokenizer, answer, call, sum_env
from agent_r1_env.tool import tool
from agent_r1_env.trajectory import sampled_ids

SUM, FOREIGN = "StreamTest/Sum-v0", "StreamTest/Foreign-v0"
SOON = 5.0  # seconds in which anything cancelled must be gone, far more than it takes


class Asked(ScriptedEngine):
    """Says what a function of the episode's number and the turn says; counts the requests that wait."""

    def __init__(self, says: Any) -> None:
        super().__init__(lambda prompt: "", ByteTokenizer())
        self.says = says
        self.waiting = self.begun = 0

    async def generate(self, prompt_ids: Any, sampling: Sampling) -> Generation:
        turn = self.tokenizer.decode(prompt_ids).count("<|im_start|>assistant") - 1
        place = int(sampling.session.rpartition("/")[2])
        self.waiting += 1
        self.begun += 1
        try:
            said = self.says(place, turn)
            text = await said if asyncio.iscoroutine(said) else said
        finally:
            self.waiting -= 1
        ids = self._encode(text, sampling)
        return Generation(ids, [-1.0] * len(ids), "stop")


class Foreign(gym.Env[str, str]):
    """Knows nothing of coroutines; a step may take until it is released."""

    observation_space = UnicodeText()
    action_space = UnicodeText()
    release = threading.Event()
    live = 0

    def __init__(self) -> None:
        type(self).live += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.stuck = (options or {}).get("task") == "stuck"
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.stuck:
            self.release.wait(30)
        return "end", 1.0, True, False, {}

    def close(self) -> None:
        type(self).live -= 1


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


def left() -> tuple[int, int]:
    """Threads of environments and rollouts, and open files."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith(("env-", "rollout")) for name in names), len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gym.register(SUM, entry_point=paying)
    gym.register(FOREIGN, entry_point=Foreign)
    Foreign.release, Foreign.live = threading.Event(), 0
    env = paying()
    env.reset(seed=0)
    env.step(call("wait", seconds=0))  # the tools of a process share a loop, which begins with the first
    threads, files = left()
    yield
    for name in (SUM, FOREIGN):
        del gym.registry[name]
    Foreign.release.set()
    gc.collect()
    end = time.monotonic() + SOON
    while time.monotonic() < end and (left()[0] > threads or left()[1] > files or Foreign.live):
        time.sleep(0.01)
    assert left()[0] <= threads
    assert left()[1] <= files
    assert Foreign.live == 0


def paying() -> ToolEnv:
    """An environment that pays at the end, however it came."""
    return sum_env([wait], count=8, rewards={"paid": 1.0}, terms={"paid": lambda outcome: 0.25})


def requests(count: int, group: int = 4) -> list[EpisodeRequest]:
    return [EpisodeRequest(task=i % 8, seed=i, group=i // group) for i in range(count)]


async def sleeping(seconds: float, text: str = "<answer>1</answer>") -> str:
    await asyncio.sleep(seconds)
    return text


async def settled(engine: Asked) -> None:
    """Until this task is the only one, and the engine is asked for nothing."""
    end = time.monotonic() + SOON
    while time.monotonic() < end and (engine.waiting or len(asyncio.all_tasks()) > 1):
        await asyncio.sleep(0.01)
    assert engine.waiting == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- streams


async def test_episodes_come_as_they_end() -> None:
    engine = Asked(lambda place, turn: sleeping(0.3 * (3 - place)))
    with Rollout(SUM, engine=engine) as rollout:
        found = [episode.seed async for episode in rollout.stream(requests(4))]
    assert found == [3, 2, 1, 0]


async def test_a_slow_reader_holds_up_the_episodes_and_not_the_memory() -> None:
    asked = ended = taken = ahead = 0

    def endless() -> Iterator[EpisodeRequest]:
        nonlocal asked
        while True:
            asked += 1
            yield EpisodeRequest(0, asked)

    def count(episode: Episode) -> None:
        nonlocal ended
        ended += 1

    engine = Asked(lambda place, turn: answer(1))
    with Rollout(SUM, engine=engine, concurrency=3, on_episode=count) as rollout:
        async with aclosing(rollout.stream(endless())) as episodes:
            async for _ in episodes:
                taken += 1
                await asyncio.sleep(0.01)
                ahead = max(ahead, asked - taken)
                if taken == 20:
                    break
    assert taken == 20
    assert 3 <= ahead <= 7, "twice the concurrency, and the request that is looked at"
    assert ended <= taken + 6
    await settled(engine)


@pytest.mark.parametrize("env_id", [SUM, FOREIGN])
async def test_a_break_cancels_the_rest_and_closes_everything(env_id: str) -> None:
    first = iter([0.0])
    engine = Asked(lambda place, turn: sleeping(next(first, 60.0)))
    rollout = Rollout(env_id, engine=engine)
    async for episode in rollout.stream(requests(8)):
        assert episode.stop_reason in ("answer", "terminated")
        break
    await settled(engine)
    assert rollout._idle == []


async def test_an_error_of_the_reader_cancels_the_rest() -> None:
    first = iter([0.0])
    engine = Asked(lambda place, turn: sleeping(next(first, 60.0)))
    rollout = Rollout(SUM, engine=engine)
    with pytest.raises(ZeroDivisionError):
        async with aclosing(rollout.stream(requests(8))) as episodes:
            async for _ in episodes:
                1 // 0  # noqa: B018
    assert engine.waiting == 0
    await settled(engine)


async def test_a_cancelled_reader_cancels_the_rest() -> None:
    engine = Asked(lambda place, turn: sleeping(60.0))
    rollout = Rollout(SUM, engine=engine)

    async def read() -> None:
        async for _ in rollout.stream(requests(8)):
            pass

    reading = asyncio.ensure_future(read())
    while engine.waiting < 8:
        await asyncio.sleep(0.001)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await settled(engine)


async def test_an_engine_that_fails_is_heard_of_at_once_by_the_reader() -> None:
    async def fail() -> str:
        await asyncio.sleep(0.05)
        raise EngineError("out of memory")

    engine = Asked(lambda place, turn: fail() if place == 3 else sleeping(60.0))
    rollout = Rollout(SUM, engine=engine)
    with pytest.raises(EngineError, match="out of memory"):
        async for _ in rollout.stream(requests(8)):
            pass
    assert engine.waiting == 0
    await settled(engine)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_an_error_of_the_requests_is_heard_of_wherever_it_comes(concurrency: int) -> None:
    def torn() -> Iterator[EpisodeRequest]:
        yield from requests(5)
        raise ValueError("line 6 is no task")

    rollout = Rollout(SUM, engine=Asked(lambda place, turn: sleeping(0.01)), concurrency=concurrency)
    with pytest.raises(ValueError, match="line 6 is no task"):
        async with asyncio.timeout(SOON):
            await rollout.run_async(torn())


async def test_a_tool_environment_that_cancels_itself_is_an_episode_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = ToolEnv.step_async

    async def give_up(self: ToolEnv, action: Any) -> Any:
        if action == answer(3):
            raise asyncio.CancelledError("a pool was shut")
        return await step(self, action)

    monkeypatch.setattr(ToolEnv, "step_async", give_up)
    with Rollout(SUM, engine=Asked(lambda place, turn: answer(place + 1))) as rollout:
        found = await rollout.run_async(requests(4))
    assert [episode.seed for episode in found] == [0, 1, 2, 3]
    assert [episode.error for episode in found] == [None, None, "CancelledError: a pool was shut", None]


async def test_an_episode_that_an_engine_cancels_is_not_left_out_in_silence() -> None:
    async def give_up() -> str:
        raise asyncio.CancelledError

    rollout = Rollout(SUM, engine=Asked(lambda place, turn: give_up() if place == 2 else sleeping(0.01)))
    with pytest.raises(EngineError, match="episode 2 was cancelled from within"):
        await rollout.run_async(requests(4))


async def test_a_stream_that_ended_can_be_followed_by_another_in_the_same_environments() -> None:
    engine = Asked(lambda place, turn: answer(place + 1))
    with Rollout(SUM, engine=engine, concurrency=2) as rollout:
        first = {id(env) for env in rollout._idle}
        for _ in range(2):
            assert len([episode async for episode in rollout.stream(requests(6))]) == 6
            first = first or {id(env) for env in rollout._idle}
            assert {id(env) for env in rollout._idle} == first


# -- a limit of time


def test_what_is_not_over_in_time_is_truncated_and_handed_out() -> None:
    def says(place: int, turn: int) -> Any:
        if place == 0:
            return answer(1)  # is over
        if place == 1:
            return call("wait", seconds=0) if turn == 0 else sleeping(60.0)  # is being asked
        return call("wait", seconds=60)  # works

    engine = Asked(says)
    asked = [EpisodeRequest(i, i) for i in range(3)]
    began = time.monotonic()
    with Rollout(SUM, engine=engine, time_limit=1.0) as rollout:
        over, waiting, working = rollout.run(asked, policy_version=7)
    assert time.monotonic() - began < 1.0 + SOON
    assert (over.stop_reason, over.reward) == ("answer", 0.25)
    assert [(e.truncated, e.terminated, e.stop_reason) for e in (waiting, working)] == [
        (True, False, "time_limit")
    ] * 2
    assert [len(e.steps) for e in (waiting, working)] == [1, 1], "no sampled reply is lost"
    assert [e.truncation_reward for e in (waiting, working)] == [0.25, 0.25], "the outcome is scored"
    assert (working.steps[0].reward, working.steps[0].calls) == (0.0, ())
    assert bytes(sampled_ids(working)[:-1]).decode() == call("wait", seconds=60)
    assert ByteTokenizer().decode(list(waiting.next_prompt_ids)).endswith("<|im_start|>assistant\n")
    assert list(working.next_prompt_ids) == []
    assert {e.policy_version for e in (over, waiting, working)} == {7}
    assert engine.waiting == 0


def test_what_had_no_time_to_begin_is_an_episode_without_steps() -> None:
    engine = Asked(lambda place, turn: sleeping(60.0))
    with Rollout(SUM, engine=engine, time_limit=0.5, concurrency=2) as rollout:
        found = rollout.run(requests(6))
    assert [(e.seed, e.group, e.stop_reason, e.steps) for e in found] == [
        (i, i // 4, "time_limit", ()) for i in range(6)
    ]
    assert [e.truncation_reward for e in found] == [0.25] * 2 + [0.0] * 4
    assert engine.begun == 2


def test_a_plain_environment_that_hangs_is_cut_off_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_r1_env.hosted.GRACE", 0.2)
    engine = Asked(lambda place, turn: "x")
    asked = [EpisodeRequest("stuck", 0), EpisodeRequest(None, 1)]
    with Rollout(FOREIGN, engine=engine, time_limit=0.5) as rollout, caplog.at_level(logging.WARNING):
        stuck, other = rollout.run(asked)
        assert (stuck.stop_reason, stuck.steps[0].reply, stuck.reward) == ("time_limit", "x", 0.0)
        assert (other.stop_reason, other.reward) == ("terminated", 1.0)
        assert "is left behind" in caplog.text
        (again,) = rollout.run(asked[1:])
        assert again.reward == 1.0


def test_a_time_out_of_the_engine_is_not_taken_for_the_limit() -> None:
    async def late() -> str:
        raise TimeoutError("the server")

    with (
        Rollout(SUM, engine=Asked(lambda place, turn: late()), time_limit=60.0) as rollout,
        pytest.raises(TimeoutError, match="the server"),
    ):
        rollout.run(requests(2))


@pytest.mark.parametrize("wrong", [{"time_limit": 0.0}, {"time_limit": float("nan")}, {"enough": 0}])
def test_limits_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rollout(SUM, engine=Asked(None), **wrong)


# -- groups that have enough


@pytest.mark.parametrize("env_id", [SUM, FOREIGN])
def test_a_group_that_has_enough_cancels_its_others(env_id: str) -> None:
    engine = Asked(lambda place, turn: answer(1) if place in (0, 1, 6, 7) else sleeping(60.0))
    reported: list[int | None] = []
    rollout = Rollout(env_id, engine=engine, enough=2, on_episode=lambda e: reported.append(e.seed))
    began = time.monotonic()
    with rollout:
        found = rollout.run(requests(8))
        assert time.monotonic() - began < SOON
        assert [e.seed for e in found] == [0, 1, 6, 7], "in the order of the requests"
        assert [e.seed for e in found] == sorted(reported, key=int)
        assert engine.waiting == 0
        engine.says = lambda place, turn: answer(1)
        rollout.enough = None
        assert len(rollout.run(requests(8))) == 8, "the environments of the cancelled ones are sound"


def test_episodes_of_a_group_that_has_enough_do_not_begin() -> None:
    engine = Asked(lambda place, turn: answer(1))
    with Rollout(SUM, engine=engine, enough=1, concurrency=1) as rollout:
        assert [e.seed for e in rollout.run(requests(8))] == [0, 4]
    assert engine.begun == 2


def test_failed_episodes_are_not_counted_as_enough() -> None:
    asked = [EpisodeRequest(99, 0), EpisodeRequest(1, 1), EpisodeRequest(2, 2)]  # there is no task 99
    with Rollout(SUM, engine=Asked(lambda place, turn: answer(1)), enough=1, concurrency=1) as rollout:
        found = rollout.run(asked)
    assert [(e.seed, e.failed) for e in found] == [(0, True), (1, False)]


# -- threads


def test_what_the_time_limit_cut_is_not_counted_as_enough() -> None:
    """An episode that never began would take the place of one that is under way."""
    engine = Asked(lambda place, turn: answer(1) if place == 0 else sleeping(60.0))
    with Rollout(SUM, engine=engine, concurrency=2, time_limit=0.5, enough=2) as rollout:
        found = rollout.run(requests(4))
    assert [episode.stop_reason for episode in found] == ["answer", *["time_limit"] * 3]


def test_many_tool_environments_need_few_threads_and_are_as_many_as_episodes() -> None:
    most = 0

    def count(episode: Episode) -> None:
        nonlocal most
        most = max(most, left()[0])

    met = 0

    async def together() -> str:
        nonlocal met
        met += 1
        while met < 200:
            await asyncio.sleep(0.01)
        return answer(1)

    made: list[ToolEnv] = []

    def make() -> ToolEnv:
        made.append(paying())
        return made[-1]

    gym.register("StreamTest/Counted-v0", entry_point=make)
    engine = Asked(lambda place, turn: together())
    with Rollout("StreamTest/Counted-v0", engine=engine, concurrency=200, on_episode=count) as rollout:
        assert len(rollout.run(requests(200))) == 200
        assert len(rollout._idle) == len(made) == 200
    del gym.registry["StreamTest/Counted-v0"]
    assert most <= 3
    assert all(env.toolbox._closed for env in made)


async def test_environments_under_construction_are_closed_when_all_is_cancelled() -> None:
    made: list[ToolEnv] = []

    def make() -> ToolEnv:
        made.append(paying())
        time.sleep(0.01)  # so that others wait and several are made at a stretch
        return made[-1]

    gym.register("StreamTest/Counted-v0", entry_point=make)
    engine = Asked(lambda place, turn: sleeping(60.0))
    rollout = Rollout("StreamTest/Counted-v0", engine=engine)
    running = asyncio.ensure_future(rollout.run_async(requests(64)))
    while len(made) < 5:  # the second stretch has begun
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    del gym.registry["StreamTest/Counted-v0"]
    end = time.monotonic() + SOON
    while time.monotonic() < end and not all(env.toolbox._closed for env in made):
        await asyncio.sleep(0.01)
    assert all(env.toolbox._closed for env in made)
    await settled(engine)


async def test_a_run_aside_leaves_nothing_when_it_is_interrupted_by_the_limit() -> None:
    engine = Asked(lambda place, turn: sleeping(60.0))
    with Rollout(SUM, engine=engine, time_limit=0.3) as rollout:
        found = rollout.run(requests(3))  # on a thread, for a loop runs here
    assert [e.stop_reason for e in found] == ["time_limit"] * 3
    await settled(engine)


def test_an_environment_whose_reset_was_replaced_is_not_awaited() -> None:
    def slow() -> gym.Env[Any, Any]:
        env = sum_env([wait])
        reset = env.reset

        def replaced(**options: Any) -> Any:
            threads.add(threading.current_thread().name)
            return reset(**options)

        env.reset = replaced  # type: ignore[method-assign]
        return env

    threads: set[str] = set()
    gym.register("StreamTest/Slow-v0", entry_point=slow)
    with Rollout("StreamTest/Slow-v0", engine=Asked(lambda place, turn: answer(1))) as rollout:
        rollout.run(requests(1))
    del gym.registry["StreamTest/Slow-v0"]
    assert threads == {"env-StreamTest/Slow-v0"}
