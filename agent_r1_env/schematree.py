"""A JSON Schema as a tree: its parts, the references between them, and what can be wrong in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from agent_r1_env.errors import AgentR1Error

Path = tuple[str | int, ...]

_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = (
    *("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
KEYWORDS = frozenset(
    (*_MAPS_OF_SCHEMAS, *_LISTS_OF_SCHEMAS, *_SCHEMAS)
    + ("type", "enum", "const", "default", "title", "description", "examples", "format", "deprecated")
    + ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    + ("minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems")
    + ("minContains", "maxContains")
    + ("required", "minProperties", "maxProperties", "dependentRequired", "readOnly", "writeOnly")
    + ("contentEncoding", "contentMediaType", "$schema", "$id", "$ref", "$anchor", "$comment", "$vocabulary")
    + ("$dynamicRef", "$dynamicAnchor")
)
COMBINING = frozenset(("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "dependentSchemas"))
"""Keywords beside which properties may be declared in another part of the schema."""


class SchemaFault(AgentR1Error, ValueError):
    """Something is wrong in a schema.

    Attributes:
        path: the keys that lead to it from the top of the schema.
    """

    def __init__(self, reason: str, path: Path = ()) -> None:
        super().__init__(reason)
        self.path = path


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every schema object within ``schema``, itself first, each with the keys that lead to it."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for keyword in _MAPS_OF_SCHEMAS:
        if isinstance(parts := schema.get(keyword), Mapping):
            for name, part in parts.items():
                yield from subschemas(part, (*path, keyword, name))
    for keyword in _LISTS_OF_SCHEMAS:
        if isinstance(listed := schema.get(keyword), list):
            for index, part in enumerate(listed):
                yield from subschemas(part, (*path, keyword, index))
    for keyword in _SCHEMAS:
        yield from subschemas(schema.get(keyword), (*path, keyword))


def resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """The part of ``root`` that a local ``$ref`` names.

    Raises:
        SchemaFault: it names nothing, or something outside of the schema.
    """
    if not reference.startswith("#"):
        raise SchemaFault(f"$ref {reference!r} leads out of the schema; copy that part into $defs")
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        for _, part in subschemas(root):
            if pointer in (part.get("$anchor"), part.get("$dynamicAnchor")):
                return part
        raise SchemaFault(f"$ref {reference!r} names no $anchor of this schema")
    at: Any = root
    for word in pointer.split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        try:
            at = at[int(key)] if isinstance(at, list) else at[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaFault(f"$ref {reference!r} leads to nothing in this schema") from None
    return at
