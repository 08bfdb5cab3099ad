"""Worlds to craft in, drawn from a seed: places, materials, recipes and a goal, each with a shortest plan.

A thing is made of earlier things alone, so that every goal can be reached. Whatever can be gathered never
runs out, so that nothing is lost for good. The length of the shortest plan is exact, because it falls apart:
every recipe on the way is looked up once, how often each thing is gathered and made follows from the
quantities, and the fewest moves between places come from a search over all orders of the work.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypedDict

from agent_r1_env.errors import look_up
from agent_r1_env.task import Task, TaskSet

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
        split: "train" or "validation"; no world is in both.
        level: how long the shortest plans are: "tiny", "short", "medium" or "long".
        length: the same in moves, as a number or as [shortest, longest]; takes the place of ``level``.
        count: how many tasks; 500 for training and 200 for validation by default.
        world_seed: another seed makes other worlds.

    Returns:
        A set that is shared by all callers of the process with equal arguments.

    Raises:
        UnknownName: no such split or level.
        ValueError: a length outside of 3 to 100 moves, or numbers that are too small.
    """
    count = look_up("split", split, COUNTS) if count is None else count
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
        work = _work(world)
        rest = length - sum(work.values()) - len(_recipes_on_the_way(world, work))
        # Most drafts are too long even without a move between places, which is quickly told.
        if rest < 0 or (way := _way(world, list(work))) is None or (rest := rest - len(way) + 1) < 0:
            continue
        if rest <= max(2, length // 4) and _prolong(rng, world, work, rest):
            return _finished(rng, world, way)
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
            "toward": _toward(ways),
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
        depth = {name: len(set(_first(self.world, name))) for name in self._unused}
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


def _toward(ways: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    toward: dict[str, dict[str, str]] = {place: {} for place in ways}
    for goal in ways:
        waiting = deque([goal])
        while waiting:
            place = waiting.popleft()
            for near in ways[place]:
                if near != goal and goal not in toward[near]:
                    toward[near][goal] = place
                    waiting.append(near)
    return toward


# -- the shortest plan


def _work(world: World) -> dict[str, int]:
    """How often each thing that the goal takes is gathered or made, what is needed first before the rest."""
    order = list(dict.fromkeys(_first(world, world["goal"])))
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


def _before(world: World, thing: str) -> Iterable[str]:
    """What has to be there before a thing can be."""
    if thing in world["recipes"]:
        return world["recipes"][thing]["needs"]
    tool = world["raws"][thing]["tool"]
    return () if tool is None else (tool,)


def _first(world: World, thing: str) -> Iterator[str]:
    for each in _before(world, thing):
        yield from _first(world, each)
    yield thing


def _recipes_on_the_way(world: World, work: Iterable[str]) -> list[str]:
    return [thing for thing in reversed(list(work)) if thing in world["recipes"]]


def _place_of(world: World, thing: str) -> str | None:
    """Where a thing is gathered or made; None for anywhere."""
    if thing in world["raws"]:
        return world["raws"][thing]["place"]
    station = world["recipes"][thing]["station"]
    return None if station is None else world["stations"][station]


def _doable(world: World, work: Sequence[str], place: str, done: frozenset[str]) -> list[str]:
    """All the work that can be done in one place, one after the other, given what was done before."""
    found: list[str] = []
    for thing in work:  # in this order, what one piece of work needs is looked at before it
        if (
            thing not in done
            and _place_of(world, thing) in (None, place)
            and all(each in done or each in found for each in _before(world, thing))
        ):
            found.append(thing)
    return found


def _way(world: World, work: Sequence[str]) -> list[str] | None:
    """The places of a shortest walk that gets all the work done, from the start on.

    Work that can be done is done at once and whole: there is nothing to gain from waiting. So a state of the
    search is a place and what was done; it is given up as None where it meets too many of them.
    """
    place = world["start"]
    done = frozenset(_doable(world, work, place, frozenset()))
    waiting: deque[tuple[str, frozenset[str], tuple[str, ...]]] = deque([(place, done, (place,))])
    seen = {(place, done)}
    while waiting and len(seen) < 3000:
        place, done, way = waiting.popleft()
        if world["goal"] in done:
            return list(way)
        for near in world["ways"][place]:
            after = done.union(_doable(world, work, near, done))
            if (near, after) not in seen:
                seen.add((near, after))
                waiting.append((near, after, (*way, near)))
    return None


def _prolong(rng: random.Random, world: World, work: dict[str, int], moves: int) -> bool:
    """Ask for more of what is gathered, each time for one move more; whether that can be done."""
    recipes = world["recipes"]
    places = [
        (thing, each)
        for thing in work
        if thing in recipes and work[thing] == 1
        for each in recipes[thing]["needs"]
        if each in world["raws"]
    ]
    for _ in range(moves):
        places = [(thing, each) for thing, each in places if recipes[thing]["needs"][each] < 6]
        if not places:
            return False
        thing, each = rng.choice(places)
        recipes[thing]["needs"][each] += world["raws"][each]["gives"]
    return True


def _finished(rng: random.Random, world: World, way: list[str]) -> tuple[World, list[Move]]:
    """The world with limits that the plan keeps to, and the plan."""
    work = _work(world)
    for name, recipe in world["recipes"].items():
        if recipe["uses"] is not None:
            needed = sum(work.get(raw, 0) for raw, each in world["raws"].items() if each["tool"] == name)
            recipe["uses"] = max(needed, 2) + rng.randint(0, 2)
    plan: list[Move] = [("recipe", thing) for thing in _recipes_on_the_way(world, work)]
    done: frozenset[str] = frozenset()
    for number, place in enumerate(way):
        plan += [("go", place)] if number else []
        found = _doable(world, list(work), place, done)
        for thing in found:
            plan += [("craft" if thing in world["recipes"] else "gather", thing)] * work[thing]
        done = done.union(found)
    world["capacity"] = max(4, _most_carried(world, plan) + rng.randint(0, 3))
    return world, plan


def _most_carried(world: World, plan: Iterable[Move]) -> int:
    """The greatest number of things that are carried at a time; tools last as long as the plan."""
    carried = most = 0
    for tool, thing in plan:
        if tool == "gather":
            carried += world["raws"][thing]["gives"]
        elif tool == "craft":
            recipe = world["recipes"][thing]
            carried += recipe["gives"] - sum(recipe["needs"].values())
        most = max(most, carried)
    return most
