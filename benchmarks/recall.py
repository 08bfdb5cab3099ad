"""How many of the supporting paragraphs BM25 finds with the question as it stands.

    python benchmarks/recall.py DATA

DATA is a folder with ``hotpotqa``, ``2wikimultihopqa`` and ``musique`` in it, each with the questions named
below and a ``corpus.jsonl``. Prints a Markdown table: recall@k is the share of a question's supporting
paragraphs among the first k that are found, on average over the questions; all@k is the share of questions
with every one of theirs among them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from agent_r1_env import questions
from agent_r1_env.bm25 import Index
from agent_r1_env.hits import Hit
from agent_r1_env.task import Task, TaskSet

SETS: dict[str, tuple[Callable[..., TaskSet], str]] = {
    "HotpotQA": (questions.hotpotqa, "hotpotqa/hotpot_dev_distractor_sample.json"),
    "2WikiMultihopQA": (questions.two_wiki, "2wikimultihopqa/2wiki_eval_sample.json"),
    "MuSiQue": (questions.musique, "musique/musique_ans_eval_sample.jsonl"),
}
DEPTHS = (1, 3, 5, 10)


def missing(task: Task, hits: Sequence[Hit]) -> tuple[int, int]:
    """How many supporting paragraphs are not among the hits, and how many there are.

    A title names one paragraph, but in MuSiQue, whose titles are shared and whose tasks bring the texts.
    """
    wanted = {(title, "") for title, _ in task.supporting}
    found = {(hit.title, "") for hit in hits}
    if "supporting_idxs" in task.data:
        texts = {each["idx"]: (each["title"], each["text"]) for each in task.data["paragraphs"]}
        wanted = {texts[idx] for idx in task.data["supporting_idxs"]}
        found = {(hit.title, hit.text) for hit in hits}
    return len(wanted - found), len(wanted)


def row(name: str, tasks: Sequence[Task], index: Index) -> str:
    """One line of the table."""
    index.search("", 1)
    began = time.perf_counter()
    hits = [index.search(task.question, max(DEPTHS)) for task in tasks]
    each = (time.perf_counter() - began) / len(tasks)
    counts = {k: [missing(*pair) for pair in zip(tasks, [h[:k] for h in hits], strict=True)] for k in DEPTHS}
    recalls = [fmean(1 - lost / of for lost, of in counts[k]) for k in DEPTHS]
    complete = fmean(lost == 0 for lost, _ in counts[max(DEPTHS)])
    support = fmean(of for _, of in counts[1])
    cells: list[object] = [
        name,
        len(tasks),
        len(index),
        f"{support:.2f}",
        *(f"{recall:.3f}" for recall in recalls),
    ]
    return " | ".join(map(str, ["", *cells, f"{complete:.3f}", f"{each * 1e3:.2f}", ""])).strip()


def main() -> None:
    """Search for every question of the three sets, and for those of each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--kinds", action="store_true", help="a line for each kind of question, too")
    chosen = parser.parse_args()
    heads = [f"recall@{k}" for k in DEPTHS]
    columns = ["questions", "number", "paragraphs", "support", *heads, f"all@{max(DEPTHS)}", "ms a search"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for name, (load, file) in SETS.items():
        data = chosen.data / file
        tasks = load(data=data, corpus=data.parent / "corpus.jsonl")
        index = Index(tasks.corpus)
        print(row(name, tasks, index))
        for kind in sorted({task.kind for task in tasks} if chosen.kinds else ()):
            print(row(f"{name}, {kind}", [task for task in tasks if task.kind == kind], index))


if __name__ == "__main__":
    main()
