"""Wire formats: how calls and results stand in the text that a model reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agent_r1_env.errors import look_up
from agent_r1_env.formats.hermes import Hermes
from agent_r1_env.formats.reading import ParsedReply

__all__ = ["CHATML", "Format", "ParsedReply", "get", "names", "register"]

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template of a text observation, unless an environment is given another one."""


@runtime_checkable
class Format(Protocol):
    """What every wire format can do. None of it raises for what a model wrote."""

    name: str
    stop: tuple[str, ...]
    """Strings that end a turn, besides the tokenizer's own end-of-turn token."""

    def parse(self, reply: str) -> ParsedReply:
        """Read one whole reply. What a ``CallError`` repeats of it must be neutralised."""
        ...

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """One call as a model would write it."""
        ...

    def flatten(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, str]]:
        """The conversation in system, user and assistant turns alone, for templates without tools."""
        ...

    def neutralise(self, text: str) -> str:
        """The text with everything in it defused that the model's side could take for a turn."""
        ...


_FORMATS: dict[str, Format] = {"hermes": Hermes()}


def register(name: str, format: Format) -> None:
    """Add a wire format under a name of its own.

    Raises:
        ValueError: the name is taken by another format.
    """
    if _FORMATS.setdefault(name, format) is not format:
        raise ValueError(f"a format named {name!r} is already registered; choose another name")


def names() -> list[str]:
    """The names of all formats."""
    return sorted(_FORMATS)


def get(name: str) -> Format:
    """The format of that name.

    Raises:
        UnknownName: nobody registered it.
    """
    return look_up("format", name, _FORMATS)
