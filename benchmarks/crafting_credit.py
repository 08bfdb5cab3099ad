"""Outcome-only against step-level credit on Crafting: which learns faster.

    python benchmarks/crafting_credit.py --output out/crafting_credit [--levels tiny short] [--seeds 12]

The policy is no language model: it is a linear softmax over the moves that a player can name, with features
that anyone can work out from the question and the results that were read so far. Its move is a reply in the
wire format, so that whole episodes of the environment are played, with the rewards of every step. The
gradient is that of sum_t A_t log pi(a_t | s_t), the mean over the steps of an episode and then over episodes,
with advantages of `agent_r1_env.credit`; Adam takes one step a batch, so that the scale of the rewards
does not decide how far.

For each level and way of assigning credit the learning rate is chosen on other seeds, by the same measure and
as many updates. All ways play the same tasks with the same seeds. Every run is a line of OUTPUT/runs.jsonl;
what is there already is not run again. At the end Markdown tables are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agent_r1_env import credit, formats, statistics
from agent_r1_env.env import ToolEnv

Floats = npt.NDArray[np.float64]
Move = tuple[str, str]
"""A tool and its argument; "" for a tool without one."""

HERMES = formats.get("hermes")
STEPS = {"tiny": 12, "short": 24, "medium": 60}
TRIES = 8
GOAL_CREDIT = 0.5  # of the tools' rewards, what the goal pays
OUTCOME = {"./crafting/terms.py:goal_reached": 1.0, "tools": 0.0}
PROCESS = {"tools": 1.0}
GAMMA = {"gamma": 0.95}
EVERY = 5
FIRST_TUNING_SEED = 1000

# -- ways of assigning credit


class Way(NamedTuple):
    """A reward and an estimator with its options."""

    rewards: Mapping[str, float]
    estimator: str
    options: Mapping[str, Any] = {}


WAYS = {
    "outcome, grpo": Way(OUTCOME, "grpo"),
    "outcome, step_grpo": Way(OUTCOME, "step_grpo", GAMMA),
    "outcome, step_grpo, gamma 1": Way(OUTCOME, "step_grpo"),
    "outcome, gigpo": Way(OUTCOME, "gigpo", GAMMA),
    "process, grpo": Way(PROCESS, "grpo"),
    "process, step_grpo": Way(PROCESS, "step_grpo", GAMMA),
    "process, step_grpo, gamma 1": Way(PROCESS, "step_grpo"),
    "process, gigpo": Way(PROCESS, "gigpo", GAMMA),
    "process, turn_grpo": Way(PROCESS, "turn_grpo"),
    "process, prime": Way(PROCESS, "prime"),
}
BASELINE = "outcome, grpo"


# -- what a player knows


class Recipe(NamedTuple):
    """How a thing is made; ``place`` is None for anywhere."""

    gives: int
    needs: Mapping[str, int]
    place: str | None


class Raw(NamedTuple):
    """Where a thing is gathered, and the tool that it takes."""

    place: str
    tool: str | None


class Map(NamedTuple):
    near: Mapping[str, Sequence[str]]
    distance: Mapping[str, Mapping[str, int]]


_QUESTION = re.compile(r"Make (\d+) (.+)\.\nYou begin in (.+) with nothing, and can carry (\d+) things\.")
_MADE = re.compile(r"(?:(\d+) )?(.+?): (.+); made (?:anywhere|at the .+ in (.+?))(?:; good for \d+ uses)?\.")
_PART = re.compile(r"(\d+) ([\w ]+) \((?:made|gathered in ([\w ]+?)(?: with the ([\w ]+))?)\)")
_GATHERED = re.compile(r"([\w ]+): gathered in ([\w ]+?)(?: with the ([\w ]+))?, \d+ at a time\.")
_HERE = re.compile(r"([\w ]+) \(\d+ at a time(?:, takes the ([\w ]+))?\)")
_STANDING = re.compile(r"\[You are in ([\w ]+) and carry \d+ of \d+(.*)\.\]")
_CARRIED = re.compile(r"(\d+) ([a-z]+ [a-z]+)(?: \(\d+ uses? left\))?")


class Notes:
    """What a player has read of an episode: the question and the result of every move.

    Attributes:
        things: by the name of every thing read of, where it is gathered; None for what is made.
        recipes: those that were looked up.
        refused: moves that failed since the last that did not.
    """

    def __init__(self, question: str) -> None:
        found = _QUESTION.match(question)
        if found is None:
            raise ValueError(f"this is no question of Crafting: {question!r}")
        self.amount, self.goal, self.place = int(found[1]), found[2], found[3]
        self.capacity = int(found[4])
        self.map = _map(question.rpartition("Ways between places: ")[2].rstrip("."))
        self.things: dict[str, Raw | None] = {self.goal: None}
        self.recipes: dict[str, Recipe] = {}
        self.items: dict[str, int] = {}
        self.looked: set[str] = set()
        self.refused: set[Move] = set()
        self.before: str | None = None

    def read(self, move: Move, result: str) -> None:
        """Note what a move came to."""
        if result.startswith("error:"):
            self.refused.add(move)
            return
        self.refused.clear()
        *lines, last = result.splitlines()
        place, self.items = _standing(last)
        if place != self.place:
            self.place, self.before = place, self.place
        if move[0] == "look":
            self.looked.add(place)
            self.things |= {name: Raw(place, tool or None) for name, tool in _HERE.findall(lines[0])}
        for line in lines:
            if gathered := _GATHERED.fullmatch(line):
                self.things[gathered[1]] = Raw(gathered[2], gathered[3])
            elif (recipe := _recipe(line)) is not None:
                name, self.recipes[name], things = recipe
                self.things |= things
        for raw in list(self.things.values()):
            if raw is not None and raw.tool is not None:
                self.things.setdefault(raw.tool)

    def state(self) -> tuple[Any, ...]:
        """What tells one state from another, for estimators that compare steps taken from the same."""
        return self.place, frozenset(self.items.items()), frozenset(self.recipes)

    def lacking(self) -> set[str]:
        """What has to be gathered or made yet, as far as the recipes read say."""
        found: set[str] = set()
        self._want(self.goal, self.amount, dict(self.items), found)
        return found

    def _want(self, thing: str, number: int, stock: dict[str, int], found: set[str]) -> None:
        used = min(number, stock.get(thing, 0))
        stock[thing] = stock.get(thing, 0) - used
        if used == number:
            return
        found.add(thing)
        raw = self.things.get(thing)
        if recipe := self.recipes.get(thing):
            times = -(-(number - used) // recipe.gives)
            for each, needed in recipe.needs.items():
                self._want(each, needed * times, stock, found)
        elif raw is not None and raw.tool is not None:
            self._want(raw.tool, 1, dict(stock), found)


@lru_cache(maxsize=2000)
def _map(ways: str) -> Map:
    near: dict[str, list[str]] = {}
    for way in ways.split("; "):
        a, _, b = way.partition(" - ")
        if b:
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
    return Map(near, {place: _distances(near, place) for place in near})


def _distances(near: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    found, waiting = {start: 0}, deque([start])
    while waiting:
        place = waiting.popleft()
        for each in near[place]:
            if each not in found:
                found[each] = found[place] + 1
                waiting.append(each)
    return found


@lru_cache(maxsize=20_000)
def _recipe(line: str) -> tuple[str, Recipe, dict[str, Raw | None]] | None:
    """A recipe, and what is told of its parts; None for a line that holds none."""
    made = _MADE.fullmatch(line)
    if made is None:
        return None
    needs, things = {}, {}
    for number, name, place, tool in _PART.findall(made[3]):
        needs[name] = int(number)
        things[name] = Raw(place, tool or None) if place else None
    return made[2], Recipe(int(made[1] or 1), needs, made[4]), things


def _standing(line: str) -> tuple[str, dict[str, int]]:
    found = _STANDING.fullmatch(line)
    if found is None:
        raise ValueError(f"this does not say where the player stands: {line!r}")
    return found[1], {name: int(number) for number, name in _CARRIED.findall(found[2])}


# -- the policy

FEATURES = (
    *("recipe", "recipe of what is lacking", "recipe that is known", "recipe of what is gathered"),
    *("gather", "gather what is lacking", "gather here", "gather without its tool", "gather without room"),
    *("craft", "craft what is lacking", "craft with the parts", "craft at its place", "craft unknown"),
    *("go", "go nearer to work", "go back", "drop", "drop what is lacking", "drop when full"),
    *("look", "look again", "inventory", "refused"),
)
_NUMBER = {name: number for number, name in enumerate(FEATURES)}


def moves(notes: Notes) -> Iterator[tuple[Move, list[str]]]:
    """Every move that a player can name, with the features that hold for it."""
    lacking = notes.lacking()
    full = sum(notes.items.values()) >= notes.capacity
    for thing, raw in notes.things.items():
        yield ("recipe", thing), ["recipe", *_holding("recipe", _of_recipe(notes, thing, lacking))]
        if raw is None:
            yield ("craft", thing), ["craft", *_holding("craft", _of_craft(notes, thing, lacking))]
        else:
            found = {
                "what is lacking": thing in lacking,
                "here": raw.place == notes.place,
                "without its tool": raw.tool is not None and raw.tool not in notes.items,
                "without room": full,
            }
            yield ("gather", thing), ["gather", *_holding("gather", found)]
    away = _to_work(notes, lacking)
    for place in notes.map.near.get(notes.place, ()):
        found = {
            "nearer to work": away.get(place, 99) < away.get(notes.place, 99),
            "back": place == notes.before,
        }
        yield ("go", place), ["go", *_holding("go", found)]
    for thing in notes.items:
        found = {"what is lacking": thing in lacking, "when full": full}
        yield ("drop", thing), ["drop", *_holding("drop", found)]
    yield ("look", ""), ["look", *(["look again"] if notes.place in notes.looked else [])]
    yield ("inventory", ""), ["inventory"]


def _holding(tool: str, found: Mapping[str, bool]) -> Iterator[str]:
    return (f"{tool} {name}" for name, holds in found.items() if holds)


def _of_recipe(notes: Notes, thing: str, lacking: set[str]) -> dict[str, bool]:
    return {
        "of what is lacking": thing in lacking,
        "that is known": thing in notes.recipes,
        "of what is gathered": notes.things[thing] is not None,
    }


def _of_craft(notes: Notes, thing: str, lacking: set[str]) -> dict[str, bool]:
    recipe = notes.recipes.get(thing)
    return {
        "what is lacking": thing in lacking,
        "unknown": recipe is None,
        "with the parts": recipe is not None and _can_make(notes, recipe),
        "at its place": recipe is not None and recipe.place in (None, notes.place),
    }


def _can_make(notes: Notes, recipe: Recipe) -> bool:
    return all(notes.items.get(each, 0) >= number for each, number in recipe.needs.items())


def _to_work(notes: Notes, lacking: set[str]) -> dict[str, int]:
    """By place, the moves from there to the nearest place where something lacking can be got now."""
    places = set()
    for thing in lacking:
        raw, recipe = notes.things.get(thing), notes.recipes.get(thing)
        if raw is not None and (raw.tool is None or raw.tool in notes.items):
            places.add(raw.place)
        elif recipe is not None and recipe.place is not None and _can_make(notes, recipe):
            places.add(recipe.place)
    distance = notes.map.distance
    return {start: min(distance[start][place] for place in places) for start in distance} if places else {}


@dataclass
class Policy:
    """Softmax of a weighted sum of features; it starts with all moves alike."""

    weights: Floats = field(default_factory=lambda: np.zeros(len(FEATURES)))

    def choose(self, notes: Notes, rng: np.random.Generator) -> tuple[Move, Floats]:
        """A move, and the gradient of its log-probability."""
        names, features = [], []
        for move, holding in moves(notes):
            names.append(move)
            features.append(holding + ["refused"] if move in notes.refused else holding)
        table = np.zeros((len(names), len(FEATURES)))
        rows = np.repeat(np.arange(len(names)), [len(each) for each in features])
        table[rows, [_NUMBER[name] for each in features for name in each]] = 1.0
        chances = softmax(table @ self.weights)
        chosen = min(int(np.searchsorted(np.cumsum(chances), rng.random())), len(names) - 1)
        return names[chosen], table[chosen] - chances @ table


def softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max())
    result: Floats = powers / powers.sum()
    return result


class Adam:
    """Steps of a size that depends on the learning rate and not on the scale of the gradient."""

    def __init__(self, rate: float, size: int) -> None:
        self.rate = rate
        self._mean, self._square, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, gradient: Floats) -> Floats:
        """What to add to the weights, to go up along a gradient."""
        self._count += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.01 * (gradient**2 - self._square)
        mean, square = self._mean / (1 - 0.9**self._count), self._square / (1 - 0.99**self._count)
        result: Floats = self.rate * mean / (np.sqrt(square) + 1e-8)
        return result


# -- playing


@dataclass
class Played:
    """Rewards, gradients of log-probabilities and states of an episode's steps, and whether it was won."""

    rewards: list[float]
    gradients: list[Floats]
    states: list[tuple[Any, ...]]
    won: bool


_ARGUMENT = {"recipe": "item", "go": "place", "gather": "material", "craft": "item", "drop": "item"}


def reply(move: Move) -> str:
    tool, name = move
    return HERMES.render_call(tool, {_ARGUMENT[tool]: name} if tool in _ARGUMENT else {})


def play(env: ToolEnv, task: int, policy: Policy, rng: np.random.Generator) -> Played:
    """One episode; the policy sees messages, and nothing of the task."""
    messages, _ = env.reset(options={"task": task})
    notes = Notes(messages[-1]["content"])
    played = Played([], [], [], False)
    while True:
        move, gradient = policy.choose(notes, rng)
        played.states.append(notes.state())
        messages, reward, terminated, truncated, info = env.step(reply(move))
        played.rewards.append(reward)
        played.gradients.append(gradient)
        if terminated or truncated:
            played.won = info["metrics"]["goal_reached"] == 1.0
            return played
        notes.read(move, messages[-1]["content"])


def advantages(way: Way, episodes: Sequence[Played]) -> Floats:
    """(S,) by the estimator; neighbours of `TRIES` are a group."""
    goal = 1.0 if way.rewards is OUTCOME else GOAL_CREDIT
    batch = credit.CreditBatch(
        rewards_S=np.array([reward for each in episodes for reward in each.rewards]),
        episode_S=np.repeat(np.arange(len(episodes)), [len(each.rewards) for each in episodes]),
        groups_N=[number // TRIES for number in range(len(episodes))],
        outcomes_N=np.array([goal * each.won for each in episodes]),
        anchors_S=[state for each in episodes for state in each.states],
    )
    return credit.get(way.estimator, way.options)(batch)


def policy_gradient(episodes: Sequence[Played], advantages_S: Floats) -> Floats:
    """Of the mean over episodes of the mean over their steps, so that every episode weighs the same."""
    lengths = np.array([len(each.rewards) for each in episodes])
    weights = advantages_S / np.repeat(lengths, lengths) / len(episodes)
    return cast(Floats, weights @ np.concatenate([each.gradients for each in episodes]))


# -- runs


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    updates: int
    groups: int
    worlds: int
    evaluation_worlds: int


@lru_cache(maxsize=6)
def environment(level: str, split: str, process: bool, count: int) -> ToolEnv:
    made = gym.make(
        "AgentR1/Crafting-v0",
        level=level,
        split=split,
        count=count,
        max_steps=STEPS[level],
        rewards=PROCESS if process else OUTCOME,
        observation="messages",
        disable_env_checker=True,
    )
    return cast(ToolEnv, made.unwrapped)


class Job(NamedTuple):
    """One run: a level, the name of a way, a learning rate and a seed."""

    level: str
    way: str
    rate: float
    seed: int


def run(job: Job, setting: Setting) -> dict[str, Any]:
    """Train one policy: success on held-out worlds every `EVERY` updates, and in every training batch.

    Tasks and random numbers follow from the seed alone, so that all ways get the same.
    """
    level, way, rate, seed = job.level, WAYS[job.way], job.rate, job.seed
    env = environment(level, "train", way.rewards is PROCESS, setting.worlds)
    policy, adam = Policy(), Adam(rate, len(FEATURES))
    began = time.process_time()
    result: dict[str, Any] = {"success": [evaluate(level, policy, seed, setting)], "train": [], "steps": []}
    for update in range(1, setting.updates + 1):
        drawn = np.random.default_rng([seed, update]).integers(setting.worlds, size=setting.groups)
        episodes = [
            play(env, task, policy, np.random.default_rng([seed, update, number]))
            for number, task in enumerate(np.repeat(drawn, TRIES).tolist())
        ]
        policy.weights = policy.weights + adam.step(policy_gradient(episodes, advantages(way, episodes)))
        result["train"].append(fmean(each.won for each in episodes))
        result["steps"].append(fmean(len(each.rewards) for each in episodes))
        if update % EVERY == 0:
            result["success"].append(evaluate(level, policy, seed, setting))
    result["weights"] = dict(zip(FEATURES, policy.weights.round(2).tolist(), strict=True))
    return result | {"seconds": round(time.process_time() - began, 1)}


def evaluate(level: str, policy: Policy, seed: int, setting: Setting) -> float:
    """Share of the held-out worlds in which one sampled episode reaches the goal."""
    env = environment(level, "validation", False, setting.evaluation_worlds)
    return fmean(
        play(env, world, policy, np.random.default_rng([seed, 0, world])).won
        for world in range(setting.evaluation_worlds)
    )


def area(success: Sequence[float]) -> float:
    """Mean height of the curve, by the trapezoidal rule."""
    return (sum(success) - (success[0] + success[-1]) / 2) / (len(success) - 1)


class Runs:
    """Runs, kept in a file."""

    def __init__(self, folder: Path, setting: Setting, processes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "runs.jsonl"
        self._setting = setting
        self._processes = processes
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._done = {tuple(row["run"]): row for row in map(json.loads, lines)}

    def get(self, jobs: Sequence[Job]) -> list[list[float]]:
        """The curve of each run, from the file if it is there."""
        missing = [job for job in jobs if self._key(job) not in self._done]
        with ProcessPoolExecutor(self._processes) as pool:
            begun = {pool.submit(run, job, self._setting): job for job in missing}
            for done in as_completed(begun):
                self._keep(begun[done], done.result())
        return [self._done[self._key(job)]["success"] for job in jobs]

    def _key(self, job: Job) -> tuple[Any, ...]:
        return *job, *vars(self._setting).values()

    def _keep(self, job: Job, result: dict[str, Any]) -> None:
        key = self._key(job)
        self._done[key] = {"run": list(key), **result}
        with self._file.open("a") as file:
            file.write(json.dumps(self._done[key]) + "\n")
        print(f"{tuple(job)}: area {area(result['success']):.3f}, {result['seconds']} s", flush=True)

    def tuned(self, level: str, ways: Sequence[str], rates: Sequence[float], seeds: int) -> dict[str, Floats]:
        """By way, the area under the curve for each rate, on seeds that are used for nothing else."""
        numbers = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + seeds)
        jobs = [Job(level, way, rate, seed) for way in ways for rate in rates for seed in numbers]
        areas = np.array([area(curve) for curve in self.get(jobs)])
        return dict(zip(ways, areas.reshape(len(ways), len(rates), seeds).mean(axis=2), strict=True))


# -- tables


def report_rates(level: str, rates: Sequence[float], tuned: Mapping[str, Floats]) -> None:
    """What each learning rate came to on the other seeds, with a star at the one that was chosen."""
    print(f"\n{level}: area by learning rate; * was chosen\n")
    _row("credit", *rates)
    _row(*["---"] * (len(rates) + 1))
    for way, areas in tuned.items():
        best = areas.argmax()
        _row(way, *(f"{each:.3f}{'*' if place == best else ''}" for place, each in enumerate(areas)))


def report(level: str, curves: Mapping[str, Sequence[Sequence[float]]], baseline: str, goal: float) -> None:
    """The curves of one level, what lies under them, and how that differs from the baseline's."""
    updates = [EVERY * place for place in range(len(curves[baseline][0]))]
    print(f"\n{level}: success on held-out worlds after so many updates\n")
    _row("credit", *updates)
    _row(*["---"] * (len(updates) + 1))
    for way, runs in curves.items():
        _row(way, *(f"{mean:.3f}" for mean in np.mean(runs, axis=0)))
    print(f"\n{level}: after the last update, mean over the curve, and how that differs from {baseline}\n")
    _row("credit", "last", "area", "difference", "seeds higher, lower", "p (Holm)", f"updates to {goal}")
    _row(*["---"] * 7)
    areas = {way: [area(each) for each in runs] for way, runs in curves.items()}
    compared = {way: statistics.paired(areas[baseline], found) for way, found in areas.items()}
    others = [way for way in curves if way != baseline]
    p = dict(zip(others, statistics.holm([compared[way].p for way in others]), strict=True))
    for way, runs in curves.items():
        found = compared[way]
        against = (
            (_interval(found.difference, "+"), f"{found.higher}, {found.lower}", f"{p[way]:.4f}")
            if way in p
            else ("", "", "")
        )
        last = statistics.bootstrap([each[-1] for each in runs])
        _row(way, _interval(last), _interval(statistics.bootstrap(areas[way])), *against, _reach(runs, goal))


def _reach(runs: Sequence[Sequence[float]], goal: float) -> str:
    """The median over seeds of the first evaluation at the goal, and how many got there."""
    first = [next((EVERY * place for place, at in enumerate(each) if at >= goal), np.inf) for each in runs]
    middle = float(np.median(first))
    reached = sum(np.isfinite(first))
    return f"{f'{middle:g}' if np.isfinite(middle) else '-'} ({reached} of {len(runs)})"


def _interval(found: statistics.Interval, sign: str = "") -> str:
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def _row(*cells: Any) -> None:
    print("|", " | ".join(map(str, cells)), "|")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--levels", nargs="+", default=["tiny", "short"], choices=list(STEPS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--baseline", default=BASELINE, choices=list(WAYS), help="what others differ from")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--tuning-seeds", type=int, default=4)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.2, 0.4, 0.8])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--groups", type=int, default=4, help=f"tasks an update, {TRIES} tries at each")
    parser.add_argument("--worlds", type=int, default=500, help="for training")
    parser.add_argument("--evaluation-worlds", type=int, default=64)
    parser.add_argument("--goal", type=float, default=0.5, help="success rate to wait for")
    given = parser.parse_args()
    if given.updates < EVERY:
        parser.error(f"--updates must be at least {EVERY}, for a curve takes two evaluations")
    setting = Setting(given.updates, given.groups, given.worlds, given.evaluation_worlds)
    runs = Runs(given.output, setting, given.processes)
    ways = list(dict.fromkeys([given.baseline, *given.ways]))
    for level in given.levels:
        tuned = runs.tuned(level, ways, given.rates, given.tuning_seeds)
        rates = {way: given.rates[int(found.argmax())] for way, found in tuned.items()}
        found = runs.get([Job(level, way, rates[way], seed) for seed in range(given.seeds) for way in ways])
        report_rates(level, given.rates, tuned)
        report(
            level,
            {way: found[place :: len(ways)] for place, way in enumerate(ways)},
            given.baseline,
            given.goal,
        )


if __name__ == "__main__":
    main()
