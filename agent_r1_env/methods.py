"""Ways to put an environment's questions to a model, to be compared with each other.

``tool_call`` is the environment as it is. ``direct`` asks for the answer in one reply, without tools.
``naive_rag`` searches once, with the question itself, and puts what was found in front of it; again there is
one reply and no tool. ``gym.make(env_id, method="naive_rag")`` makes the environment for one of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_r1_env import traffic
from agent_r1_env.errors import AgentR1Error, look_up
from agent_r1_env.formats import Format
from agent_r1_env.messages import ToolCall
from agent_r1_env.observing import tokenizer_of
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Session, Toolbox

TOOL_CALL, DIRECT, NAIVE_RAG = "tool_call", "direct", "naive_rag"
METHODS = (DIRECT, NAIVE_RAG, TOOL_CALL)
"""In the order in which tables show them."""

_SYSTEM = {
    DIRECT: "Answer the question.",
    NAIVE_RAG: "Answer the question. A search has found the paragraphs above it, some of which may help.",
}
_TAGGED = (
    " You may think first; then give the final answer alone, as short as possible, inside <{tag}></{tag}>."
)
_BARE = " Write the answer alone, as short as possible, and nothing else."


class Retrieval:
    """The first user message of a task: what a search for its question shows, then the question.

    The search tool is closed once nothing holds this object any more.
    """

    def __init__(self, tool: Tool, format: Format, **toolbox: Any) -> None:
        """Search with ``tool``; the format keeps what it finds from forging a turn.

        Args:
            toolbox: further arguments of the ``Toolbox`` that runs the tool.
        """
        self.tool, self.format, self._toolbox = tool, format, toolbox
        if tool.close is not None:
            weakref.finalize(self, tool.close)

    def __call__(self, task: Task) -> str:
        """The message.

        Raises:
            AgentR1Error: the search failed, which is not the model's doing.
        """
        # One of its own, for the environment may be cloned and several episodes begin at once.
        toolbox = Toolbox([self.tool], **self._toolbox)
        toolbox.begin(Session(task))
        (result,) = toolbox.run([ToolCall(self.tool.name, {"query": task.question}, "call_0")])
        toolbox.end()
        if not result.ok:
            raise AgentR1Error(f"the search for the question of task {task.id!r} failed: {result.content}")
        return f"{self.format.neutralise(result.content)}\n\nQuestion: {task.question}"


def settings_for(
    method: str,
    settings: Mapping[str, Any],
    tasks: TaskSet,
    load_tools: Callable[[], Sequence[Tool]],
    *,
    name: str,
    system: str | None = None,
) -> dict[str, Any]:
    """The arguments of a ``ToolEnv`` that asks by a method.

    Args:
        settings: those of the environment as it is.
        load_tools: makes the environment's tools; what the method does not need is closed or never made.
        name: of the environment, for errors.
        system: a system prompt in place of the method's own.

    Raises:
        UnknownName: no such method.
        AgentR1Error: the environment cannot be put so; says which methods it can.
    """
    look_up("method", method, dict.fromkeys(METHODS))
    if method == TOOL_CALL:
        return {**settings, "tools": load_tools()}
    if settings.get("respond") is not None or not tasks[0].answers:
        reason = "its tasks are played step by step and have no answer to give in one reply"
        raise AgentR1Error(f"{name} has no method {method!r}: {reason}; it has: {TOOL_CALL}")
    opening = None
    if method == NAIVE_RAG:
        opening = Retrieval(
            _search_tool(load_tools(), name),
            settings["format"],
            tokenizer=tokenizer_of(settings.get("tokenizer")),
            traffic=traffic.opened(settings["tool_traffic"]) if settings.get("tool_traffic") else None,
        )
    rewards = {term: weight for term, weight in settings["rewards"].items() if not term.startswith("tools/")}
    return {
        **settings,
        "tools": (),
        "opening": opening,
        "system": _prompt(method, settings["answer_tag"]) if system is None else system,
        "max_steps": 1,
        "context": "append",
        "rewards": rewards,
        # It reads the results of calls, and would be 0 where the search was ours.
        "metrics": [metric for metric in settings["metrics"] if metric != "support_recall"],
    }


def _prompt(method: str, tag: str) -> str:
    return _SYSTEM[method] + (_TAGGED.format(tag=tag) if tag else _BARE)


def is_search(tool: Tool) -> bool:
    """Whether a tool looks texts up: it has "search" in its name and needs a query and nothing else."""
    return "search" in tool.name.lower() and list(tool.parameters.get("required", ())) == ["query"]


def _search_tool(tools: Sequence[Tool], name: str) -> Tool:
    """The first tool that searches; all others are closed."""
    found = next(filter(is_search, tools), None)
    for tool in tools:
        if tool is not found and tool.close is not None and (found is None or tool.close is not found.close):
            tool.close()
    if found is None:
        listed = ", ".join(tool.name for tool in tools) or "none"
        raise AgentR1Error(
            f"{name} has no method {NAIVE_RAG!r}, which needs a tool with 'search' in its name and the one "
            f"argument 'query'; its tools are: {listed}; it has: {DIRECT}, {TOOL_CALL}"
        )
    return found
