"""How fast a saved index opens, and what a search costs compared with bm25s alone on the same index.

    python benchmarks/search.py --paragraphs 200000

Prints a Markdown table. The paragraphs are generated: 60 words each, drawn from 150,000 by Zipf's law.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from agent_r1_env.bm25 import Index
from agent_r1_env.hits import words

WORDS = 150_000
LENGTH = 60


def drawing(seed: int = 0) -> Callable[[int], np.ndarray[Any, Any]]:
    """What draws so many words by Zipf's law."""
    random = np.random.default_rng(seed)
    chances = 1 / np.arange(1, WORDS + 1)
    steps = np.cumsum(chances / chances.sum())
    vocabulary = np.array([f"w{number}" for number in range(WORDS)])
    return lambda count: vocabulary[np.searchsorted(steps, random.random(count))]


def write_corpus(file: Path, count: int, draw: Callable[[int], np.ndarray[Any, Any]]) -> None:
    """Generated paragraphs, each with a title of its own."""
    with file.open("w") as lines:
        for number in range(count):
            title, *text = draw(LENGTH)
            lines.write(json.dumps({"title": f"{title} {number}", "text": " ".join(text)}) + "\n")


def theirs(index: Index, folder: Path) -> bm25s.BM25:
    """bm25s over the very arrays of our index."""
    model = bm25s.BM25(method="lucene", backend="numpy")
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")}
    model.nonoccurrence_array = None
    model.scores = {**arrays, "num_docs": len(index)}
    return model


def seconds(run: Callable[[Any], Any], inputs: list[Any]) -> float:
    """Of one call, on average."""
    began = time.perf_counter()
    for each in inputs:
        run(each)
    return (time.perf_counter() - began) / len(inputs)


def opening(corpus: Path, folder: Path) -> tuple[float, float]:
    """Seconds and MiB that a new process needs to open the index and search once, without its imports."""
    code = (
        "import sys, time; from pathlib import Path; from agent_r1_env.bm25 import Index\n"
        "memory = lambda: int(Path('/proc/self/statm').read_text().split()[1]) / 256\n"
        "before, began = memory(), time.perf_counter()\n"
        "Index.open(sys.argv[1], sys.argv[2]).search('w7 w77 w777', 3)\n"
        "print(time.perf_counter() - began, memory() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, corpus, folder], capture_output=True, text=True, check=True
    )
    took, memory = map(float, run.stdout.split())
    return took, memory


def main() -> None:
    """Build, open, search, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paragraphs", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    draw = drawing()
    with tempfile.TemporaryDirectory() as temporary:
        corpus, kept = Path(temporary, "corpus.jsonl"), Path(temporary, "kept")
        write_corpus(corpus, chosen.paragraphs, draw)
        began = time.perf_counter()
        index = Index.open(corpus, kept)
        built = time.perf_counter() - began
        opened, memory = min(opening(corpus, kept) for _ in range(3))
        (folder,) = (path for path in kept.iterdir() if path.is_dir())
        alone = theirs(index, folder)
        queries = [" ".join(draw(6)) for _ in range(chosen.queries)]
        found = [[index._word(word) for word in words(query)] for query in queries]
        numbers = [[int(number) for number in each if number is not None] for each in found]
        for ours, number in zip(queries, numbers, strict=True):
            assert np.array_equal(index.scores(words(ours)), alone.get_scores_from_ids(number))
        gc.disable()
        rows = []
        for _ in range(chosen.rounds):
            bare = seconds(
                lambda ids: alone._get_top_k_results(ids, k=3, sorted=True, backend="auto"), numbers
            )
            rows.append((bare, seconds(lambda query: index.search(query, 3), queries)))
    ratio = statistics.median(ours / bare for bare, ours in rows)
    bare, ours = (statistics.median(column) * 1e3 for column in zip(*rows, strict=True))
    print("| paragraphs | built | opened | memory of opening | bm25s alone | search | ratio |")
    print("|" + " --- |" * 7)
    cells = [f"{chosen.paragraphs:,}", f"{built:.1f} s", f"{opened * 1e3:.1f} ms", f"{memory:.0f} MiB"]
    print(f"| {' | '.join([*cells, f'{bare:.2f} ms', f'{ours:.2f} ms', f'{ratio:.2f}'])} |")
    print(f"\nRatio of each round: {', '.join(f'{ours / bare:.2f}' for bare, ours in rows)}")


if __name__ == "__main__":
    main()
