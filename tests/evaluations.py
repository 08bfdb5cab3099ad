"""Evaluations made of scores, for the tests of tables and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_r1_env.summary import Evaluation, summarise


def evaluation(
    scores: Sequence[float] | Mapping[str, Sequence[float]],
    *,
    env_id: str = "AgentR1/HotpotQA-v0",
    data: str = "the file 'dev.json'",
    policy: str = "model",
    row: Mapping[str, Any] | None = None,
    **about: Any,
) -> Evaluation:
    """One whose tasks scored ``exact_match`` as given: one score for each task, or several by task id.

    Args:
        row: what else stands in every row.
        about: further arguments of ``summarise``.
    """
    if not isinstance(scores, Mapping):
        scores = {f"q{number}": [score] for number, score in enumerate(scores)}
    rows = [
        {
            "task": number,
            "task_id": task,
            "sample": sample,
            "reward": score,
            "metrics": {"exact_match": score, "f1": score / 2 + 0.25, "tool_calls": 2.0},
            "answer": "x",
            "steps": 3,
            "calls": 2,
            "calling": 2,
            "invalid_calls": 1,
            "prompt_tokens": 100,
            "reply_tokens": 7,
            "truncated": False,
            "stop_reason": "answer",
            "error": None,
            **(row or {}),
        }
        for number, (task, samples) in enumerate(scores.items())
        for sample, score in enumerate(samples)
    ]
    samples = max(map(len, scores.values()), default=1)
    return summarise(rows, env_id=env_id, data=data, policy=policy, samples=samples, **about)
