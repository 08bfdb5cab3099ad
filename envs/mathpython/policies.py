"""Scripted policies for problems that are solved with code.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from agent_r1_env.acting import last_result, some_words, task_of
from agent_r1_env.env import ToolEnv
from agent_r1_env.task import Task

_CALCULATION = re.compile(r"<<(.*?)=[^=]*>>")
_NUMBER = re.compile(r"\d+")


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Run the program that solves the problem, and answer with what it printed.

    Where there is none, the calculations of the solution are run, and the right answer is given.
    """
    task, program = task_of(env), task_of(env).data["program"]
    if env.steps == 0 and env.max_steps > 1:
        return _run(env, program or _calculations(task))
    if env.steps == 1 and program and (printed := _result(env)):
        return env.render_answer(printed.splitlines()[-1])
    return env.render_answer(task.answers[0])


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Add up the numbers of the problem in a program, and answer with the sum."""
    numbers = [each.lstrip("0") or "0" for each in _NUMBER.findall(task_of(env).question)][:20]
    if env.steps == 0 and env.max_steps > 1:
        return _run(env, f"print({' + '.join(numbers) or '0'})")
    return env.render_answer(_result(env) or "0")


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, some_words(task_of(env).question, rng))


_MOVES: tuple[Callable[[ToolEnv, str], str], ...] = (
    lambda env, words: _run(env, "print(sum(range(10)))"),
    lambda env, words: _run(env, words) + "\n" + _run(env, "1 / 0"),
    lambda env, words: _run(env, words)[:-8],
    lambda env, words: env.render_answer(words),
    lambda env, words: words,
    lambda env, words: "",
    lambda env, words: f"<interpreter>{words}</interpreter>",
    lambda env, words: f"<{env.answer_tag}>{words}",
)


def _run(env: ToolEnv, code: str) -> str:
    return env.format.render_call("python", {"code": code})


def _calculations(task: Task) -> str:
    """A program of the calculations that the solution marks, as GSM8K does; else one of the answer alone."""
    lines = [f"print({each})" for each in _CALCULATION.findall(task.data["solution"])]
    return "\n".join(lines) or f"print({task.answers[0]!r})"


def _result(env: ToolEnv) -> str:
    """What the last block wrote; "" where it failed."""
    written = last_result(env)
    return "" if written.startswith("error") else written.strip()
