"""Our search and bm25s over the same saved index, which is built once and kept; see ``worker.py``."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from search import drawing, opening, seconds, theirs, write_corpus

from agent_r1_env.bm25 import Index
from agent_r1_env.hits import words

QUERIES = 200
BEST = 3


def prepare(folder: str, paragraphs: int) -> dict[str, Any]:
    """Write the paragraphs and the queries, and build the index; what is there already is kept."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    corpus, queries = place / "corpus.jsonl", place / "queries.json"
    if not queries.exists():
        draw = drawing()
        # Under another name until it is whole: an interrupted run must not leave half a corpus.
        write_corpus(half := corpus.with_suffix(".part"), paragraphs, draw)
        half.rename(corpus)
        queries.write_text(json.dumps([" ".join(draw(6)) for _ in range(QUERIES)]))
    began = time.perf_counter()
    _opened(folder)
    return {"seconds": time.perf_counter() - began}


@cache
def _opened(folder: str) -> tuple[Index, Any, list[str], list[list[int]]]:
    """Our index, bm25s over its arrays, the queries, and their words as the numbers that bm25s takes."""
    place = Path(folder)
    index = Index.open(place / "corpus.jsonl", place / "ours")
    (kept,) = (path for path in (place / "ours").iterdir() if path.is_dir())
    alone = theirs(index, kept)
    queries = json.loads((place / "queries.json").read_text())
    found = [[index._word(word) for word in words(query)] for query in queries]
    numbers = [[int(number) for number in each if number is not None] for each in found]
    for query, number in zip(queries[:20], numbers[:20], strict=True):
        if not np.array_equal(index.scores(words(query)), alone.get_scores_from_ids(number)):
            raise ValueError(f"bm25s and this package score {query!r} differently")
    return index, alone, queries, numbers


def search(folder: str, paragraphs: int) -> dict[str, float]:
    """Seconds of one search of each, one right after the other."""
    index, alone, queries, numbers = _opened(folder)
    ours = seconds(lambda query: index.search(query, BEST), queries)
    bare = seconds(lambda ids: alone._get_top_k_results(ids, k=BEST, sorted=True, backend="auto"), numbers)
    return {"ours": ours, "bm25s": bare, "paragraphs": len(index)}


def opened(folder: str, paragraphs: int) -> dict[str, float]:
    """Seconds and MiB that a new process needs to open the index and search once, without its imports."""
    place = Path(folder)
    took, memory = opening(place / "corpus.jsonl", place / "ours")
    return {"seconds": took, "memory": memory}
