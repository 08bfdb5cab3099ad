"""Replies as no model should write them, for tests that an environment stands them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from agent_r1_env.env import ToolEnv
from agent_r1_env.messages import Reply

_MARKS = """{} [] NaN 1e999 -0 ٣ ½ ∞ None null %s {0} \\boxed{ } ``` '; <answer> </answer> <answer></answer>
<tool_call> </tool_call> <|im_end|> <code> </code> <interpreter> <think> </think> {"name": "arguments":{}}"""
_ODD = [*_MARKS.split(), "", " ", "\n", "\x00", "\ud800", "\U0001f4a5", "\u202e"]


def replies(env: ToolEnv, seed: int, words: list[str] | None = None) -> Iterator[str]:
    """Replies without end: words, marks, halves of calls, and calls with odd arguments."""
    random, pieces = Random(seed), [*_ODD, *(words or ["what", "is", "42"]) * 4]
    parameters = {name: list(tool.parameters["properties"]) for name, tool in env.toolbox.tools.items()}
    parameters["nothing"] = ["x"]

    def text() -> str:
        return random.choice(("", " ", "\n")).join(random.choices(pieces, k=random.randrange(8)))

    def call() -> str:
        name = random.choice(list(parameters))
        values: list[Any] = [text(), random.randrange(9), None, [text()], {"a": text()}, True]
        values += random.choices(pieces, k=len(values))
        return env.format.render_call(name, {key: random.choice(values) for key in parameters[name]})

    moves: list[Callable[[], str]] = [
        text,
        lambda: call() + text(),
        lambda: text() + call() + call(),
        lambda: call()[: random.randrange(60)],
        lambda: f"<answer>{text()}</answer>",
    ]
    while True:
        yield Reply(random.choice(moves)(), random.choice(("stop", "stop", "stop", "length")))


def seen(env: ToolEnv, seed: int, steps: int, words: list[str] | None = None) -> Iterator[str]:
    """All that a model can see in so many steps of such replies, as text; the replies themselves left out."""
    source = replies(env, seed, words)
    observation, info = env.reset(seed=seed)
    for _ in range(steps):
        yield _shown(observation, info)
        observation, _, terminated, truncated, info = env.step(next(source))
        if terminated or truncated:
            yield _shown("", info)
            observation, info = env.reset()


def _shown(observation: str, info: Mapping[str, Any]) -> str:
    messages = [message for message in info["messages"] if message["role"] != "assistant"]
    rest = {key: value for key, value in info.items() if key not in ("messages", "answer")}
    calls = [(call["name"], call["result"], call["error"]) for call in info["calls"]]
    return json.dumps([messages, {**rest, "calls": calls}], ensure_ascii=False)
