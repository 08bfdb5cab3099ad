"""Credit for steps: from the reward of each step to one advantage a step.

Arrays are flat: the steps of all episodes one after the other, with ``episode`` the number of each step's
episode. In what follows r_t is the reward of step t of an episode of T steps, s_t its state (the prompt), and
G_t the discounted reward from step t on.

The examples are over two episodes of one group, of two steps and one::

    rewards = [0, 1, 0]        episode = [0, 0, 1]        groups = ["a", "a"]
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agent_r1_env.advantage import (
    EPSILON,
    Floats,
    Labels,
    centred,
    checked,
    group_deviations,
    members,
    normalised,
    numbered,
)

Groups = Sequence[Any] | npt.NDArray[Any]


def reward_to_go(rewards: Any, episode: Any, gamma: float = 1.0, after: Any = None) -> Floats:
    """The discounted reward from each step on.

    G_t = sum_{k >= t} gamma^(k-t) r_k  (+ gamma^(T-t) V, where ``after`` holds V).

    Example, gamma = 0.5: [0.5, 1, 0].

    Args:
        rewards: (S,) one a step, in order, episode by episode.
        episode: (S,) number of each step's episode; steps of one stand together.
        gamma: discount of one step, in [0, 1].
        after: (N,) value of what follows each episode: 0 where the task was over, an estimate where our
            patience was. By default 0.

    Returns:
        (S,).
    """
    values, owner = _steps(rewards, episode)
    _share("gamma", gamma)
    tail = _of_episodes(after, owner)
    result = np.zeros_like(values)
    for step in reversed(range(values.size)):
        last = step + 1 == values.size or owner[step + 1] != owner[step]
        result[step] = values[step] + gamma * (tail[owner[step]] if last else result[step + 1])
    return result


def gae(
    rewards: Any, values: Any, episode: Any, gamma: float = 1.0, lam: float = 0.95, after: Any = None
) -> Floats:
    """Generalised advantage estimation over steps.

    A_t = sum_{k >= t} (gamma lam)^(k-t) delta_k with delta_t = r_t + gamma V(s_{t+1}) - V(s_t), from
    Schulman et al. (arXiv 1506.02438, equation 16). A step is one whole reply, as in Agent-R1
    (arXiv 2511.14460), so gamma and lam count replies and not tokens.

    Example, with values [0.5, 0.5, 0.25], gamma = 1, lam = 0.5: [0.25, 0.5, -0.25].

    Args:
        rewards, episode, gamma, after: as for `reward_to_go`.
        values: (S,) V(s_t), the critic's estimate at each step's prompt.
        lam: in [0, 1]; 0 trusts the critic, 1 the rewards.

    Returns:
        (S,). Returns for the critic are these plus ``values``.
    """
    paid, owner = _steps(rewards, episode)
    estimates = np.asarray(values, dtype=np.float64)
    if estimates.shape != paid.shape:
        raise ValueError(f"values of shape {estimates.shape} do not match {paid.size} steps")
    _share("gamma", gamma)
    _share("lam", lam)
    tail = _of_episodes(after, owner)
    result = np.zeros_like(paid)
    for step in reversed(range(paid.size)):
        last = step + 1 == paid.size or owner[step + 1] != owner[step]
        following = tail[owner[step]] if last else estimates[step + 1]
        delta = paid[step] + gamma * following - estimates[step]
        result[step] = delta + (0.0 if last else gamma * lam * result[step + 1])
    return result


def ppo(
    rewards: Any,
    values: Any,
    episode: Any,
    gamma: float = 1.0,
    lam: float = 0.95,
    after: Any = None,
    whiten: bool = True,
) -> Floats:
    """`gae`, normalised over all steps of the batch if ``whiten``, as implementations of PPO do.

    Example, with the values of `gae`: [0.218, 0.873, -1.091], to three places.
    """
    found = gae(rewards, values, episode, gamma, lam, after)
    return normalised(found) if whiten else found


def step_grpo(rewards: Any, episode: Any, groups: Groups, gamma: float = 1.0, scale: bool = False) -> Floats:
    """Reward-to-go minus its mean over the group at the same step.

    A_{i,t} = G_{i,t} - mean_j G_{j,t} over the episodes j of the group that have a step t, so that late steps
    are compared with late steps; with ``scale`` over the standard deviation of these.

    Example: at step 0, G is 1 and 0; nobody else has a step 1: [0.5, 0, -0.5].
    """
    returns = reward_to_go(rewards, episode, gamma)
    owner = np.asarray(episode, dtype=np.intp)
    return _compared(returns, _joint(numbered(groups)[owner], _places(owner)), scale)


def gigpo(
    rewards: Any,
    episode: Any,
    groups: Groups,
    anchors: Sequence[Hashable],
    gamma: float = 0.95,
    omega: float = 1.0,
    scale: bool = True,
) -> Floats:
    """Advantage of the episode, plus that of the step among all steps taken from the same state.

    A_{i,t} = A^E_i + omega A^S_{i,t}, from GiGPO (arXiv 2505.10978, section 3): A^E compares the rewards of
    the group's episodes, A^S the discounted rewards G_{i,t} of those steps in the group that share an anchor,
    each minus its mean and, with ``scale``, over its standard deviation.

    Example, gamma = 1, scale = False, anchors ["x", "y", "x"]: A^E is 0.5 and -0.5; "x" has G of 1 and 0, "y"
    one step alone: [1, 0.5, -1].

    Args:
        anchors: (S,) what identifies each step's state, such as its prompt.
        omega: weight of the step's part.
    """
    paid, owner = _steps(rewards, episode)
    labels = numbered(groups)
    totals: Floats = np.bincount(owner, paid, minlength=len(labels)).astype(np.float64)
    of_episode = _compared(totals, labels, scale)
    if len(anchors) != paid.size:
        raise ValueError(f"{len(anchors)} anchors do not match {paid.size} steps")
    shared = _joint(labels[owner], numbered(anchors))
    of_step = _compared(reward_to_go(paid, owner, gamma), shared, scale)
    result: Floats = of_episode[owner] + omega * of_step
    return result


def turn_grpo(
    rewards: Any, outcomes: Any, episode: Any, groups: Groups, alpha: float = 1.0, scale: bool = True
) -> Floats:
    """Advantage of the turn's own reward, plus that of the outcome; the last turn has the outcome's alone.

    A_{i,t} = A^turn_{i,t} + alpha A^O_i for t < T and A_{i,T} = A^O_i, from MT-GRPO (arXiv 2505.11821,
    section 4.2), where both compare within the group: A^turn the rewards of the same turn, A^O the outcomes.

    Example, with outcomes [1, 0], alpha = 1, scale = False, rewards [0.2, 0, 0]: A^O is 0.5 and -0.5; the
    second episode's only turn is its last, so turn 0 has nobody to be compared with: [0.5, 0.5, -0.5].

    Args:
        rewards: (S,) of each step, without the outcome.
        outcomes: (N,) of each episode.
        alpha: weight of the outcome before the last turn.
    """
    paid, owner = _steps(rewards, episode)
    labels = numbered(groups)
    of_outcome = _compared(_outcomes(outcomes, labels), labels, scale)[owner]
    earlier = np.flatnonzero(np.append(owner[1:] == owner[:-1], False)) if owner.size else owner
    result: Floats = of_outcome.copy()
    joint = _joint(labels[owner][earlier], _places(owner)[earlier])
    result[earlier] = _compared(paid[earlier], joint, scale) + alpha * of_outcome[earlier]
    return result


def prime(rewards: Any, outcomes: Any, episode: Any, groups: Groups, gamma: float = 1.0) -> Floats:
    """Process and outcome, each compared with the rest of its group.

    A_{i,t} = sum_{k >= t} gamma^(k-t) [p_{i,k} - mean_{j != i} mean_k p_{j,k}] + [o_i - mean_{j != i} o_j],
    from PRIME (arXiv 2502.01456, section 3.2), with p the process rewards of the steps and o the outcomes.
    Both baselines leave the episode itself out; that of the process is the mean of the others' mean steps.

    Example, with outcomes [1, 0], rewards [0.5, 0.5, 0.25]: the process is 0.25, 0.25 and -0.25, summed from
    behind 0.5, 0.25, -0.25; outcome 1 and -1: [1.5, 1.25, -1.25].
    """
    paid, owner = _steps(rewards, episode)
    labels = numbered(groups)
    counts = np.bincount(owner, minlength=len(labels))
    means = np.bincount(owner, paid, minlength=len(labels)) / np.maximum(1, counts)
    others = _mean_of_others(means, labels)
    alone = np.bincount(labels)[labels] == 1
    process = np.where(alone[owner], 0.0, paid - others[owner])
    final = _outcomes(outcomes, labels)
    outcome = np.where(alone, 0.0, final - _mean_of_others(final, labels))
    result: Floats = reward_to_go(process, owner, gamma) + outcome[owner]
    return result


def per_step_grpo(rewards: Any, episode: Any, groups: Groups, scale: bool = True) -> Floats:
    """GRPO's advantage with a baseline over steps: every step counts, so a long episode counts more.

    A_i = (R_i - sum_j T_j R_j / sum_j T_j) / (std + 1e-4) over the steps of the group, by choice only.

    Example, scale = False: the mean over three steps is 2/3: [1/3, 1/3, -2/3].
    """
    paid, owner = _steps(rewards, episode)
    labels = numbered(groups)
    totals: Floats = np.bincount(owner, paid, minlength=len(labels)).astype(np.float64)
    return _compared(totals[owner], labels[owner], scale)


# -- what the estimators share


def _steps(rewards: Any, episode: Any) -> tuple[Floats, Labels]:
    """Rewards and owners of the steps.

    Raises:
        ValueError: shapes differ, the steps of an episode do not stand together, or a reward is not finite.
    """
    values, owner = np.asarray(rewards, dtype=np.float64), np.asarray(episode, dtype=np.intp)
    if values.ndim != 1 or values.shape != owner.shape:
        raise ValueError(f"rewards of shape {values.shape} do not match steps of shape {owner.shape}")
    if np.any(np.diff(owner) < 0):
        raise ValueError("the steps of an episode must stand together, episodes in order")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"a step of episode {int(owner[bad[0]])} has the reward {float(values[bad[0]])!r}; "
            "it must be finite"
        )
    return values, owner


def _outcomes(outcomes: Any, labels: Labels) -> Floats:
    return checked(outcomes, labels)[0]


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be from 0 to 1, not {value!r}")


def _of_episodes(values: Any, owner: Labels) -> Floats:
    count = int(owner.max(initial=-1)) + 1
    if values is None:
        return np.zeros(count)
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or found.size < count:
        raise ValueError(f"values of shape {found.shape} do not match {count} episodes")
    return found


def _places(owner: Labels) -> Labels:
    """The number of each step within its episode, from 0."""
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if owner.size else owner
    lengths = np.diff(np.append(starts, owner.size))
    return np.arange(owner.size) - np.repeat(starts, lengths)


def _joint(one: Labels, two: Labels) -> Labels:
    """Labels of those that agree in both."""
    return numbered(list(zip(one.tolist(), two.tolist(), strict=True)))


def _compared(values: Floats, labels: Labels, scale: bool) -> Floats:
    """Each value minus the mean of those with its label, and over their deviation; 0 for one alone."""
    result = centred(values, labels)
    return result / (group_deviations(values, labels)[labels] + EPSILON) if scale and labels.size else result


def _mean_of_others(values: Floats, labels: Labels) -> Floats:
    result = np.zeros_like(values)
    for member in members(labels):
        if member.size > 1:
            result[member] = (values[member].sum() - values[member]) / (member.size - 1)
    return result
