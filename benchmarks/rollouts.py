"""What a rollout adds to the time that its tools take.

    python benchmarks/rollouts.py [--episodes N] [--heavy N] [--growth 1 4 16] [--repeats N] [--json FILE]

First table: N episodes (64) of two calls that take 50 ms each, against the same sleeps alone under asyncio,
and against all calls one after the other. Second table: N episodes (512) with tools of lognormal times, a few
of which hang until their time-out. No rollout can be faster than its critical path, the longest sum of tool
times of one episode; turns in lock-step take the sum of the longest of each turn. Both tables show 1, 4 and
16 times the episodes, all of them at once. Making the environments is timed on its own: a trainer makes them
once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from agent_r1_env.engines import Generation, Sampling, room
from agent_r1_env.env import ToolEnv
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.testing import ByteTokenizer, answer, call
from agent_r1_env.tool import tool

Table = list[list[float]]
"""Seconds that each call of each episode asks for."""
HANGS = 3600.0
ENV = "Benchmark/Wait-v0"


class Scripted:
    """Answers at once: the calls of its episode in order, then the answer.

    It looks at no prompt, for reading it is no work of a rollout. With ``together`` the first replies come
    when that many episodes ask, so that each of them has an environment of its own.
    """

    max_model_len = 1 << 20

    def __init__(self, times: Table, together: int = 0) -> None:
        self.together = together
        self.met = asyncio.Event()
        self.tokenizer = ByteTokenizer()
        self.said = [[self._ids(call("wait", seconds=each)) for each in row] for row in times]
        self.end = self._ids(answer("done"))
        self.asked: dict[str, int] = {}

    def _ids(self, text: str) -> list[int]:
        return [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """The next reply of the episode that the session names."""
        room(len(prompt_ids), self.max_model_len, sampling.max_tokens)
        if len(self.asked) + 1 >= self.together:
            self.met.set()
        number = self.asked[sampling.session] = self.asked.get(sampling.session, -1) + 1
        calls = self.said[int(sampling.session.rpartition("/")[2])]
        ids = calls[number] if number < len(calls) else self.end
        if not self.met.is_set():
            await self.met.wait()
        return Generation(ids, [-1.0] * len(ids), "stop")

    def close(self) -> None:
        """Nothing to give back."""


@contextmanager
def registered(timeout: float) -> Any:
    """The environment of the benchmark, while it lasts."""

    @tool(timeout=timeout)
    async def wait(seconds: float) -> str:
        """Wait.

        Args:
            seconds: how long.
        """
        await asyncio.sleep(seconds)
        return "waited"

    tasks = TaskSet([Task("wait", "Wait.", ("done",))], name="wait", origin="made here", synthetic=True)
    gym.register(ENV, entry_point=lambda: ToolEnv(tasks, [wait], max_steps=64))
    try:
        yield
    finally:
        del gym.registry[ENV]


async def alone(times: Table, timeout: float) -> None:
    """The sleeps, each capped, without anything else."""

    async def one(row: Sequence[float]) -> None:
        for seconds in row:
            await asyncio.sleep(min(seconds, timeout))

    await asyncio.gather(*(one(row) for row in times))


def measure(times: Table, timeout: float = 30.0, repeats: int = 3) -> dict[str, float]:
    """Seconds of a rollout of these tool times with as many environments as episodes; the best of some runs.

    Returns:
        ``seconds`` of the rollout, ``ideal`` of the sleeps alone, ``critical`` the longest sum of an episode,
        ``lockstep`` in which every turn waits for its longest call, ``sequential`` in which calls wait for
        one another, ``making`` the environments, ``overhead`` in microseconds a step over the ideal, and
        ``work`` in microseconds of the processor a step, which other processes disturb least.
    """
    count, longest = len(times), max(map(len, times))
    capped = [[min(each, timeout) for each in row] for row in times]
    requests = [EpisodeRequest(0, place) for place in range(count)]
    rolled, ideal, work, steps = [], [], [], 0
    with registered(timeout), Rollout(ENV, engine=Scripted(times), concurrency=count) as rollout:
        rollout.engine = Scripted([[]] * count, together=count)
        began = time.perf_counter()
        rollout.run(requests)
        making = time.perf_counter() - began
        for _ in range(repeats):
            rollout.engine = Scripted(times)
            began, worked = time.perf_counter(), time.process_time()
            episodes = rollout.run(requests)
            rolled.append(time.perf_counter() - began)
            work.append(time.process_time() - worked)
            steps = sum(len(each.steps) for each in episodes)
            reasons = {str(each.stop_reason) for each in episodes}
            if reasons != {"answer"}:
                raise SystemExit(f"an episode ended in {sorted(reasons)}")
            began = time.perf_counter()
            asyncio.run(alone(times, timeout))
            ideal.append(time.perf_counter() - began)
    turns = [[row[turn] for row in capped if turn < len(row)] for turn in range(longest)]
    return {
        "episodes": count,
        "steps": steps,
        "seconds": min(rolled),
        "ideal": min(ideal),
        "critical": max(map(sum, capped)),
        "lockstep": sum(map(max, turns)),
        "sequential": sum(map(sum, capped)),
        "making": making,
        "overhead": (min(rolled) - min(ideal)) / steps * 1e6,
        "work": min(work) / steps * 1e6,
    }


def waiting(episodes: int = 64, calls: int = 2, seconds: float = 0.05, repeats: int = 3) -> dict[str, float]:
    """Every call takes the same time."""
    return measure([[seconds] * calls] * episodes, repeats=repeats)


def heavy(
    episodes: int = 512,
    calls: int = 4,
    median: float = 0.1,
    sigma: float = 1.0,
    timeout: float = 2.0,
    hanging: float = 0.002,
    repeats: int = 1,
) -> dict[str, float]:
    """Lognormal times, and a share of calls that never end by themselves."""
    random = np.random.default_rng(0)
    times = median * random.lognormal(0.0, sigma, (episodes, calls))
    times[random.random(times.shape) < hanging] = HANGS
    return measure(times.round(4).tolist(), timeout, repeats)


def environments(count: int = 1000) -> dict[str, float]:
    """Bytes and threads that a process gains with so many environments, and the seconds of a first run."""
    with registered(30.0), Rollout(ENV, engine=Scripted([[]]), concurrency=count) as rollout:
        rollout.run([EpisodeRequest(0, 0)])
        rollout.engine = Scripted([[]] * count, together=count)
        threads, before = threading.active_count(), resident()
        began = time.perf_counter()
        rollout.run([EpisodeRequest(0, place) for place in range(count)])
        seconds = time.perf_counter() - began
        return {
            "count": count,
            "bytes": resident() - before,
            "threads": threading.active_count() - threads,
            "seconds": seconds,
        }


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--episodes", type=int, default=64, metavar="N", help="of the first table")
    parser.add_argument("--heavy", type=int, default=512, metavar="N", help="of the second table")
    parser.add_argument("--growth", type=int, nargs="+", default=[1, 4, 16], metavar="X")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--environments", type=int, default=1000, metavar="N")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"waiting": [], "heavy": []}
    print("| episodes | seconds | of the ideal rate | over one by one | us a step | CPU us | making |")
    print("|---|---|---|---|---|---|---|")
    for times in options.growth:
        one = waiting(options.episodes * times, repeats=options.repeats)
        found["waiting"].append(one)
        cells = [
            f"{one['episodes']:,}",
            f"{one['seconds']:.3f}",
            f"{one['ideal'] / one['seconds']:.3f}",
            f"{one['sequential'] / one['seconds']:.1f}x",
            f"{one['overhead']:.0f}",
            f"{one['work']:.0f}",
            f"{one['making']:.2f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    print("\n| heavy-tailed episodes | seconds | critical path | ratio | lock-step | CPU us | making (s) |")
    print("|---|---|---|---|---|---|---|")
    for times in options.growth:
        one = heavy(options.heavy * times)
        found["heavy"].append(one)
        cells = [
            f"{one['episodes']:,}",
            f"{one['seconds']:.2f}",
            f"{one['critical']:.2f}",
            f"{one['seconds'] / one['critical']:.3f}",
            f"{one['lockstep']:.2f}",
            f"{one['work']:.0f}",
            f"{one['making']:.2f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    if options.environments:
        one = found["environments"] = environments(options.environments)
        held = f"{one['bytes'] / 1e6:.0f} MB, {one['threads']} threads"
        print(f"\n{one['count']:,} environments: {held}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
