"""What scripted policies of several environments are made of."""

from __future__ import annotations

import numpy as np

from agent_r1_env.env import ToolEnv
from agent_r1_env.task import Task

UNKNOWN = "unknown"
"""The answer of a policy that has none."""


def task_of(env: ToolEnv) -> Task:
    """The task of the running episode, right answers included: a policy is on the developer's side.

    Raises:
        RuntimeError: no episode has begun.
    """
    if env.task is None:
        raise RuntimeError("a policy acts in a running episode; call reset() first")
    return env.task


def last_result(env: ToolEnv) -> str:
    """What the last call gave; "" before the first."""
    return next((message.content for message in reversed(env.history) if message.role == "tool"), "")


def some_words(question: str, rng: np.random.Generator) -> str:
    """Up to three words in a row of a question."""
    words = question.rstrip("?").split() or [UNKNOWN]
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + 3])
