"""OpenEnv in process: the bare ``Environment``, and ``MCPEnvironment``, which has tools."""

from __future__ import annotations

from typing import Any

import search_task
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from search_task import Question


class Move(Action):  # type: ignore[misc]
    """A search or the answer."""

    kind: str
    text: str


class Seen(Observation):  # type: ignore[misc]
    """What a search found."""

    text: str = ""


class Asking(Environment):  # type: ignore[misc]
    """All that is done here is done by this class, as the interface asks for."""

    def __init__(self, tool: str = "search") -> None:
        super().__init__()
        self.run = search_task.TOOLS[tool]
        self.question = search_task.QUESTIONS[0]

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Any:
        """The question."""
        return Seen(text=self.question.text)

    def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
        """Search, or answer."""
        if action.kind == "search":
            return Seen(text=self.run(action.text))
        return Seen(done=True, reward=float(action.text == self.question.answer))

    @property
    def state(self) -> Any:
        """Nothing."""
        return State()


def begun(question: Question) -> Any:
    """A new environment at the beginning of an episode."""
    env = Asking()
    env.question = question
    env.reset()
    return env


def steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """Episodes of one bare environment."""
    env = Asking(tool)

    def reset(question: Question) -> None:
        env.question = question
        env.reset()

    def play(question: Question) -> float:
        for _ in range(searches):
            env.step(Move(kind="search", text=question.query))
        return float(env.step(Move(kind="answer", text=question.answer)).reward)

    return search_task.costs(reset, play, tool, searches, episodes)


def mcp_steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """Episodes of one environment with the tools of an MCP server in process."""
    from fastmcp import FastMCP
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction

    server, asking = FastMCP("search"), Asking(tool)
    server.tool(asking.run, name="look_up")

    @server.tool
    def submit(answer: str) -> str:
        """Give the answer."""
        rewards.append(float(answer == asking.question.answer))
        return "ok"

    class Served(MCPEnvironment):  # type: ignore[misc]
        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Any:
            return asking.reset()

        def _step_impl(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
            return Observation()

        @property
        def state(self) -> Any:
            return State()

    env, rewards = Served(server), [0.0]

    def reset(question: Question) -> None:
        asking.question = question
        env.reset()

    def play(question: Question) -> float:
        for _ in range(searches):
            env.step(CallToolAction(tool_name="look_up", arguments={"query": question.query}))
        env.step(CallToolAction(tool_name="submit", arguments={"answer": question.answer}))
        return rewards[-1]

    return search_task.costs(reset, play, tool, searches, episodes)
