"""Scripted policies for questions that are answered with the search tool.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agent_r1_env.acting import UNKNOWN, last_result, some_words, task_of
from agent_r1_env.env import ToolEnv


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Look up every supporting paragraph by its title, then give the right answer.

    A task that names no paragraphs is answered at once.
    """
    task = task_of(env)
    titles = list(dict.fromkeys(title for title, _ in task.supporting))[: env.max_steps - 1]
    if env.steps < len(titles):
        return _search(env, titles[env.steps])
    return env.render_answer(next((gold for gold in task.answers if gold.strip()), UNKNOWN))


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Search once for the question as it stands and answer with the title found first."""
    if env.steps == 0 and env.max_steps > 1:
        return _search(env, task_of(env).question)
    found = last_result(env)
    title = found.removeprefix("[1] ").partition(": ")[0] if found.startswith("[1] ") else ""
    return env.render_answer(title or UNKNOWN)


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, some_words(task_of(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: _search(env, words),
    lambda env, words: _search(env, words) + "\n" + _search(env, words[::-1]),
    lambda env, words: env.render_answer(words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: env.format.render_call("look_up", {"query": words}),
    lambda env, words: env.format.render_call("search", {"text": words}),
    lambda env, words: env.format.render_call("search", {"query": 3}),
    lambda env, words: _search(env, words)[:-20],
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _search(env: ToolEnv, query: str) -> str:
    return env.format.render_call("search", {"query": query})
