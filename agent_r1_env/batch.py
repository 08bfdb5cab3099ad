"""What a batch needs beside its rows: padding, the drift count and the metrics of its episodes.

Plain Python on plain data, so that it can be tested and reused without TRL.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from . import metrics
from .advantage import Floats
from .credit import CreditBatch
from .episode import Episode, Step
from .messages import INVALID_CALLS
from .trajectory import Row, drift, sampled_ids


def columns(rows: Sequence[Row], size: int, token: int) -> dict[str, list[Any]]:
    """Rows as the columns of TRL's ``rollout_func``, filled up to ``size`` with rows that no loss covers.

    A padding row is the cheapest legal one: ``token`` as prompt, ``token`` as completion, mask 0.
    """
    padding = size - len(rows)
    return {
        "prompt_ids": [list(row.prompt_ids) for row in rows] + [[token]] * padding,
        "completion_ids": [list(row.completion_ids) for row in rows] + [[token]] * padding,
        "logprobs": [list(row.logprobs) for row in rows] + [[0.0]] * padding,
        "env_mask": [list(row.loss_mask) for row in rows] + [[0]] * padding,
    }


def count_drift(trained: Iterable[Sequence[int]], rows: Sequence[Row], episodes: Sequence[Episode]) -> int:
    """Number of tokens about which a batch and the sampler disagree.

    Args:
        trained: For each row, the ids that the loss takes for the policy's own, in order.
        rows: Say which episode each of them belongs to.
        episodes: Hold the ids as the engine sampled them; failed ones are not to be trained on.
    """
    held: defaultdict[int, list[int]] = defaultdict(list)
    own: defaultdict[int, list[Row]] = defaultdict(list)
    for ids, row in zip(trained, rows, strict=True):
        held[row.episode].extend(ids)
        own[row.episode].append(row)
    return sum(
        drift([] if episode.failed else sampled_ids(episode), held[number])
        if not any(row.cut for row in own[number])
        else _drift_of_cut(episode, own[number], held[number])
        for number, episode in enumerate(episodes)
    )


def _drift_of_cut(episode: Episode, rows: Sequence[Row], held: Sequence[int]) -> int:
    """The same for an episode of which a limit took ids: those are counted, and the others must be there."""
    spans = [span for row in rows for span in row.spans]
    left = [int(i) for step, start, stop in spans for i in episode.steps[step].response_ids[: stop - start]]
    missing = len(sampled_ids(episode)) - len(left) - sum(row.cut for row in rows)
    return drift(left, held) + abs(missing)


def facts(episode: Episode) -> dict[str, Any]:
    """The little of an episode that every rank needs: plain data."""
    calls = [call for step in episode.steps for call in step.calls]
    return {
        "group": episode.group,
        "name": _name(episode),
        "reward": float(episode.reward),
        "step_rewards": [float(step.reward) for step in episode.steps],
        "outside": float(episode.truncation_reward),
        "outcome": episode.outcome_reward,
        "anchors": [_anchor(step) for step in episode.steps],
        "failed": episode.failed,
        "steps": len(episode.steps),
        "sampled": sum(bool(step.response_ids) for step in episode.steps),
        "calling": sum(bool(step.calls) for step in episode.steps),
        "calls": len(calls),
        "invalid": sum(call.get("error") in INVALID_CALLS for call in calls),
        "truncated": bool(episode.truncated),
        "stop": episode.stop_reason or "none",
        "metrics": {name: float(value) for name, value in episode.metrics.items()},
        **metrics.of_episode(episode),
    }


def credit_batch(episodes: Sequence[Mapping[str, Any]]) -> CreditBatch:
    """What credit is assigned from: the `facts` of the episodes of one batch.

    A critic adds to them ``values``, one a step, and ``after``, of what follows a truncated episode.

    Raises:
        ValueError: a reward is NaN or infinite; the message names the episode.
    """
    for episode in episodes:
        _check(episode)
    outcomes = [episode["outcome"] for episode in episodes]
    judged = all("values" in episode for episode in episodes)
    lengths = [len(episode["step_rewards"]) for episode in episodes]
    return CreditBatch(
        rewards_S=_floats(reward for e in episodes for reward in e["step_rewards"]),
        episode_S=np.repeat(np.arange(len(episodes)), lengths),
        groups_N=[episode["group"] for episode in episodes],
        outside_N=_floats(episode["outside"] for episode in episodes),
        outcomes_N=None if None in outcomes else _floats(outcomes),
        values_S=_floats(value for e in episodes for value in e["values"]) if judged else None,
        after_N=_floats(e["after"] for e in episodes) if judged else None,
        anchors_S=[anchor for episode in episodes for anchor in episode["anchors"]],
        greedy_N=_floats(e["greedy"] for e in episodes) if all("greedy" in e for e in episodes) else None,
    )


def add_greedy(episodes: Sequence[dict[str, Any]], rewards: Mapping[int, float]) -> None:
    """Add the reward of the greedy episode of their group to the `facts` of episodes.

    Args:
        rewards: by group; where one is missing, the mean of the group stands in.
    """
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for episode in episodes:
        if not episode["failed"]:
            groups[episode["group"]].append(episode["reward"])
    for episode in episodes:
        group = episode["group"]
        episode["greedy"] = rewards[group] if group in rewards else fmean(groups[group] or [0.0])


def _name(episode: Episode) -> str:
    return f"of task {episode.task_id!r} with seed {episode.seed}"


def _check(episode: Mapping[str, Any]) -> None:
    """Refuse a reward that no advantage can be computed from."""
    paid = {f"reward of step {number}": reward for number, reward in enumerate(episode["step_rewards"])}
    paid |= {"reward at the end": episode["outside"], "outcome_reward": episode["outcome"] or 0.0}
    for what, reward in paid.items():
        if not math.isfinite(reward):
            raise ValueError(f"the {what} of the episode {episode['name']} is {reward}; it must be finite")


def _floats(numbers: Iterable[float]) -> Floats:
    return np.fromiter(numbers, dtype=np.float64)


def _anchor(step: Step) -> str:
    """What identifies the state of a step: its prompt, as short plain data."""
    ids = np.asarray(step.prompt_ids, dtype=np.int64).tobytes() or (step.prompt or "").encode()
    return hashlib.blake2b(ids, digest_size=8).hexdigest()


def summary(episodes: Sequence[dict[str, Any]], rows: int) -> dict[str, float]:
    """Metrics of a batch from the `facts` of its episodes and the number of its rows; see `metrics.TABLE`."""
    steps, sampled = sum(e["steps"] for e in episodes), sum(e["sampled"] for e in episodes)
    later = sum(max(0, e["sampled"] - 1) for e in episodes)
    result = {
        "episode_reward": fmean(e["reward"] for e in episodes),
        "steps_per_episode": steps / len(episodes),
        "tool_call_rate": sum(e["calling"] for e in episodes) / max(1, steps),
        "invalid_call_rate": sum(e["invalid"] for e in episodes) / max(1, sum(e["calls"] for e in episodes)),
        "truncated_fraction": fmean(e["truncated"] for e in episodes),
        "rows_real": float(rows),
    }
    if later:
        result["merged_fraction"] = (sampled - rows) / later
    for stop, count in Counter(e["stop"] for e in episodes).items():
        result[f"stop/{stop}"] = count / len(episodes)
    result |= metrics.of_batch(episodes)
    for name in sorted({name for e in episodes for name in e["metrics"]}):
        result[name] = fmean(e["metrics"].get(name, 0.0) for e in episodes)
    return result


def reward_spread(episodes: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Standard deviation of all episode rewards, and the share of groups in which all rewards are equal."""
    groups: defaultdict[int, set[float]] = defaultdict(set)
    for episode in episodes:
        groups[episode["group"]].add(episode["reward"])
    constant = fmean(len(rewards) == 1 for rewards in groups.values())
    return pstdev(e["reward"] for e in episodes), constant
