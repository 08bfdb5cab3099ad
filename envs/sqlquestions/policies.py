"""Scripted policies for questions to a database.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from agent_r1_env.env import ToolEnv
from agent_r1_env.task import Task


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Read the schema, run the right query, and answer with what it gave."""
    if env.steps >= env.max_steps - 1 or env.steps > 2:
        return _answer(env, _task(env).answers[0])
    if env.steps == 0:
        return env.format.render_call("sql_schema", {})
    if env.steps == 1:
        return _query(env, _task(env).data["query"])
    return _answer(env, "\n".join(_rows(env)) or "none")


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Guess a table, look there for a name of the question, and answer with the last value of its row."""
    if env.steps == 0 and env.max_steps > 2:
        return env.format.render_call("sql_schema", {})
    if env.steps == 1 and env.max_steps > 2:
        tables = re.findall(r"(?m)^\w+$", _result(env)) or ["sqlite_master"]
        question = _task(env).question
        table = next((name for name in tables if name in question), tables[0])
        told = question.replace("'", "''")
        return _query(env, f"SELECT * FROM {table} WHERE instr('{told}', name) > 0 LIMIT 1")
    row = next(iter(_rows(env)), "unknown")
    return _answer(env, row.rpartition("|")[2].strip())


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, _some_words(_task(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: env.format.render_call("sql_schema", {}),
    lambda env, words: env.format.render_call("sql_schema", {"table": words}),
    lambda env, words: _query(env, f"SELECT name FROM {words.split()[0]} LIMIT 3"),
    lambda env, words: _query(env, "SELECT count(*) FROM customer") + "\n" + _query(env, words),
    lambda env, words: _query(env, f"DROP TABLE {words}"),
    lambda env, words: _query(env, words)[:-20],
    lambda env, words: env.format.render_call("sql", {"sql": words}),
    lambda env, words: env.format.render_call("sqlite", {"query": words}),
    lambda env, words: _answer(env, words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _task(env: ToolEnv) -> Task:
    if env.task is None:
        raise RuntimeError("a policy acts in a running episode; call reset() first")
    return env.task


def _query(env: ToolEnv, query: str) -> str:
    return env.format.render_call("sql", {"query": query})


def _answer(env: ToolEnv, text: str) -> str:
    return env.render_answer(text)


def _result(env: ToolEnv) -> str:
    """What the last call gave."""
    return next((message.content for message in reversed(env.history) if message.role == "tool"), "")


def _rows(env: ToolEnv) -> list[str]:
    """The rows of the last result: what stands between its header and its count."""
    return _result(env).splitlines()[1:-1]


def _some_words(question: str, rng: np.random.Generator) -> str:
    words = question.rstrip("?").split()
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + 3])
