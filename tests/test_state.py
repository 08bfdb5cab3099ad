"""An environment's state: taken at any step, set anywhere, and with equal futures."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import Hidden, StateError, Task, TaskSet, Tool, ToolEnv, tool
from agent_r1_env.testing import answer, call, sum_env


@tool
def draw(rng: Hidden[np.random.Generator], state: Hidden[dict], most: int = 9) -> str:
    """Draw a number and add it up.

    Args:
        most: The highest that may come.
    """
    state.setdefault("drawn", []).append(int(rng.integers(most)))
    return f"drawn {state['drawn']}"


class Count:
    """A tool that is an object of each episode's own."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


class CountWithState(Count):
    """The same with a lock in it, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def get_state(self) -> int:
        return self.calls

    def set_state(self, state: int) -> None:
        self.calls = state


class CountWithALock(Count):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def counting(kind: type[Count]) -> Tool:
    parameters = {"type": "object", "properties": {}}
    return Tool("count", "Count.", parameters, run=kind(), begin=kind)


def env_of(*tools: Tool, **options) -> ToolEnv:
    rows = [Task(f"t{number}", f"Draw for {number}.", (str(number),)) for number in range(20)]
    return ToolEnv(TaskSet(rows, name="draws", origin="a test"), tools or (draw,), max_steps=6, **options)


REPLIES = st.lists(
    st.sampled_from([call("draw"), call("draw", most=99), call("draw", most="x"), "hm", "<tool_call>{"]),
    max_size=5,
)


def future(env: ToolEnv, replies: list[str]) -> list:
    seen = []
    for reply in [*replies, answer(3)]:
        observation, reward, terminated, truncated, info = env.step(reply)
        seen.append((observation, reward, terminated, truncated, info["metrics"], info["reward_terms"]))
        if terminated or truncated:
            break
    seen.append(env.reset()[0])  # the choice of the next task is part of the future
    return seen


@settings(max_examples=30, deadline=None)
@given(before=REPLIES, after=REPLIES, seed=st.integers(0, 1000))
def test_equal_futures_follow_equal_states(before, after, seed):
    env = env_of()
    env.reset(seed=seed)
    for reply in before:
        env.step(reply)
    state, twin = env.get_state(), env.clone()
    first = future(env, after)
    assert future(twin, after) == first
    env.set_state(state)
    assert future(env, after) == first
    elsewhere = env_of()
    elsewhere.set_state(pickle.loads(pickle.dumps(state)))
    assert future(elsewhere, after) == first


def test_branches_do_not_touch_each_other():
    env = env_of()
    env.reset(seed=0)
    env.step(call("draw"))
    state = env.get_state()
    twin = env.clone()
    twin.step(call("draw"))
    twin.step(call("draw"))
    assert len(env.history) == 3 and len(twin.history) == 7
    assert len(env.episode.session.state["drawn"]) == 1
    for _ in range(2):  # a state can be used again
        env.set_state(state)
        env.step(call("draw"))
        assert len(env.episode.session.state["drawn"]) == 2
    assert len(state.episode.session.state["drawn"]) == 1


@pytest.mark.parametrize("kind", [Count, CountWithState])
def test_what_a_tool_keeps_for_the_episode_is_copied(kind):
    env = env_of(counting(kind))
    env.reset(seed=0)
    env.step(call("count"))
    twin = env.clone()
    assert env.step(call("count"))[4]["calls"][0]["result"] == "2"
    assert twin.step(call("count"))[4]["calls"][0]["result"] == "2"
    assert twin.clone().clone().step(call("count"))[4]["calls"][0]["result"] == "3"


def test_a_state_that_is_never_used_stays_as_it_was():
    env = env_of(counting(CountWithState))
    env.reset(seed=0)
    env.step(call("count"))
    later = env.clone().get_state()  # taken before the clone has called its tool
    twin = env.clone()
    twin.set_state(later)
    assert twin.step(call("count"))[4]["calls"][0]["result"] == "2"


def test_a_state_can_be_used_again_with_what_its_tools_keep():
    env = env_of(counting(Count))
    env.reset(seed=0)
    env.step(call("count"))
    state = env.get_state()
    for _ in range(2):
        env.set_state(state)
        assert env.step(call("count"))[4]["calls"][0]["result"] == "2"


def test_a_tool_that_cannot_be_copied_says_what_it_needs():
    env = env_of(counting(CountWithALock))
    env.reset(seed=0)
    env.clone()  # as long as it was not called there is nothing to copy
    env.step(call("count"))
    with pytest.raises(
        StateError, match=r"'count' keeps .* cannot be copied: .*give its class get_state\(\)"
    ):
        env.get_state()


def test_a_coroutine_tool_goes_on_in_a_clone():
    class Slow(Count):
        async def __call__(self) -> int:
            self.calls += 1
            return self.calls

    env = env_of(counting(Slow))
    env.reset(seed=0)
    env.step(call("count"))
    twin = env.clone()
    assert asyncio.run(twin.step_async(call("count")))[4]["calls"][0]["result"] == "2"


def test_tools_are_closed_with_the_last_who_holds_them():
    closed = []
    shut = Tool("t", "T.", {"type": "object"}, run=lambda: "x", close=lambda: closed.append(1))
    env = env_of(shut)
    env.reset(seed=0)
    twin = env.clone()
    env.close()
    assert closed == []
    assert twin.step(call("t"))[4]["calls"][0]["ok"]
    twin.close()
    twin.close()
    assert closed == [1]


def test_a_state_can_be_taken_before_the_first_reset_and_after_the_end():
    env = env_of()
    fresh = env.get_state()
    env.reset(seed=3)
    env.step(answer(0))
    over = env.get_state()
    env.set_state(fresh)
    with pytest.raises(gym.error.ResetNeeded, match="has not begun"):
        env.step("x")
    env.set_state(over)
    with pytest.raises(gym.error.ResetNeeded, match="is over"):
        env.step("x")
    assert env.answer == "0"


def test_a_deep_copy_is_a_clone_even_under_wrappers():
    env = gym.make("AgentR1/HotpotQA-v0", source="embedded")
    env.reset(seed=0)
    env.step("hm")
    twin = copy.deepcopy(env)
    assert twin.step("hm")[0] == env.step("hm")[0]
    assert twin.unwrapped is not env.unwrapped
    env.close()
    twin.close()


def test_an_environment_of_gymnasium_can_be_pickled_in_the_middle_of_an_episode():
    env = gym.make("AgentR1/HotpotQA-v0", source="embedded", max_steps=3)
    env.reset(seed=0)
    env.step("hm")
    twin = pickle.loads(pickle.dumps(env.unwrapped))
    assert twin.step("hm")[0] == env.step("hm")[0]
    assert twin.step("hm")[3]
    env.close()
    twin.close()


def test_one_that_gymnasium_did_not_make_says_what_can_be_pickled():
    with pytest.raises(StateError, match=r"pickle get_state\(\) instead"):
        pickle.dumps(sum_env())


def test_the_memory_of_the_context_is_part_of_the_state():
    def tiring(messages, moment):
        """Shows less and less."""
        moment.memory["shown"] = moment.memory.get("shown", 5) - 1
        return messages[: moment.memory["shown"]]

    env = sum_env(context=tiring, max_steps=9)
    env.reset(seed=0)
    env.step("hm")
    state = env.get_state()
    shown = [len(env.step("hm")[4]["messages"]) for _ in range(2)]
    assert shown == [2, 1]
    env.set_state(state)
    assert [len(env.step("hm")[4]["messages"]) for _ in range(2)] == shown


def test_time_that_has_passed_goes_on_counting():
    env = sum_env(max_seconds=1000)
    env.reset(seed=0)
    state = env.get_state()
    state.episode.seconds = 2000
    env.set_state(state)
    *_, truncated, info = env.step("hm")
    assert truncated and info["stop_reason"] == "time"
