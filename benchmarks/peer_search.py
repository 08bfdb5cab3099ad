"""tantivy and rank_bm25 on the paragraphs and queries that ``search_ours.py`` writes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

BEST = 3
HELD = 20_000
"""Paragraphs that rank_bm25 is given: it has a dictionary for each, and each search looks at all of them."""


def _paragraphs(folder: str) -> Iterator[dict[str, str]]:
    with (Path(folder) / "corpus.jsonl").open() as lines:
        yield from map(json.loads, lines)


def _queries(folder: str) -> list[str]:
    queries: list[str] = json.loads((Path(folder) / "queries.json").read_text())
    return queries


@cache
def _tantivy(folder: str) -> tuple[Any, Any]:
    import tantivy

    place = Path(folder, "tantivy")
    builder = tantivy.SchemaBuilder()
    for name in ("title", "text"):
        builder.add_text_field(name, stored=True)
    if not (place / "whole").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        index = tantivy.Index(builder.build(), str(place))
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for paragraph in _paragraphs(folder):
            writer.add_document(tantivy.Document(**paragraph))
        writer.commit()
        writer.wait_merging_threads()
        (place / "whole").touch()
    index = tantivy.Index.open(str(place))
    index.reload()
    return index, index.searcher()


def tantivy_search(folder: str, paragraphs: int) -> dict[str, float]:
    """Seconds of one search, from the text of a query to titles and texts, on one thread."""
    index, searcher = _tantivy(folder)
    queries = _queries(folder)
    found = 0
    began = time.perf_counter()
    for query in queries:
        parsed = index.parse_query(query, ["title", "text"])
        for _, address in searcher.search(parsed, BEST, count=False).hits:
            document = searcher.doc(address)
            found += bool(document["title"] and document["text"])
    took = time.perf_counter() - began
    if not found:
        raise ValueError("no query found a paragraph")
    return {"seconds": took / len(queries), "paragraphs": paragraphs}


@cache
def _rank(folder: str) -> tuple[Any, list[dict[str, str]]]:
    from rank_bm25 import BM25Okapi

    held = [paragraph for paragraph, _ in zip(_paragraphs(folder), range(HELD), strict=False)]
    texts = [[*each["title"].split() * 2, *each["text"].split()] for each in held]
    return BM25Okapi(texts), held


def rank_search(folder: str, paragraphs: int, queries: int = 20) -> dict[str, float]:
    """Seconds of one search of as many paragraphs as it is given; its time grows with their number."""
    index, held = _rank(folder)
    asked = _queries(folder)[:queries]
    began = time.perf_counter()
    for query in asked:
        index.get_top_n(query.split(), held, n=BEST)
    return {"seconds": (time.perf_counter() - began) / len(asked), "paragraphs": len(held)}
