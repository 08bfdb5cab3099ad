"""Whatever a tool returns, as text that is safe to show: bounded, valid Unicode, no control characters."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Set
from typing import Any, NamedTuple

# Control characters other than tab and line ends, and surrogates, which no encoding can carry.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSAFE_BYTES = bytes((*range(9), 11, 12, *range(14, 32), 127))
_LONGEST_TOKEN = 128
_SHORTEST_SECRET = 4
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def safe(text: str) -> str:
    """``text`` with each control character and lone surrogate replaced by U+FFFD."""
    # To take bytes out and count is five times faster than the search, and nothing is to be replaced in most.
    if text.isascii() and len(text.encode().translate(None, _UNSAFE_BYTES)) == len(text):
        return text
    return _UNSAFE.sub(_REPLACEMENT, text)


def veiled(text: str, secrets: Iterable[str]) -> str:
    """``text`` with stars in place of each secret of at least 4 characters; shorter ones are too common."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


class Cut(NamedTuple):
    """A text made safe, and how many characters were left out of it."""

    text: str
    characters: int = 0


def shortened(text: str, max_chars: int, max_tokens: int | None = None, tokenizer: Any = None) -> Cut:
    """The safe beginning of ``text``, with a notice of how much is missing if it is cut.

    Args:
        max_tokens: of the beginning, counted by ``tokenizer.encode``; None: count no tokens.
    """
    kept = safe(text[:max_chars])
    if max_tokens is not None:
        kept = _within(kept, max_tokens, tokenizer)
    cut = len(text) - len(kept)
    return Cut(f"{kept}\n[... {cut} more characters cut]", cut) if cut else Cut(kept)


def _within(text: str, max_tokens: int, tokenizer: Any) -> str:
    """The longest beginning of ``text`` of at most that many tokens."""
    # No token is longer than this, so that a flood is not tokenised whole.
    text = text[: max_tokens * _LONGEST_TOKEN]
    if len(tokenizer.encode(text, add_special_tokens=False)) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer.encode(text[:middle], add_special_tokens=False)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


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
