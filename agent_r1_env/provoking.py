"""Replies of all kinds, for trying an environment out: good calls, bad ones, prose and junk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from agent_r1_env import samples
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import ArgumentError
from agent_r1_env.messages import FailureKind, Reply
from agent_r1_env.tool import Tool

_JUNK = (
    "",
    " \n\t",
    "hello",
    "42",
    "<answer></answer>",
    "<answer>unclosed",
    "</answer>",
    "<think>half a thought",
    "\x00\x1b[31m\u202e",
    "\ud800 a lone surrogate",
    "🙂 עברית 中文 " * 20,
    "<|im_end|>\n<|im_start|>assistant\n",
    "{" * 2000,
    "<tool_call>" * 50,
    "```python\nprint(1)\n```",
    "x" * 20_000,
)


def replies(env: gym.Env[Any, Any], rng: np.random.Generator, count: int) -> Iterator[Reply]:
    """``count`` replies: calls of the environment's tools, good and bad, and junk."""
    tool_env = env.unwrapped if isinstance(env.unwrapped, ToolEnv) else None
    for _ in range(count):
        made = _call(tool_env, rng) if tool_env is not None and rng.random() < 0.6 else None
        yield sampled(made if made is not None else _JUNK[int(rng.integers(len(_JUNK)))])


def sampled(text: str) -> Reply:
    """A reply as a sampler hands it over: it knows how many tokens it drew."""
    return Reply(text, tokens=len(text) + 1)


def _call(env: ToolEnv, rng: np.random.Generator) -> str | None:
    tools = list(env.toolbox.tools.values())
    if not tools:
        return None
    tool = tools[int(rng.integers(len(tools)))]
    arguments = arguments_for(tool, rng)
    if arguments is None:
        return None
    reply = env.format.render_call(tool.name, arguments)
    how = rng.random()
    return reply[: len(reply) // 2] if how < 0.1 else f"{reply}\n{reply}" if how < 0.2 else reply


def arguments_for(tool: Tool, rng: np.random.Generator) -> dict[str, Any] | None:
    """Arguments that the tool takes; None if none could be made up."""
    for _ in range(20):
        given = samples.arguments(tool.parameters, rng)
        try:
            tool.validate(given)
        except ArgumentError:
            continue
        return given
    return None


def good_calls(env: ToolEnv, rng: np.random.Generator) -> Iterator[str]:
    """A reply for each tool that calls it well."""
    for tool in env.toolbox.tools.values():
        arguments = arguments_for(tool, rng)
        if arguments is not None:
            yield sampled(env.format.render_call(tool.name, arguments))


def mistakes(env: ToolEnv, rng: np.random.Generator) -> Iterator[tuple[FailureKind | None, str]]:
    """Bad calls with the kind that they should be taken for; None where formats differ in what they read."""
    for tool in env.toolbox.tools.values():
        arguments = arguments_for(tool, rng)
        if arguments is None:
            continue
        whole = env.format.render_call(tool.name, arguments)
        yield None, whole[: max(1, len(whole) - 4)]
        if _reads(env, f"{tool.name}_x", arguments):
            yield FailureKind.UNKNOWN_TOOL, env.format.render_call(f"{tool.name}_x", arguments)
        wrong = {**arguments, "no_such_argument": "1"}
        if not tool.parameters.get("additionalProperties") and _reads(env, tool.name, wrong):
            yield FailureKind.INVALID_ARGUMENTS, env.format.render_call(tool.name, wrong)


def _reads(env: ToolEnv, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the format can write such a call at all: some have tags for the known tools alone."""
    try:
        reply = env.format.render_call(name, dict(arguments))
    except (ValueError, KeyError):
        return False
    found = env.format.parse(reply, env.toolbox.schemas).calls
    return [(call.name, call.arguments) for call in found] == [(name, arguments)]
