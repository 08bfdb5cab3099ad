"""What it costs to encode the prompts of an episode, to hold episodes, and to make rows of them.

    python benchmarks/trajectory.py [--model PATH] [--episodes N] [--growth 1 4 16] [--json FILE]

First table: tokens encoded and seconds for one episode of 1, 4, 16 and 64 turns, rendered whole at each turn
(`steps`) and grown by ids (`tokens`); each turn adds a reply and a tool result. Without a model the tokenizer
has one token a byte. Second table: N episodes of 8 turns that add 2,000 tokens each, and 4 and 16 times as
long ones: the time of making rows, against encoding the text of each turn again; what episodes and rows hold
beside plain arrays of ids, mask, log-probs and advantages; and the tokens in rows against those that are in
the episode once, and against one row a step.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agent_r1_env import formats
from agent_r1_env.compact import Tape
from agent_r1_env.concatenation import Concatenated
from agent_r1_env.episode import Episode, Step
from agent_r1_env.model_check import load_tokenizer
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


def episode(
    random: np.random.Generator, turns: int = 8, tokens: int = 2000, reply: int = 400, packed: bool = True
) -> Episode:
    """A context that only grows: each turn adds ``tokens`` ids, of which the last ``reply`` are sampled.

    Args:
        packed: held as a rollout holds it; else in lists, as a program may hand it in.
    """
    ids = random.integers(0, 150_000, turns * tokens).tolist()
    tape, steps = Tape(), []
    for end in range(tokens, turns * tokens + 1, tokens):
        prompt, said = ids[: end - reply], ids[end - reply : end]
        logprobs = (-random.random(reply).astype(np.float32)).tolist()
        if packed:
            steps.append(Step(*tape.ids(prompt, said), tape.logprobs(logprobs)))
        else:
            steps.append(Step(prompt, said, logprobs))
    tape.pack()
    return Episode("Bench/E-v0", None, 0, 0, tuple(steps))


def made_of(episodes: Sequence[Episode], merge: bool = True) -> list[Row]:
    """The rows of all episodes."""
    return [
        row for n, each in enumerate(episodes) for row in rows(each, [0.1] * len(each.steps), n, merge=merge)
    ]


def timed(make: Callable[[], Any]) -> float:
    """Seconds of the processor."""
    began = time.process_time()
    make()
    return time.process_time() - began


def held(make: Callable[[], Any]) -> int:
    """Bytes that stay of what is made."""
    tracemalloc.start()
    made = make()
    stays, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return stays


def retokenised(tokenizer: Any, turns: int, tokens: int, reply: int = 400) -> float:
    """Seconds of encoding each prompt and reply of one such episode from its text."""
    text = (RESULT * (1 + turns * tokens // 40))[: turns * tokens * 8]
    ids = tokenizer.encode(text, add_special_tokens=False)[: turns * tokens]
    parts = [ids[: end - reply] for end in range(tokens, turns * tokens + 1, tokens)]
    texts = [tokenizer.decode(part) for part in parts] + [tokenizer.decode(ids[:reply])] * turns
    return timed(lambda: [tokenizer.encode(text, add_special_tokens=False) for text in texts])


def building(
    count: int, turns: int = 8, tokens: int = 2000, reply: int = 400, tokenizer: Any = None
) -> dict[str, float]:
    """What rows of so many episodes cost.

    Returns:
        ``rate`` of making them in tokens a second of the processor, ``rate_of_lists`` of episodes that are
        handed in as lists, ``rate_encoding`` of encoding each turn again (0 without a tokenizer). ``memory``
        of episodes and rows together and ``memory_of_rows`` alone over the bytes of plain arrays of ids (4
        bytes a token), mask (1), log-probs (4) and advantages (4). ``trained`` the tokens in rows over those
        that are in an episode once, ``unmerged`` the same with one row a step.
    """
    random = np.random.default_rng(0)
    episodes = [episode(random, turns, tokens, reply) for _ in range(count)]
    lists = [episode(random, turns, tokens, reply, packed=False) for _ in range(max(1, count // 10))]
    unique = count * turns * tokens
    in_rows, unmerged = (
        sum(len(row.prompt_ids) + len(row.completion_ids) for row in made_of(episodes, merge))
        for merge in (True, False)
    )

    def both() -> Any:
        own = [episode(random, turns, tokens, reply) for _ in range(max(1, count // 10))]
        return own, made_of(own)

    each = 4 + 1 + 4 + 4
    again = 0.0 if tokenizer is None else retokenised(tokenizer, turns, tokens, reply)
    return {
        "episodes": count,
        "tokens": unique,
        "rate": unique / timed(lambda: made_of(episodes)),
        "rate_of_lists": len(lists) * turns * tokens / timed(lambda: made_of(lists)),
        "rate_encoding": turns * tokens / again if again else 0.0,
        "memory": held(both) / (max(1, count // 10) * turns * tokens * each),
        "memory_of_rows": held(lambda: made_of(episodes)) / (unique * each),
        "trained": in_rows / unique,
        "unmerged": unmerged / unique,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", metavar="PATH", help="whose tokenizer and template to measure")
    parser.add_argument("--episodes", type=int, default=1000, metavar="N", help="of the second table")
    parser.add_argument("--growth", type=int, nargs="+", default=[1, 4, 16], metavar="X")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args(arguments)
    tokenizer = load_tokenizer(options.model) if options.model else ByteTokenizer()
    kept: dict[str, Any] = {"encoding": {}, "building": []}
    print("| turns | steps: encoded | s encoding | s in all | tokens: encoded | s encoding | s in all |")
    print("|---|---|---|---|---|---|---|")
    for turns in TURNS:
        found = [encoding(tokenizer, turns, grown) for grown in (False, True)]
        kept["encoding"][turns] = dict(zip(("steps", "tokens"), found, strict=True))
        cells = [f"{made:,} | {seconds:.3f} | {whole:.3f}" for made, seconds, whole in found]
        print(f"| {turns} | {' | '.join(cells)} |")
    print("\n| tokens | rows made | of lists | encoded again | memory | of rows | trained | a row a step |")
    print("|---|---|---|---|---|---|---|---|")
    for times in options.growth:
        # As many tokens in longer episodes, so that a cost that grows with their square would show.
        one = building(max(1, options.episodes // times), 8 * times, tokenizer=tokenizer)
        kept["building"].append(one)
        cells = [
            f"{one['episodes']:,} x {8 * times} x 2,000",
            *(f"{one[name] / 1e6:.1f} M/s" for name in ("rate", "rate_of_lists", "rate_encoding")),
            *(f"{one[name]:.2f}" for name in ("memory", "memory_of_rows", "trained")),
            f"{one['unmerged']:.1f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)


if __name__ == "__main__":
    main()
