"""Gymnasium wrappers that change the tools of an environment."""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import UnknownName
from agent_r1_env.hosted import _coroutine_step
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.testing import answer, call, scripted, sum_env
from agent_r1_env.wrappers import DistractorTools, FaultInjection, Latency, ParaphrasedTools

SUMS = "WrappersTest/Sums-v0"
WRAPPERS = [
    (FaultInjection, {"rate": 0.1, "seed": 2}),
    (Latency, {"uniform": [0.0, 0.001], "hang": 0.0}),
    (DistractorTools, {"count": 2, "seed": 1}),
    (ParaphrasedTools, {"seed": 1, "texts": {"add": {"description": "Sum up."}}}),
]


@pytest.fixture(autouse=True)
def registered() -> Any:
    gym.register(SUMS, entry_point="agent_r1_env.testing:sum_env", kwargs={"max_steps": 30})
    yield
    for env_id in [each for each in gym.registry if each.startswith("WrappersTest/")]:
        del gym.registry[env_id]


def base(env: gym.Env[Any, Any]) -> ToolEnv:
    assert isinstance(env.unwrapped, ToolEnv)
    return env.unwrapped


def wrapped() -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = gym.make(SUMS, disable_env_checker=True)
    for wrapper, options in WRAPPERS:
        env = wrapper(env, **options)  # type: ignore[arg-type]
    return env


def played(env: gym.Env[Any, Any]) -> list[Any]:
    seen: list[Any] = [env.reset(seed=4)[0]]
    for number in range(25):
        observation, *_, info = env.step(call("add", a=number, b=1))
        seen.append((observation, [record["simulated"] for record in info["calls"]]))
    return seen


def test_each_changes_the_tools_and_all_work_together() -> None:
    env = wrapped()
    observation, info = env.reset(seed=0)
    assert len(info["tools"]) == 3 and "Sum up." in observation
    assert {kind for _, kinds in played(env)[1:] for kind in kinds} > {None}


def test_the_spec_makes_the_same_environment_again() -> None:
    env = wrapped()
    assert env.spec is not None
    names = [each.name for each in env.spec.additional_wrappers]
    assert names == ["FaultInjection", "Latency", "DistractorTools", "ParaphrasedTools"]
    again = gym.make(EnvSpec.from_json(env.spec.to_json()), disable_env_checker=True)
    assert played(again) == played(env)


def test_wrappers_of_a_registered_environment_are_put_around_it() -> None:
    wrappers = tuple(wrapper.wrapper_spec(**options) for wrapper, options in WRAPPERS)
    gym.register(
        "WrappersTest/Noisy-v0",
        entry_point="agent_r1_env.testing:sum_env",
        kwargs={"max_steps": 30},
        additional_wrappers=wrappers,
    )
    env = gym.make("WrappersTest/Noisy-v0", disable_env_checker=True)
    expected = played(env)
    assert expected == played(wrapped())
    engine = scripted(*(call("add", a=number, b=1) for number in range(25)), answer(1))
    with Rollout("WrappersTest/Noisy-v0", engine=engine) as rollout:
        (episode,) = rollout.run([EpisodeRequest(None, 4)])
    kinds = [record["simulated"] for step in episode.steps for record in step.calls]
    assert kinds == [kind for _, kinds in expected[1:] for kind in kinds]


def test_rollouts_await_the_environment_through_all_of_them() -> None:
    env = wrapped()
    step = _coroutine_step(env)
    assert step == base(env).step_async
    env.reset(seed=0)
    assert step is not None
    assert asyncio.run(step(call("add", a=1, b=2)))[4]["calls"]  # type: ignore[arg-type]


def test_gymnasium_accepts_an_environment_in_them() -> None:
    check_env(base(wrapped()))


def test_closing_closes_the_tools_once() -> None:
    closed = []
    plain = next(iter(sum_env().toolbox.tools.values()))
    tool = type(plain)("add", "", plain.parameters, plain.run, close=lambda: closed.append(1))
    env: gym.Env[Any, Any] = sum_env([tool])
    for wrapper, options in WRAPPERS:
        env = wrapper(env, **options)  # type: ignore[arg-type]
    assert not closed
    env.close()
    env.close()
    assert closed == [1]


def test_other_environments_are_refused() -> None:
    with pytest.raises(TypeError, match="FaultInjection changes the tools of a ToolEnv; got SingleToolEnv"):
        FaultInjection(gym.make("AgentR1/CalculatorTool-v0"), 0.1)


def test_a_mistake_leaves_the_environment_as_it_was() -> None:
    env = sum_env()
    with pytest.raises(UnknownName, match="no tool named 'addd'; did you mean 'add'"):
        FaultInjection(env, 0.1, tools=["addd"])
    env.reset(seed=0)
    assert env.step(call("add", a=1, b=2))[4]["calls"][0]["result"] == "3"
