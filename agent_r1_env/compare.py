"""Is one evaluation better than another by more than chance? Both on the same tasks, task by task."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_r1_env import measures
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.statistics import Paired, holm, paired
from agent_r1_env.summary import Evaluation, without_nan
from agent_r1_env.tables import column_of

LEVEL = 0.05
"""Below this, a corrected p-value is called a difference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations of the same tasks, ``a`` being what ``b`` is measured against.

    Attributes:
        a: name of the first.
        b: name of the second.
        tasks: tasks with episodes in both.
        only_a: tasks of the first alone; they count nowhere.
        only_b: tasks of the second alone.
        metrics: by name of the measure; differences are second minus first.
        corrected: p-values by name of the measure, after Holm's correction for their number.
    """

    env_id: str
    data: str
    synthetic: bool
    a: str
    b: str
    tasks: int
    only_a: int
    only_b: int
    metrics: Mapping[str, Paired]
    corrected: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is not known is None."""
        data: dict[str, Any] = without_nan(asdict(self))
        return data

    def direction(self, metric: str) -> str:
        """``"higher"``, ``"lower"`` or ``"no difference"``: what is known of the second with ``LEVEL``."""
        if self.corrected[metric] >= LEVEL:
            return "no difference"
        return "higher" if self.metrics[metric].difference.mean > 0 else "lower"


def compare(
    a: Evaluation,
    b: Evaluation,
    metrics: Sequence[str] = (),
    *,
    names: tuple[str, str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two evaluations on the tasks that both have; several samples of a task count as their mean.

    Args:
        metrics: names of measures, see `agent_r1_env.measures`; by default the headlines that both have.
        names: of the two, for people; by default policy and method.
        seed: of what is drawn at random.

    Raises:
        AgentR1Error: they are of different environments or data, have no task in common, or a measure
            that cannot be paired.
        UnknownName: a measure that neither has.
    """
    _check_same(a, b)
    shown = names or (_name(a), _name(b))
    tasks_a, tasks_b = (measures.by_task(each, "reward").keys() for each in (a, b))
    if not tasks_a & tasks_b:
        raise AgentR1Error(
            f"no task in common: {shown[0]} has {len(tasks_a)} and {shown[1]} has {len(tasks_b)} others; "
            "the same --n, --seed and --shard choose the same tasks"
        )
    _warn(a, b)
    measures.check_names(metrics, (a, b))
    pairs = {name: _pairs(a, b, name) for name in metrics or _defaults(a, b)}
    found = {name: paired(*each, seed=seed) for name, each in pairs.items()}
    corrected = holm([each.p for each in found.values()])
    return Comparison(
        env_id=a.env_id,
        data=a.data,
        synthetic=a.synthetic,
        a=shown[0],
        b=shown[1],
        tasks=len(tasks_a & tasks_b),
        only_a=len(tasks_a - tasks_b),
        only_b=len(tasks_b - tasks_a),
        metrics=found,
        corrected=dict(zip(found, corrected, strict=True)),
    )


def report(found: Comparison) -> str:
    """A comparison for a person."""
    several = len(found.metrics) > 1
    head = ["metric", "A", "B", "B - A", "higher/lower", "p", *(["p (Holm)"] if several else [])]
    rows = [head]
    for name, each in found.metrics.items():
        digits = measures.decimals(name)
        bounds = f"[{each.difference.low:+z.{digits}f}, {each.difference.high:+z.{digits}f}]"
        row = [name, f"{each.a:.{digits}f}", f"{each.b:.{digits}f}"]
        row += [f"{each.difference.mean:+z.{digits}f} {bounds}", f"{each.higher}/{each.lower}"]
        rows.append(row + [_p(each.p)] + ([_p(found.corrected[name])] if several else []))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    left = [f"{count} only in {side}" for side, count in (("A", found.only_a), ("B", found.only_b)) if count]
    return "\n".join(
        [
            f"A: {found.a}",
            f"B: {found.b}",
            f"{found.env_id}{', synthetic questions' if found.synthetic else ''}: "
            f"{', '.join([f'{found.tasks} tasks in both', *left])}",
            "",
            *lines,
            "",
            *(_verdict(found, name) for name in found.metrics),
            "",
            "B - A: paired bootstrap, 95 %. higher/lower: tasks on which B is. p: "
            + ", ".join(dict.fromkeys(f"{each.test} test" for each in found.metrics.values()))
            + ", two-sided.",
        ]
    )


def _verdict(found: Comparison, name: str) -> str:
    each, direction = found.metrics[name], found.direction(name)
    if direction != "no difference":
        return f"{name}: B is {direction} (p = {_p(found.corrected[name])})"
    told = f"{name}: no difference shown (p = {_p(found.corrected[name])})"
    if each.detectable == each.detectable:
        size = f"{each.detectable:.{measures.decimals(name)}f}"
        told += f"; one of {size} would show 4 times in 5"
    return told


def _check_same(a: Evaluation, b: Evaluation) -> None:
    if a.env_id != b.env_id:
        raise AgentR1Error(f"only runs of one environment can be compared, got {a.env_id} and {b.env_id}")
    if column_of(a) != column_of(b):
        raise AgentR1Error(
            f"only runs on the same questions can be compared; one has {a.data}, the other {b.data}"
        )


def _warn(a: Evaluation, b: Evaluation) -> None:
    if a.samples != b.samples:
        warnings.warn(
            f"one has {a.samples} and the other {b.samples} samples of each task: their means are compared, "
            "and the one with fewer varies more",
            stacklevel=3,
        )
    for each in (a, b):
        if each.failed:
            warnings.warn(
                f"{each.failed} episodes of {_name(each)} failed because the environment broke; they count "
                "nowhere",
                stacklevel=3,
            )


def _defaults(a: Evaluation, b: Evaluation) -> list[str]:
    names = measures.headlines((a, b))
    return [name for name in names if all(measures.by_task(each, name) for each in (a, b))] or ["reward"]


def _pairs(a: Evaluation, b: Evaluation, name: str) -> tuple[list[float], list[float]]:
    """The scores of all tasks that both have."""
    first, second = measures.by_task(a, name), measures.by_task(b, name)
    both = [task for task in first if task in second]
    if not both:
        raise AgentR1Error(
            f"{name} cannot be paired: it is not there for the same tasks of both, or is a share over all of "
            f"them; there are: {', '.join(each for each in measures.names(a) if measures.by_task(b, each))}"
        )
    return [first[task] for task in both], [second[task] for task in both]


def _name(found: Evaluation) -> str:
    return ", ".join(filter(None, (found.policy, found.method)))


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"
