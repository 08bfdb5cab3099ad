"""Advantages: one an episode, compared within its group."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agent_r1_env import advantage
from agent_r1_env.errors import UnknownName


def test_one_success_among_three_uses_the_sample_deviation() -> None:
    found = advantage.grpo([1, 0, 0], [7, 7, 7])
    assert found == pytest.approx([1.1547, -0.5774, -0.5774], rel=1e-3)


def test_numbers_agree_with_trl() -> None:
    torch = pytest.importorskip("torch")
    rewards = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.2, 0.2, 0.9, 0.1]).view(-1, 4)
    theirs = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    ours = advantage.grpo(rewards.flatten().numpy(), [0] * 4 + [1] * 4)
    assert ours == pytest.approx(theirs.flatten().numpy(), rel=1e-5)


@pytest.mark.parametrize(
    "rewards",
    [
        pytest.param([0.1] * 3, id="constant"),
        pytest.param([0.7], id="group-of-one"),
        pytest.param([], id="empty"),
    ],
)
def test_groups_without_spread_give_exactly_zero(rewards: list[float]) -> None:
    assert np.mean([0.1] * 3) != 0.1, "the trap: a mean of equal floats that differs from them"
    assert advantage.grpo(rewards, ["a"] * len(rewards)).tolist() == [0.0] * len(rewards)


def test_groups_may_be_scattered_and_named_by_anything() -> None:
    found = advantage.grpo([1, 5, 0, 5], ["x", "y", "x", "y"])
    assert found[0] == -found[2] > 0
    assert found[1] == found[3] == 0


def test_scales() -> None:
    rewards, groups = [1, 0, 10, 0], [0, 0, 1, 1]
    assert advantage.grpo(rewards, groups, scale=False).tolist() == [0.5, -0.5, 5, -5]
    assert advantage.grpo(rewards, groups, scale="none").tolist() == [0.5, -0.5, 5, -5]
    batch = advantage.grpo(rewards, groups, scale="batch")
    assert batch[2] == pytest.approx(5 / (np.std(rewards, ddof=1) + 1e-4))
    assert advantage.grpo(rewards, groups, scale="group").tolist() == advantage.grpo(rewards, groups).tolist()
    with pytest.raises(UnknownName, match="'group'"):
        advantage.grpo(rewards, groups, scale="gruop")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_raises_with_its_episode(bad: float) -> None:
    with pytest.raises(ValueError, match="episode 2"):
        advantage.grpo([1.0, 0.0, bad, 0.5], [0, 0, 1, 1])


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="3 groups"):
        advantage.grpo([1.0, 0.0], [0, 0, 0])


def test_an_unknown_estimator_raises_with_the_nearest_name() -> None:
    assert advantage.get("grpo") is advantage.grpo
    with pytest.raises(UnknownName, match="no advantage estimator named 'gpro'; did you mean 'grpo'"):
        advantage.get("gpro")
