"""What calling tools costs: 64 episodes at once against the ideal, and one call of an instant tool.

python benchmarks/tools.py [--episodes 64] [--repeats 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from agent_r1_env import testing
from agent_r1_env.env import ToolEnv
from agent_r1_env.limits import Caching, Rate, Retries
from agent_r1_env.messages import ToolCall
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Toolbox

WAIT = 0.05
CALLS = 2
OBJECT = {"type": "object", "properties": {}}


async def wait() -> str:
    await asyncio.sleep(WAIT)
    return "done"


def block() -> str:
    time.sleep(WAIT)
    return "done"


async def ainstant() -> str:
    return "done"


def instant() -> str:
    return "done"


def tool(run: Callable[..., Any], name: str = "t", **limits: Any) -> Tool:
    return Tool(name, "Wait.", OBJECT, run, **limits)


async def episode(env: ToolEnv, begin: asyncio.Event, names: Sequence[str]) -> None:
    env.reset(seed=0)
    await begin.wait()
    for name in names:
        await env.step_async(testing.call(name))


async def batch(
    tools: Sequence[Tool], episodes: int, names: Sequence[str], hang: Tool | None = None
) -> float:
    """Seconds until all episodes are done; one more hangs meanwhile, if asked for."""
    envs = [testing.sum_env(tools) for _ in range(episodes)]
    begin = asyncio.Event()
    running = [asyncio.create_task(episode(env, begin, names)) for env in envs]
    stuck = []
    if hang is not None:
        env = testing.sum_env([hang])
        stuck = [asyncio.create_task(episode(env, begin, [hang.name]))]
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    begin.set()
    await asyncio.gather(*running)
    took = time.perf_counter() - began
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)
    return took


def batches(episodes: int, repeats: int) -> list[tuple[str, float]]:
    """Kinds of batches with the best of their times, in seconds."""
    gate = threading.Event()

    def hang() -> None:
        gate.wait()

    async def ahang() -> None:
        await asyncio.sleep(3600)

    kinds: list[tuple[str, list[Tool], Tool | None]] = [
        ("coroutine", [tool(wait)], None),
        ("function", [tool(block)], None),
        ("coroutine, beside a coroutine that hangs", [tool(wait)], tool(ahang, "hang", timeout=30)),
        ("function, beside a function that hangs", [tool(block)], tool(hang, "hang", timeout=30)),
        ("coroutine, 64 at a time", [tool(wait, concurrency=episodes)], None),
        (
            "function, with retries and a rate",
            [tool(block, retries=Retries(2), rate_limit=Rate(10**6))],
            None,
        ),
    ]
    found = [
        (name, min(asyncio.run(batch(tools, episodes, ["t"] * CALLS, stuck)) for _ in range(repeats)))
        for name, tools, stuck in kinds
    ]
    instant_time = min(asyncio.run(batch([tool(instant)], episodes, ["t"] * CALLS)) for _ in range(repeats))
    gate.set()
    bare = min(asyncio.run(_sleeping(episodes)) for _ in range(repeats))
    found.insert(0, ("none: asyncio.sleep alone", bare))
    return [*found, ("function that returns at once", instant_time)]


async def _sleeping(episodes: int) -> float:
    async def sleep() -> None:
        for _ in range(CALLS):
            await asyncio.sleep(WAIT)

    began = time.perf_counter()
    await asyncio.gather(*(sleep() for _ in range(episodes)))
    return time.perf_counter() - began


def one_call(repeats: int) -> list[tuple[str, float, float]]:
    """Median seconds of one call of a tool that returns at once, from a thread and from an event loop."""
    kinds = [
        ("function", tool(instant)),
        ("coroutine", tool(ainstant)),
        ("function, one at a time", tool(instant, concurrency=1)),
        ("function, with a rate", tool(instant, rate_limit=Rate(10**6))),
        ("function, with retries", tool(instant, retries=Retries(2))),
        ("function, with a cache", tool(instant, cache=Caching())),
    ]
    found = []
    for name, made in kinds:
        box, calls = Toolbox([made]), [ToolCall("t", {}, "1")]
        sync = _median(lambda box=box, calls=calls: box.run(calls), repeats * 200)
        found.append((name, sync, asyncio.run(_median_async(box, calls, repeats * 200))))
    return found


def _median(run: Callable[[], Any], times: int) -> float:
    run()
    return statistics.median(_timed(run) for _ in range(times))


def _timed(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


async def _median_async(box: Toolbox, calls: list[Any], times: int) -> float:
    costs = []
    for _ in range(times):
        began = time.perf_counter()
        await box.run_async(calls)
        costs.append(time.perf_counter() - began)
    return statistics.median(costs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    ideal = WAIT * CALLS
    *found, (_, overhead) = batches(options.episodes, options.repeats)
    calls = f"{CALLS} calls of {WAIT * 1000:g} ms"
    print(f"{options.episodes} episodes at once with {calls} each; the ideal is {ideal * 1000:g} ms.")
    print(f"The same with a tool that returns at once takes {overhead * 1000:.1f} ms: the overhead.\n")
    print("| tool | ms | to the ideal | to the ideal and the overhead |")
    print("| --- | --- | --- | --- |")
    for name, took in found:
        print(f"| {name} | {took * 1000:.1f} | {took / ideal:.2f} | {took / (ideal + overhead):.2f} |")
    print("\n| one call of a tool that returns at once | us, from a thread | us, from an event loop |")
    print("| --- | --- | --- |")
    for name, sync, awaited in one_call(options.repeats):
        print(f"| {name} | {sync * 1e6:.0f} | {awaited * 1e6:.0f} |")


if __name__ == "__main__":
    main()
