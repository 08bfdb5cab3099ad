"""The rows of the table about search."""

from __future__ import annotations

import statistics
from typing import Any

from bench_line import GROWTH, Line, Settings, ratios, short, told
from contest import OURS, Contender


def seconds(result: dict[str, float]) -> float:
    """Of a round."""
    return result["seconds"]


def search(settings: Settings) -> list[Line]:
    """The best three of generated paragraphs for queries of six words."""
    runs = {}
    for times in GROWTH:
        paragraphs = settings.paragraphs * times // max(GROWTH)
        folder = settings.folder / f"search-{paragraphs}"
        given = {"folder": str(folder), "paragraphs": paragraphs}
        settings.contest([Contender(OURS, "search_ours:prepare")], 1, warm=False, **given)
        contenders = [
            Contender(OURS, "search_ours:search"),
            Contender("tantivy", "peer_search:tantivy_search", peers=True),
            Contender("rank_bm25", "peer_search:rank_search", peers=True),
            Contender("opening", "search_ours:opened"),
        ]
        runs[times] = settings.contest(contenders, **given)
    found = runs[max(GROWTH)]
    ours = [each["ours"] * 1e3 for each in found[OURS].rounds]
    alone = [each["bm25s"] * 1e3 for each in found[OURS].rounds]
    against = ratios(ours, alone)
    peers = [f"bm25s alone {told(alone)}, {short(1 / statistics.median(against))}x"]
    grown = {
        OURS: _milliseconds(runs, OURS, "ours"),
        "bm25s alone": _milliseconds(runs, OURS, "bm25s"),
    }
    for name in ("tantivy", "rank_bm25"):
        if found[name].absent:
            peers.append(f"{name}: {found[name].absent}")
            continue
        held = found[name].rounds[0]["paragraphs"]
        scale = settings.paragraphs / held
        took = [each["seconds"] * 1e3 * scale for each in found[name].rounds]
        note = f" (extrapolated from {held:,} paragraphs)" if held < settings.paragraphs else ""
        peers.append(f"{name} {told(took)}, {short(statistics.median(ratios(took, ours)))}x{note}")
        grown[name] = _milliseconds(runs, name, "seconds")
    opened = found["opening"].numbers(seconds)
    return [
        Line(
            f"BM25 search of {settings.paragraphs:,} paragraphs, ms",
            told(ours),
            peers,
            f"{told(against)} of bm25s",
            grown,
            "at most 1.05 of bm25s",
            statistics.median(against) <= 1.05,
        ),
        Line(
            f"opening an index of {settings.paragraphs:,} paragraphs, ms",
            told([each * 1e3 for each in opened]),
            [f"memory {short(found['opening'].rounds[0]['memory'])} MiB"],
            growth={
                OURS: [statistics.median(each["opening"].numbers(seconds)) * 1e3 for each in runs.values()]
            },
            target="under 1 s",
            met=statistics.median(opened) < 1,
        ),
    ]


def _milliseconds(runs: Any, name: str, key: str) -> list[float | None]:
    return [statistics.median(each[key] * 1e3 for each in found[name].rounds) for found in runs.values()]
