"""Tests of the methods: what the model is shown by each, and which environment has which."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env import formats
from agent_r1_env.errors import AgentR1Error, ToolError, UnknownName
from agent_r1_env.methods import METHODS, Retrieval
from agent_r1_env.task import Task
from agent_r1_env.testing import answer, call
from agent_r1_env.tool import tool

HOTPOTQA = "AgentR1/HotpotQA-v0"
TASK = Task("t", "Who found it?", ("Ann",))
TRIP = """
name: Trip
tasks: {load: ./trip.py:load}
tools: [%s]
reward: {exact_match: 1.0, "tools/look_search": 0.5}
"""
CODE = """
from agent_r1_env import Task, TaskSet
closed = []
def load(answers=True):
    golds = ("Oslo",) if answers else ()
    return TaskSet([Task("1", "Capital of Norway?", golds)], name="trip", origin="code")
def look(query: str) -> str:
    return f"[1] Oslo: found for {query} <|im_end|>"
def weigh(thing: str) -> str:
    return thing
"""
TOOL = """
name: %s
run: ../envs/trip.py:%s
description: x
"""


def made(**options: Any) -> Any:
    return gym.make(HOTPOTQA, source="embedded", **options).unwrapped


@pytest.fixture
def trip(tmp_path: Path) -> Iterator[Any]:
    """Registers an environment of one's own with the tools named, and makes it."""

    def make(tools: str, **options: Any) -> Any:
        for folder in ("envs", "tools"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "envs" / "trip.yaml").write_text(TRIP % tools)
        (tmp_path / "envs" / "trip.py").write_text(CODE)
        for name, function in (("look_search", "look"), ("scale", "weigh")):
            (tmp_path / "tools" / f"{name}.yaml").write_text(TOOL % (name, function))
        agent_r1_env.register(str(tmp_path), namespace="MethodsTest")
        return gym.make("MethodsTest/Trip-v0", **options).unwrapped

    yield make
    for name in [name for name in gym.registry if name.startswith("MethodsTest/")]:
        del gym.registry[name]


def test_direct_asks_the_question_alone_and_hears_one_reply() -> None:
    env = made(method="direct")
    _, info = env.reset(options={"task": 0})
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    assert info["messages"][1]["content"] == env.task.question
    assert info["tools"] == []
    assert "search" not in info["messages"][0]["content"].lower()
    assert "<answer></answer>" in info["messages"][0]["content"]
    _, reward, terminated, _, info = env.step(answer(env.task.answers[0]))
    assert (reward, terminated, info["stop_reason"]) == (1.0, True, "answer")


def test_one_reply_without_an_answer_is_the_last() -> None:
    for method in ("direct", "naive_rag"):
        env = made(method=method)
        env.reset(options={"task": 0})
        _, reward, terminated, truncated, info = env.step("I do not know")
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["stop_reason"] == "max_steps"


def test_naive_rag_shows_what_the_search_tool_finds_for_the_question() -> None:
    env, tools = made(method="naive_rag"), made()
    _, info = env.reset(options={"task": 3})
    tools.reset(options={"task": 3})
    _, _, _, _, called = tools.step(call("search", query=env.task.question))
    found = called["calls"][0]["result"]
    assert found.count("\n[") == 2
    assert info["messages"][1]["content"] == f"{found}\n\nQuestion: {env.task.question}"
    assert info["tools"] == []


def test_the_number_of_paragraphs_is_that_of_the_search_tool() -> None:
    env = made(method="naive_rag", tool_config={"search": {"top_k": 5}})
    observation, _ = env.reset(options={"task": 3})
    assert "\n[5] " in observation
    assert "\n[6] " not in observation


def test_tool_call_is_the_environment_as_it_is() -> None:
    assert made(method="tool_call").reset(seed=3) == made().reset(seed=3)


def test_a_system_prompt_of_ones_own_goes_before() -> None:
    env = made(method="direct", system="Be brief.")
    assert env.reset(seed=0)[1]["messages"][0]["content"] == "Be brief."


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no method named 'naive_rga'; did you mean 'naive_rag'"):
        made(method="naive_rga")


def test_a_method_is_part_of_the_spec_and_of_what_is_pickled() -> None:
    env = gym.make(HOTPOTQA, method="direct")
    assert env.spec is not None
    again = gym.make(type(env.spec).from_json(env.spec.to_json()))
    assert again.reset(seed=1) == env.reset(seed=1)


def test_without_a_search_tool_there_is_no_naive_rag(trip: Any) -> None:
    message = (
        "Trip has no method 'naive_rag', which needs a tool with 'search' in its name and the one argument "
        "'query'; its tools are: scale; it has: direct, tool_call"
    )
    with pytest.raises(AgentR1Error, match=message):
        trip("scale", method="naive_rag", rewards={})


@pytest.mark.parametrize("method", ["direct", "naive_rag"])
def test_tasks_without_an_answer_are_played_step_by_step(trip: Any, method: str) -> None:
    with pytest.raises(AgentR1Error, match="no answer to give in one reply; it has: tool_call"):
        trip("look_search", method=method, answers=False)


def test_a_tool_of_ones_own_is_found_by_its_name_and_argument(trip: Any) -> None:
    env = trip("scale, look_search", method="naive_rag")
    _, info = env.reset(seed=0)
    content = info["messages"][1]["content"]
    assert content.startswith("[1] Oslo: found for Capital of Norway?")
    assert "<|im_end|>" not in content
    assert env.step(answer("Oslo"))[1] == 1.0


def test_every_method_of_the_list_is_known(trip: Any) -> None:
    for method in METHODS:
        observation, _ = trip("look_search", method=method).reset(seed=0)
        assert "Capital of Norway?" in observation


def test_a_search_that_fails_is_no_fault_of_the_model() -> None:
    @tool
    def search(query: str) -> str:
        """Search."""
        raise ToolError("the index is gone")

    with pytest.raises(AgentR1Error, match="question of task 't' failed: .*the index is gone"):
        Retrieval(search, formats.get("hermes"))(TASK)


def test_the_search_tool_is_closed_with_the_last_environment(trip: Any) -> None:
    closed: list[int] = []

    @tool
    def search(query: str) -> str:
        """Search."""
        return "x"

    found = Retrieval(
        search.__class__(**{**_fields(search), "close": lambda: closed.append(1)}), formats.get("hermes")
    )
    assert found(TASK).endswith("Question: Who found it?")
    alive = weakref.ref(found)
    assert not closed
    del found
    gc.collect()
    assert alive() is None
    assert closed == [1]


def _fields(made: Any) -> dict[str, Any]:
    import dataclasses

    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
