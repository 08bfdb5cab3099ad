"""Tools described in other words: what they do and how calls are checked stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agent_r1_env.around import chosen, named, whole_seed
from agent_r1_env.errors import unknown_name
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool

KEYS = ("description", "parameters")
"""What one wording of a tool may say anew: its description, and those of parameters by name."""


class Paraphrase:
    """Shows tools in other words, and the properties of their schemas in another order.

    Which words depends on the seed alone and not on the episode: samples of one task are compared, so they
    are given the same prompt. A tool without other words only gets another order.

    Args:
        seed: of what is drawn for each tool.
        texts: by tool, a wording or a list of them to draw from, in place of those under ``paraphrases`` in
            the tool's file: ``{"search": {"description": "...", "parameters": {"query": "..."}}}``.
        tools: names of the tools to describe anew; all by default.

    Raises:
        ValueError: a wording is none.
        UnknownName: it has a key that no wording has.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        texts: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]] | None = None,
        tools: Sequence[str] | None = None,
    ) -> None:
        self.seed, self.tools = whole_seed(seed), named(tools)
        if texts is not None and not isinstance(texts, Mapping):
            raise ValueError(f"texts must be a mapping from tools to other words, got {texts!r}")
        self.texts = {name: wordings(given) for name, given in (texts or {}).items()}

    def __call__(self, tools: Sequence[Tool], tasks: TaskSet | None = None) -> list[Tool]:
        """The tools, in other words.

        Raises:
            UnknownName: there is no tool of one of the names, or it has no such parameter.
        """
        chosen(tools, list(self.texts))
        meant = chosen(tools, self.tools)
        return [self._reworded(tool) if new else tool for tool, new in zip(tools, meant, strict=True)]

    def _reworded(self, tool: Tool) -> Tool:
        rng = np.random.default_rng([self.seed, *tool.name.encode()])
        found = self.texts.get(tool.name) or wordings(tool.paraphrases)
        check_parameters_of(found, tool.parameters, tool.name)
        said = found[int(rng.integers(len(found)))] if found else {}
        parameters = _reordered(tool.parameters, rng)
        for name, text in said.get("parameters", {}).items():
            parameters["properties"][name] = {**parameters["properties"][name], "description": text}
        return replace(tool, description=said.get("description", tool.description), parameters=parameters)


def wordings(given: Any) -> tuple[Mapping[str, Any], ...]:
    """One wording or several, checked as far as they can be without the tool.

    Raises:
        ValueError: one is no mapping of texts.
        UnknownName: it has a key that no wording has.
    """
    found = given if isinstance(given, list | tuple) else [given]
    for wording in found:
        if not isinstance(wording, Mapping) or not wording:
            raise ValueError(f"other words are a mapping of {' and '.join(KEYS)}, got {wording!r}")
        for key in wording:
            if key not in KEYS:
                raise unknown_name("key", str(key), KEYS, "other words for a tool")
        texts = wording.get("parameters", {})
        if not isinstance(texts, Mapping):
            raise ValueError(f"parameters in other words are a mapping from names to texts, got {texts!r}")
        for text in (wording.get("description", "x"), *texts.values()):
            if not isinstance(text, str) or not text:
                raise ValueError(f"a description must be text, got {text!r}")
    return tuple(found)


def check_parameters_of(found: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any], tool: str) -> None:
    """Make sure that a tool has the parameters that other words speak of.

    Raises:
        UnknownName: it has not.
    """
    known = [name for name, part in parameters.get("properties", {}).items() if isinstance(part, Mapping)]
    for wording in found:
        for name in wording.get("parameters", {}):
            if name not in known:
                raise unknown_name("parameter", name, known, f"tool {tool!r}")


def _reordered(parameters: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A copy with the properties in another order, on the first level."""
    shown: dict[str, Any] = copy.deepcopy(dict(parameters))
    names = list(shown.get("properties", {}))
    if names:
        shown["properties"] = {
            names[place]: shown["properties"][names[place]] for place in rng.permutation(len(names))
        }
    return shown
