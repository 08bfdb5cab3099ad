"""A short cut for the schemas that most tools have: an object of texts, numbers and truth values, or lists.

It says of arguments that they fit, or that it doesn't know; then JSON Schema itself has the word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_ANNOTATIONS = frozenset(("title", "description", "examples", "deprecated", "default", "$comment"))
_TOP = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),  # 3.0 is one, too: JSON Schema will say so
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_BOUNDS: Mapping[str, Callable[[Any], Callable[[Any], bool]]] = {
    "minimum": lambda bound: lambda value: bool(value >= bound),
    "maximum": lambda bound: lambda value: bool(value <= bound),
    "exclusiveMinimum": lambda bound: lambda value: bool(value > bound),
    "exclusiveMaximum": lambda bound: lambda value: bool(value < bound),
}
_LENGTHS: Mapping[str, Callable[[int], Callable[[Any], bool]]] = {
    "minLength": lambda length: lambda value: len(value) >= length,
    "maxLength": lambda length: lambda value: len(value) <= length,
    "minItems": lambda length: lambda value: len(value) >= length,
    "maxItems": lambda length: lambda value: len(value) <= length,
}


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known to fit one argument: exact types, and tests that all have to hold."""

    kinds: frozenset[type]
    tests: tuple[Callable[[Any], bool], ...]

    def holds(self, value: Any) -> bool:
        return type(value) in self.kinds and all(test(value) for test in self.tests)


class FlatSchema:
    """The parts of a schema, and the defaults of those that have one."""

    def __init__(
        self, parts: Mapping[str, _Part], required: frozenset[str], defaults: dict[str, Any]
    ) -> None:
        self._parts, self._required, self._defaults = parts, required, defaults

    def completed(self, arguments: Any) -> dict[str, Any] | None:
        """A copy with the defaults behind it; None where it is not known to fit."""
        if type(arguments) is not dict or not self._required <= arguments.keys():
            return None
        copy: dict[str, Any] = {}
        for name, value in arguments.items():
            part = self._parts.get(name)
            if part is None or not part.holds(value):
                return None
            copy[name] = [*value] if type(value) is list else value
        for name, value in self._defaults.items():
            copy.setdefault(name, value)
        return copy


def flat(schema: Mapping[str, Any]) -> FlatSchema | None:
    """The short cut for a sound schema that names all arguments; None if it holds more than the simplest."""
    if (
        schema.get("type") != "object"
        or schema.get("additionalProperties") is not False
        or set(schema) - _TOP
    ):
        return None
    properties = schema.get("properties", {})
    parts = {name: _part(part) for name, part in properties.items()}
    defaults = {name: part["default"] for name, part in properties.items() if _has_default(part)}
    known = {name: part for name, part in parts.items() if part is not None}
    if len(known) < len(parts) or not all(_is_simple(value) for value in defaults.values()):
        return None
    return FlatSchema(known, frozenset(schema.get("required", ())), defaults)


def _part(schema: Any) -> _Part | None:
    """What is known to fit, or None if that is too much for a short cut."""
    if not isinstance(schema, Mapping):
        return None
    rules = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    said = rules.pop("type", None)
    if said == "array":
        return _list(rules)
    choices = rules.pop("enum", None)
    types = ["string"] if said is None and choices is not None else [said] if isinstance(said, str) else said
    if not types or not all(each in _KINDS for each in types):
        return None
    kinds = frozenset(kind for each in types for kind in _KINDS[each])
    tests: list[Callable[[Any], bool]] = []
    if choices is not None:
        if not all(type(each) is str for each in choices):
            return None
        tests.append(frozenset(choices).__contains__)
    if float in kinds:
        tests.append(lambda value: type(value) is not float or math.isfinite(value))
    for key, value in rules.items():
        if key in _BOUNDS and kinds <= {int, float}:
            tests.append(_BOUNDS[key](value))
        elif key in ("minLength", "maxLength") and kinds == {str}:
            tests.append(_LENGTHS[key](value))
        else:
            return None
    return _Part(kinds, tuple(tests))


def _list(rules: dict[str, Any]) -> _Part | None:
    item = _part(rules.pop("items", None))
    if item is None or list in item.kinds or not set(rules) <= {"minItems", "maxItems"}:
        return None
    tests = [_LENGTHS[key](value) for key, value in rules.items()]
    return _Part(frozenset((list,)), (*tests, lambda value: all(map(item.holds, value))))


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def _is_simple(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)
