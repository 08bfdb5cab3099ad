"""What comes before the first step: the import, a first environment with its reset, and a thousand of them.

To be run in a process that has imported nothing yet, so each number is had once a process; see ``worker.py``.
"""

from __future__ import annotations

import gc
import importlib
import time
from pathlib import Path
from typing import Any

import search_task

COUNT = 1000


def resident() -> float:
    """MB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def imported(package: str) -> dict[str, float]:
    """Seconds and MB of an import."""
    before, began = resident(), time.perf_counter()
    importlib.import_module(package)
    return {"import": time.perf_counter() - began, "imported": resident() - before}


def begun(package: str, module: str, count: int = COUNT) -> dict[str, float]:
    """The same, and a new environment at the beginning of an episode: the seconds of one, the MB of many.

    Args:
        module: of this folder; its function ``begun`` makes the environment.
    """
    found = imported(package)
    make = importlib.import_module(module).begun
    return {**found, **_measured(lambda number: make(search_task.QUESTIONS[number % 200]), count)}


def catalogue(env_id: str, count: int = COUNT) -> dict[str, float]:
    """The same for an environment of the catalogue, with its own questions and paragraphs."""
    found = imported("agent_r1_env")
    import gymnasium as gym

    began = time.perf_counter()
    first = gym.make(env_id)
    made = time.perf_counter()
    first.reset(seed=0)
    return {
        **found,
        "make": made - began,
        "reset": time.perf_counter() - made,
        "memory": _measured(lambda number: _reset(gym.make(env_id), number), count)["memory"],
    }


def _reset(env: Any, number: int) -> Any:
    env.reset(seed=number)
    return env


def _measured(make: Any, count: int) -> dict[str, float]:
    began = time.perf_counter()
    held = [make(0)]
    first = time.perf_counter() - began
    gc.collect()
    before = resident()
    held += [make(number) for number in range(count)]
    memory = resident() - before
    if len(held) != count + 1:
        raise ValueError(f"{len(held)} environments")
    return {"reset": first, "memory": memory}
