"""Types for arguments that a model writes as bare text, taken from the tool's JSON Schema.

XML-like formats write ``<parameter=count>3</parameter>``: whether that is a number or a text only the schema
knows. What cannot be typed stays text, and validation tells the model.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_r1_env.formats import literals
from agent_r1_env.schematree import SchemaFault, resolve

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
}
_DEEPEST = 16
Schema = Mapping[str, Any]


def parameters_of(tools: Sequence[Schema], name: str) -> Schema:
    """The parameter schema of a tool, from a list of OpenAI tool schemas; {} if there is no such tool."""
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            return parameters if isinstance(parameters, Mapping) else {}
    return {}


def argument_schema(parameters: Schema, argument: str) -> Any:
    """The schema of one argument, or None where the schema does not say."""
    return _property(parameters, argument, parameters, 0)


def typed(text: str, schema: Any, root: Schema, *, null_word: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The value that ``text`` stands for by its schema, and the repairs that reading it took.

    Args:
        root: the whole parameter schema, which local references point into.
        null_word: whether the word null is null even where the schema asks for text.
    """
    word = text.strip()
    kinds, choices = _kinds(schema, root, 0), _choices(schema, root, 0)
    if choices is not None and text in choices:
        return text, ()
    if word.lower() == "null" and (null_word or (kinds is not None and "null" in kinds)):
        return None, ()
    if choices is not None:
        return _chosen(text, word, choices), ()
    if kinds is None:
        return text, ()
    if word == "None" and "null" in kinds and "string" not in kinds:
        return None, ()
    if "boolean" in kinds and word.lower() in ("true", "false"):
        return word.lower() == "true", ()
    if (number := _number(word, kinds)) is not None:
        return number, ()
    if word[:1] in ("{", "[", "(") and kinds & {"object", "array"}:
        return _container(text, word, kinds)
    return text, ()


def _chosen(text: str, word: str, choices: list[Any]) -> Any:
    """The member of an enumeration that the text spells, or the text."""
    for choice in choices:
        if not isinstance(choice, str) and json.dumps(choice) == word:
            return choice
        if isinstance(choice, bool) and word.lower() == str(choice).lower():
            return choice
    return word if word in choices else text


def _number(word: str, kinds: set[str]) -> int | float | None:
    try:
        if kinds & {"integer", "number"} and _INTEGER.fullmatch(word):
            return int(word.partition(".")[0]) if "number" not in kinds or "." not in word else float(word)
        if "number" in kinds and _NUMBER.fullmatch(word):
            return float(word)
    except ValueError:  # more digits than Python reads
        pass
    return None


def _container(text: str, word: str, kinds: set[str]) -> tuple[Any, tuple[str, ...]]:
    for read, repairs in ((_json, ()), (_python, ("python_literal",))):
        try:
            value = read(word)
        except (ValueError, RecursionError):
            continue
        if ("object" if isinstance(value, dict) else "array") in kinds:
            return value, repairs
    return text, ()


def _json(word: str) -> Any:
    return json.loads(word)


def _python(word: str) -> Any:
    value, end, _ = literals.read_python(word, 0)
    if word[end:].strip():
        raise ValueError("text follows the literal")
    return value


def _property(schema: Any, argument: str, root: Schema, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and argument in properties:
        return properties[argument]
    for part in _parts(schema, root, ("allOf", "anyOf", "oneOf")):
        if (found := _property(part, argument, root, depth + 1)) is not None:
            return found
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, Mapping) else None


def _parts(schema: Schema, root: Schema, keywords: Sequence[str]) -> list[Any]:
    """What ``$ref`` and the keywords lead to."""
    parts = [part for keyword in keywords for part in _listed(schema.get(keyword))]
    if isinstance(reference := schema.get("$ref"), str):
        with contextlib.suppress(SchemaFault):  # somebody else's schema, which says nothing then
            parts.append(resolve(reference, root))
    return parts


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kinds(schema: Any, root: Schema, depth: int) -> set[str] | None:
    """The JSON types that a schema accepts, or None where it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    kinds: set[str] | None = None
    said = schema.get("type")
    if said is not None:
        names = said if isinstance(said, list) else [said]
        kinds = {_ALIASES.get(str(name).lower(), str(name).lower()) for name in names}
    elif "properties" in schema:
        kinds = {"object"}
    elif "items" in schema or "prefixItems" in schema:
        kinds = {"array"}
    for keyword in ("anyOf", "oneOf"):
        if options := _listed(schema.get(keyword)):
            found = [_kinds(option, root, depth + 1) for option in options]
            union = None if None in found else {kind for each in found if each for kind in each}
            kinds = union if kinds is None else kinds if union is None else kinds & union
    for part in _parts(schema, root, ("allOf",)):
        found_here = _kinds(part, root, depth + 1)
        if found_here is not None:
            kinds = found_here if kinds is None else kinds & found_here
    if kinds is not None and schema.get("nullable") is True:
        kinds = kinds | {"null"}
    return kinds


def _choices(schema: Any, root: Schema, depth: int) -> list[Any] | None:
    """The members of an enumeration, or None where the schema is none."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    for keyword in ("anyOf", "oneOf"):
        if options := _listed(schema.get(keyword)):
            found = [_choices(option, root, depth + 1) for option in options]
            nulls = [
                [None] if option == {"type": "null"} else each
                for option, each in zip(options, found, strict=True)
            ]
            return None if None in nulls else [member for each in nulls if each for member in each]
    for part in _parts(schema, root, ("allOf",)):
        if (choices := _choices(part, root, depth + 1)) is not None:
            return choices
    return None
