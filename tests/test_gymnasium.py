"""Every environment of the catalogue is one of Gymnasium's, in all the forms that Gymnasium knows."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import OrderEnforcing, RecordEpisodeStatistics, TimeLimit

from agent_r1_env import ToolEnv, register, tool
from agent_r1_env.catalog import Catalog
from agent_r1_env.errors import StateError
from agent_r1_env.testing import ByteTokenizer, add, sum_env
from agent_r1_env.tool_env import SingleToolEnv
from agent_r1_env.vector import ThreadVectorEnv

ENTRIES = sorted(
    env_id
    for env_id, spec in gym.registry.items()
    if spec.namespace == "AgentR1" and spec.entry_point == "agent_r1_env.making:make_env"
)
SEEDS = (11, 12)
LONGEST = 8
"""Steps of an episode that are looked at."""

every_entry = pytest.mark.parametrize("env_id", ENTRIES)
Step = tuple[Any, float, bool, bool, dict[str, Any]]


@pytest.fixture
def make() -> Iterator[Callable[..., gym.Env]]:
    """``gymnasium.make``, and ``close`` when the test is over."""
    made: list[gym.Env] = []

    def make_one(env_id: str | EnvSpec, **options: Any) -> gym.Env:
        made.append(gym.make(env_id, **options))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


@functools.cache
def played(env_id: str, seed: int) -> tuple[list[str], list[Any]]:
    """The replies of the oracle, and all that one environment shows for them."""
    name = gym.registry[env_id].kwargs["entry"].rpartition("/")[2]
    policy = Catalog.open().env(name).target("policies", "oracle")
    env = gym.make(env_id)
    replies: list[str] = []
    seen: list[Any] = [env.reset(seed=seed)]
    rng = np.random.default_rng(seed)
    while len(replies) < LONGEST and not (replies and (seen[-1][2] or seen[-1][3])):
        replies.append(policy(env.unwrapped, rng))
        seen.append(env.step(replies[-1]))
    env.close()
    return replies, without_times(seen)


def without_times(value: Any) -> Any:
    """What was seen, without what differs between equal runs."""
    if isinstance(value, dict):
        return {
            key: without_times(each)
            for key, each in value.items()
            if key.lstrip("_") not in ("seconds", "queued", "cached")
        }
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [without_times(each) for each in value]
    return value


def replayed(env: gym.Env, replies: list[str], seed: int) -> Any:
    return without_times([env.reset(seed=seed), *map(env.step, replies)])


# -- made by name


@every_entry
@pytest.mark.parametrize("prefix", ["", "agent_r1_env:"], ids=["bare", "prefixed"])
def test_gymnasium_makes_it_by_name(env_id: str, prefix: str, make: Any) -> None:
    env = make(prefix + env_id)
    assert isinstance(env.unwrapped, ToolEnv)
    assert env.spec.id == env_id
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert info["task_id"]


@pytest.mark.parametrize(
    ("package", "prefix"),
    [pytest.param("gymnasium", "agent_r1_env:", id="prefixed"), pytest.param("agent_r1_env", "", id="bare")],
)
def test_a_fresh_process_makes_every_one(package: str, prefix: str) -> None:
    code = (
        f"import warnings; warnings.simplefilter('ignore'); import {package}; import gymnasium\n"
        f"for name in {ENTRIES}:\n"
        f"    env = gymnasium.make({prefix!r} + name); env.reset(seed=0); env.close(); print(env.spec.id)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ENTRIES


@every_entry
def test_gymnasium_checks_it_without_a_warning(env_id: str, make: Any, capsys: Any) -> None:
    env = make(env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*synthetic", UserWarning)
        check_env(env.unwrapped, skip_render_check=False)
    assert "user" in capsys.readouterr().out  # what mode "human" printed


@every_entry
@pytest.mark.parametrize("observation", ["messages", "tokens"])
def test_gymnasium_checks_it_in_every_form_of_observation(env_id: str, observation: str, make: Any) -> None:
    env = make(env_id, observation=observation, tokenizer=ByteTokenizer())
    check_env(env.unwrapped, skip_render_check=True)
    seen, info = env.reset(seed=0)
    assert seen in env.observation_space
    if observation == "messages":
        assert list(seen) == info["messages"]


# -- vectors


def vectors() -> list[Any]:
    def made_by(vector: Callable[..., VectorEnv]) -> Callable[[str], VectorEnv]:
        return lambda env_id: vector([lambda: gym.make(env_id)] * 2)

    def make_vec(mode: str) -> Callable[[str], VectorEnv]:
        return lambda env_id: gym.make_vec(env_id, num_envs=2, vectorization_mode=mode)

    return [
        pytest.param(make_vec("sync"), id="make_vec sync"),
        pytest.param(make_vec("async"), id="make_vec async"),
        pytest.param(make_vec("vector_entry_point"), id="make_vec of ours"),
        pytest.param(made_by(SyncVectorEnv), id="SyncVectorEnv"),
        pytest.param(made_by(AsyncVectorEnv), id="AsyncVectorEnv with shared memory"),
        pytest.param(made_by(functools.partial(AsyncVectorEnv, shared_memory=False)), id="AsyncVectorEnv"),
        pytest.param(made_by(ThreadVectorEnv), id="ThreadVectorEnv"),
    ]


@every_entry
@pytest.mark.parametrize("vector", vectors())
def test_every_vector_shows_what_one_environment_shows(env_id: str, vector: Any) -> None:
    runs = [played(env_id, seed) for seed in SEEDS]
    envs = vector(env_id)
    try:
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        observations, infos = envs.reset(seed=list(SEEDS))
        assert observations in envs.observation_space
        assert [list(each) for each in zip(observations, infos["task_id"], strict=True)] == [
            [seen[0][0], seen[0][1]["task_id"]] for _, seen in runs
        ]
        for place in range(1, 1 + min(len(replies) for replies, _ in runs)):
            got = envs.step([replies[place - 1] for replies, _ in runs])
            for index, (_, seen) in enumerate(runs):
                observation, reward, terminated, truncated, info = seen[place]
                assert [each[index] for each in got[:4]] == [observation, reward, terminated, truncated]
                assert got[4]["stop_reason"][index] == info["stop_reason"]
                assert without_times(got[4]["calls"][index]) == info["calls"]
    finally:
        envs.close()


@every_entry
@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_the_end_of_an_episode_is_kept_where_the_next_begins_at_once(env_id: str, mode: str) -> None:
    (replies, seen) = played(env_id, SEEDS[0])
    ours = mode == "vector_entry_point"
    options = {"autoreset_mode": "SameStep"} if ours else {"vector_kwargs": {"autoreset_mode": "SameStep"}}
    envs = gym.make_vec(env_id, num_envs=1, vectorization_mode=mode, max_steps=len(replies), **options)
    try:
        envs.reset(seed=SEEDS[0])
        for reply in replies:
            observations, rewards, terminated, truncated, infos = envs.step([reply])
        assert terminated[0] or truncated[0]
        assert "final_obs" in infos and observations[0] != infos["final_obs"][0]
        assert infos["final_info"]["stop_reason"][0] is not None
        assert infos["stop_reason"][0] is None
        if seen[-1][2]:
            assert (infos["final_obs"][0], rewards[0]) == (seen[-1][0], seen[-1][1])
    finally:
        envs.close()


# -- wrappers


@every_entry
def test_wrappers_of_gymnasium_fit(env_id: str, make: Any) -> None:
    replies, seen = played(env_id, SEEDS[0])
    env = RecordEpisodeStatistics(TimeLimit(OrderEnforcing(make(env_id, max_steps=len(replies))), 99))
    env.reset(seed=SEEDS[0])
    for reply in replies:
        _, _, terminated, truncated, info = env.step(reply)
    assert terminated or truncated
    assert info["episode"]["l"] == len(replies)
    if seen[-1][2]:
        assert info["episode"]["r"] == pytest.approx(sum(step[1] for step in seen[1:]))


@every_entry
def test_a_time_limit_of_gymnasium_and_our_own_truncate(env_id: str, make: Any) -> None:
    limited = make(env_id, max_episode_steps=1, max_steps=3)
    limited.reset(seed=0)
    _, _, terminated, truncated, info = limited.step("hm")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, None)
    limited.reset(seed=1)  # the episode that was left is no hindrance
    ours = make(env_id, max_steps=1)
    ours.reset(seed=0)
    _, _, terminated, truncated, info = ours.step("hm")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, "max_steps")


@every_entry
def test_steps_out_of_order_are_refused(env_id: str, make: Any) -> None:
    env = make(env_id, max_steps=1)
    with pytest.raises(ResetNeeded):
        env.step("hm")
    with pytest.raises(ResetNeeded, match="has not begun"):
        env.unwrapped.step("hm")
    env.reset(seed=0)
    env.step("hm")
    with pytest.raises(ResetNeeded, match="is over"):
        env.step("hm")


# -- specs, pickling and copies


@every_entry
def test_a_spec_goes_through_json_and_makes_the_same(env_id: str, make: Any) -> None:
    replies, seen = played(env_id, SEEDS[0])
    spec = make(env_id, max_episode_steps=50).spec
    read = EnvSpec.from_json(json.dumps(json.loads(spec.to_json())))
    assert read == spec
    np.testing.assert_equal(replayed(make(read), replies, SEEDS[0]), seen)
    assert pickle.loads(pickle.dumps(spec)) == spec


@every_entry
def test_an_environment_is_pickled_before_reset_amid_an_episode_and_after(env_id: str, make: Any) -> None:
    replies, seen = played(env_id, SEEDS[0])
    env = make(env_id)
    for done in range(len(replies) + 1):
        twin = pickle.loads(pickle.dumps(env))
        try:
            if done == 0:
                twin.reset(seed=SEEDS[0])
            rest = without_times([twin.step(reply) for reply in replies[max(0, done - 1) :]])
            np.testing.assert_equal(rest, seen[max(1, done) :])
        finally:
            twin.close()
        if done == 0:
            env.reset(seed=SEEDS[0])
        elif done < len(replies):
            env.step(replies[done - 1])


@every_entry
def test_a_deep_copy_goes_its_own_way(env_id: str, make: Any) -> None:
    replies, seen = played(env_id, SEEDS[0])
    env = make(env_id)
    env.reset(seed=SEEDS[0])
    twin = copy.deepcopy(env)
    twin.step("hm")
    twin.close()
    np.testing.assert_equal(without_times([env.step(reply) for reply in replies]), seen[1:])


@every_entry
def test_arguments_changed_after_make_change_nothing(env_id: str, make: Any) -> None:
    replies, _ = played(env_id, SEEDS[0])
    options = {"rewards": {"exact_match": 1.0}, "metrics": ["exact_match"], "format": {"name": "hermes"}}
    kept = copy.deepcopy(options)
    changed, same = make(env_id, **options), make(env_id, **kept)
    options["rewards"]["exact_match"] = 100.0
    options["metrics"].append("f1")
    options["format"]["name"] = "react"
    once = replayed(same, replies, SEEDS[0])
    np.testing.assert_equal(replayed(changed, replies, SEEDS[0]), once)
    assert {name: changed.spec.kwargs[name] for name in kept} == kept
    again = pickle.loads(pickle.dumps(changed))
    np.testing.assert_equal(replayed(again, replies, SEEDS[0]), once)
    again.close()


@every_entry
def test_what_is_registered_stays_plain_and_as_it_was(env_id: str, make: Any) -> None:
    spec = gym.registry[env_id]
    before = spec.to_json()
    make(env_id, max_steps=2).reset(seed=0)
    assert spec.to_json() == before
    assert set(spec.kwargs) == {"entry", "folder"}
    assert spec.vector_entry_point == "agent_r1_env.vector:make_vec_env"


# -- rendering, closing, randomness


@every_entry
def test_it_renders_as_asked(env_id: str, make: Any, capsys: Any) -> None:
    text = make(env_id, render_mode="ansi")
    text.reset(seed=0)
    text.step("a reply 🙂")
    assert "a reply 🙂" in text.render()
    assert capsys.readouterr().out == ""
    printing = make(env_id, render_mode="human")
    printing.reset(seed=0)
    printing.step("a reply 🙂")
    assert printing.render() is None
    assert capsys.readouterr().out.strip() == text.render().strip()
    silent = make(env_id)
    silent.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.unwrapped.render() is None


@every_entry
def test_an_unknown_render_mode_is_refused(env_id: str, make: Any) -> None:
    with pytest.raises(LookupError, match=r"'ansy'.*did you mean 'ansi'"):
        make(env_id, render_mode="ansy")


@every_entry
def test_close_may_be_called_again_and_before_reset(env_id: str, make: Any) -> None:
    fresh, used = make(env_id), make(env_id)
    used.reset(seed=0)
    used.step("hm")
    for env in (fresh, used):
        env.close()
        env.close()


@every_entry
def test_the_callers_random_state_is_left_alone(env_id: str, make: Any) -> None:
    replies, seen = played(env_id, SEEDS[0])
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    np.testing.assert_equal(replayed(make(env_id), replies, SEEDS[0]), seen)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


@every_entry
def test_equal_seeds_give_equal_tasks_and_others_others(env_id: str, make: Any) -> None:
    one, other = make(env_id), make(env_id)

    def tasks(env: gym.Env, seeds: Iterable[int | None]) -> list[str]:
        return [env.reset(seed=seed)[1]["task_id"] for seed in seeds]

    assert tasks(one, range(8)) == tasks(other, range(8))
    assert len(set(tasks(one, range(8)))) > 1
    assert tasks(one, [3, None, None]) == tasks(other, [3, None, None])


# -- a tool as an environment

DICE = """
import numpy as np
from agent_r1_env import Hidden

def dice(sides: int, state: Hidden[dict], rng: Hidden[np.random.Generator]) -> str:
    \"\"\"Throw a die.\"\"\"
    state.setdefault("thrown", []).append(int(rng.integers(1, sides + 1)))
    return str(state["thrown"])
"""


def test_a_tool_environment_is_pickled_and_copied_amid_an_episode(tmp_path: Path, make: Any) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "dice.yaml").write_text("name: dice\nrun: ./dice.py:dice\n")
    (tmp_path / "tools" / "dice.py").write_text(DICE)
    register(tmp_path, "Pickled")
    env = make("Pickled/DiceTool-v0", max_calls=3)
    env.reset(seed=3)
    env.step('{"sides": 1000}')
    twins = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    first, *others = [[each.step('{"sides": 1000}')[:4] for _ in range(2)] for each in (env, *twins)]
    assert others == [first, first]
    assert [each.reset()[0] for each in twins] == [env.reset()[0]] * 2
    assert len({each.step('{"sides": 100000}')[0] for each in [env, *twins]}) == 1
    for twin in twins:
        twin.close()


def test_what_no_spec_can_make_again_says_so() -> None:
    env = SingleToolEnv(tool(add))
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(StateError, match="only a tool environment of gymnasium.make"):
            copied(env)
    with pytest.raises(StateError, match=r"pickle get_state\(\) instead"):
        pickle.dumps(sum_env())
    env.close()
