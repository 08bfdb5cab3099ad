"""An environment's own move: a function that answers replies without a tool call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_r1_env.errors import ToolError
from agent_r1_env.output import as_text
from agent_r1_env.signature import hidden_of
from agent_r1_env.tool import ToolOutput
from agent_r1_env.toolbox import Session

Respond = Callable[..., Any]
"""``respond(reply, state=..., task=..., rng=...)``: the reply without its reasoning, and those of the hidden
arguments that it marks as ``Hidden``, as for a tool. Returns what the model reads next, or a ``ToolOutput``
that also rewards the reply or ends the task. A ``ToolError`` tells the model what was wrong."""


@dataclass(frozen=True, slots=True)
class Responder:
    """The function with what it asks for.

    Attributes:
        hidden: names of its hidden arguments.
    """

    function: Respond
    hidden: tuple[str, ...]

    @classmethod
    def of(cls, function: Respond) -> Responder:
        """Look up what ``function`` asks for.

        Raises:
            SignatureFault: it marks an argument as hidden that nobody knows.
        """
        return cls(function, hidden_of(function))

    def __call__(self, reply: str, session: Session) -> ToolOutput:
        """The answer to one reply."""
        session.calls += 1  # it draws as a call does
        try:
            value = self.function(reply, **session.filled(self.hidden))
        except ToolError as fault:
            return ToolOutput(f"error: {fault}")
        output = value if isinstance(value, ToolOutput) else ToolOutput(value)
        return ToolOutput(as_text(output.content), float(output.reward), output.answer, output.done)
