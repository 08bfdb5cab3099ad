"""Batches of episodes that are played while the trainer steps.

At the beginning of each update the engine gets the weights of now, and every batch that these are fresh
enough for is begun: the one that is trained next, and those behind it up to the bound. A batch is fetched
when the trainer asks for it. What is still being sampled when weights change goes on with the new ones, so
that each token knows which weights drew it.

The bound holds because a batch waits for weights that are new enough; none is ever dropped. Nothing here
knows a trainer. All that plays runs on one thread with an event loop of its own; everything else, and with it
every collective operation of several processes, stays on the caller's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from agent_r1_env.engines import Sampling
from agent_r1_env.episode import Episode
from agent_r1_env.errors import EngineError, unknown_name
from agent_r1_env.looping import LoopThread
from agent_r1_env.rollout import EpisodeRequest, Rollout

_T = TypeVar("_T")


@dataclass(frozen=True)
class Overlap:
    """That batches are played ahead, and how far.

    Attributes:
        staleness: bound on the age of a trained token, in updates: how many have been made since the weights
            that drew it, when the last update that it takes part in begins.

    Raises:
        ValueError: it is no whole number of at least 1.
    """

    staleness: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.staleness, bool) or not isinstance(self.staleness, int) or self.staleness < 1:
            raise ValueError(
                f"overlap.staleness must be a whole number of at least 1, not {self.staleness!r}; without "
                "overlap each batch is played with the weights that it trains"
            )

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Overlap:
        """From plain data.

        Raises:
            UnknownName: it takes no such key.
        """
        for name in said:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("key", name, cls.__dataclass_fields__, "overlap")
        return cls(**said)

    def check(self, args: Any, custom: bool = False) -> None:
        """Make sure that a ``trl.GRPOConfig`` allows for it.

        Args:
            custom: a rollout of the caller's own plays.

        Raises:
            ValueError: a setting that does not; the message says which and why.
        """
        if custom:
            raise ValueError("overlap plays with the built-in rollout; leave out either of them")
        if not args.use_vllm:
            raise ValueError(
                "overlap needs an engine with weights of its own, and without vLLM the model that trains is "
                "the one that samples; set use_vllm to true, or leave overlap out"
            )
        if args.vllm_enable_sleep_mode:
            raise ValueError(
                "overlap samples while the trainer steps, which is when vllm_enable_sleep_mode puts vLLM to "
                "sleep; leave out either of them"
            )
        mode = args.vllm_importance_sampling_mode
        if not args.vllm_importance_sampling_correction or not mode.startswith("token"):
            raise ValueError(
                "overlap trains on tokens that older weights drew, which vllm_importance_sampling_correction "
                "with vllm_importance_sampling_mode 'token_truncate' sets right; got "
                f"{args.vllm_importance_sampling_correction} with {mode!r}"
            )
        updates = updates_of_batch(args)
        if self.staleness < updates:
            raise ValueError(
                f"overlap.staleness is {self.staleness}, but steps_per_generation and num_iterations make "
                f"{updates} updates of a batch, and the one behind it is as old when it is trained; allow "
                f"{updates} or more"
            )


def updates_of_batch(args: Any) -> int:
    """Updates from one rollout of a ``GRPOConfig`` to the next, at most."""
    every = int(args.steps_per_generation * args.num_iterations)
    return -(-every // int(args.gradient_accumulation_steps))


class Lookahead(Generic[_T]):
    """An iterator that can be looked into."""

    def __init__(self, source: Iterator[_T]) -> None:
        self.source = source
        self._read: deque[_T] = deque()

    def peek(self, place: int) -> _T | None:
        """The item that comes ``place`` items behind the next; None behind the end."""
        while len(self._read) <= place:
            try:
                self._read.append(next(self.source))
            except StopIteration:
                return None
        return self._read[place]

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        return self._read.popleft() if self._read else next(self.source)


@dataclass(frozen=True)
class Batch:
    """Episodes that are to be played together.

    Attributes:
        update: the first that trains on them; its replies are drawn from seeds of that one, so that they do
            not depend on when it is played.
        version: of the weights that it is begun with.
    """

    requests: Sequence[EpisodeRequest]
    sampling: Sampling
    update: int
    version: int

    def salted(self) -> list[EpisodeRequest]:
        """The requests with what makes their replies differ from those of all others, as in `Rollout.run`."""
        return [
            replace(request, salt=request.salt or f"{self.update}/{place}")
            for place, request in enumerate(self.requests)
        ]


@dataclass(frozen=True)
class Fetched:
    """A batch that was played.

    Attributes:
        seconds: from its beginning to its end.
        waited: seconds of these that whoever fetched it had to wait.
    """

    episodes: Sequence[Episode]
    seconds: float
    waited: float


class Ahead:
    """Plays batches in the background, each under a key that it is fetched by."""

    def __init__(self, rollout: Callable[[], Rollout], at_once: int | None = None) -> None:
        """Begin with nothing.

        Args:
            rollout: makes a rollout that this object then owns; one is needed for each batch that is played
                at the same time, and used again.
            at_once: batches that are played at the same time, in the order in which they were begun; None is
                without limit.
        """
        self._make = rollout
        self._room = contextlib.nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self._idle: list[Rollout] = []
        self._thread: LoopThread | None = None
        self._begun: dict[Hashable, tuple[Batch, Future[tuple[list[Episode], float]]]] = {}
        self.rollouts: list[Rollout] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self._begun

    def begin(self, key: Hashable, batch: Batch) -> None:
        """Begin to play a batch."""
        if self._thread is None:
            self._thread = LoopThread("overlap")
        self._begun[key] = batch, self._thread.begin(self._play(batch))

    def fetch(self, key: Hashable, requests: Sequence[EpisodeRequest]) -> Fetched:
        """The episodes of a batch that was begun, once they have ended; what playing raised is raised.

        Raises:
            EngineError: no such batch was begun, or one with other requests: a fault of the program.
        """
        if key not in self._begun:
            raise EngineError(f"no batch was begun for {key!r}, but for {list(self._begun)}")
        batch, future = self._begun.pop(key)
        if list(batch.requests) != list(requests):
            raise EngineError(f"the batch begun for {key!r} has other requests than are asked for")
        asked = time.perf_counter()
        episodes, seconds = future.result()
        return Fetched(episodes, seconds, time.perf_counter() - asked)

    def drop(self) -> None:
        """Cancel what was begun and not fetched, and return when it has ended."""
        self._begun.clear()
        if self._thread is not None:
            self._thread.cancel()

    def close(self) -> None:
        """The same, and end the thread and the environments; twice is harmless."""
        self._begun.clear()
        if self._thread is not None:
            self._thread.close()
            self._thread = None
        for rollout in self.rollouts:
            rollout.close()
        self._idle, self.rollouts = [], []

    async def _play(self, batch: Batch) -> tuple[list[Episode], float]:
        async with self._room:
            started = time.perf_counter()
            if not self._idle:
                self._idle.append(self._make())
                self.rollouts += self._idle
            rollout = self._idle.pop()
            rollout.sampling = batch.sampling
            try:
                episodes = await rollout.run_async(batch.salted(), batch.version)
            finally:
                self._idle.append(rollout)
            return episodes, time.perf_counter() - started


@dataclass(frozen=True)
class Ages:
    """How old some tokens are, in updates since the weights that drew them.

    Attributes:
        total: of all ages.
        highest: age of the oldest.
    """

    tokens: int = 0
    total: int = 0
    highest: int = 0

    @classmethod
    def of(cls, episodes: Iterable[Episode], update: int) -> Ages:
        """Of the sampled tokens of episodes, when an update begins that trains on them.

        Where the engine does not count versions, a token is as old as the rollout of its episode.
        """
        ages = [
            update - version
            for episode in episodes
            if not episode.failed
            for step in episode.steps
            for version in (step.versions or [episode.policy_version or 0] * len(step.response_ids))
        ]
        return cls(len(ages), sum(ages), max(ages, default=0))

    def __add__(self, other: Ages) -> Ages:
        return Ages(self.tokens + other.tokens, self.total + other.total, max(self.highest, other.highest))

    @property
    def mean(self) -> float:
        """Age of a token, on average."""
        return self.total / max(1, self.tokens)
