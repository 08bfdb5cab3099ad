"""How fast the quickstart's policy learns with each algorithm, over several seeds.

    python benchmarks/algorithms.py --algorithms grpo rloo ppo --seeds 0 1 2 --output out/algorithms

Prints a Markdown table: exact match before and after on the held-out questions, and the mean reward of all
updates, which is the area under the learning curve. Intervals are over seeds (Student's t, 95 %). A run whose
folder is complete already is read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of the two-sided 95 % interval, by number of seeds


def run(recipe: str, folder: Path, algorithm: str, seed: int, options: list[str]) -> dict[str, Any]:
    """One training run in a process of its own; what it wrote to ``run.json``."""
    notes = folder / "run.json"
    if not notes.exists() or json.loads(notes.read_text())["state"] != "finished":
        command = [
            sys.executable,
            "-m",
            "agent_r1_env.cli",
            "train",
            recipe,
            "--set",
            f"algorithm={algorithm}",
        ]
        subprocess.run([*command, "--seed", str(seed), "--output", str(folder), *options], check=True)
    found: dict[str, Any] = json.loads(notes.read_text())
    return found


def rewards(folder: Path) -> list[float]:
    """Mean reward of the episodes of each update."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    return [each["reward"] for each in logged if "reward" in each]  # evaluations are logged, too


def interval(values: list[float]) -> str:
    """Mean and half-width of the interval over seeds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = _T.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.3f} ± {half:.3f}"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="trainers/quickstart.yaml")
    parser.add_argument(
        "--algorithms", nargs="+", default=["grpo", "rloo", "reinforce_plus_plus", "step_grpo", "ppo"]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("out/algorithms"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    chosen = parser.parse_args()
    options = [part for pair in chosen.set for part in ("--set", pair)]
    table = [
        ["algorithm", "before", "after", "by seed", "mean reward of all updates", "updates to reward 0.6"]
    ]
    for seed in chosen.seeds:  # seed by seed, so that a run that is stopped has something of each
        for name in chosen.algorithms:
            run(chosen.recipe, chosen.output / f"{name}-{seed}", name, seed, options)
    for name in chosen.algorithms:
        folders = [chosen.output / f"{name}-{seed}" for seed in chosen.seeds]
        notes = [json.loads((folder / "run.json").read_text()) for folder in folders]
        before, after = (
            [each[when]["metrics"]["exact_match"]["mean"] for each in notes] for when in ("before", "after")
        )
        curves = [rewards(folder) for folder in folders]
        reached = [
            next((step for step, reward in enumerate(curve, 1) if reward >= 0.6), 0) for curve in curves
        ]
        table.append(
            [
                name,
                f"{statistics.fmean(before):.3f}",
                interval(after),
                ", ".join(f"{score:.3f}" for score in after),
                interval([statistics.fmean(curve) for curve in curves]),
                ", ".join(str(step) if step else "-" for step in reached),
            ]
        )
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    lines.insert(1, "|" + " --- |" * len(table[0]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
