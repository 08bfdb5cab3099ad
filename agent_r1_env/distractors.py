"""Distractors: tools that no task needs, among those that it does."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from agent_r1_env import yamlfile
from agent_r1_env.around import named, whole_seed
from agent_r1_env.errors import unknown_name
from agent_r1_env.output import as_text
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool, ToolOutput

_SHOWN = 80
"""Characters of an argument that a result repeats."""


class Distractors:
    """Puts tools that have nothing to do with any task among the others, in an order of its own.

    Which ones and where depends on the seed alone and not on the episode: samples of one task are compared,
    so they are given the same prompt. Calling one is a good call; it gives a harmless, made-up result, which
    is marked as simulated in records and counted in ``metrics["simulated/distractor"]``.

    Args:
        count: how many, drawn from those whose names are free.
        names: those of these names instead; see ``distractors.yaml``.
        seed: of choice and order.

    Raises:
        UnknownName: there is no distractor of one of the names.
        ValueError: there are not so many.
    """

    def __init__(
        self, count: int | None = None, *, names: Sequence[str] | None = None, seed: int = 0
    ) -> None:
        if (count is None) == (names is None):
            raise ValueError("distractors need either count, how many, or names, which ones")
        known = available()
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise ValueError(f"count must be a whole number from 0, got {count!r}")
        if count is not None and count > len(known):
            raise ValueError(f"count is {count}, but there are {len(known)} distractors")
        self.count, self.names = count, named(names, "names")
        for name in self.names or ():
            if name not in known:
                raise unknown_name("distractor", name, known)
        self.seed = whole_seed(seed)

    def __call__(self, tools: Sequence[Tool], tasks: TaskSet | None = None) -> list[Tool]:
        """The tools, with distractors among them.

        Raises:
            ValueError: a tool has the name of a distractor that was asked for, or too few names are free.
        """
        rng = np.random.default_rng(self.seed)
        taken = {tool.name.lower() for tool in tools}
        mixed = [*tools, *self._chosen(taken, rng)]
        return [mixed[place] for place in rng.permutation(len(mixed))]

    def _chosen(self, taken: set[str], rng: np.random.Generator) -> list[Tool]:
        known = available()
        if self.names is not None:
            if clash := [name for name in self.names if name in taken]:
                raise ValueError(f"a tool is called {clash[0]!r} already; leave that distractor out")
            return [known[name] for name in self.names]
        free = [tool for name, tool in known.items() if name not in taken]
        count = self.count or 0
        if count > len(free):
            raise ValueError(f"count is {count}, but the names of only {len(free)} distractors are free")
        return [free[place] for place in rng.permutation(len(free))[:count]]


@functools.cache
def available() -> dict[str, Tool]:
    """All distractors by name; shared, for they keep nothing."""
    items = yamlfile.read_all(Path(__file__).with_name("distractors.yaml"))
    return {item.data["name"]: _tool(item.data) for item in items}


def _tool(data: dict[str, Any]) -> Tool:
    run = _Canned(data["name"], tuple(data["results"]))
    return Tool(data["name"], data["description"], data["parameters"], run, timeout=5.0)


@dataclass(frozen=True, slots=True)
class _Canned:
    """Gives one of its results, the same for the same arguments."""

    name: str
    results: tuple[str, ...]

    def __call__(self, /, **arguments: Any) -> ToolOutput:
        key = json.dumps([self.name, arguments], sort_keys=True).encode()
        text = self.results[blake2b(key, digest_size=1).digest()[0] % len(self.results)]
        for name, value in arguments.items():
            text = text.replace(f"{{{name}}}", as_text(copy.copy(value))[:_SHOWN])
        return ToolOutput(text, simulated="distractor")
