"""The last screen of a training run: what came out, where it lies, and what to try next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_r1_env.recipe import Recipe

_EVAL_OPTIONS = ("data", "corpus", "split", "source")  # of the command line; all others go through --set
_NAMES = {"exact_match": "EM", "f1": "F1"}


def screen(plan: Recipe, name: str, found: Mapping[str, Any]) -> str:
    """What a person wants to know at the end, and what to do next."""
    folder = Path(found["output"])
    near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    seconds = found["seconds"]
    phases = ", ".join(f"{phase.replace('_', ' ')} {_duration(took)}" for phase, took in seconds.items())
    lines = [
        "",
        f"{plan.name}: {found['steps']} updates in {_duration(sum(seconds.values()))} ({phases})",
        "",
    ]
    lines += _scores(found["before"], found["after"])
    best, policy = found["best"], near / "policy"
    lines += [f"curve      {near / 'reward.png'}", f"episodes   {near / 'episodes.jsonl'}"]
    lines.append(f"policy     {policy}")
    if best is not None:
        lines += [f"best       {near / 'best'}", *_best(best, found)]
        policy = near / "best" if best["step"] < found["steps"] else policy
    lines += [*_warnings(found["warnings"], near), "", "next:", "  " + _eval_command(plan, str(policy))]
    if plan.loss_mask:
        lines.append(f"  agent-r1 train {name} --no-loss-mask   # what training on tool results does")
    return "\n".join(lines)


def _eval_command(plan: Recipe, policy: str) -> str:
    """The command that evaluates a policy as this run did."""
    words = ["agent-r1", "eval", plan.env, "--model", policy]
    for name, value in plan.eval.env_kwargs.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{name}", text] if name in _EVAL_OPTIONS else ["--set", f"{name}={text}"]
    temperature = plan.trl.get("temperature", 1.0) if plan.eval.temperature is None else plan.eval.temperature
    words += ["--temperature", f"{temperature:g}", "--n", str(plan.eval.episodes or 200)]
    if "max_completion_length" in plan.trl:
        words += ["--max-tokens", str(plan.trl["max_completion_length"])]
    return shlex.join(words)


def _scores(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    if before is None or after is None:
        return []
    shown = [name for name in _NAMES if name in before["metrics"] and name in after["metrics"]]
    rows = [(_NAMES[name], before["metrics"][name], after["metrics"][name]) for name in shown]
    rows = rows or [("reward", before["reward"], after["reward"])]
    lines = [_row(f"{after['n']} held-out tasks", "before", "after", "")]
    for label, old, new in rows:
        lines.append(_row(label, _interval(old), _interval(new), f"{new['mean'] - old['mean']:+.3f}"))
    for key in ("tool_call_rate", "invalid_call_rate"):
        lines.append(_row(key.replace("_", " "), f"{before[key]:.3f}", f"{after[key]:.3f}", ""))
    return [*lines, f"(questions from {after['data']}; 95 % intervals)", ""]


def _best(best: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Where the best policy comes from, and why its score is not to be believed."""
    name = best["metric"]
    label = _NAMES.get(name, name)
    when = "the last update" if best["step"] == found["steps"] else f"update {best['step']}"
    start = {**found["before"]["metrics"], "reward": found["before"]["reward"]}[name]["mean"]
    lines = [f"  {label} {best['value']:.3f} after {when}; chosen on these tasks, so likely worse on others"]
    if start is not None and best["value"] <= start:
        lines.append(f"  no better than before training, which was {start:.3f}")
    return lines


def _warnings(warnings: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """The last warning of each kind."""
    if not warnings:
        return []
    latest = {each["kind"]: each for each in warnings}
    lines = [f"warnings   {folder / 'health.jsonl'}   # what to try stands there"]
    return lines + [f"  {kind} at update {each['step']}: {each['seen']}" for kind, each in latest.items()]


def _row(*cells: str) -> str:
    return "{:22}{:24}{:24}{}".format(*cells).rstrip()


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
