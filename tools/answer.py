"""The tool that ends an episode; models know it as ``answer`` or ``finish``."""

from __future__ import annotations

from agent_r1_env.errors import ToolError
from agent_r1_env.tool import ToolOutput


def answer(answer: str) -> ToolOutput:
    """Take the final answer. Nothing is said about whether it is right: the environment scores it."""
    taken = answer.strip()
    if not taken:
        raise ToolError("the answer is empty; nothing was taken")
    return ToolOutput("The answer was taken.", answer=taken)
