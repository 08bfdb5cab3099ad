"""Credit: from the rewards of a batch of episodes to one advantage an episode.

An estimator sees each episode once, however many steps or rows it has, so a long episode moves no baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agent_r1_env.errors import look_up, unknown_name

Floats = npt.NDArray[np.float64]
Estimator = Callable[..., Floats]
EPSILON = 1e-4  # TRL's, so that the numbers agree
_SCALES = ("group", "batch", "none")


def grpo(rewards: Any, groups: Sequence[Any] | npt.NDArray[Any], scale: str | bool = True) -> Floats:
    """Reward minus the mean of its group, over the group's standard deviation.

    The deviation is that of a sample (N - 1 in the denominator), as in TRL: one success among three gives
    1.155, -0.577, -0.577.

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
    values, labels = _checked(rewards, groups)
    mode = {True: "group", False: "none"}.get(scale, scale) if isinstance(scale, bool) else scale
    if mode not in _SCALES:
        raise unknown_name("scale", str(mode), _SCALES)
    advantages = np.zeros_like(values)
    for label in range(int(labels.max(initial=-1)) + 1):
        member = labels == label
        # Compared by value: the mean of equal floats may differ from them in the last bit.
        if np.ptp(values[member]) > 0:
            centred = values[member] - values[member].mean()
            advantages[member] = centred / _spread(values[member], values, str(mode))
    return advantages


def _spread(group: Floats, batch: Floats, mode: str) -> float:
    """What a group's centred rewards are divided by."""
    if mode == "none":
        return 1.0
    return float(np.std(group if mode == "group" else batch, ddof=1)) + EPSILON


def _checked(rewards: Any, groups: Any) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Rewards as floats and groups as 0, 1, 2, ...; labels may be anything hashable."""
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or values.size != len(groups):
        raise ValueError(f"rewards of shape {values.shape} do not match {len(groups)} groups")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        first = int(bad[0])
        raise ValueError(f"the reward of episode {first} is {float(values[first])!r}; it must be finite")
    number: dict[Any, int] = {}
    labels = [number.setdefault(label, len(number)) for label in np.asarray(groups).tolist()]
    return values, np.asarray(labels, dtype=np.intp)


ESTIMATORS: dict[str, Estimator] = {"grpo": grpo}


def get(name: str) -> Estimator:
    """The estimator of that name.

    Raises:
        UnknownName: there is none; the message has the nearest name.
    """
    return look_up("advantage estimator", name, ESTIMATORS)
