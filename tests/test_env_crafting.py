"""Crafting: worlds with plans of a known length, rules that hold under any moves, rewards that add up."""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_r1_env.catalog import builtin_root
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import ToolError, UnknownName
from agent_r1_env.evaluate import evaluate, find_policy
from agent_r1_env.loading import load_target
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import ToolOutput

ID = "AgentR1/Crafting-v0"
FOLDER = builtin_root() / "envs" / "crafting"
OUTCOME_ONLY = {"./crafting/terms.py:goal_reached": 1.0, "tools": 0.0}
Move = tuple[str, str]
load: Callable[..., TaskSet] = load_target("./worlds.py:tasks", FOLDER)
TOOLS = {
    name: load_target(f"./tools.py:{name}", FOLDER)
    for name in ("look", "inventory", "recipe", "go", "gather", "craft", "drop")
}
ARGUMENT = {"recipe": "item", "go": "place", "gather": "material", "craft": "item", "drop": "item"}


def act(task: Task, state: dict[str, Any], tool: str, name: str = "", **more: Any) -> ToolOutput:
    """One move by the bare rules.

    Raises:
        ToolError: it cannot be made.
    """
    arguments = {ARGUMENT[tool]: name} if tool in ARGUMENT else {}
    shown = TOOLS[tool](**arguments, **more, state=state, task=task)
    return shown if isinstance(shown, ToolOutput) else ToolOutput(shown)


def follow(task: Task, state: dict[str, Any], moves: Sequence[Move]) -> list[ToolOutput]:
    return [act(task, state, *move) for move in moves]


def moves_of(task: Task) -> list[Move]:
    """Every move that is worth a try, wherever the player stands."""
    world = task.data["world"]
    things = [*world["recipes"], *world["raws"]]
    named = [(tool, thing) for tool in ("recipe", "gather", "craft", "drop") for thing in things]
    return [*named, *(("go", place) for place in world["ways"]), ("look", ""), ("inventory", "")]


def make(**options: Any) -> ToolEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def say(env: ToolEnv, tool: str, name: str = "") -> str:
    return env.format.render_call(tool, {ARGUMENT[tool]: name} if tool in ARGUMENT else {})


# -- worlds


@pytest.mark.parametrize(("level", "count"), [("tiny", 200), ("short", 150), ("medium", 100), ("long", 25)])
def test_every_plan_has_the_length_of_its_level_and_reaches_the_goal(level: str, count: int) -> None:
    low, high = {"tiny": (3, 6), "short": (6, 12), "medium": (10, 30), "long": (30, 60)}[level]
    for task in load("train", level=level, count=count):
        assert low <= len(task.data["plan"]) <= high
        outputs = follow(task, {}, task.data["plan"])
        assert [output.done for output in outputs] == [False] * (len(outputs) - 1) + [True]
        assert sum(output.reward for output in outputs) == pytest.approx(1.0)


def test_a_length_can_be_asked_for() -> None:
    assert {len(task.data["plan"]) for task in load(length=17, count=10)} == {17}
    assert {len(task.data["plan"]) for task in load(length=[4, 5], count=30)} == {4, 5}


def shortest(task: Task) -> int:
    """The length of a shortest plan, found by trying all moves by the rules alone."""
    moves = [move for move in moves_of(task) if move[0] not in ("drop", "look", "inventory")]
    waiting: deque[tuple[int, dict[str, Any]]] = deque([(0, {})])
    seen: set[str] = set()
    while True:
        length, state = waiting.popleft()
        for move in moves:
            after = copy.deepcopy(state)
            try:
                if act(task, after, *move).done:
                    return length + 1
            except ToolError:
                continue
            player = after["crafting"]
            key = json.dumps(
                [player["place"], sorted(player["items"].items()), sorted(player["known"]), player["worn"]]
            )
            if key not in seen:
                seen.add(key)
                waiting.append((length + 1, after))


@pytest.mark.parametrize("length", range(3, 7))
def test_no_plan_is_shorter_than_the_stored_one(length: int) -> None:
    for task in load("train", length=length, count=8):
        assert shortest(task) == length, task.id


def test_no_plan_with_tools_and_ways_is_shorter_than_the_stored_one() -> None:
    def used(task: Task) -> set[str]:
        return {tool for tool, _ in tools_used(task)} & {name for _, name in task.data["plan"]}

    def ways(task: Task) -> int:
        return sum(tool == "go" for tool, _ in task.data["plan"])

    with_tools = [task for task in load("train", length=[9, 12], count=200) if used(task) and ways(task) > 1]
    far = [task for task in load("train", length=15, count=100) if ways(task) > 4]
    for task in [*with_tools[:5], *far[:3]]:
        assert shortest(task) == len(task.data["plan"]), task.id


def test_the_same_seed_makes_the_same_worlds_and_another_one_others() -> None:
    drawn = load_target("./worlds.py:_tasks", FOLDER).__wrapped__
    assert list(drawn("train", 6, 12, 20, 3)) == list(load("train", level="short", count=20, world_seed=3))
    few, many = load("train", count=5), load("train", count=50)
    assert list(few) == list(many)[:5]
    others = [load("validation", count=50), load("train", count=50, world_seed=1)]
    for other in others:
        assert {task.question for task in many}.isdisjoint(task.question for task in other)
        assert {task.id for task in many}.isdisjoint(task.id for task in other)


def test_worlds_are_plain_data() -> None:
    for task in load(count=20):
        assert json.loads(json.dumps(task.data)) == task.data


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"split": "valid"}, UnknownName, "did you mean 'validation'"),
        ({"level": "lang"}, UnknownName, "did you mean 'long'"),
        ({"length": 2}, ValueError, "3 to 60 moves"),
        ({"length": [20, 10]}, ValueError, "3 to 60 moves"),
        ({"length": [20]}, ValueError, r"\[shortest, longest\]"),
        ({"count": 0}, ValueError, "count must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_told(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        load(**options)


# -- rules, under any moves


@st.composite
def games(draw: st.DrawFn) -> tuple[Task, list[Move]]:
    """A task and moves, many of which are on the way to the goal, so that games get somewhere."""
    tasks = load("train", length=[3, 20], count=60)
    task = tasks[draw(st.integers(0, len(tasks) - 1))]
    plan = [tuple(move) for move in task.data["plan"]]
    blocks = st.one_of(
        st.builds(
            lambda start, size: plan[start : start + size], st.integers(0, len(plan)), st.integers(1, 9)
        ),
        st.lists(st.sampled_from(moves_of(task)), min_size=1, max_size=6),
    )
    moves = [move for block in draw(st.lists(blocks, max_size=8)) for move in block]
    return task, draw(st.sampled_from([[], plan[: len(plan) // 2]])) + moves


def player_of(task: Task, state: Mapping[str, Any]) -> dict[str, Any]:
    start = {"place": task.data["world"]["start"], "items": {}, "worn": {}, "known": [], "reached": []}
    return copy.deepcopy(state.get("crafting", start))


def change(task: Task, tool: str, name: str, before: Mapping[str, Any]) -> dict[str, int]:
    """What a move that went well adds to the things that are carried."""
    world = task.data["world"]
    if tool == "gather":
        raw = world["raws"][name]
        worn_out = (
            raw["tool"] and before["worn"].get(raw["tool"], 0) + 1 == world["recipes"][raw["tool"]]["uses"]
        )
        return {name: raw["gives"]} | ({raw["tool"]: -1} if worn_out else {})
    if tool == "craft":
        recipe = world["recipes"][name]
        return {each: -number for each, number in recipe["needs"].items()} | {name: recipe["gives"]}
    return {name: -1} if tool == "drop" else {}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(games())
def test_things_are_neither_lost_nor_won_but_by_the_recipes(game: tuple[Task, list[Move]]) -> None:
    task, moves = game
    world, state = task.data["world"], {}
    for tool, name in moves:
        before = player_of(task, state)
        try:
            act(task, state, tool, name)
        except ToolError:
            assert {**player_of(task, state), "moves": 0} == {**before, "moves": 0}
            continue
        player = player_of(task, state)
        expected = {**before["items"]}
        for thing, number in change(task, tool, name, before).items():
            expected[thing] = expected.get(thing, 0) + number
        assert player["items"] == {thing: number for thing, number in expected.items() if number}
        assert all(number > 0 for number in player["items"].values())
        assert sum(player["items"].values()) <= world["capacity"]
        assert player["place"] in world["ways"]
        assert set(player["worn"]) <= set(player["items"])
        assert json.loads(json.dumps(state)) == state


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(games())
def test_milestones_pay_once_and_sum_to_what_was_promised(game: tuple[Task, list[Move]]) -> None:
    task, moves = game
    credit, state = task.data["credit"], {}
    assert sum(credit.values()) == pytest.approx(1.0) and credit["goal"] == 0.5
    paid = 0.0
    for tool, name in [*moves, *moves]:
        try:
            output = act(task, state, tool, name)
        except ToolError:
            continue
        assert output.reward >= 0
        paid += output.reward
    reached = state.get("crafting", {}).get("reached", [])
    assert len(reached) == len(set(reached))
    assert paid == pytest.approx(sum(credit[each] for each in reached))
    assert ("goal" in reached) == (paid == pytest.approx(1.0))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(games())
def test_the_goal_can_be_reached_from_anywhere(game: tuple[Task, list[Move]]) -> None:
    task, moves = game
    world, state = task.data["world"], {}
    paid = 0.0
    for move in moves:
        try:
            output = act(task, state, *move)
        except ToolError:
            continue
        paid += output.reward
        if output.done:
            return
    act(task, state, "look")
    for thing, number in dict(state["crafting"]["items"]).items():
        act(task, state, "drop", thing, number=number)
    while (place := state["crafting"]["place"]) != world["start"]:
        act(task, state, "go", world["toward"][place][world["start"]])
    outputs = follow(task, state, task.data["plan"])
    assert outputs[-1].done and paid + sum(output.reward for output in outputs) == pytest.approx(1.0)


def test_a_tool_breaks_when_it_is_used_up_and_can_be_made_again() -> None:
    task = next(each for each in load("train", count=60) if tools_used(each))
    world, (tool, raw) = task.data["world"], tools_used(task)[0]
    state: dict[str, Any] = {}
    act(task, state, "look")
    player = state["crafting"]
    player.update(place=world["raws"][raw]["place"], items={tool: 1})
    uses = world["recipes"][tool]["uses"]
    for use in range(uses):
        shown = act(task, state, "gather", raw).content
        act(task, state, "drop", raw, number=world["raws"][raw]["gives"])
        assert (f"Your {tool} breaks" in shown) == (use == uses - 1)
        assert uses - use == 1 or f"{tool} ({uses - use - 1} use" in shown
    with pytest.raises(ToolError, match=f"you need 1 {tool} to gather {raw}, you have 0"):
        act(task, state, "gather", raw)
    assert not player["items"] and not player["worn"]


def test_a_tool_that_is_made_anew_is_new() -> None:
    task = next(each for each in load("train", count=60) if tools_used(each))
    world, (tool, raw) = task.data["world"], tools_used(task)[0]
    state: dict[str, Any] = {}
    act(task, state, "look")
    state["crafting"].update(place=world["raws"][raw]["place"], items={tool: 1})
    act(task, state, "gather", raw)
    assert state["crafting"]["worn"] == {tool: 1}
    act(task, state, "drop", tool)
    assert state["crafting"]["worn"] == {}


def tools_used(task: Task) -> list[tuple[str, str]]:
    return [(raw["tool"], name) for name, raw in task.data["world"]["raws"].items() if raw["tool"]]


def test_what_cannot_be_done_is_told_with_the_way_out() -> None:
    task = next(t for t in load("train", level="long", count=25) if len(t.data["world"]["ways"]) > 4)
    world, goal, state = task.data["world"], task.data["world"]["goal"], {}
    here = world["start"]
    far = next(place for place in world["ways"] if place != here and place not in world["ways"][here])
    elsewhere = next(name for name, raw in world["raws"].items() if raw["place"] != here)
    part, number = next(iter(world["recipes"][goal]["needs"].items()))
    said = {
        ("craft", goal): f"do not know how to make {goal}; look up its recipe first",
        ("craft", goal.upper() + "s"): f"nothing here is called .*did you mean '{goal}'",
        ("craft", elsewhere): f"{elsewhere} is not made but gathered",
        ("gather", goal): f"{goal} is not gathered but made",
        ("gather", elsewhere): f"there is no {elsewhere} in {here}",
        ("go", here): f"you are in {here} already",
        ("go", far): f"no way leads straight from {here} to {far}; go to {world['toward'][here][far]} first",
        ("drop", part): f"you need 1 {part}, you have 0",
    }
    for move, text in said.items():
        with pytest.raises(ToolError, match=text) as told:
            act(task, state, *move)
        assert str(told.value).endswith(f"[You are in {here} and carry 0 of {world['capacity']}.]")
    with pytest.raises(ToolError, match="at least 1, not 0"):
        act(task, state, "drop", part, number=0)
    act(task, state, "recipe", goal)
    station = world["recipes"][goal]["station"]
    state["crafting"]["place"] = next(p for p in world["ways"] if p != world["stations"].get(station))
    with pytest.raises(ToolError, match=f"made at the {station}" if station else f"you need {number} {part}"):
        act(task, state, "craft", goal)
    state["crafting"]["items"] = {goal: world["capacity"]}
    raw = next(iter(world["raws"].values()))
    state["crafting"]["place"] = raw["place"]
    with pytest.raises(ToolError, match=f"room for {raw['gives']} more, you have room for 0; drop something"):
        act(task, state, "gather", next(iter(world["raws"])))


def test_the_tools_know_no_other_tasks() -> None:
    with pytest.raises(ToolError, match="there is no world here"):
        act(Task("1", "What is 1 + 1?"), {}, "look")


# -- the environment


def test_the_scripted_policies_have_known_scores() -> None:
    oracle = evaluate(ID, policy="oracle", n=50)
    assert (oracle.reward.mean, oracle.metrics["path_ratio"].mean) == (pytest.approx(1.0), 1.0)
    assert oracle.stop_reasons == {"done": 50}
    naive = evaluate(ID, policy="naive", n=50)
    assert naive.metrics["goal_reached"].mean == pytest.approx(0.94)
    random = evaluate(ID, policy="random", n=20)
    assert random.metrics["goal_reached"].mean == 0.0
    assert 0.1 < random.metrics["milestones"].mean < 0.35


def test_long_goals_need_more_than_greed() -> None:
    naive = evaluate(ID, policy="naive", n=20, env_kwargs={"level": "long", "count": 20})
    oracle = evaluate(ID, policy="oracle", n=20, env_kwargs={"level": "long", "count": 20})
    assert oracle.metrics["goal_reached"].mean == 1.0
    assert naive.metrics["goal_reached"].mean < 0.3


def test_the_reward_can_wait_for_the_goal() -> None:
    totals = {}
    for name, rewards in {"steps": None, "outcome": OUTCOME_ONLY}.items():
        env = make(level="short", **({} if rewards is None else {"rewards": rewards}))
        env.reset(options={"task": 0})
        oracle, rng = find_policy(env, "oracle"), np.random.default_rng(0)
        steps = [env.step(oracle(env, rng)) for _ in env.task.data["plan"]]
        assert steps[-1][2] and steps[-1][4]["stop_reason"] == "done"
        totals[name] = [step[1] for step in steps]
    assert sum(totals["steps"]) == pytest.approx(1.0) and totals["steps"][0] > 0
    assert totals["outcome"] == [0.0] * (len(totals["outcome"]) - 1) + [1.0]


def test_a_call_is_a_step() -> None:
    env = make(level="short")
    env.reset(options={"task": 0})
    plan = env.task.data["plan"]
    *_, info = env.step("".join(say(env, *move) for move in plan))
    assert [call["error"] for call in info["calls"]] == [None] + ["too_many_calls"] * (len(plan) - 1)
    assert env.toolbox.session.state["crafting"]["moves"] == 1


def test_calls_of_one_reply_act_in_their_order_where_they_may() -> None:
    env = make(level="short", max_calls_per_step=64)
    for task in range(5):
        env.reset(options={"task": task})
        _, reward, terminated, _, _ = env.step("".join(say(env, *move) for move in env.task.data["plan"]))
        assert terminated and reward == pytest.approx(1.0)


def test_a_reply_without_a_call_is_told_to_make_one() -> None:
    env = make()
    env.reset(seed=0)
    for reply in ("Let me think.", "<answer>done</answer>", ""):
        observation, reward, terminated, truncated, _ = env.step(reply)
        assert "the reply holds no tool call, so nothing happened" in observation
        assert (reward, terminated, truncated) == (0.0, False, False)


def test_the_prompt_does_not_grow_with_the_episode() -> None:
    def prompts(**options: Any) -> list[int]:
        env = make(level="long", max_steps=120, **options)
        observation, _ = env.reset(options={"task": 1})
        random, rng, sizes = find_policy(env, "random"), np.random.default_rng(0), [len(observation)]
        for _ in range(119):
            observation, *_ = env.step(random(env, rng))
            assert env.task.question in observation and "[You are in " in observation
            sizes.append(len(observation))
        return sizes

    bounded, growing = prompts(), prompts(context="append")
    assert max(bounded[60:]) < 1.2 * max(bounded[10:60])
    assert growing[119] > 2.5 * growing[40] > bounded[119]


def test_nothing_shows_what_was_not_looked_up() -> None:
    env = make(level="long")
    for index in range(5):
        observation, info = env.reset(options={"task": index})
        world = env.task.data["world"]
        hidden = [thing for thing in [*world["recipes"], *world["raws"]] if thing != world["goal"]]
        shown = observation + json.dumps(info)
        assert not [thing for thing in [*hidden, *world["stations"]] if re.search(rf"\b{thing}\b", shown)]
        for move in [("recipe", world["goal"]), ("go", world["ways"][world["start"]][0]), ("look", "")]:
            observation, *_, info = env.step(say(env, *move))
        shown = observation + json.dumps(info)
        known = {*world["recipes"][world["goal"]]["needs"]}
        here = env.toolbox.session.state["crafting"]["place"]
        known |= {name for name, raw in world["raws"].items() if raw["place"] == here}
        for thing in [each for each in hidden if each not in known]:
            told = world["raws"].values()
            assert thing not in shown or thing in {raw["tool"] for raw in told}
        assert "credit" not in shown and '"plan"' not in shown


def test_a_copy_has_the_same_future() -> None:
    env = make(level="short")
    env.reset(options={"task": 3})
    rng, naive = np.random.default_rng(5), find_policy(env, "naive")
    for _ in range(4):
        env.step(naive(env, rng))
    twin, again, before = env.clone(), np.random.default_rng(9), copy.deepcopy(env.toolbox.session.state)
    rng = np.random.default_rng(9)
    while True:
        ours, theirs = env.step(naive(env, rng)), twin.step(naive(twin, again))
        assert ours[:4] == theirs[:4]
        assert env.toolbox.session.state == twin.toolbox.session.state != before
        if ours[2] or ours[3]:
            break
    twin.close()


def test_the_tools_have_schemas_that_say_what_they_take() -> None:
    env = make()
    _, info = env.reset(seed=0)
    shown = {tool["function"]["name"]: tool["function"] for tool in info["tools"]}
    assert list(shown) == list(TOOLS)
    for name, function in shown.items():
        required = [ARGUMENT[name]] if name in ARGUMENT else []
        assert function["description"] and function["parameters"].get("required", []) == required
        assert all(each["description"] for each in function["parameters"]["properties"].values())
