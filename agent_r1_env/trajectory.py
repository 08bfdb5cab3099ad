"""From an episode to token rows that a trainer can take as they are.

A row is a prompt and a completion. In the completion, ``loss_mask`` is 1 on exactly the ids that the policy
sampled and 0 on everything the environment put between two replies. Steps become one row as long as each
prompt begins, id for id, with all that the row already holds; otherwise a new row begins. Nothing is ever
decoded or encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from agent_r1_env import compact
from agent_r1_env.compact import Floats, Ints, Numbers, Tape
from agent_r1_env.episode import Episode, Step


@dataclass(frozen=True, slots=True)
class Row:
    """One masked training sequence; all four completion lists have the same length.

    Those that ``rows`` makes are held as `Numbers`, which act as lists and share the ids of their episode.

    Attributes:
        loss_mask: 1 = a token that is trained on, 0 = a token that the environment wrote.
        logprobs: Of the sampled ids when they were sampled; 0.0 where the mask is 0.
        advantages: 0.0 where ``advantage_mask`` is 0.
        episode: Index of the episode that the row comes from.
        spans: (step, start, stop) of each reply in the completion, in order; start counts from 0, stop is
            behind the last id. What lies between two of them the environment wrote.
        cut: Sampled ids that a limit took from the training: those behind its end, and all of a row whose
            mask is 0 throughout, which only such a row's may be. See `overlong`.
        env_credit: Whether the environment's tokens got the advantage of the reply before them.

    Raises:
        ValueError: on construction, when the lists disagree, nothing is trained, or the row ends in tokens
            that are not trained.
    """

    prompt_ids: Ints
    completion_ids: Ints
    loss_mask: Ints
    logprobs: Floats
    advantages: Floats
    episode: int
    spans: tuple[tuple[int, int, int], ...] = ()
    cut: int = 0
    env_credit: bool = False

    @property
    def advantage_mask(self) -> Ints:
        """1 = a token that was given an advantage: the sampled ones, and all of them in the ablation."""
        if self.env_credit:
            return Numbers.of(np.ones(len(self.loss_mask), np.int8))
        if not self.spans:
            return self.loss_mask
        mask = np.zeros(len(self.loss_mask), np.int8)
        for _, start, stop in self.spans:
            mask[start:stop] = 1
        return Numbers.of(mask)

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in _PER_TOKEN}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"row of episode {self.episode}: lengths differ: {lengths}")
        mask = np.asarray(self.loss_mask)
        if not ((mask == 0) | (mask == 1)).all():
            raise ValueError(f"row of episode {self.episode}: the loss mask holds other values than 0 and 1")
        if not mask.any():
            if not self.cut:
                raise ValueError(f"row of episode {self.episode}: no token is trained")
        elif not mask[-1]:
            raise ValueError(f"row of episode {self.episode}: it ends in environment tokens")
        if not np.isfinite(np.asarray(self.advantages, dtype=np.float64)).all():
            raise ValueError(f"row of episode {self.episode}: an advantage is not finite")


_PER_TOKEN = ("completion_ids", "loss_mask", "logprobs", "advantages")


@dataclass(slots=True)
class _Draft:
    """A row that still grows.

    Attributes:
        held: every id in it so far, prompt included.
        spans: as of a `Row`.
        advantages: of each reply.
    """

    prompt: Numbers[int]
    held: Numbers[int]
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    logprobs: list[npt.NDArray[np.floating]] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)

    def reply(self, number: int, ids: Numbers[int], logprobs: Sequence[float], advantage: float) -> None:
        start = len(self.held) - len(self.prompt)
        self.held = self.held.joined(ids)
        self.spans.append((number, start, start + len(ids)))
        self.logprobs.append(compact.floats(logprobs).array)
        self.advantages.append(advantage)

    def row(self, episode: int, loss_mask: bool, advantage_mask: bool) -> Row:
        size = len(self.held) - len(self.prompt)
        mask = np.zeros(size, np.int8) if loss_mask else np.ones(size, np.int8)
        kind = np.result_type(np.float32, *self.logprobs)
        logprobs = np.full(size, 0.0 if loss_mask else math.nan, kind)
        advantages = np.zeros(size)
        for (_, start, stop), own, advantage in zip(self.spans, self.logprobs, self.advantages, strict=True):
            mask[start:stop] = 1
            logprobs[start:stop] = own
            advantages[start:stop] = advantage
        if not advantage_mask:
            for ((_, _, stop), (_, start, _)), advantage in zip(
                pairwise(self.spans), self.advantages, strict=False
            ):
                advantages[stop:start] = advantage
        return Row(
            self.prompt,
            self.held[len(self.prompt) :],
            Numbers.of(mask),
            Numbers.of(logprobs),
            Numbers.of(compact.narrow(advantages)),
            episode,
            tuple(self.spans),
            env_credit=not advantage_mask,
        )


def rows(
    episode: Episode,
    advantage_per_step: Sequence[float],
    index: int,
    merge: bool = True,
    loss_mask: bool = True,
    advantage_mask: bool | None = None,
) -> list[Row]:
    """Turn an episode into rows; every sampled id lands in exactly one of them, in order.

    A step without sampled ids adds nothing, and the observation behind the last reply is in no row.

    Args:
        advantage_per_step: One number a step, stamped on each id sampled in that step.
        index: Name of the episode in the rows and in error messages.
        merge: False gives each step a row of its own. The gradient of a token-mean loss is the same.
        loss_mask: False is the ablation that trains on what the environment wrote between two replies of a
            row: mask 1, and the advantage of the step before it. Those tokens were not sampled and have no
            log-prob, so theirs is NaN: hand it on as it is, TRL reads NaN as "importance ratio 1" (and uses
            no log-probs at all without its vLLM correction). The first prompt of a row is never trained on,
            so the ablation changes nothing when ``merge`` is off.
        advantage_mask: False gives the environment's tokens the advantage of the step before them, True gives
            them 0, so that they are in the loss without pushing anything. By default as ``loss_mask``; it has
            no effect on training where their loss mask is 0.

    Raises:
        ValueError: not one advantage a step, or an advantage that is not finite.
    """
    if len(advantage_per_step) != len(episode.steps):
        given, steps = len(advantage_per_step), len(episode.steps)
        raise ValueError(f"episode {index} has {steps} steps but {given} advantages were given")
    advantage_mask = loss_mask if advantage_mask is None else advantage_mask
    drafts: list[_Draft] = []
    for number, (prompt, reply) in enumerate(_ids(episode.steps)):
        if not len(reply):
            continue
        if merge and drafts and prompt.begins_with(drafts[-1].held):
            drafts[-1].held = prompt
        else:
            drafts.append(_Draft(prompt, prompt))
        drafts[-1].reply(number, reply, episode.steps[number].logprobs, float(advantage_per_step[number]))
    return [draft.row(index, loss_mask, advantage_mask) for draft in drafts]


def _ids(steps: Sequence[Step]) -> list[tuple[Numbers[int], Numbers[int]]]:
    """Prompt and reply of each step; what comes in lists is packed together."""
    tape = Tape()
    packed = [
        (step.prompt_ids, step.response_ids)
        if isinstance(step.prompt_ids, Numbers) and isinstance(step.response_ids, Numbers)
        else tape.ids(step.prompt_ids, step.response_ids)
        for step in steps
    ]
    tape.pack()
    return packed


def sampled_ids(episode: Episode) -> list[int]:
    """All ids that the policy sampled in the episode, in order."""
    return [token for step in episode.steps for token in step.response_ids]


def trained_ids(rows: Iterable[Row]) -> list[int]:
    """All ids that the rows train on, in order."""
    pairs = (pair for row in rows for pair in zip(row.completion_ids, row.loss_mask, strict=True))
    return [token for token, mask in pairs if mask == 1]


def drift(sampled: Sequence[int], trained: Sequence[int]) -> int:
    """Number of places where trained and sampled ids differ; anything but 0 is a fault."""
    different = sum(a != b for a, b in zip(sampled, trained, strict=False))
    return different + abs(len(sampled) - len(trained))
