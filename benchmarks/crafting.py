"""Time and memory of Crafting over the length of its episodes: 64 at once, with a scripted policy.

python benchmarks/crafting.py [--episodes 64] [--steps 15 30 60] [--repeats 5]

Each measurement runs in a process of its own, time and memory apart, for looking at memory takes time. The
rows "bend" say what a step adds between the last two numbers of steps over what it adds between the first
two: 1 is linear growth, 2 is quadratic.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agent_r1_env import formats, testing
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.rollout import EpisodeRequest, Rollout

ID = "AgentR1/Crafting-v0"
CONTEXTS = {"window": [{"window": 8}], "append": "append"}
HERMES = formats.get("hermes")
LOOK = HERMES.render_call("look", {})
WAYS = "Ways from here: "


def policy(prompt: str) -> str:
    """Look where there are ways, then walk on the first: moves that never end an episode."""
    last = prompt[prompt.rfind("\n<|im_start|>user") :]
    start = last.find(WAYS)
    if start < 0:
        return LOOK
    place = last[start + len(WAYS) :].partition(".")[0].partition(", ")[0]
    return HERMES.render_call("go", {"place": place})


def options(steps: int, context: str) -> dict[str, Any]:
    return {
        "level": "long",
        "count": 64,
        "split": "train",
        "max_steps": steps,
        "context": CONTEXTS[context],
    }


def environments(episodes: int, steps: int, context: str) -> Callable[[], Any]:
    """Plain environments, stepped in turn; what is kept at the end is their state."""
    envs = [gym.make(ID, **options(steps, context)) for _ in range(episodes)]

    def run() -> Any:
        seen = [env.reset(seed=0, options={"task": task % 64})[0] for task, env in enumerate(envs)]
        for _ in range(steps):
            seen = [env.step(policy(prompt))[0] for env, prompt in zip(envs, seen, strict=True)]
        return envs

    return run


def vector(episodes: int, steps: int, context: str) -> Callable[[], Any]:
    """A vector of threads, one an environment."""
    envs = gym.make_vec(ID, episodes, vectorization_mode="vector_entry_point", **options(steps, context))

    def run() -> Any:
        seen, _ = envs.reset(seed=0)
        for _ in range(steps):
            seen = envs.step([policy(prompt) for prompt in seen])[0]
        return envs

    return run


def rollout(episodes: int, steps: int, context: str) -> Callable[[], Any]:
    """A rollout with a scripted engine; what is kept are whole episodes, the ids of all prompts included."""
    engine = ScriptedEngine(policy, testing.ByteTokenizer())
    runs = Rollout(ID, options(steps, context), engine=engine, concurrency=episodes)
    return lambda: runs.run([EpisodeRequest(task=task % 64, seed=0) for task in range(episodes)])


KINDS = {each.__name__: each for each in (environments, vector, rollout)}


def resident() -> float:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure_time(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """The least processor time of all threads, which depends on other work of the machine least."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return {"seconds": min(times)}


def measure_memory(run: Callable[[], Any]) -> dict[str, float]:
    """Bytes that one batch of episodes adds to a process in which its environments stand ready."""
    before = resident()
    tracemalloc.start()
    began = tracemalloc.get_traced_memory()[0]
    kept = run()
    traced = tracemalloc.get_traced_memory()[0] - began
    tracemalloc.stop()
    del kept
    return {"traced": traced, "resident": resident() - before}


def apart(*arguments: str) -> dict[str, float]:
    """One measurement in a new process."""
    command = [sys.executable, __file__, "--one", *arguments]
    found: dict[str, float] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


def one(what: str, kind: str, context: str, episodes: int, steps: int, repeats: int) -> dict[str, float]:
    KINDS[kind](2, 2, context)()  # what is loaded and compiled once is no episode's
    run = KINDS[kind](episodes, steps, context)
    return measure_time(run, repeats) if what == "time" else measure_memory(run)


def bend(steps: list[int], values: list[float]) -> float:
    """What a step adds in the last stretch over what it adds in the first: 1 where growth is linear."""
    first = (values[1] - values[0]) / (steps[1] - steps[0])
    last = (values[-1] - values[-2]) / (steps[-1] - steps[-2])
    return last / first if first else math.nan


def report(kind: str, context: str, episodes: int, steps: list[int], repeats: int) -> None:
    rows = []
    for step in steps:
        given = (kind, context, str(episodes), str(step), str(repeats))
        rows.append(apart("time", *given) | apart("memory", *given))
        row = rows[-1]
        per_step = row["seconds"] / episodes / step * 1e6
        kib = [row[name] / episodes / 1024 for name in ("traced", "resident")]
        cells = f"{step} | {row['seconds']:.3f} | {per_step:.0f} | {kib[0]:.1f} | {kib[1]:.1f}"
        print(f"| {kind} | {context} | {cells} |", flush=True)
    seconds, traced, rss = (bend(steps, [row[name] for row in rows]) for name in rows[0])
    print(f"| {kind} | {context} | bend | {seconds:.2f} | | {traced:.2f} | {rss:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--steps", type=int, nargs="+", default=[15, 30, 60])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if len(given.steps) < 3:
        parser.error("--steps takes three numbers or more, to see whether growth is linear")
    if given.one:
        what, kind, context, *numbers = given.one
        print(json.dumps(one(what, kind, context, *map(int, numbers))))
        return
    print("| how | context | steps | CPU seconds | us a step | KiB an episode, traced | resident |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for context in CONTEXTS:
        for kind in given.kinds:
            report(kind, context, given.episodes, given.steps, given.repeats)


if __name__ == "__main__":
    main()
