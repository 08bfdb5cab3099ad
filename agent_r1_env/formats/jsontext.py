"""JSON within a longer text: one value at a place, what is wrong with it, and whether it was cut."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from agent_r1_env.formats import literals

_CUT = re.compile(r"(?:n|nul?|tr?|tru|fa?|fals?|-|\.|[eE][+-]?|u[0-9a-fA-F]{0,3})?\s*\Z")
"""What stands where reading failed if a word, a number or an escape was cut, or all that was to come."""


_LONG, _CROWD = 2_000_000, 200_000
"""Characters, and commas in them, beyond which nothing is read: Python's garbage collector looks at a million
lists again and again, so that their time grows faster than their number."""


class Uncounted(str):
    """A text whose lines are not counted; each error of the JSON decoder counts all that stand before it."""

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0

    def rindex(self, *_: Any) -> int:
        return 0


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def read_json(text: str, start: int) -> tuple[Any, int]:
    """One JSON value beginning at ``start``, and the index just after it.

    Raises:
        ValueError: no JSON value stands there, or it is too deep or too large to be read.
    """
    if len(text) - start > _LONG and str.count(text, ",", start) > _CROWD:
        raise ValueError("too many values follow to be read")
    try:
        return _decoder.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_fault(error: ValueError, start: int) -> str:
    """What is wrong with a JSON text, in words that do not depend on what stood before it."""
    if isinstance(error, json.JSONDecodeError):
        fault = (error.msg[0].lower() + error.msg[1:]).removesuffix(" at")
        return f"{fault} at character {error.pos - start + 1}"
    return str(error)


def is_cut(error: ValueError, text: str) -> bool:
    """Whether a value could not be read because the text ends before it does."""
    if not isinstance(error, json.JSONDecodeError):
        return isinstance(error, literals.CutOff)
    return error.msg.startswith("Unterminated string") or _CUT.match(text, error.pos) is not None
