"""The ``parameters`` of a tool: a JSON Schema 2020-12 object that is checked when the tool is made.

A schema that is wrong in a way that JSON Schema tolerates (a misspelt keyword, a reference to
nowhere, a default that the schema itself refuses) is found here and not by the first model that calls.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agent_r1_env.errors import AgentR1Error, nearest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker

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
# What people who know another dialect write, and what it is called here.
_ELSEWHERE = {
    "nullable": "add 'null' to the list of types",
    "example": "write examples: [...]",
    "enumNames": "describe the values in description",
    "optional": "list the arguments that are not optional in required",
    "additionalItems": "write items beside prefixItems",
    "dependencies": "write dependentRequired or dependentSchemas",
    "id": "write $id",
}
# Formats that only describe; nothing about the text is checked.
_DESCRIPTIVE_FORMATS = frozenset(("int32", "int64", "float", "double", "byte", "binary", "password"))


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


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Make sure that ``parameters`` is sound JSON Schema 2020-12 and describes an object.

    Raises:
        SchemaFault: the first thing that is wrong, and where.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    fault = best_match(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(parameters))
    if fault is not None:
        raise SchemaFault(_meta_fault(fault), tuple(fault.absolute_path))
    if parameters.get("type") != "object":
        at: Path = ("type",) if "type" in parameters else ()
        raise SchemaFault("the parameters of a tool need type: object", at)
    for path, part in subschemas(parameters):
        if "$ref" in part:
            try:
                resolve(part["$ref"], parameters)
            except SchemaFault as unresolved:
                raise SchemaFault(str(unresolved), (*path, "$ref")) from None
    try:
        validator(json.dumps(parameters)).is_valid({})
        _check_defaults(parameters)
    except RecursionError:
        raise SchemaFault("a $ref leads back to itself without end") from None


def _meta_fault(fault: Any) -> str:
    if fault.validator in ("enum", "anyOf") and fault.absolute_path and fault.absolute_path[-1] == "type":
        types = ("string", "integer", "number", "boolean", "object", "array", "null")
        guess = nearest(str(fault.instance), types)
        meant = f"; did you mean {guess!r}?" if guess else ";"
        return f"unknown type {fault.instance!r}{meant} known: {', '.join(types)}"
    return str(fault.message)


def _check_defaults(parameters: Mapping[str, Any]) -> None:
    check = validator(json.dumps(parameters))
    for path, part in subschemas(parameters):
        if "default" in part:
            for misfit in check.evolve(schema=dict(part)).iter_errors(part["default"]):
                raise SchemaFault(f"the default doesn't fit: {misfit.message}", (*path, "default"))


def unknown_keywords(parameters: Mapping[str, Any]) -> Iterator[SchemaFault]:
    """Keywords and formats that JSON Schema would pass over in silence; ``x-...`` is yours to use."""
    for path, part in subschemas(parameters):
        for keyword in part:
            if keyword in KEYWORDS or (isinstance(keyword, str) and keyword.startswith("x-")):
                continue
            guess = nearest(str(keyword), KEYWORDS)
            advice = _ELSEWHERE.get(keyword) or (f"did you mean {guess!r}?" if guess else "")
            tail = f"; {advice}" if advice else ""
            yield SchemaFault(f"unknown JSON Schema keyword {keyword!r}{tail}", (*path, keyword))
        name = part.get("format")
        known = (*text_formats().checkers, *_DESCRIPTIVE_FORMATS)
        if isinstance(name, str) and name not in known:
            guess = nearest(name, known)
            meant = f"; did you mean {guess!r}?" if guess else f"; known: {', '.join(sorted(known))}"
            yield SchemaFault(f"unknown format {name!r}{meant}", (*path, "format"))


@functools.lru_cache(maxsize=512)
def validator(schema: str) -> Draft202012Validator:
    """The compiled validator of a schema given as JSON text; shared, and never on the network."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An explicit registry: the default one would download what an absolute $ref names.
    return Draft202012Validator(json.loads(schema), registry=Registry(), format_checker=text_formats())


@functools.cache
def text_formats() -> FormatChecker:
    """Checks of ``format``. jsonschema passes over those whose optional package is absent; these don't."""
    from jsonschema import FormatChecker

    checker = FormatChecker(("email", "idn-email", "ipv4", "ipv6", "uuid", "regex"))
    for name, check in _TEXT_FORMATS.items():
        checker.checks(name, raises=ValueError)(functools.partial(_holds_for_text, check))
    return checker


def _holds_for_text(check: Any, value: object) -> bool:
    return not isinstance(value, str) or bool(check(value))


def _is_moment(text: str) -> bool:
    return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None


def _is_date(text: str) -> bool:
    return len(text) == 10 and bool(date.fromisoformat(text))


def _is_time(text: str) -> bool:
    return time.fromisoformat(text).tzinfo is not None


def _is_uri(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme) and bool(parts.netloc or parts.path) and not re.search(r"[\s<>\"{}|\\^`]", text)


def _is_uri_reference(text: str) -> bool:
    return urlsplit(text) is not None and not re.search(r"[\s<>\"{}|\\^`]", text)


def _is_hostname(text: str) -> bool:
    label = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
    return len(text) <= 253 and re.fullmatch(rf"{label}(\.{label})*", text) is not None


def _is_duration(text: str) -> bool:
    clock = r"T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?"
    return re.fullmatch(rf"P(?=\d|T)(\d+W|(\d+Y)?(\d+M)?(\d+D)?({clock})?)", text) is not None


def _is_json_pointer(text: str) -> bool:
    return re.fullmatch(r"(/([^~/]|~[01])*)*", text) is not None


_TEXT_FORMATS = {
    "date": _is_date,
    "date-time": _is_moment,
    "time": _is_time,
    "duration": _is_duration,
    "uri": _is_uri,
    "uri-reference": _is_uri_reference,
    "iri": _is_uri,
    "iri-reference": _is_uri_reference,
    "hostname": _is_hostname,
    "json-pointer": _is_json_pointer,
}
