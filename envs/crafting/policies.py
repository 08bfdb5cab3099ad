"""Scripted policies for worlds to craft in.

A policy stands on the developer's side: it may look at the task. It is called once a step with the
environment and a generator of its own, and returns the whole reply as a model would write it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_r1_env.env import ToolEnv

if TYPE_CHECKING:
    from envs.crafting.plans import World

_ARGUMENT = {"recipe": "item", "go": "place", "gather": "material", "craft": "item", "drop": "item"}


def oracle(env: ToolEnv, rng: np.random.Generator) -> str:
    """Follow the shortest plan; a move that failed is made again."""
    plan = _data(env)["plan"]
    done = _player(env).get("moves", 0)
    return _call(env, *plan[min(done, len(plan) - 1)])


def naive(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make and gather whatever can be had here of what is still lacking, and else wander on at random."""
    return _call(env, *_Wanderer(_data(env)["world"], _player(env)).next_move(rng))


def random(env: ToolEnv, rng: np.random.Generator) -> str:
    """Make any move a model might make, right or wrong."""
    world: World = _data(env)["world"]
    names = [*world["raws"], *world["recipes"], *world["ways"]]
    name = names[int(rng.integers(len(names)))]
    tool = list(_ARGUMENT)[int(rng.integers(len(_ARGUMENT)))]
    move = _MOVES[int(rng.integers(len(_MOVES)))]
    return move(env, tool, name)


_MOVES: tuple[Callable[[ToolEnv, str, str], str], ...] = (
    *(lambda env, tool, name: _call(env, tool, name),) * 10,
    lambda env, tool, name: env.format.render_call("look", {}),
    lambda env, tool, name: env.format.render_call("inventory", {}),
    lambda env, tool, name: _call(env, "recipe", name) + "\n" + _call(env, "gather", name),
    lambda env, tool, name: env.format.render_call("drop", {"item": name, "number": -1}),
    lambda env, tool, name: env.format.render_call(tool, {"name": name}),
    lambda env, tool, name: env.format.render_call("make", {"item": name}),
    lambda env, tool, name: _call(env, tool, name[:-2]),
    lambda env, tool, name: _call(env, tool, name)[:-20],
    lambda env, tool, name: f"<answer>{name}</answer>",
    lambda env, tool, name: "",
)


class _Wanderer:
    """Finds a move that helps in the place where the player stands, without a thought of other places."""

    def __init__(self, world: World, player: dict[str, Any]) -> None:
        self._world = world
        self._place: str = player.get("place", world["start"])
        self._items: dict[str, int] = player.get("items", {})
        self._known: list[str] = player.get("known", [])
        self._lacking: dict[str, None] = {}
        self._look_for(world["goal"], world["amount"], dict(self._items))

    def next_move(self, rng: np.random.Generator) -> tuple[str, str]:
        unknown = [
            name for name in self._lacking if name in self._world["recipes"] and name not in self._known
        ]
        if unknown:
            return "recipe", unknown[0]
        moves = [move for name in self._lacking if (move := self._get(name)) is not None]
        if moves:
            return moves[0]
        ways = self._world["ways"][self._place]
        return "go", ways[int(rng.integers(len(ways)))]

    def _look_for(self, thing: str, number: int, stock: dict[str, int]) -> None:
        """Note what is lacking of so many of a thing, given a stock that is used up by and by."""
        used = min(number, stock.get(thing, 0))
        stock[thing] = stock.get(thing, 0) - used
        if used == number:
            return
        self._lacking[thing] = None
        if thing in self._known:
            recipe = self._world["recipes"][thing]
            times = -(-(number - used) // recipe["gives"])
            for each, needed in recipe["needs"].items():
                self._look_for(each, needed * times, stock)
        elif thing in self._world["raws"] and (tool := self._world["raws"][thing]["tool"]) is not None:
            self._look_for(tool, 1, dict(stock))

    def _get(self, thing: str) -> tuple[str, str] | None:
        """How to get a thing here and now."""
        if thing in self._world["raws"]:
            raw = self._world["raws"][thing]
            if raw["place"] != self._place or not (raw["tool"] is None or self._items.get(raw["tool"])):
                return None
            return self._with_room(raw["gives"], ("gather", thing))
        recipe = self._world["recipes"][thing]
        station = recipe["station"]
        if station is not None and self._world["stations"][station] != self._place:
            return None
        if any(self._items.get(each, 0) < number for each, number in recipe["needs"].items()):
            return None
        return self._with_room(recipe["gives"] - sum(recipe["needs"].values()), ("craft", thing))

    def _with_room(self, more: int, move: tuple[str, str]) -> tuple[str, str]:
        """The move, or else what makes room for it."""
        if sum(self._items.values()) + more <= self._world["capacity"]:
            return move
        return "drop", max(self._items, key=lambda name: self._items[name])


def _data(env: ToolEnv) -> Any:
    if env.task is None:
        raise RuntimeError("a policy acts in a running episode; call reset() first")
    return env.task.data


def _player(env: ToolEnv) -> dict[str, Any]:
    """What the tools keep of the episode; empty before the first call."""
    player: dict[str, Any] = env.toolbox.session.state.get("crafting", {})
    return player


def _call(env: ToolEnv, tool: str, name: str) -> str:
    return env.format.render_call(tool, {_ARGUMENT[tool]: name})
