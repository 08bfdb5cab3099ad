"""What of an episode a critic values: the states in which the policy acts, and the one behind the end.

In the MDP of this package a whole reply is one action, and its state is the prompt. For comparison there is
the other view, in which every token is an action: `token_states`, whose advantages `by_token` brings to rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agent_r1_env.episode import Episode
from agent_r1_env.trajectory import Row


@dataclass(frozen=True, slots=True)
class Reading:
    """Token ids, and behind how many of them a value is wanted, each at least 1, rising."""

    ids: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class States:
    """The states of one episode.

    Attributes:
        readings: hold S states in order.
        rewards: (S,) what was paid between each state and the next.
        parts: for each step of the episode, how many states tokens of the environment made before the reply,
            and how many the reply has; S in all.
        after: the state that a truncated episode would have gone on from; None where it ended in its own way.
    """

    readings: Sequence[Reading] = ()
    rewards: Sequence[float] = ()
    parts: Sequence[tuple[int, int]] = ()
    after: Reading | None = None

    @property
    def all(self) -> list[Reading]:
        """The readings, with that of the state behind the end."""
        return [*self.readings, *([] if self.after is None else [self.after])]


def joined(readings: Iterable[Reading]) -> list[Reading]:
    """The same states in the same order, with one reading wherever one begins with all of that before it."""
    result: list[Reading] = []
    for reading in readings:
        ids = list(reading.ids)
        if result and ids[: len(result[-1].ids)] == result[-1].ids:
            result[-1] = Reading(ids, (*result[-1].ends, *reading.ends))
        else:
            result.append(Reading(ids, tuple(reading.ends)))
    return result


def step_states(episode: Episode, bootstrap: bool = True, longest: int | None = None) -> States:
    """The prompt of each step is a state; none of an episode in which the environment broke.

    Args:
        bootstrap: False takes a truncated episode for one that is over.
        longest: tokens that can be read; a prompt of more has nothing behind it, for the policy reads no
            further either.

    Raises:
        ValueError: the episode lacks the ids of a prompt.
    """
    if episode.failed:
        return States()
    _check(episode)
    readings = [_whole(step.prompt_ids) for step in episode.steps]
    rewards, parts = [float(step.reward) for step in episode.steps], [(0, 1)] * len(episode.steps)
    return States(readings, rewards, parts, _after(episode, bootstrap, longest))


def token_states(
    episode: Episode, bootstrap: bool = True, longest: int | None = None, tool_tokens: bool = False
) -> States:
    """All that stands before a sampled token is a state; its reward comes with the last token of a reply.

    A reply without tokens is no action: what it was paid comes with the last token before it, or with the
    first reply if there is none.

    Args:
        tool_tokens: the tokens that the environment wrote between two replies are actions, too.
    """
    if episode.failed:
        return States()
    _check(episode)
    readings: list[Reading] = []
    rewards: list[float] = []
    parts: list[tuple[int, int]] = []
    held: list[int] = []
    owed = 0.0
    for step in episode.steps:
        owed += float(step.reward)
        prompt, reply = list(step.prompt_ids), list(step.response_ids)
        if not reply:
            if rewards:
                rewards[-1] += owed
                owed = 0.0
            parts.append((0, 0))
            continue
        grown = tool_tokens and bool(held) and prompt[: len(held)] == held
        first = len(held) if grown else len(prompt)
        held = prompt + reply
        readings.append(Reading(held[:-1], range(first, len(held))))
        rewards += [0.0] * (len(held) - first - 1) + [owed]
        parts.append((len(prompt) - first, len(reply)))
        owed = 0.0
    return States(readings, rewards, parts, _after(episode, bootstrap, longest) if rewards else None)


def by_token(row: Row, advantages: Sequence[float], parts: Sequence[tuple[int, int]]) -> list[float]:
    """The advantages of an episode's token states at the tokens of one of its rows.

    A token of the environment that the row trains on has its own if it was a state, and else that of the last
    token before it; one that is not trained on has 0.

    Args:
        advantages, parts: of the whole episode.
    """
    result = [0.0] * len(row.completion_ids)
    starts = [0, *accumulate(map(sum, parts))]
    end = 0
    for number, start, stop in row.spans:
        before, _ = parts[number]
        place = starts[number] + before
        result[start:stop] = advantages[place : place + stop - start]
        if end < start and row.loss_mask[end]:
            own = advantages[starts[number] : place]
            result[end:start] = own if before else [result[end - 1]] * (start - end)
        end = stop
    return result


def _check(episode: Episode) -> None:
    if not all(len(step.prompt_ids) for step in episode.steps):
        raise ValueError(f"{_named(episode)} has no prompt ids, without which nobody can tell its value")


def _after(episode: Episode, bootstrap: bool, longest: int | None) -> Reading | None:
    if not (bootstrap and episode.steps and episode.truncated and not episode.terminated):
        return None
    if not len(episode.next_prompt_ids):
        raise ValueError(
            f"{_named(episode)} was truncated and has no next_prompt_ids, whose value it ends in; set "
            "bootstrap: false for the critic to let it end in 0"
        )
    readable = longest is None or len(episode.next_prompt_ids) <= longest
    return _whole(episode.next_prompt_ids) if readable else None


def _whole(prompt: Sequence[int]) -> Reading:
    return Reading(prompt, (len(prompt),))


def _named(episode: Episode) -> str:
    return f"an episode of {episode.env_id}, task {episode.task_id!r},"
