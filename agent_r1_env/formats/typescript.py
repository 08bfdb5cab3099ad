"""JSON Schema as TypeScript types, the form in which some models were taught their tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent_r1_env.schematree import SchemaFault, resolve

Schema = Mapping[str, Any]

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def namespace(name: str, tools: Sequence[Schema]) -> str:
    """The tools, given in OpenAI's form, as types of one namespace."""
    types = "\n\n".join(_function(tool.get("function", tool)) for tool in tools)
    return f"namespace {name} {{\n\n{types}\n\n}} // namespace {name}"


def type_of(schema: Any, root: Schema, indent: str = "", path: tuple[str, ...] = ()) -> str:
    """The type of the values that a schema accepts.

    Args:
        root: the whole schema, which local references point into.
        indent: what lines after the first begin with.
        path: the references that led here; one that leads back to itself is written as ``any``.
    """
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        if reference in path:
            return "any"
        try:
            return type_of(resolve(reference, root), root, indent, (*path, reference))
        except SchemaFault:  # somebody else's schema
            return "any"
    options = list(_options(schema, root, indent, path))
    if schema.get("nullable") is True:
        options.append("null")
    return " | ".join(dict.fromkeys(options)) or "any"


def _options(schema: Schema, root: Schema, indent: str, path: tuple[str, ...]) -> Iterator[str]:
    """The types of which a value may have any."""
    if isinstance(schema.get("enum"), list):
        yield from map(_json, schema["enum"])
    elif "const" in schema:
        yield _json(schema["const"])
    elif parts := schema.get("anyOf") or schema.get("oneOf"):
        yield from (type_of(part, root, indent, path) for part in parts)
    elif parts := schema.get("allOf"):
        yield " & ".join(_bracketed(type_of(part, root, indent, path)) for part in parts)
    else:
        kinds = schema.get("type") or (
            "object" if "properties" in schema else "array" if "items" in schema else ""
        )
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            yield _of_kind(str(kind), schema, root, indent, path)


def _of_kind(kind: str, schema: Schema, root: Schema, indent: str, path: tuple[str, ...]) -> str:
    if kind == "object":
        return _object(schema, root, indent, path)
    if kind == "array":
        if members := schema.get("prefixItems"):
            return f"[{', '.join(type_of(member, root, indent, path) for member in members)}]"
        return f"{_bracketed(type_of(schema.get('items'), root, indent, path))}[]"
    return _PLAIN.get(kind, "any")


def _object(schema: Schema, root: Schema, indent: str, path: tuple[str, ...]) -> str:
    if schema.get("properties"):
        lines = "".join(_fields(schema, root, indent + "  ", path))
        return f"{{\n{lines}{indent}}}"
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping) and values:
        return f"{{ [key: string]: {type_of(values, root, indent, path)} }}"
    return "object"


def _function(function: Schema) -> str:
    parameters = function.get("parameters") or {}
    comment = "".join(_comment(function, ""))
    name = function.get("name", "")
    if not parameters.get("properties"):
        return f"{comment}type {name} = () => any;"
    return f"{comment}type {name} = (_: {{\n{''.join(_fields(parameters, parameters, '', ()))}}}) => any;"


def _fields(schema: Schema, root: Schema, indent: str, path: tuple[str, ...]) -> Iterator[str]:
    """A line a property, below the lines of its description."""
    required = schema.get("required") or ()
    for key, part in schema["properties"].items():
        part = part if isinstance(part, Mapping) else {}
        yield from _comment(part, indent)
        name = key if _NAME.fullmatch(key) else _json(key)
        mark = "" if key in required else "?"
        default = f" // default: {_json(part['default'])}" if "default" in part else ""
        yield f"{indent}{name}{mark}: {type_of(part, root, indent, path)},{default}\n"


def _comment(described: Schema, indent: str) -> Iterable[str]:
    return (f"{indent}// {line}\n" for line in (described.get("description") or "").splitlines())


def _bracketed(type_: str) -> str:
    return f"({type_})" if " | " in type_ or " & " in type_ else type_


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
