"""Budgets of an episode, and what is told and decided when they are used up."""

from __future__ import annotations

import pytest

from agent_r1_env import Reply, StopReason
from agent_r1_env.stopping import TRUNCATIONS, Budget
from agent_r1_env.testing import ByteTokenizer, answer, call, sum_env


def add(number: int = 1) -> str:
    return "".join(call("add", a=1, b=b) for b in range(number))


def test_calls_beyond_the_budget_are_refused_and_the_model_may_still_answer():
    env = sum_env(max_calls=3)
    env.reset(options={"task": 0})
    env.step(add(2))
    *_, info = env.step(add(2))
    assert [record["error"] for record in info["calls"]] == [None, "too_many_calls"]
    assert info["messages"][-1]["content"].startswith("error: not run: no tool calls are left")
    _, reward, terminated, _, info = env.step(answer(1))
    assert (reward, terminated, info["metrics"]["calls/too_many_calls"]) == (1.0, True, 1)


def test_a_budget_of_no_calls_refuses_the_first():
    env = sum_env(max_calls=0)
    env.reset(seed=0)
    assert env.step(add())[4]["calls"][0]["error"] == "too_many_calls"


def test_each_call_can_be_made_a_step_of_its_own():
    env = sum_env(max_calls_per_step=1)
    env.reset(seed=0)
    *_, info = env.step(add(2))
    assert [record["error"] for record in info["calls"]] == [None, "too_many_calls"]
    assert info["messages"][-1]["content"] == "error: not run: only the first call of one reply is"
    assert [record["ok"] for record in env.step(add(1))[4]["calls"]] == [True]
    with pytest.raises(ValueError, match="max_calls_per_step"):
        sum_env(max_calls_per_step=0)


def test_refused_calls_are_no_invalid_ones():
    env = sum_env(max_calls=0)
    env.reset(seed=0)
    env.step(add())
    assert env.step(answer(1))[4]["metrics"]["invalid_calls"] == 0


def test_tokens_are_those_that_the_model_wrote():
    env = sum_env(max_tokens=10, tokenizer=ByteTokenizer())
    env.reset(seed=0)
    assert not env.step("12345")[3]
    *_, truncated, info = env.step("12345")
    assert (truncated, info["stop_reason"]) == (True, "max_tokens")


def test_an_answer_that_uses_up_the_budget_still_counts():
    env = sum_env(max_tokens=3, max_steps=1, max_seconds=1e-9)
    env.reset(options={"task": 1})
    _, reward, terminated, truncated, _ = env.step(Reply(answer(2), tokens=9))
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_a_budget_of_tokens_needs_somebody_who_counts():
    env = sum_env(max_tokens=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="max_tokens needs the tokens of each reply"):
        env.step("x")


def test_time_is_looked_at_after_each_reply():
    env = sum_env(max_seconds=1e-9)
    env.reset(seed=0)
    *_, truncated, info = env.step(add())
    assert (truncated, info["stop_reason"], info["calls"][0]["ok"]) == (True, "time", True)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("steps", 0), ("calls", -1), ("tokens", 0), ("seconds", 0.0), ("seconds", float("nan")), ("steps", 1.5)],
)
def test_a_limit_that_is_none_is_refused(limit, value):
    with pytest.raises(ValueError, match=f"max_{limit} must be"):
        Budget(**{limit: value})


def test_only_answers_and_done_tasks_terminate():
    assert [reason for reason in StopReason if reason.terminates] == ["answer", "done"]
    assert set(TRUNCATIONS) == set(StopReason) - {"answer", "done"}
