"""What lies between episodes and the arrays of a trainer, and what we compare it with; see ``worker.py``."""

from __future__ import annotations

import time
import tracemalloc
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import search_task
from trajectory import episode

from agent_r1_env import testing
from agent_r1_env.episode import Episode
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.trajectory import Row, rows

TURNS, TOKENS = 8, 2000
APPENDING = "Benchmark/Sums-v0"


@cache
def _episodes(count: int) -> list[Episode]:
    random = np.random.default_rng(0)
    return [episode(random, TURNS, TOKENS) for _ in range(count)]


def _rows(episodes: list[Episode], merge: bool = True) -> list[Row]:
    return [
        row
        for number, each in enumerate(episodes)
        for row in rows(each, [1.0] * len(each.steps), number, merge)
    ]


def _held(made: list[Row]) -> int:
    return sum(len(row.prompt_ids) + len(row.completion_ids) for row in made)


def building(episodes: int) -> dict[str, float]:
    """Tokens a second: of rows; of all ids of the episodes copied in memory."""
    given = _episodes(episodes)
    began = time.perf_counter()
    made = _rows(given)
    took = time.perf_counter() - began
    tokens = _held(made)
    # What a row needs of a token at least: an id, a mask, a log-prob and an advantage.
    arrays = [np.ones(tokens, kind) for kind in (np.int32, np.int8, np.float32, np.float32)]
    began = time.perf_counter()
    copies = [array.copy() for array in arrays]
    copied = time.perf_counter() - began
    return {"rows": tokens / took, "copy": len(copies[0]) / copied, "tokens": tokens}


def memory(episodes: int) -> dict[str, float]:
    """Bytes a token that rows hold, and the most while they are made; ``arrays`` are plain ones of them."""
    given = _episodes(episodes)
    tracemalloc.start()
    made = _rows(given)
    stays, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tokens = _held(made)
    return {"stays": stays / tokens, "most": most / tokens, "arrays": 4 + 1 + 4 + 4}


@cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False)
    texts = [search_task.search(each.query) for each in search_task.QUESTIONS]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def retokenising(episodes: int) -> dict[str, float]:
    """Tokens a second where the whole text is encoded again at each turn, as chat-based trainers do."""
    tokenizer = _tokenizer()
    text = " ".join(search_task.search(each.query) for each in search_task.QUESTIONS)
    offsets = tokenizer.encode(text).offsets
    ends = [offsets[turn * TOKENS - 1][1] for turn in range(1, TURNS + 1)]
    began = time.perf_counter()
    for _ in range(episodes):
        for end in ends:
            ids = tokenizer.encode(text[:end]).ids
    took = time.perf_counter() - began
    return {"rows": episodes * len(ids) / took, "tokens": episodes * len(ids)}


def appending(episodes: int, turns: int = TURNS) -> dict[str, float]:
    """Ids in the rows of a real rollout whose context only grows, beside those that there are.

    ``unique`` counts the last prompt of each episode and the last reply, which hold everything before them.
    """
    said = [testing.call("add", a=number, b=1) for number in range(turns - 1)]
    gym.register(APPENDING, entry_point=lambda: testing.sum_env(max_steps=turns))
    try:
        with Rollout(APPENDING, engine=testing.scripted(*said, testing.answer(1))) as rollout:
            played = rollout.run([EpisodeRequest(0, place) for place in range(episodes)])
    finally:
        del gym.registry[APPENDING]
    if any(len(each.steps) != turns for each in played):
        raise ValueError(f"episodes of {sorted({len(each.steps) for each in played})} steps, not {turns}")
    last = [each.steps[-1] for each in played]
    return {
        "unique": sum(len(step.prompt_ids) + len(step.response_ids) for step in last),
        "merged": _held(_rows(played)),
        "steps": _held(_rows(played, merge=False)),
    }
