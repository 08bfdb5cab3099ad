"""What can be done in a world: the rules of the game, one function a tool.

What they keep, in ``state["crafting"]``, is plain data. Every answer ends with a line on where the player
stands, so that a prompt that keeps the last turns alone still says all that counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent_r1_env.errors import ToolError, nearest
from agent_r1_env.signature import Hidden
from agent_r1_env.task import Task
from agent_r1_env.tool import ToolOutput

if TYPE_CHECKING:
    from envs.crafting.plans import World

State = dict[str, Any]


def look(state: Hidden[State], task: Hidden[Task | None]) -> str:
    """See what is in the place where you are: what to gather, stations, and ways to other places."""
    game = _Game(state, task)
    here, world = game.place, game.world
    raws = [_gathering(world, name) for name, raw in world["raws"].items() if raw["place"] == here]
    stations = [name for name, place in world["stations"].items() if place == here]
    return game.seen(
        f"To gather here: {_listed(raws)}.\n"
        f"Stations here: {_listed(stations)}.\n"
        f"Ways from here: {_listed(world['ways'][here])}."
    )


def inventory(state: Hidden[State], task: Hidden[Task | None]) -> str:
    """See what you carry, and the recipes that you have looked up."""
    game = _Game(state, task)
    known = [_making(game.world, name) for name in game.known]
    return game.seen("\n".join(["Your recipes:", *known] if known else ["You have looked up no recipe yet."]))


def recipe(item: str, state: Hidden[State], task: Hidden[Task | None]) -> ToolOutput:
    """Look up how a thing is made or where it is gathered. Only what was looked up can be made.

    Args:
        item: Name of the thing.
    """
    game = _Game(state, task)
    world = game.world
    thing = game.named(item, [*world["recipes"], *world["raws"]])
    if thing in world["raws"]:
        return game.moved(f"{thing}: {_source(world, thing)}, {world['raws'][thing]['gives']} at a time.")
    if thing not in game.known:
        game.known.append(thing)
    return game.moved(_making(world, thing), f"recipe {thing}")


def go(place: str, state: Hidden[State], task: Hidden[Task | None]) -> ToolOutput:
    """Walk to a neighbouring place.

    Args:
        place: Name of the place.
    """
    game = _Game(state, task)
    there = game.named(place, game.world["ways"])
    if there == game.place:
        raise game.refusal(f"you are in {there} already")
    if there not in game.world["ways"][game.place]:
        first = game.world["toward"][game.place][there]
        raise game.refusal(f"no way leads straight from {game.place} to {there}; go to {first} first")
    game.place = there
    return game.moved(f"You walk to {there}.")


def gather(material: str, state: Hidden[State], task: Hidden[Task | None]) -> ToolOutput:
    """Gather a material in the place where you are, as much as comes at a time.

    Args:
        material: Name of the material.
    """
    game = _Game(state, task)
    world = game.world
    thing = game.named(material, [*world["raws"], *world["recipes"]])
    if thing in world["recipes"]:
        raise game.refusal(f"{thing} is not gathered but made; look up its recipe")
    raw = world["raws"][thing]
    if raw["place"] != game.place:
        raise game.refusal(f"there is no {thing} in {game.place}; its recipe says where it is found")
    if raw["tool"] is not None and not game.items.get(raw["tool"]):
        raise game.refusal(f"you need 1 {raw['tool']} to gather {thing}, you have 0")
    game.check_room(raw["gives"])
    game.add(thing, raw["gives"])
    broken = raw["tool"] is not None and game.wears_out(raw["tool"])
    text = f"You gather {raw['gives']} {thing}." + (f" Your {raw['tool']} breaks." if broken else "")
    return game.moved(text, f"gather {thing}")


def craft(item: str, state: Hidden[State], task: Hidden[Task | None]) -> ToolOutput:
    """Make a thing once, of what you carry, where its recipe says.

    Args:
        item: Name of the thing.
    """
    game = _Game(state, task)
    world = game.world
    thing = game.named(item, [*world["recipes"], *world["raws"]])
    if thing in world["raws"]:
        raise game.refusal(f"{thing} is not made but gathered; its recipe says where")
    if thing not in game.known:
        raise game.refusal(f"you do not know how to make {thing}; look up its recipe first")
    made = world["recipes"][thing]
    if made["station"] is not None and world["stations"][made["station"]] != game.place:
        raise game.refusal(f"{thing} is made at the {made['station']}, and there is none in {game.place}")
    game.check_needs(made["needs"])
    game.check_room(made["gives"] - sum(made["needs"].values()))
    for each, number in made["needs"].items():
        game.add(each, -number)
    game.add(thing, made["gives"])
    return game.moved(f"You make {made['gives']} {thing}.", f"craft {thing}")


def drop(item: str, state: Hidden[State], task: Hidden[Task | None], number: int = 1) -> ToolOutput:
    """Throw things away to make room. They are gone; what is needed again has to be gathered or made anew.

    Args:
        item: Name of the thing.
        number: How many of it.
    """
    game = _Game(state, task)
    thing = game.named(item, [*game.world["raws"], *game.world["recipes"]])
    if number < 1:
        raise game.refusal(f"the number must be at least 1, not {number}")
    game.check_needs({thing: number})
    game.add(thing, -number)
    return game.moved(f"You throw away {number} {thing}.")


def respond(reply: str, state: Hidden[State], task: Hidden[Task | None]) -> str:
    """What a reply without a tool call comes to: nothing happens, and the model is told."""
    raise _Game(state, task).refusal("the reply holds no tool call, so nothing happened; call one tool")


class _Game:
    """The world of a task and where its player stands.

    Raises on construction:
        ToolError: there is no world, or the game is over.
    """

    def __init__(self, state: State, task: Task | None) -> None:
        if task is None or "world" not in task.data:
            raise ToolError("there is no world here; this tool belongs to the environment Crafting")
        self.world: World = task.data["world"]
        self._credit: dict[str, float] = task.data["credit"]
        if "crafting" not in state:
            state["crafting"] = {
                "place": self.world["start"],
                "items": {},
                "worn": {},
                "known": [],
                "reached": [],
                "moves": 0,
            }
        self._player: State = state["crafting"]
        if "goal" in self._player["reached"]:
            raise ToolError("the goal is reached; there is nothing left to do")

    @property
    def place(self) -> str:
        return str(self._player["place"])

    @place.setter
    def place(self, place: str) -> None:
        self._player["place"] = place

    @property
    def items(self) -> dict[str, int]:
        items: dict[str, int] = self._player["items"]
        return items

    @property
    def known(self) -> list[str]:
        known: list[str] = self._player["known"]
        return known

    def named(self, given: str, known: Iterable[str]) -> str:
        """What a name means, in any case and with an article or not.

        Raises:
            ToolError: nothing is called so; with the nearest name.
        """
        names = {name.casefold(): name for name in known}
        asked = " ".join(given.casefold().split())
        if asked in names:
            return names[asked]
        guess = nearest(asked[:80], names)
        meant = f"; did you mean {names[guess]!r}?" if guess is not None else ""
        raise self.refusal(f"nothing here is called {given[:80]!r}{meant}")

    def add(self, thing: str, number: int) -> None:
        self.items[thing] = self.items.get(thing, 0) + number
        if not self.items[thing]:
            del self.items[thing]
            self._player["worn"].pop(thing, None)

    def wears_out(self, tool: str) -> bool:
        """Use a tool once; whether that was its last time."""
        worn = self._player["worn"]
        worn[tool] = worn.get(tool, 0) + 1
        if worn[tool] < (self.world["recipes"][tool]["uses"] or 0):
            return False
        del worn[tool]
        self.add(tool, -1)
        return True

    def check_needs(self, needs: dict[str, int]) -> None:
        lacking = [
            f"{number} {thing}, you have {self.items.get(thing, 0)}"
            for thing, number in needs.items()
            if self.items.get(thing, 0) < number
        ]
        if lacking:
            raise self.refusal(f"you need {'; '.join(lacking)}")

    def check_room(self, more: int) -> None:
        free = self.world["capacity"] - sum(self.items.values())
        if more > free:
            raise self.refusal(f"you need room for {more} more, you have room for {free}; drop something")

    def seen(self, text: str) -> str:
        """An answer that costs no move of the plan."""
        return f"{text}\n{self._standing()}"

    def moved(self, text: str, milestone: str = "") -> ToolOutput:
        """An answer to something done, with its worth: each milestone pays once, the goal ends the game."""
        self._player["moves"] += 1
        won = self.items.get(self.world["goal"], 0) >= self.world["amount"]
        reached = [each for each in [milestone, "goal" if won else ""] if self._is_new(each)]
        self._player["reached"] += reached
        if won:
            text += " The goal is reached."
        return ToolOutput(self.seen(text), reward=sum(self._credit[each] for each in reached), done=won)

    def refusal(self, text: str) -> ToolError:
        return ToolError(f"{text}\n{self._standing()}")

    def _is_new(self, milestone: str) -> bool:
        return milestone in self._credit and milestone not in self._player["reached"]

    def _standing(self) -> str:
        carried = [f"{number} {thing}{self._left(thing)}" for thing, number in self.items.items()]
        load = f"{sum(self.items.values())} of {self.world['capacity']}"
        return f"[You are in {self.place} and carry {load}{': ' if carried else ''}{', '.join(carried)}.]"

    def _left(self, thing: str) -> str:
        """How often a tool that is carried can still be used."""
        uses = self.world["recipes"][thing]["uses"] if thing in self.world["recipes"] else None
        if uses is None:
            return ""
        left = uses * self.items[thing] - self._player["worn"].get(thing, 0)
        return f" ({left} use{'s' * (left != 1)} left)"


def _making(world: World, thing: str) -> str:
    """A recipe in one line, with where its parts come from."""
    made = world["recipes"][thing]
    parts = [f"{number} {each} ({_source(world, each)})" for each, number in made["needs"].items()]
    gives = f"{made['gives']} {thing}" if made["gives"] > 1 else thing
    where = (
        f"made at the {made['station']} in {world['stations'][made['station']]}"
        if made["station"]
        else "made anywhere"
    )
    uses = f"; good for {made['uses']} uses" if made["uses"] else ""
    return f"{gives}: {', '.join(parts)}; {where}{uses}."


def _source(world: World, thing: str) -> str:
    if thing in world["recipes"]:
        return "made"
    raw = world["raws"][thing]
    return f"gathered in {raw['place']}" + (f" with the {raw['tool']}" if raw["tool"] else "")


def _gathering(world: World, thing: str) -> str:
    raw = world["raws"][thing]
    tool = f", takes the {raw['tool']}" if raw["tool"] else ""
    return f"{thing} ({raw['gives']} at a time{tool})"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "nothing"
