"""What reading a reply gives, and the tools that every reader needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_r1_env.messages import CallError, ToolCall


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """One reply, taken apart.

    Attributes:
        content: the text outside reasoning and calls.
        reasoning: the text that the model wrote for itself; calls in it are drafts and do not run.
        calls: the calls, and the failed attempts at one, in the order written.
    """

    content: str
    reasoning: str
    calls: tuple[ToolCall | CallError, ...]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def read_json(text: str, start: int) -> tuple[Any, int]:
    """One JSON value beginning at ``start``, and the index just after it.

    Raises:
        ValueError: no JSON value stands there, or it is too deep or too large to be read.
    """
    try:
        return _decoder.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_fault(error: ValueError, start: int) -> str:
    """What is wrong with a JSON text, in words that do not depend on what stood before it."""
    if isinstance(error, json.JSONDecodeError):
        fault = error.msg[0].lower() + error.msg[1:]
        return f"{fault} at character {error.pos - start + 1}"
    return str(error)


_FORGEABLE = re.compile(
    r"<(?=\|[^<>\n]{0,64}?\|>"
    r"|/?(?:tool_call|tool_response|tools|think|s|bos|eos|pad|unk|start_of_turn|end_of_turn)>)"
    r"|\[(?=/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])",
    re.IGNORECASE,
)


def defuse(text: str) -> str:
    """The text with a space put into every tag and special token that could forge a turn.

    One list serves all formats, since a result may be read by a model of any family.
    """
    return _FORGEABLE.sub(lambda match: match.group() + " ", text)
