"""Perturbations as plain data: in gym.make, in an environment's file, in rollouts and evaluations."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

from agent_r1_env import CatalogError, UnknownName, register
from agent_r1_env.catalog import Catalog
from agent_r1_env.contract import check
from agent_r1_env.env import ToolEnv
from agent_r1_env.evaluate import evaluate
from agent_r1_env.perturb import PERTURBATIONS, resolve
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.rules import RULES
from agent_r1_env.testing import answer, call, scripted
from agent_r1_env.vector import ThreadVectorEnv

HOTPOT = "AgentR1/HotpotQA-v0"
ALL = [
    {"faults": {"rate": 0.1, "seed": 3}},
    {"latency": {"uniform": [0.0, 0.002]}},
    {"distractors": 3},
    {"paraphrase": {"seed": 1}},
]
SEARCHES = [call("search", query=f"actress {number}") for number in range(12)]

pytestmark = pytest.mark.filterwarnings("ignore::agent_r1_env.task.SyntheticDataWarning")


def made(perturb: Any = ALL, **options: Any) -> gym.Env[Any, Any]:
    return gym.make(HOTPOT, disable_env_checker=True, perturb=perturb, max_steps=20, **options)


def base(env: gym.Env[Any, Any]) -> ToolEnv:
    assert isinstance(env.unwrapped, ToolEnv)
    return env.unwrapped


def met(records: Any) -> list[Any]:
    return [(record["result"], record["error"], record["simulated"]) for record in records]


def played(env: gym.Env[Any, Any], seed: int = 5) -> list[Any]:
    env.reset(seed=seed, options={"task": 0})
    return [each for reply in SEARCHES for each in met(env.step(reply)[4]["calls"])]


def test_all_of_them_together_do_what_each_does_alone() -> None:
    env = made()
    observation, info = env.reset(seed=0)
    tools = [tool["function"]["name"] for tool in info["tools"]]
    assert len(tools) == 4 and "search" in tools and "search" in observation
    plain = base(gym.make(HOTPOT)).toolbox.tools["search"]
    assert base(env).toolbox.tools["search"].description in [
        each["description"] for each in plain.paraphrases
    ]
    kinds = {simulated for *_, simulated in played(env)}
    assert None in kinds and len(kinds) > 2
    env.close()


@pytest.mark.parametrize("rule", RULES)
def test_the_contract_holds_under_trouble(rule: str) -> None:
    (finding,) = check(HOTPOT, {"perturb": ALL}, rules=[rule])
    assert finding.holds, finding.detail


def test_trouble_is_the_same_in_every_form() -> None:
    expected = played(made())
    assert played(made()) == expected
    assert played(made(), seed=6) != expected

    vector = ThreadVectorEnv([made] * 4)
    vector.reset(seed=[1, 2, 3, 5], options={"task": 0})
    seen = []
    for reply in SEARCHES:
        *_, infos = vector.step((reply,) * 4)
        seen += met(infos["calls"][3])
    vector.close()
    assert seen == expected

    for concurrency in (1, 8):
        engine = scripted(*SEARCHES, answer("nobody"))
        requests = [EpisodeRequest(0, seed) for seed in (5, 1, 2, 5, 3, 4, 6, 5)]
        kwargs = {"perturb": ALL, "max_steps": 20}
        with Rollout(HOTPOT, kwargs, engine=engine, concurrency=concurrency) as rollout:
            episodes = rollout.run(requests)
        for place in (0, 3, 7):
            records = [record for step in episodes[place].steps for record in step.calls]
            assert met(records) == expected
            assert episodes[place].error is None


def test_an_environment_goes_through_json_pickle_and_copies() -> None:
    env = made()
    spec = env.spec
    assert spec is not None
    again = gym.make(EnvSpec.from_json(spec.to_json()))
    assert played(again) == played(env)
    env.reset(seed=5, options={"task": 0})
    first = [met(env.step(reply)[4]["calls"]) for reply in SEARCHES[:4]]
    twins = [base(env).clone(), pickle.loads(pickle.dumps(base(env))), copy.deepcopy(base(env))]
    rest = [[met(each.step(reply)[4]["calls"]) for reply in SEARCHES[4:]] for each in (env, *twins)]
    assert rest == [rest[0]] * 4
    assert [each for part in first + rest[0] for each in part] == played(again)


def test_what_the_caller_asks_for_takes_the_place_of_what_the_file_says(folder: Path) -> None:
    register(folder, namespace="PerturbTest")
    noisy = base(gym.make("PerturbTest/Trip-v0"))
    quiet = base(gym.make("PerturbTest/Trip-v0", perturb=[]))
    other = base(gym.make("PerturbTest/Trip-v0", perturb={"distractors": {"names": ["get_weather"]}}))
    assert [len(each.toolbox.tools) for each in (noisy, quiet, other)] == [3, 1, 2]
    for env_id in [each for each in gym.registry if each.startswith("PerturbTest/")]:
        del gym.registry[env_id]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "trip.yaml").write_text(
        "name: Trip\ntasks: {load: ./trip.py:load}\ntools: [calculator]\nperturb:\n"
        "  - faults: {timeout: 0.1}\n  - distractors: 2\n"
    )
    (tmp_path / "envs" / "trip.py").write_text(
        "from agent_r1_env import Task, TaskSet\n\n\ndef load():\n"
        "    return TaskSet([Task('t', 'What?', ('that',))], name='trip', origin='made for a test')\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "faults: {timeuot: 0.1}",
            r"5:\d+: no option named 'timeuot' in the .* 'faults'; did you mean 'timeout'",
        ),
        ("fault: 0.1", r"5:\d+: no perturbation named 'fault'; did you mean 'faults'"),
        ("faults: {timeout: 3}", r"5:\d+: timeout is a share of all calls, from 0 to 1, got 3"),
        ("latency: {}", r"5:\d+: latency is one of constant, uniform and lognormal"),
        ("distractors: many", r"5:\d+: count must be a whole number"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_place(folder: Path, given: str, told: str) -> None:
    path = folder / "envs" / "trip.yaml"
    path.write_text(path.read_text().replace("faults: {timeout: 0.1}", given))
    with pytest.raises(CatalogError, match=told):
        Catalog.open(folder).check()


def test_a_tool_that_the_environment_lacks_is_told_with_the_file(folder: Path) -> None:
    path = folder / "envs" / "trip.yaml"
    path.write_text(path.read_text().replace("{timeout: 0.1}", "{timeout: 0.1, tools: [calculater]}"))
    register(folder, namespace="PerturbTest")
    with pytest.raises(CatalogError, match="trip.yaml:5:3:.*'calculater'; did you mean 'calculator'"):
        gym.make("PerturbTest/Trip-v0")
    for env_id in [each for each in gym.registry if each.startswith("PerturbTest/")]:
        del gym.registry[env_id]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ([{"latncy": 1}], "no perturbation named 'latncy'; did you mean 'latency'"),
        ([{"faults": 0.1, "latency": 1}], "a perturbation is one key and its options"),
        (0.1, "write several as a list; got 0.1"),
        ({"latency": {"secs": 1}}, "no option named 'secs' in the perturbation 'latency'"),
        ({"faults": {"timeout": 0.1, "tools": ["serch"]}}, "no tool named 'serch'; did you mean 'search'"),
        ("faults", "no fault has a rate above 0"),
    ],
)
def test_mistakes_of_a_caller_are_told(spec: Any, told: str) -> None:
    with pytest.raises((UnknownName, ValueError)) as caught:
        made(spec)
    assert told in str(caught.value)


def test_a_name_or_the_value_of_the_first_option_is_enough() -> None:
    (paraphrase,) = resolve("paraphrase")
    assert type(resolve([{"paraphrase": None}])[0]) is type(paraphrase)
    (faults,) = resolve({"faults": 0.1})
    assert type(paraphrase) is PERTURBATIONS["paraphrase"]
    assert faults.rates["cut"] == 0.1  # type: ignore[attr-defined]
    assert resolve(None) == resolve([]) == []


def test_methods_without_tools_meet_no_trouble() -> None:
    for method in ("direct", "naive_rag"):
        env = made([{"faults": {"timeout": 1.0}}, {"distractors": 2}], method=method)
        observation, info = env.reset(seed=0)
        assert not info["tools"]
        env.close()


def test_an_evaluation_counts_what_was_simulated() -> None:
    kwargs = {"perturb": [{"faults": 0.1}]}
    found = evaluate(HOTPOT, policy="oracle", n=40, env_kwargs=kwargs)
    clean = evaluate(HOTPOT, policy="oracle", n=40)
    kinds = {name for name in found.metrics if name.startswith("simulated/")}
    assert len(kinds) > 3 and found.failed == 0
    assert found.metrics["exact_match"].mean <= clean.metrics["exact_match"].mean == 1.0
    again = evaluate(HOTPOT, policy="oracle", n=40, env_kwargs=kwargs)
    assert again.metrics == found.metrics
    json.dumps(found.to_dict())
