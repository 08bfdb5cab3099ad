"""Tests of evaluation: which tasks, what is averaged, how sure the means are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.engines import Sampling
from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode, read_episodes
from agent_r1_env.errors import AgentR1Error, UnknownName
from agent_r1_env.evaluate import choose, evaluate, find_policy, make, shard_of
from agent_r1_env.summary import interval, row_of, summarise
from agent_r1_env.testing import answer, call, scripted, sum_env, sums

ENV = "Testing/Sums-v0"


class BrokenEnv(ToolEnv):
    """Its second task cannot be played."""

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        if info["task_id"] == "sum-1":
            raise RuntimeError("the database is gone")
        return observation, info


def broken_env() -> ToolEnv:
    return BrokenEnv(sums(4), [])


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    gym.register(ENV, entry_point=sum_env)
    gym.register("Testing/Broken-v0", entry_point=broken_env)
    yield
    del gym.registry[ENV], gym.registry["Testing/Broken-v0"]


def knows(env: ToolEnv, rng: np.random.Generator) -> str:
    assert env.task is not None
    return call("add", a=1, b=1) if env.steps == 0 else answer(env.task.answers[0])


def guesses(env: ToolEnv, rng: np.random.Generator) -> str:
    return answer(rng.integers(1, 5)) if rng.random() < 0.5 else call("ad", a=1)


def test_a_policy_that_knows_scores_one_with_an_interval_of_its_size() -> None:
    found = evaluate(ENV, policy=knows, env_kwargs={"count": 8})
    assert (found.n, found.failed, found.policy) == (8, 0, "knows")
    assert found.reward.mean == found.metrics["exact_match"].mean == 1.0
    assert found.metrics["exact_match"].low == pytest.approx(0.6756, abs=1e-4)
    assert str(found.metrics["steps"]) == "2.000  [2.000, 2.000]"
    assert str(found.metrics["invalid_calls"]) == "0.000  [0.000, 0.000]"
    assert found.tool_call_rate == 0.5
    assert found.invalid_call_rate == 0.0
    assert found.stop_reasons == {"answer": 8}
    assert "agent_r1_env.testing" in found.data


def test_equal_seeds_give_equal_evaluations_and_other_seeds_others() -> None:
    def run(seed: int) -> dict[str, Any]:
        data = evaluate(ENV, policy=guesses, env_kwargs={"count": 40}, seed=seed, n=20).to_dict()
        del data["seconds"], data["seed"]
        return data

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert run(3)["invalid_call_rate"] == 1.0


def test_an_engine_and_a_policy_that_say_the_same_score_the_same() -> None:
    replies = (call("add", a=1, b=2), answer(2))

    def says(env: ToolEnv, rng: np.random.Generator) -> str:
        return replies[env.steps]

    scores = []
    for who in ({"policy": says}, {"engine": scripted(*replies), "concurrency": 3}):
        data = evaluate(ENV, env_kwargs={"count": 10}, name="same", **who).to_dict()  # type: ignore[arg-type]
        del data["seconds"]
        told = {name: data.pop(name) for name in ("prompt_tokens", "reply_tokens")} | {"steps": data["steps"]}
        scores.append(data)
    assert scores[0] == scores[1]
    assert scores[0]["metrics"]["exact_match"]["mean"] == 0.1
    assert told["reply_tokens"]["mean"] > told["steps"]["mean"] == 2.0


def test_a_reply_cut_by_its_limit_is_no_answer() -> None:
    found = evaluate(ENV, engine=scripted(answer(1)), sampling=Sampling(max_tokens=5, temperature=0.0))
    assert found.stop_reasons == {"length": 4}
    assert found.reward.mean == 0.0


def test_episodes_are_written_as_they_end_and_progress_is_told(tmp_path: Path) -> None:
    file, told = tmp_path / "episodes.jsonl", []
    for _ in range(2):
        evaluate(ENV, policy=knows, episodes=file, progress=lambda done, total: told.append((done, total)))
    episodes = list(read_episodes(file))
    assert [episode.task_id for episode in episodes] == ["sum-0", "sum-1", "sum-2", "sum-3"] * 2
    assert episodes[0].steps[0].reply == call("add", a=1, b=1)
    assert told[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_an_environment_that_breaks_is_told_apart_from_a_bad_policy() -> None:
    found = evaluate("Testing/Broken-v0", engine=scripted(answer(1)))
    assert (found.n, found.failed) == (3, 1)
    assert found.reward.mean == pytest.approx(1 / 3)
    assert "error" not in found.stop_reasons


def test_means_of_nothing_are_null_in_json() -> None:
    lost = Episode(ENV, "x", 0, 0, error="RuntimeError: gone", stop_reason="error", truncated=True)
    found = summarise([row_of(lost)], env_id=ENV, policy="p")
    assert (found.n, found.failed) == (0, 1)
    assert math.isnan(found.reward.mean)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["reward"]["mean"] is None


def test_tasks_are_drawn_by_the_seed_without_repetition() -> None:
    assert choose(5, None, 0) == choose(5, 9, 0) == [0, 1, 2, 3, 4]
    drawn = choose(1000, 50, 7)
    assert drawn == choose(1000, 50, 7) == sorted(set(drawn))
    assert drawn != choose(1000, 50, 8)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        choose(5, 0, 0)


def test_exactly_one_of_policy_and_engine_is_taken() -> None:
    for wrong in ({}, {"policy": knows, "engine": scripted("x")}):
        with pytest.raises(ValueError, match="either a policy or an engine"):
            evaluate(ENV, **wrong)  # type: ignore[arg-type]


def test_only_environments_of_this_kind_can_be_evaluated() -> None:
    with pytest.raises(AgentR1Error, match="CartPole-v1 is a CartPoleEnv; only a ToolEnv"):
        evaluate("CartPole-v1", policy=knows)


def test_an_unknown_policy_names_the_nearest() -> None:
    env = make("AgentR1/HotpotQA-v0")
    with pytest.raises(UnknownName, match="no policy named 'oracel' in .*; did you mean 'oracle'"):
        find_policy(env, "oracel")
    with pytest.raises(UnknownName, match="without a YAML file; known: none"):
        find_policy(make(ENV), "oracle")


@pytest.mark.parametrize(("name", "low", "high"), [("oracle", 1, 1), ("naive", 0, 0.2), ("random", 0, 0.05)])
def test_policies_on_the_embedded_questions(name: str, low: float, high: float) -> None:
    found = evaluate("AgentR1/HotpotQA-v0", policy=name, n=100)
    assert low <= found.metrics["exact_match"].mean <= high
    assert found.synthetic
    assert (found.invalid_call_rate > 0) == (name == "random")


@pytest.mark.parametrize(("name", "low", "high"), [("oracle", 1, 1), ("naive", 0, 0.2), ("random", 0, 0.05)])
def test_policies_on_real_questions(shared_data: Path, name: str, low: float, high: float) -> None:
    folder = shared_data / "hotpotqa"
    files = {
        "data": str(folder / "hotpot_dev_distractor_sample.json"),
        "corpus": str(folder / "corpus.jsonl"),
    }
    found = evaluate("AgentR1/HotpotQA-v0", policy=name, env_kwargs=files)
    assert found.n == 200
    assert low <= found.metrics["exact_match"].mean <= high
    assert not found.synthetic


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=50))
def test_the_interval_of_shares_holds_the_mean_within_bounds(values: list[float]) -> None:
    found = interval(values)
    assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
    assert found.low < found.high


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (97, 200, 0.4167, 0.5539)],
)
def test_the_interval_of_shares_is_wilsons(successes: int, n: int, low: float, high: float) -> None:
    found = interval([1.0] * successes + [0.0] * (n - successes))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_the_interval_of_other_numbers_is_near_the_normal_one() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400).tolist()
    found = interval(values)
    half = 1.96 * np.std(values) / 20
    assert (found.mean - found.low, found.high - found.mean) == pytest.approx((half, half), rel=0.1)
    assert interval([0.25, 0.25]) == interval([0.25])
    assert str(interval([1.0] * 200)) == "1.000  [0.981, 1.000]"
