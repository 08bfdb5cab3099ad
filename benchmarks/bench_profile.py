"""Where our side of a row spends its time, as py-spy sees it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_line import Settings
from contest import HERE, PEERS, BenchError

PROFILED: dict[str, tuple[str, dict[str, Any]]] = {
    "steps": ("ours:steps", {"tool": "constant", "searches": 2, "episodes": 2000}),
    "waiting": ("ours:waiting", {"episodes": 1024}),
    "heavy": ("ours:heavy", {"episodes": 2048}),
    "trajectory": ("ours_training:building", {"episodes": 300}),
    "search": ("search_ours:search", {}),
    "start": ("start:imported", {"package": "agent_r1_env"}),
}
ROUNDS = {"start": 1}
SHOWN = 25
LINE = re.compile(r":\d+\)$")
"""What tells a frame's line: samples are added up by function."""


def profile(row: str, settings: Settings) -> str:
    """The functions in which most samples lie, by themselves and with what they call.

    Raises:
        BenchError: py-spy is not there, or it could not look into the process.
    """
    spy = PEERS.with_name("py-spy")
    if not spy.exists():
        raise BenchError(f"no {spy}; `make .venv-peers` installs it")
    target, options = PROFILED[row]
    if row == "search":
        options = {"folder": str(settings.folder / f"search-{settings.paragraphs}"), "paragraphs": 0}
    lines = (json.dumps(options) + "\n") * ROUNDS.get(row, 3)
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder, "samples")
        command = [spy, "record", "--rate", "500", "--format", "raw", "--output", samples, "--"]
        run = subprocess.run(
            [*command, sys.executable, HERE / "worker.py", target],
            input=lines,
            capture_output=True,
            text=True,
        )
        if not samples.exists():
            raise BenchError(f"py-spy failed: {run.stderr.strip()[-500:]}")
        return told(samples.read_text().splitlines())


def told(samples: Sequence[str]) -> str:
    """A Markdown table of collapsed stacks, each with its number of samples at its end."""
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for sample in samples:
        stack, _, number = sample.rpartition(" ")
        frames = [LINE.sub(")", frame) for frame in stack.split(";")]
        alone[frames[-1]] += int(number)
        for frame in set(frames):
            within[frame] += int(number)
    every = sum(alone.values()) or 1
    rows = [
        f"| {alone[frame] / every:.1%} | {within[frame] / every:.1%} | `{frame}` |"
        for frame, _ in alone.most_common(SHOWN)
    ]
    deep = [
        f"| {within[frame] / every:.1%} | `{frame}` |"
        for frame, _ in within.most_common(2 * SHOWN)
        if "agent_r1_env" in frame
    ]
    return "\n".join(
        [
            f"{every:,} samples\n",
            "| alone | with what it calls | function |",
            "|---|---|---|",
            *rows,
            "\n| with what it calls | our function |",
            "|---|---|",
            *deep,
        ]
    )
