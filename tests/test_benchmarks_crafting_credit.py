"""The policy of the measurement on Crafting: what it reads, and that it learns by the gradient it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    path = repository / "benchmarks" / "crafting_credit.py"
    spec = importlib.util.spec_from_file_location("crafting_credit", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_what_the_player_notes_is_what_the_tools_keep(script: ModuleType) -> None:
    env = script.environment("short", "train", True, 20)
    rng, policy, compared = np.random.default_rng(0), script.Policy(), 0
    for task in range(20):
        messages, _ = env.reset(options={"task": task})
        notes, over = script.Notes(messages[-1]["content"]), False
        while not over:
            move, _ = policy.choose(notes, rng)
            messages, _, terminated, truncated, _ = env.step(script.reply(move))
            over = terminated or truncated
            notes.read(move, messages[-1]["content"])
            kept = env.toolbox.session.state["crafting"]
            assert (notes.place, notes.items) == (kept["place"], kept["items"])
            assert set(notes.recipes) == set(kept["known"])
            compared += 1
    assert compared > 300


def test_a_recipe_that_was_read_is_the_recipe_of_the_world(script: ModuleType) -> None:
    env = script.environment("short", "train", True, 20)
    for task in range(20):
        messages, _ = env.reset(options={"task": task})
        notes, world = script.Notes(messages[-1]["content"]), env.task.data["world"]
        for thing in list(world["recipes"])[:10]:
            messages, *_ = env.step(script.reply(("recipe", thing)))
            notes.read(("recipe", thing), messages[-1]["content"])
            made, read = world["recipes"][thing], notes.recipes[thing]
            place = None if made["station"] is None else world["stations"][made["station"]]
            assert read == (made["gives"], made["needs"], place)
        for name, raw in notes.things.items():
            assert raw is None or raw == (world["raws"][name]["place"], world["raws"][name]["tool"])


def test_the_gradient_is_that_of_the_log_probability(script: ModuleType) -> None:
    env = script.environment("short", "train", True, 20)
    messages, _ = env.reset(options={"task": 0})
    notes = script.Notes(messages[-1]["content"])
    weights = np.random.default_rng(0).normal(size=len(script.FEATURES))
    move, gradient = script.Policy(weights).choose(notes, np.random.default_rng(1))

    def logprob(weights: np.ndarray) -> float:
        names, features = zip(*script.moves(notes), strict=True)
        sums = np.array([sum(weights[script.FEATURES.index(name)] for name in each) for each in features])
        return float(np.log(script.softmax(sums))[names.index(move)])

    size = 1e-6
    for place, slope in enumerate(gradient):
        ahead, behind = weights.copy(), weights.copy()
        ahead[place] += size
        behind[place] -= size
        assert (logprob(ahead) - logprob(behind)) / (2 * size) == pytest.approx(slope, abs=1e-6)


def test_every_episode_weighs_the_same(script: ModuleType) -> None:
    one = np.eye(2)
    episodes = [
        script.Played([0.0], [one[0]], [()], True),
        script.Played([0.0] * 4, [one[1]] * 4, [()] * 4, False),
    ]
    assert script.policy_gradient(episodes, np.ones(5)).tolist() == [0.5, 0.5]


def test_the_policy_learns(script: ModuleType) -> None:
    setting = script.Setting(updates=10, groups=2, worlds=20, evaluation_worlds=20)
    success = script.run(script.Job("tiny", "process, step_grpo", 0.4, 0), setting)["success"]
    assert success[-1] > success[0] + 0.2


def test_a_seed_gives_the_same_run_again(script: ModuleType) -> None:
    job = script.Job("tiny", "process, gigpo", 0.4, 0)
    setting = script.Setting(updates=1, groups=1, worlds=20, evaluation_worlds=2)
    assert script.run(job, setting)["weights"] == script.run(job, setting)["weights"]
