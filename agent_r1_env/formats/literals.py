"""A reader of literals that are nearly JSON: what models write when they mean JSON or Python.

One recursive reader serves both. It evaluates nothing: it knows strings, numbers, words, lists, tuples and
dictionaries, each in linear time, and there is an end to how deep and how many.
"""

from __future__ import annotations

import re
from typing import Any

_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:[0-9][0-9_]*)?\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9][0-9_]*\.?(?:[eE][+-]?[0-9]+)?)"
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-7]{1,3})|(\r\n|.))", re.DOTALL
)
_CLOSING = {q: re.compile(rf"(?:\\.)++|({q})", re.DOTALL) for q in ("'", '"', "'''", '"""')}
_SURROGATE = re.compile("[\ud800-\udfff]")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/"}
_PYTHON_ONLY = {"a": "\a", "v": "\v", "\n": "", "\r\n": ""}
_JSON_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}

MOST_VALUES = 20_000
"""Values, keys included, that one reading reads: what bounds its time."""
DEEPEST = 200


def read_json_like(text: str, start: int) -> tuple[Any, int, tuple[str, ...]]:
    """The value that was meant as JSON at ``start``, the index just after it, and how it differs from JSON.

    Differences are "single_quotes", "python_words", "trailing_comma", "raw_newline" and "number".

    Raises:
        ValueError: nothing stands there that could be meant as JSON, or it is too deep or too large.
    """
    reader = _Reader(text, start, python=False)
    return reader.value(0), reader.position, tuple(sorted(reader.differences))


def read_python(text: str, start: int) -> tuple[Any, int, tuple[str, ...]]:
    """The Python literal at ``start``, the index just after it, and how it differs: "json_words".

    Tuples become lists, since JSON has no tuples. A string may hold raw line breaks.

    Raises:
        ValueError: no literal stands there, or it is too deep or too large.
    """
    reader = _Reader(text, start, python=True)
    return reader.value(0), reader.position, tuple(sorted(reader.differences))


class CutOff(ValueError):
    """The text ends before the value does."""


class _Reader:
    def __init__(self, text: str, start: int, *, python: bool) -> None:
        self.text, self.position, self.python = text, start, python
        self.differences: set[str] = set()
        self.left = MOST_VALUES

    def value(self, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it holds more than {MOST_VALUES} values")
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        opening = self.peek()
        if opening == "{":
            return self.dictionary(depth)
        if opening == "[" or (opening == "(" and self.python):
            return self.sequence(depth, "]" if opening == "[" else ")")
        if opening and opening in "\"'":
            return self.string()
        if match := _NUMBER.match(self.text, self.position):
            return self.number(match)
        if match := _WORD.match(self.text, self.position):
            return self.word(match)
        raise self.fault("a value was expected")

    def peek(self) -> str:
        """The next character that is no white space, or "" at the end."""
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.text[self.position : self.position + 1]

    def fault(self, reason: str) -> ValueError:
        if self.position >= len(self.text):
            return CutOff(f"{reason}, but the text ends")
        return ValueError(f"{reason} before {self.text[self.position : self.position + 10]!r}")

    def goes_on(self, closing: str, first: bool) -> bool:
        """Whether another item comes; passes commas and the closing bracket."""
        found = self.peek()
        if found == "," and not first:
            self.position += 1
            found = self.peek()
            if found == closing and not self.python:
                self.differences.add("trailing_comma")
        elif found != closing and not first:
            raise self.fault(f"a comma or {closing} was expected")
        if found == closing:
            self.position += 1
            return False
        return True

    def sequence(self, depth: int, closing: str) -> list[Any]:
        self.position += 1
        items: list[Any] = []
        while self.goes_on(closing, not items):
            items.append(self.value(depth + 1))
        return items

    def dictionary(self, depth: int) -> dict[str, Any]:
        self.position += 1
        items: dict[str, Any] = {}
        first = True
        while self.goes_on("}", first):
            first = False
            if (opening := self.peek()) not in ('"', "'") or not opening:
                raise self.fault("a key in quotes was expected")
            key = self.string()
            self.left -= 1
            if self.peek() != ":":
                raise self.fault("a colon was expected")
            self.position += 1
            items[key] = self.value(depth + 1)
        return items

    def string(self) -> str:
        """A string; ``position`` stands at its opening quote."""
        quote = self.text[self.position]
        if self.python and self.text.startswith(quote * 3, self.position):
            quote *= 3
        elif quote == "'" and not self.python:
            self.differences.add("single_quotes")
        start = self.position + len(quote)
        end = self.closing(quote, start)
        self.position = end + len(quote)
        body = self.text[start:end]
        if "\n" in body and not self.python:
            self.differences.add("raw_newline")
        return self.unescaped(body) if "\\" in body else body

    def closing(self, quote: str, start: int) -> int:
        """Where the string that begins at ``start`` ends: at the first quote that no backslash escapes."""
        end = self.text.find(quote, start)
        if end >= 0 and self.text.find("\\", start, end) >= 0:
            found = (match.start() for match in _CLOSING[quote].finditer(self.text, start) if match[1])
            end = next(found, -1)
        if end < 0:
            self.position = len(self.text)
            raise self.fault(f"a closing {quote} was expected")
        return end

    def unescaped(self, body: str) -> str:
        def plain(match: re.Match[str]) -> str:
            four, eight, two, octal, other = match.groups()
            if digits := four or eight or two:
                code = int(digits, 16)
                return chr(code) if code <= 0x10FFFF else match.group()
            if octal:
                return chr(int(octal, 8))
            if self.python:
                return _PYTHON_ONLY.get(other) or ("" if other in _PYTHON_ONLY else self.known(other, match))
            return self.known(other, match)

        text = _ESCAPE.sub(plain, body)
        if _SURROGATE.search(text):  # halves of one character, each escaped by itself, as JSON does
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def known(self, letter: str, match: re.Match[str]) -> str:
        if letter == "/" and self.python:
            return match.group()
        return _SIMPLE.get(letter, match.group())

    def number(self, match: re.Match[str]) -> int | float:
        digits = match.group()
        self.position = match.end()
        if not self.python and not re.fullmatch(
            r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", digits
        ):
            self.differences.add("number")
        try:
            if digits.lstrip("+-")[:2].lower() == "0x":
                return int(digits, 16)
            return int(digits) if digits.lstrip("+-").replace("_", "").isdigit() else float(digits)
        except ValueError:  # 1__0, or more digits than Python reads
            raise ValueError(f"{digits[:20]} is no number that can be read") from None

    def word(self, match: re.Match[str]) -> Any:
        word = match.group()
        own, foreign = (_PYTHON_WORDS, _JSON_WORDS) if self.python else (_JSON_WORDS, _PYTHON_WORDS)
        if word in foreign:
            self.differences.add("json_words" if self.python else "python_words")
        elif word not in own:
            raise self.fault("a literal value was expected")
        self.position = match.end()
        return own[word] if word in own else foreign[word]
