"""aviary (fhaviary): an environment whose tools are methods, stepped on one event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import search_task
from aviary.core import Environment, Message, Tool, ToolCall, ToolRequestMessage
from search_task import Question


class Asking(Environment):  # type: ignore[misc]
    """One question; ``submit`` ends the episode."""

    def __init__(self, tool: str = "search", seconds: float = 0.0) -> None:
        self.run, self.seconds = search_task.TOOLS[tool], seconds
        self.question = search_task.QUESTIONS[0]
        self.state: Any = None

    async def reset(self) -> Any:
        """The question, and the tools."""
        self.done, self.reward = False, 0.0
        self.tools = [Tool.from_function(self.look_up), Tool.from_function(self.submit)]
        return [Message(content=self.question.text)], self.tools

    async def step(self, action: Any) -> Any:
        """Make the calls."""
        return await self.exec_tool_calls(action), self.reward, self.done, False

    async def look_up(self, query: str) -> str:
        """Search the documents.

        Args:
            query: Words that they should have.
        """
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return self.run(query)

    async def submit(self, answer: str) -> str:
        """Give the answer.

        Args:
            answer: The title of a document.
        """
        self.done, self.reward = True, float(answer == self.question.answer)
        return "ok"


def _request(name: str, **arguments: str) -> Any:
    return ToolRequestMessage(tool_calls=[ToolCall.from_name(name, **arguments)])


def begun(question: Question) -> Any:
    """A new environment at the beginning of an episode."""
    env = Asking()
    env.question = question
    asyncio.run(env.reset())
    return env


async def _played(env: Asking, question: Question, searches: int) -> float:
    for _ in range(searches):
        await env.step(_request("look_up", query=question.query))
    return float((await env.step(_request("submit", answer=question.answer)))[1])


def steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """Episodes of one environment; a loop runs through each of them, its start in the reset."""
    env = Asking(tool)

    def reset(question: Question) -> None:
        env.question = question
        runner.run(env.reset())

    with asyncio.Runner() as runner:
        return search_task.costs(
            reset,
            lambda question: runner.run(_played(env, question, searches)),
            tool,
            searches,
            episodes,
        )


def waiting(episodes: int, calls: int = 2, seconds: float = 0.05) -> dict[str, float]:
    """All episodes on one loop, with tools that are coroutines."""
    question = search_task.QUESTIONS[0]

    async def batch() -> tuple[float, float]:
        envs = [Asking("constant", seconds) for _ in range(episodes)]
        for env in envs:
            await env.reset()
        began = time.perf_counter()
        rewards = await asyncio.gather(*(_played(env, question, calls) for env in envs))
        return time.perf_counter() - began, sum(rewards)

    took, rewarded = asyncio.run(batch())
    if rewarded != episodes:
        raise ValueError(f"{rewarded} of {episodes} episodes were rewarded")
    return {"seconds": took}
