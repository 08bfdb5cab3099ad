"""Supervised training of the small model: batches of one size, Muon for the matrices, AdamW for the rest."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from lessons import Segments
from tokenizers import Tokenizer

BATCH_TOKENS = 7680
LENGTHS = (64, 96, 128, 160, 192, 240, 256, 320, 384, 480, 512, 640, 768)
SCORED = 2048
OTHERS_WEIGHT = 0.1

Sample = tuple[list[int], list[bool]]
Batch = tuple[torch.Tensor, torch.Tensor]


def plain_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: None,
    scaling: float,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention in three plain products: on the CPU twice as fast as the fused one for short texts."""
    batch, heads, length, _ = query.shape
    future = torch.full((length, length), float("-inf")).triu(1).to(value.dtype).expand(batch * heads, -1, -1)
    query, key, value = (part.flatten(0, 1).to(value.dtype) for part in (query, key, value))
    weights = torch.baddbmm(future, query, key.transpose(1, 2), alpha=scaling).softmax(-1, dtype=value.dtype)
    return torch.bmm(weights, value).view(batch, heads, length, -1).transpose(1, 2), None


def encode(tokenizer: Tokenizer, segments: Segments) -> Sample:
    """Token ids of a text, each with whether it is to be learned."""
    ids: list[int] = []
    learned: list[bool] = []
    for piece, (_, learn) in zip(
        tokenizer.encode_batch([text for text, _ in segments]), segments, strict=True
    ):
        ids += piece.ids
        learned += [learn] * len(piece.ids)
    return ids[: LENGTHS[-1]], learned[: LENGTHS[-1]]


def batches(draw: Callable[[], Sample], rng: random.Random) -> Iterator[Batch]:
    """Endless batches of samples of like length, padded with token 0.

    Every batch has the same number of tokens, since oneDNN compiles its kernels anew for each new size.
    """
    waiting: dict[int, list[Sample]] = {length: [] for length in LENGTHS}
    ready: list[Batch] = []
    while True:
        sample = draw()
        length = next(length for length in LENGTHS if len(sample[0]) <= length)
        waiting[length].append(sample)
        if len(waiting[length]) == BATCH_TOKENS // length:
            ready.append(_tensors(waiting[length], length))
            waiting[length] = []
        if len(ready) >= 8:
            yield ready.pop(rng.randrange(len(ready)))


def _tensors(samples: list[Sample], length: int) -> Batch:
    ids = torch.zeros(len(samples), length, dtype=torch.long)
    learned = torch.zeros(len(samples), length, dtype=torch.bool)
    for row, (tokens, marks) in enumerate(samples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        learned[row, : len(marks)] = torch.tensor(marks)
    return ids, learned


def scores(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cross-entropy, whether the likeliest token is right, and whether it is learned, at chosen positions.

    Positions to learn come first and others fill up a fixed number, which keeps the costly last layer small.
    """
    ids, learned = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1)
        targets, wanted = ids[:, 1:].flatten(), learned[:, 1:].flatten()
        order = wanted.float() + torch.rand(len(targets)) * (targets != 0)
        chosen = order.topk(SCORED).indices
        logits = torch.nn.functional.linear(hidden[chosen], model.lm_head.weight).float()
    targets, wanted = targets[chosen], wanted[chosen]
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none", ignore_index=0)
    return losses, logits.argmax(-1) == targets, wanted


class Learner:
    """Model and optimisers, and the loop that feeds them for a number of minutes.

    Args:
        model: a causal language model of transformers.
        matrices: peak learning rate of Muon, which takes the matrices between embedding and output.
        others: peak learning rate of AdamW, which takes the rest.
    """

    def __init__(self, model: Any, matrices: float, others: float) -> None:
        self.model = model
        transformers.AttentionInterface.register("plain", plain_attention)
        model.set_attn_implementation("plain")
        inner: list[torch.Tensor] = []
        outer: list[torch.Tensor] = []
        for name, weight in model.named_parameters():
            (inner if weight.ndim == 2 and "embed" not in name else outer).append(weight)
        muon = torch.optim.Muon(inner, lr=matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
        adamw = torch.optim.AdamW(outer, lr=others, betas=(0.9, 0.98), weight_decay=0.0)
        self.optimisers: list[tuple[torch.optim.Optimizer, float]] = [(muon, matrices), (adamw, others)]

    def train(self, feed: Iterator[Batch], minutes: float, check: Callable[[], str], name: str) -> None:
        """Learn until the time is over; the rates rise over 40 steps and fall over the last third.

        Args:
            feed: the batches.
            minutes: of wall-clock time.
            check: asked now and then, for the line that tells how it goes.
            name: what that line begins with.
        """
        began, step, right = time.monotonic(), 0, 0.0
        while (spent := (time.monotonic() - began) / 60 / minutes) < 1:
            self._set_rates(min(1, (step + 1) / 40, max(0.03, (1 - spent) * 3)))
            right = 0.97 * right + 0.03 * self._step(next(feed))
            step += 1
            if step % 100 == 0:
                seconds = time.monotonic() - began
                speed = BATCH_TOKENS * step / seconds
                print(
                    f"{name} step {step}, {seconds:.0f} s, {speed:.0f} tokens/s, "
                    f"right tokens {right / (1 - 0.97**step):.4f}, {check()}",
                    flush=True,
                )

    def _set_rates(self, share: float) -> None:
        for optimiser, peak in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = peak * share

    def _step(self, batch: Batch) -> float:
        losses, right, wanted = scores(self.model, batch)
        weights = torch.where(wanted, 1.0, OTHERS_WEIGHT)
        torch.autograd.backward((losses * weights).sum() / weights.sum())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser, _ in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        return float(right[wanted].float().mean())
