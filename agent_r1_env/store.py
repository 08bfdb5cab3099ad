"""Episodes in one file, each once: what a rollout asks for, and what an earlier one has left of it."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_r1_env.episode import Episode
from agent_r1_env.errors import AgentR1Error, DataError
from agent_r1_env.evaluate import choose
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.players import derived_seed
from agent_r1_env.stopping import StopReason

Key = tuple[int, int, int | None]
"""What an episode is known by: group, sample and seed of its request; the seed is made of the task."""


def key_of(of: Episode | EpisodeRequest) -> Key:
    """What a request and its episode have in common with no other."""
    return of.group, of.sample, of.seed


@dataclass(frozen=True)
class Plan:
    """The requests of a rollout, in order; the same for the same numbers.

    Attributes:
        n: episodes.
        samples: episodes of a task before the next task's turn comes; when all tasks had theirs, it begins
            anew with further samples.
        tasks: ids of the environment's tasks; None: it has no list of them, and its seed decides.
    """

    n: int
    samples: int
    seed: int
    tasks: Sequence[str] | None

    def requests(self, but: frozenset[Key] | set[Key] = frozenset()) -> Iterator[EpisodeRequest]:
        """Those whose keys are not in ``but``, made one by one."""
        groups = math.ceil(self.n / self.samples)
        chosen = None if self.tasks is None else choose(len(self.tasks), groups, self.seed)
        for number in range(self.n):
            place, sample = divmod(number, self.samples)
            task: int | None = None
            if chosen is None or self.tasks is None:
                group, name = place, str(place)
            else:
                turn, place = divmod(place, len(chosen))
                group = task = chosen[place]
                sample += turn * self.samples
                name = self.tasks[group]
            salt = f"{name}/{sample}"
            request = EpisodeRequest(task, derived_seed(self.seed, salt), group, sample, salt)
            if key_of(request) not in but:
                yield request


def kept(path: Path, env_id: str, plan: Plan) -> set[Key]:
    """The keys of the episodes that an earlier run of the plan left in a file.

    A torn last line is left out, as `EpisodeFile` cuts it off.

    Raises:
        AgentR1Error: the file holds episodes of another run.
        DataError: a line before the last is not an episode.
    """
    found: set[Key] = set()
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                data = json.loads(line)
                of, key = str(data["env_id"]), (data["group"], data.get("sample", 0), data["seed"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"not an episode: {error}", file=path, row=number) from error
            if of != env_id:
                raise AgentR1Error(
                    f"{path}:{number} is an episode of {of}, not {env_id}; choose another file"
                )
            if key in found:
                raise AgentR1Error(f"{path}:{number} stands there a second time; choose another file")
            found.add(key)
    if found:
        strange = set(found)
        for request in plan.requests():
            strange.discard(key_of(request))
        if strange:
            raise AgentR1Error(
                f"{path} holds {len(strange)} episodes that this run does not ask for; they are of another "
                "--n, --samples, --seed or data: give the same ones, or choose another file"
            )
    return found


@dataclass
class Tally:
    """What came of a rollout, counted as it goes; it does not grow with the episodes.

    Attributes:
        stops: stop reasons.
        unfinished: episodes that the time limit cut, which are not among the others.
        tokens: sampled, of those that were counted.
    """

    episodes: int = 0
    failed: int = 0
    unfinished: int = 0
    reward: float = 0.0
    tokens: int = 0
    steps: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def add(self, episode: Episode) -> bool:
        """Count an episode; whether it is to be written down."""
        if episode.stop_reason == StopReason.TIME_LIMIT.value:
            self.unfinished += 1
            return False
        self.episodes += 1
        self.failed += episode.failed
        self.stops[episode.stop_reason or "none"] += 1
        self.reward += 0.0 if episode.failed else episode.reward
        self.steps += len(episode.steps)
        self.tokens += sum(step.reply_tokens or 0 for step in episode.steps)
        return True

    @property
    def mean_reward(self) -> float | None:
        """Of those in which the environment did not break; None if there are none."""
        sound = self.episodes - self.failed
        return self.reward / sound if sound else None

    @property
    def seconds(self) -> float:
        """Since the first was begun."""
        return max(time.monotonic() - self.began, 1e-9)
