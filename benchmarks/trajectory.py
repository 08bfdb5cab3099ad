"""What it costs to encode the prompts of an episode and to make rows of many episodes.

    python benchmarks/trajectory.py [--model PATH] [--episodes N]

First table: tokens encoded and seconds for one episode of 1, 4, 16 and 64 turns, rendered whole at each turn
(`steps`) and grown by ids (`tokens`); each turn adds a reply and a tool result. Without a model the tokenizer
has one token a byte. Second table: rows of N episodes x 8 turns x 2,000 tokens, their time, and the memory
that they take beside that of the arrays made of them.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agent_r1_env import formats
from agent_r1_env.concatenation import Concatenated
from agent_r1_env.episode import Episode, Step
from agent_r1_env.model_check import load_tokenizer
from agent_r1_env.packing import padded
from agent_r1_env.template import ChatTemplate
from agent_r1_env.testing import ByteTokenizer
from agent_r1_env.trajectory import Row, rows

TURNS = (1, 4, 16, 64)
REPLY = "I will look for that in the encyclopedia, and then compare both dates with each other. " * 2
RESULT = "The magazine was founded in the year 1844 in Philadelphia and merged two years later. " * 12


class Counting:
    """A tokenizer that counts the ids it makes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.made, self.seconds = tokenizer, 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, text: str, **options: Any) -> list[int]:
        began = time.perf_counter()
        ids: list[int] = self.tokenizer.encode(text, **options)
        self.seconds += time.perf_counter() - began
        self.made += len(ids)
        return ids


def encoding(tokenizer: Any, turns: int, grown: bool) -> tuple[int, float, float]:
    """Ids encoded, seconds of that, and seconds of all that the prompts of one episode cost."""
    counting = Counting(tokenizer)
    template = ChatTemplate(counting, formats.get("hermes"))
    sampled = [*tokenizer.encode(REPLY, add_special_tokens=False), template.stop_token_ids[-1]]
    prompts: Any = Concatenated(template) if grown else template
    messages = [{"role": "user", "content": "Which is older?"}]
    counting.made, counting.seconds = 0, 0.0
    began = time.perf_counter()
    for _ in range(turns):
        prompts.encode("", {"messages": messages, "tools": []})
        reply = prompts.reply_text(sampled)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": RESULT}]
    if grown and prompts.rewritten:
        raise SystemExit(f"the template cannot grow: {dict(prompts.rewritten)}")
    return counting.made, counting.seconds, time.perf_counter() - began


def episode(random: np.random.Generator, turns: int = 8, tokens: int = 2000, reply: int = 400) -> Episode:
    """A context that only grows: each turn adds ``tokens`` ids, of which the last ``reply`` are sampled."""
    ids = random.integers(0, 150_000, turns * tokens).tolist()
    steps = []
    for end in range(tokens, turns * tokens + 1, tokens):
        logprobs = (-random.random(reply)).tolist()
        steps.append(Step(ids[: end - reply], ids[end - reply : end], logprobs))
    return Episode("Bench/E-v0", None, 0, 0, tuple(steps))


def traced(make: Callable[[], Any]) -> tuple[Any, float, int, int]:
    """The result, its seconds, and, of a second go, the bytes that stay and the most that were held."""
    began = time.perf_counter()
    made = make()
    seconds = time.perf_counter() - began
    del made
    tracemalloc.start()
    made = make()
    stays, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, seconds, stays, most


def building(count: int) -> str:
    """One line of the second table."""
    random = np.random.default_rng(0)
    episodes = [episode(random) for _ in range(count)]

    def make() -> list[Row]:
        return [row for n, each in enumerate(episodes) for row in rows(each, [1.0] * len(each.steps), n)]

    made, seconds, stays, most = traced(make)
    tokens = sum(len(row.prompt_ids) + len(row.completion_ids) for row in made)
    arrays, array_seconds, array_bytes, _ = traced(lambda: padded(made, 0))
    tensors = sum(tensor.nbytes for tensor in arrays.tensors().values())
    cells = [
        f"{tokens:,}",
        f"{len(made):,}",
        f"{tokens / seconds / 1e6:.1f} M/s",
        f"{stays / tokens:.0f} ({most / tokens:.0f})",
        f"{tokens / array_seconds / 1e6:.1f} M/s",
        f"{array_bytes / tokens:.0f}",
        f"{tensors / tokens:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", metavar="PATH", help="whose tokenizer and template to measure")
    parser.add_argument("--episodes", type=int, default=1000, metavar="N", help="of the second table")
    options = parser.parse_args(arguments)
    tokenizer = load_tokenizer(options.model) if options.model else ByteTokenizer()
    print("| turns | steps: encoded | s encoding | s in all | tokens: encoded | s encoding | s in all |")
    print("|---|---|---|---|---|---|---|")
    for turns in TURNS:
        found = [encoding(tokenizer, turns, grown) for grown in (False, True)]
        cells = [f"{made:,} | {seconds:.3f} | {whole:.3f}" for made, seconds, whole in found]
        print(f"| {turns} | {' | '.join(cells)} |")
    print(
        "\n| tokens | rows | rows made | bytes a token, stay (most) | padded | bytes a token | as tensors |"
    )
    print("|---|---|---|---|---|---|---|")
    print(building(options.episodes))


if __name__ == "__main__":
    main()
