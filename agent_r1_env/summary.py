"""What an evaluation came to: one plain row for each episode, and means over tasks with their uncertainty.

Several samples of one task are no independent data: they are averaged first, and intervals are over tasks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from agent_r1_env.batch import facts
from agent_r1_env.episode import Episode
from agent_r1_env.official import Metrics, means
from agent_r1_env.statistics import Interval, bootstrap, interval

Row = Mapping[str, Any]

_COUNTS = frozenset({"tool_calls", "invalid_calls", "repaired_calls", "steps"})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out of one evaluation.

    Attributes:
        method: how the questions were put, see `agent_r1_env.methods`.
        data: which source the tasks came from.
        synthetic: the tasks were made by a script.
        tasks: tasks with an episode that counts.
        samples: episodes that were asked for of each task.
        n: episodes that count; every mean is over these, each task counting once.
        failed: episodes lost because the environment itself broke; they count nowhere else.
        metrics: the environment's own numbers at the end of an episode, and where its tasks have answers
            ``exact_match``, ``sub_exact_match`` and ``f1``.
        best: of the reward and every score, the best of each task's samples; empty for one sample.
        official: metrics of the data set's own scorer, for the first sample of every task; empty for a data
            set without one.
        tool_calls: of one episode.
        prompt_tokens: of all prompts of an episode together; NaN where nobody counted.
        reply_tokens: of all its replies together.
        tool_call_rate: share of replies with a tool call in them.
        invalid_call_rate: share of calls that were malformed, named no tool or had wrong arguments.
        answer_rate: share of episodes with a final answer, right or wrong.
        truncation_rate: share of episodes that ended without the task being over.
        stop_reasons: number of episodes by the reason why they ended.
        prefix_cache_hit_rate: share of prompt tokens that the engine had in its cache; NaN where it did not
            tell.
        seconds: that this run took; those of an earlier run that it went on with are not in it.
        rows: one for each episode, failed ones too, by task and sample; see ``row_of``.
        official_rows: what ``official`` has the means of, by the question's id in the data set.
    """

    env_id: str
    policy: str
    method: str
    data: str
    synthetic: bool
    tasks: int
    samples: int
    n: int
    failed: int
    seed: int
    reward: Interval
    metrics: Mapping[str, Interval]
    best: Mapping[str, Interval]
    official: Mapping[str, float]
    steps: Interval
    tool_calls: Interval
    prompt_tokens: Interval
    reply_tokens: Interval
    tool_call_rate: float
    invalid_call_rate: float
    answer_rate: float
    truncation_rate: float
    stop_reasons: Mapping[str, int]
    seconds: float
    prefix_cache_hit_rate: float = math.nan
    rows: Sequence[Row] = field(default=(), repr=False)
    official_rows: Mapping[str, Metrics] = field(default_factory=dict, repr=False)

    def to_dict(self, rows: bool = False) -> dict[str, Any]:
        """Plain data for JSON; a mean of nothing is None."""
        kept = self if rows else replace(self, rows=(), official_rows={})
        data: dict[str, Any] = without_nan(asdict(kept))
        if not rows:
            del data["rows"], data["official_rows"]
        return data

    def samples_of(self, metric: str) -> dict[str, list[float]]:
        """The scores of each task's samples, in their order, by task id; for pass@k and paired tests.

        Args:
            metric: ``reward`` or a name of ``metrics``.
        """
        found: defaultdict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            if row["error"] is None:
                found[row["task_id"]].append(_value(row, metric))
        return dict(found)


def row_of(episode: Episode) -> dict[str, Any]:
    """One episode as plain data.

    ``task`` is its number in the data set, ``calls`` the number of tool calls and ``calling`` of replies with
    one, ``metrics`` what the environment reports, ``error`` what broke it or None. Numbers of tokens are None
    where nobody counted them. The engine told of ``cached_of`` prompt tokens whether they were in its cache,
    and ``cached_tokens`` of these were.
    """
    known = facts(episode)
    cached, cached_of = known["cached"]
    return {
        "env_id": episode.env_id,
        "task": episode.group,
        "task_id": episode.task_id,
        "sample": episode.sample,
        "seed": episode.seed,
        "reward": known["reward"],
        "metrics": known["metrics"],
        "answer": episode.answer,
        "steps": known["steps"],
        "calls": known["calls"],
        "calling": known["calling"],
        "invalid_calls": known["invalid"],
        "prompt_tokens": _total(step.prompt_tokens for step in episode.steps),
        "reply_tokens": _total(step.reply_tokens for step in episode.steps),
        "cached_tokens": cached,
        "cached_of": cached_of,
        "terminated": episode.terminated,
        "truncated": known["truncated"],
        "stop_reason": known["stop"],
        "generate_seconds": math.fsum(step.generate_seconds for step in episode.steps),
        "tool_seconds": math.fsum(step.tool_seconds for step in episode.steps),
        "error": episode.error,
    }


def summarise(
    rows: Sequence[Row],
    *,
    env_id: str,
    policy: str,
    method: str = "tool_call",
    data: str = "",
    synthetic: bool = False,
    samples: int = 1,
    seed: int = 0,
    seconds: float = 0.0,
    official: Mapping[str, Metrics] | None = None,
) -> Evaluation:
    """Average rows, and those of the data set's own scorer. Means of nothing are NaN."""
    in_order = sorted(rows, key=lambda row: (row["task"], row["sample"]))  # they ended in any order
    counted = [row for row in in_order if row["error"] is None]
    # A kind of failure is counted in the episodes where it occurred.
    names = dict.fromkeys(name for row in counted for name in row["metrics"])
    scores = ["reward", *(name for name in names if not is_count(name))] if samples > 1 else []
    return Evaluation(
        env_id=env_id,
        policy=policy,
        method=method,
        data=data,
        synthetic=synthetic,
        tasks=len({row["task_id"] for row in counted}),
        samples=samples,
        n=len(counted),
        failed=len(rows) - len(counted),
        seed=seed,
        reward=interval(per_task(counted, "reward")),
        metrics={name: _metric(name, per_task(counted, name)) for name in names},
        best={name: interval(per_task(counted, name, max)) for name in scores},
        official=means(official or {}),
        steps=bootstrap(per_task(counted, "steps")),
        tool_calls=bootstrap(per_task(counted, "calls")),
        prompt_tokens=bootstrap(per_task(counted, "prompt_tokens")),
        reply_tokens=bootstrap(per_task(counted, "reply_tokens")),
        tool_call_rate=_share(counted, "calling", "steps"),
        invalid_call_rate=_share(counted, "invalid_calls", "calls"),
        answer_rate=fmean(row["answer"] is not None for row in counted) if counted else math.nan,
        truncation_rate=fmean(row["truncated"] for row in counted) if counted else math.nan,
        stop_reasons=dict(Counter(row["stop_reason"] for row in counted).most_common()),
        seconds=seconds,
        prefix_cache_hit_rate=_hits(counted),
        rows=in_order,
        official_rows=official or {},
    )


def per_task(rows: Iterable[Row], name: str, of: Callable[[Sequence[float]], float] = fmean) -> list[float]:
    """One number for each task: what ``of`` makes of its samples; tasks without the number are left out."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        if (value := _value(row, name)) is not None:
            found[row["task_id"]].append(value)
    return [float(of(values)) for values in found.values()]


def is_count(metric: str) -> bool:
    """Whether a metric counts things and says nothing of how good an episode was."""
    return metric in _COUNTS or metric.startswith(("calls/", "simulated/"))


def _metric(name: str, values: Sequence[float]) -> Interval:
    # A count may be 0 or 1 in every episode and still be no share of anything.
    return bootstrap(values) if is_count(name) else interval(values)


def _value(row: Row, name: str) -> Any:
    return row[name] if name in row else row["metrics"].get(name, 0.0)


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _share(rows: Sequence[Row], part: str, whole: str) -> float:
    return float(sum(row[part] for row in rows) / max(1, sum(row[whole] for row in rows)))


def _hits(rows: Sequence[Row]) -> float:
    told = sum(row.get("cached_of", 0) for row in rows)  # rows of older folders do not say
    return sum(row.get("cached_tokens", 0) for row in rows) / told if told else math.nan


def without_nan(value: Any) -> Any:
    """Plain data with None in place of every NaN."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
