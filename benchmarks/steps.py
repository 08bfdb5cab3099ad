"""What one step of an environment costs, beside the tool that it calls, and how that grows with the episode.

python benchmarks/steps.py [--steps 6000] [--turns 4 16 64]

The garbage collector stays on, as it does in training; what the process held before is kept out of its sight,
so that a collection looks at what the episodes made.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent_r1_env import testing
from agent_r1_env.env import ToolEnv
from agent_r1_env.tool import Tool, tool

TURNS = (4, 16, 64)
PAGE = "Corliss Archer is a fictional American teenage girl who began in short stories. " * 4
WAITS, ENVS, WAIT = 2, 64, 0.05


def lookup(query: str, limit: int = 3) -> str:
    """Look up a subject.

    Args:
        query: What to look for.
        limit: How many pages, at most.
    """
    return f"{query} {limit}: {PAGE}"


async def looked_up(query: str, limit: int = 3) -> str:
    """Look up a subject.

    Args:
        query: What to look for.
        limit: How many pages, at most.
    """
    return lookup(query, limit)


def wait(query: str) -> str:
    """Look up a subject, slowly.

    Args:
        query: What to look for.
    """
    time.sleep(WAIT)
    return PAGE


async def waited(query: str) -> str:
    """Look up a subject, slowly.

    Args:
        query: What to look for.
    """
    await asyncio.sleep(WAIT)
    return PAGE


@dataclass(frozen=True)
class Cost:
    """Microseconds of a step: wall time, and the CPU time of the whole process."""

    median: float
    p99: float
    cpu: float


def cost(walls: list[float], cpu: float) -> Cost:
    ordered = sorted(walls)
    worst = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Cost(statistics.median(ordered) * 1e6, worst * 1e6, cpu / len(walls) * 1e6)


def bare(function: Callable[..., Any], steps: int) -> Cost:
    """The function of the tool, called by itself."""
    walls = []
    began = time.process_time()
    for number in range(steps):
        start = time.perf_counter()
        function(query=f"page {number}")
        walls.append(time.perf_counter() - start)
    return cost(walls, time.process_time() - began)


def replies(calls: bool, turns: int) -> list[str]:
    """Replies of an episode, none of which ends it."""
    if calls:
        return [
            f"<think>Next.</think>\n{testing.call('lookup', query=f'page {turn}')}" for turn in range(turns)
        ]
    return [f"<think>Next.</think>\nI wonder about page {turn}." for turn in range(turns)]


def environment(tools: list[Tool], turns: int) -> ToolEnv:
    return testing.sum_env(tools, max_steps=turns + 1, system="Answer the question in <answer></answer>.")


def episodes(steps: int, turns: int) -> Iterator[None]:
    for _ in range(max(1, steps // turns)):
        yield


def stepped(tools: list[Tool], calls: bool, turns: int, steps: int) -> Cost:
    """Steps from a plain thread."""
    env, said, walls, cpu = environment(tools, turns), replies(calls, turns), [], 0.0
    for _ in episodes(steps, turns):
        env.reset(seed=0)
        began = time.process_time()
        for reply in said:
            start = time.perf_counter()
            env.step(reply)
            walls.append(time.perf_counter() - start)
        cpu += time.process_time() - began
    env.close()
    return cost(walls, cpu)


async def stepped_async(tools: list[Tool], calls: bool, turns: int, steps: int) -> Cost:
    """Steps from an event loop."""
    env, said, walls, cpu = environment(tools, turns), replies(calls, turns), [], 0.0
    for _ in episodes(steps, turns):
        env.reset(seed=0)
        began = time.process_time()
        for reply in said:
            start = time.perf_counter()
            await env.step_async(reply)
            walls.append(time.perf_counter() - start)
        cpu += time.process_time() - began
    await asyncio.to_thread(env.close)
    return cost(walls, cpu)


async def at_once(slow: Tool) -> float:
    """Seconds until 64 environments have made two calls of a slow tool each."""
    envs = [environment([slow], WAITS) for _ in range(ENVS)]
    said = testing.call(slow.name, query="page 1")

    async def play(env: ToolEnv) -> None:
        for _ in range(WAITS):
            await env.step_async(said)

    for env in envs:
        env.reset(seed=0)
    gc.collect()
    began = time.perf_counter()
    await asyncio.gather(*map(play, envs))
    return time.perf_counter() - began


def table(turns: list[int], steps: int) -> list[tuple[str, list[Cost]]]:
    """Ways to step, each with its costs at so many turns an episode."""
    kinds = [
        ("no call", [tool(lookup)], False),
        ("an inline function", [tool(inline=True)(lookup)], True),
        ("a function", [tool(lookup)], True),
        ("a coroutine function", [tool(name="lookup")(looked_up)], True),
    ]
    rows = [("the function alone", [bare(lookup, steps)] * len(turns))]
    for name, tools, calls in kinds:
        rows.append((name, [stepped(tools, calls, each, steps) for each in turns]))
        awaited = [asyncio.run(stepped_async(tools, calls, each, steps)) for each in turns]
        rows.append((f"{name}, in an event loop", awaited))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6000, help="timed steps of each row and column")
    parser.add_argument("--turns", type=int, nargs="+", default=list(TURNS))
    parser.add_argument("--repeats", type=int, default=10, help="of the environments that wait at once")
    options = parser.parse_args()
    table(options.turns[:1], 200)  # what is made once is made
    gc.collect()
    gc.freeze()
    heads = " | ".join(f"{each} turns" for each in options.turns)
    print("Microseconds of a step: median, 99th percentile, CPU time.\n")
    print(f"| step with | {heads} |\n| --- |{' --- |' * len(options.turns)}")
    for name, costs in table(options.turns, options.steps):
        cells = " | ".join(f"{each.median:.1f}, {each.p99:.0f}, {each.cpu:.1f}" for each in costs)
        print(f"| {name} | {cells} |")
    print(f"\n{ENVS} environments at once, {WAITS} calls of {WAIT * 1000:g} ms: the best and the median")
    for slow in (tool(wait), tool(waited)):
        took = [asyncio.run(at_once(slow)) for _ in range(options.repeats)]
        print(f"{slow.name}: {min(took) * 1000:.1f}, {statistics.median(took) * 1000:.1f}")


if __name__ == "__main__":
    main()
