"""BM25 search over the paragraphs that an environment's tasks bring, or over those of a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from agent_r1_env.bm25 import Index
from agent_r1_env.hits import NO_WORDS, clamped, shown, words
from agent_r1_env.task import TaskSet


class Search:
    """The paragraphs that fit a query best, one a line; paragraphs without a word of it never appear.

    Args:
        tasks: bring the paragraphs, where no ``corpus`` does. Their index is built at the first search and
            shared by all tools over it.
        top_k: how many paragraphs to return at most.
        corpus: a file of paragraphs, see ``agent_r1_env.corpus.read_paragraphs``.
        index: the folder where the index of ``corpus`` is saved, to be memory-mapped the next time; by
            default in the user's cache, and not at all for a small file.
        default_corpus: the file that is searched where there are neither tasks nor a ``corpus``.
    """

    def __init__(
        self,
        tasks: TaskSet | None = None,
        top_k: int = 3,
        corpus: str | Path | None = None,
        index: str | Path | None = None,
        default_corpus: str | Path | None = None,
    ) -> None:
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be a whole number above 0, got {top_k!r}")
        self.top_k = top_k
        self._find: Callable[[], Index]
        if corpus is None and tasks is not None:
            corpus = tasks.corpus_file  # too large to be held by the tasks
        if corpus is None and tasks is not None:
            self._find = partial(index_of, tasks)
        elif file := corpus or default_corpus:
            opened = Index.open(file, index)
            self._find = lambda: opened
        else:
            raise ValueError("there is nothing to search; set corpus to a file of paragraphs")

    def __call__(self, query: str) -> str:
        """Answer as the model will read it."""
        return self.batch([query])[0]

    def batch(self, queries: Sequence[str]) -> list[str]:
        """The answers to several queries, in their order."""
        return [self._answer(query) for query in queries]

    def _answer(self, query: str) -> str:
        if not words(query):
            return NO_WORDS
        asked, notes = clamped(query)
        return shown(query, self.index.search(asked, self.top_k), notes)

    @property
    def index(self) -> Index:
        """What is searched."""
        return self._find()


_INDEXES: WeakKeyDictionary[TaskSet, Index] = WeakKeyDictionary()
_BUILDING = threading.Lock()


def index_of(tasks: TaskSet) -> Index:
    """The index of these tasks' corpus; it lives as long as they do."""
    index = _INDEXES.get(tasks)
    if index is None:
        with _BUILDING:
            index = _INDEXES.get(tasks) or _INDEXES.setdefault(tasks, Index(tasks.corpus))
    return index
