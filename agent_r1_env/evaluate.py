"""Run a policy or a model through the tasks of an environment, and say how well it did."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np

from agent_r1_env import auto, predictions, scoring
from agent_r1_env.catalog import Catalog
from agent_r1_env.env import ToolEnv
from agent_r1_env.episode import Episode, EpisodeFile
from agent_r1_env.errors import AgentR1Error, unknown_name
from agent_r1_env.methods import TOOL_CALL
from agent_r1_env.players import derived_seed
from agent_r1_env.runfolder import OFFICIAL, Key, RunFolder, write_json
from agent_r1_env.scripted_play import Play, Policy, play
from agent_r1_env.summary import Evaluation, row_of, summarise
from agent_r1_env.task import TaskSet

if TYPE_CHECKING:
    from agent_r1_env.engines import Engine, Sampling, TextEngine

Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and of all episodes, those of an earlier run included."""

SCORES = {
    "exact_match": scoring.exact_match,
    "sub_exact_match": scoring.sub_exact_match,
    "f1": scoring.f1,
}
"""Of every answer, where the environment does not report a metric of that name itself."""


def evaluate(
    env_id: str,
    *,
    policy: Policy | str | None = None,
    engine: Engine | TextEngine | None = None,
    method: str = TOOL_CALL,
    n: int | None = None,
    samples: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    shard: tuple[int, int] = (1, 1),
    sampling: Sampling | None = None,
    structured: bool = False,
    concurrency: int = 64,
    name: str = "",
    episodes: str | Path | None = None,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run ``samples`` episodes for each of ``n`` tasks and average. Works in a notebook, too.

    Every episode is seeded by ``seed``, its task's id and its sample alone, so that it comes out the same
    whatever runs beside it, as far as the model's server can.

    Args:
        policy: a scripted policy, or the name of one of the environment's own; its episodes run one after
            the other.
        engine: a model instead; its episodes run ``concurrency`` at a time.
        method: "direct", "naive_rag" or "tool_call", see `agent_r1_env.methods`.
        n: number of tasks, drawn by ``seed`` and so the same for every policy; all of them by default.
        env_kwargs: what ``gym.make`` gets beside the id; ``format="auto"`` needs an engine, whose tokenizer
            then decides.
        shard: ``(i, k)`` runs the i-th of k parts of the tasks, counted from 1; `runfolder.merge` puts the
            parts together.
        sampling: of the engine; by default greedy for one sample, else at temperature 1.
        structured: hold the model to valid calls once it begins one, see `structure`.
        name: of the policy, for the report; a named policy's own by default.
        episodes: a JSON-lines file to which every episode is appended as it ends, token ids included.
        output: a folder for all results. If it holds a part of this very run, only the rest is run, and
            episodes that an environment broke are tried again.

    Raises:
        ValueError: not exactly one of ``policy`` and ``engine``; ``n`` or ``samples`` below 1; no such shard.
        UnknownName: the environment has no policy of that name, or there is no such method.
        AgentR1Error: the environment has no such method, or ``output`` holds another run.
    """
    if (policy is None) == (engine is None):
        raise ValueError("give either a policy or an engine")
    if samples < 1:
        raise ValueError(f"the number of samples must be at least 1, got {samples}")
    kwargs = {**(env_kwargs or {}), **({} if method == TOOL_CALL else {"method": method})}
    if engine is not None and hasattr(engine, "tokenizer"):
        kwargs = auto.resolve(kwargs, engine.tokenizer)
    asked = None if engine is None else sampling or _default_sampling(samples, seed)
    env = make(env_id, kwargs)
    try:
        act = find_policy(env, policy) if isinstance(policy, str) else policy
        plays = _plays(env.tasks, n, samples, shard, seed)
        about = {
            "env_id": env_id,
            "policy": name or (policy if isinstance(policy, str) else getattr(policy, "__name__", "")),
            "method": method,
            "data": env.tasks.origin,
            "samples": samples,
            "seed": seed,
        }
        folder = None
        if output is not None:
            more = {"env_kwargs": env_kwargs or {}, "n": n, "shard": f"{shard[0]}/{shard[1]}"}
            facts = {"episodes": len(plays), "synthetic": env.tasks.synthetic}
            if structured:
                more["structured"] = True
            folder = RunFolder(output, {**about, **more, **_who(engine, asked)}, facts)
        record = _Recorder(len(plays), env.tasks, episodes, folder, progress)
        start = time.perf_counter()
        try:
            missing = [each for each in plays if each.key not in record.episodes]
            if act is not None:
                _play_all(env_id, kwargs, act, missing, record)
            elif engine is not None and asked is not None and missing:
                _sample(env_id, kwargs, engine, asked, missing, concurrency, structured, record)
        finally:
            record.close()
        found = list(record.episodes.values())
        return summarise(
            [row_of(episode) for episode in found],
            **cast(dict[str, Any], about),
            synthetic=env.tasks.synthetic,
            seconds=time.perf_counter() - start,
            official=_official(found, env.tasks, output),
        )
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


def shard_of(tasks: Sequence[int], shard: tuple[int, int]) -> list[int]:
    """Every k-th task from the i-th on: all shards together are all tasks, and no two share one.

    Raises:
        ValueError: there is no such shard.
    """
    number, count = shard
    if not 1 <= number <= count:
        raise ValueError(
            f"shards are counted from 1/{max(1, count)} to {max(1, count)}/{max(1, count)}, "
            f"got {number}/{count}"
        )
    return list(tasks[number - 1 :: count])


def _plays(tasks: TaskSet, n: int | None, samples: int, shard: tuple[int, int], seed: int) -> list[Play]:
    chosen = [(number, tasks[number].id) for number in shard_of(choose(len(tasks), n, seed), shard)]
    return [
        Play(number, task_id, sample, cast(int, derived_seed(seed, f"{task_id}/{sample}")))
        for number, task_id in chosen
        for sample in range(samples)
    ]


def _play_all(
    env_id: str, env_kwargs: Mapping[str, Any], policy: Policy, plays: Iterable[Play], record: _Recorder
) -> None:
    """Episodes of a scripted policy, one after the other; an environment that broke is replaced."""
    env: ToolEnv | None = None
    try:
        for asked in plays:
            env = env or make(env_id, env_kwargs)
            episode = play(env, env_id, policy, asked)
            record(episode)
            if episode.failed:
                broken, env = env, None
                broken.close()
    finally:
        if env is not None:
            env.close()


def _sample(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    engine: Engine | TextEngine,
    sampling: Sampling,
    plays: Sequence[Play],
    concurrency: int,
    structured: bool,
    record: _Recorder,
) -> None:
    from agent_r1_env.rollout import EpisodeRequest, Rollout

    requests = [
        EpisodeRequest(each.task, each.seed, each.task, each.sample, f"{each.task_id}/{each.sample}")
        for each in plays
    ]
    rollout = Rollout(
        env_id,
        env_kwargs,
        engine=engine,
        sampling=sampling,
        concurrency=concurrency,
        on_episode=record,
        structured=structured,
    )
    with rollout:
        rollout.run(requests)


class _Recorder:
    """Takes each episode as it ends: scores it, keeps it, writes it down, and tells how far we are.

    Attributes:
        episodes: by task id and sample; those that an earlier run left in the folder are there at the start.
    """

    def __init__(
        self,
        total: int,
        tasks: TaskSet,
        file: str | Path | None,
        folder: RunFolder | None,
        progress: Progress | None,
    ) -> None:
        self._total, self._tasks, self._progress = total, tasks, progress
        self._folder = folder
        self._file = EpisodeFile(file) if file is not None else None
        self.episodes: dict[Key, Episode] = {} if folder is None else dict(folder.kept)
        self._tell()

    def __call__(self, episode: Episode) -> None:
        task = self._tasks[episode.group]
        episode = replace(episode, task_id=task.id)  # one that broke in ``reset`` never said
        if episode.error is None:
            episode = _scored(episode, task.answers)
        self.episodes[episode.task_id, episode.sample] = episode
        if self._file is not None:
            self._file.append(episode)
        if self._folder is not None:
            self._folder.append(episode)
        self._tell()

    def close(self) -> None:
        """Let go of file and folder."""
        for each in (self._file, self._folder):
            if each is not None:
                each.close()

    def _tell(self) -> None:
        if self._progress is not None and self.episodes:
            self._progress(len(self.episodes), self._total)


def _scored(episode: Episode, answers: Sequence[str]) -> Episode:
    """The episode with a score of its answer for each of ``SCORES`` that it lacks."""
    if not answers:
        return episode
    said = (episode.answer or "").strip()  # nothing said is wrong, also where the gold normalises to nothing
    scores = {name: score(said, answers) if said else 0.0 for name, score in SCORES.items()}
    return replace(episode, metrics={**scores, **episode.metrics})


def _official(
    episodes: Sequence[Episode], tasks: TaskSet, output: str | Path | None
) -> dict[str, dict[str, float]]:
    """What the data set's own scorer says of each first sample; its file of predictions is written, too."""
    dataset = predictions.dataset_of(tasks)
    first = [each for each in episodes if each.sample == 0 and each.error is None]
    if dataset is None or not first:
        return {}
    said = predictions.predict(first, tasks)
    rows = predictions.scored(dataset, said, tasks)
    if output is not None:
        predictions.write(Path(output), dataset, said)
        write_json(Path(output) / OFFICIAL, rows)
    return rows


def _who(engine: Engine | TextEngine | None, sampling: Sampling | None) -> dict[str, Any]:
    """What else tells one policy from another, and one version of this package from the next."""
    from agent_r1_env import __version__  # here, for the package itself imports this one's neighbours

    kind = None if engine is None else [type(engine).__name__, getattr(engine, "url", None)]
    asked = None if sampling is None else dataclasses.asdict(sampling)
    return {"engine": kind, "sampling": asked, "version": __version__}


def _default_sampling(samples: int, seed: int) -> Sampling:
    from agent_r1_env.engines import Sampling

    return Sampling(temperature=0.0 if samples == 1 else 1.0, seed=seed)
