"""Search by meaning over the paragraphs that an environment's tasks bring, or over those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_r1_env.dense import DenseIndex, Settings, load_encoder
from agent_r1_env.hits import NO_WORDS, shown, words
from agent_r1_env.task import TaskSet


class DenseSearch:
    """The paragraphs that are nearest to a query in meaning, one a line, shown as ``search`` shows its own.

    Everything is encoded when the tool is made, or was before: the index of a file is kept.

    Args:
        tasks: bring the paragraphs, where no ``corpus`` does.
        encoder: see ``agent_r1_env.dense.Settings``, as for both prefixes and ``factory``.
        top_k: how many paragraphs to return at most.
        corpus: a file of paragraphs, see ``agent_r1_env.corpus.read_paragraphs``.
        index: the folder where the index of ``corpus`` is saved; by default in the user's cache.
        default_corpus: the file that is searched where there are neither tasks nor a ``corpus``.
        device: where the encoder runs, such as "cuda:0"; by default it chooses itself.
        download: fetch the encoder where it is not on this machine.
    """

    def __init__(
        self,
        tasks: TaskSet | None = None,
        encoder: str = "sentence-transformers/all-MiniLM-L6-v2",
        top_k: int = 3,
        corpus: str | Path | None = None,
        index: str | Path | None = None,
        default_corpus: str | Path | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        factory: str = "Flat",
        device: str | None = None,
        download: bool = False,
    ) -> None:
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be a whole number above 0, got {top_k!r}")
        self.top_k = top_k
        settings = Settings(encoder, query_prefix, passage_prefix, factory)
        encode = load_encoder(encoder, device=device, download=download)
        if corpus is None and tasks is not None:
            corpus = tasks.corpus_file  # too large to be held by the tasks
        if corpus is None and tasks is not None:
            self.index = DenseIndex.of_tasks(settings, encode, tasks)
        elif file := corpus or default_corpus:
            self.index = DenseIndex.open(settings, encode, file, index)
        else:
            raise ValueError("there is nothing to search; set corpus to a file of paragraphs")

    def __call__(self, query: str) -> str:
        """Answer as the model will read it."""
        if not words(query):
            return NO_WORDS
        hits, notes = self.index.search(query, self.top_k)
        return shown(query, hits, notes)

    def batch(self, queries: Sequence[str]) -> list[str]:
        """The answers to several queries, in their order."""
        return [self(query) for query in queries]
