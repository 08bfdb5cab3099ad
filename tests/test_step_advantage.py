"""Advantages one a step: hand-computed, and with the properties that their equations promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import step_advantage as steps
from agent_r1_env.advantage import dr_grpo

# Four episodes of 1, 3, 2 and 1 steps in two groups.
REWARDS = [1.0, 0.0, 0.5, 1.0, 0.0, -1.0, 2.0]
EPISODE = [0, 1, 1, 1, 2, 2, 3]
GROUPS = ["a", "a", "b", "b"]


def test_the_examples_of_the_docstrings() -> None:
    rewards, episode, groups = [0, 1, 0], [0, 0, 1], ["a", "a"]
    assert steps.reward_to_go(rewards, episode, 0.5).tolist() == [0.5, 1, 0]
    assert steps.gae(rewards, [0.5, 0.5, 0.25], episode, 1, 0.5).tolist() == [0.25, 0.5, -0.25]
    assert steps.ppo(rewards, [0.5, 0.5, 0.25], episode, 1, 0.5) == pytest.approx(
        [0.218, 0.873, -1.091], abs=1e-3
    )
    assert steps.step_grpo(rewards, episode, groups).tolist() == [0.5, 0, -0.5]
    assert steps.gigpo(rewards, episode, groups, ["x", "y", "x"], 1, scale=False).tolist() == [1, 0.5, -1]
    assert steps.turn_grpo([0.2, 0, 0], [1, 0], episode, groups, scale=False).tolist() == [0.5, 0.5, -0.5]
    assert steps.prime([0.5, 0.5, 0.25], [1, 0], episode, groups).tolist() == [1.5, 1.25, -1.25]
    assert steps.per_step_grpo(rewards, episode, groups, scale=False) == pytest.approx([1 / 3, 1 / 3, -2 / 3])


def test_reward_to_go_of_four_episodes_by_hand() -> None:
    found = steps.reward_to_go(REWARDS, EPISODE, 0.5)
    assert found.tolist() == [1.0, 0.5, 1.0, 1.0, -0.5, -1.0, 2.0]


def test_an_episode_that_was_truncated_goes_on_with_an_estimate() -> None:
    found = steps.reward_to_go(REWARDS, EPISODE, 0.5, after=[0, 4, 0, 0])
    assert found.tolist() == [1.0, 1.0, 2.0, 3.0, -0.5, -1.0, 2.0]


def test_gae_of_four_episodes_by_hand() -> None:
    values = [0.5, 0.0, 1.0, 0.5, 0.0, 0.0, 1.0]
    # Deltas with gamma 0.5: 0.5 | 0.5, -0.25, 0.5 + 0.5 * 2 | 0, -1 | 1; lam 0.5 carries a quarter back.
    found = steps.gae(REWARDS, values, EPISODE, 0.5, 0.5, after=[0, 2, 0, 0])
    assert found.tolist() == [0.5, 0.5 + 0.25 * 0.125, 0.125, 1.5, -0.25, -1.0, 1.0]


def test_gae_without_trust_in_the_rewards_is_one_difference_and_with_it_all_that_comes() -> None:
    values = np.asarray([0.5, 0.0, 1.0, 0.5, 0.0, 0.0, 1.0])
    assert steps.gae(REWARDS, values, EPISODE, 0.9, 1.0) == pytest.approx(
        steps.reward_to_go(REWARDS, EPISODE, 0.9) - values
    )
    assert steps.gae(REWARDS, values, EPISODE, 0.9, 0.0)[1] == pytest.approx(0 + 0.9 * 1.0 - 0.0)


def test_step_groups_of_four_episodes_by_hand() -> None:
    # Group a: step 0 has G of 1 and 1.5; group b: step 0 has -1 and 2; later steps are alone.
    assert steps.step_grpo(REWARDS, EPISODE, GROUPS).tolist() == [-0.25, 0.25, 0, 0, -1.5, 0, 1.5]


def test_anchor_groups_of_four_episodes_by_hand() -> None:
    anchors = ["s", "s", "t", "s", "u", "v", "u"]
    found = steps.gigpo(REWARDS, EPISODE, GROUPS, anchors, 1.0, omega=0.5, scale=False)
    of_episode = np.asarray([-0.25, 0.25, -1.5, 1.5])[EPISODE]
    # "s" in group a: G of 1, 1.5 and 1; "u" in group b: -1 and 2.
    of_step = np.asarray([1 - 3.5 / 3, 1.5 - 3.5 / 3, 0, 1 - 3.5 / 3, -1.5, 0, 1.5])
    assert found == pytest.approx(of_episode + 0.5 * of_step)


def test_the_same_anchor_in_two_groups_is_two_states() -> None:
    found = steps.gigpo([1, 0, 5, 5], [0, 1, 2, 3], ["a", "a", "b", "b"], ["s"] * 4, 1.0, scale=False)
    assert found.tolist() == [1, -1, 0, 0]


def test_turns_of_four_episodes_by_hand() -> None:
    outcomes = [1.0, 0.0, 0.0, 2.0]
    process = [0.0, 0.5, 0.1, 0.0, 0.3, 0.0, 0.0]
    found = steps.turn_grpo(process, outcomes, EPISODE, GROUPS, alpha=2.0, scale=False)
    # Outcomes: 0.5, -0.5 | -1, 1. Turns before the last: episode 1 has two and episode 2 one, each alone.
    assert found.tolist() == [0.5, -1.0, -1.0, -0.5, -2.0, -1.0, 1.0]


def test_process_and_outcome_of_four_episodes_by_hand() -> None:
    outcomes = [1.0, 0.0, 0.0, 2.0]
    process = [0.0, 0.5, 0.1, 0.0, 0.3, 0.1, 0.0]
    found = steps.prime(process, outcomes, EPISODE, GROUPS, gamma=1.0)
    # Means of the others' steps: 0.2, 0 | 0, 0.2.
    assert found == pytest.approx([1 - 0.2, 0.6 - 1, 0.1 - 1, 0.0 - 1, 0.4 - 2, 0.1 - 2, 2 - 0.2])


BATCHES = st.lists(
    st.tuples(st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0]), min_size=1, max_size=4), st.integers(0, 2)),
    min_size=1,
    max_size=6,
)


def flat(batch) -> tuple[list[float], list[int], list[int], list[str], list[float]]:
    """Rewards, owners, groups, anchors and outcomes of a drawn batch."""
    rewards = [reward for paid, _ in batch for reward in paid]
    episode = [number for number, (paid, _) in enumerate(batch) for _ in paid]
    anchors = [f"{int(10 * reward)}" for reward in rewards]
    return rewards, episode, [group for _, group in batch], anchors, [paid[-1] for paid, _ in batch]


ESTIMATES = {
    "step_grpo": lambda r, e, g, a, o: steps.step_grpo(r, e, g, 0.9, True),
    "gigpo": lambda r, e, g, a, o: steps.gigpo(r, e, g, a),
    "turn_grpo": lambda r, e, g, a, o: steps.turn_grpo(r, o, e, g),
    "prime": lambda r, e, g, a, o: steps.prime(r, o, e, g, 0.9),
    "per_step_grpo": lambda r, e, g, a, o: steps.per_step_grpo(r, e, g),
    "gae": lambda r, e, g, a, o: steps.gae(r, np.linspace(0, 1, len(r)), e),
}


@pytest.mark.parametrize("name", [name for name in ESTIMATES if name != "gae"])
@given(batch=BATCHES, seed=st.integers(0, 99))
def test_the_order_of_episodes_does_not_matter(name, batch, seed) -> None:
    order = np.random.default_rng(seed).permutation(len(batch)).tolist()
    lengths = [len(paid) for paid, _ in batch]
    found = np.split(ESTIMATES[name](*flat(batch)), np.cumsum(lengths)[:-1])
    moved = ESTIMATES[name](*flat([batch[place] for place in order]))
    assert moved == pytest.approx(np.concatenate([found[place] for place in order]), abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATES)
@given(batch=BATCHES)
def test_every_step_has_one_finite_advantage(name, batch) -> None:
    found = ESTIMATES[name](*flat(batch))
    assert found.shape == (sum(len(paid) for paid, _ in batch),)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("name", ["step_grpo", "gigpo", "turn_grpo", "prime", "per_step_grpo"])
@given(batch=st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4), min_size=1, max_size=4))
def test_an_episode_with_nobody_to_be_compared_with_gets_nothing_from_others(name, batch) -> None:
    alone = [(paid, number) for number, paid in enumerate(batch)]
    found = ESTIMATES[name](*flat(alone))
    if name != "gigpo":  # which compares the steps of one episode that share a state
        assert found.tolist() == [0.0] * len(found)


@given(batch=BATCHES, shift=st.sampled_from([-2.0, 0.5]))
def test_a_reward_that_every_last_step_gets_moves_no_outcome_credit(batch, shift) -> None:
    rewards, episode, groups, anchors, outcomes = flat(batch)
    process = [0.0] * len(rewards)
    before = steps.turn_grpo(process, outcomes, episode, groups)
    after = steps.turn_grpo(process, [outcome + shift for outcome in outcomes], episode, groups)
    assert after == pytest.approx(before, abs=1e-9)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=8))
def test_episodes_of_one_step_have_the_credit_of_outcomes(rewards) -> None:
    episode, groups = list(range(len(rewards))), [number % 2 for number in range(len(rewards))]
    expected = dr_grpo(rewards, groups)
    assert steps.step_grpo(rewards, episode, groups) == pytest.approx(expected)
    assert steps.turn_grpo([0.0] * len(rewards), rewards, episode, groups, scale=False) == pytest.approx(
        expected
    )
    assert steps.per_step_grpo(rewards, episode, groups, scale=False) == pytest.approx(expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_no_number_raises_with_its_episode(bad) -> None:
    with pytest.raises(ValueError, match="a step of episode 1 has the reward"):
        steps.reward_to_go([0, bad], [0, 1])
    with pytest.raises(ValueError, match="the reward of episode 1"):
        steps.prime([0, 0], [0, bad], [0, 1], ["a", "a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: steps.reward_to_go([1], [0], gamma=1.5), "gamma must be from 0 to 1, not 1.5"),
        (lambda: steps.gae([1], [1], [0], lam=-1), "lam must be from 0 to 1"),
        (lambda: steps.gae([1, 2], [1], [0, 0]), "do not match 2 steps"),
        (lambda: steps.reward_to_go([1, 2], [0]), "do not match steps of shape"),
        (lambda: steps.reward_to_go([1, 2], [1, 0]), "must stand together"),
        (lambda: steps.reward_to_go([1], [0], after=[]), "do not match 1 episodes"),
        (lambda: steps.gigpo([1], [0], ["a"], []), "0 anchors do not match 1 steps"),
    ],
)
def test_what_does_not_fit_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_an_empty_batch_has_no_advantages() -> None:
    assert steps.reward_to_go([], []).tolist() == steps.step_grpo([], [], []).tolist() == []
