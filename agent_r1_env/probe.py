"""A conversation about stones, and a chat template as a function that renders it.

Templates are programs of others: what they do not know they drop in silence or refuse with an error of any
kind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import jinja2

from agent_r1_env.messages import ToolCall

Turn = Mapping[str, Any]

SYSTEM = "Speak of stones alone."
USER = "Which of the stones is the heavier one?"
REASONING = "The scale will tell."
PROSE = "Let me weigh it."
ANSWER = "It is the basalt."
AGAIN = "Do weigh it once more."
RESULT = "It weighs seven grams."
DESCRIPTION = "Weigh a stone on the brass scale."
SCALE = {
    "type": "function",
    "function": {
        "name": "weigh_stone",
        "description": DESCRIPTION,
        "parameters": {
            "type": "object",
            "properties": {
                "stone": {"type": "string", "description": "Name of the stone."},
                "times": {"type": "integer", "description": "How often."},
            },
            "required": ["stone"],
        },
    },
}
TOOLS = [SCALE]
_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
_NINE = "abcdefgh"


class Refused(Exception):
    """A template raised on a conversation; the text says what."""


class Outcome(StrEnum):
    """What became of a part of a conversation."""

    KEPT = "kept"
    DROPPED = "dropped"
    """It is not in the text, and nobody was told."""
    REFUSED = "refused"
    """The template raised."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one part, and what the template said when it raised."""

    outcome: Outcome
    said: str = ""

    @property
    def kept(self) -> bool:
        """Whether it is in the text."""
        return self.outcome is Outcome.KEPT


class Renderer:
    """A tokenizer's chat template as a function that raises one kind of error.

    Attributes:
        parts: whether content is handed over as a list of parts, as many templates of models that also see
            want it; they print nothing of a plain text.
        source: the template's source, or that of all its templates.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        template = tokenizer.chat_template
        self.source = "\n".join(template.values()) if isinstance(template, Mapping) else str(template)
        self.parts = False
        self._no_tools: list[Any] | None = None
        ways: tuple[tuple[bool, list[Any] | None], ...] = ((False, None), (True, None), (False, []))
        for self.parts, self._no_tools in (*ways, ways[0]):
            if self.finds(USER, [turn("user", USER)]).kept:
                return

    def __call__(
        self, turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]] | None = None, prompt: bool = True
    ) -> str:
        """The conversation as text; ``prompt`` lets it end where the model's next turn begins.

        Raises:
            Refused: the template raised.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                [self._in_parts(turn) if self.parts else dict(turn) for turn in turns],
                tools=list(tools) if tools else self._no_tools,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        except _REFUSALS as error:
            said = (str(error).strip().splitlines() or [""])[0]
            raise Refused(f"{type(error).__name__}: {said}"[:200]) from error
        return str(text)

    def _in_parts(self, turn: Turn) -> dict[str, Any]:
        content = turn["content"]
        return {**turn, "content": [] if content is None else [{"type": "text", "text": content}]}

    def finds(self, part: str, turns: Sequence[Turn], tools: Any = None, prompt: bool = True) -> Finding:
        """Whether a part of a conversation is in its text."""
        try:
            text = self(turns, tools, prompt)
        except Refused as refused:
            return Finding(Outcome.REFUSED, str(refused))
        return Finding(Outcome.KEPT if part in text else Outcome.DROPPED)


def turn(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    """One message."""
    return {"role": role, "content": content, **more}


def called(
    calls: Sequence[ToolCall], content: str | None = "", *, as_text: bool, **more: Any
) -> dict[str, Any]:
    """An assistant turn with calls as data."""
    data = [
        {
            "type": "function",
            "id": call.id,
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments) if as_text else call.arguments,
            },
        }
        for call in calls
    ]
    return turn("assistant", content, tool_calls=data, **more)


def stone_call(stone: str, place: int = 0, *, nine: bool = False, **arguments: Any) -> ToolCall:
    """A call of the probe's tool."""
    name = str(SCALE["function"]["name"])  # type: ignore[index]
    call_id = f"{_NINE}{place}" if nine else f"call_{place}"
    return ToolCall(name, arguments or {"stone": stone, "times": 3}, call_id)


def turn_text(prompt: str, whole: str, last_words: str) -> str:
    """What ``whole`` says in the turn that ``prompt`` asks for.

    Args:
        prompt: a conversation up to where the model's turn begins.
        whole: the same conversation with that turn.
        last_words: what stands last before the turn; where the prompt is no prefix of the whole (another
            date, an empty block of reasoning), the turn is sought behind it.
    """
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    opening, tail = prompt.rpartition(last_words)[2], whole.rpartition(last_words)[2]
    head = os.path.commonprefix([opening, tail])
    # Half a tag in common is no common head: "<think>" and "<tool_call>" share two characters.
    for bracket, closing in ("<>", "[]"):
        if head.rfind(bracket) > head.rfind(closing):
            head = head[: head.rfind(bracket)]
    return tail[len(head) :]
