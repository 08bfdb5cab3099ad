"""Values as the Gemma families write them: JSON with bare keys, and texts between marks in place of quotes.

Between the marks everything is text and nothing is escaped, so a text that holds the mark cannot be written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.literals import DEEPEST, MOST_VALUES, CutOff, read_json_like

_KEY = re.compile(r"[^\s:,{}\[\]<>\"']+")
_WORD = re.compile(r"[^\s:,{}\[\]<>\"']{1,400}")
_NOT_BLANK = re.compile(r"\S|\Z")
_BARE_KEY = re.compile(r"[\w$.-]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_JSON_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_WORDS = {**_JSON_WORDS, "True": True, "False": False, "None": None}


def written(value: Any, quote: str, *, sort: bool = False) -> str:
    """A JSON value with its texts between ``quote`` and ``quote``; that mark in a text is broken by a space.

    Args:
        sort: put the keys of objects in alphabetical order.
    """
    if isinstance(value, str):
        return f"{quote}{value.replace(quote, f'{quote[0]} {quote[1:]}')}{quote}"
    if isinstance(value, Mapping):
        keys = sorted(value) if sort else list(value)
        items = (f"{_key(key, quote)}:{written(value[key], quote, sort=sort)}" for key in keys)
        return f"{{{','.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(written(item, quote, sort=sort) for item in value)}]"
    return json.dumps(value)


def _key(key: str, quote: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else written(key, quote)


def is_cut_mark(text: str, at: int, mark: str) -> bool:
    """Whether the text ends at ``at``, or in the middle of a mark that begins there."""
    return len(text) - at < len(mark) and mark.startswith(text[at:])


class Reader:
    """Reads what stands between the braces of calls; ``MOST_VALUES`` holds for all of them together."""

    def __init__(self, text: str, repair: bool) -> None:
        self.text, self.repair = text, repair
        self.position = 0
        self.quote = ""
        self._left = MOST_VALUES
        self._repairs: set[str] = set()

    def arguments(self, start: int, quote: str) -> tuple[dict[str, Any], int, set[str]]:
        """The object at ``start``, the index just after it, and the repairs that reading it took.

        Raises:
            ValueError: none can be read there.
        """
        self.position, self.quote, self._repairs = start, quote, set()
        try:
            return self._object(0), self.position, self._repairs
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def _value(self, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        opening = self._peek()
        if opening == "{":
            return self._object(depth)
        if opening == "[":
            self.position += 1
            items: list[Any] = []
            while self._goes_on("]", not items):
                items.append(self._value(depth + 1))
            return items
        if (text := self._text(opening)) is not None:
            return text
        return self._word()

    def _object(self, depth: int) -> dict[str, Any]:
        self.position += 1
        items: dict[str, Any] = {}
        first = True
        while self._goes_on("}", first):
            first = False
            key = self._key()
            if self._peek() != ":":
                raise self._fault("a colon was expected")
            self.position += 1
            items[key] = self._value(depth + 1)
        return items

    def _peek(self) -> str:
        """The next character that is no white space, or "" at the end."""
        found = self.text[self.position : self.position + 1]
        if found.isspace() and (match := _NOT_BLANK.search(self.text, self.position)):
            self.position = match.start()
            return match.group()
        return found

    def _goes_on(self, closing: str, first: bool) -> bool:
        """Whether another item comes; passes commas and the closing bracket."""
        found = self._peek()
        if found == "," and not first:
            self.position += 1
            found = self._peek()
            if found == closing:
                if not self.repair:
                    raise self._fault("another item was expected")
                self._repairs.add("trailing_comma")
        elif found != closing and not first:
            raise self._fault(f"a comma or {closing} was expected")
        if found == closing:
            self.position += 1
            return False
        return True

    def _key(self) -> str:
        if (text := self._text(self._peek())) is not None:
            return text
        key = _KEY.match(self.text, self.position)
        if key is None:
            raise self._fault("a key was expected")
        self.position = key.end()
        return key.group()

    def _text(self, opening: str) -> str | None:
        """The text between marks that comes next; with ``repair`` between quotes too."""
        if opening == "<" and self.text.startswith(self.quote, self.position):
            start = self.position + len(self.quote)
            end = self.text.find(self.quote, start)
            if end < 0:
                self.position = len(self.text)
                raise self._fault(f"a closing {self.quote} was expected")
            self.position = end + len(self.quote)
            return self.text[start:end]
        if opening and opening in "\"'" and self.repair:
            text, self.position, repairs = read_json_like(self.text, self.position)
            self._repairs |= {*repairs, "quotes"}
            return str(text)
        return None

    def _word(self) -> Any:
        """A number, true, false or null."""
        match = _WORD.match(self.text, self.position)
        word = match.group() if match else ""
        if word in _WORDS and (word in _JSON_WORDS or self.repair):
            self.position += len(word)
            if word not in _JSON_WORDS:
                self._repairs.add("python_words")
            return _WORDS[word]
        if number := _NUMBER.fullmatch(word):
            value = float(word) if number["fraction"] else int(word)
            if isinstance(value, int) or math.isfinite(value):
                self.position += len(word)
                return value
        if self.position + len(word) == len(self.text):
            self.position = len(self.text)
        raise self._fault(f"a value was expected (a text stands between {self.quote} and {self.quote})")

    def _fault(self, reason: str) -> ValueError:
        if is_cut_mark(self.text, self.position, self.quote):
            return CutOff(f"{reason}, but the text ends")
        return ValueError(f"{reason} before {defuse(self.text[self.position : self.position + 10])!r}")
