"""Credit by name: every estimator gets its part of a batch, and nothing that was paid is lost."""

from __future__ import annotations

import numpy as np
import pytest

from agent_r1_env import advantage, credit, step_advantage
from agent_r1_env.batch import credit_batch, facts
from agent_r1_env.credit import ESTIMATORS, CreditBatch
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import UnknownName


def batch(**more) -> CreditBatch:
    """Three episodes of two, one and no steps; the last two were ended from outside."""
    return CreditBatch(
        rewards_S=np.asarray([0.5, 1.0, 0.0]),
        episode_S=np.asarray([0, 0, 1]),
        groups_N=["a", "a", "a"],
        outside_N=np.asarray([0.0, -1.0, 3.0]),
        **more,
    )


def test_no_reward_is_lost_and_an_episode_without_a_step_moves_the_baseline() -> None:
    made = batch()
    assert made.totals_N.tolist() == [1.5, -1.0, 3.0]
    assert made.paid_S.tolist() == [0.5, 1.0, -1.0]
    assert credit.get("dr_grpo")(made) == pytest.approx([1.5 - 3.5 / 3] * 2 + [-1 - 3.5 / 3])


def test_what_is_paid_for_the_outcome_is_taken_out_of_the_process() -> None:
    made = batch(outcomes_N=np.asarray([0.75, -1.0, 3.0]))
    assert made.process_S.tolist() == [0.5, 0.25, 0.0]
    assert made.final_N.tolist() == [0.75, -1.0, 3.0]
    assert batch().process_S.tolist() == [0.0, 0.0, 0.0]
    assert batch().final_N.tolist() == [1.5, -1.0, 3.0]


FULL = batch(
    values_S=np.asarray([0.1, 0.2, 0.3]),
    after_N=np.asarray([0.0, 0.5, 0.0]),
    anchors_S=["x", "y", "x"],
    greedy_N=np.asarray([1.0, 1.0, 1.0]),
    outcomes_N=np.asarray([1.0, 0.0, 3.0]),
)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_gives_one_advantage_a_step(name) -> None:
    found = credit.get(name)(FULL)
    assert found.shape == (3,) and np.all(np.isfinite(found))


def test_each_gets_its_part_of_the_batch() -> None:
    totals, groups = FULL.totals_N, FULL.groups_N
    assert (
        credit.get("remax")(FULL).tolist()
        == advantage.remax(totals, groups, FULL.greedy_N)[[0, 0, 1]].tolist()
    )
    assert credit.get("ppo", {"lam": 0.5, "whiten": False})(FULL).tolist() == pytest.approx(
        step_advantage.gae(FULL.paid_S, FULL.values_S, FULL.episode_S, 1.0, 0.5, FULL.after_N).tolist()
    )
    assert credit.get("gigpo", {"gamma": 0.5})(FULL).tolist() == pytest.approx(
        step_advantage.gigpo(FULL.paid_S, FULL.episode_S, groups, FULL.anchors_S, 0.5).tolist()
    )
    assert credit.get("prime")(FULL).tolist() == pytest.approx(
        step_advantage.prime(FULL.process_S, FULL.final_N, FULL.episode_S, groups).tolist()
    )


def test_a_batch_without_a_critic_cannot_be_given_to_ppo() -> None:
    with pytest.raises(ValueError, match="ppo needs values_S"):
        credit.get("ppo")(batch())
    with pytest.raises(ValueError, match="remax needs greedy_N"):
        credit.get("remax")(batch())


def test_unknown_names_and_options_raise_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no algorithm named 'grop'; did you mean 'grpo'"):
        credit.get("grop")
    with pytest.raises(UnknownName, match="gigpo takes no option 'gama'; did you mean 'gamma'"):
        credit.get("gigpo", {"gama": 1})
    with pytest.raises(UnknownName, match="rloo takes no option 'gamma'"):
        credit.get("rloo", {"gamma": 1})


def test_a_batch_is_made_of_the_facts_of_episodes() -> None:
    one = Episode("e", "t", 0, 7, (Step((1, 2), (3,), (0.0,), 0.5), Step((1, 2, 3), (4,), (0.0,), 1.0)))
    two = Episode("e", "t", 0, 7, (Step((1, 2), (5,), (0.0,), 0.0),), truncation_reward=-1.0)
    three = Episode("e", "t", 0, 8, (), truncation_reward=3.0)
    made = credit_batch([facts(one), facts(two), facts(three)])
    assert made.rewards_S.tolist() == [0.5, 1.0, 0.0]
    assert made.episode_S.tolist() == [0, 0, 1]
    assert list(made.groups_N) == [7, 7, 8]
    assert made.totals_N.tolist() == [1.5, -1.0, 3.0]
    assert made.anchors_S is not None
    assert made.anchors_S[0] == made.anchors_S[2] != made.anchors_S[1]
