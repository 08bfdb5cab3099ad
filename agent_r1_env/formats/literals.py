"""A reader of literals that are nearly JSON: what models write when they mean JSON or Python.

It evaluates nothing: it knows strings, numbers, words, lists, tuples and dictionaries. Values that are still
open stand in a list and not on the call stack, and what one reader reads is bounded: so are time and memory.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

from agent_r1_env.formats.defusing import defuse

_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(
    r"[+-]?(?:0[xXoObB][0-9a-fA-F_]+|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)"
)
_CUT = re.compile(r"(?:[-+.]|[eExXoObB][-+]?)?\Z")  # the end, or a piece of a number before it
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9_]*[1-9][0-9_]*")
_WORD = re.compile(r"[^\W\d]\w*")
_QUOTE = re.compile(r"""([A-Za-z]?)('''|\"""|'|")""")
_BODY = {
    "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL),
    '"': re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL),
    # Spelled out, for until Python 3.11.5 a look ahead within a possessive repeat goes wrong.
    "'''": re.compile(r"(?:[^'\\]|\\.|'[^'\\]|'\\.|''[^'\\]|''\\.)*+", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]|\\.|"[^"\\]|"\\.|""[^"\\]|""\\.)*+', re.DOTALL),
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{1,3}|\r\n|.)", re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f]")
_STOP = {
    False: re.compile(r'["()\[\]{}]'),
    True: re.compile(r"""'''|\"""|["'()\[\]{}]"""),
}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_NUMERIC = frozenset("+-.0123456789")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BOTH = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
_JSON_ESCAPES = {**_BOTH, "/": "/"}
_PYTHON_ESCAPES = {**_BOTH, "'": "'", "a": "\a", "v": "\v", "\n": "", "\r\n": ""}
_JSON_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}

MOST_VALUES = 20_000
"""Values, keys and escapes that one reader reads: what bounds its time."""
DEEPEST = 200
_LONGEST_NUMBER = 400


def read_json_like(text: str, start: int) -> tuple[Any, int, tuple[str, ...]]:
    """The value that was meant as JSON at ``start``, the index just after it, and how it differs from JSON.

    Differences are "single_quotes", "python_words", "trailing_comma", "raw_newline", "control_character",
    "escape" and "number".

    Raises:
        ValueError: nothing stands there that could be meant as JSON, or it is too deep or too large.
    """
    return Reader(text, python=False).read(start)


def read_python(text: str, start: int) -> tuple[Any, int, tuple[str, ...]]:
    """The Python literal at ``start``, the index just after it, and how it differs from Python.

    Tuples become lists, since JSON has no tuples; strings that stand side by side are not joined. Differences
    are "json_words", "raw_newline" (in a string that must not hold one), "escape" (a broken one, kept as
    text) and "leading_zero".

    Raises:
        ValueError: no literal stands there, or it is too deep or too large.
    """
    return Reader(text, python=True).read(start)


class CutOff(ValueError):
    """The text ends before the value does."""


class Reader:
    """Reads values from places of one text; ``MOST_VALUES`` holds for all of them together.

    Attributes:
        position: where reading goes on.
        differences: how what was read so far differs from the language; ``read`` starts it anew.
    """

    def __init__(self, text: str, *, python: bool) -> None:
        self.text, self.python = text, python
        self.position = 0
        self.differences: set[str] = set()
        self._left = MOST_VALUES

    def read(self, start: int) -> tuple[Any, int, tuple[str, ...]]:
        """The value at ``start``, the index just after it, and how it differs from the language.

        Raises:
            ValueError: no value stands there, or it is too deep or too large.
        """
        self.position = start
        self.differences = set()
        return self.value(), self.position, tuple(sorted(self.differences))

    def value(self) -> Any:
        """The value that comes next."""
        open_values: list[_Open] = []
        while True:
            self.spend(1)
            opening = self.peek()
            if opening in _CLOSING and (opening != "(" or self.python):
                if len(open_values) >= DEEPEST:
                    raise ValueError("it is nested too deeply")
                self.position += 1
                open_values.append(_Open(opening))
                if self._next_item(open_values[-1], first=True):
                    continue
                value = open_values.pop().value
            else:
                value = self._scalar(opening)
            while open_values:
                innermost = open_values[-1]
                innermost.add(value)
                if self._next_item(innermost, first=False):
                    break
                value = open_values.pop().value
            else:
                return value

    def peek(self) -> str:
        """The next character that is no white space, or "" at the end."""
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.text[self.position : self.position + 1]

    def spend(self, values: int) -> None:
        """Take from what may still be read."""
        self._left -= values
        if self._left < 0:
            raise ValueError(f"it holds more than {MOST_VALUES} values and escapes")

    def fault(self, reason: str) -> ValueError:
        """What to raise where something else stands than was expected."""
        if _CUT.match(self.text, self.position):
            return CutOff(f"{reason}, but the text ends")
        return ValueError(f"{reason} before {defuse(self.text[self.position : self.position + 10])!r}")

    def after_bracket(self, start: int) -> int | None:
        """The index just after the bracket that closes the one at ``start``, or None if nothing does.

        For text that is no value: it counts brackets of all kinds, and passes over strings.
        """
        depth, at = 0, start
        while match := _STOP[self.python].search(self.text, at):
            self._left -= 1
            at = match.end()
            if match.group() in _CLOSING:
                depth += 1
            elif match.group() in ")]}":
                depth -= 1
                if not depth:
                    return at
            else:
                at = self._after_string(match)
            if self._left < 0 or at < 0:
                break
        return None

    def _after_string(self, opening: re.Match[str]) -> int:
        """The index just after the string whose quotes open there, or -1."""
        quote = opening.group()
        body = _BODY[quote].match(self.text, opening.end())
        end = body.end() if body else opening.end()
        return end + len(quote) if self.text.startswith(quote, end) else -1

    def _next_item(self, innermost: _Open, *, first: bool) -> bool:
        """Whether another item comes: passes its comma and its key, or else the closing bracket."""
        closing = _CLOSING[innermost.opening]
        found = self.peek()
        if found == "," and not first:
            innermost.commas = True
            self.position += 1
            found = self.peek()
            if found == closing and not self.python:
                self.differences.add("trailing_comma")
        elif found != closing and not first:
            raise self.fault(f"a comma or {closing} was expected")
        if found == closing:
            self.position += 1
            return False
        if closing == "}":
            innermost.key = self._key()
        return True

    def _key(self) -> str:
        if not (quote := _QUOTE.match(self.text, self.position)):
            raise self.fault("a key in quotes was expected")
        self.spend(1)
        key = self._string(quote)
        if self.peek() != ":":
            raise self.fault("a colon was expected")
        self.position += 1
        return key

    def _scalar(self, opening: str) -> Any:
        if opening in _NUMERIC and (number := _NUMBER.match(self.text, self.position)):
            return self._number(number)
        if quote := _QUOTE.match(self.text, self.position):
            return self._string(quote)
        if word := _WORD.match(self.text, self.position):
            return self._word(word)
        raise self.fault("a value was expected")

    def _string(self, opening: re.Match[str]) -> str:
        prefix, quote = opening[1].lower(), opening[2]
        if not self.python:
            quote = quote[0]
        if prefix and (not self.python or prefix not in "ruf"):
            raise self.fault("a literal value was expected")
        start = opening.start(2) + len(quote)
        body = _BODY[quote].match(self.text, start)
        end = body.end() if body else start
        if not self.text.startswith(quote, end):
            self.position = len(self.text)
            raise self.fault(f"a closing {quote} was expected")
        text = self.text[start:end]
        if prefix == "f" and ("{" in text or "}" in text):
            raise self.fault("a literal value was expected")
        self.position = end + len(quote)
        self._note_string(quote, text)
        return text if prefix == "r" or "\\" not in text else self._unescaped(text, quote)

    def _note_string(self, quote: str, text: str) -> None:
        if not self.python and quote == "'":
            self.differences.add("single_quotes")
        if len(quote) == 1 and ("\n" in text or "\r" in text):
            self.differences.add("raw_newline")
        elif not self.python and _CONTROL.search(text):
            self.differences.add("control_character")

    def _unescaped(self, body: str, quote: str) -> str:
        self.spend(body.count("\\"))
        own = _PYTHON_ESCAPES if self.python else _JSON_ESCAPES

        def plain(match: re.Match[str]) -> str:
            escape = match[1]
            if (simple := own.get(escape)) is not None:
                return simple
            if escape == "'" == quote:
                return quote
            code = _code(escape, octal=self.python)
            if code is None and escape[0] in "uUxN" or not self.python and escape[0] != "u":
                self.differences.add("escape")
            if escape == "'":
                return escape
            return match.group() if code is None else chr(code)

        text = _ESCAPE.sub(plain, body)
        if _SURROGATE.search(text):  # halves of one character, each escaped by itself, as JSON does
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return text

    def _number(self, match: re.Match[str]) -> int | float:
        digits = match.group()
        try:
            number = _as_number(digits.lstrip("+-"))
        except ValueError:
            raise ValueError(f"{digits[:20]} is no number that can be read") from None
        if not _JSON_NUMBER.fullmatch(digits):
            if not self.python:
                self.differences.add("number")
            elif _LEADING_ZERO.fullmatch(digits):
                self.differences.add("leading_zero")
        self.position = match.end()
        return -number if digits[0] == "-" else number

    def _word(self, match: re.Match[str]) -> Any:
        word = match.group()
        own, foreign = (_PYTHON_WORDS, _JSON_WORDS) if self.python else (_JSON_WORDS, _PYTHON_WORDS)
        if word in foreign:
            self.differences.add("json_words" if self.python else "python_words")
        elif word not in own:
            if match.end() == len(self.text):
                self.position = match.end()
            raise self.fault("a literal value was expected")
        self.position = match.end()
        return own[word] if word in own else foreign[word]


class _Open:
    """A list, tuple or dictionary that is not at its end yet."""

    __slots__ = ("commas", "items", "key", "opening")

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.items: Any = {} if opening == "{" else []
        self.key = ""
        self.commas = False

    def add(self, value: Any) -> None:
        if self.opening == "{":
            self.items[self.key] = value
        else:
            self.items.append(value)

    @property
    def value(self) -> Any:
        """What it is as a whole; brackets around one value without a comma are no tuple."""
        alone = self.opening == "(" and len(self.items) == 1 and not self.commas
        return self.items[0] if alone else self.items


def _code(escape: str, *, octal: bool) -> int | None:
    """The character that digits behind a backslash stand for; None if there are none."""
    if octal and escape[0] in "01234567":
        return int(escape, 8)
    code = int(escape[1:], 16) if escape[0] in "uUx" and len(escape) > 1 else None
    return None if code is None or code > sys.maxunicode else code


def _as_number(digits: str) -> int | float:
    """The number that Python reads there; a whole one may begin with zeros."""
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError("too many digits")
    if digits[1:2].isalpha() and digits[1] not in "eE":
        return int(digits, 0)
    if digits.replace("_", "").isdigit():
        return int(digits)
    number = float(digits)
    if math.isinf(number):
        raise ValueError("too large")
    return number
