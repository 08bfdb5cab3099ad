"""Plain frozen data of a conversation: who said what, what was called, what came back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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
    """One call as the model wrote it, not yet validated.

    Attributes:
        repairs: the mild mistakes that were mended to read it, such as "trailing_comma".
    """

    name: str
    arguments: dict[str, Any]
    id: str
    repairs: tuple[str, ...] = ()


class CallFault(StrEnum):
    """Why an attempt at a call could not be read."""

    SYNTAX = "syntax"
    """It is not written as the format asks for."""
    INCOMPLETE = "incomplete"
    """The reply ended before the call did."""
    NO_NAME = "no_name"
    """It names no tool."""
    NO_ARGUMENTS = "no_arguments"
    """It has no arguments."""
    ARGUMENTS = "arguments"
    """Its arguments are not an object."""
    STRAY = "stray"
    """A closing mark stands without its opening one."""
    TOO_MANY = "too_many"
    """The reply holds more calls than are read."""


@dataclass(frozen=True, slots=True)
class CallError:
    """An attempt at a call that could not be read.

    Attributes:
        fault: what was wrong, in words for the model.
        hint: how to mend it, for the model; "" where there is nothing to mend.
        raw: the text of the attempt.
        start, end: where it stands in the reply, in characters.
    """

    kind: CallFault
    fault: str
    hint: str
    raw: str
    id: str
    start: int = 0
    end: int = 0

    @property
    def message(self) -> str:
        """What the model reads."""
        return f"{self.fault}; {self.hint}" if self.hint else self.fault


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
