"""What overlap gains and costs on the quickstart: updates a minute and exact match, in turns and overlapped.

    python benchmarks/overlap.py --staleness 0 1 2 --seeds 0 1 2 --output out/overlap

Staleness 0 is the synchronous form. Prints a Markdown table; a run whose folder is complete already is read,
not repeated. On two cores each of trainer and engine gets one (``threads: 1``), in all forms alike. Runs of
one seed follow each other, so that what else the machine does falls on all forms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

GAP = "sampling/sampling_logp_difference/mean"
RATIO = "sampling/importance_sampling_ratio/max"


def run(recipe: str, folder: Path, staleness: int, seed: int, options: list[str]) -> dict[str, Any]:
    """One training run in a process of its own: what it wrote to ``run.json``, and ``logged``."""
    notes = folder / "run.json"
    if not notes.exists() or json.loads(notes.read_text())["state"] != "finished":
        overlap = ["--set", f"overlap.staleness={staleness}"] if staleness else []
        command = [sys.executable, "-m", "agent_r1_env.cli", "train", recipe, *overlap, *options]
        subprocess.run([*command, "--seed", str(seed), "--output", str(folder)], check=True)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    logged = [entry for entry in map(json.loads, lines) if "reward" in entry]
    return {**json.loads(notes.read_text()), "logged": logged}


def row(staleness: int, runs: list[dict[str, Any]]) -> list[str]:
    """The line of one form, over its seeds."""
    entries = [entry for each in runs for entry in each["logged"]]
    scores = [each["after"]["metrics"]["exact_match"]["mean"] for each in runs if each.get("after")]
    speeds = [60 * each["steps"] / each["seconds"]["train"] for each in runs]

    def mean(name: str) -> str:
        found = [entry[name] for entry in entries if name in entry]
        return f"{statistics.fmean(found):.3g}" if found else "-"

    return [
        str(staleness),
        f"{statistics.fmean(speeds):.1f}",
        ", ".join(f"{speed:.1f}" for speed in speeds),
        mean("agent/rollout_seconds"),
        mean("agent/overlap_wait_seconds"),
        mean("agent/overlap_hidden"),
        mean("agent/staleness/mean"),
        f"{max(entry.get('agent/staleness/max', 0) for entry in entries):.0f}",
        mean(GAP),
        f"{max(entry[RATIO] for entry in entries):.2f}",
        f"{sum(entry['agent/drift'] for entry in entries):.0f}",
        mean("reward"),
        ", ".join(f"{score:.3f}" for score in scores) or "-",
    ]


HEAD = [
    "staleness",
    "updates a minute",
    "by seed",
    "rollout s",
    "wait s",
    "hidden",
    "age mean",
    "age max",
    "log-prob gap",
    "ratio max",
    "drift",
    "mean reward",
    "EM after, by seed",
]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="trainers/quickstart.yaml")
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("out/overlap"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    chosen = parser.parse_args()
    pairs = ["threads=1", "max_steps=30", *chosen.set]
    options = [part for pair in pairs for part in ("--set", pair)]
    found: dict[int, list[dict[str, Any]]] = {staleness: [] for staleness in chosen.staleness}
    for seed in chosen.seeds:
        for staleness in chosen.staleness:
            folder = chosen.output / f"{staleness}-{seed}"
            found[staleness].append(run(chosen.recipe, folder, staleness, seed, options))
    table = [HEAD, *(row(staleness, runs) for staleness, runs in found.items())]
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    lines.insert(1, "|" + " --- |" * len(HEAD))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
