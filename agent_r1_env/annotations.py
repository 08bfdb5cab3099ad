"""What the annotation of an argument says as JSON Schema, and how JSON becomes the value that it promises.

A model sends JSON; a function may be annotated with more than JSON knows:

- dates, times, UUIDs and paths are text, ``bytes`` are base64, ``Decimal`` is a number;
- an ``Enum`` is one of its values, a tuple or set is a list;
- dataclasses, named tuples, TypedDicts and pydantic models are objects.

What contains itself becomes a part of ``$defs``; everything else is written out where it is used.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from agent_r1_env.defaults import as_json, as_list, nullable
from agent_r1_env.docstrings import read_docstring
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.schematree import subschemas
from agent_r1_env.validation import validator

Convert = Callable[[Any], Any]
_MISSING: Any = inspect.Parameter.empty


class AnnotationFault(AgentR1Error, TypeError):
    """An annotation says nothing that JSON could express."""


@dataclass(frozen=True)
class Reading:
    """An annotation as a schema, and what turns JSON that fits it into a value; None: it is one already."""

    schema: dict[str, Any]
    convert: Convert | None = None


@dataclass(frozen=True)
class _Field:
    """One part of an object, as its class declares it."""

    annotation: Any
    required: bool = True
    default: Any = _MISSING
    description: str = ""


def _whole(value: Any) -> Any:
    """JSON knows no difference between 3 and 3.0, Python does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


_PLAIN: dict[Any, Reading] = {
    str: Reading(_text()),
    int: Reading({"type": "integer"}, _whole),
    float: Reading({"type": "number"}),
    bool: Reading({"type": "boolean"}),
    type(None): Reading({"type": "null"}),
    None: Reading({"type": "null"}),
    Any: Reading({}),
    object: Reading({}),
    typing.LiteralString: Reading(_text()),
    datetime: Reading(_text(format="date-time"), datetime.fromisoformat),
    date: Reading(_text(format="date"), date.fromisoformat),
    time: Reading(_text(format="time"), time.fromisoformat),
    UUID: Reading(_text(format="uuid"), UUID),
    Path: Reading(_text(), Path),
    Decimal: Reading({"type": "number"}, lambda number: Decimal(str(number))),
    bytes: Reading(_text(contentEncoding="base64"), _from_base64),
}
_LISTS: dict[Any, Convert | None] = {
    list: None,
    collections.abc.Sequence: None,
    collections.abc.MutableSequence: None,
    collections.abc.Collection: None,
    collections.abc.Iterable: None,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


class Reader:
    """Reads the annotations of one function.

    Attributes:
        definitions: the parts that stand under ``$defs``, by name.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._open: list[Any] = []
        self._recursive: dict[Any, str] = {}
        self._finished: dict[Any, Reading] = {}

    def read(self, annotation: Any) -> Reading:
        """The reading of one annotation.

        Raises:
            AnnotationFault: JSON cannot express it.
        """
        origin, inner = get_origin(annotation), get_args(annotation)
        if origin is None and _hashable(annotation) and annotation in _PLAIN:
            return dataclasses.replace(_PLAIN[annotation], schema=dict(_PLAIN[annotation].schema))
        if origin is Annotated:
            return self._annotated(inner[0], inner[1:])
        if origin is Literal:
            return _of_values(inner)
        if origin in (Union, types.UnionType):
            return self._union(inner)
        kind = origin or annotation
        if kind in _LISTS:
            return self._list(kind, inner, annotation)
        if kind in _MAPPINGS:
            return self._mapping(inner)
        if hasattr(annotation, "__supertype__"):  # a NewType
            return self.read(annotation.__supertype__)
        if hasattr(annotation, "__value__"):  # an alias that a type statement made
            return self._named(annotation, lambda alias: self.read(alias.__value__))
        if isinstance(annotation, type) and origin is None:
            return self._class(annotation)
        raise AnnotationFault(_no_schema(annotation))

    def _class(self, kind: type) -> Reading:
        if issubclass(kind, enum.Enum):
            return _of_values(list(kind))
        if hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate_json"):
            return self._model(kind)
        if hasattr(kind, "__required_keys__"):
            return self._named(kind, self._typed_dict)
        if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            return self._named(kind, self._record)
        raise AnnotationFault(_no_schema(kind))

    def _annotated(self, annotation: Any, extras: Sequence[Any]) -> Reading:
        reading = self.read(annotation)
        schema = dict(reading.schema)
        for extra in extras:
            text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
            limits = type(extra).__module__.partition(".")[0] in ("annotated_types", "pydantic")
            if limits:
                text = getattr(extra, "description", None)
                for part in (extra, *(getattr(extra, "metadata", None) or ())):
                    schema |= _limits(part, schema)
            if isinstance(text, str):
                schema["description"] = text
        return Reading(schema, reading.convert)

    def _union(self, parts: Sequence[Any]) -> Reading:
        readings = [self.read(part) for part in parts]
        schemas = [reading.schema for reading in readings]
        if {} in schemas:
            return Reading({})
        if all(set(schema) == {"type"} for schema in schemas):
            kinds = [name for schema in schemas for name in as_list(schema["type"])]
            schema: dict[str, Any] = {"type": list(dict.fromkeys(kinds))}
        else:
            schema = {"anyOf": schemas}
        converts = {reading.convert for reading in readings} - {None}
        if not converts:
            return Reading(schema)
        if converts == {_whole}:
            return Reading(schema, None if float in parts else _whole)
        others = [reading for reading in readings if reading.schema != {"type": "null"}]
        if len(others) == 1:
            return Reading(schema, _unless_none(others[0].convert))
        return Reading(schema, functools.partial(self._fitting, readings))

    def _fitting(self, readings: Sequence[Reading], value: Any) -> Any:
        """``value`` as the first part of a union makes it that it fits."""
        misfit: Exception | None = None
        for reading in readings:
            whole = {**reading.schema, "$defs": self.definitions}
            if validator(json.dumps(whole)).is_valid(value):
                try:
                    return value if reading.convert is None else reading.convert(value)
                except Exception as failure:  # a class may refuse in any way; perhaps another takes it
                    misfit = failure
        if misfit is not None:
            raise misfit
        return value

    def _list(self, kind: Any, inner: Sequence[Any], annotation: Any) -> Reading:
        build = _LISTS[kind]
        if kind is tuple and annotation is not tuple and inner[-1:] != (Ellipsis,):
            return self._tuple(inner)
        schema: dict[str, Any] = {"type": "array"}
        if kind in _SETS:
            schema["uniqueItems"] = True
        if not inner or inner[0] is Any:
            return Reading(schema, build)
        item = self.read(inner[0])
        if kind in _SETS and (get_origin(inner[0]) or inner[0]) in (*_MAPPINGS, list, set):
            raise AnnotationFault(f"a set cannot hold {inner[0]!r}; write list")
        schema["items"] = item.schema
        if item.convert is None:
            return Reading(schema, build)
        convert = item.convert
        return Reading(schema, lambda items: (build or list)([convert(each) for each in items]))

    def _tuple(self, inner: Sequence[Any]) -> Reading:
        items = [self.read(part) for part in inner]
        schema: dict[str, Any] = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        if items:
            schema["prefixItems"] = [item.schema for item in items]
        return Reading(schema, lambda given: tuple(map(_converted, items, given)))

    def _mapping(self, inner: Sequence[Any]) -> Reading:
        schema: dict[str, Any] = {"type": "object"}
        if not inner:
            return Reading(schema)
        key, value = self.read(inner[0]), self.read(inner[1])
        if key.schema.get("type") != "string":
            raise AnnotationFault(f"the keys of an object are strings, not {inner[0]!r}")
        if key.schema != {"type": "string"}:
            schema["propertyNames"] = key.schema
        if value.schema:
            schema["additionalProperties"] = value.schema
        if key.convert is None and value.convert is None:
            return Reading(schema)
        return Reading(
            schema,
            lambda given: {_converted(key, name): _converted(value, part) for name, part in given.items()},
        )

    def _named(self, kind: Any, read: Callable[[Any], Reading]) -> Reading:
        """The reading of what has a name, and so may contain itself."""
        if kind in self._finished:
            return self._finished[kind]
        if kind in self._open:
            if kind not in self._recursive:
                self._recursive[kind] = self._free_name(kind.__name__)
            return Reading(self._reference(kind), lambda value: _converted(self._finished[kind], value))
        self._open.append(kind)
        try:
            reading = read(kind)
        finally:
            self._open.remove(kind)
        if kind not in self._recursive:
            return reading
        self.definitions[self._recursive[kind]] = reading.schema
        self._finished[kind] = Reading(self._reference(kind), reading.convert)
        return self._finished[kind]

    def _reference(self, kind: Any) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self._recursive[kind]}"}

    def _free_name(self, name: str) -> str:
        taken = {*self.definitions, *self._recursive.values()}
        names = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
        return next(each for each in names if each not in taken)

    def _typed_dict(self, kind: Any) -> Reading:
        fields = {}
        for name, hint in hints_of(kind).items():
            required = name in kind.__required_keys__
            while (origin := get_origin(hint)) is not None and getattr(origin, "_name", "") in _WRAPPERS:
                # What __required_keys__ says is wrong where annotations are kept as text.
                required = {"Required": True, "NotRequired": False}.get(origin._name, required)
                hint = get_args(hint)[0]
            fields[name] = _Field(hint, required)
        return self._object(kind, fields, dict)

    def _record(self, kind: Any) -> Reading:
        """A dataclass or named tuple, by the arguments of its constructor."""
        hints, declared = hints_of(kind), getattr(kind, "__dataclass_fields__", {})
        fields = {}
        for name, parameter in inspect.signature(kind).parameters.items():
            hint = hints.get(name, parameter.annotation)
            hint = hint.type if isinstance(hint, dataclasses.InitVar) else hint
            if hint is _MISSING:
                raise AnnotationFault(f"{kind.__name__}.{name} has no annotation")
            default, text = parameter.default, ""
            if (field := declared.get(name)) is not None:
                if field.default_factory is not dataclasses.MISSING:
                    default = field.default_factory()
                text = field.metadata.get("description", "")
            fields[name] = _Field(hint, parameter.default is _MISSING, default, text)
        return self._object(kind, fields, kind)

    def _object(self, kind: Any, fields: Mapping[str, _Field], build: Callable[..., Any]) -> Reading:
        doc = kind.__dict__.get("__doc__") or ""
        written = not doc.startswith((f"{kind.__name__}(", "dict("))  # not by Python itself
        head, told = read_docstring(inspect.cleandoc(doc) if written else "")
        schema: dict[str, Any] = {"type": "object"} | ({"description": head} if head else {})
        properties: dict[str, Any] = {}
        converts: dict[str, Convert] = {}
        for name, field in fields.items():
            try:
                reading = self.read(field.annotation)
            except AnnotationFault as fault:
                raise AnnotationFault(f"{kind.__name__}.{name}: {fault}") from None
            if field.default is not _MISSING:
                reading = with_default(reading, field.default)
            text = field.description or told.get(name, "")
            if text and not ("description" in reading.schema and get_origin(field.annotation) is Annotated):
                reading.schema["description"] = text
            properties[name] = reading.schema
            if reading.convert is not None:
                converts[name] = reading.convert
        schema["properties"] = properties
        if required := [name for name, field in fields.items() if field.required]:
            schema["required"] = required
        schema["additionalProperties"] = False
        if build is dict and not converts:
            return Reading(schema)
        return Reading(schema, functools.partial(_built, build, converts))

    def _model(self, model: Any) -> Reading:
        """A pydantic model, which knows its own schema."""
        prefix = ""
        if any(name.startswith(model.__name__) for name in self.definitions):
            prefix = f"{self._free_name(model.__name__)}."
        schema = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
        for _, part in list(subschemas(schema)):
            if isinstance(part.get("title"), str) and isinstance(part, dict):
                del part["title"]  # the name of the field again
        for name, part in schema.pop("$defs", {}).items():
            self.definitions[prefix + name] = part
        return Reading(schema, lambda value: _validated(model, value))


_WRAPPERS = ("Required", "NotRequired", "ReadOnly")


def with_default(reading: Reading, default: Any) -> Reading:
    """The reading of an argument with a default; ``x: str = None`` also accepts null, as its author meant.

    A default that JSON cannot express is left to the function.
    """
    try:
        value = as_json(default)
    except TypeError:
        return Reading(dict(reading.schema), reading.convert)
    schema = dict(reading.schema) if value is not None else nullable(reading.schema)
    convert = reading.convert if value is not None else _unless_none(reading.convert)
    return Reading({**schema, "default": value}, convert)


def hints_of(owner: Any, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Annotations as objects.

    Raises:
        AnnotationFault: one is text that names nothing.
    """
    try:
        return typing.get_type_hints(owner, dict(scope) if scope is not None else None, include_extras=True)
    except NameError as unknown:
        raise AnnotationFault(
            f"an annotation cannot be read: {unknown}; names in it must stand at the top of their module"
        ) from None


def _hashable(annotation: Any) -> bool:
    return getattr(annotation, "__hash__", None) is not None


def _no_schema(annotation: Any) -> str:
    return f"no JSON Schema for {annotation!r}; declare parameters yourself"


def _converted(reading: Reading, value: Any) -> Any:
    return value if reading.convert is None else reading.convert(value)


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _built(build: Callable[..., Any], converts: Mapping[str, Convert], given: Mapping[str, Any]) -> Any:
    if not isinstance(given, Mapping):
        raise ValueError("must be an object")
    return build(**{name: converts[name](part) if name in converts else part for name, part in given.items()})


def _validated(model: Any, value: Any) -> Any:
    try:
        # As JSON, because a strict model takes text for a date from nowhere else.
        return model.model_validate_json(json.dumps(value))
    except ValueError as misfit:
        if not hasattr(misfit, "errors"):
            raise
        faults = [(".".join(map(str, each["loc"])), each["msg"]) for each in misfit.errors()]
        raise ValueError("; ".join(f"{at}: {text}" if at else text for at, text in faults)) from None


def _of_values(values: Sequence[Any]) -> Reading:
    """One of several values, which may be members of an ``Enum``."""
    meant = {_distinct(value): value for value in values if isinstance(value, enum.Enum)}
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    for value in plain:
        if value is not None and not isinstance(value, str | int | float):
            raise AnnotationFault(f"{value!r} is not a value that JSON knows")
    kinds = {type(value) for value in plain if value is not None} & {str, int, float, bool}
    schema: dict[str, Any] = {"enum": plain}
    if len(kinds) == 1 and None not in plain and all(type(value) in kinds for value in plain):
        schema = {**_PLAIN[kinds.pop()].schema, **schema}
    if not meant:
        return Reading(schema)
    return Reading(schema, lambda value: meant.get(_distinct(value), value))


def _distinct(value: Any) -> tuple[bool, Any]:
    """A key that tells True from 1, as JSON does."""
    value = value.value if isinstance(value, enum.Enum) else value
    return isinstance(value, bool), value


def _limits(extra: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a marker of annotated_types or pydantic says in JSON Schema."""
    found = {}
    for attribute, keyword in _LIMITS.items():
        if isinstance(value := getattr(extra, attribute, None), int | float | str):
            found[keyword] = value
    for end in ("min", "max"):
        if isinstance(value := getattr(extra, f"{end}_length", None), int) and (value or end == "max"):
            noun = next((_LENGTHS[kind] for kind in as_list(schema.get("type", [])) if kind in _LENGTHS), "")
            if not noun:
                raise AnnotationFault(f"{extra!r} limits the length of what has none")
            found[f"{end}{noun}"] = value
    return found
