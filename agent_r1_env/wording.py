"""JSON Schema in plain words: what was expected, what came, and which sentence tells a model so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_r1_env.errors import nearest
from agent_r1_env.schematree import resolve

if TYPE_CHECKING:
    from jsonschema import ValidationError

_TYPES = {
    "string": ("a string", "strings"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "boolean": ("a boolean", "booleans"),
    "object": ("an object", "objects"),
    "array": ("a list", "lists"),
    "null": ("null", "nulls"),
}
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters long",
    "maxLength": "at most {} characters long",
    "pattern": "text that matches the pattern {}",
    "format": "text in the format {}",
    "minItems": "a list of at least {} items",
    "maxItems": "a list of at most {} items",
    "uniqueItems": "a list without repeated items",
    "minProperties": "an object with at least {} keys",
    "maxProperties": "an object with at most {} keys",
}


def expected(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """A few words for what ``schema`` accepts: "a string", "one of 'a', 'b'", "a list of integers"."""
    if not isinstance(schema, Mapping) or depth > 4:
        return "any value"
    if "enum" in schema:
        return _choices(schema["enum"])
    if "const" in schema:
        return shown(schema["const"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return _either(expected(part, root, depth + 1) for part in schema[keyword])
    types = schema.get("type")
    if types is not None:
        names = [types] if isinstance(types, str) else types
        return _either(_of_type(name, schema, root, depth) for name in names)
    for part in (resolve(schema["$ref"], root),) if "$ref" in schema else schema.get("allOf", ()):
        return expected(part, root, depth + 1)
    return "any value"


def _of_type(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    items = schema.get("items")
    if name != "array" or not isinstance(items, Mapping):
        return _TYPES[name][0]
    if "enum" in items:
        return f"a list whose items are {expected(items, root, depth + 1)}"
    inner = items.get("type")
    return f"a list of {_TYPES[inner][1]}" if isinstance(inner, str) else "a list"


def _choices(values: Sequence[Any]) -> str:
    listed = [shown(value) for value in values[:20]]
    more = f" or {len(values) - 20} others" if len(values) > 20 else ""
    return listed[0] if len(values) == 1 else f"one of {', '.join(listed)}{more}"


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words)) or "any value"


def found(value: Any) -> str:
    """A few words for what came: "an integer (5)", "a list ([1, 2])", "null"."""
    if value is None:
        return "null"
    kind = _TYPES[_type_of(value)][0] if _type_of(value) else f"a {type(value).__name__}"
    return f"{kind} ({shown(value)})"


def _type_of(value: Any) -> str:
    for name, types in (
        ("boolean", bool),
        ("string", str),
        ("integer", int),
        ("number", float),
        ("array", list),
        ("object", dict),
    ):
        if isinstance(value, types):
            return name
    return ""


def shown(value: Any, limit: int = 60) -> str:
    """``value`` as it stands in JSON, cut in the middle where it is long; text in single quotes."""
    if isinstance(value, str):
        text = repr(value[: 2 * limit])
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (ValueError, TypeError, RecursionError):  # an integer of 5,000 digits, a list within itself
            text = "..."
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 4 :]}"


def dotted(path: Iterable[str | int]) -> str:
    """``filters.0.min`` as ``'filters[0].min'``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return shown(text)


def constraint(error: ValidationError, root: Mapping[str, Any]) -> str:
    """A few words for what the keyword that failed asks for."""
    keyword, limit = str(error.validator), error.validator_value
    if keyword in _LIMITS:
        return _LIMITS[keyword].format(shown(limit))
    if keyword in _KINDS and (error.context or keyword != "oneOf"):
        return expected(error.schema, root)
    return f"as its schema says ({shown(error.message, 200)})"


def violation(tool: str, errors: Iterable[ValidationError], root: Mapping[str, Any]) -> str:
    """One sentence on what a model should mend first: a misnamed argument, a missing one, the rest."""
    ranked = sorted(errors, key=lambda error: (_RANK.get(str(error.validator), 9), len(error.absolute_path)))
    for error in ranked:
        if error.validator in _CLOSED and (near := _near_miss(error)):
            return f"{_takes_no(tool, error, near[0])}; did you mean {shown(near[1])}?"
    return _sentence(tool, ranked[0], root)


_KINDS = ("type", "enum", "const", "anyOf", "oneOf")
_CLOSED = ("additionalProperties", "unevaluatedProperties")
_RANK = {"required": 0, "additionalProperties": 1, "unevaluatedProperties": 1}


def _sentence(tool: str, error: ValidationError, root: Mapping[str, Any]) -> str:
    if error.validator == "required":
        return f"{_owner(tool, error)} needs the {_noun(error)} {_missing(error, root)}, which is missing"
    if error.validator in _CLOSED and (unnamed := _unnamed(error)):
        return f"{_takes_no(tool, error, unnamed[0])}; it takes {_listed(error, root)}"
    if error.validator in ("anyOf", "oneOf") and (meant := meant_branch(error)):
        return violation(tool, meant, root)
    subject = _owner(tool, error) if error.absolute_path else f"the arguments of {tool}"
    return f"{subject} must be {constraint(error, root)}, but {found(error.instance)} was given"


def _owner(tool: str, error: ValidationError) -> str:
    return f"argument {dotted(error.absolute_path)} of {tool}" if error.absolute_path else tool


def _takes_no(tool: str, error: ValidationError, name: str) -> str:
    return f"{_owner(tool, error)} takes no {_noun(error)} {shown(name)}"


def _noun(error: ValidationError) -> str:
    return "key" if error.absolute_path else "argument"


def _missing(error: ValidationError, root: Mapping[str, Any]) -> str:
    schema, given = _mapping(error.schema), _mapping(error.instance)
    name = next(name for name in schema["required"] if name not in given)
    what = expected(_properties(error).get(name, {}), root)
    return shown(name) if what == "any value" else f"{shown(name)} ({what})"


def _unnamed(error: ValidationError) -> list[str]:
    """The given names that the schema lacks; [] if it is not names alone that it closes over."""
    names = _properties(error)
    closed = error.validator_value is False
    return [name for name in _mapping(error.instance) if name not in names] if closed else []


def _near_miss(error: ValidationError) -> tuple[str, str] | None:
    """A name that the schema lacks, and the one like it that was not given."""
    given, names = _mapping(error.instance), _properties(error)
    for name in _unnamed(error):
        guess = nearest(name[:100], [known for known in names if known not in given])
        if guess:
            return name, guess
    return None


def _listed(error: ValidationError, root: Mapping[str, Any]) -> str:
    parts = [f"{shown(name)} ({expected(part, root)})" for name, part in _properties(error).items()]
    return ", ".join(parts) or "none"


def meant_branch(error: ValidationError) -> list[ValidationError]:
    """The errors of the only branch whose type fits what was given; [] if there is no such branch."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [
        inner
        for inner in branches.values()
        if not any(
            each.validator in ("type", "const", "enum")
            and not each.path
            and "propertyNames" not in each.schema_path
            for each in inner
        )
    ]
    return fitting[0] if len(fitting) == 1 else []


def _properties(error: ValidationError) -> dict[str, Any]:
    return _mapping(_mapping(error.schema).get("properties"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
