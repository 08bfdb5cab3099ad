"""Addresses of services: checked when a tool is loaded, filled in when it is called."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from agent_r1_env import placeholders
from agent_r1_env.entry import Entry
from agent_r1_env.errors import ToolError


def check_address(entry: Entry, *keys: str) -> None:
    """Check the address at ``keys``, as a call may make it.

    Raises:
        CatalogError: it is none.
    """
    url = _sample(entry, *keys)
    if not is_sound(url):
        raise entry.error(f"{shown(url)} is none; write http://... or https://...", *keys)


def is_sound(url: str) -> bool:
    """Whether something can be asked there."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def shown(url: str) -> str:
    """An address, sound or not, as a message may show it: not with a password."""
    return "the address" if "@" in url else repr(url)


def in_url(text: str, values: Mapping[str, Any]) -> str:
    """An address with the names in it replaced; what comes from a call cannot leave its place."""

    def put(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        value = placeholders.word(placeholders.look_up(match[1], values))
        if match[1].startswith("config."):
            return value
        if value in (".", ".."):
            raise ToolError(f"argument {match[1]} cannot be {value!r}")
        return quote(value, safe="", errors="replace")

    return placeholders.NAME.sub(put, text)


def _sample(entry: Entry, *keys: str) -> str:
    """The address as a call may make it."""
    config = {"config": entry.get("config")}
    sample = placeholders.NAME.sub(
        lambda match: match[0] if (match[1] or "").startswith("config.") else "x", entry.get(*keys)
    )
    return in_url(sample, config)


def without_user(url: str) -> tuple[str, str]:
    """An address without user and password, and the header that says them, or ""."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, password = user.partition(":")
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return parts._replace(netloc=host).geturl(), f"Basic {b64encode(pair).decode()}"
