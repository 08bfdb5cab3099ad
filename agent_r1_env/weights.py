"""What each token weighs in the loss, whatever rows and batches it comes in.

A loss is a sum over trained tokens, sum_t w_t f_t. What f_t is, TRL's loss type says; w_t is said here, and
by nothing else: not by how an episode was cut into rows, nor by how rows were cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agent_r1_env.trajectory import Row

UNITS = ("episode", "step", "token")
SUMS = ("dr_grpo", "luspo")
"""Loss types that sum over the tokens of a sequence where the others take their mean."""

Floats = npt.NDArray[np.float64]


def token_weights(
    rows: Sequence[Row], steps: Sequence[Sequence[float]], by: str, loss_type: str
) -> tuple[list[Floats], int]:
    """Weights of the tokens of some rows, to be divided by the number of units in all processes together.

    A unit is an episode, a step or a token. Its trained tokens share a weight of 1 evenly; under a loss of
    `SUMS` each has the weight 1, so that a long unit counts for more, and a unit is a step or an episode.

    Args:
        steps: for each row, the number of each token's step within its episode.
        by: one of `UNITS`.

    Returns:
        For each row one weight a token, 0 where the loss mask is; and the number of units with any token.
    """
    if not rows:
        return [], 0
    lengths = [len(row.loss_mask) for row in rows]
    trained = np.concatenate([row.loss_mask for row in rows]).astype(bool)
    units = np.repeat([row.episode for row in rows], lengths).astype(np.int64)
    if by == "step":
        numbers = np.concatenate(list(steps)).astype(np.int64)
        units = units * (numbers.max() + 1) + numbers
    elif by == "token" and loss_type not in SUMS:
        units = np.arange(len(units))
    _, place, sizes = np.unique(units[trained], return_inverse=True, return_counts=True)
    weights = np.zeros(len(units))
    weights[trained] = 1.0 if loss_type in SUMS else 1.0 / sizes[place]
    return np.split(weights, np.cumsum(lengths)[:-1]), len(sizes)
