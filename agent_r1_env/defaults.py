"""Defaults of arguments as JSON says them, and schemas that let null through beside everything else."""

from __future__ import annotations

import base64
import dataclasses
import enum
import inspect
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID


def as_json(value: Any) -> Any:
    """A default as JSON says it.

    Raises:
        TypeError: it has no such form.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        return as_json(value.value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = inspect.signature(type(value)).parameters
        return {name: as_json(getattr(value, name)) for name in given if hasattr(value, name)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, dict):
        return {_key(name): as_json(part) for name, part in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(as_json, value), key=json.dumps)
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    raise TypeError(f"{value!r} is no JSON")


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema``, which also lets null through."""
    kinds = as_list(schema.get("type", []))
    if not schema or "null" in kinds or {"type": "null"} in schema.get("anyOf", ()):
        return dict(schema)
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        values = schema["enum"] if None in schema["enum"] else [*schema["enum"], None]
        return {**schema, "enum": values} | ({"type": [*kinds, "null"]} if kinds else {})
    if kinds:
        return {**schema, "type": [*kinds, "null"]}
    return {"anyOf": [dict(schema), {"type": "null"}]}


def as_list(kinds: str | list[str]) -> list[str]:
    """The types that the keyword ``type`` names."""
    return [kinds] if isinstance(kinds, str) else kinds


def _key(name: Any) -> str:
    if not isinstance(key := as_json(name), str):
        raise TypeError(f"{name!r} is no key of an object")
    return key
