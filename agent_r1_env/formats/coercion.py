"""Types for arguments that a model writes as bare text, taken from the tool's JSON Schema.

XML-like formats write ``<parameter=count>3</parameter>``: whether that is a number or a text only the schema
knows. What cannot be typed stays text, and validation tells the model.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_r1_env.formats import literals
from agent_r1_env.formats.jsontext import read_json
from agent_r1_env.schematree import SchemaFault, resolve

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ALIASES = {
    **dict.fromkeys(("str", "text", "char", "varchar"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
    **dict.fromkeys(("list", "arr", "tuple"), "array"),
    "bool": "boolean",
    "dict": "object",
    "none": "null",
}
"""Names of types that are no JSON Schema but are written in its place."""
_TYPES: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "array": (list, tuple),
    "object": object,
}
"""What each JSON type is in Python; the first that fits counts, since a bool is an int too."""
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
    return _property(parameters, argument, parameters, ())


def text_argument(parameters: Schema) -> str | None:
    """The argument that bare text stands for: the only required one, if it is text, else the only text."""
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return None
    required = _listed(parameters.get("required"))
    texts = [name for name in properties if _is_text(properties[name], parameters)]
    if required:
        return required[0] if len(required) == 1 and required[0] in texts else None
    return texts[0] if len(texts) == 1 else None


def _is_text(schema: Any, root: Schema) -> bool:
    kinds = _accepted(schema, root).kinds
    return kinds is not None and kinds - {"null"} == {"string"}


def written(value: Any) -> str:
    """An argument as bare text: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def typed_arguments(
    written_ones: Iterable[tuple[str, str]], parameters: Schema, *, null_word: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments by name, each typed by its schema, and the repairs that reading them took.

    Of an argument that is given twice, the last one counts, as in JSON.
    """
    arguments: dict[str, Any] = {}
    repairs: dict[str, None] = {}
    for name, text in written_ones:
        schema = argument_schema(parameters, name)
        arguments[name], found = typed(text, schema, parameters, null_word=null_word)
        repairs |= dict.fromkeys(found)
    return arguments, tuple(repairs)


def takes_text(schema: Any, root: Schema) -> bool:
    """Whether a schema says that the argument may be text."""
    kinds = _accepted(schema, root).kinds
    return kinds is not None and "string" in kinds


def typed(text: str, schema: Any, root: Schema, *, null_word: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The value that ``text`` stands for by its schema, and the repairs that reading it took.

    Where the schema allows several types, the narrowest one counts that the text spells: null, boolean,
    number, object or array, and only then text.

    Args:
        root: the whole parameter schema, which local references point into.
        null_word: whether the word null is null even where the schema asks for text.
    """
    accepted = _accepted(schema, root)
    word = text.strip()
    if accepted.words is not None and (text in accepted.words or word in accepted.words):
        return text if text in accepted.words else word, ()
    kinds = frozenset(("string",)) if accepted.kinds is None else accepted.kinds
    lowered = word.lower() if len(word) <= len("false") else ""
    if lowered == "null" and ("null" in kinds or (null_word and (word == text or "string" not in kinds))):
        return None, ()
    if word == "None" and "null" in kinds and (null_word or "string" not in kinds):
        return None, ()
    if lowered in ("true", "false") and "boolean" in kinds:
        return lowered == "true", ()
    if (number := _number(word, kinds)) is not None:
        return number, ()
    return _container(text, word, kinds)


def _number(word: str, kinds: frozenset[str]) -> int | float | None:
    if not kinds & {"integer", "number"}:
        return None
    if _INTEGER.fullmatch(word) and not ("number" in kinds and "." in word):
        with contextlib.suppress(ValueError):  # it has more digits than Python reads
            return int(word.partition(".")[0])
    elif "number" in kinds and _NUMBER.fullmatch(word) and math.isfinite(value := float(word)):
        return value
    return None


def _container(text: str, word: str, kinds: frozenset[str]) -> tuple[Any, tuple[str, ...]]:
    """The object or array that the text spells, or the text."""
    if word[:1] not in ("{", "[", "(") or not kinds & {"object", "array"}:
        return text, ()
    if (found := _whole(read_json, word, kinds)) is not None:
        return found, ()
    # Where text is allowed, nobody knows whether a Python literal was meant as one.
    if "string" not in kinds and (found := _whole(literals.read_python, word, kinds)) is not None:
        return found, ("python_literal",)
    return text, ()


def _whole(read: Callable[[str, int], tuple[Any, ...]], word: str, kinds: frozenset[str]) -> Any:
    """The object or array that is the whole word, or None."""
    try:
        value, end, *_ = read(word, 0)
    except ValueError:
        return None
    kind = "object" if isinstance(value, dict) else "array"
    return value if end == len(word) and kind in kinds else None


def _property(schema: Any, argument: str, root: Schema, path: tuple[str, ...]) -> Any:
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and argument in properties:
        return properties[argument]
    for part, way in _parts(schema, root, path, ("allOf", "anyOf", "oneOf")):
        if (found := _property(part, argument, root, way)) is not None:
            return found
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, Mapping) else None


def _parts(
    schema: Schema, root: Schema, path: tuple[str, ...], keywords: Sequence[str]
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """What the keywords and ``$ref`` lead to, each with the references that were followed to it."""
    for keyword in keywords:
        for part in _listed(schema.get(keyword)):
            yield part, path
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in path:
        with contextlib.suppress(SchemaFault):  # somebody else's schema, which says nothing then
            yield resolve(reference, root), (*path, reference)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What a schema accepts, as far as it tells how to read a text.

    Attributes:
        kinds: JSON types, or None where the schema does not say.
        words: the texts, where it accepts only certain ones.
    """

    kinds: frozenset[str] | None = None
    words: frozenset[str] | None = None

    def __and__(self, other: _Accepted) -> _Accepted:
        return _Accepted(_common(self.kinds, other.kinds), _common(self.words, other.words))

    def __or__(self, other: _Accepted) -> _Accepted:
        if self.kinds is None or other.kinds is None:
            return _Accepted()
        texts = [
            each.words
            for each in (self, other)
            if each.words is not None or (each.kinds is not None and "string" in each.kinds)
        ]
        certain = [words for words in texts if words is not None]
        free = len(certain) < len(texts)
        return _Accepted(self.kinds | other.kinds, None if free else frozenset().union(*certain))


def _common(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _accepted(schema: Any, root: Schema, path: tuple[str, ...] = ()) -> _Accepted:
    if not isinstance(schema, Mapping):
        return _Accepted()
    accepted = _said(schema)
    for keyword in ("anyOf", "oneOf"):
        if options := _listed(schema.get(keyword)):
            accepted &= functools.reduce(operator.or_, (_accepted(each, root, path) for each in options))
    for part, way in _parts(schema, root, path, ("allOf",)):
        accepted &= _accepted(part, root, way)
    if schema.get("nullable") is True and accepted.kinds is not None:
        return _Accepted(accepted.kinds | {"null"}, accepted.words)
    return accepted


def _said(schema: Schema) -> _Accepted:
    """What the schema itself says, without its parts. A number may be an integer."""
    kinds: frozenset[str] | None = None
    if (said := schema.get("type")) is not None:
        given = [str(name).lower() for name in (said if isinstance(said, list) else [said])]
        kinds = frozenset(_ALIASES.get(name, name) for name in given)
        if "number" in kinds:
            kinds |= {"integer"}
    elif "properties" in schema:
        kinds = frozenset(("object",))
    elif "items" in schema or "prefixItems" in schema:
        kinds = frozenset(("array",))
    members = _listed(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    if not members:
        return _Accepted(kinds)
    words = frozenset(member for member in members if isinstance(member, str))
    return _Accepted(_common(kinds, frozenset(map(_kind, members))), words)


def _kind(value: Any) -> str:
    return next(name for name, types in _TYPES.items() if isinstance(value, types))
