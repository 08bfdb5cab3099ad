"""What a recipe says of where environments are, and what becomes of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import recipe
from agent_r1_env.engines.server import ServerEngine
from agent_r1_env.errors import AgentR1Error, RecipeError, UnknownName
from agent_r1_env.executors import Executor
from agent_r1_env.rollout import Rollout
from agent_r1_env.testing import ByteTokenizer, answer, scripted

GAME = "AgentR1/TextGame-v0"
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_a_recipe_that_says_nothing_plays_in_the_trainers_process() -> None:
    executor = Executor.of(recipe.load("quickstart").executor)
    assert executor.kind == "local"
    assert type(executor.rollout(GAME, None, engine=scripted(answer(1)), concurrency=3)) is Rollout


def test_a_recipe_names_ray_and_its_workers() -> None:
    asked = {"executor.kind": "ray", "executor.workers": 4, "executor.imports": ["json"]}
    assert Executor.of(recipe.load("quickstart", asked).executor) == Executor("ray", 4, imports=("json",))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        pytest.param("executor.kind", "rey", "executor.kind", id="kind"),
        pytest.param("executor.worker", 4, "did you mean 'workers'", id="key"),
        pytest.param("executor.workers", 0, "at least 1", id="number"),
    ],
)
def test_a_recipe_that_is_wrong_is_told_so(key: str, value: Any, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe.load("quickstart", {key: value})


def test_code_that_is_wrong_is_told_so() -> None:
    with pytest.raises(UnknownName, match="did you mean 'workers'"):
        Executor.of({"worker": 2})
    with pytest.raises(UnknownName, match="known: local, ray"):
        Executor("spark")
    with pytest.raises(ValueError, match=r"executor.workers must be at least 1, got 0"):
        Executor("ray", 0)


@needs_ray
def test_an_environment_that_no_actor_could_make_is_refused_before_a_model_is_loaded() -> None:
    class Mine(gym.Env[str, str]):
        pass

    gym.register("ExecutorTest/Mine-v0", entry_point=Mine)
    try:
        Executor().check("ExecutorTest/Mine-v0")
        with pytest.raises(AgentR1Error, match="object of this program"):
            Executor("ray").check("ExecutorTest/Mine-v0")
    finally:
        del gym.registry["ExecutorTest/Mine-v0"]


@needs_ray
def test_actors_ask_the_servers_of_an_engine_themselves() -> None:
    from agent_r1_env.ray_executor import RayRollout

    engine = object.__new__(ServerEngine)  # without asking the servers
    engine.urls, engine.model, engine.tokenizer = ["http://a:1", "http://b:2"], "m", ByteTokenizer()
    made = Executor("ray", workers=3).rollout(GAME, None, engine=engine, concurrency=9)
    assert isinstance(made, RayRollout)
    policy = made.spec.policy
    assert (policy.urls, policy.model) == (("http://a:1", "http://b:2"), "m")
    assert policy.options == {"leads": False}, "the trainer's engine alone pauses the servers"
    assert made.spec.options["concurrency"] == 3


def test_the_names_of_the_recipe_are_those_of_the_class(repository: Path) -> None:
    from agent_r1_env.entry import entry_schema

    said = entry_schema("recipe")["properties"]["executor"]["properties"]
    assert set(said) == set(Executor.__dataclass_fields__)
