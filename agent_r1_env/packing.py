"""Rows as plain arrays: a padded batch, micro-batches of a bounded number of tokens, and packed sequences.

Shapes: R rows, T tokens of the longest one, L tokens of a packed sequence. A row here is its prompt and its
completion in one. Everything is NumPy, so that any trainer can take it; ``tensors`` hands it to torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agent_r1_env.trajectory import Row

Ints = npt.NDArray[np.int32]
Masks = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]
Side = Literal["left", "right"]


class _Tensors:
    """What padded and packed rows share."""

    def tensors(self, device: Any = None) -> dict[str, Any]:
        """All arrays as torch tensors by name; ids, masks and positions as int64, as models want them."""
        import torch

        arrays = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        made = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return {
            name: (tensor if tensor.is_floating_point() else tensor.long()).to(device)
            for name, tensor in made.items()
        }


@dataclass(frozen=True)
class Padded(_Tensors):
    """Rows filled up to the length of the longest.

    Attributes:
        input_ids: (R, T) the padding token where ``attention_mask`` is 0.
        attention_mask: (R, T) 1 = a token of the row.
        loss_mask: (R, T) 1 = a token that is trained on. The log-prob of the token at t comes from t - 1.
        advantage_mask: (R, T) 1 = a token that an advantage was given to.
        advantages: (R, T) 0 where the advantage mask is 0.
        logprobs: (R, T) of the sampled ids when they were sampled, 0 elsewhere; NaN where nobody knows them.
        position_ids: (R, T) counts the tokens of the row from 0, whichever side is padded; 0 in padding.
        episode: (R,) the episode that the row comes from.
    """

    input_ids: Ints
    attention_mask: Masks
    loss_mask: Masks
    advantage_mask: Masks
    advantages: Floats
    logprobs: Floats
    position_ids: Ints
    episode: Ints


@dataclass(frozen=True)
class Packed(_Tensors):
    """Rows one behind the other in a single sequence, none of which may attend to another.

    Attributes:
        input_ids, loss_mask, advantage_mask, advantages, logprobs: (L,) as in `Padded`, without padding.
        position_ids: (L,) begins at 0 in each row.
        cu_seqlens: (R + 1,) where the rows begin, and L; what FlashAttention's variable-length functions and
            ``cu_seq_lens_q`` of transformers take. For other attention see ``block_mask``.
        row: (R,) the place of each row among those that were packed.
        episode: (R,) the episode that the row comes from.
    """

    input_ids: Ints
    loss_mask: Masks
    advantage_mask: Masks
    advantages: Floats
    logprobs: Floats
    position_ids: Ints
    cu_seqlens: Ints
    row: Ints
    episode: Ints

    @property
    def max_seqlen(self) -> int:
        """Length of the longest row, which the variable-length functions ask for, too."""
        return int(np.diff(self.cu_seqlens).max())

    def block_mask(self) -> npt.NDArray[np.bool_]:
        """(1, 1, L, L) True where a token may look: back, within its own row.

        For ``attention_mask`` of a model with "sdpa" attention. It costs L * L bytes.
        """
        row = np.repeat(np.arange(len(self.row)), np.diff(self.cu_seqlens))
        seen: npt.NDArray[np.bool_] = np.tril(row[:, None] == row[None, :])
        return seen[None, None]

    def split(self, values: Any) -> list[Any]:
        """(L, ...) values of the tokens, row by row in the order of ``row``."""
        return [values[start:stop] for start, stop in pairwise(self.cu_seqlens.tolist())]


def padded(rows: Sequence[Row], pad_token: int, side: Side = "right") -> Padded:
    """Fill rows up to the longest.

    Args:
        side: "right" for training, "left" for models that go on writing.

    Raises:
        ValueError: there are no rows, or no such side.
    """
    if side not in ("left", "right"):
        raise ValueError(f"padding is on the 'left' or on the 'right', not {side!r}")
    flat = _flat(rows)
    lengths = np.diff(flat.cu_seqlens)
    width = int(lengths.max())
    column = np.arange(width, dtype=np.int32)
    first = (width - lengths if side == "left" else np.zeros_like(lengths))[:, None]
    held = (column >= first) & (column < first + lengths[:, None])

    def spread(values: npt.NDArray[Any], empty: float = 0) -> npt.NDArray[Any]:
        table = np.full(held.shape, empty, dtype=values.dtype)
        table[held] = values
        return table

    return Padded(
        spread(flat.input_ids, pad_token),
        held.astype(np.int8),
        spread(flat.loss_mask),
        spread(flat.advantage_mask),
        spread(flat.advantages),
        spread(flat.logprobs),
        spread(flat.position_ids),
        flat.episode,
    )


def padded_parts(parts: Sequence[Sequence[int]], pad_token: int, side: Side) -> Ints:
    """(R, T) ids of prompts alone, or of completions alone, filled up on one side."""
    table = np.full((len(parts), max(map(len, parts), default=0)), pad_token, dtype=np.int32)
    for line, part in zip(table, parts, strict=True):
        line[len(line) - len(part) if side == "left" else 0 :][: len(part)] = part
    return table


def packed(rows: Sequence[Row], tokens: int) -> list[Packed]:
    """Pack rows into as few sequences of at most ``tokens`` tokens as the longest-first rule finds.

    A row that is longer by itself gets a sequence of its own: see `overlong` for limits.

    Raises:
        ValueError: there are no rows, or a row has no prompt. Its first token would be predicted by the row
            before it.
    """
    if not all(row.prompt_ids for row in rows):
        raise ValueError(
            "a row without a prompt cannot be packed: the row before would predict its first token"
        )
    return [_flat([rows[place] for place in places], places) for places in bins(lengths(rows), tokens)]


def lengths(rows: Iterable[Row]) -> list[int]:
    """Tokens of each row, prompt and completion together."""
    return [len(row.prompt_ids) + len(row.completion_ids) for row in rows]


def micro_batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Places of rows that go through a model together, the shortest rows first.

    Each batch has at most ``tokens`` tokens, padding included; a row that is longer is a batch of its own.

    Raises:
        ValueError: fewer than 1 token.
    """
    _budget(tokens)
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
        if batches and (len(batches[-1]) + 1) * lengths[place] <= tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


def bins(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Places of rows that share a sequence: the longest first, each where the least room is left for it.

    Raises:
        ValueError: fewer than 1 token.
    """
    _budget(tokens)
    found: list[list[int]] = []
    room: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        fitting = [number for number, left in enumerate(room) if left >= lengths[place]]
        if fitting:
            number = min(fitting, key=room.__getitem__)
            found[number].append(place)
            room[number] -= lengths[place]
        else:
            found.append([place])
            room.append(tokens - lengths[place])
    return found


def _budget(tokens: int) -> None:
    if tokens < 1:
        raise ValueError(f"a budget is at least 1 token, not {tokens}")


def _flat(rows: Sequence[Row], places: Sequence[int] | None = None) -> Packed:
    if not rows:
        raise ValueError("there are no rows")
    sizes = np.array(lengths(rows), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    total = int(starts[-1])
    ids = np.empty(total, np.int32)
    loss, credit = np.zeros(total, np.int8), np.zeros(total, np.int8)
    advantages, logprobs = np.zeros(total, np.float32), np.zeros(total, np.float32)
    for row, start, stop in zip(rows, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        begin = start + len(row.prompt_ids)
        ids[start:begin], ids[begin:stop] = row.prompt_ids, row.completion_ids
        loss[begin:stop], credit[begin:stop] = row.loss_mask, row.advantage_mask
        advantages[begin:stop], logprobs[begin:stop] = row.advantages, row.logprobs
    return Packed(
        ids,
        loss,
        credit,
        advantages,
        logprobs,
        np.arange(total, dtype=np.int32) - np.repeat(starts[:-1], sizes),
        starts,
        np.array(range(len(rows)) if places is None else places, dtype=np.int32),
        np.array([row.episode for row in rows], dtype=np.int32),
    )
