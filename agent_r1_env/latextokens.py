"""The parts of an answer in mathematics, in LaTeX or plain typing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agent_r1_env.algebra import Undecided

MAX_LENGTH = 2_000
"""Characters of an answer that is read as mathematics."""
SEPARATORS = frozenset((",", ";", "or", "and"))

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    r"|\.[0-9]+(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|(?P<letters>[^\W\d_]+)"
    r"|(?P<sign><=|>=|!=|==|.)"
    r")",
    re.DOTALL,
)
_UNGROUPED = re.compile(_TOKEN.pattern.replace(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|", ""), re.DOTALL)
_FUNCTION_NAMES = """
sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp min max gcd lcm deg
"""
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_NAMED = {"pi": "pi", "infty": "∞", "infinity": "∞", "inf": "∞"}
_GREEK_NAMES = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho
sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell
"""
_GREEK = frozenset(_GREEK_NAMES.split())
_OPERATORS = {"cdot": "*", "times": "*", "div": "/", "lbrace": "\\{", "rbrace": "\\}", "colon": ":"}
_RELATIONS = {"le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">="}
_RELATIONS |= {"lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "=", "equiv": "=", "in": "in"}
_OPERATORS |= _RELATIONS


class Token(NamedTuple):
    """``kind`` is number, name, function, end, or the sign or command itself."""

    kind: str
    text: str


def tokens_of(text: str, *, grouped: bool = True) -> list[Token]:
    """The parts of a cleaned text, with an end.

    Raises:
        Undecided: it is too long, or has words in it.
    """
    if len(text) > MAX_LENGTH:
        raise Undecided("the answer is too long")
    return [*_tokens(text.rstrip(), _TOKEN if grouped else _UNGROUPED), Token("end", "")]


def _tokens(text: str, pattern: re.Pattern[str]) -> Iterator[Token]:
    for match in pattern.finditer(text):
        kind, part = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "command":
            yield _command(part)
        elif kind == "letters":
            yield from _letters(part)
        else:
            yield Token("number" if kind == "number" else "=" if part == "==" else part, part)


def _command(part: str) -> Token:
    bare = part[1:]
    if bare in _OPERATORS:
        return Token(_OPERATORS[bare], part)
    if bare in FUNCTIONS:
        return Token("function", bare)
    if bare in _NAMED or bare in _GREEK:
        return Token("name", _NAMED.get(bare, bare))
    return Token(part, part)


def _letters(part: str) -> Iterator[Token]:
    if part in SEPARATORS:
        yield Token(part, part)
    elif part in FUNCTIONS:
        yield Token("function", part)
    elif part in _NAMED:
        yield Token("name", _NAMED[part])
    elif part == "sqrt":
        yield Token("\\sqrt", part)
    elif len(part) <= 3:
        yield from (Token("name", letter) for letter in part)
    else:
        raise Undecided(f"{part!r} is a word")
