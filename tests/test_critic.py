"""The critic: which values it reads, what it learns from, and that all processes keep the same one."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from agent_r1_env.critic import Critic, SharedValues, ValueModel, explained_variance, value_loss
from agent_r1_env.critic_settings import CriticSettings
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import UnknownName
from agent_r1_env.testing import tiny_llama
from agent_r1_env.valued import Reading, joined, step_states, token_states

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, 250, length).tolist() for length in (5, 9, 4, 12, 7, 3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def trained_head(model: ValueModel) -> ValueModel:
    """A model whose values are not all 0."""
    with torch.no_grad():
        torch.manual_seed(1)
        model.model.score.weight.normal_()
    return model


def critic(model: Any, accelerator: Any, at_once: int = 4, **settings: Any) -> Critic:
    return Critic(model, CriticSettings(**{"learning_rate": 3e-3, **settings}), accelerator, at_once)


def whole(*prompts: list[int]) -> list[Reading]:
    return [Reading(prompt, (len(prompt),)) for prompt in prompts]


# -- what is read


def growing(turns: int) -> list[list[int]]:
    ids = np.random.default_rng(turns).integers(3, 250, 8 * turns + 5).tolist()
    return [ids[: 8 * turn + 5] for turn in range(turns)]


def test_prompts_that_continue_each_other_are_one_reading() -> None:
    first, second = growing(3), [[7, 8], [7, 9], [7, 9, 9]]
    found = joined(whole(*first, *second))
    assert found == [
        Reading(first[-1], (5, 13, 21)),
        Reading([7, 8], (2,)),
        Reading([7, 9, 9], (2, 3)),
    ]


def test_values_of_one_pass_are_those_of_separate_passes(model: str, accelerator: Accelerator) -> None:
    value_model = trained_head(ValueModel(model))
    judge = critic(value_model, accelerator, at_once=2)
    prompts = [*growing(4), *PROMPTS, *growing(2)]
    separate = []
    for prompt in prompts:
        with torch.no_grad():
            values = value_model(torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.long))
        separate.append(float(values[0, -1]))
    assert len({round(value, 3) for value in separate}) > 8  # they can be told apart
    assert judge.values(whole(*prompts)) == pytest.approx(separate, abs=2e-5)


def test_the_prompts_of_an_episode_are_its_states() -> None:
    steps = [Step(tuple(prompt), (1, 2), (-1.0, -1.0), 0.5) for prompt in growing(2)]
    ended = Episode("E-v0", "t", 0, 0, steps, terminated=True, next_prompt_ids=(9, 9))
    assert step_states(ended).all == whole(*map(tuple, growing(2)))  # type: ignore[arg-type]
    cut = Episode("E-v0", "t", 0, 0, steps, truncated=True, next_prompt_ids=(9, 9))
    assert step_states(cut).after == Reading((9, 9), (2,))
    assert step_states(cut, bootstrap=False).after is None
    assert step_states(cut, longest=1).after is None
    assert step_states(cut).rewards == [0.5, 0.5]


def test_every_sampled_token_can_be_an_action() -> None:
    steps = [
        Step((1, 2), (3, 4), (-1.0, -1.0), 0.5),
        Step((1, 2, 3, 4, 5), (), (), 0.25),
        Step((1, 2, 3, 4, 5, 6), (7,), (-1.0,), 1.0),
    ]
    played = Episode("E-v0", "t", 0, 0, steps, terminated=True)
    masked = token_states(played)
    assert joined(masked.all) == [Reading([1, 2, 3, 4, 5, 6], (2, 3, 6))]
    assert (masked.rewards, masked.parts) == ([0.0, 0.75, 1.0], [(0, 2), (0, 0), (0, 1)])
    whole = token_states(played, tool_tokens=True)
    assert joined(whole.all) == [Reading([1, 2, 3, 4, 5, 6], (2, 3, 4, 5, 6))]
    assert (whole.rewards, whole.parts) == ([0.0, 0.75, 0.0, 0.0, 1.0], [(0, 2), (0, 0), (2, 1)])
    late = Episode("E-v0", "t", 0, 0, steps[1:], terminated=True)
    assert token_states(late).rewards == [1.25]


def test_states_without_ids_are_refused() -> None:
    mute = Episode("E-v0", "t", 0, 0, (Step((), (), ()),), terminated=True)
    with pytest.raises(ValueError, match="task 't', has no prompt ids"):
        step_states(mute)
    cut = Episode("E-v0", "t", 0, 0, (Step((1,), (), ()),), truncated=True)
    with pytest.raises(ValueError, match="has no next_prompt_ids.*bootstrap: false"):
        step_states(cut)


# -- what is learnt


def tensors(*values: list[float]) -> list[torch.Tensor]:
    return [torch.tensor(value) for value in values]


def test_the_clipped_loss_by_hand() -> None:
    values, old, returns, weights = tensors([1.0, 0.0], [0.0, 0.0], [2.0, 1.0], [0.5, 0.5])
    loss, held = value_loss(values, old, returns, weights, 0.2)
    assert float(loss) == pytest.approx(0.25 * (1.8**2 + 1))
    assert float(held) == 0.5
    assert float(value_loss(values, old, returns, weights, None)[0]) == pytest.approx(0.25 * 2)


def test_the_gradient_of_the_loss_by_hand() -> None:
    """w (V - R) where the value may still move, 0 where it moved too far already and would move on."""
    values, old, returns, weights = tensors(
        [0.1, 0.5, -0.5, 0.9], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.4, 0.3, 0.2, 0.1]
    )
    values.requires_grad_()
    value_loss(values, old, returns, weights, 0.2)[0].backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([0.4 * -0.9, 0.0, 0.2 * -1.5, 0.1 * 0.9])


def test_explained_variance_is_1_for_the_truth_and_0_for_the_mean() -> None:
    returns, even = np.array([0.0, 1.0, 1.0, 2.0]), np.full(4, 0.25)
    assert explained_variance(returns, returns, even) == 1
    assert explained_variance(np.ones(4), returns, even) == 0
    assert explained_variance(-returns, returns, even) == pytest.approx(-3)
    assert math.isnan(explained_variance(returns, np.ones(4), even))
    doubled = np.array([0.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25])
    guess = np.array([0.5, 1.0, 1.0])
    assert explained_variance(guess, *doubled) == pytest.approx(
        explained_variance(guess[[0, 1, 1, 2]], returns, even)
    )


def first_token_task(count: int = 24) -> tuple[list[Reading], Any]:
    """Prompts that are worth 1 if they begin with one token and 0 if they begin with another."""
    rng = np.random.default_rng(3)
    prompts = [[10 + i % 2, *rng.integers(20, 250, 2 + i % 5).tolist()] for i in range(count)]
    return whole(*prompts), np.array([float(i % 2) for i in range(count)])


@pytest.mark.parametrize("shared", [False, True])
def test_a_critic_learns_what_prompts_are_worth(model: str, accelerator: Accelerator, shared: bool) -> None:
    value_model = SharedValues(AutoModelForCausalLM.from_pretrained(model)) if shared else ValueModel(model)
    judge = critic(value_model, accelerator, at_once=32, epochs=10, clip_range=None, learning_rate=1e-2)
    readings, returns = first_token_task()
    even = np.full(len(returns), 1 / len(returns))
    losses, explained = [], []
    for _ in range(6):
        old = np.array(judge.values(readings))
        explained.append(explained_variance(old, returns, even))
        losses.append(judge.learn(readings, old, returns, even)["loss"])
    assert explained[0] == 0
    assert explained[-1] > (0.4 if shared else 0.9)
    assert losses[-1] < losses[0] * (0.6 if shared else 0.2)


def test_a_shared_critic_leaves_the_policy_alone(model: str, accelerator: Accelerator) -> None:
    policy = AutoModelForCausalLM.from_pretrained(model).train()
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    judge = critic(SharedValues(policy), accelerator)
    readings, returns = first_token_task()
    judge.learn(readings, 0 * returns, returns, np.full(len(returns), 1 / len(returns)))
    assert policy.training
    assert all(weight.grad is None for weight in policy.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in policy.state_dict().items())
    assert any(judge.values(readings))


def test_weights_say_what_a_state_counts_for(model: str, accelerator: Accelerator) -> None:
    judge = critic(ValueModel(model), accelerator, epochs=1)
    returns = np.array([1.0, 3.0])
    numbers = judge.learn(whole([5, 6], [8]), np.zeros(2), returns, np.array([0.75, 0.25]))
    assert numbers["loss"] == pytest.approx(0.5 * (0.75 + 0.25 * 9))


def test_a_batch_in_parts_has_the_gradient_of_the_whole(model: str, accelerator: Accelerator) -> None:
    readings, returns = first_token_task()
    weights = np.linspace(1, 2, len(returns)) / np.linspace(1, 2, len(returns)).sum()
    found = []
    for at_once in (1, 5, 99):
        judge = critic(trained_head(ValueModel(model)), accelerator, at_once, epochs=1, max_grad_norm=0.0)
        judge.learn(readings, np.zeros(len(returns)), returns, weights)
        parameters = list(judge.model.parameters())
        found.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    assert float((found[0] - found[2]).norm() / found[2].norm()) < 1e-5
    assert float((found[1] - found[2]).norm() / found[2].norm()) < 1e-5


class Side:
    """One of two processes as far as a critic asks, for two threads: sums what both of them bring."""

    device, mixed_precision = torch.device("cpu"), "no"

    def __init__(self, meeting: threading.Barrier, brought: list[Any], number: int) -> None:
        self._meeting, self._brought, self._number = meeting, brought, number

    def autocast(self) -> Any:
        return torch.autocast("cpu", enabled=False)

    def reduce(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum"
        self._brought[self._number] = tensor.detach().clone()
        self._meeting.wait(60)
        total: torch.Tensor = self._brought[0] + self._brought[1]
        self._meeting.wait(60)
        return total


@pytest.mark.parametrize("cut", [10, 0])
def test_two_processes_keep_the_critic_of_one(model: str, accelerator: Accelerator, cut: int) -> None:
    readings, returns = first_token_task()
    old, weights = np.zeros(len(returns)), np.full(len(returns), 1 / len(returns))
    alone = critic(trained_head(ValueModel(model)), accelerator)
    expected = alone.learn(readings, old, returns, weights)
    meeting, brought = threading.Barrier(2), [None, None]
    sides = [critic(trained_head(ValueModel(model)), Side(meeting, brought, number)) for number in range(2)]
    found: dict[int, dict[str, float]] = {}

    def work(number: int, part: slice) -> None:
        found[number] = sides[number].learn(readings[part], old[part], returns[part], weights[part])

    parts = slice(0, cut), slice(cut, None)
    threads = [threading.Thread(target=work, args=(number, parts[number])) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found[0] == pytest.approx(expected, rel=1e-3)
    assert found[1] == found[0]
    states = [side.model.state_dict() for side in (*sides, alone)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert sides[0].values(readings) == pytest.approx(alone.values(readings), abs=1e-2)


# -- the models


def test_a_new_head_begins_at_0_and_a_trained_one_is_kept(
    model: str, accelerator: Accelerator, tmp_path: Path
) -> None:
    new = critic(ValueModel(model), accelerator)
    assert new.values(whole(*PROMPTS)) == [0.0] * len(PROMPTS)
    trained = critic(trained_head(ValueModel(model)), accelerator)
    trained.save(tmp_path)
    again = critic(ValueModel(str(tmp_path)), accelerator)
    assert any(again.values(whole(*PROMPTS)))
    assert again.values(whole(*PROMPTS)) == trained.values(whole(*PROMPTS))


def test_a_copy_of_a_model_in_memory_is_that_of_its_folder(model: str) -> None:
    copied = ValueModel.copied(AutoModelForCausalLM.from_pretrained(model)).state_dict()
    loaded = ValueModel(model).state_dict()
    assert copied.keys() == loaded.keys()
    assert all(torch.equal(copied[name], loaded[name]) for name in loaded)


def test_a_value_has_no_dropout(tmp_path: Path, accelerator: Accelerator) -> None:
    folder = tiny_llama(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.9}))
    value_model = trained_head(ValueModel(str(folder))).train()
    judge = critic(value_model, accelerator)
    assert judge.values(whole(*PROMPTS)) == judge.values(whole(*PROMPTS))


def test_a_model_without_a_value_head_in_transformers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "olmo"}))
    with pytest.raises(ValueError, match=r"no value model for .*\(olmo\); choose critic.model: shared"):
        ValueModel(str(tmp_path))


@pytest.mark.parametrize(
    "setting", [{"epochs": 0}, {"clip_range": 0.0}, {"warmup": -1}, {"learning_rate": -1}]
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"critic.{next(iter(setting))} cannot be"):
        CriticSettings(**setting)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnknownName, match="no level of the critic named 'tokens'; did you mean 'token'"):
        CriticSettings(level="tokens")
    with pytest.raises(ValueError, match="needs critic.level: token"):
        CriticSettings(tool_tokens=True)


def test_a_folder_without_a_critic_is_refused(model: str, accelerator: Accelerator, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no critic to go on with"):
        critic(ValueModel(model), accelerator).load(tmp_path / "critic")
