"""Three games without tools: how each is made, and what each move leads to.

A game is made from its split, level and number alone, so it is the same everywhere. What is hidden lies in
the task's data, what has happened in the state of the episode. Winning earns 1, losing nothing.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent_r1_env import Hidden, Outcome, Task, TaskSet, ToolError, ToolOutput
from agent_r1_env.errors import look_up, unknown_name

SPLITS = ("train", "validation")
STEPS = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
_THINGS = re.findall(
    r"\w+",
    "anchor basket bell bottle bowl box brush button candle chain clock coin comb crown cup "
    "drum fan feather flute glove hammer hat hook kettle key kite knife ladder lamp lantern map "
    "mask mirror needle nest oar pen pipe pot ring rope saddle saw shell shoe sickle spoon "
    "stool sword tile torch trumpet vase wheel whistle ",
)
_QUALITIES = (
    ("red", "blue", "green", "white"),
    ("small", "large"),
    ("wooden", "iron", "glass", "clay"),
    ("old", "new"),
    ("plain", "painted"),
)


def tasks(split: str = "validation", *, game: str = "all", level: int = 2, count: int = 300) -> TaskSet:
    """Games of one kind, or of all kinds in turn.

    Args:
        game: "guess", "questions", "maze" or "all".
        level: 1 (a few moves), 2 or 3 (up to about thirty).
        count: how many.

    Raises:
        UnknownName: no such split or game.
        ValueError: no such level, or no games.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    kinds = list(_GAMES) if game == "all" else [game]
    for kind in kinds:
        look_up("game", kind, _GAMES)
    if level not in (1, 2, 3):
        raise ValueError(f"level must be 1, 2 or 3, not {level!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    return _tasks(split, tuple(kinds), level, count)


@lru_cache(maxsize=8)
def _tasks(split: str, kinds: tuple[str, ...], level: int, count: int) -> TaskSet:
    made = [_task(split, kinds[number % len(kinds)], level, number) for number in range(count)]
    name = f"TextGame {split} ({', '.join(kinds)}; level {level})"
    return TaskSet(
        made, name=name, origin="a script that makes them of split, level and number", synthetic=True
    )


def _task(split: str, kind: str, level: int, number: int) -> Task:
    rng = random.Random(f"{split}/{kind}/{level}/{number}")
    text, data = _GAMES[kind].make(level, rng)
    return Task(f"{kind}-{level}-{split}-{number}", text, kind=kind, data=data)


def _guess(level: int, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A number that halving the range always finds, if only just."""
    low = rng.randrange(0, 500)
    size = (8, 64, 1024)[level - 1]
    high, tries = low + size - 1, int(math.log2(size)) + 1
    text = (
        f"I think of a whole number from {low} to {high}. Guess it: after each guess I say whether mine is "
        f"higher or lower. You have {tries} guesses. Your move is a number."
    )
    return text, {"secret": rng.randint(low, high), "low": low, "high": high, "tries": tries}


def _questions(level: int, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A thing among many, each of which differs from all others in some quality."""
    size = (6, 16, 40)[level - 1]
    names = rng.sample(_THINGS, size)
    kinds = rng.sample(list(itertools.product(*_QUALITIES)), size)
    things = {name: list(qualities) for name, qualities in zip(names, kinds, strict=True)}
    listed = "\n".join(f"- {name}: {', '.join(qualities)}" for name, qualities in things.items())
    tries = (6, 10, 14)[level - 1]
    text = (
        f"I think of one of these things:\n{listed}\nFind out which. Your move is one word: a quality, such "
        f"as {things[names[0]][0]}, and I say whether my thing has it; or the name of a thing, which must be "
        f"the right one: a wrong name loses. You have {tries} moves."
    )
    return text, {"secret": rng.choice(names), "things": things, "tries": tries}


def _maze(level: int, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Rooms in a square, joined so that there is exactly one way between any two."""
    size = (3, 5, 7)[level - 1]
    doors = _spanning_tree(size, rng)
    start = (rng.randrange(size), rng.randrange(size))
    ways = _ways_from(start, doors)
    goal = max(ways, key=lambda room: (len(ways[room]), room))
    tries = 3 * len(ways[goal]) + size
    text = (
        f"You are in a maze of {size} times {size} rooms; one of them holds a treasure. Your move is north, "
        f"east, south or west. You have {tries} moves.\n{describe(start, doors[start])}"
    )
    return text, {
        "start": list(start),
        "secret": list(goal),
        "doors": {_key(room): sorted(ways) for room, ways in doors.items()},
        "way": ways[goal],
        "tries": tries,
    }


def describe(room: tuple[int, int] | list[int], doors: set[str] | list[str]) -> str:
    """What a player sees in a room."""
    ways = [way for way in STEPS if way in doors]
    listed = ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])} and {ways[-1]}"
    door = "There is a door" if len(ways) == 1 else "There are doors"
    return f"This is the room in column {room[0] + 1}, row {room[1] + 1}. {door} to the {listed}."


def beyond(room: tuple[int, int] | list[int], way: str) -> tuple[int, int]:
    """The room behind a door."""
    across, down = STEPS[way]
    return room[0] + across, room[1] + down


def _key(room: tuple[int, int] | list[int]) -> str:
    return f"{room[0]},{room[1]}"


def _spanning_tree(size: int, rng: random.Random) -> dict[tuple[int, int], set[str]]:
    doors: dict[tuple[int, int], set[str]] = {(0, 0): set()}
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}
    trail = [(0, 0)]
    while trail:
        room = trail[-1]
        closed = [
            way
            for way in STEPS
            if all(0 <= at < size for at in beyond(room, way)) and beyond(room, way) not in doors
        ]
        if not closed:
            trail.pop()
            continue
        way = rng.choice(closed)
        doors[room].add(way)
        doors[beyond(room, way)] = {back[way]}
        trail.append(beyond(room, way))
    return doors


def _ways_from(
    start: tuple[int, int], doors: dict[tuple[int, int], set[str]]
) -> dict[tuple[int, int], list[str]]:
    ways: dict[tuple[int, int], list[str]] = {start: []}
    waiting = deque([start])
    while waiting:
        room = waiting.popleft()
        for way in sorted(doors[room]):
            if beyond(room, way) not in ways:
                ways[beyond(room, way)] = [*ways[room], way]
                waiting.append(beyond(room, way))
    return ways


def respond(reply: str, state: Hidden[dict[str, Any]], task: Hidden[Task]) -> ToolOutput:
    """Make the move that stands in the last line of a reply. An illegal one costs a try, as any other."""
    lines = [line for line in reply.splitlines() if line.strip()]
    move = lines[-1].strip(" \t.!*`\"'").lower() if lines else ""
    left = task.data["tries"] - state.get("moves", 0) - 1
    state["moves"] = state.get("moves", 0) + 1
    try:
        said, over, won = _GAMES[task.kind].move(move, state, task)
    except ToolError as fault:
        state["illegal"] = state.get("illegal", 0) + 1
        said, over, won = f"error: {fault}", False, False
    state["won"] = won
    if over:
        return ToolOutput(said, reward=float(won), done=True)
    if not left:
        return ToolOutput(f"{said}\nThat was your last move. You have lost.", done=True)
    return ToolOutput(f"{said}\nMoves left: {left}.")


def won(outcome: Outcome) -> float:
    """1.0 for a game that was won."""
    return float(outcome.state.get("won", False))


def moves(outcome: Outcome) -> float:
    """Number of moves, illegal ones included."""
    return float(outcome.state.get("moves", 0))


def illegal_moves(outcome: Outcome) -> float:
    """Number of replies that held no legal move."""
    return float(outcome.state.get("illegal", 0))


Verdict = tuple[str, bool, bool]
"""What is said, whether the game is over, and whether it is won."""


def _try_number(move: str, state: dict[str, Any], task: Task) -> Verdict:
    low, high, secret = (task.data[key] for key in ("low", "high", "secret"))
    if not (move.isascii() and move.isdigit() and len(move) < 10 and low <= int(move) <= high):
        raise ToolError(f"a move is a whole number from {low} to {high}, alone in the last line")
    number = int(move)
    if number == secret:
        return f"{number} is right. You have won.", True, True
    return f"My number is {'higher' if number < secret else 'lower'} than {number}.", False, False


def _ask(move: str, state: dict[str, Any], task: Task) -> Verdict:
    things, secret = task.data["things"], task.data["secret"]
    if move in things:
        right = move == secret
        said = (
            f"Yes, it is the {move}. You have won." if right else f"No, it is not the {move}. You have lost."
        )
        return said, True, right
    if not any(move in choices for choices in _QUALITIES):
        raise ToolError("a move is one word, alone in the last line: a quality from the list, or a thing")
    has_it = move in things[secret]
    return f"Yes, it is {move}." if has_it else f"No, it is not {move}.", False, False


def _walk(move: str, state: dict[str, Any], task: Task) -> Verdict:
    room = state.setdefault("room", list(task.data["start"]))
    doors = task.data["doors"][_key(room)]
    if move not in STEPS:
        raise ToolError("a move is north, east, south or west, alone in the last line")
    if move not in doors:
        raise ToolError(f"there is no door to the {move}. {describe(room, doors)}")
    room = state["room"] = list(beyond(room, move))
    if room == task.data["secret"]:
        return "Here is the treasure. You have won.", True, True
    return describe(room, task.data["doors"][_key(room)]), False, False


@dataclass(frozen=True, slots=True)
class _Game:
    """One kind of game: what makes the text and data of a task, and what a move leads to."""

    make: Callable[[int, random.Random], tuple[str, dict[str, Any]]]
    move: Callable[[str, dict[str, Any], Task], Verdict]


_GAMES = {
    "guess": _Game(_guess, _try_number),
    "questions": _Game(_questions, _ask),
    "maze": _Game(_maze, _walk),
}
