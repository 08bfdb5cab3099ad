"""What the two masks are worth on the quickstart, in the layout of Table 4 of the Agent-R1 paper.

    python benchmarks/masks.py --seeds 0 1 2 --output out/masks --set max_steps=30

The loss mask keeps the tokens of the environment out of the policy's loss; the advantage mask keeps them out
of PPO's values and advantages, which here are those of single tokens, as in the paper. Prints a Markdown
table with intervals over seeds (Student's t, 95 %), and each ablation's difference to the run with both
masks, seed by seed. A run whose folder is complete already is read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from algorithms import interval, rewards, run


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    algorithm: str
    loss_mask: bool
    advantage_mask: bool | None  # None: the algorithm has no values, so none to mask

    @property
    def name(self) -> str:
        """Of the folder."""
        masks = [("loss", self.loss_mask), ("advantage", self.advantage_mask)]
        return "-".join([self.algorithm, *(mask for mask, on in masks if on)])

    @property
    def options(self) -> list[str]:
        """Of ``agent-r1 train``."""
        pairs = [f"loss_mask={str(self.loss_mask).lower()}"]
        if self.advantage_mask is not None:
            pairs += ["critic.level=token", f"critic.tool_tokens={str(not self.advantage_mask).lower()}"]
        return [part for pair in pairs for part in ("--set", pair)]


CELLS = (
    Cell("ppo", True, True),
    Cell("ppo", True, False),
    Cell("ppo", False, False),
    Cell("grpo", True, None),
    Cell("grpo", False, None),
)


def said(on: bool | None) -> str:
    """A mask as the paper's table writes it."""
    return "n/a" if on is None else "yes" if on else "no"


def line(cell: Cell, folders: Sequence[Path], masked: Sequence[Path]) -> list[str]:
    """Cells of the Markdown line; ``masked`` are the runs of the same seeds with both masks."""
    before, after = exact(folders, "before"), exact(folders, "after")
    differences = [here - there for here, there in zip(after, exact(masked, "after"), strict=True)]
    return [
        cell.algorithm.upper(),
        said(cell.loss_mask),
        said(cell.advantage_mask),
        f"{statistics.fmean(before):.3f}",
        interval(after),
        ", ".join(f"{score:.3f}" for score in after),
        "" if folders == masked else interval(differences),
        interval([statistics.fmean(rewards(folder)) for folder in folders]),
    ]


def exact(folders: Sequence[Path], when: str) -> list[float]:
    """Exact match of each run ``before`` or ``after``."""
    notes = [json.loads((folder / "run.json").read_text()) for folder in folders]
    return [each[when]["metrics"]["exact_match"]["mean"] for each in notes]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="trainers/quickstart.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("out/masks"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    chosen = parser.parse_args()
    options = [part for pair in chosen.set for part in ("--set", pair)]
    places = {cell: [chosen.output / f"{cell.name}-{seed}" for seed in chosen.seeds] for cell in CELLS}
    for place, seed in enumerate(
        chosen.seeds
    ):  # seed by seed, so that a run that is stopped has something of each
        for cell in CELLS:
            run(chosen.recipe, places[cell][place], cell.algorithm, seed, [*cell.options, *options])
    both = {cell.algorithm: folders for cell, folders in places.items() if cell in (CELLS[0], CELLS[3])}
    table = [["run", "loss mask", "adv. mask", "before", "after", "by seed", "to both masks", "mean reward"]]
    table += [line(cell, folders, both[cell.algorithm]) for cell, folders in places.items()]
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    lines.insert(1, "|" + " --- |" * len(table[0]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
