"""Wire formats: how calls and results stand in the text that a model reads and writes.

A format is one class in one file; ``get("hermes")`` imports its file when it is first asked for. A format of
your own derives from ``Format`` and is registered under a name, or named in YAML as ``./file.py:Name``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_r1_env.errors import UnknownName, unknown_name
from agent_r1_env.formats.format import Format
from agent_r1_env.formats.reading import ParsedReply

if TYPE_CHECKING:
    from agent_r1_env.formats.detection import Detection

__all__ = ["AUTO", "CHATML", "Format", "ParsedReply", "detect", "get", "names", "register"]

AUTO = "auto"
"""In place of a name: the format that the model's chat template speaks, for what knows the model."""

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template of a text observation, unless an environment is given another one."""

_CLASSES = {
    "code_block": "CodeBlock",
    "deepseek": "DeepSeek",
    "functionary": "Functionary",
    "gemma": "Gemma",
    "glm4": "Glm4",
    "harmony": "Harmony",
    "hermes": "Hermes",
    "kimi_k2": "KimiK2",
    "llama3_json": "Llama3Json",
    "mistral": "Mistral",
    "phi4_mini": "Phi4Mini",
    "pythonic": "Pythonic",
    "qwen3_coder": "Qwen3Coder",
    "react": "React",
    "xml_tags": "XmlTags",
}
"""The class of each built-in format, in the module of the format's name."""

_FORMATS: dict[str, Format] = {}


def register(name: str, format: Format) -> None:
    """Add a wire format under a name of its own.

    Raises:
        ValueError: the name is taken by another format.
    """
    if name == AUTO or name in _CLASSES or _FORMATS.setdefault(name, format) is not format:
        raise ValueError(f"a format named {name!r} is already registered; choose another name")


def names() -> list[str]:
    """The names of all formats."""
    return sorted({*_CLASSES, *_FORMATS})


def get(name: str | Mapping[str, Any] | Format) -> Format:
    """The format of that name, or made with options.

    Args:
        name: a name, ``{"name": ..., option: value, ...}``, or a format, which is handed back.

    Raises:
        UnknownName: nobody registered it, or it takes no such option.
    """
    if isinstance(name, Format):
        return name
    if isinstance(name, Mapping):
        return _with_options(**name)
    if name == AUTO:
        raise UnknownName(
            f"the format {AUTO!r} is found out from a model's tokenizer, which is not at hand here; give it "
            "to Rollout, to evaluate or in a recipe, or name the format: formats.detect(tokenizer).name"
        )
    if name not in _FORMATS:
        if name not in _CLASSES:
            raise unknown_name("format", name, names())
        _FORMATS[name] = _class(name)()
    return _FORMATS[name]


def detect(tokenizer: Any) -> Detection:
    """Choose the format that a tokenizer's chat template speaks, and say why."""
    from agent_r1_env.formats import detection  # here, because it needs Jinja

    return detection.detect(tokenizer)


def _with_options(name: str = "", **options: Any) -> Format:
    """A format of its own, made with the options that its class takes."""
    made = type(get(name))
    if not options:
        return get(name)
    known = list(inspect.signature(made).parameters)
    for key in options:
        if key not in known:
            raise unknown_name("option", key, known, f"format {name!r}")
    return made(**options)


def _class(name: str) -> type[Format]:
    module = importlib.import_module(f"agent_r1_env.formats.{name}")
    found: type[Format] = getattr(module, _CLASSES[name])
    return found
