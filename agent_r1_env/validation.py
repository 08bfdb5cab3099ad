"""Compiled validators of JSON Schema 2020-12 that check ``format`` and never use the network."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker


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
