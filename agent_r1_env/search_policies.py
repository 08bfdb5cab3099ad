"""Scripted policies for questions that are answered with the search tool.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agent_r1_env.env import ToolEnv
from agent_r1_env.task import Task

UNKNOWN = "unknown"
"""The answer of a policy that has none."""


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Look up every supporting paragraph by its title, then give the right answer.

    A task that names no paragraphs is answered at once.
    """
    task = _task(env)
    titles = list(dict.fromkeys(title for title, _ in task.supporting))[: env.max_steps - 1]
    if env.steps < len(titles):
        return _search(env, titles[env.steps])
    return _answer(env, next((gold for gold in task.answers if gold.strip()), UNKNOWN))


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Search once for the question as it stands and answer with the title found first."""
    if env.steps == 0 and env.max_steps > 1:
        return _search(env, _task(env).question)
    found = next((message.content for message in reversed(env.history) if message.role == "tool"), "")
    title = found.removeprefix("[1] ").partition(": ")[0] if found.startswith("[1] ") else ""
    return _answer(env, title or UNKNOWN)


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, _some_words(_task(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: _search(env, words),
    lambda env, words: _search(env, words) + "\n" + _search(env, words[::-1]),
    lambda env, words: _answer(env, words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: env.format.render_call("look_up", {"query": words}),
    lambda env, words: env.format.render_call("search", {"text": words}),
    lambda env, words: env.format.render_call("search", {"query": 3}),
    lambda env, words: _search(env, words)[:-20],
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _task(env: ToolEnv) -> Task:
    if env.task is None:
        raise RuntimeError("a policy acts in a running episode; call reset() first")
    return env.task


def _search(env: ToolEnv, query: str) -> str:
    return env.format.render_call("search", {"query": query})


def _answer(env: ToolEnv, text: str) -> str:
    return env.render_answer(text)


def _some_words(question: str, rng: np.random.Generator) -> str:
    words = question.rstrip("?").split() or [UNKNOWN]
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + 3])
