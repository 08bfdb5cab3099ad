"""The tools that end an episode with an answer, and the one that tells right from wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_r1_env  # noqa: F401 - registers the environments
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import CatalogError
from agent_r1_env.scoring import exact_match
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.testing import call, sum_env, sums


def tools(*names: str, tasks: TaskSet | None = None, **config: Any) -> list[Any]:
    catalog = Catalog.open()
    return [load_tool(catalog.tool(name), tasks, {"config": config}) for name in names]


# -- answer and finish


@pytest.mark.parametrize("name", ["answer", "finish"])
@pytest.mark.parametrize(("text", "reward"), [("1", 1.0), (" 1 ", 1.0), ("2", 0.0)])
def test_an_answer_ends_the_episode_and_is_scored(name: str, text: str, reward: float) -> None:
    env = sum_env(tools(name))
    env.reset(options={"task": 0})
    _, earned, terminated, truncated, info = env.step(call(name, answer=text))
    assert (earned, terminated, truncated) == (reward, True, False)
    assert (info["answer"], info["stop_reason"]) == (text.strip(), "answer")
    assert info["calls"][0]["result"] == "The answer was taken."


def test_an_empty_answer_ends_nothing() -> None:
    env = sum_env(tools("answer"))
    env.reset(options={"task": 0})
    _, _, terminated, truncated, info = env.step(call("answer", answer=" "))
    assert not terminated and not truncated
    assert info["calls"][0]["result"] == "error: the answer is empty; nothing was taken"


def test_the_first_of_two_answers_counts() -> None:
    env = sum_env(tools("answer"))
    env.reset(options={"task": 0})
    *_, info = env.step(call("answer", answer="1") + call("answer", answer="2"))
    assert info["answer"] == "1"


@pytest.mark.parametrize("name", ["AnswerTool", "FinishTool"])
def test_standing_alone_it_ends_an_episode_of_many_calls(name: str) -> None:
    env: Any = gym.make(f"AgentR1/{name}-v0", max_calls=5)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    *_, terminated, truncated, info = env.step("Paris")
    assert (terminated, truncated, info["answer"]) == (True, False, "Paris")


# -- check_answer


def checking(*answers: str, **config: Any) -> ToolEnv:
    tasks = TaskSet([Task("t", "What?", answers)], name="T", origin="a test")
    env = ToolEnv(tasks, tools("check_answer", tasks=tasks, **config), max_steps=100)
    env.reset(seed=0)
    return env


def verdicts(env: ToolEnv, *guesses: str) -> list[str]:
    found = []
    for guess in guesses:
        *_, info = env.step(call("check_answer", answer=guess))
        found += [record["result"] for record in info["calls"]]
    return found


def test_an_answer_is_told_right_or_wrong_by_the_official_comparison() -> None:
    env = checking("The Eiffel Tower", "La tour Eiffel", tries=6)
    guesses = ("eiffel tower!", "la Tour Eiffel", "Eiffel", "The Eiffel Tower in Paris")
    assert verdicts(env, *guesses) == [
        "The answer is right. 5 tries are left.",
        "The answer is right. 4 tries are left.",
        "The answer is wrong. 3 tries are left.",
        "The answer is wrong. 2 tries are left.",
    ]


def test_an_answer_can_be_compared_by_its_value() -> None:
    env = checking("1,234.5", compare="math_equal")
    assert [text.split(".")[0] for text in verdicts(env, "12345", "$1234.50")] == [
        "The answer is wrong",
        "The answer is right",
    ]


def test_tries_are_limited_in_each_episode() -> None:
    env = checking("x")
    told = verdicts(env, "a", " ", "b", "x", "x")
    assert told == [
        "The answer is wrong. 1 try is left.",
        "error: the answer is empty; this counted as no try",
        "The answer is wrong. No try is left.",
        "error: no try is left; only 2 are allowed",
        "error: no try is left; only 2 are allowed",
    ]
    env.reset()
    assert verdicts(env, "x") == ["The answer is right. 1 try is left."]


@pytest.mark.parametrize("way", ["step", "step_async"])
def test_of_many_guesses_in_one_reply_the_first_are_checked(way: str) -> None:
    env = checking("g3", tries=3)
    reply = "".join(call("check_answer", answer=f"g{number}") for number in range(20))
    *_, info = env.step(reply) if way == "step" else asyncio.run(env.step_async(reply))
    told = [record["result"] for record in info["calls"]]
    assert [text.partition(".")[0] for text in told[:3]] == ["The answer is wrong"] * 3
    assert set(told[3:]) == {"error: no try is left; only 3 are allowed"}


def test_environments_count_their_tries_for_themselves() -> None:
    first, second = checking("x"), checking("y")
    assert verdicts(first, "y", "y")[1].startswith("The answer is wrong. No")
    assert verdicts(second, "y") == ["The answer is right. 1 try is left."]


def test_it_needs_something_to_check_against() -> None:
    with pytest.raises(CatalogError, match="nothing to check against: use it in an environment, or give ans"):
        gym.make("AgentR1/CheckAnswerTool-v0")
    with pytest.raises(CatalogError, match="no comparison named 'math_equals'; did you mean 'math_equal'"):
        tools("check_answer", tasks=sums(), compare="math_equals")
    for wrong in ({"tries": 0}, {"tries": True}, {"answers": []}, {"answers": "Paris"}):
        with pytest.raises(CatalogError, match=r"check_answer.yaml:\d+:\d+: building CheckAnswer failed"):
            tools("check_answer", tasks=sums(), **wrong)


def test_standing_alone_it_checks_against_the_answers_given() -> None:
    env: Any = gym.make("AgentR1/CheckAnswerTool-v0", answers=["Paris"], max_calls=2)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    assert [env.step(guess)[0] for guess in ("London", "paris")] == [
        "The answer is wrong. 1 try is left.",
        "The answer is right. No try is left.",
    ]


GOLDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=3, max_size=12), min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None)
@given(golds=GOLDS, guesses=st.lists(st.text(max_size=12), max_size=5))
def test_nothing_that_anybody_sees_holds_the_right_answer(
    golds: Sequence[str], guesses: Sequence[str]
) -> None:
    marked = [f"\N{SNOWMAN}{gold}\N{SNOWMAN}" for gold in golds]  # so that it can stand nowhere by chance
    env = checking(*marked, tries=3)
    seen: list[Any] = [env.reset(seed=0)]
    for guess in guesses:
        seen.append(env.step(call("check_answer", answer=guess)))
        seen.append(env.step(call("check_answer", answr=guess)))
    seen.append(env.step("<answer>wrong</answer>"))
    assert "\N{SNOWMAN}" not in json.dumps(seen, ensure_ascii=False)
    assert not any(exact_match("wrong", [gold]) for gold in marked)


def test_a_recording_holds_no_right_answer(tmp_path: Path) -> None:
    tasks = TaskSet([Task("t", "What?", ("secret gold",))], name="T", origin="a test")
    file = tmp_path / "traffic"
    env = ToolEnv(tasks, tools("check_answer", tasks=tasks), tool_traffic={"record": str(file)})
    env.reset()
    env.step(call("check_answer", answer="silver"))
    assert "silver" in file.read_text() and "gold" not in file.read_text()
