"""gem (gem-llm): its ``ToolEnvWrapper`` with its ``SearchTool``, which searches here and not behind a URL."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import search_task
from gem.core import Env
from gem.tools.search_tool import SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.vector.async_vector_env import AsyncVectorEnv
from search_task import Question

ANSWER = re.compile(r"<answer>(.*?)</answer>")


class Search(SearchTool):  # type: ignore[misc]
    """The tool of gem, with a function in place of its request."""

    def __init__(self, run: Callable[[str], str]) -> None:
        super().__init__(search_url="here")
        self.run = run

    def _search(self, query: str) -> str:
        return self.run(query)


class Asking(Env):  # type: ignore[misc]
    """One question, rewarded when the answer is the right one."""

    question = search_task.QUESTIONS[0]

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """The question."""
        return self.question.text, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Everything but a search ends the episode."""
        found = ANSWER.search(action)
        return "", float(bool(found) and found[1] == self.question.answer), True, True, {}


def environment(run: Callable[[str], str], searches: int = 2) -> Any:
    """As gem's own examples put it together."""
    return ToolEnvWrapper(Asking(), [Search(run)], max_tool_uses=searches + 1)


def begun(question: Question) -> Any:
    """A new environment at the beginning of an episode."""
    env = environment(search_task.search)
    env.unwrapped.question = question
    env.reset()
    return env


def steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """Episodes of one environment."""
    env = environment(search_task.TOOLS[tool], searches)

    def reset(question: Question) -> None:
        env.unwrapped.question = question
        env.reset()

    def play(question: Question) -> float:
        for _ in range(searches):
            env.step(f"<think>x</think><search>{question.query}</search>")
        return float(env.step(f"<answer>{question.answer}</answer>")[1])

    return search_task.costs(reset, play, tool, searches, episodes)


def waiting(episodes: int, calls: int = 2, seconds: float = 0.05) -> dict[str, float]:
    """A vector on as many threads as episodes; all of them wait for the slowest of a turn."""

    def wait(query: str) -> str:
        time.sleep(seconds)
        return "waited"

    vector = AsyncVectorEnv(
        [str(number) for number in range(episodes)],
        [lambda: environment(wait, calls)] * episodes,
    )
    vector.reset()
    began = time.perf_counter()
    for _ in range(calls):
        vector.step(["<search>w</search>"] * episodes)
    _, rewards, *_ = vector.step([f"<answer>{Asking.question.answer}</answer>"] * episodes)
    took = time.perf_counter() - began
    vector.thread_pool_executer.shutdown()
    if rewards.sum() != episodes:
        raise ValueError(f"{rewards.sum()} of {episodes} episodes were rewarded")
    return {"seconds": took}
