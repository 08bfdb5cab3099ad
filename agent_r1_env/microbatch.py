"""A batch of rows cut into parts that fit in memory, with the same gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

Batch = Mapping[str, Any]
_PROMPT = ("prompt_ids", "prompt_mask")


def parts(batch: Batch, at_once: int) -> Iterator[dict[str, Any]]:
    """Parts of at most ``at_once`` rows, shortest rows first, without the columns that only pad."""
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    for chosen in lengths.argsort().split(at_once):
        yield _trimmed({name: _rows(value, chosen, len(lengths)) for name, value in batch.items()})


def share(loss_type: str, part: Batch, whole: Batch) -> Any:
    """What the loss of a part counts for in that of the whole, where TRL averages over rows or tokens."""
    if loss_type in ("dr_grpo", "grpo"):
        return len(part["completion_ids"]) / len(whole["completion_ids"])
    if loss_type == "bnpo":
        tokens = [(side["completion_mask"] * side["tool_mask"]).sum().clamp(min=1) for side in (part, whole)]
        return tokens[0] / tokens[1]
    return 1.0  # a sum over the tokens of all processes already


def log_probs(
    compute: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    keep: int,
    at_once: int,
) -> torch.Tensor:
    """Log-probs of the last ``keep`` tokens of each row, a few rows of similar length at a time.

    Args:
        compute: does it for some rows, from their ids, their mask and the number of tokens to keep.

    Returns:
        (rows, keep); 0 where a row is padding.
    """
    prompts, completions = attention_mask[:, :-keep], attention_mask[:, -keep:]
    result = torch.zeros(completions.shape, device=input_ids.device)
    for chosen in torch.split(attention_mask.sum(1).argsort(), at_once):
        first = int(prompts[chosen].any(0).int().argmax())
        kept = max(1, int(completions[chosen].sum(1).max()))
        columns = slice(first, input_ids.size(1) - keep + kept)
        result[chosen, :kept] = compute(input_ids[chosen, columns], attention_mask[chosen, columns], kept)
    return result


def _rows(value: Any, chosen: torch.Tensor, count: int) -> Any:
    per_row = torch.is_tensor(value) and value.ndim > 0 and len(value) == count
    return value[chosen] if per_row else value


def _trimmed(part: dict[str, Any]) -> dict[str, Any]:
    """Prompts are padded on the left, completions and all that goes with them on the right."""
    first = int(part["prompt_mask"].any(0).int().argmax())
    length, last = part["completion_ids"].size(1), int(part["completion_mask"].sum(1).max())
    trimmed = dict(part)
    for name, value in part.items():
        if name in _PROMPT:
            trimmed[name] = value[:, first:]
        elif torch.is_tensor(value) and value.ndim == 2 and value.size(1) == length:
            trimmed[name] = value[:, :last]
    return trimmed
