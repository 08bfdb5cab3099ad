"""One line of the table: what was measured of us and of others, the ratio, and the target."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest import OURS, Contender, Found, contest

Runs = Mapping[str, Found]

GROWTH = (1, 4, 16)
"""Times the work of the first column."""


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        quick: tiny sizes, which show that everything works and nothing else.
        rounds: of each contest.
        folder: where what takes minutes to build is kept.
        paragraphs: of the search, at 16 times the work.
        alone: whether only the packages of this environment take part.
        model: folder of the model of the rollout on vLLM; "" is the one of an installed package.
    """

    quick: bool
    rounds: int
    folder: Path
    paragraphs: int
    alone: bool = False
    model: str = ""

    def contest(
        self, contenders: Sequence[Contender], rounds: int | None = None, warm: bool = True, **options: Any
    ) -> Runs:
        """The contest of these settings at one amount of work."""
        return contest(contenders, rounds or self.rounds, self.alone, warm and not self.quick, **options)


@dataclass(frozen=True)
class Line:
    """One measure.

    Attributes:
        ours: the median, and the least and the greatest of the rounds.
        peers: the same of others, each with its name and what it takes in terms of ours.
        ratio: what the target is about, where it is a ratio.
        growth: who takes what at 1, 4 and 16 times the work; the first are we.
        met: None where there is no target, or where nobody could be measured to compare with.
    """

    measure: str
    ours: str
    peers: Sequence[str] = ()
    ratio: str = ""
    growth: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    target: str = ""
    met: bool | None = None


def told(values: Sequence[float]) -> str:
    """The median, and between which numbers all lie."""
    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"


def short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, round by round: both of a round were measured at nearly the same moment."""
    return [mine / yours for mine, yours in zip(ours, theirs, strict=True) if yours]


def beside(found: Runs, read: Callable[[Any], float], ours: str = OURS) -> list[str]:
    """What each of the others took, and how many times ours that is."""
    mine = found[ours].numbers(read)
    cells = []
    for name, each in found.items():
        if name == ours:
            continue
        if each.absent:
            cells.append(f"{name}: {each.absent}")
            continue
        theirs = each.numbers(read)
        times = ratios(theirs, mine)  # none where ours is too small to be seen
        cells.append(f"{name} {told(theirs)}" + (f", {short(statistics.median(times))}x" if times else ""))
    return cells


def fastest(
    found: Runs, names: Sequence[str], read: Callable[[Any], float]
) -> tuple[str, list[float]] | None:
    """Of those that could be measured, who takes least, and our ratios to it; None if there is nobody."""
    there = [name for name in names if not found[name].absent]
    if not there:
        return None
    best = min(there, key=lambda name: statistics.median(found[name].numbers(read)))
    return best, ratios(found[OURS].numbers(read), found[best].numbers(read))


def growth(runs: Mapping[int, Runs], read: Callable[[Any], float]) -> dict[str, list[float | None]]:
    """The medians of each at each amount of work; None where it was not measured."""
    names = list(dict.fromkeys(name for found in runs.values() for name in found))

    def at(times: int, name: str) -> float | None:
        each = runs[times].get(name)
        return statistics.median(each.numbers(read)) if each is not None and each.rounds else None

    grown = {name: [at(times, name) for times in GROWTH if times in runs] for name in names}
    return {name: values for name, values in grown.items() if any(value is not None for value in values)}
