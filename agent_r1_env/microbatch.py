"""A batch of rows cut into parts that fit in memory, with the same gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

Batch = Mapping[str, Any]
_PROMPT = ("prompt_ids", "prompt_mask")


def parts(batch: Batch, at_once: int) -> Iterator[dict[str, Any]]:
    """Parts of at most ``at_once`` rows, shortest rows first, without the columns that only pad."""
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    for chosen in lengths.argsort().split(at_once):
        yield _trimmed({name: _rows(value, chosen, len(lengths)) for name, value in batch.items()})


def trl_weights(loss_type: str, part: Batch, longest: int, accumulated: float, total: float) -> torch.Tensor:
    """The weight that TRL's loss gives to each trained token of a row, (B, 1).

    Args:
        longest: TRL's ``max_completion_length``.
        accumulated: micro-batches in one update of the policy; 1 in evaluation.
        total: tokens that TRL divides by where it does so over all micro-batches.
    """
    tokens = trained(part).sum(1, keepdim=True).float()
    rows = torch.full_like(tokens, len(tokens))
    divisors = {
        "bnpo": tokens.sum().clamp(min=1).expand_as(rows) * accumulated,
        "dr_grpo": rows * longest * accumulated,
        "grpo": rows * tokens.clamp(min=1) * accumulated,
        "luspo": rows * accumulated,
        "sapo": rows * tokens.clamp(min=1) * accumulated,
    }
    return 1.0 / divisors.get(loss_type, torch.full_like(tokens, total))


class TokenFactor:
    """A factor that differs by token, where TRL's loss has one number for all, such as ``beta``."""

    def __init__(self, number: float, factors: torch.Tensor) -> None:
        """A number times (B, T) factors."""
        self._number, self._factors = number, factors

    def __ne__(self, other: object) -> bool:
        return self._number != other

    def __mul__(self, values: torch.Tensor) -> torch.Tensor:
        return self._number * self._factors * values


def combine(metrics: dict[str, list[float]], known: Mapping[str, int], tokens: Sequence[float]) -> None:
    """Make one value of those that the parts of a batch logged.

    Args:
        metrics: values by name, changed in place.
        known: number of values by name before the first part.
        tokens: trained tokens of each part, which its means weigh by; a part without any says nothing.
    """
    for name, values in metrics.items():
        start = known.get(name, 0)
        said = [(value, n) for value, n in zip(values[start:], tokens, strict=False) if n and value == value]
        if len(values) - start == len(tokens):
            values[start:] = [_combined(name, said) if said else math.nan]


def _combined(name: str, said: Sequence[tuple[float, float]]) -> float:
    for ending, chosen in (("min", min), ("max", max)):
        if name.endswith(ending):
            return chosen(value for value, _ in said)
    return sum(value * n for value, n in said) / sum(n for _, n in said)


def trained(part: Batch) -> torch.Tensor:
    """(B, T), 1 where the loss is."""
    mask: torch.Tensor = part["completion_mask"] * part["tool_mask"]
    return mask


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
        found = compute(input_ids[chosen, columns], attention_mask[chosen, columns], kept)
        result = result.to(found.dtype)
        result[chosen, :kept] = found
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
