"""What a search finds, and the words in which every search tool tells it to a model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_QUERY_WORDS = 256
NO_WORDS = "The query has no words to search for; give a name, a title or a few key words."
_WORD = re.compile(r"[^\W_]+")
_TOLD = 80


class Hit(NamedTuple):
    """A paragraph that was found.

    Attributes:
        score: the higher the better; comparable within one search only.
        id: its number in the corpus, or what the server that found it calls it; "" if nothing is known.
    """

    title: str
    text: str
    score: float
    id: str = ""


def shown(query: str, hits: Sequence[Hit], notes: Iterable[str] = ()) -> str:
    """Hits as numbered lines of title and text, or that there are none; then the notes."""
    if not hits:
        lines = [
            f"No paragraph matches {query.strip()[:_TOLD]!r}; try other words, such as a name or a title."
        ]
    else:
        lines = [f"[{rank}] {_line(hit)}" for rank, hit in enumerate(hits, start=1)]
    return "\n".join([*lines, *notes])


def words(text: str) -> list[str]:
    """Words in lower case without diacritics. No word is left out: "The Who" is a name."""
    folded = text.lower()
    if not folded.isascii():
        split = unicodedata.normalize("NFKD", folded)
        folded = "".join(mark for mark in split if not unicodedata.combining(mark)).casefold()
    return _WORD.findall(folded)


def clamped(query: str) -> tuple[str, list[str]]:
    """A query of at most ``MAX_QUERY_WORDS`` words, with a note for the model if it was longer."""
    for number, match in enumerate(_WORD.finditer(query), start=1):
        if number > MAX_QUERY_WORDS:
            return query[: match.start()].rstrip(), [too_long(MAX_QUERY_WORDS)]
    return query, []


def too_long(limit: int, unit: str = "words") -> str:
    """The note that only the beginning of a query was used."""
    return f"Only the first {limit} {unit} of the query were used."


def _line(hit: Hit) -> str:
    title, text = " ".join(hit.title.split()), " ".join(hit.text.split())
    return f"{title}: {text}" if title else text
