"""Plain frozen data of a conversation: who said what, what was called, what came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length"]

INVALID_CALLS = frozenset({"malformed", "unknown_tool", "invalid_arguments"})
"""The kinds of failure that are the model's doing: the call itself was wrong."""


class Reply(str):
    """One complete model reply: its text, and why the sampler stopped.

    A plain ``str`` is a reply that stopped by itself. A reply cut by its length limit is not an
    answer, and only the sampler knows that it was cut, so the sampler says so here.

    Attributes:
        finish_reason: "stop" when the model ended its turn, "length" when the limit did.
    """

    finish_reason: FinishReason

    def __new__(cls, text: str = "", finish_reason: FinishReason = "stop") -> Reply:
        reply = super().__new__(cls, text)
        reply.finish_reason = finish_reason
        return reply

    def __getnewargs__(self) -> tuple[str, FinishReason]:  # type: ignore[override]
        return str(self), self.finish_reason


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it, not yet validated."""

    name: str
    arguments: dict[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class CallError:
    """An attempt at a call that could not be read.

    Attributes:
        message: what was wrong and how to mend it, written for the model.
        raw: the text of the attempt.
        incomplete: the text ended before the call did.
    """

    message: str
    raw: str
    id: str
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one call gave.

    Attributes:
        content: the text that the model reads.
        ok: False when the call did not run to its end.
        error: the kind of failure: "malformed", "unknown_tool", "invalid_arguments", "too_many_calls",
            "timeout" or "raised".
        seconds: wall time of the tool itself.
        cut: how many characters of the result were left out.
    """

    call_id: str
    name: str
    content: str
    ok: bool = True
    error: str | None = None
    seconds: float = 0.0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``call_id`` and ``name`` belong to the role "tool" alone."""

    role: Role
    content: str
    call_id: str | None = None
    name: str | None = None

    def as_dict(self) -> dict[str, str]:
        """The message as chat templates and JSON files expect it."""
        data: dict[str, str] = {"role": self.role, "content": self.content}
        if self.call_id is not None:
            data["tool_call_id"] = self.call_id
        if self.name is not None:
            data["name"] = self.name
        return data
