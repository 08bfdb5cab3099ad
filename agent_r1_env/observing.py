"""The forms in which an environment shows the next prompt: text, chat messages, or token ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from agent_r1_env import formats, prompt
from agent_r1_env.errors import missing_extra, unknown_name
from agent_r1_env.messages import Message
from agent_r1_env.spaces import ChatMessages, TokenIds, UnicodeText
from agent_r1_env.turns import head_length

FORMS = ("text", "messages", "tokens")
Messages = list[dict[str, Any]]
Tools = Sequence[Mapping[str, Any]]


class Observer:
    """Turns the messages that the model shall see into an observation.

    Args:
        form: "text": the rendered prompt; "messages": the messages themselves, as in ``info["messages"]``;
            "tokens": the ids of the prompt by the chat template of the tokenizer.
        chat_template: Jinja template of the text; ChatML by default. Not for tokens, which follow the
            tokenizer's own.
        tokenizer: for tokens alone.

    Attributes:
        space: of the observations.

    Raises on construction:
        UnknownName: no such form.
        ValueError: tokens without a tokenizer.
        TemplateFault: the template does not compile, or the tokenizer's cannot show such conversations.
    """

    def __init__(
        self, form: str, format: formats.Format, chat_template: str | None = None, tokenizer: Any = None
    ) -> None:
        self.space: Space[Any]
        self._show: Callable[[Messages, Tools, bool], Any]
        self._transcript: Transcript | None = None
        if form == "text":
            self.space = UnicodeText()
            if chat_template in (None, "", formats.CHATML) and type(format).flatten is formats.Format.flatten:
                self._transcript = Transcript(format)
            else:
                render = prompt.renderer(chat_template or formats.CHATML)
                self._show = lambda messages, tools, open_: render(format.flatten(messages, tools), open_)
        elif form == "messages":
            self.space = ChatMessages()
            self._show = lambda messages, tools, open_: tuple(dict(message) for message in messages)
        elif form == "tokens":
            if tokenizer is None:
                raise ValueError("observations as tokens need a tokenizer: ToolEnv(..., tokenizer=...)")
            self.space = TokenIds(len(tokenizer))
            self._show = _token_ids(tokenizer, format)
        else:
            raise unknown_name("observation form", form, FORMS)

    def __call__(self, shown: list[Message], messages: Messages, tools: Tools, running: bool) -> Any:
        """The observation; while ``running`` it ends where the model's next turn begins.

        Args:
            shown: kept, and so no longer the caller's to change.
            messages: the same as plain data.
        """
        if self._transcript is not None:
            return self._transcript(shown, messages, tools, running)
        return self._show(messages, tools, running)

    def another(self) -> Observer:
        """One for another episode: it shows the same in the same way."""
        twin = copy.copy(self)
        twin._transcript = copy.copy(self._transcript)
        return twin


@dataclass(frozen=True, slots=True)
class _Shown:
    """Messages and tools that were shown, and their text."""

    messages: Sequence[Message]
    tools: Tools
    text: str

    def begins(self, messages: Sequence[Message], tools: Tools) -> bool:
        """Whether the text of these messages begins with this one.

        The messages must be the very same, and a reply must follow: all else may join the turn before it.
        """
        end = len(self.messages)
        return (
            tools is self.tools
            and end <= len(messages)
            and (end == len(messages) or messages[end].role == "assistant")
            and all(map(is_, self.messages, messages))
        )


class Transcript:
    """Conversations in ChatML. What a conversation has in common with the last one is not written anew.

    Without it, an episode of n turns would cost n^2; and the tools would be listed anew for each prompt.
    """

    def __init__(self, format: formats.Format) -> None:
        self._format = format
        self._head = self._last = _Shown((), (), "")

    def __call__(self, shown: list[Message], messages: Messages, tools: Tools, running: bool) -> str:
        """The text; while ``running`` it ends where the model's next turn begins."""
        known = next((each for each in (self._last, self._head) if each.begins(shown, tools)), None)
        if known is None:
            head = head_length(shown)
            known = _Shown(shown[:head], tools, prompt.chatml(self._format.flatten(messages[:head], tools)))
            self._head = known
        new = messages[len(known.messages) :]
        # Without the tools, which stand in the head.
        text = known.text + prompt.chatml(self._format.flatten(new, ())) if new else known.text
        self._last = _Shown(shown, tools, text)
        return text + prompt.OPENING if running else text


def _token_ids(tokenizer: Any, format: formats.Format) -> Callable[[Messages, Tools, bool], Any]:
    from agent_r1_env.template import ChatTemplate

    template = ChatTemplate(tokenizer, format)

    def show(messages: Messages, tools: Tools, open_: bool) -> Any:
        return np.asarray(template.prompt_ids(messages, tools, open_), dtype=np.int64)

    return show


def tokenizer_of(given: Any) -> Any:
    """The tokenizer that a name stands for; anything else is one already."""
    if not isinstance(given, str):
        return given
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra("transformers", "train") from error
    return AutoTokenizer.from_pretrained(given)
