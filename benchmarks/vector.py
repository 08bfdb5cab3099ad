"""What a vector of environments costs: one after the other, on threads and in processes.

python benchmarks/vector.py [--envs 16] [--wait 0.05] [--steps 10] [--repeats 3]

One table for a tool that waits, one for a tool that answers at once: there, all that is left is the cost of
the vector itself. Prints Markdown.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from agent_r1_env import testing
from agent_r1_env.env import ToolEnv
from agent_r1_env.tool import Tool
from agent_r1_env.vector import ThreadVectorEnv

VECTORS: dict[str, Callable[..., VectorEnv]] = {
    "SyncVectorEnv": SyncVectorEnv,
    "ThreadVectorEnv": ThreadVectorEnv,
    "AsyncVectorEnv, shared memory": AsyncVectorEnv,
    "AsyncVectorEnv, pipes": functools.partial(AsyncVectorEnv, shared_memory=False),
}


def pause(wait: float) -> str:
    """Answer after some seconds; at once where they are 0."""
    if wait:
        time.sleep(wait)
    return "done"


def make(wait: float, steps: int) -> gym.Env[str, str]:
    """An environment whose tool waits."""
    run = functools.partial(pause, wait)
    tool = Tool("pause", "Wait.", {"type": "object", "properties": {}}, run)
    return ToolEnv(testing.sums(), [tool], max_steps=steps + 1)


def step_seconds(vector: Callable[..., VectorEnv], envs: int, wait: float, steps: int) -> float:
    """Seconds of one step of the whole vector, the median of an episode."""
    made = vector([functools.partial(make, wait, steps)] * envs)
    try:
        made.reset(seed=0)
        actions = [testing.call("pause")] * envs
        made.step(actions)  # threads are begun with the first call
        times = []
        for _ in range(steps - 1):
            began = time.perf_counter()
            made.step(actions)
            times.append(time.perf_counter() - began)
        return statistics.median(times)
    finally:
        made.close()


def table(envs: int, wait: float, steps: int, repeats: int) -> str:
    """The best of some runs of each vector, and how many times faster than the first it is."""
    seconds = {
        name: min(step_seconds(vector, envs, wait, steps) for _ in range(repeats))
        for name, vector in VECTORS.items()
    }
    first = next(iter(seconds.values()))
    lines = [
        f"{envs} environments, a tool of {wait * 1e3:g} ms",
        "",
        "| vector | ms a step | times as fast |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {took * 1e3:.2f} | {first / took:.2f} |" for name, took in seconds.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--wait", type=float, default=0.05, help="seconds that the tool waits")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    for wait in (chosen.wait, 0.0):
        print(table(chosen.envs, wait, chosen.steps, chosen.repeats), end="\n\n")


if __name__ == "__main__":
    main()
