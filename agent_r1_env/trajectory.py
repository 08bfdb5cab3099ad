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
from typing import TypeVar

import numpy as np

from agent_r1_env.episode import Episode

_T = TypeVar("_T", int, float)


@dataclass(frozen=True, slots=True)
class Row:
    """One masked training sequence; all four completion lists have the same length.

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

    prompt_ids: list[int]
    completion_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    advantages: list[float]
    episode: int
    spans: tuple[tuple[int, int, int], ...] = ()
    cut: int = 0
    env_credit: bool = False

    @property
    def advantage_mask(self) -> list[int]:
        """1 = a token that was given an advantage: the sampled ones, and all of them in the ablation."""
        if self.env_credit:
            return [1] * len(self.loss_mask)
        if not self.spans:
            return self.loss_mask
        mask = [0] * len(self.loss_mask)
        for _, start, stop in self.spans:
            mask[start:stop] = [1] * (stop - start)
        return mask

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in _PER_TOKEN}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"row of episode {self.episode}: lengths differ: {lengths}")
        if not set(self.loss_mask) <= {0, 1}:
            raise ValueError(f"row of episode {self.episode}: the loss mask holds other values than 0 and 1")
        if not any(self.loss_mask):
            if not self.cut:
                raise ValueError(f"row of episode {self.episode}: no token is trained")
        elif not self.loss_mask[-1]:
            raise ValueError(f"row of episode {self.episode}: it ends in environment tokens")
        if not all(map(math.isfinite, self.advantages)):
            raise ValueError(f"row of episode {self.episode}: an advantage is not finite")


_PER_TOKEN = ("completion_ids", "loss_mask", "logprobs", "advantages")


@dataclass(slots=True)
class _Draft:
    """A row that still grows; ``held`` is every id in it so far, prompt included."""

    prompt_ids: list[int]
    held: list[int]
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def reply(self, number: int, ids: Sequence[int], logprobs: Iterable[float], advantage: float) -> None:
        start = len(self.loss_mask)
        self.extend(ids, 1, logprobs, advantage)
        self.spans.append((number, start, len(self.loss_mask)))

    def extend(self, ids: Sequence[int], mask: int, logprobs: Iterable[float], advantage: float) -> None:
        self.held.extend(ids)
        self.loss_mask.extend([mask] * len(ids))
        self.logprobs.extend(logprobs)
        self.advantages.extend([advantage] * len(ids))

    def row(self, episode: int, env_credit: bool) -> Row:
        completion = self.held[len(self.prompt_ids) :]
        lists = self.loss_mask, self.logprobs, self.advantages
        return Row(self.prompt_ids, completion, *lists, episode, tuple(self.spans), env_credit=env_credit)


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
    credit = 0.0
    for number, (step, stamp) in enumerate(zip(episode.steps, advantage_per_step, strict=True)):
        if not len(step.response_ids):
            continue
        prompt, advantage = _listed(step.prompt_ids), float(stamp)
        if merge and drafts and prompt[: len(drafts[-1].held)] == drafts[-1].held:
            observation = prompt[len(drafts[-1].held) :]
            unknown = 0.0 if loss_mask else math.nan
            pushed = 0.0 if advantage_mask else credit
            drafts[-1].extend(observation, int(not loss_mask), [unknown] * len(observation), pushed)
        else:
            drafts.append(_Draft(prompt, prompt.copy()))
        drafts[-1].reply(number, _listed(step.response_ids), _listed(step.logprobs), advantage)
        credit = advantage
    return [draft.row(index, not advantage_mask) for draft in drafts]


def _listed(values: Sequence[_T]) -> list[_T]:
    """A list of Python numbers, which compare faster than NumPy's."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


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
