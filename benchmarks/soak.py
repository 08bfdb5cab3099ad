"""Many episodes among many faults: is memory flat, is anything left open, is every episode accounted for?

python benchmarks/soak.py [--episodes 20000] [--every 500] [--warm-up 4000] [--folder out/soak] [--trace]

Catalogue environments and one of troubles alone are played by a scripted engine that makes every mistake a
model makes. Tools fail, hang, flood and exit, environments raise in ``reset`` and ``step``, replies are cut
by length, and runs are cancelled half-way. Prints Markdown; the exit status is 1 if anything was lost.

Memory is what the process holds resident between two batches, after a garbage collection and after C's
allocator gave back what it keeps free; beside it stands how many blocks Python's own allocator has in use. A
slope is the Theil-Sen estimator with the 95 % interval of Sen (1968), which asks for no distribution of the
errors.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import dataclasses
import gc
import itertools
import logging
import math
import os
import random
import resource
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

import agent_r1_env  # noqa: F401 - registers the environments
from agent_r1_env import formats, interpreters, testing, workers
from agent_r1_env.engines import Sampling
from agent_r1_env.engines.scripted import Said, ScriptedEngine
from agent_r1_env.episode import Episode, EpisodeFile, read_episodes
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.tool import Tool
from agent_r1_env.wrappers import FaultInjection, Latency

LIMITS = {"resident": 512.0, "blocks": 100.0}
"""What 1,000 episodes may add for sure: KiB, because the allocator of C settles late among many threads, and
blocks of Python's, a hundred of which are one object in ten episodes."""
TASKS = 32
LONGEST = 300
"""Tokens of a reply, bytes here; longer ones are cut."""
BREAKS = random.Random(0)
"""Decides when environments raise; each has a generator of its own, made of this one."""
KEPT = ("agent-r1-tool", "tqdm_monitor")
"""Threads that live as long as the process: those of tools wait for the next calls, tqdm's is one for all."""
_T = TypeVar("_T")

# -- environments that break


def breaking(share: float, act: Callable[..., _T], rng: random.Random) -> Callable[..., _T]:
    """The function, which raises now and then."""

    def broken(*given: Any, **named: Any) -> _T:
        if rng.random() < share:
            raise rng.choice([RuntimeError, KeyError, SystemExit, RecursionError])("broken on purpose")
        return act(*given, **named)

    return broken


class Breaking(gym.Wrapper[Any, str, Any, str]):
    """Steps on the environment's own thread, because it has a ``step``, which raises now and then."""

    def __init__(self, env: gym.Env[Any, str], share: float, rng: random.Random) -> None:
        super().__init__(env)
        self._step = breaking(share, env.step, rng)

    def step(self, action: str) -> Any:
        return self._step(action)


def make(env_id: str, seconds: float, threaded: bool = False, share: float = 0.01, **options: Any) -> Any:
    """A catalogue environment with unreliable tools, that raises itself now and then.

    Args:
        seconds: of a call of a tool, after which it is given up.
        threaded: ``step`` is called on a thread and not awaited.
    """
    rng = random.Random(BREAKS.random())
    env = gym.make(env_id, disable_env_checker=True, **options)
    base: Any = env.unwrapped
    if tools := list(base.toolbox.tools.values()):
        base.replace_tools([dataclasses.replace(tool, timeout=seconds) for tool in tools])
        rates = {"timeout": 0.02, "server_error": 0.02, "empty": 0.02, "cut": 0.02, "injection": 0.02}
        env = Latency(FaultInjection(env, **rates), uniform=[0.0, 0.01], hang=0.01)
    base.reset = breaking(share, base.reset, rng)
    if not threaded:
        base.step_async = breaking(share, base.step_async, rng)
    return Breaking(env, share, rng) if threaded else env


# -- tools that break


def hang_thread() -> str:
    time.sleep(0.3)
    return "too late"


async def hang() -> str:
    await asyncio.sleep(3600)
    return "never"


async def cling() -> str:
    """A coroutine that does not end when it is cancelled."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
    return "too late"


async def block() -> str:
    """A coroutine that blocks the event loop it runs on."""
    time.sleep(0.3)
    return "too late"


def flood() -> str:
    return "flood " * 200_000


def leave() -> str:
    sys.exit(3)


def fail() -> str:
    raise ZeroDivisionError("of the tool")


def odd() -> Any:
    return {"a": float("nan"), "b": b"\xff", "c": ["\ud800", object()]}


TROUBLES = (hang_thread, hang, cling, block, flood, leave, fail, odd)


def make_troubles() -> Any:
    """An environment of tools that do whatever a tool should not do."""
    empty = {"type": "object", "properties": {}}
    tools = [Tool(each.__name__, "Trouble.", empty, each, timeout=0.1) for each in TROUBLES]
    return testing.sum_env(tools, count=TASKS, max_steps=4)


# -- a policy that makes mistakes

HERMES = formats.get("hermes")
MISTAKES: tuple[Said, ...] = (
    "",
    "I had better think about that. " * 30,
    "<tool_call>",
    '<tool_call>{"name": "search", "arguments": {"query": </tool_call>',
    '<tool_call>{"name": "search"}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": [1, 2]}}</tool_call>',
    '<tool_call>{"name": "serch", "arguments": {"query": "a"}}</tool_call>',
    "<answer>left open",
    "</tool_call></answer><|im_start|>system\nno</think>",
    "\u202e\U0001f9e8\x00\u0301" * 9,
    [0xFF, 0xC3, 0x28, 0xF0, 0x9F],
)


def calls(*made: tuple[str, Mapping[str, Any]]) -> list[str]:
    return [HERMES.render_call(name, dict(arguments)) for name, arguments in made]


@dataclass(frozen=True)
class Player:
    """What a policy does in one environment: good moves mostly, mistakes, and an answer in the end."""

    moves: Sequence[str]
    rng: random.Random

    def __call__(self, prompt: str) -> Said:
        luck = self.rng.random()
        if luck < 0.12:
            return f"<answer>{self.rng.randrange(40)}</answer>"
        if luck < 0.30:
            return self.rng.choice(MISTAKES)
        return "".join(self.rng.choices(self.moves, k=1 if luck < 0.9 else 3))


@dataclass(frozen=True)
class Part:
    """One environment of the soak.

    Attributes:
        share: of all episodes, relative to the others.
    """

    name: str
    entry: Callable[..., Any]
    options: Mapping[str, Any]
    moves: Sequence[str]
    share: int = 8


SEARCHES = calls(*(("search", {"query": words}) for words in ("a city in the north", "song", "1931", "é")))
SUMS = calls(*(("calculator", {"expression": text}) for text in ("2 + 3", "1 / 0", "9^9^9", "5 km in mi")))
QUERIES = ("SELECT 1", "SELECT * FROM nowhere", "DROP TABLE city", ".schema")
SQL = calls(*(("sql", {"query": query}) for query in QUERIES), ("sql_schema", {}))
GOES = calls(("look", {}), ("inventory", {}), ("go", {"place": "nowhere"}), ("recipe", {"item": "plank"}))
CODE = [f"```python\n{text}\n```" for text in ("print(2 ** 10)", "1 / 0", "print('x' * 100000)", "exit(3)")]
GAMES = ("50", "north", "south", "is it alive?", "not a move")
QUICK = {"seconds": 0.3, "max_steps": 5}

PARTS = (
    Part("HotpotQA", make, {**QUICK, "split": "train"}, SEARCHES),
    Part("2WikiMultihopQA", make, {**QUICK, "context": [{"window": 2}]}, SEARCHES),
    Part(
        "MuSiQue", make, {**QUICK, "threaded": True, "perturb": ["paraphrase", {"distractors": 3}]}, SEARCHES
    ),
    Part("GSM8K", make, QUICK, SUMS),
    Part("SQLQuestions", make, {**QUICK, "threaded": True}, SQL),
    Part("Crafting", make, {**QUICK, "level": "short", "max_steps": 8}, GOES),
    Part("TextGame", make, {**QUICK, "threaded": True}, GAMES),
    Part("MathPython", make, {**QUICK, "seconds": 5.0}, CODE, share=1),
    Part("Trouble", make_troubles, {}, calls(*((each.__name__, {}) for each in TROUBLES)), share=4),
)


# -- what is measured


@dataclass(frozen=True)
class Sample:
    """The process at one moment.

    Attributes:
        resident: KiB, after a garbage collection.
        blocks: pieces of memory that Python objects take.
        handles: open files, sockets and the like.
        loops: event loops of tools, each a thread and three of the handles.
    """

    episodes: int
    seconds: float
    resident: float
    blocks: int
    threads: int
    handles: int
    children: int
    loops: int


def sample(episodes: int, began: float) -> Sample:
    """Look at this process."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc has it, musl does not
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Sample(
        episodes,
        time.perf_counter() - began,
        pages * resource.getpagesize() / 1024,
        sys.getallocatedblocks(),
        threading.active_count(),
        len(os.listdir("/proc/self/fd")) - 1,  # one is the listing's own
        len(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()),
        sum(each.name == "agent-r1-tool-loop" for each in threading.enumerate()),
    )


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The median slope of all pairs of points, and its 95 % interval; infinite where there are few."""
    slopes = sorted(
        (b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2) if a[0] != b[0]
    )
    if not slopes:
        return math.nan, -math.inf, math.inf
    n = len(points)
    reach = 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low, high = math.floor((len(slopes) - reach) / 2), math.ceil((len(slopes) + reach) / 2)
    return (
        float(np.median(slopes)),
        slopes[low] if low >= 0 else -math.inf,
        slopes[high] if high < len(slopes) else math.inf,
    )


def left_behind(before: Iterable[threading.Thread]) -> list[str]:
    """Names of the threads that live, did not live before, and should not."""
    names = (each.name for each in set(threading.enumerate()) - set(before))
    return sorted(name for name in names if not name.startswith(KEPT))


@dataclass
class Account:
    """Every episode that was asked for and every one that ended.

    It takes two bytes an episode, so that it is not the account whose memory grows.

    Attributes:
        asked: what was asked for, by the number of the episode: the place of its environment.
        ended: how many episodes of each number ended, at most 255.
    """

    asked: bytearray = field(default_factory=bytearray)
    ended: bytearray = field(default_factory=bytearray)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    finishes: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    cancelled: int = 0

    def ask(self, environment: int) -> int:
        """The number of one more episode."""
        self.asked.append(environment)
        self.ended.append(0)
        return len(self.asked) - 1

    def note(self, episode: Episode) -> None:
        """An episode ended; its group is its number."""
        self.ended[episode.group] += 1
        self.reasons[str(episode.stop_reason)] += 1
        self.steps += len(episode.steps)
        self.finishes.update(step.finish_reason for step in episode.steps)
        calls = (call for step in episode.steps for call in step.calls)
        self.failures.update(str(call.get("error") or "none") for call in calls)

    def problems(self, written: Iterable[int]) -> list[str]:
        """What does not add up, given the numbers of the episodes in the file."""
        in_file = bytearray(len(self.asked))
        for number in written:
            in_file[number] += 1
        found = []
        for name, counted in (("ended", self.ended), ("in the file", in_file)):
            lost, twice = counted.count(0), sum(count - 1 for count in counted if count > 1)
            if lost or twice:
                found.append(f"{name}: {lost} episodes lost, {twice} too many")
        if (reasons := self.reasons.total()) != len(self.asked):
            found.append(f"{reasons} stop reasons of {len(self.asked)} episodes")
        return found


# -- the soak


class Soak:
    """Rollouts that live as long as the soak, and what became of their episodes."""

    def __init__(self, folder: Path, at_once: int, seed: int, parts: Sequence[Part] = PARTS) -> None:
        self.threads = threading.enumerate()
        self.account = Account()
        self.parts = parts
        self.file = EpisodeFile(folder / "episodes.jsonl", ids=False)
        self.rng = random.Random(seed)
        self.rollouts = {part.name: self._rollout(part, at_once) for part in parts}
        self.samples: list[Sample] = []
        self.warm_up = 0

    def _rollout(self, part: Part, at_once: int) -> Rollout:
        env_id = f"Soak/{part.name}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=part.entry)
        options = {"env_id": f"AgentR1/{part.name}-v0"} if part.entry is make else {}
        engine = ScriptedEngine(
            Player(part.moves, random.Random(self.rng.random())), testing.ByteTokenizer(), 12_000
        )
        return Rollout(
            env_id,
            {**options, **part.options},
            engine=engine,
            sampling=Sampling(max_tokens=LONGEST),
            concurrency=at_once,
            max_prompt_tokens=8_000,
            on_episode=self._ended,
        )

    def _ended(self, episode: Episode) -> None:
        self.account.note(episode)
        self.file.append(episode)

    def batch(self, count: int, cancelled_after: float | None = None) -> None:
        """Run some episodes of all environments at once; those of a run that is cancelled are run again."""
        shares = [part.share for part in self.parts]
        asked: dict[str, list[EpisodeRequest]] = {part.name: [] for part in self.parts}
        for place in self.rng.choices(range(len(self.parts)), shares, k=count):
            number = self.account.ask(place)
            task, seed = self.rng.randrange(TASKS), self.rng.randrange(1 << 16)
            asked[self.parts[place].name].append(EpisodeRequest(task=task, seed=seed, group=number))
        if cancelled_after is not None:
            self.account.cancelled += 1
            asyncio.run(self._cancelled(asked, cancelled_after))
            asked = {
                name: [each for each in of if not self.account.ended[each.group]]
                for name, of in asked.items()
            }
        asyncio.run(self._run(asked))

    async def _run(self, asked: Mapping[str, Sequence[EpisodeRequest]]) -> None:
        found = await asyncio.gather(*(self.rollouts[name].run_async(of) for name, of in asked.items()))
        for episodes, requests in zip(found, asked.values(), strict=True):
            if [each.group for each in episodes] != [each.group for each in requests]:
                raise AssertionError("the episodes of a run are not those of its requests")

    async def _cancelled(self, asked: Mapping[str, Sequence[EpisodeRequest]], seconds: float) -> None:
        running = asyncio.create_task(self._run(asked))
        await asyncio.wait([running], timeout=seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def growth(self, name: str) -> tuple[float, float, float]:
        """What 1,000 episodes add to one of the numbers of a sample, and the 95 % interval."""
        points = [(each.episodes / 1000, getattr(each, name)) for each in self.samples]
        return slope([point for point in points if point[0] >= self.warm_up / 1000])

    def problems(self, before: Sample, after: Sample) -> list[str]:
        """What is lost, and what is not as it was before."""
        found = self.account.problems(each.group for each in read_episodes(self.file.path))
        found += [f"a thread is left: {name}" for name in left_behind(self.threads)]
        for name, limit in LIMITS.items():
            if (low := self.growth(name)[1]) > limit:
                found.append(f"{name} grew by {low:.0f} per 1,000 episodes or more; {limit:g} are allowed")
        # An event loop holds a selector and a pair of sockets; a tool of coroutines keeps its loop.
        if (handles := after.handles - before.handles - 3 * (after.loops - before.loops)) > 0:
            found.append(f"{handles} handles are left open")
        if after.children > before.children:
            found.append(f"{after.children - before.children} child processes are left")
        return found

    def close(self) -> None:
        """Close environments and the file; what was left hanging gets the time to end."""
        for rollout in self.rollouts.values():
            rollout.close()
        self.file.close()
        end = time.perf_counter() + interpreters.LINGER + 5.0
        while (
            left_behind(self.threads) or any(map(workers.hanging, TROUBLES))
        ) and time.perf_counter() < end:
            time.sleep(0.05)


def soak(folder: Path, options: argparse.Namespace) -> tuple[Soak, Sample, Sample]:
    """Run it and print how it goes.

    Returns:
        The soak, the process before it, and the process when all is closed.
    """
    began = time.perf_counter()
    before, run, traced = sample(0, began), Soak(folder, options.at_once, options.seed), None
    run.warm_up = options.warm_up
    try:
        names = [each.name for each in dataclasses.fields(Sample)]
        print(f"| {' | '.join(names)} |\n|{' ---: |' * len(names)}")
        while (done := len(run.account.asked)) < options.episodes:
            cancel = options.cancel_every and len(run.samples) % options.cancel_every == 1
            run.batch(min(options.every, options.episodes - done), 0.5 if cancel else None)
            run.samples.append(sample(len(run.account.asked), began))
            told = dataclasses.astuple(run.samples[-1])
            print("| " + " | ".join(f"{value:.0f}" for value in told) + " |", flush=True)
            if options.trace and traced is None and told[0] >= options.warm_up:
                tracemalloc.start(8)
                traced = tracemalloc.take_snapshot()
    finally:
        run.close()
    if traced is not None:
        for line in tracemalloc.take_snapshot().compare_to(traced, "lineno")[:12]:
            print(line)
    return run, before, sample(len(run.account.asked), began)


def report(run: Soak, before: Sample, after: Sample) -> None:
    """Print what was counted."""
    account = run.account
    print(f"\n{after.episodes} episodes, {account.steps} steps, {account.cancelled} runs cancelled, ", end="")
    print(f"{after.seconds:.0f} s, {after.episodes / after.seconds:.0f} episodes a second")
    print(f"stop reasons: {dict(account.reasons.most_common())}")
    print(f"calls by failure: {dict(account.failures.most_common())}; replies: {dict(account.finishes)}")
    for name in LIMITS:
        middle, low, high = run.growth(name)
        print(f"{name} per 1,000 episodes behind {run.warm_up}: {middle:.1f} [{low:.1f}, {high:.1f}]")
    for name in ("threads", "handles", "children", "loops"):
        most = max(getattr(each, name) for each in run.samples)
        print(f"{name}: {getattr(before, name)} before, {most} at most, {getattr(after, name)} after")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=500, help="episodes of a batch, after which is measured")
    parser.add_argument("--warm-up", type=int, default=4_000, help="episodes that the slope leaves out")
    parser.add_argument("--at-once", type=int, default=8, help="episodes of each environment")
    parser.add_argument("--cancel-every", type=int, default=5, help="batches; 0 cancels none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the episodes are written; a temporary one else")
    parser.add_argument("--trace", action="store_true", help="show what allocated the memory that grew")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    logging.getLogger("agent_r1_env").setLevel(logging.CRITICAL)  # thousands of failures on purpose
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        run, before, after = soak(options.folder or Path(folder), options)
        report(run, before, after)
        problems = run.problems(before, after)
    print("\n".join(f"PROBLEM: {each}" for each in problems) or "nothing lost, nothing left")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
