"""Credit for outcomes: from the reward of each episode to one advantage an episode.

An estimator sees each episode once, however many steps or rows it has, so a long episode moves no baseline.
In what follows R_i is the reward of episode i, and G the number of episodes in its group, all of one task.

The examples are over the same four episodes of two groups::

    rewards = [1, 0, 3, 1]        groups = ["a", "a", "b", "b"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agent_r1_env.errors import unknown_name

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
EPSILON = 1e-4  # TRL's, so that the numbers agree
_SCALES = ("group", "batch", "none")


def grpo(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any], scale: str | bool = True) -> Floats:
    """Reward minus the mean of its group, over the group's standard deviation.

    A_i = (R_i - mean_G R) / (std_G R + 1e-4), from DeepSeekMath (arXiv 2402.03300, section 4.1.2). The
    deviation is that of a sample (G - 1 in the denominator), as in TRL.

    Example: [0.707, -0.707, 0.707, -0.707], to three places.

    Args:
        rewards: (N,) one an episode.
        groups: (N,) labels; episodes with the same label are compared, wherever they stand.
        scale: True or "group" divides by the group's deviation, "batch" by that of all rewards, False or
            "none" by nothing.

    Returns:
        (N,) advantages; exactly 0 for a group of one and for a group in which all rewards are equal.

    Raises:
        ValueError: shapes differ, or a reward is NaN or infinite (the message names the episode).
        UnknownName: no such scale.
    """
    values, labels = checked(rewards, groups)
    mode = {True: "group", False: "none"}.get(scale, scale) if isinstance(scale, bool) else scale
    if mode not in _SCALES:
        raise unknown_name("scale", str(mode), _SCALES)
    advantages = centred(values, labels)
    if mode == "none":
        return advantages
    if mode == "batch":
        return advantages / (deviation(values) + EPSILON)
    return advantages / (group_deviations(values, labels)[labels] + EPSILON)


def dr_grpo(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any]) -> Floats:
    """Reward minus the mean of its group.

    A_i = R_i - mean_G R, from Dr. GRPO (arXiv 2503.20783, section 3.2), which leaves the deviation out
    because it makes very easy and very hard tasks weigh more. Its other half, a loss over tokens with a
    constant divisor, is TRL's ``loss_type: dr_grpo``.

    Example: [0.5, -0.5, 1, -1].
    """
    return centred(*checked(rewards, groups))


def rloo(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any]) -> Floats:
    """Reward minus the mean of the others in its group.

    A_i = R_i - 1/(G-1) sum_{j != i} R_j = G/(G-1) (R_i - mean_G R), from Ahmadian et al.
    (arXiv 2402.14740, section 2.3). The baseline does not depend on R_i, so the gradient is unbiased.

    Example: [1, -1, 2, -2].
    """
    values, labels = checked(rewards, groups)
    sizes = np.bincount(labels)[labels] if values.size else np.zeros(0)
    result: Floats = centred(values, labels) * sizes / np.maximum(1, sizes - 1)
    return result


def reinforce_plus_plus(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any]) -> Floats:
    """Reward, normalised over the whole batch.

    A_i = (R_i - mean R) / (std R + 1e-4) over all episodes of the batch, from REINFORCE++
    (arXiv 2501.03262, section 3). Its penalty on the KL divergence is TRL's ``beta``. Groups play no part.

    Example: [-0.199, -0.993, 1.391, -0.199], to three places.
    """
    values, _ = checked(rewards, groups)
    return normalised(values)


def reinforce_plus_plus_baseline(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any]) -> Floats:
    """Reward minus the mean of its group, normalised over the whole batch.

    A_i = C_i / (std C + 1e-4) with C_i = R_i - mean_G R, from the form with a baseline in REINFORCE++
    (arXiv 2501.03262, section 3). The mean of C is 0 where every group has one.

    Example: [0.548, -0.548, 1.095, -1.095], to three places.
    """
    return normalised(centred(*checked(rewards, groups)))


def remax(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any], greedy: Any) -> Floats:
    """Reward minus that of a greedy episode of the same task.

    A_i = R_i - R(greedy), from ReMax (arXiv 2310.10505, section 4).

    Example, with greedy rewards [1, 1, 0, 0]: [0, -1, 3, 1].

    Args:
        greedy: (N,) the reward of the greedy episode of each episode's task.
    """
    values, _ = checked(rewards, groups)
    baseline = np.asarray(greedy, dtype=np.float64)
    if baseline.shape != values.shape:
        raise ValueError(f"greedy rewards of shape {baseline.shape} do not match {values.size} episodes")
    _finite(baseline, "greedy reward")
    return values - baseline


# -- what the estimators share


def checked(rewards: Any, groups: Any) -> tuple[Floats, Labels]:
    """Rewards as floats and groups as 0, 1, 2, ...; labels may be anything hashable.

    Raises:
        ValueError: shapes differ, or a reward is NaN or infinite (the message names the episode).
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or values.size != len(groups):
        raise ValueError(f"rewards of shape {values.shape} do not match {len(groups)} groups")
    _finite(values, "reward")
    return values, numbered(groups)


def numbered(labels: Any) -> Labels:
    """Labels as 0, 1, 2, ... in the order in which they first occur."""
    listed = labels.tolist() if isinstance(labels, np.ndarray) else labels
    number: dict[Any, int] = {}
    return np.asarray([number.setdefault(label, len(number)) for label in listed], dtype=np.intp)


def centred(values: Floats, labels: Labels) -> Floats:
    """Each value minus the mean of its group; exactly 0 where all values of a group are equal."""
    result = np.zeros_like(values)
    for member in members(labels):
        # Compared by value: the mean of equal floats may differ from them in the last bit.
        if np.ptp(values[member]) > 0:
            result[member] = values[member] - values[member].mean()
    return result


def group_deviations(values: Floats, labels: Labels) -> Floats:
    """The standard deviation of a sample, by group; 0 for a group of one."""
    return np.asarray([deviation(values[member]) for member in members(labels)])


def normalised(values: Floats) -> Floats:
    """Values minus their mean, over their standard deviation; exactly 0 where all are equal."""
    return centred(values, np.zeros(values.shape, dtype=np.intp)) / (deviation(values) + EPSILON)


def deviation(values: Floats) -> float:
    """The standard deviation of a sample; 0 for one value and for equal ones."""
    return float(np.std(values, ddof=1)) if values.size > 1 and np.ptp(values) > 0 else 0.0


def members(labels: Labels) -> list[npt.NDArray[np.intp]]:
    """The places of each group's members, group by group."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if labels.size else []


def _finite(values: Floats, what: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        first = int(bad[0])
        raise ValueError(f"the {what} of episode {first} is {float(values[first])!r}; it must be finite")
