"""Scripted policies for the games: one that knows what is hidden, one without a plan, one without a clue.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agent_r1_env.env import ToolEnv

_WAYS = ("north", "east", "south", "west")
_RIGHT_HAND = {way: [_WAYS[(place + turn) % 4] for turn in (1, 0, 3, 2)] for place, way in enumerate(_WAYS)}


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Win by the shortest way, knowing what is hidden."""
    kind, data, _ = _game(env)
    if kind == "maze":
        return f"I know the way.\n{data['way'][env.steps]}"
    return f"I know it.\n{data['secret']}"


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Play without what is hidden, and without thought: count up, name one thing after the other, keep a hand
    on the right wall."""
    kind, data, state = _game(env)
    if kind == "guess":
        return str(data["low"] + env.steps)
    if kind == "questions":
        return str(list(data["things"])[env.steps])
    room = state.get("room", data["start"])
    before = env.history[-2].content if env.steps else ""
    return _along_the_wall(data["doors"][f"{room[0]},{room[1]}"], before)


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    kind, data, _ = _game(env)
    if kind == "guess":
        words = [str(rng.integers(data["low"], data["high"] + 1))] * 3
    else:
        words = [*data["things"], "red", "wooden", "old"] if kind == "questions" else list(_WAYS)
    choices = [
        *words,
        "",
        "I give up",
        "<answer>yes</answer>",
        '<tool_call>{"name": "x", "arguments": {}}</tool_call>',
    ]
    return choices[int(rng.integers(len(choices)))]


def _game(env: ToolEnv) -> tuple[str, dict[str, Any], dict[str, Any]]:
    if env.episode is None:
        raise RuntimeError("a policy acts in a running episode; call reset() first")
    return env.episode.task.kind, dict(env.episode.task.data), env.episode.session.state


def _along_the_wall(doors: list[str], before: str) -> str:
    """The first door to the right of the way that led here."""
    return next(way for way in _RIGHT_HAND.get(before, _WAYS) if way in doors)
