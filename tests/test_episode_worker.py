"""What plays in another process, tried in this one."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.engines import Sampling
from agent_r1_env.episode_worker import EpisodeWorker, Failure, Played, Ready, WorkerSpec
from agent_r1_env.errors import UnknownName
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.policy_rollout import PolicyRollout
from agent_r1_env.testing import ByteTokenizer, ScriptedEngine

GAME = "AgentR1/TextGame-v0"
RANDOM = PolicySpec(policy="random")


def worker(policy: PolicySpec = RANDOM, **options: Any) -> EpisodeWorker:
    spec = WorkerSpec(EnvOrigin.of(GAME), {}, policy, options)
    return EpisodeWorker(pickle.loads(pickle.dumps(spec)))


def request(number: int) -> EpisodeRequest:
    return EpisodeRequest(number % 20, number, number, salt=f"x/{number}")


def never() -> ScriptedEngine:
    """An engine that does not answer."""

    async def wait(prompt: str) -> str:
        await asyncio.sleep(3600)
        return ""

    return ScriptedEngine(wait, ByteTokenizer())


NEVER = PolicySpec(factory=f"{__file__}:never")


async def test_episodes_come_out_as_in_a_rollout_of_this_process() -> None:
    some = worker()
    assert isinstance(await some.begin(), Ready)
    found = await asyncio.gather(*(some.play(request(n), Sampling(seed=4), 2, None) for n in range(30)))
    await some.close()
    with PolicyRollout(GAME, policy="random", sampling=Sampling(seed=4)) as rollout:
        here = await rollout.run_async([request(number) for number in range(30)], 2)
    assert all(isinstance(each, Played) for each in found)
    replies = [[step.reply for step in each.episode.steps] for each in found if isinstance(each, Played)]
    assert replies == [[step.reply for step in episode.steps] for episode in here]
    assert {each.episode.policy_version for each in found if isinstance(each, Played)} == {2}


async def test_what_goes_wrong_is_returned_and_not_raised() -> None:
    some = worker(PolicySpec(policy="randon"))
    assert isinstance(await some.begin(), Ready)
    found = await some.play(request(0), Sampling(), None, None)
    await some.close()
    assert isinstance(found, Failure) and isinstance(found.error, UnknownName)
    nowhere = await worker(PolicySpec(factory="no_such_module:make")).begin()
    assert isinstance(nowhere, Failure) and "no_such_module" in nowhere.text


async def test_an_episode_ends_when_the_time_of_the_run_is_up() -> None:
    some = worker(NEVER)
    await some.begin()
    found = await asyncio.wait_for(some.play(request(0), Sampling(), None, 0.05), 30)
    await some.close()
    assert isinstance(found, Played) and found.episode.stop_reason == "time_limit"
    assert found.format == "hermes", "whoever collects episodes looks out for calls in other formats"


async def test_cancelling_one_episode_disturbs_no_other() -> None:
    some = worker()
    await some.begin()
    plays = [asyncio.create_task(some.play(request(n), Sampling(seed=1), None, None)) for n in range(8)]
    await asyncio.sleep(0)
    plays[3].cancel()
    found = await asyncio.gather(*plays, return_exceptions=True)
    await some.close()
    assert [isinstance(each, Played) for each in found] == [number != 3 for number in range(8)]


async def test_closing_ends_what_is_played() -> None:
    some = worker(NEVER)
    await some.begin()
    play = asyncio.create_task(some.play(request(0), Sampling(), None, None))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(some.close(), 30)
    with pytest.raises(asyncio.CancelledError):
        await play
