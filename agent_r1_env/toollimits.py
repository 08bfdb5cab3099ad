"""How a tool is run, as its file says: limits, reward and secrets, as the values that ``Tool`` takes."""

from __future__ import annotations

import math
import os
import re
from typing import Any

from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError
from agent_r1_env.limits import Caching, Rate, Retries
from agent_r1_env.tool import Reward

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_UNITS |= {"d": 86400.0, "day": 86400.0}
_RATE = re.compile(r"([0-9]+) */ *(?:([0-9]+(?:\.[0-9]+)?) *)?([a-z]+)")


def limits_of(entry: Entry) -> dict[str, Any]:
    """Arguments of ``Tool``: all of its limits, and what its calls are worth.

    Raises:
        CatalogError: a value that the schema cannot judge is wrong.
    """
    limits = {}
    for key, read in _READERS.items():
        try:
            limits[key] = read(entry, entry.data.get(key))
        except CatalogError:
            raise
        except ValueError as fault:
            raise entry.error(str(fault), key) from None
    return limits


def secrets_of(entry: Entry) -> dict[str, str]:
    """The names of environment variables, by the argument that their values fill."""
    said = entry.get("secrets")
    return {name.lower(): name for name in said} if isinstance(said, list) else dict(said)


def filled_secrets(entry: Entry) -> dict[str, str]:
    """The values of the environment variables that the file names.

    Raises:
        CatalogError: one of them is not set.
    """
    values = {}
    for argument, variable in secrets_of(entry).items():
        if variable not in os.environ:
            raise entry.error(f"the environment variable {variable} is not set; export it first", "secrets")
        values[argument] = os.environ[variable]
    return values


def _retries(entry: Entry, said: Any) -> Retries:
    return Retries(**said) if isinstance(said, dict) else Retries(int(said))


def _rate(entry: Entry, said: Any) -> Rate | None:
    if said is None:
        return None
    if isinstance(said, dict):
        return Rate(**said)
    match = _RATE.fullmatch(said)
    unit = None if match is None else _UNITS.get(match[3], _UNITS.get(match[3].removesuffix("s")))
    if match is None or unit is None:
        raise entry.error(f"{said!r} is no rate; write for example 10/s or 100/min", "rate_limit")
    return Rate(int(match[1]), float(match[2] or 1) * unit)


def _concurrency(entry: Entry, said: Any) -> int | None:
    return {"shared": None, "exclusive": 1}[said] if isinstance(said, str) else int(said)


def _cache(entry: Entry, said: Any) -> Caching | None:
    if isinstance(said, dict):
        return Caching(**said)
    return Caching() if said else None


def _reward(entry: Entry, said: Any) -> Reward | None:
    if not isinstance(said, str):
        return said if said is None or isinstance(said, dict) else float(said)
    rule: Reward = entry.target("reward")
    if not callable(rule):
        raise entry.error(f"{said} is {type(rule).__name__}, not a function of a ToolResult", "reward")
    return rule


def _inline(entry: Entry, said: Any) -> bool:
    if said and "run" not in entry.data:
        reason = "key 'inline' is for Python functions; what others do for a tool has to be waited for"
        raise entry.error(reason, "inline", of_key=True)
    return bool(said)


def _number(entry: Entry, said: Any) -> Any:
    if said is not None and not math.isfinite(said):
        raise ValueError(f"must be a finite number, but it is {said!r}")
    return said


_READERS = {
    "timeout": _number,
    "max_result_chars": _number,
    "max_result_tokens": _number,
    "retries": _retries,
    "rate_limit": _rate,
    "concurrency": _concurrency,
    "cache": _cache,
    "reward": _reward,
    "inline": _inline,
}
LIMITS = tuple(_READERS)
"""The keys of a tool's file, and the attributes of ``Tool``, that say how it is run."""
WAITING = ("timeout", "retries", "rate_limit", "concurrency", "cache")
"""Those of a tool that is waited for; an inline one has none of them."""
