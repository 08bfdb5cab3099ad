"""This package on the measurements that others take part in; see ``worker.py``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import rollouts
import search_task
from search_task import Question

from agent_r1_env import testing
from agent_r1_env.env import ToolEnv
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import tool as make_tool

MADE = "Benchmark/Search-v0"


@lru_cache
def _tasks() -> TaskSet:
    tasks = [Task(each.query, each.text, (each.answer,)) for each in search_task.QUESTIONS]
    return TaskSet(tasks, name="search", origin="made by benchmarks/search_task.py", synthetic=True)


def environment(tool: str = "search", searches: int = 2, inline: bool = False) -> ToolEnv:
    """With everything that is on by default: validation, time-outs, records of calls, one scored outcome.

    An inline tool has no time-out.
    """
    tools = [make_tool(name=tool, inline=inline)(search_task.TOOLS[tool])]
    return ToolEnv(_tasks(), tools, max_steps=searches + 1, system="Answer in <answer></answer>.")


def begun(question: Question) -> Any:
    """A new environment at the beginning of an episode."""
    env = environment()
    env.reset(options={"task": question.query})
    return env


def steps(
    tool: str, searches: int, episodes: int, made: bool = False, inline: bool = False
) -> dict[str, float]:
    """Episodes of one environment, from ``gymnasium.make`` if asked for."""
    env: Any = environment(tool, searches, inline)
    if made:
        if MADE not in gym.registry:
            gym.register(MADE, entry_point=environment)
        env = gym.make(MADE, tool=tool, searches=searches)

    def play(question: Question) -> float:
        call = f"<think>x</think>{testing.call(tool, query=question.query)}"
        for _ in range(searches):
            env.step(call)
        return float(env.step(testing.answer(question.answer))[1])

    try:
        return search_task.costs(
            lambda question: env.reset(options={"task": question.query}), play, tool, searches, episodes
        )
    finally:
        env.close()


def waiting(episodes: int, calls: int = 2, seconds: float = 0.05) -> dict[str, float]:
    """Whole rollouts, with token ids, of tools that wait."""
    return rollouts.waiting(episodes, calls, seconds, repeats=1)


def heavy(**options: Any) -> dict[str, float]:
    """Whole rollouts of tools with heavy-tailed times."""
    return rollouts.heavy(**options)
