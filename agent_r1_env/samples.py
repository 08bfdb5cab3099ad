"""Arguments that fit a JSON Schema, made at random: what a model might call a tool with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agent_r1_env.schematree import resolve

_WORDS = ("Bergen", "x", "two words", "7 + 1", "naïve café", "日本", "1999-12-31", "a/b.c")
_DEEPEST = 6


def arguments(parameters: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Arguments for a tool: all that are required, and some of the others.

    Most schemas are met; one with patterns, formats or conditions may not be, so let the tool validate.
    """
    value = _value(parameters, parameters, rng, 0)
    return value if isinstance(value, dict) else {}


def _value(schema: Any, root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if "$ref" in schema:
        return _value(resolve(schema["$ref"], root), root, rng, depth + 1)
    if "const" in schema:
        return schema["const"]
    for choices in ("enum", "examples"):
        if schema.get(choices):
            return _one(schema[choices], rng)
    for choices in ("anyOf", "oneOf"):
        if schema.get(choices):
            return _value(_one(schema[choices], rng), root, rng, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = _one(kind, rng) if isinstance(kind, list) else kind
    return _OF_KIND.get(kind, _null)(schema, root, rng, depth)


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    wanted = set(schema.get("required", ()))
    return {
        name: _value(part, root, rng, depth + 1)
        for name, part in schema.get("properties", {}).items()
        if name in wanted or rng.random() < 0.3
    }


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    least = int(schema.get("minItems", 0))
    count = int(rng.integers(least, 1 + min(int(schema.get("maxItems", least + 2)), least + 2)))
    return [_value(schema.get("items", {}), root, rng, depth + 1) for _ in range(count)]


def _string(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    text = str(_one(_WORDS, rng)).ljust(int(schema.get("minLength", 0)), "x")
    return text[: schema.get("maxLength")]


def _number(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    whole = schema.get("type") == "integer" or "integer" in schema.get("type", ())
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    low = -3 if least is None and most is None else most - 5 if least is None else least
    high = low + 5 if most is None else most
    inner = low + (high - low) * rng.random()
    step = schema.get("multipleOf", 1)
    return int(-(-low // step) * step if "exclusiveMinimum" not in schema else low + 1) if whole else inner


def _boolean(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    return bool(rng.integers(2))


def _null(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator, depth: int) -> Any:
    return None


_OF_KIND = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
}


def _one(values: Any, rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]
