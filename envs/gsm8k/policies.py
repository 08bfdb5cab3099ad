"""Scripted policies for word problems.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from agent_r1_env.acting import last_result, some_words, task_of
from agent_r1_env.env import ToolEnv

_CALCULATION = re.compile(r"<<(.*?)=[^=]*>>")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Work out every step of the solution, check the result if that is possible, then give it."""
    task, last = task_of(env), env.max_steps - 1
    calculations = _CALCULATION.findall(task.data["solution"])
    if env.steps == 0 < last and calculations:
        return "\n".join(_work_out(env, each) for each in calculations)
    if env.steps <= 1 < last and "check_answer" in env.toolbox.tools and not _checked(env):
        return env.format.render_call("check_answer", {"answer": task.answers[0]})
    return env.render_answer(task.answers[0])


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Multiply the last two numbers of the question, and answer with the result."""
    numbers = [each.rstrip(",").replace(",", "") for each in _NUMBER.findall(task_of(env).question)]
    if env.steps == 0 and len(numbers) > 1 and env.max_steps > 1:
        return _work_out(env, f"{numbers[-2]}*{numbers[-1]}")
    found = last_result(env)
    return env.render_answer(found or (numbers or ["0"])[-1])


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, some_words(task_of(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: _work_out(env, "12 * (3 + 4)"),
    lambda env, words: _work_out(env, words) + "\n" + _work_out(env, "1/0"),
    lambda env, words: _work_out(env, words)[:-20],
    lambda env, words: env.format.render_call("check_answer", {"answer": words}),
    lambda env, words: env.format.render_call("calculator", {"expr": words}),
    lambda env, words: env.format.render_call("calculate", {"expression": words}),
    lambda env, words: env.render_answer(words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _work_out(env: ToolEnv, expression: str) -> str:
    """A call of whichever tool can calculate."""
    if "python" in env.toolbox.tools:
        return env.format.render_call("python", {"code": f"print({expression})"})
    return env.format.render_call("calculator", {"expression": expression})


def _checked(env: ToolEnv) -> bool:
    return any(message.name == "check_answer" for message in env.history)
