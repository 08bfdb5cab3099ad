"""JSON Schema 2020-12 at work: compiled validators, checks of ``format``, and defaults."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from agent_r1_env.schematree import resolve

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker


@functools.lru_cache(maxsize=512)
def validator(schema: str) -> Draft202012Validator:
    """The compiled validator of a schema given as JSON text; shared, and never on the network."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An explicit registry: the default one would download what an absolute $ref names.
    return Draft202012Validator(json.loads(schema), registry=Registry(), format_checker=text_formats())


def with_defaults(value: Any, check: Draft202012Validator) -> Any:
    """``value``, changed in place, with the defaults of every part of the schema that applies to it.

    Followed are ``properties``, ``items``, ``$ref``, ``allOf``, and the first of ``anyOf`` or
    ``oneOf`` that fits.
    """
    return _completed(value, check.schema, check)


def _completed(value: Any, schema: Any, check: Draft202012Validator) -> Any:
    if not isinstance(schema, dict):
        return value
    for part in _other_parts(value, schema, check):
        value = _completed(value, part, check)
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                value[name] = _completed(value[name], part, check)
            elif isinstance(part, dict) and "default" in part:
                value[name] = _completed(copy.deepcopy(part["default"]), part, check)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        first = len(schema.get("prefixItems", ()))
        value[first:] = [_completed(item, schema["items"], check) for item in value[first:]]
    return value


def _other_parts(value: Any, schema: dict[str, Any], check: Draft202012Validator) -> Iterator[Any]:
    """The other parts of the schema that describe ``value``: a reference, all of, the one that fits."""
    if "$ref" in schema:
        yield resolve(schema["$ref"], cast(dict[str, Any], check.schema))
    yield from schema.get("allOf", ())
    for keyword in ("anyOf", "oneOf"):
        yield next(
            (part for part in schema.get(keyword, ()) if check.evolve(schema=part).is_valid(value)), None
        )


@functools.cache
def text_formats() -> FormatChecker:
    """Checks of ``format``. jsonschema passes over those whose optional package is absent; these don't."""
    from jsonschema import FormatChecker

    checker = FormatChecker(("email", "idn-email", "ipv4", "ipv6", "uuid", "regex"))
    for name, check in _TEXT_FORMATS.items():
        checker.checks(name, raises=ValueError)(functools.partial(_holds_for_text, check))
    return checker


def _holds_for_text(check: Callable[[str], bool], value: object) -> bool:
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
