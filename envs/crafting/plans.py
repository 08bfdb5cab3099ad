"""What a goal takes in a world, and a shortest plan for it.

The length of the shortest plan is exact, because it falls apart: every recipe on the way is looked up once,
how often each thing is gathered and made follows from the quantities, and the fewest moves between places
come from a search over all orders of the work.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TypedDict

_MOST_STATES = 3000
"""Of the search for a walk; the few worlds that need more are given up."""


class Raw(TypedDict):
    """Something that is gathered; ``tool`` is what it takes, ``gives`` how many there are at a time."""

    place: str
    gives: int
    tool: str | None


class Recipe(TypedDict):
    """Something that is made; ``uses`` says how often a tool can be used before it breaks, else None."""

    needs: dict[str, int]
    gives: int
    station: str | None
    uses: int | None


class World(TypedDict):
    """Everything there is. ``toward[a][b]`` is the next place on a shortest way from a to b."""

    ways: dict[str, list[str]]
    toward: dict[str, dict[str, str]]
    stations: dict[str, str]
    raws: dict[str, Raw]
    recipes: dict[str, Recipe]
    start: str
    capacity: int
    goal: str
    amount: int


Move = tuple[str, str]
"""A tool and its argument."""


class Work:
    """Everything that has to be done for the goal of a world as it is now.

    Attributes:
        times: how often each thing is gathered or made, what is needed first before the rest.
        recipes: the things to look up, the goal first.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.times = self._count()
        self.recipes = [thing for thing in reversed(self.times) if thing in world["recipes"]]

    @property
    def moves(self) -> int:
        """Moves that it takes, apart from those between places."""
        return sum(self.times.values()) + len(self.recipes)

    def walk(self) -> list[str] | None:
        """The places of a shortest walk on which all the work gets done, from the start on.

        Work that can be done is done at once and whole: there is nothing to gain from waiting, as long as
        everything can be carried. So a state of the search is a place and what was done.

        Returns:
            None where the search would take too long.
        """
        place = self._world["start"]
        done = frozenset(self._doable(place, frozenset()))
        waiting: deque[tuple[str, frozenset[str], tuple[str, ...]]] = deque([(place, done, (place,))])
        seen = {(place, done)}
        while waiting and len(seen) < _MOST_STATES:
            place, done, walk = waiting.popleft()
            if self._world["goal"] in done:
                return list(walk)
            for near in self._world["ways"][place]:
                after = done.union(self._doable(near, done))
                if (near, after) not in seen:
                    seen.add((near, after))
                    waiting.append((near, after, (*walk, near)))
        return None

    def plan(self, walk: Iterable[str]) -> list[Move]:
        """The moves that look everything up and then do the work along a walk."""
        plan: list[Move] = [("recipe", thing) for thing in self.recipes]
        done: frozenset[str] = frozenset()
        for number, place in enumerate(walk):
            plan += [("go", place)] if number else []
            found = self._doable(place, done)
            for thing in found:
                move = "craft" if thing in self._world["recipes"] else "gather"
                plan += [(move, thing)] * self.times[thing]
            done = done.union(found)
        return plan

    def most_carried(self, plan: Iterable[Move]) -> int:
        """The greatest number of things that are carried at a time, if no tool breaks."""
        carried = most = 0
        for move, thing in plan:
            if move == "gather":
                carried += self._world["raws"][thing]["gives"]
            elif move == "craft":
                recipe = self._world["recipes"][thing]
                carried += recipe["gives"] - sum(recipe["needs"].values())
            most = max(most, carried)
        return most

    def _count(self) -> dict[str, int]:
        world = self._world
        order = list(dict.fromkeys(needed(world, world["goal"])))
        wanted = Counter({world["goal"]: world["amount"]})
        times = {}
        for thing in reversed(order):
            recipe = world["recipes"].get(thing)
            gives = world["raws"][thing]["gives"] if recipe is None else recipe["gives"]
            times[thing] = -(-wanted[thing] // gives)
            if recipe is not None:
                wanted.update({each: number * times[thing] for each, number in recipe["needs"].items()})
            elif (tool := world["raws"][thing]["tool"]) is not None:
                wanted[tool] = 1
        return {thing: times[thing] for thing in order}

    def _doable(self, place: str, done: frozenset[str]) -> list[str]:
        """All the work that can be done in one place, one after the other, given what was done before."""
        found: list[str] = []
        for thing in self.times:  # in this order, what a piece of work needs is looked at before it
            if (
                thing not in done
                and self._place_of(thing) in (None, place)
                and all(each in done or each in found for each in _parts(self._world, thing))
            ):
                found.append(thing)
        return found

    def _place_of(self, thing: str) -> str | None:
        """Where a thing is gathered or made; None for anywhere."""
        if thing in self._world["raws"]:
            return self._world["raws"][thing]["place"]
        station = self._world["recipes"][thing]["station"]
        return None if station is None else self._world["stations"][station]


def needed(world: World, thing: str) -> Iterator[str]:
    """What has to be there for a thing, itself the last; some of it more than once."""
    for each in _parts(world, thing):
        yield from needed(world, each)
    yield thing


def _parts(world: World, thing: str) -> Iterable[str]:
    if thing in world["recipes"]:
        return world["recipes"][thing]["needs"]
    tool = world["raws"][thing]["tool"]
    return () if tool is None else (tool,)


def towards(ways: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """By place and place, the next one on a shortest way from the one to the other."""
    found: dict[str, dict[str, str]] = {place: {} for place in ways}
    for goal in ways:
        waiting = deque([goal])
        while waiting:
            place = waiting.popleft()
            for near in ways[place]:
                if near != goal and goal not in found[near]:
                    found[near][goal] = place
                    waiting.append(near)
    return found
