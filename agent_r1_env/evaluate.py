"""Scores of a policy on an environment: means with their uncertainty, from one episode for each task."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np

from agent_r1_env import auto
from agent_r1_env.batch import facts
from agent_r1_env.catalog import Catalog
from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode, EpisodeFile, Step
from agent_r1_env.errors import AgentR1Error, unknown_name
from agent_r1_env.task import TaskSet

if TYPE_CHECKING:
    from agent_r1_env.engines import Engine, Sampling

Policy = Callable[[ToolEnv, np.random.Generator], str]
"""Called once a step; returns the whole reply. It may look at the task: it is on the developer's side."""

Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and of all episodes."""

_Z = 1.959963984540054  # of the normal distribution at 97.5 %
_RESAMPLES = 2000
_COUNTS = frozenset({"tool_calls", "invalid_calls", "steps"})


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % confidence interval over tasks."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}  [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out of one evaluation.

    Attributes:
        data: which source the tasks came from.
        synthetic: the tasks were made by a script.
        n: episodes that count; every mean is over these.
        failed: episodes lost because the environment itself broke; they count nowhere else.
        metrics: the environment's own numbers at the end of an episode.
        tool_call_rate: share of replies with a tool call in them.
        invalid_call_rate: share of calls that were malformed, named no tool or had wrong arguments.
        stop_reasons: number of episodes by the reason why they ended.
    """

    env_id: str
    policy: str
    data: str
    synthetic: bool
    n: int
    failed: int
    seed: int
    reward: Interval
    metrics: Mapping[str, Interval]
    tool_call_rate: float
    invalid_call_rate: float
    stop_reasons: Mapping[str, int]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a mean of nothing is None."""
        return {key: _null(value) for key, value in asdict(self).items()}


def evaluate(
    env_id: str,
    *,
    policy: Policy | str | None = None,
    engine: Engine | None = None,
    n: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    concurrency: int = 64,
    name: str = "",
    episodes: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run one episode for each of ``n`` tasks and average.

    Args:
        policy: a scripted policy, or the name of one of the environment's own; its episodes run one after
            the other.
        engine: a model instead; its episodes run ``concurrency`` at a time.
        n: number of tasks, drawn by ``seed`` and so the same for every policy; all of them by default.
        env_kwargs: what ``gym.make`` gets beside the id; ``format="auto"`` needs an engine, whose tokenizer
            then decides.
        sampling: of the engine; greedy by default.
        name: of the policy, for the report; a named policy's own by default.
        episodes: a JSON-lines file to which every episode is appended as it ends.

    Raises:
        ValueError: not exactly one of ``policy`` and ``engine``, or ``n`` below 1.
        UnknownName: the environment has no policy of that name.
    """
    if (policy is None) == (engine is None):
        raise ValueError("give either a policy or an engine")
    if engine is not None:
        env_kwargs = auto.resolve(env_kwargs, engine.tokenizer)
    env = make(env_id, env_kwargs)
    try:
        chosen = choose(len(env.tasks), n, seed)
        file = EpisodeFile(episodes) if episodes is not None else None
        record = _Recorder(len(chosen), file, progress)
        start = time.perf_counter()
        try:
            if policy is not None:
                act = find_policy(env, policy) if isinstance(policy, str) else policy
                for task in chosen:
                    record(play(env, env_id, act, task, seed))
            elif engine is not None:
                _sample(env_id, env_kwargs, engine, sampling, chosen, seed, concurrency, record)
        finally:
            if file is not None:
                file.close()
        seconds = time.perf_counter() - start
        shown = name or (policy if isinstance(policy, str) else getattr(policy, "__name__", ""))
        return summarise(record.episodes, env.tasks, env_id=env_id, policy=shown, seed=seed, seconds=seconds)
    finally:
        env.close()


def make(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> ToolEnv:
    """The environment itself, without Gymnasium's wrappers.

    Raises:
        gymnasium.error.Error: no such id.
        AgentR1Error: it is none of ours.
    """
    env = gym.make(env_id, disable_env_checker=True, **dict(env_kwargs or {})).unwrapped
    if not isinstance(env, ToolEnv):
        env.close()
        raise AgentR1Error(f"{env_id} is a {type(env).__name__}; only a ToolEnv can be evaluated")
    return env


def find_policy(env: ToolEnv, name: str) -> Policy:
    """One of the scripted policies that the environment's YAML file names.

    Raises:
        UnknownName: it names none so.
        CatalogError: it names one that cannot be loaded.
    """
    spec = env.spec
    if spec is None or "folder" not in spec.kwargs:
        raise unknown_name("policy", name, (), where="an environment without a YAML file")
    entry = Catalog.open(spec.kwargs["folder"]).env(spec.kwargs["entry"].rpartition("/")[2])
    if name not in entry.data["policies"]:
        raise unknown_name("policy", name, entry.data["policies"], where=str(entry.path))
    return cast(Policy, entry.target("policies", name))


def choose(tasks: int, n: int | None, seed: int) -> list[int]:
    """``n`` of the task numbers in rising order; all of them for None or more than there are.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"the number of episodes must be at least 1, got {n}")
    if n is None or n >= tasks:
        return list(range(tasks))
    return sorted(np.random.default_rng(seed).choice(tasks, n, replace=False).tolist())


def play(env: ToolEnv, env_id: str, policy: Policy, task: int, seed: int) -> Episode:
    """One episode of a scripted policy. Its random numbers depend on ``seed`` and ``task`` alone."""
    rng = np.random.default_rng([seed, task])
    observation, info = env.reset(options={"task": task})
    steps: list[Step] = []
    terminated = truncated = False
    while not (terminated or truncated):
        prompt, reply, start = observation, policy(env, rng), time.perf_counter()
        observation, reward, terminated, truncated, info = env.step(reply)
        seconds = time.perf_counter() - start
        terms, calls = info["reward_terms"], info["calls"]
        steps.append(
            Step((), (), (), reward, prompt, reply, reward_terms=terms, calls=calls, tool_seconds=seconds)
        )
    return Episode(
        env_id,
        info["task_id"],
        seed,
        task,
        tuple(steps),
        terminated,
        truncated,
        info["stop_reason"],
        info["answer"],
        info["metrics"],
    )


def summarise(
    episodes: Sequence[Episode], tasks: TaskSet, *, env_id: str, policy: str, seed: int, seconds: float
) -> Evaluation:
    """Average episodes. Means of nothing are NaN."""
    in_order = sorted(episodes, key=lambda episode: episode.group)  # they ended in any order
    counted = [facts(episode) for episode in in_order if not episode.failed]
    replies, calls = sum(e["steps"] for e in counted), sum(e["calls"] for e in counted)
    # A kind of failure is counted in the episodes where it occurred.
    names = dict.fromkeys(name for e in counted for name in e["metrics"])
    return Evaluation(
        env_id=env_id,
        policy=policy,
        data=tasks.origin,
        synthetic=tasks.synthetic,
        n=len(counted),
        failed=len(episodes) - len(counted),
        seed=seed,
        reward=interval([e["reward"] for e in counted]),
        metrics={name: _metric(name, [e["metrics"].get(name, 0.0) for e in counted]) for name in names},
        tool_call_rate=sum(e["calling"] for e in counted) / max(1, replies),
        invalid_call_rate=sum(e["invalid"] for e in counted) / max(1, calls),
        stop_reasons=dict(Counter(e["stop"] for e in counted).most_common()),
        seconds=seconds,
    )


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval: Wilson's for zeros and ones, a percentile bootstrap for anything else."""
    if values and all(value in (0.0, 1.0) for value in values):
        return Interval(fmean(values), *_wilson(fmean(values), len(values)))
    return _bootstrap(values)


def _metric(name: str, values: Sequence[float]) -> Interval:
    # A count may be 0 or 1 in every episode and still be no share of anything.
    return _bootstrap(values) if name in _COUNTS else interval(values)


def _bootstrap(values: Sequence[float]) -> Interval:
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    mean = fmean(values)
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    data, rng = np.asarray(values, dtype=float), np.random.default_rng(0)
    means = [rng.choice(data, data.size).mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(mean, float(low), float(high))


def _wilson(share: float, n: int) -> tuple[float, float]:
    square = _Z * _Z / n
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))  # rounding aside


def _null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _null(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


class _Recorder:
    """Takes each episode as it ends: keeps it, writes it down, and tells how far we are."""

    def __init__(self, total: int, file: EpisodeFile | None, progress: Progress | None) -> None:
        self.episodes: list[Episode] = []
        self._total, self._file, self._progress = total, file, progress

    def __call__(self, episode: Episode) -> None:
        self.episodes.append(episode)
        if self._file is not None:
            self._file.append(episode)
        if self._progress is not None:
            self._progress(len(self.episodes), self._total)


def _sample(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None,
    engine: Engine,
    sampling: Sampling | None,
    tasks: Sequence[int],
    seed: int,
    concurrency: int,
    record: _Recorder,
) -> None:
    from agent_r1_env.engines import Sampling
    from agent_r1_env.rollout import EpisodeRequest, Rollout

    rollout = Rollout(
        env_id,
        env_kwargs,
        engine=engine,
        sampling=sampling or Sampling(temperature=0.0),
        concurrency=concurrency,
        on_episode=record,
    )
    with rollout:
        rollout.run([EpisodeRequest(task=task, seed=seed, group=task) for task in tasks])
