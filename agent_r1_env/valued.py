"""What of an episode a critic values: the states in which the policy acts, and the one behind the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_r1_env.episode import Episode


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
        after: the state that a truncated episode would have gone on from; None where it ended in its own way.
    """

    readings: Sequence[Reading] = ()
    rewards: Sequence[float] = ()
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
    if not all(len(step.prompt_ids) for step in episode.steps):
        raise ValueError(f"{_named(episode)} has no prompt ids, without which nobody can tell its value")
    readings = [_whole(step.prompt_ids) for step in episode.steps]
    return States(
        readings, [float(step.reward) for step in episode.steps], _after(episode, bootstrap, longest)
    )


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
