"""What is logged of each update, and what it means. `TABLE` documents every name once, with its range.

The numbers of episodes and advantages beside `batch.summary` are computed here: plain Python on plain data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from agent_r1_env.episode import Episode
from agent_r1_env.errors import unknown_name
from agent_r1_env.trajectory import Row

_INF = float("inf")
OUTSIDE = "truncation"
"""The reward term of what was paid outside any step, when the rollout itself ended an episode."""


@dataclass(frozen=True)
class Metric:
    """One logged number.

    Attributes:
        meaning: what is counted, over what.
        low: least possible value.
        high: greatest possible value.
    """

    meaning: str
    low: float = 0.0
    high: float = 1.0


TABLE: Mapping[str, Metric] = {
    "reward": Metric("reward of an episode, mean over the batch", -_INF, _INF),
    "reward_std": Metric("standard deviation of the rewards of all episodes of the batch", 0, _INF),
    "frac_reward_zero_std": Metric("share of groups whose rewards are all equal: they teach nothing"),
    "entropy": Metric("entropy of the policy in nats, mean over the tokens that it wrote", 0, _INF),
    "grad_norm": Metric("length of the gradient before clipping", 0, _INF),
    "loss": Metric("value of the loss; its gradient counts, its size says little", -_INF, _INF),
    "learning_rate": Metric("of this update", 0, _INF),
    "kl": Metric("estimated divergence from the reference model, where beta is not 0", 0, _INF),
    "clip_ratio/": Metric("share of the policy's tokens whose ratio was clipped"),
    "cispo_clip_ratio": Metric("share of the policy's tokens whose weight was clipped"),
    "sampling/sampling_logp_difference/": Metric(
        "absolute difference between the log-probs of the engine that sampled and those of the trainer, over "
        "the policy's tokens: mean and max",
        0,
        _INF,
    ),
    "sampling/importance_sampling_ratio/": Metric(
        "probability under the trainer over that under the engine: min, mean and max", 0, _INF
    ),
    "completions/": Metric("TRL's lengths of rows, tool results included", 0, _INF),
    "num_tokens": Metric("tokens seen so far", 0, _INF),
    "step_time": Metric("seconds of the update, rollout included", 0, _INF),
    "epoch": Metric("passes over the tasks so far", 0, _INF),
    "agent/episode_reward": Metric("the same as reward", -_INF, _INF),
    "agent/reward/": Metric(
        "what one term paid an episode, weighted, mean; the terms sum up to reward", -_INF, _INF
    ),
    "agent/steps_per_episode": Metric("replies of an episode, mean", 0, _INF),
    "agent/tokens_per_reply": Metric("sampled tokens of a reply, mean; absent where nobody counted", 0, _INF),
    "agent/tool_call_rate": Metric("share of replies with a tool call, good or bad"),
    "agent/invalid_call_rate": Metric("share of calls that could not be read, named no tool or did not fit"),
    "agent/repeat_call_rate": Metric(
        "share of calls that repeat an earlier call of their episode: same tool, same arguments"
    ),
    "agent/truncated_fraction": Metric("share of episodes that a limit ended"),
    "agent/stop/": Metric("share of episodes that ended for one reason: answer, max_steps, length, ..."),
    "agent/merged_fraction": Metric("share of later steps that went on in the row of the step before"),
    "agent/rows_real": Metric("rows of the batch", 0, _INF),
    "agent/rows_padded": Metric("rows of each process after padding", 0, _INF),
    "agent/mask_coverage": Metric("trained tokens over all tokens of the rows, prompts included"),
    "agent/advantage/mean": Metric("advantage of a step, mean", -_INF, _INF),
    "agent/advantage/std": Metric("standard deviation of the advantages of steps", 0, _INF),
    "agent/advantage/min": Metric("least advantage of a step", -_INF, _INF),
    "agent/advantage/max": Metric("greatest advantage of a step", -_INF, _INF),
    "agent/advantage/zero": Metric("share of steps whose advantage is exactly 0"),
    "agent/drift": Metric("trained tokens that are not the sampled ones; anything but 0 is a fault", 0, _INF),
    "agent/prefix_cache_hit_rate": Metric(
        "share of prompt tokens that the engine had in its cache; absent where it does not tell"
    ),
    "agent/rollout_seconds": Metric("seconds of playing the episodes", 0, _INF),
    "agent/staleness/mean": Metric(
        "with overlap: age of a sampled token, in updates from the weights that drew it to the last one that "
        "trains on it, mean",
        0,
        _INF,
    ),
    "agent/staleness/max": Metric(
        "with overlap: age of the oldest token; at most overlap.staleness", 0, _INF
    ),
    "agent/overlap_wait_seconds": Metric(
        "with overlap: seconds that the trainer waited for the episodes", 0, _INF
    ),
    "agent/overlap_hidden": Metric(
        "with overlap: share of rollout_seconds in which the trainer did other work"
    ),
    "agent/": Metric("a metric of the environment, mean over the episodes", -_INF, _INF),
    "critic/explained_variance": Metric("share of the variance of returns that the critic knew", -_INF),
    "critic/clip_fraction": Metric("share of values that moved further than the critic's clip_range"),
    "critic/": Metric("of PPO's critic: value, return, loss, grad_norm, learning_rate", -_INF, _INF),
    "eval/": Metric("of the evaluation on held-out tasks after this update", -_INF, _INF),
}
"""By name; a name that ends in a slash stands for all that begin so and have no line of their own."""


def describe(name: str) -> Metric:
    """What a logged name means.

    Raises:
        UnknownName: nothing of that name is logged.
    """
    prefixes = [name[: end + 1] for end in range(len(name) - 1, -1, -1) if name[end] == "/"]
    for known in (name, *prefixes):
        if known in TABLE:
            return TABLE[known]
    raise unknown_name("metric", name, TABLE)


def of_episode(episode: Episode) -> dict[str, Any]:
    """The part of `batch.facts` that `of_batch` needs: plain data."""
    terms: dict[str, float] = {}
    for step in episode.steps:
        for name, paid in step.reward_terms.items():
            terms[name] = terms.get(name, 0.0) + float(paid)
    if episode.truncation_reward:
        terms[OUTSIDE] = float(episode.truncation_reward)
    counted = [len(step.response_ids) or step.reply_tokens for step in episode.steps]
    told = [step for step in episode.steps if step.cached_tokens is not None]
    return {
        "repeated": _repeated(episode),
        "cached": (sum(step.cached_tokens or 0 for step in told), sum(len(step.prompt_ids) for step in told)),
        "reply_tokens": [tokens for tokens in counted if tokens is not None],
        "terms": terms,
    }


def of_batch(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Repeated calls, length of replies and reward terms of a batch, from the `facts` of its episodes."""
    result = {
        "repeat_call_rate": sum(e["repeated"] for e in episodes) / max(1, sum(e["calls"] for e in episodes))
    }
    tokens = [count for e in episodes for count in e["reply_tokens"]]
    if tokens:
        result["tokens_per_reply"] = fmean(tokens)
    if prompted := sum(e["cached"][1] for e in episodes):
        result["prefix_cache_hit_rate"] = sum(e["cached"][0] for e in episodes) / prompted
    for name in sorted({name for e in episodes for name in e["terms"]}):
        result[f"reward/{name}"] = fmean(e["terms"].get(name, 0.0) for e in episodes)
    return result


def of_advantages(advantages: Iterable[Sequence[float]]) -> dict[str, float]:
    """Statistics over all steps, from each episode's advantages by step, before the loss weighs them."""
    flat = [advantage for episode in advantages for advantage in episode]
    if not flat:
        return {}
    return {
        "advantage/mean": fmean(flat),
        "advantage/std": pstdev(flat),
        "advantage/min": min(flat),
        "advantage/max": max(flat),
        "advantage/zero": fmean(advantage == 0 for advantage in flat),
    }


def covered(rows: Iterable[Row]) -> tuple[int, int]:
    """Trained tokens of some rows and all their tokens, prompts included."""
    sizes = [(sum(row.loss_mask), len(row.prompt_ids) + len(row.loss_mask)) for row in rows]
    return sum(trained for trained, _ in sizes), sum(size for _, size in sizes)


def coverage(parts: Iterable[tuple[int, int]]) -> float:
    """The share of trained tokens, from what each process has `covered`; 0 where there is none."""
    known = list(parts)
    return sum(trained for trained, _ in known) / max(1, sum(size for _, size in known))


def _repeated(episode: Episode) -> int:
    """Calls that ask again; those that could not be read have no arguments and ask nothing."""
    asked = [
        (call.get("name"), json.dumps(call["arguments"], sort_keys=True, default=str))
        for step in episode.steps
        for call in step.calls
        if call.get("arguments") is not None
    ]
    return len(asked) - len(set(asked))
