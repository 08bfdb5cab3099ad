"""Evaluations as tables: methods by data sets for one measure, or every measure of each evaluation.

The first is the layout in which results are published: a row for each policy and method, a column for each
data set, and their unweighted mean.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_r1_env import measures
from agent_r1_env.methods import DIRECT, METHODS, NAIVE_RAG, TOOL_CALL
from agent_r1_env.statistics import Interval, average
from agent_r1_env.summary import Evaluation

_TITLES = {"exact_match": "Exact match", "sub_exact_match": "Sub-exact match", "f1": "F1", "reward": "Reward"}
_METHODS = {DIRECT: "Direct", NAIVE_RAG: "Naive RAG", TOOL_CALL: "Tool call"}
_FIRST = ("HotpotQA", "2WikiMultihopQA", "MuSiQue")  # as results over them are published
_PATH = re.compile(r"""(['"])[^'"]*/([^'"/]+)\1""")
Column = tuple[str, str]
"""Environment id and data."""


class Row(NamedTuple):
    """What a row of methods by data sets stands for; ``run`` counts equal ones from 1."""

    policy: str
    method: str
    seed: int
    samples: int
    run: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a table.

    Attributes:
        value: None where there is none.
        decimals: how many to show.
        best: none in its column is better; False where it is not known what is better.
    """

    value: Interval | None
    decimals: int = 3
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table as people read it; `tableformats` writes it down.

    Attributes:
        corner: heads the first column, which names the rows.
        columns: heads of all others.
        rows: name and cells of each.
        notes: sentences below it.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()


def tables(
    evaluations: Sequence[Evaluation], metrics: Sequence[str] = (), *, long: bool = False
) -> list[Table]:
    """One table for each measure, or a long one of all measures.

    Args:
        metrics: names of measures, see `agent_r1_env.measures`; by default its headlines.
        long: one table with a row for each measure and a column for each evaluation; the default for a
            single evaluation if no measures are named.

    Raises:
        UnknownName: none of the evaluations has such a measure.
    """
    measures.check_names(metrics, evaluations)
    if long or (len(evaluations) == 1 and not metrics):
        return [_long(evaluations, metrics)]
    return [_grid(evaluations, name) for name in metrics or measures.headlines(evaluations)]


def records(evaluations: Sequence[Evaluation], metrics: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Plain data: a row for each evaluation and measure; what is not known is None.

    Raises:
        UnknownName: none of the evaluations has such a measure.
    """
    measures.check_names(metrics, evaluations)
    return [
        {**_about(found), "metric": name, **_numbers(value)}
        for found in evaluations
        for name in metrics or measures.names(found)
        if (value := measures.measure(found, name)) is not None
    ]


def column_of(found: Evaluation) -> Column:
    """What makes two evaluations comparable: the environment, and its data wherever the file lies."""
    return found.env_id, _PATH.sub(r"\1\2\1", found.data)


def _grid(evaluations: Sequence[Evaluation], name: str) -> Table:
    columns, rows = _columns(evaluations), _rows(evaluations)
    labels = _row_labels(rows)
    cells: dict[Row, dict[Column, Interval | None]] = {row: {} for row in labels}
    for row, found in zip(rows, evaluations, strict=True):
        cells[row][column_of(found)] = measures.measure(found, name)
    lines = [_with_average([cells[row].get(column) for column in columns]) for row in labels]
    heads = [*columns.values(), "Avg"] if len(columns) > 1 else [*columns.values()]
    return Table(
        _title(evaluations, name),
        "Method",
        tuple(heads),
        tuple(zip(labels.values(), _marked(lines, name), strict=True)),
        _notes(evaluations, (name,)),
    )


def _long(evaluations: Sequence[Evaluation], metrics: Sequence[str]) -> Table:
    names = metrics or list(dict.fromkeys(name for found in evaluations for name in measures.names(found)))
    columns, rows = _columns(evaluations), _rows(evaluations)
    names_of = _row_labels(rows)
    labels = [
        f"{names_of[row]}, {columns[column_of(found)]}" for row, found in zip(rows, evaluations, strict=True)
    ]
    lines = []
    for name in names:
        values = [measures.measure(found, name) for found in evaluations]
        lines.append((name, tuple(Cell(value, measures.decimals(name)) for value in values)))
    return Table("Measures", "Measure", tuple(labels), tuple(lines), _notes(evaluations, names))


def _columns(evaluations: Sequence[Evaluation]) -> dict[Column, str]:
    """The head of every column, in the order of columns."""
    found = {column_of(each): each for each in reversed(evaluations)}
    keys = sorted(dict.fromkeys(map(column_of, evaluations)), key=lambda key: _place(short(key[0]), _FIRST))
    spelt = []
    for env_id, data in keys:
        mark = " (synthetic)" if found[env_id, data].synthetic else ""
        spelt.append([short(env_id) + mark, env_id + mark, f"{env_id}{mark}: {data}"])
    return dict(zip(keys, _distinct(spelt), strict=True))


def _rows(evaluations: Sequence[Evaluation]) -> list[Row]:
    """The row of every evaluation; equal runs get rows of their own."""
    seen = Counter[Any]()
    rows = []
    for found in evaluations:
        same = found.policy, found.method, found.seed, found.samples
        seen[same, column_of(found)] += 1
        rows.append(Row(*same, run=seen[same, column_of(found)]))
    return rows


def _row_labels(rows: Sequence[Row]) -> dict[Row, str]:
    """A name for every row that says no more than tells them apart.

    In the order of the table: by policy as they appear, then by method.
    """
    policies = list(dict.fromkeys(row.policy for row in rows))
    order = sorted(
        dict.fromkeys(rows), key=lambda row: (policies.index(row.policy), _place(row.method, METHODS))
    )
    several = {name: len({getattr(row, name) for row in order}) > 1 for name in Row._fields}
    spelt = []
    for row in order:
        method = _METHODS.get(row.method, row.method)
        parts = [row.policy if several["policy"] or not several["method"] else ""]
        parts.append(method if several["method"] or not row.policy else "")
        label = ", ".join(filter(None, parts))
        details = [f"{name} {getattr(row, name)}" for name in ("seed", "samples") if several[name]]
        full = ", ".join([label, *details])
        spelt.append([label, full, f"{full}, run {row.run}"])
    return dict(zip(order, _distinct(spelt), strict=True))


def _distinct(spelt: Sequence[Sequence[str]]) -> list[str]:
    """The shortest spelling of each thing that is no other's, too."""
    chosen = [each[0] for each in spelt]
    for level in range(1, len(spelt[0])):
        times = Counter(chosen)
        chosen = [
            label if times[label] == 1 else each[level] for label, each in zip(chosen, spelt, strict=True)
        ]
    return chosen


def _with_average(values: list[Interval | None]) -> list[Interval | None]:
    """The values and their mean, which there is only where no data set lacks."""
    if len(values) < 2:
        return values
    known = [value for value in values if value is not None]
    return [*values, average(known) if len(known) == len(values) else None]


def _marked(lines: Sequence[Sequence[Interval | None]], name: str) -> list[tuple[Cell, ...]]:
    """Cells of every row, the best of each column marked where there is more than one."""
    sign, digits = measures.better(name), measures.decimals(name)
    columns = []
    for values in zip(*lines, strict=True):
        means = [sign * value.mean for value in values if value is not None and value.mean == value.mean]
        most = max(means) if sign and len(means) > 1 else None
        columns.append(
            [Cell(value, digits, value is not None and sign * value.mean == most) for value in values]
        )
    return list(zip(*columns, strict=True))


def _title(evaluations: Sequence[Evaluation], name: str) -> str:
    title = _TITLES.get(name, name)
    policies = {found.policy for found in evaluations}
    if len(policies) == 1 and len({found.method for found in evaluations}) > 1:
        return f"{title} of {policies.pop()}" if any(policies) else title
    return title


def _notes(evaluations: Sequence[Evaluation], names: Sequence[str]) -> tuple[str, ...]:
    columns = _columns(evaluations)
    sizes = ", ".join(f"{label} {_sizes(evaluations, column)}" for column, label in columns.items())
    notes = ["In brackets: 95 % intervals over tasks.", f"Tasks: {sizes}."]
    if any(name.startswith("pass@") for name in names):
        passing = {short(found.env_id): measures.success(found) for found in evaluations if found.samples > 1}
        for name in dict.fromkeys(filter(None, passing.values())):
            where = ", ".join(env for env, passed_by in passing.items() if passed_by == name)
            notes.append(f"A sample passes if its {name} is 1 ({where}).")
    if any(found.synthetic for found in evaluations):
        notes.append(
            "Synthetic questions are made by a script; their scores say nothing of the real data set."
        )
    if failed := sum(found.failed for found in evaluations):
        notes.append(f"{failed} episodes failed because an environment broke; they count nowhere.")
    return tuple(notes)


def _sizes(evaluations: Sequence[Evaluation], column: Column) -> str:
    """How many tasks were asked, and how often."""
    there = [found for found in evaluations if column_of(found) == column]
    samples = [found.samples for found in there]
    each = "" if max(samples) == 1 else f" with {_span(samples)} samples each"
    return _span([found.tasks for found in there]) + each


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _about(found: Evaluation) -> dict[str, Any]:
    kept = ("env_id", "data", "synthetic", "policy", "method", "samples", "seed", "tasks", "n", "failed")
    return {name: getattr(found, name) for name in kept}


def _numbers(value: Interval) -> Mapping[str, float | None]:
    numbers = {"mean": value.mean, "low": value.low, "high": value.high}
    return {name: None if number != number else number for name, number in numbers.items()}


def short(env_id: str) -> str:
    """The name of a data set: the id without namespace and version."""
    return re.sub(r"-v\d+$", "", env_id.rpartition("/")[2])


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
