"""Scripted policies for questions to a database.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from agent_r1_env.acting import last_result, some_words, task_of
from agent_r1_env.env import ToolEnv


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Read the schema, run the right query, and answer with what it gave."""
    if env.steps >= env.max_steps - 1 or env.steps > 2:
        return env.render_answer(task_of(env).answers[0])
    if env.steps == 0:
        return env.format.render_call("sql_schema", {})
    if env.steps == 1:
        return _query(env, task_of(env).data["query"])
    return env.render_answer("\n".join(_rows(env)) or "none")


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Guess a table, look there for a name of the question, and answer with the last value of its row."""
    if env.steps == 0 and env.max_steps > 2:
        return env.format.render_call("sql_schema", {})
    if env.steps == 1 and env.max_steps > 2:
        tables = re.findall(r"(?m)^\w+$", last_result(env)) or ["sqlite_master"]
        question = task_of(env).question
        table = next((name for name in tables if name in question), tables[0])
        told = question.replace("'", "''")
        return _query(env, f"SELECT * FROM {table} WHERE instr('{told}', name) > 0 LIMIT 1")
    row = next(iter(_rows(env)), "unknown")
    return env.render_answer(row.rpartition("|")[2].strip())


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, some_words(task_of(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: env.format.render_call("sql_schema", {}),
    lambda env, words: env.format.render_call("sql_schema", {"table": words}),
    lambda env, words: _query(env, f"SELECT name FROM {words.split()[0]} LIMIT 3"),
    lambda env, words: _query(env, "SELECT count(*) FROM customer") + "\n" + _query(env, words),
    lambda env, words: _query(env, f"DROP TABLE {words}"),
    lambda env, words: _query(env, words)[:-20],
    lambda env, words: env.format.render_call("sql", {"sql": words}),
    lambda env, words: env.format.render_call("sqlite", {"query": words}),
    lambda env, words: env.render_answer(words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _query(env: ToolEnv, query: str) -> str:
    return env.format.render_call("sql", {"query": query})


def _rows(env: ToolEnv) -> list[str]:
    """The rows of the last result: what stands between its header and its count."""
    return last_result(env).splitlines()[1:-1]
