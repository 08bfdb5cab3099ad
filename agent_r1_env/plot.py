"""The curves of a training run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_RATES = {
    "agent/exact_match": "exact match",
    "agent/tool_call_rate": "replies with a tool call",
    "agent/invalid_call_rate": "invalid calls",
    "agent/truncated_fraction": "truncated episodes",
}


def save_curve(
    logged: Sequence[Mapping[str, Any]],
    path: Path,
    title: str,
    evaluated: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Draw reward and rates over the updates; nothing is drawn while there is no update.

    Args:
        evaluated: scores on held-out tasks, drawn as points with their 95 % intervals.
    """
    from matplotlib.figure import Figure  # not pyplot, which would keep state and choose a window

    entries = [entry for entry in logged if "reward" in entry]
    if not entries:
        return
    steps = [entry["step"] for entry in entries]
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    reward = [entry["reward"] for entry in entries]
    above.plot(steps, reward, color="0.75", label="each update")
    above.plot(steps, _smooth(reward), color="C0", label="moving average")
    _points(above, evaluated, "reward", "held-out tasks")
    above.set(title=title, ylabel="reward of an episode")
    for name, label in _RATES.items():
        points = [(entry["step"], entry[name]) for entry in entries if entry.get(name) is not None]
        if points:
            below.plot(*zip(*points, strict=True), label=label)
    _points(below, evaluated, "exact_match", "exact match, held-out tasks")
    below.set(xlabel="update", ylabel="share", ylim=(-0.02, 1.02))
    for axes in (above, below):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _points(axes: Any, evaluated: Sequence[Mapping[str, Any]], name: str, label: str) -> None:
    """Scores of evaluations with their intervals, joined so that the eye can follow."""
    means, lows, highs = (f"eval/{name}{end}" for end in ("", "/low", "/high"))
    points = [entry for entry in evaluated if entry.get(means) is not None]
    if not points:
        return
    below = [entry[means] - entry[lows] for entry in points]
    above = [entry[highs] - entry[means] for entry in points]
    steps, values = [entry["step"] for entry in points], [entry[means] for entry in points]
    axes.errorbar(
        steps, values, (below, above), fmt="o--", color="black", capsize=3, linewidth=1, label=label
    )


def _smooth(values: Sequence[float], width: int = 5) -> list[float]:
    """Mean of each value with those just before it."""
    windows = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]
