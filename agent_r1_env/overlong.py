"""Rows that are longer than a limit: cut, masked or made costly, and counted in each case.

Three layers, each where it must act. ``Limit.penalised`` changes an episode's reward and so comes before any
advantage is computed. ``Limit.applied`` changes rows and so comes behind ``trajectory.rows``; the advantages
in them stay what they are. The reward of an overlong episode counts in its group's baseline in every case:
no episode is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent_r1_env.episode import Episode
from agent_r1_env.errors import look_up
from agent_r1_env.trajectory import Row, rows

Way = Literal["truncate", "mask", "penalise"]
WAYS: tuple[Way, ...] = ("truncate", "mask", "penalise")


@dataclass(frozen=True)
class Limit:
    """What becomes of rows of more than a number of tokens.

    Attributes:
        tokens: the longest row, prompt and completion together.
        way: "truncate" cuts a row behind the last reply that fits whole, and the first reply of a row where
            not even that does. "mask" keeps the first ``tokens`` ids of the row and trains on none of them.
            "penalise" truncates and adds ``penalty`` to the episode's reward.
        penalty: added once to an overlong episode, to the reward of the last step that is trained on; below
            0 for one that is to be avoided.

    Raises:
        ValueError: a limit below 2 tokens, or a penalty that another way would ignore.
        UnknownName: no such way.
    """

    tokens: int
    way: Way = "truncate"
    penalty: float = 0.0

    def __post_init__(self) -> None:
        look_up("way to treat overlong rows", self.way, dict.fromkeys(WAYS))
        if self.tokens < 2:
            raise ValueError(
                f"a row has a prompt and a completion: tokens must be 2 or more, not {self.tokens}"
            )
        if bool(self.penalty) != (self.way == "penalise"):
            raise ValueError(
                f"a penalty of {self.penalty} does not go with {self.way!r}: 'penalise' needs one, such as "
                "-0.5, and the other ways take none"
            )

    def penalised(self, episode: Episode, merge: bool = True) -> Episode:
        """The episode with the penalty in it if a row of it is too long and the way is "penalise".

        Args:
            merge: as the rows will be made.
        """
        if self.way != "penalise":
            return episode
        whole = rows(episode, [0.0] * len(episode.steps), 0, merge)
        if all(_length(row) <= self.tokens for row in whole):
            return episode
        kept = [step for row in self.applied(whole) for step, _, _ in row.spans]
        if not kept:
            return replace(episode, truncation_reward=episode.truncation_reward + self.penalty)
        steps = list(episode.steps)
        step = steps[kept[-1]]
        terms = {**step.reward_terms, "overlong": self.penalty}
        steps[kept[-1]] = replace(step, reward=step.reward + self.penalty, reward_terms=terms)
        return replace(episode, steps=tuple(steps))

    def applied(self, batch: Sequence[Row]) -> list[Row]:
        """The rows with those that are too long cut or masked; as many rows as before, in their order.

        A row whose prompt alone reaches the limit is masked in every case: nothing of it can be trained on.
        """
        return [row if _length(row) <= self.tokens else self._fitted(row) for row in batch]

    def _fitted(self, row: Row) -> Row:
        room = self.tokens - len(row.prompt_ids)
        if room < 1:
            return _masked(row, self.tokens)
        if self.way == "mask":
            return _masked(row, self.tokens)
        fitting = [stop for _, _, stop in row.spans if stop <= room]
        return _cut(row, fitting[-1] if fitting else room)


def counts(batch: Sequence[Row]) -> Counter[str]:
    """What limits did to a batch.

    Returns:
        overlong_rows: rows that were cut or masked; overlong_episodes: episodes with any of those;
        overlong_masked_rows: rows of which nothing is trained on; overlong_cut_tokens: sampled tokens that
        are not trained on.
    """
    long = [row for row in batch if row.cut]
    return Counter(
        overlong_rows=len(long),
        overlong_episodes=len({row.episode for row in long}),
        overlong_masked_rows=sum(not any(row.loss_mask) for row in long),
        overlong_cut_tokens=sum(row.cut for row in long),
    )


def _length(row: Row) -> int:
    return len(row.prompt_ids) + len(row.completion_ids)


def _cut(row: Row, stop: int) -> Row:
    """The first ``stop`` ids of the completion; the last of them is one that is trained on."""
    spans = tuple((step, start, min(end, stop)) for step, start, end in row.spans if start < stop)
    return replace(
        row,
        completion_ids=row.completion_ids[:stop],
        loss_mask=row.loss_mask[:stop],
        logprobs=row.logprobs[:stop],
        advantages=row.advantages[:stop],
        spans=spans,
        cut=row.cut + _sampled(row.spans) - _sampled(spans),
    )


def _masked(row: Row, tokens: int) -> Row:
    """At most ``tokens`` ids, of which none is trained on; a completion has at least one id."""
    prompt = row.prompt_ids[: tokens - 1]
    kept = min(len(row.completion_ids), tokens - len(prompt))
    return Row(
        prompt,
        row.completion_ids[:kept],
        [0] * kept,
        [0.0] * kept,
        [0.0] * kept,
        row.episode,
        cut=row.cut + _sampled(row.spans),
    )


def _sampled(spans: Sequence[tuple[int, int, int]]) -> int:
    return sum(stop - start for _, start, stop in spans)
