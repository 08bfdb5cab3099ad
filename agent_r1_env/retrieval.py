"""What search servers and their clients write to each other, by the name of the protocol.

``search_r1``, the retriever of Search-R1::

    POST /retrieve  {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"}, "score": 1.5}, ...], ...]}

With ``return_scores`` false, or without it, the documents stand in the lists by themselves.

``agent_r1_wiki`` and ``agent_r1_kilt``, the two servers of Agent-R1, which answer at the same addresses::

    POST /search  {"queries": ["..."], "top_k": 3}        or  GET /search?query=...&top_k=3
    -> {"query_results": [{"query": "...", "results": [{"score": 1.5, "document": {...}}, ...]}, ...],
        "total_time": 0.1, "search_time": 0.1}

They differ in the document: ``{"id", "title", "contents": "text"}`` in the Wikipedia of the first; in KILT's,
``contents`` begins with the title and a line end. What is read is lenient, whichever the protocol: a title of
its own or in the first line, ``contents`` or ``text``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_r1_env.corpus import split_contents
from agent_r1_env.errors import look_up
from agent_r1_env.hits import Hit

Found = Sequence[Sequence[Hit]]


class Protocol(NamedTuple):
    """One way to ask a search server.

    Attributes:
        path: where a server answers.
        top_k: the name of the number of hits that are asked for.
        constants: what else stands in a request.
        key: of the answer; its value is a list with an item for each query.
        inner: the key of such an item under which the hits stand, or "" where it is the list of them.
    """

    name: str
    path: str
    top_k: str
    constants: dict[str, Any]
    key: str
    inner: str

    def read(self, answer: str, count: int) -> list[list[Hit]]:
        """The hits for each of ``count`` queries.

        Raises:
            ValueError: the answer is not of this protocol.
        """
        items = json.loads(answer)[self.key]
        if len(items) != count:
            raise ValueError(f"{len(items)} lists of hits for {count} queries")
        return [[_hit(hit) for hit in (item[self.inner] if self.inner else item)] for item in items]


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("search_r1", "/retrieve", "topk", {"return_scores": True}, "result", ""),
        Protocol("agent_r1_wiki", "/search", "top_k", {}, "query_results", "results"),
        Protocol("agent_r1_kilt", "/search", "top_k", {}, "query_results", "results"),
    )
}


def protocol(name: str) -> Protocol:
    """The protocol of that name.

    Raises:
        UnknownName: there is none.
    """
    return look_up("protocol", name, PROTOCOLS)


def write_search_r1(found: Found, scores: bool) -> dict[str, Any]:
    """The answer of a Search-R1 retriever."""

    def written(hit: Hit) -> dict[str, Any]:
        title = " ".join(hit.title.split())  # on a line of its own
        document = {"id": hit.id, "contents": f'"{title}"\n{hit.text}'}
        return {"document": document, "score": hit.score} if scores else document

    return {"result": [[written(hit) for hit in hits] for hits in found]}


def write_agent_r1(queries: Sequence[str], found: Found, seconds: float) -> dict[str, Any]:
    """The answer of the original's search servers, with the documents of its Wikipedia."""
    results = [
        {
            "query": query,
            "results": [
                {"score": hit.score, "document": {"id": hit.id, "title": hit.title, "contents": hit.text}}
                for hit in hits
            ],
        }
        for query, hits in zip(queries, found, strict=True)
    ]
    return {"query_results": results, "total_time": seconds, "search_time": seconds}


def _hit(item: Any) -> Hit:
    """A hit with its score, or a document by itself."""
    scored = isinstance(item, dict) and "document" in item
    document = item["document"] if scored else item
    score = float(item.get("score") or 0.0) if scored else 0.0
    if isinstance(document, str):
        document = {"contents": document}
    body = document.get("contents", document.get("text"))
    title = document.get("title") or ""
    if not isinstance(body, str) or not isinstance(title, str):
        raise ValueError("a document without text")
    title, text = split_contents(body, title) if "contents" in document else (title, body)
    return Hit(title, text, score, str(document.get("id", "")))
