"""Exact match of the quickstart before and after training, over several seeds and with the loss mask off.

    python benchmarks/quickstart.py --seeds 0 1 2 --output out/benchmark

Prints a Markdown table. A run whose folder is complete already is read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

KINDS = {"on": [], "off": ["--no-loss-mask"]}


def run(recipe: str, folder: Path, seed: int, options: list[str]) -> dict[str, Any]:
    """One training run in a process of its own; what it wrote to ``run.json``."""
    notes = folder / "run.json"
    if not notes.exists() or json.loads(notes.read_text())["state"] != "finished":
        command = [sys.executable, "-m", "agent_r1_env.cli", "train", recipe]
        subprocess.run([*command, "--seed", str(seed), "--output", str(folder), *options], check=True)
    found: dict[str, Any] = json.loads(notes.read_text())
    return found


def logged(folder: Path) -> list[dict[str, Any]]:
    """The metrics of each update."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def row(mask: str, seed: int, notes: dict[str, Any], metrics: list[dict[str, Any]]) -> list[str]:
    """One line of the table."""
    before, after = (notes[when]["metrics"]["exact_match"]["mean"] for when in ("before", "after"))
    drift = sum(entry.get("agent/drift", 0) for entry in metrics)
    gaps = [entry[key] for entry in metrics if (key := "sampling/sampling_logp_difference/max") in entry]
    minutes = sum(notes["seconds"].values()) / 60
    return [
        mask,
        str(seed),
        f"{before:.3f}",
        f"{after:.3f}",
        f"{after - before:+.3f}",
        f"{notes['after']['invalid_call_rate']:.3f}",
        f"{drift:g}",
        f"{max(gaps):.1e}" if gaps else "",
        f"{minutes:.1f}",
    ]


def spread(rises: list[float]) -> str:
    """Mean and sample standard deviation."""
    deviation = f" ± {statistics.stdev(rises):.3f}" if len(rises) > 1 else ""
    return f"{statistics.fmean(rises):+.3f}{deviation}"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="trainers/quickstart.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--masks", nargs="+", choices=sorted(KINDS), default=sorted(KINDS, reverse=True))
    parser.add_argument("--output", type=Path, default=Path("out/benchmark"))
    chosen = parser.parse_args()
    titles = ["loss mask", "seed", "EM before", "EM after", "rise", "invalid calls after", "drift"]
    table = [[*titles, "max logp difference", "minutes"]]
    summary = []
    for mask in chosen.masks:
        rises = []
        for seed in chosen.seeds:
            folder = chosen.output / f"mask-{mask}-seed-{seed}"
            table.append(row(mask, seed, run(chosen.recipe, folder, seed, KINDS[mask]), logged(folder)))
            rises.append(float(table[-1][4]))
        summary.append(f"Rise with the loss mask {mask}, mean over {len(rises)} seeds: {spread(rises)}")
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    lines.insert(1, "|" + " --- |" * len(table[0]))
    print("\n".join([*lines, "", *summary]))


if __name__ == "__main__":
    main()
