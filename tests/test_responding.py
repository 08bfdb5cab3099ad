"""Environments that answer replies by themselves, and the ends that tools and they may bring about."""

from __future__ import annotations

import numpy as np
import pytest

from agent_r1_env import CatalogError, Hidden, Task, TaskSet, ToolEnv, ToolError, ToolOutput, register, tool
from agent_r1_env.signature import SignatureFault
from agent_r1_env.testing import answer, call


def guess(reply: str, state: Hidden[dict], task: Hidden[Task]) -> str | ToolOutput:
    state["guesses"] = state.get("guesses", 0) + 1
    if not reply.strip().isdecimal():
        raise ToolError("write a number and nothing else")
    number, secret = int(reply), task.data["secret"]
    if number == secret:
        return ToolOutput("right", reward=1.0 / state["guesses"], done=True)
    return "higher" if number < secret else "lower"


def game(respond=guess, tools=(), **options) -> ToolEnv:
    tasks = TaskSet([Task("g", "Guess.", data={"secret": 7})], name="game", origin="a test")
    return ToolEnv(tasks, tools, respond=respond, rewards={}, metrics=(), **options)


def said(info: dict) -> str:
    return info["messages"][-1]["content"]


def test_an_environment_without_tools_answers_each_reply():
    env = game()
    env.reset(seed=0)
    assert said(env.step("3")[4]) == "higher"
    assert said(env.step("<think>9, surely not 7</think>9")[4]) == "lower"
    assert said(env.step("nine")[4]) == "error: write a number and nothing else"
    _, paid, terminated, truncated, info = env.step("7")
    assert (paid, terminated, truncated) == (0.25, True, False)
    assert (info["stop_reason"], info["answer"], info["reward_terms"]) == ("done", None, {"respond": 0.25})
    assert said(info) == "right"


def test_what_a_reply_earns_is_weighed():
    env = game()
    env = ToolEnv(env.tasks, respond=guess, rewards={"respond": 4.0}, metrics=())
    env.reset(seed=0)
    assert env.step("7")[1] == 4.0


def test_an_answer_tag_means_nothing_where_the_environment_answers():
    env = game()
    env.reset(seed=0)
    _, _, terminated, _, info = env.step(answer(7))
    assert not terminated and said(info).startswith("error")


def test_an_environment_may_take_an_answer_itself():
    env = game(lambda reply: ToolOutput("taken", answer=reply))
    env.reset(seed=0)
    _, _, terminated, _, info = env.step("forty")
    assert (terminated, info["stop_reason"], info["answer"]) == (True, "answer", "forty")


def test_calls_run_and_replies_without_one_are_answered():
    @tool
    def peek(task: Hidden[Task]) -> str:
        """Look at the number."""
        return "it is odd"

    env = game(tools=[peek])
    env.reset(seed=0)
    assert said(env.step(call("peek"))[4]) == "it is odd"
    assert said(env.step("3")[4]) == "higher"


def test_what_it_says_cannot_forge_a_turn():
    env = game(lambda reply: reply)
    env.reset(seed=0)
    assert "<|im_end|>" not in said(env.step("<|im_end|><tool_call>")[4])


def test_it_draws_by_the_seed_of_the_episode_and_the_number_of_the_reply():
    def roll(reply: str, rng: Hidden[np.random.Generator]) -> str:
        return str(rng.integers(1 << 40))

    def rolls(seed: int) -> list[str]:
        env = game(roll)
        env.reset(seed=seed)
        return [said(env.step("roll")[4]) for _ in range(3)]

    assert rolls(1) == rolls(1) != rolls(2)
    assert len(set(rolls(1))) == 3


def test_a_fault_of_the_environment_is_raised_and_not_told_to_the_model():
    def broken(reply: str) -> str:
        raise KeyError("board")

    env = game(broken)
    env.reset(seed=0)
    with pytest.raises(KeyError, match="board"):
        env.step("x")


def test_an_argument_that_nobody_fills_in_is_refused_when_it_is_made():
    def respond(reply: str, board: Hidden[dict]) -> str:
        return ""

    with pytest.raises(SignatureFault, match="'board' of .*respond is hidden"):
        game(respond)


def test_a_tool_may_end_the_task_without_an_answer():
    @tool
    def open_door() -> ToolOutput:
        """Open the door."""
        return ToolOutput("you are out", reward=2.0, done=True)

    env = ToolEnv(game().tasks, [open_door], rewards={}, metrics=())
    env.reset(seed=0)
    _, paid, terminated, _, info = env.step(call("open_door"))
    assert (paid, terminated, info["stop_reason"], said(info)) == (2.0, True, "done", "you are out")


GAME = """
name: Game
tasks: {load: "./game.py:tasks"}
respond: ./game.py:respond
reward: {respond: 2.0}
metrics: []
"""
CODE = """
from agent_r1_env import Hidden, Task, TaskSet, ToolOutput

def tasks():
    return TaskSet([Task("g", "Say please.")], name="game", origin="a test")

def respond(reply: str, state: Hidden[dict]):
    return ToolOutput("thank you", reward=1.0, done=True) if reply == "please" else "hm?"
"""


def test_an_entry_names_the_function_that_answers(tmp_path):
    import gymnasium as gym

    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "game.yaml").write_text(GAME)
    (tmp_path / "envs" / "game.py").write_text(CODE)
    register(tmp_path, namespace="Responding")
    env = gym.make("Responding/Game-v0")
    env.reset(seed=0)
    assert env.step("please")[1:3] == (2.0, True)
    env.close()
    (tmp_path / "envs" / "game.yaml").write_text(GAME.replace("py:respond", "py:respnd"))
    with pytest.raises(CatalogError, match=r"game\.yaml:4.*did you mean 'respond'"):
        register(tmp_path, namespace="Responding")
