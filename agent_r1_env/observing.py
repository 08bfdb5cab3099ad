"""The forms in which an environment shows the next prompt: text, chat messages, or token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from agent_r1_env import formats, prompt
from agent_r1_env.errors import missing_extra, unknown_name
from agent_r1_env.spaces import ChatMessages, TokenIds, UnicodeText

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
        if form == "text":
            render = prompt.renderer(chat_template or formats.CHATML)
            self.space = UnicodeText()
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

    def __call__(self, messages: Messages, tools: Tools, running: bool) -> Any:
        """The observation; while ``running`` it ends where the model's next turn begins."""
        return self._show(messages, tools, running)


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
