"""Whatever a tool returns, as text that is safe to show: bounded, valid Unicode, no control characters."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Set
from typing import Any

# Control characters other than tab and line ends, and surrogates, which no encoding can carry.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def safe(text: str) -> str:
    """``text`` with each control character and lone surrogate replaced by U+FFFD."""
    return _UNSAFE.sub(_REPLACEMENT, text)


def shortened(text: str, max_chars: int) -> tuple[str, int]:
    """The safe beginning of ``text``, with a notice if it is cut, and how many characters were cut."""
    cut = max(0, len(text) - max_chars)
    if not cut:
        return safe(text), 0
    return f"{safe(text[:max_chars])}\n[... {cut} more characters cut]", cut


def as_text(value: Any) -> str:
    """A result as text: strings as they are, None as "", data as JSON, other objects as ``str`` has them."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return ""
    if not isinstance(value, dict | list | tuple | bool | int | float):
        value = _as_json(value)
        if isinstance(value, str):
            return value
    try:
        return json.dumps(value, ensure_ascii=False, default=_as_json)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, a list within itself
        return str(value)


def _of_bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"[{len(data)} bytes of binary data]"


def _as_json(value: Any) -> Any:
    """What JSON doesn't know, by what it is closest to."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_bytes(bytes(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Set):
        return sorted(value, key=str)
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, tensors
        return value.tolist()
    return str(value)
