"""BM25 search over the paragraphs that an environment's tasks bring."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import numpy as np

from agent_r1_env.task import Paragraph, TaskSet

_WORD = re.compile(r"[^\W_]+")
_MAX_QUERY_WORDS = 256
_TITLE_WEIGHT = 2


class Search:
    """The paragraphs that fit a query best, one a line; paragraphs without a word of it never appear.

    Args:
        tasks: brings the corpus. Its index is built at the first search and shared by all tools over it.
        top_k: how many paragraphs to return at most.
    """

    def __init__(self, tasks: TaskSet, top_k: int = 3) -> None:
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be a whole number above 0, got {top_k!r}")
        self.tasks, self.top_k = tasks, top_k

    def __call__(self, query: str) -> str:
        """Answer as the model will read it."""
        terms = words(query)
        if not terms:
            return "The query has no words to search for; give a name, a title or a few key words."
        hits = index_of(self.tasks).best(terms, self.top_k)
        if not hits:
            return f"No paragraph matches {query.strip()[:80]!r}; try other words, such as a name or a title."
        lines = [f"[{rank}] {_line(hit.title)}: {_line(hit.text)}" for rank, hit in enumerate(hits, start=1)]
        if len(terms) > _MAX_QUERY_WORDS:
            lines.append(f"Only the first {_MAX_QUERY_WORDS} words of the query were used.")
        return "\n".join(lines)


class Index:
    """BM25 scores of a corpus. Titles weigh more than text, and a query that is a title finds it first."""

    def __init__(self, corpus: Iterable[Paragraph]) -> None:
        import bm25s  # 0.2 s, and only searching needs it

        self.paragraphs = tuple(corpus)
        documents = [words(p.title) * _TITLE_WEIGHT + words(p.text) for p in self.paragraphs]
        self._titled: dict[tuple[str, ...], list[int]] = {}
        for row, paragraph in enumerate(self.paragraphs):
            self._titled.setdefault(tuple(words(paragraph.title)), []).append(row)
        self._bm25 = None
        if any(documents):  # bm25s refuses a corpus without a single word
            self._bm25 = bm25s.BM25(method="lucene", backend="numpy")
            self._bm25.index(documents, show_progress=False)

    def best(self, terms: list[str], k: int) -> list[Paragraph]:
        """At most ``k`` paragraphs by falling score; equal scores keep the order of the corpus."""
        if self._bm25 is None:
            return []
        terms = terms[:_MAX_QUERY_WORDS]
        ids = self._bm25.get_tokens_ids(terms)
        if not ids:
            return []
        scores = self._bm25.get_scores_from_ids(ids)
        # BM25 alone ranks pages about a thing above its own page when they repeat its name more often.
        scores[self._titled.get(tuple(terms), [])] += scores.max()
        found = int(np.count_nonzero(scores))
        k = min(k, found)
        if k == 0:
            return []
        floor = np.partition(scores, -k)[-k]
        rows = np.flatnonzero(scores >= floor)  # ties at the edge included, so that the order decides
        ranked = rows[np.argsort(-scores[rows], kind="stable")[:k]]
        return [self.paragraphs[row] for row in ranked]


def words(text: str) -> list[str]:
    """Words in lower case without diacritics. No word is left out: "The Who" is a name."""
    folded = text.lower()
    if not folded.isascii():
        split = unicodedata.normalize("NFKD", folded)
        folded = "".join(mark for mark in split if not unicodedata.combining(mark)).casefold()
    return _WORD.findall(folded)


_INDEXES: WeakKeyDictionary[TaskSet, Index] = WeakKeyDictionary()
_BUILDING = threading.Lock()


def index_of(tasks: TaskSet) -> Index:
    """The index of these tasks' corpus; it lives as long as they do."""
    index = _INDEXES.get(tasks)
    if index is None:
        with _BUILDING:
            index = _INDEXES.get(tasks) or _INDEXES.setdefault(tasks, Index(tasks.corpus))
    return index


def _line(text: str) -> str:
    return " ".join(text.split())
