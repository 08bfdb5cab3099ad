"""Plain frozen data of a conversation: who said what, what was called, what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length"]


class FailureKind(StrEnum):
    """Why a call gave no proper result."""

    MALFORMED_CALL = "malformed_call"
    """The format could not read the attempt."""
    UNKNOWN_TOOL = "unknown_tool"
    """There is no tool of that name."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments do not fit the tool's schema."""
    TOO_MANY_CALLS = "too_many_calls"
    """The reply held more calls than are run, or the episode has none left."""
    TIMEOUT = "timeout"
    """The tool did not finish in its time, or earlier calls of it still hang."""
    TOOL_ERROR = "tool_error"
    """The tool raised."""
    RATE_LIMITED = "rate_limited"
    """The tool's turn would have come too late, or a service refused for its limit."""
    NOT_RECORDED = "not_recorded"
    """A replayed run asked for a call that the recording does not hold."""


INVALID_CALLS = frozenset(
    {FailureKind.MALFORMED_CALL, FailureKind.UNKNOWN_TOOL, FailureKind.INVALID_ARGUMENTS}
)
"""The kinds of failure that are the model's doing: the call itself was wrong."""


class Reply(str):
    """One complete model reply: its text, and why the sampler stopped.

    A plain ``str`` is a reply that stopped by itself. A reply cut by its length limit is not an
    answer, and only the sampler knows that it was cut, so the sampler says so here.

    Attributes:
        finish_reason: "stop" when the model ended its turn, "length" when the limit did.
        tokens: how many the sampler drew, the one that ended the turn included; None if nobody says.
    """

    finish_reason: FinishReason
    tokens: int | None

    def __new__(
        cls, text: str = "", finish_reason: FinishReason = "stop", tokens: int | None = None
    ) -> Reply:
        reply = super().__new__(cls, text)
        reply.finish_reason, reply.tokens = finish_reason, tokens
        return reply

    def __getnewargs__(self) -> tuple[str, FinishReason, int | None]:  # type: ignore[override]
        return str(self), self.finish_reason, self.tokens


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
        error: the kind of failure, or None.
        seconds: wall time of the tool itself, in its last attempt.
        cut: how many characters of the result were left out.
        arguments: what the tool was run with, defaults included; None if it never ran.
        attempts: how often the tool was run; 0 if it never was.
        queued: seconds that the call waited for its turn.
        cached: the result was taken from the cache.
        reward: what the tool says that this call is worth.
        answer: the final answer, if the call gave one; then the episode is over.
        done: the call ended the task without an answer.
        simulated: what about it is simulated, such as a kind of fault; the model is not told.
    """

    call_id: str
    name: str
    content: str
    ok: bool = True
    error: FailureKind | None = None
    seconds: float = 0.0
    cut: int = 0
    arguments: Mapping[str, Any] | None = None
    attempts: int = 0
    queued: float = 0.0
    cached: bool = False
    reward: float = 0.0
    answer: str | None = None
    done: bool = False
    simulated: str | None = None


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


def record_of(result: ToolResult) -> dict[str, Any]:
    """A result as plain data, as it stands in ``info["calls"]`` and in episode files."""
    return {
        "id": result.call_id,
        "name": result.name,
        "arguments": None if result.arguments is None else dict(result.arguments),
        "result": result.content,
        "ok": result.ok,
        "error": None if result.error is None else str(result.error),
        "attempts": result.attempts,
        "seconds": result.seconds,
        "queued": result.queued,
        "cached": result.cached,
        "cut": result.cut,
        "reward": result.reward,
        "simulated": result.simulated,
    }
