"""Conversations as text: the prompt a model reads, and the page a person reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Protocol

from agent_r1_env.errors import AgentR1Error
from agent_r1_env.formats import CHATML
from agent_r1_env.messages import Message


class PromptRenderer(Protocol):
    """A chat template as a function."""

    def __call__(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, **variables: Any
    ) -> str:
        """The text; with ``add_generation_prompt`` it ends where the model's turn begins."""


_COLOURS = {"system": "2", "user": "36", "assistant": "32", "tool": "33"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class TemplateFault(AgentR1Error, ValueError):
    """A chat template does not compile, or fails on a conversation."""


@lru_cache(maxsize=64)
def renderer(chat_template: str) -> PromptRenderer:
    """A function that renders conversations with that Jinja chat template.

    The names and settings are those that chat templates are written for: white-space trimming,
    ``messages``, ``add_generation_prompt``, ``raise_exception`` and a ``tojson`` that keeps Unicode.

    Raises:
        TemplateFault: it does not compile.
    """
    from jinja2 import TemplateError  # here, since importing the package should cost little
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    try:
        template = environment.from_string(chat_template)
    except TemplateError as error:
        raise TemplateFault(f"the chat template does not compile: {error}") from error

    quick = chat_template == CHATML

    def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, **variables: Any) -> str:
        if quick and all(map(_is_plain, messages)):
            return chatml(messages) + (OPENING if add_generation_prompt else "")
        try:
            return template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **variables
            )
        except TemplateError as error:
            raise TemplateFault(f"the chat template fails on this conversation: {error}") from error

    return render


OPENING = "<|im_start|>assistant\n"
"""Where the model's turn begins in ChatML."""


def chatml(turns: Sequence[Mapping[str, str]]) -> str:
    """The text of ``formats.CHATML``, without Jinja and so at a tenth of the time."""
    return "".join([f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns])


def _is_plain(turn: Any) -> bool:
    """Whether ``chatml`` shows a turn as Jinja does, which also takes what is missing or no text."""
    return type(turn) is dict and type(turn.get("role")) is str and type(turn.get("content")) is str


def printable(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def ansi(history: Sequence[Message], stop_reason: str | None) -> str:
    """The conversation for a terminal; control characters in it are shown, not obeyed."""
    lines = []
    for message in history:
        content = _CONTROL.sub(lambda match: repr(match.group())[1:-1], message.content)
        lines.append(f"\x1b[1;{_COLOURS[message.role]}m{message.role}\x1b[0m\n{content}")
    if stop_reason is not None:
        lines.append(f"\x1b[1mended: {stop_reason}\x1b[0m")
    return "\n\n".join(lines)
