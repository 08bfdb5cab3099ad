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

import agent_r1_env
from agent_r1_env import formats
from agent_r1_env.engines import Sampling
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode, read_episodes
from agent_r1_env.errors import AgentR1Error, UnknownName
from agent_r1_env.eval_screen import report
from agent_r1_env.evaluate import choose, evaluate, find_policy, make, shard_of
from agent_r1_env.runfolder import load
from agent_r1_env.statistics import interval
from agent_r1_env.summary import row_of, summarise
from agent_r1_env.testing import ByteTokenizer, answer, call, scripted, sum_env, sums

ENV = "Testing/Sums-v0"


class BrokenEnv(ToolEnv):
    """Its second task cannot be played while ``down``."""

    down = True

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        if info["task_id"] == "sum-1" and self.down:
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
    assert (found.reward.mean, found.answer_rate, found.truncation_rate) == (0.0, 0.0, 1.0)


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


def test_a_broken_episode_of_a_scripted_policy_is_recorded_and_the_next_one_runs() -> None:
    found = evaluate("Testing/Broken-v0", policy=lambda env, rng: answer(1))
    assert (found.n, found.failed, found.tasks) == (3, 1, 3)
    assert [row["error"] for row in found.rows] == [None, "RuntimeError: the database is gone", None, None]


def test_an_error_of_the_policy_itself_is_raised() -> None:
    def wrong(env: ToolEnv, rng: np.random.Generator) -> str:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        evaluate(ENV, policy=wrong)


@pytest.mark.parametrize("who", ["policy", "engine"])
def test_what_broke_is_tried_again_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    asked: list[str] = []

    def says(prompt: str) -> str:
        asked.append(prompt)
        return answer(1)

    def run() -> Any:
        given: dict[str, Any] = (
            {"policy": lambda env, rng: says(""), "name": "p"}
            if who == "policy"
            else {"engine": ScriptedEngine(says, ByteTokenizer()), "name": "e"}
        )
        return evaluate("Testing/Broken-v0", output=tmp_path, **given)

    assert (run().failed, len(asked)) == (1, 3)
    assert (run().failed, len(asked)) == (1, 3)
    monkeypatch.setattr(BrokenEnv, "down", False)
    found = run()
    assert (found.n, found.failed, len(asked)) == (4, 0, 4)
    assert [row["task_id"] for row in found.rows] == ["sum-0", "sum-1", "sum-2", "sum-3"]
    (loaded,) = load(tmp_path)
    assert {**loaded.to_dict(rows=True), "seconds": 0} == {**found.to_dict(rows=True), "seconds": 0}


def test_samples_of_a_task_differ_and_are_averaged_first() -> None:
    found = evaluate(ENV, policy=guesses, env_kwargs={"count": 20}, samples=6)
    by_task = found.samples_of("exact_match")
    assert [len(scores) for scores in by_task.values()] == [6] * 20
    assert any(len(set(scores)) == 2 for scores in by_task.values())
    means = [sum(scores) / 6 for scores in by_task.values()]
    assert found.metrics["exact_match"] == interval(means)
    assert found.best["exact_match"] == interval([max(scores) for scores in by_task.values()])
    assert (found.tasks, found.samples, found.n) == (20, 6, 120)
    assert "steps" not in found.best


@pytest.mark.parametrize("who", ["policy", "engine"])
def test_an_episode_comes_out_the_same_whatever_runs_beside_it(who: str) -> None:
    def run(**options: Any) -> dict[Any, Any]:
        engine = ScriptedEngine(lambda prompt: answer(1), ByteTokenizer())
        given: dict[str, Any] = {"policy": guesses} if who == "policy" else {"engine": engine}
        rows = evaluate(ENV, env_kwargs={"count": 12}, seed=5, **given, **options).rows
        return {
            (row["task_id"], row["sample"]): (row["seed"], row["answer"], row["stop_reason"]) for row in rows
        }

    whole = run(samples=3)
    assert len(whole) == len({seed for seed, _, _ in whole.values()}) == 36
    for part in (run(samples=2), run(samples=3, shard=(2, 5)), run(samples=3, n=4)):
        assert part.items() <= whole.items()


def test_replies_of_every_sample_are_drawn_from_a_seed_of_their_own() -> None:
    seeds: list[int | None] = []

    class Noting(ScriptedEngine):
        async def generate(self, prompt_ids: Any, sampling: Sampling) -> Any:
            seeds.append(sampling.seed)
            assert sampling.temperature == 1.0
            return await super().generate(prompt_ids, sampling)

    for shard in ((1, 1), (1, 2), (2, 2)):
        evaluate(ENV, engine=Noting(lambda _: answer(1), ByteTokenizer()), samples=3, shard=shard)
    assert len(set(seeds[:12])) == 12
    assert sorted(map(str, seeds[:12])) == sorted(map(str, seeds[12:]))


@given(st.integers(1, 50), st.integers(1, 9))
def test_shards_are_disjoint_and_together_all_tasks(tasks: int, count: int) -> None:
    parts = [shard_of(range(tasks), (number, count)) for number in range(1, count + 1)]
    assert sorted(task for part in parts for task in part) == list(range(tasks))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0)])
def test_a_shard_that_is_none_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="shards are counted from 1/"):
        evaluate(ENV, policy=knows, shard=shard)


def test_rows_are_plain_data() -> None:
    found = evaluate(ENV, engine=scripted(call("add", a=1, b="x"), answer(1)), samples=2)
    row = found.rows[1]
    assert json.loads(json.dumps(found.to_dict(rows=True)))["rows"][1] == row
    assert (row["task_id"], row["sample"], row["task"], row["reward"]) == ("sum-0", 1, 0, 1.0)
    assert (row["steps"], row["calls"], row["invalid_calls"], row["calling"]) == (2, 1, 1, 1)
    assert row["metrics"]["sub_exact_match"] == row["metrics"]["f1"] == 1.0
    assert row["prompt_tokens"] > row["reply_tokens"] > 0
    assert "rows" not in found.to_dict()


def test_an_evaluation_says_what_the_prefix_cache_was_worth() -> None:
    row = evaluate(ENV, policy=knows, n=1).rows[0]
    told = {**row, "cached_tokens": 30, "cached_of": 40}
    found = summarise([told, {**told, "cached_of": 80}, row], env_id="x", policy="y")
    assert found.prefix_cache_hit_rate == 0.5
    assert "prefix-cache hits  0.500" in report(found)
    assert summarise([row], env_id="x", policy="y").to_dict()["prefix_cache_hit_rate"] is None


def test_an_answer_that_is_longer_scores_in_its_part_alone() -> None:
    found = evaluate(ENV, engine=scripted(answer("it is 1")), n=4)
    means = {name: found.metrics[name].mean for name in ("exact_match", "sub_exact_match", "f1")}
    assert means == {"exact_match": 0.0, "sub_exact_match": 0.25, "f1": pytest.approx(0.125)}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("mine\n")
    with pytest.raises(AgentR1Error, match="holds something other than this run"):
        evaluate(ENV, policy=knows, output=tmp_path)
    assert (tmp_path / "episodes.jsonl").read_text() == "mine\n"


def test_another_version_would_score_otherwise(tmp_path: Path) -> None:
    evaluate(ENV, policy=knows, output=tmp_path)
    file = tmp_path / "run.json"
    file.write_text(file.read_text().replace(f'"{agent_r1_env.__version__}"', '"0.0.1"'))
    with pytest.raises(AgentR1Error, match='version is "0.0.1" there and'):
        evaluate(ENV, policy=knows, output=tmp_path)


def test_arguments_that_are_no_json_identify_a_run_by_name(tmp_path: Path) -> None:
    options = {"env_kwargs": {"format": formats.get("react")}, "policy": knows, "output": tmp_path / "react"}
    assert evaluate(ENV, **options).n == evaluate(ENV, **options).n == 4  # type: ignore[arg-type]
    options["env_kwargs"] = {"format": formats.get("hermes")}
    with pytest.raises(AgentR1Error, match="env_kwargs.format"):
        evaluate(ENV, **options)  # type: ignore[arg-type]


def test_what_is_not_complete_is_loaded_with_a_warning(tmp_path: Path) -> None:
    evaluate(ENV, policy=knows, output=tmp_path)
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_text("".join(lines[:3]))
    with pytest.warns(UserWarning, match="not complete: 3 of 4 episodes"):
        (found,) = load(tmp_path)
    assert found.n == 3


def test_shards_are_loaded_as_one_run(tmp_path: Path) -> None:
    whole = evaluate(ENV, policy=guesses, env_kwargs={"count": 9}, samples=2)
    for number in (1, 2):
        evaluate(
            ENV,
            policy=guesses,
            env_kwargs={"count": 9},
            samples=2,
            shard=(number, 2),
            output=tmp_path / str(number),
        )
    (found,) = load(tmp_path)
    assert {**found.to_dict(), "seconds": 0} == {**whole.to_dict(), "seconds": 0}


def test_equal_runs_in_two_folders_are_two_runs(tmp_path: Path) -> None:
    for name in ("first", "again"):
        evaluate(ENV, policy=guesses, output=tmp_path / name)
    found, again = load(tmp_path / "first", tmp_path / "again")
    assert found.n == again.n == 4
    assert found.samples_of("reward") == again.samples_of("reward")


async def test_it_runs_where_an_event_loop_runs_already() -> None:
    assert evaluate(ENV, engine=scripted(answer(1))).n == 4


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
