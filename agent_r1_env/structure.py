"""Grammars that hold a model to valid tool calls, for engines that can sample under one.

Once a reply begins a call, only tokens are drawn that go on to a call of one of the tools with arguments that
fit its JSON Schema. All other text is free: the answer, the reasoning, what stands between the calls. A
grammar is a structural tag of xgrammar as JSON text, which is what vLLM takes.

It is derived from how a wire format writes calls, and only where that is exact: arguments as JSON, a
beginning that stands for nothing else, and calls that look the same whatever stands around them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_r1_env import formats
from agent_r1_env.errors import AgentR1Error, AgentR1Warning
from agent_r1_env.formats import Format
from agent_r1_env.messages import ToolCall

Structured = Callable[[Sequence[Mapping[str, Any]]], str]
"""Makes the grammar of the calls of some tools; "" for none."""

_PROBE: dict[str, Any] = {"probe": 7}
_WRITTEN = json.dumps(_PROBE)
_FREE_BEGINNINGS = frozenset({"harmony"})  # its commentary may also be for the user
_MANY = {"$defs", "definitions", "properties", "patternProperties"}
_DATA = {"enum", "const", "default", "examples"}
_BOUNDS = frozenset(
    {
        *("exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties"),
        *("maximum", "minItems", "minLength", "minProperties", "minimum", "pattern"),
    }
)
_BEYOND = frozenset(
    {
        *("allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "maxContains"),
        *("minContains", "multipleOf", "not", "oneOf", "patternProperties", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
    }
)


class StructureError(AgentR1Error, ValueError):
    """No grammar can hold a model to the calls asked for."""


class StructureWarning(AgentR1Warning):
    """The policy is trained on what it did not choose freely."""


def warn_of_training(corrected: bool) -> None:
    """Tell that a trainer knows nothing of grammars.

    Args:
        corrected: whether the loss weighs tokens by their probability under trainer and sampler.
    """
    warnings.warn(
        "structured calls in training: the sampler's log-probs are under the grammar, the trainer's of the "
        "free policy, and they differ wherever the grammar took something away; "
        + (
            "vllm_importance_sampling_correction weighs such tokens down"
            if corrected
            else "set vllm_importance_sampling_correction to true, which weighs such tokens down"
        ),
        StructureWarning,
        stacklevel=3,
    )


@dataclass(frozen=True)
class _Form:
    """How a format writes calls around their arguments.

    Attributes:
        begins: the text that a call, or a section of calls, begins with.
        section: several calls stand between one beginning and one end.
        between: what divides the calls of a section.
        end: behind the arguments of the last call.
    """

    begins: str
    section: bool
    between: str
    end: str


def structured(format: Format) -> Structured:
    """The function that makes grammars for the calls of a format.

    Raises:
        StructureError: its calls have no exact grammar; names those that have.
    """
    form = _form(format)
    if form is None:
        raise StructureError(
            f"structured calls need a wire format whose calls are JSON between fixed texts, which "
            f"{_called(format)} is not; those that are: {', '.join(exact())}"
        )
    known: dict[str, str] = {}

    def made(tools: Sequence[Mapping[str, Any]]) -> str:
        if not tools:
            return ""
        asked = json.dumps(tools)
        if asked not in known:
            known[asked] = json.dumps(_tag(format, form, tools))
        return known[asked]

    return made


def exact() -> list[str]:
    """The wire formats whose calls have a grammar, with the version where only some have."""
    found = []
    for name in formats.names():
        versions = formats.get(name).versions
        each = {version: formats.get({"name": name, "version": version}) for version in versions}
        fit = [version for version, format in each.items() if _form(format)]
        if len(fit) < len(versions):
            found += [f"{name} ({version})" for version in fit]
        elif fit or _form(formats.get(name)):
            found.append(name)
    return found


def _form(format: Format) -> _Form | None:
    """The form of a format, seen from calls that it writes; None if a grammar would not be exact."""
    one, other = _halves(format, "one"), _halves(format, "other")
    begins = next((mark for mark in format.markers if one and one[0].startswith(mark)), None)
    if one is None or other is None or begins is None or format.name in _FREE_BEGINNINGS:
        return None
    both = format.render_calls(
        [ToolCall(name, _PROBE, f"call_{i}") for i, name in enumerate(("one", "other"))]
    )
    head, tail = one
    if tail != other[1]:
        return None
    first, last = head + _WRITTEN + tail, other[0] + _WRITTEN + tail
    if both.count(begins) == 2 and both.startswith(first) and both.endswith(last):
        return _Form(begins, section=False, between="", end=tail)
    first, last = head + _WRITTEN, other[0].removeprefix(begins) + _WRITTEN + tail
    if both.count(begins) == 1 and both.startswith(first) and both.endswith(last):
        return _Form(begins, section=True, between=both[len(first) : len(both) - len(last)], end=tail)
    return None


def _halves(format: Format, name: str) -> tuple[str, str] | None:
    """What a format writes before and behind the arguments of a call; None if it doesn't write JSON."""
    head, found, tail = format.render_call(name, _PROBE).partition(_WRITTEN)
    return (head, tail) if found else None


def _tag(format: Format, form: _Form, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The structural tag of the tools' calls."""
    functions = [tool.get("function", tool) for tool in tools]
    calls = []
    for function in functions:
        halves = _halves(format, function["name"])
        assert halves is not None  # the form was seen to have them
        begin = halves[0].removeprefix(form.begins) if form.section else halves[0]
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        _check(function["name"], schema)
        schema = _by_pattern(schema)
        end = "" if form.section else form.end
        calls.append(_between(begin, {"type": "json_schema", "json_schema": schema}, end))
    if form.section:
        several = {"tags": calls, "separator": form.between, "at_least_one": True}
        inside = {"type": "tags_with_separator", **several}
        calls = [_between(form.begins, inside, form.end)]
    triggers = [form.begins]
    if format.reasoning:
        # Drafts in reasoning are free, and reasoning need not end.
        opens, closes = format.reasoning
        triggers.append(opens)
        calls.append(_between(opens, {"type": "any_text"}, [closes, ""]))
    return {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": triggers, "tags": calls},
    }


def _between(begin: str, content: Any, end: str | list[str]) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _check(tool: str, schema: Any) -> None:
    """Make sure that a grammar can say all that a schema does.

    Raises:
        StructureError: it cannot.
    """
    beyond = sorted(set(_beyond(schema)))
    if beyond:
        raise StructureError(
            f"the parameters of the tool {tool!r} use {', '.join(beyond)}, which a grammar cannot hold a "
            "model to; write the schema without, or run without structured calls"
        )


def _beyond(schema: Any) -> Iterator[str]:
    """Keywords of a schema that xgrammar leaves out of its grammar or gets wrong."""
    if isinstance(schema, list):
        for part in schema:
            yield from _beyond(part)
    if not isinstance(schema, Mapping):
        return
    yield from _BEYOND & set(schema)
    for bound in sorted(_BOUNDS & set(schema)):
        yield from (f"{bound} beside {key}" for key in ("enum", "const") if key in schema)
        if "type" not in schema:
            yield f"{bound} without a type"
    if {"pattern", "format"} & set(schema) and {"minLength", "maxLength"} & set(schema):
        yield "a length beside a pattern or format"
    for key, value in schema.items():
        if key in _MANY:
            for part in value.values():
                yield from _beyond(part)
        elif key not in _DATA:
            yield from _beyond(value)


def _by_pattern(schema: Any) -> Any:
    """The schema with bounds of the length of texts as patterns.

    For a bound alone xgrammar lets raw control characters through, which no JSON may hold. Either way such a
    text can hold nothing that JSON escapes, so no quotes and line breaks: valid, but not all that is valid.
    """
    if isinstance(schema, list):
        return [_by_pattern(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    changed = {key: part if key in _DATA else _by_pattern(part) for key, part in schema.items()}
    if schema.get("type") == "string" and {"minLength", "maxLength"} & set(schema):
        least, most = changed.pop("minLength", 0), changed.pop("maxLength", "")
        changed["pattern"] = rf"^[\s\S]{{{least},{most}}}$"
    return changed


def _called(format: Format) -> str:
    return f"{format.name} ({format.version})" if format.version else format.name
