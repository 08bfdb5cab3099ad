"""Worlds to craft in, drawn from a seed: places, materials, recipes and a goal, each with a shortest plan.

A thing is made of earlier things alone, so that every goal can be reached, and what can be gathered never
runs out, so that nothing is lost for good.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent_r1_env.errors import look_up
from agent_r1_env.loading import load_target
from agent_r1_env.task import Task, TaskSet

if TYPE_CHECKING:
    from envs.crafting.plans import Move, Work, World, needed, towards
else:  # code beside an entry is no package
    Work, needed, towards = (
        load_target(f"./plans.py:{name}", Path(__file__).parent) for name in ("Work", "needed", "towards")
    )

COUNTS = {"train": 500, "validation": 200}
LEVELS = {"tiny": (3, 6), "short": (6, 12), "medium": (10, 30), "long": (30, 60)}
"""Shortest and longest plan of a level, in moves."""
GOAL_CREDIT = 0.5
"""What reaching the goal is worth; the milestones before it share the rest of 1.0 evenly."""
SHORTEST, LONGEST = 3, 60
_TRIES = 10_000

_WORDS = {
    kind: words.split()
    for kind, words in {
        "adjective": "amber ash bog copper deep frost grey moon pale red river silver thorn wild",
        "raw": "bark chalk clay feather flint moss ore reed resin root sand shell wax wool",
        "material": "brick cloth cord dye felt glass glue ingot paper paste plank plate rod thread tile wire",
        "tool": "axe chisel net pick saw shears shovel sickle",
        "goal": "bell clock compass crown drum flute kite lamp lantern mask mirror sledge statue wheel",
        "station": "forge furnace kiln loom mill press still workbench",
        "side": "Elm Far Green High Long Low North Old South Stone",
        "place": "Bay Cave Field Hill Lake Marsh Quarry Valley Village Wood",
    }.items()
}


def tasks(
    split: str = "validation",
    *,
    level: str = "medium",
    length: int | Sequence[int] | None = None,
    count: int | None = None,
    world_seed: int = 0,
) -> TaskSet:
    """Tasks with a world each.

    Args:
        split: "train" or "validation", which are drawn from different seeds.
        level: how long the shortest plans are: "tiny", "short", "medium" or "long".
        length: the same in moves, as a number or as [shortest, longest]; takes the place of ``level``.
        count: how many tasks; 500 for training and 200 for validation by default.
        world_seed: another seed makes other worlds.

    Returns:
        A set that is shared by all callers of the process with equal arguments.

    Raises:
        UnknownName: no such split or level.
        ValueError: a length outside of 3 to 60 moves, or another number that is too small.
    """
    usual = look_up("split", split, COUNTS)
    count = usual if count is None else count
    low, high = look_up("level", level, LEVELS) if length is None else _bounds(length)
    if count < 1 or world_seed < 0:
        raise ValueError(f"count must be at least 1 and world_seed at least 0, got {count} and {world_seed}")
    if not SHORTEST <= low <= high <= LONGEST:
        raise ValueError(f"plans take {SHORTEST} to {LONGEST} moves, so length cannot be {length!r}")
    return _tasks(split, low, high, count, world_seed)


def _bounds(length: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(length, int):
        return length, length
    if len(length) != 2:
        raise ValueError(f"length is a number of moves or [shortest, longest], got {length!r}")
    return length[0], length[1]


@lru_cache(maxsize=8)
def _tasks(split: str, low: int, high: int, count: int, world_seed: int) -> TaskSet:
    return TaskSet(
        (_task(split, low, high, world_seed, number) for number in range(count)),
        name=f"Crafting {split}, {low} to {high} moves",
        origin=f"worlds drawn from seed {world_seed}",
        synthetic=True,
    )


def _task(split: str, low: int, high: int, world_seed: int, number: int) -> Task:
    """One task. It depends on these numbers alone, not on how many others there are."""
    rng = random.Random(f"{split} {low} {high} {world_seed} {number}")
    length = rng.randint(low, high)
    world, plan = draw(rng, length)
    return Task(
        id=f"{split}-{low}-{high}-{world_seed}-{number}",
        question=_question(world),
        data={"world": world, "plan": [list(move) for move in plan], "credit": _credit(world, plan)},
    )


def _question(world: World) -> str:
    ways = [f"{a} - {b}" for a, near in world["ways"].items() for b in near if a < b]
    return (
        f"Make {world['amount']} {world['goal']}.\n"
        f"You begin in {world['start']} with nothing, and can carry {world['capacity']} things.\n"
        f"Ways between places: {'; '.join(ways) or 'none, there is only ' + world['start']}."
    )


def _credit(world: World, plan: list[Move]) -> dict[str, float]:
    """What each milestone is worth, the first time: learning, gathering and making what the goal takes."""
    final = ("craft", world["goal"])
    milestones = dict.fromkeys(move for move in plan if move[0] != "go" and move != final)
    return {" ".join(move): (1 - GOAL_CREDIT) / len(milestones) for move in milestones} | {
        "goal": GOAL_CREDIT
    }


# -- drawing a world


def draw(rng: random.Random, length: int) -> tuple[World, list[Move]]:
    """A world and a shortest plan of just so many moves."""
    for _ in range(_TRIES):
        world = _Draft(rng, length).world
        work = Work(world)
        if (rest := length - work.moves) < 0 or (walk := work.walk()) is None:
            continue
        rest -= len(walk) - 1
        if 0 <= rest <= max(2, length // 4) and _prolong(rng, world, work.times, rest):
            return _finished(rng, world, walk)
    raise RuntimeError(f"found no world whose shortest plan takes {length} moves")


class _Draft:
    """A random world, in which each thing is made of earlier ones."""

    def __init__(self, rng: random.Random, length: int) -> None:
        self._rng = rng
        self._names = {kind: iter(rng.sample(words, len(words))) for kind, words in _WORDS.items()}
        size = max(1, min(12, round(length / 6 + rng.uniform(-1, 1))))
        ways = self._map(min(1 + length // 5, 9) - (length > 5 and rng.random() < 0.3))
        self.world: World = {
            "ways": ways,
            "toward": towards(ways),
            "stations": {},
            "raws": {},
            "recipes": {},
            "start": self._rng.choice(list(ways)),
            "capacity": 0,
            "goal": "",
            "amount": 2 if length > 12 and rng.random() < 0.2 else 1,
        }
        self._unused: list[str] = []
        self._fill(size)

    def _fill(self, size: int) -> None:
        """Things until the goal is the recipe number ``size``, and a few that lead nowhere."""
        recipes = self.world["recipes"]
        for _ in range(1 + size // 3):
            self._raw(None)
        while len(recipes) < size - 1:
            self._more()
        # What takes most on the way there, for else most things would be of no use to anybody.
        depth = {name: len(set(needed(self.world, name))) for name in self._unused}
        self.world["goal"] = self._recipe("goal", sorted(depth, key=lambda name: -depth[name])[:3])
        for _ in range(self._rng.randint(0, 1 + size // 2)):
            self._more()

    def _more(self) -> None:
        tools = sum(recipe["uses"] is not None for recipe in self.world["recipes"].values())
        if self._rng.random() < 0.35 and tools < 3 and len(self.world["raws"]) < len(_WORDS["raw"]):
            self._raw(self._recipe("tool", self._ingredients()))
        elif self._rng.random() < 0.2 and len(self.world["raws"]) < len(_WORDS["raw"]):
            self._raw(None)
        elif len(self.world["recipes"]) < len(_WORDS["material"]):
            self._unused.append(self._recipe("material", self._ingredients()))

    def _raw(self, tool: str | None) -> None:
        name = self._name("raw")
        gives = self._rng.randint(1, 2)
        self.world["raws"][name] = {
            "place": self._rng.choice(list(self.world["ways"])),
            "gives": gives,
            "tool": tool,
        }
        self._unused.append(name)

    def _recipe(self, kind: str, ingredients: list[str]) -> str:
        """A new recipe; returns the name of what it makes."""
        raws, rng = self.world["raws"], self._rng
        self._unused[:] = [name for name in self._unused if name not in ingredients]
        needs = {each: rng.randint(1, 3 if each in raws else 2) for each in ingredients}
        gives = rng.randint(1, 2) if kind == "material" else 1
        name = self._name(kind)
        self.world["recipes"][name] = {
            "needs": needs,
            "gives": gives,
            "station": self._station(),
            "uses": 1 if kind == "tool" else None,
        }
        return name

    def _ingredients(self) -> list[str]:
        """One or two of the things so far, rather those that nothing is made of yet."""
        recipes, goal = self.world["recipes"], self.world["goal"]
        made = [name for name in recipes if recipes[name]["uses"] is None and name != goal]
        known = [*self.world["raws"], *made]
        chosen = [self._rng.choice(self._unused if self._unused and self._rng.random() < 0.6 else known)]
        if self._rng.random() < 0.7:
            chosen.append(self._rng.choice(known))
        return list(dict.fromkeys(chosen))

    def _station(self) -> str | None:
        """Where something is made: anywhere, or at a station, which may be a new one."""
        stations = self.world["stations"]
        if self._rng.random() < 0.5:
            return None
        if not stations or (len(stations) < 4 and self._rng.random() < 0.4):
            stations[next(self._names["station"])] = self._rng.choice(list(self.world["ways"]))
        return self._rng.choice(list(stations))

    def _map(self, count: int) -> dict[str, list[str]]:
        """A tree of places, rather long than round, sometimes with one more way."""
        names = [f"{next(self._names['side'])} {next(self._names['place'])}" for _ in range(count)]
        pairs = {(max(0, number - self._rng.randint(1, 2)), number) for number in range(1, count)}
        if count > 3 and self._rng.random() < 0.5:
            pairs.add((0, count - 1))
        return {
            name: [names[b if a == number else a] for a, b in sorted(pairs) if number in (a, b)]
            for number, name in enumerate(names)
        }

    def _name(self, kind: str) -> str:
        return f"{self._rng.choice(_WORDS['adjective'])} {next(self._names[kind])}"


def _prolong(rng: random.Random, world: World, times: Mapping[str, int], moves: int) -> bool:
    """Ask for more of what is gathered, each time for one move more; whether that can be done."""
    recipes = world["recipes"]
    parts = [
        (recipes[thing]["needs"], raw)
        for thing in times
        if thing in recipes and times[thing] == 1
        for raw in recipes[thing]["needs"]
        if raw in world["raws"]
    ]
    for _ in range(moves):
        parts = [(needs, raw) for needs, raw in parts if needs[raw] < 6]
        if not parts:
            return False
        needs, raw = rng.choice(parts)
        needs[raw] += world["raws"][raw]["gives"]
    return True


def _finished(rng: random.Random, world: World, walk: list[str]) -> tuple[World, list[Move]]:
    """The world with limits that the plan keeps to, and the plan."""
    work = Work(world)
    for name, recipe in world["recipes"].items():
        if recipe["uses"] is not None:
            raws = [raw for raw, each in world["raws"].items() if each["tool"] == name]
            recipe["uses"] = max(2, sum(work.times.get(raw, 0) for raw in raws)) + rng.randint(0, 2)
    plan = work.plan(walk)
    world["capacity"] = max(4, work.most_carried(plan) + rng.randint(0, 3))
    return world, plan
