"""What the tests of all wire formats share: published replies, and how calls are compared and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_r1_env import ToolCall, formats

FAMILIES = {
    "deepseek_v3": "deepseek",
    "deepseek_v31": "deepseek",
    "firefunction_v2": "phi4_mini",
    "functionary_v3.1": "functionary",
    "functionary_v3.2": "functionary",
    "functiongemma": "gemma",
    "gemma4": "gemma",
    "glm4_moe": "glm4",
    "gpt_oss": "harmony",
    "hermes": "hermes",
    "kimi_k2": "kimi_k2",
    "llama3_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "mistral_v11": "mistral",
    "mistral_v3": "mistral",
    "phi4_mini": "phi4_mini",
    "pythonic": "pythonic",
    "qwen2.5_coder_real": "hermes",
    "qwen3_coder": "qwen3_coder",
}
"""The format that reads each family of the published replies."""


def rows_of(shared_data: Path) -> list[dict[str, Any]]:
    """The published replies, each with what should be read in it."""
    lines = (shared_data.parent / "cases" / "tool_calls.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def exact(calls: Sequence[tuple[str, Any]]) -> list[str]:
    """Calls in a form that tells 1 from 1.0 and from true, and does not depend on the order of keys."""
    return [json.dumps([name, arguments], sort_keys=True) for name, arguments in calls]


def named(calls: Sequence[ToolCall]) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in calls]


def schema(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """A tool schema in OpenAI's form."""
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters or {}}}


Spec = str | dict[str, str]

SPECS: dict[str, Spec] = {name: name for name in formats.names()} | {
    f"{name} {version}": {"name": name, "version": version}
    for name in formats.names()
    for version in formats.get(name).versions
    if version != formats.get(name).version
}
SPECS["code_block fences"] = {"name": "code_block", "style": "fences"}
"""Every format, and those of its options that change what it writes."""


def reply_with(spec: str, prose: str, calls: Sequence[ToolCall]) -> str:
    """A reply with prose and calls as a model of the family writes it."""
    written = formats.get(SPECS[spec]).render_calls(calls)
    if not prose:
        return written
    if spec == "functionary v3.2":
        return f"all\n{prose}>>>{written}"
    if spec == "harmony":
        return f"<|channel|>commentary<|message|>{prose}<|end|><|start|>assistant{written}"
    # Labels, fences and lists count at the beginnings of lines, and words where no other word ends.
    lines = ("react", "code_block fences", "pythonic", "phi4_mini")
    return f"{prose}\n{written}" if spec in lines else prose + written
