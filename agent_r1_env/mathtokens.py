"""The parts of an arithmetic expression, each with its place."""

from __future__ import annotations

import re
from typing import NamedTuple

from agent_r1_env.errors import ToolError

_SAME = str.maketrans("×·⋅∙∗÷∕⁄−–—＋（）", "*****///---+()")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d_⁰¹²³⁴⁵⁶⁷⁸⁹][^\W⁰¹²³⁴⁵⁶⁷⁸⁹]*|°[CF]?)"
    r"|(?P<power>[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
    r"|(?P<sign>\*\*|//|==|!=|<=|>=|->|[-+*/%^!()<>=,√≤≥≠])"
)
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_TIGHT = re.compile(r",[0-9]{3}(?![0-9])")
_MEANT = {"->": "in", "**": "^", "≤": "<=", "≥": ">=", "≠": "!="}


class ExpressionFault(ToolError):
    """An expression cannot be worked out; one short sentence with the place."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"at position {position + 1}: {message}")


class Token(NamedTuple):
    """A part of an expression.

    Attributes:
        kind: "number", "name", "power" (a raised number), "sign" or "end".
        spaced: white space stands before it.
    """

    kind: str
    text: str
    start: int
    spaced: bool


def tokens_of(text: str) -> list[Token]:
    """The parts of an expression, with an end.

    Outside the arguments of a function, digits in groups of three are one number: 1,234.5.
    """
    text = text.translate(_SAME)
    tokens: list[Token] = []
    calls: list[_Commas | None] = []  # by open parenthesis, for those of functions
    position, spaced = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text[position], position)
        kind, word = str(match.lastgroup), match.group()
        if kind == "number" and not (calls and calls[-1]) and (grouped := _GROUPED.match(text, position)):
            word = grouped.group()
        if kind != "space":
            if word == "(":
                calls.append(_Commas() if tokens and tokens[-1].kind == "name" else None)
            elif word == ")" and calls and (commas := calls.pop()) is not None:
                commas.check()
            elif word == "," and calls and calls[-1] is not None:
                calls[-1].note(text, position)
            tokens.append(Token(kind, _MEANT.get(word, word), position, spaced))
        spaced = kind == "space"
        position += len(word)
    return [*tokens, Token("end", "", len(text), spaced)]


class _Commas:
    """The commas of one call, which must not be of two kinds."""

    def __init__(self) -> None:
        self._tight: int | None = None
        self._loose = False

    def note(self, text: str, position: int) -> None:
        if text[position - 1].isdigit() and _TIGHT.match(text, position):
            self._tight = position
        elif text[position + 1 : position + 2].isspace():
            self._loose = True

    def check(self) -> None:
        if self._tight is not None and self._loose:
            hint = "write a number without separators, and a space behind each comma between arguments"
            raise ExpressionFault(f"this comma may stand in a number or between two; {hint}", self._tight)


def _unreadable(character: str, position: int) -> ExpressionFault:
    if character in "$€£¥":
        return ExpressionFault(f"leave out {character}", position)
    if character in "[]{}":
        return ExpressionFault(f"use ( and ) instead of {character}", position)
    shown = repr(character) if character.isprintable() else f"the character U+{ord(character):04X}"
    return ExpressionFault(f"{shown} means nothing here", position)
