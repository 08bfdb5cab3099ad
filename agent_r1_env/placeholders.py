"""Text with names in braces, as requests and commands in a tool's file have it.

``{query}`` stands for an argument, ``{filters.lang}`` for a part of one, ``{secrets.api_key}`` for a secret
and ``{config.server}`` for a value under ``config``; ``{{`` and ``}}`` for braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_r1_env.entry import Entry
from agent_r1_env.errors import hint
from agent_r1_env.output import veiled as veiled
from agent_r1_env.toollimits import secrets_of

NAME = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}")
LEFT_OUT: Any = object()
"""Stands for a value that a call doesn't give."""
Keys = tuple[str | int, ...]


def names(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Every name in the texts within ``value``, with the keys that lead to the text."""
    if isinstance(value, str):
        yield from ((keys, match[1]) for match in NAME.finditer(value) if match[1])
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from names(part, (*keys, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from names(part, (*keys, index))


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """``value`` with the names in its texts replaced.

    A text that is one name alone becomes the value, of whatever type; where there is none, it is left out of
    the mapping or list that holds it (or ``LEFT_OUT`` is returned). Inside of longer text it becomes nothing.
    """
    if isinstance(value, Mapping):
        parts = ((name, filled(part, values)) for name, part in value.items())
        return {name: part for name, part in parts if part is not LEFT_OUT}
    if isinstance(value, list):
        return [part for part in (filled(each, values) for each in value) if part is not LEFT_OUT]
    if not isinstance(value, str):
        return value
    if (alone := NAME.fullmatch(value)) and alone[1]:
        return look_up(alone[1], values)
    return NAME.sub(lambda match: word(look_up(match[1], values)) if match[1] else match[0][0], value)


def look_up(name: str, values: Mapping[str, Any]) -> Any:
    """What the dotted ``name`` leads to in ``values``."""
    found: Any = values
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return LEFT_OUT
        found = found[step]
    return found


def word(value: Any) -> str:
    """A value inside of text: text as it is, nothing for what is left out or null, else JSON."""
    if value is LEFT_OUT or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check(entry: Entry, key: str, arguments: set[str]) -> None:
    """Check the names in braces under ``key``, and that each value under ``config`` is asked for.

    Raises:
        CatalogError: a name that is neither an argument, a secret nor under ``config``; a value under
            ``config`` that no name asks for; or an argument that hides what these stand for.
    """
    if entry.get("instance") != "environment":
        raise entry.error(f"key 'instance' is for classes, not for {key}", "instance", of_key=True)
    for name in sorted(arguments & {"secrets", "config"}):
        raise entry.error(f"no argument can be called {name!r} here", "parameters", "properties", name)
    secrets = {f"secrets.{name}" for name in secrets_of(entry)}
    config = {f"config.{name}" for name in entry.get("config")}
    asked = set()
    for keys, name in names(entry.get(key), (key,)):
        first, value = name.partition(".")[0], ".".join(name.split(".")[:2])
        asked.add(value)
        if first not in arguments and name not in secrets and value not in config:
            known = arguments | secrets | config
            raise entry.error(f"{{{name}}} stands for nothing{hint(name, known)}", *keys)
    for name in sorted(config - asked):
        raise entry.error(
            f"{{{name}}} stands nowhere in {key}", "config", name.partition(".")[2], of_key=True
        )
