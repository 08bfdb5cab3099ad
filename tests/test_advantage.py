"""Advantages: one an episode, compared within its group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


REWARDS, GROUPS = [1, 0, 3, 1], ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (advantage.grpo, [0.7070, -0.7070, 0.7071, -0.7071]),
        (advantage.dr_grpo, [0.5, -0.5, 1, -1]),
        (advantage.rloo, [1, -1, 2, -2]),
        (advantage.reinforce_plus_plus, [-0.1987, -0.9933, 1.3907, -0.1987]),
        (advantage.reinforce_plus_plus_baseline, [0.5477, -0.5477, 1.0954, -1.0954]),
    ],
)
def test_four_episodes_by_hand(estimate, expected) -> None:
    assert estimate(REWARDS, GROUPS) == pytest.approx(expected, abs=2e-4)


def test_remax_compares_with_the_greedy_episode() -> None:
    assert advantage.remax(REWARDS, GROUPS, [1, 1, 0, 0]).tolist() == [0, -1, 3, 1]
    with pytest.raises(ValueError, match="do not match 4 episodes"):
        advantage.remax(REWARDS, GROUPS, [1, 1])
    with pytest.raises(ValueError, match="greedy reward of episode 1"):
        advantage.remax(REWARDS, GROUPS, [1, math.nan, 0, 0])


ALL = [
    advantage.grpo,
    advantage.dr_grpo,
    advantage.rloo,
    advantage.reinforce_plus_plus,
    advantage.reinforce_plus_plus_baseline,
]
GROUPED = [estimate for estimate in ALL if estimate is not advantage.reinforce_plus_plus]
BATCHES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0]), st.integers(0, 3)), min_size=1, max_size=12
)


@pytest.mark.parametrize("estimate", ALL)
@given(batch=BATCHES, shift=st.sampled_from([-3.0, 0.25, 8.0]))
def test_a_reward_that_all_episodes_get_changes_nothing(estimate, batch, shift) -> None:
    rewards, groups = zip(*batch, strict=True)
    shifted = estimate([reward + shift for reward in rewards], groups)
    assert shifted == pytest.approx(estimate(rewards, groups), abs=1e-9)


@pytest.mark.parametrize("estimate", GROUPED)
@given(batch=BATCHES, shift=st.sampled_from([-3.0, 0.25, 8.0]), group=st.integers(0, 3))
def test_a_reward_that_a_group_gets_changes_nothing(estimate, batch, shift, group) -> None:
    rewards, groups = zip(*batch, strict=True)
    moved = [reward + shift * (label == group) for reward, label in batch]
    assert estimate(moved, groups) == pytest.approx(estimate(rewards, groups), abs=1e-9)


@pytest.mark.parametrize("estimate", ALL)
@given(batch=BATCHES, scale=st.sampled_from([2.0, 64.0]))
def test_scaling_rewards_scales_the_unscaled_and_leaves_the_scaled(estimate, batch, scale) -> None:
    rewards, groups = zip(*batch, strict=True)
    once, scaled = estimate(rewards, groups), estimate([scale * reward for reward in rewards], groups)
    factor = scale if estimate in (advantage.dr_grpo, advantage.rloo) else 1.0
    assert scaled == pytest.approx(factor * once, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("estimate", ALL)
@given(batch=BATCHES, seed=st.integers(0, 99))
def test_the_order_of_episodes_does_not_matter(estimate, batch, seed) -> None:
    rewards, groups = (np.asarray(column) for column in zip(*batch, strict=True))
    order = np.random.default_rng(seed).permutation(len(batch))
    assert estimate(rewards[order], groups[order]) == pytest.approx(
        estimate(rewards, groups)[order], abs=1e-9
    )


@pytest.mark.parametrize("estimate", ALL)
def test_groups_of_one_and_constant_batches_are_exactly_zero(estimate) -> None:
    assert estimate([0.1] * 3, ["a", "a", "b"]).tolist() == [0.0] * 3
    if estimate in GROUPED:
        assert estimate([0.7, 0.2], ["a", "b"]).tolist() == [0.0, 0.0]
    assert estimate([], []).tolist() == []


@given(batch=BATCHES)
def test_leaving_oneself_out_is_what_rloo_says(batch) -> None:
    rewards, groups = zip(*batch, strict=True)
    for place, found in enumerate(advantage.rloo(rewards, groups)):
        others = [r for j, (r, g) in enumerate(batch) if g == groups[place] and j != place]
        expected = rewards[place] - np.mean(others) if others else 0.0
        assert found == pytest.approx(expected, abs=1e-9)
