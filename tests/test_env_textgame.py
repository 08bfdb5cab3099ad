"""Games without tools: fair, solvable, and played by moves in the last line of a reply."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import ToolEnv, UnknownName
from agent_r1_env.catalog import Catalog
from agent_r1_env.evaluate import find_policy

ENV = "AgentR1/TextGame-v0"


def made(**options: Any) -> ToolEnv:
    env = gym.make(ENV, disable_env_checker=True, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def said(env: ToolEnv) -> str:
    return env.history[-1].content


def games_won(policy: str, **options: Any) -> int:
    """How many of the games a policy wins; its random numbers depend on the task alone."""
    env = made(**options)
    act = find_policy(env, policy)
    won = 0
    for number in range(len(env.tasks)):
        rng = np.random.default_rng([0, number])
        env.reset(options={"task": number})
        terminated = truncated = False
        while not (terminated or truncated):
            _, reward, terminated, truncated, info = env.step(act(env, rng))
        assert reward == info["metrics"]["won"]
        won += int(reward)
    return won


@pytest.mark.parametrize(
    ("policy", "split", "won"),
    [
        ("oracle", "validation", 300),
        ("oracle", "train", 300),
        ("naive", "validation", 115),
        ("random", "validation", 7),
    ],
)
def test_scripted_policies_have_known_scores(policy: str, split: str, won: int) -> None:
    assert games_won(policy, split=split) == won


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("game", ["guess", "questions", "maze"])
def test_every_game_of_every_level_can_be_won(game: str, level: int) -> None:
    assert games_won("oracle", game=game, level=level, count=40) == 40


def test_halving_the_range_always_finds_the_number_in_time() -> None:
    env = made(game="guess", level=3)
    for number in range(50):
        env.reset(options={"task": number})
        low, high = env.task.data["low"], env.task.data["high"]
        terminated = False
        while not terminated:
            middle = (low + high) // 2
            _, reward, terminated, _, _ = env.step(str(middle))
            low, high = (middle + 1, high) if "higher" in said(env) else (low, middle - 1)
        assert reward == 1.0


def test_qualities_tell_all_things_apart() -> None:
    env = made(game="questions", level=3)
    for task in env.tasks:
        things = task.data["things"]
        assert len({tuple(qualities) for qualities in things.values()}) == len(things)
        assert task.data["secret"] in things


def test_asking_after_qualities_finds_the_thing_in_time() -> None:
    env = made(game="questions", level=3)
    for number in range(50):
        env.reset(options={"task": number})
        left = dict(env.task.data["things"])
        while len(left) > 1:
            counts = Counter(quality for qualities in left.values() for quality in qualities)
            asked = min(counts, key=lambda quality: abs(counts[quality] - len(left) / 2))
            env.step(asked)
            has_it = said(env).startswith("Yes")
            left = {name: each for name, each in left.items() if (asked in each) == has_it}
        _, reward, *_ = env.step(next(iter(left)))
        assert reward == 1.0


def test_a_maze_is_one_tree_whose_treasure_lies_farthest_away() -> None:
    for task in made(game="maze", level=3).tasks:
        doors = task.data["doors"]
        assert len(doors) == 49
        assert sum(map(len, doors.values())) == 2 * 48
        assert len(task.data["way"]) >= 10


@pytest.mark.parametrize(
    "reply", ["{}", "  {}  ", "I think it is\n{}", "hm\n\n**{}**\n\n", "<think>no, 3</think>{}", "{}."]
)
def test_the_move_is_the_last_line_of_the_reply(reply: str) -> None:
    env = made(game="guess")
    env.reset(seed=0)
    _, reward, *_ = env.step(reply.format(env.task.data["secret"]))
    assert reward == 1.0


@pytest.mark.parametrize("reply", ["", "my guess is {}", "{} 1", "٣", "<answer>{}</answer>", "9" * 50])
def test_anything_else_is_told_and_costs_a_move(reply: str) -> None:
    env = made(game="guess")
    env.reset(seed=0)
    _, reward, terminated, _, _ = env.step(reply.format(env.task.data["secret"]))
    assert (reward, terminated) == (0.0, False)
    assert said(env) == (
        f"error: a move is a whole number from {env.task.data['low']} to {env.task.data['high']}, "
        "alone in the last line\nMoves left: 6."
    )


def test_a_lost_game_is_over_and_says_so_without_the_secret() -> None:
    env = made(game="guess")
    env.reset(seed=0)
    wrong = next(n for n in range(env.task.data["low"], 10**4) if n != env.task.data["secret"])
    for _ in range(7):
        _, reward, terminated, truncated, info = env.step(str(wrong))
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, True, False, "done")
    assert said(env).endswith("That was your last move. You have lost.")
    assert info["metrics"]["won"] == 0.0


@settings(max_examples=40, deadline=None)
@given(
    moves=st.lists(
        st.one_of(st.text(max_size=40), st.sampled_from(["north", "east", "south", "west", "red", "450"])),
        max_size=60,
    ),
    task=st.integers(0, 299),
)
def test_whatever_is_said_a_game_goes_on_or_ends_and_its_state_is_plain(moves: list[str], task: int) -> None:
    env = made()
    env.reset(options={"task": task})
    for move in moves:
        _, reward, terminated, truncated, info = env.step(move)
        state = env.episode.session.state
        assert json.loads(json.dumps(state)) == state
        assert reward in (0.0, 1.0)
        if terminated or truncated:
            assert info["metrics"]["moves"] == len([m for m in env.history if m.role == "assistant"])
            break


def test_what_is_hidden_is_the_same_everywhere_and_nowhere_shown() -> None:
    first, second = made(), made()
    assert list(first.tasks) == list(second.tasks)
    for number in range(30):
        observation, info = first.reset(options={"task": number})
        data = first.task.data
        assert "secret" not in str(info) and "secret" not in observation
        if first.task.kind == "guess":
            assert str(data["secret"]) not in observation.replace(str(data["low"]), "").replace(
                str(data["high"]), ""
            )


def test_splits_hold_other_games() -> None:
    train, validation = made(split="train").tasks, made(split="validation").tasks
    assert not {str(task.data) for task in train} & {str(task.data) for task in validation}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "gues"}, "did you mean 'guess'"),
        ({"split": "test"}, "no split named 'test'"),
    ],
)
def test_unknown_games_and_splits_name_the_known(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        made(**options)


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="level must be 1, 2 or 3, not 4"):
        made(level=4)


def test_the_entry_has_no_tools() -> None:
    assert Catalog.open().env("TextGame").data["tools"] == []
