"""The numbers logged of each update, and their one table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_r1_env import metrics
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import UnknownName
from agent_r1_env.trajectory import Row


def asked(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "ok": True, "error": None}


def episode(*calls: list[dict[str, Any]], **options: Any) -> Episode:
    steps = tuple(
        Step([1, 2], [3] * size, [0.0] * size, calls=asked, reward_terms={"f1": 0.5, "calls": -0.1})
        for size, asked in enumerate(calls, 2)
    )
    return Episode("env", "task", 0, 0, steps, **options)


STEPS = [Step([1] * size, [2], [0.0]) for size in (4, 8, 100)]


def test_a_call_repeats_where_tool_and_arguments_are_those_of_an_earlier_one() -> None:
    first, other = asked("search", {"a": 1, "b": 2}), asked("search", {"a": 1, "b": 3})
    swapped, named = asked("search", {"b": 2, "a": 1}), asked("lookup", {"a": 1, "b": 2})
    unread = asked("search", None)
    found = metrics.of_episode(episode([first, other, unread], [swapped, named, unread]))
    assert found["repeated"] == 1


def test_rates_and_terms_are_means_over_the_batch() -> None:
    call = asked("search", {"query": "x"})
    episodes = [episode([call], [call], truncation_reward=-1.0), episode([call], [])]
    known = [metrics.of_episode(e) | {"calls": calls} for e, calls in zip(episodes, (2, 1), strict=True)]
    found = metrics.of_batch(known)
    assert found.pop("reward/calls") == pytest.approx(-0.2)
    assert found == {
        "repeat_call_rate": 1 / 3,
        "tokens_per_reply": 2.5,
        "reward/f1": 1.0,
        "reward/truncation": -0.5,
    }


def test_the_prefix_cache_is_judged_by_the_steps_of_which_the_engine_told() -> None:
    first, second, other = (replace(s, cached_tokens=c) for s, c in zip(STEPS, (0, 6, None), strict=True))
    known = [
        metrics.of_episode(Episode("env", "task", 0, 0, steps)) | {"calls": 0}
        for steps in ((first, second), (other,))
    ]
    assert metrics.of_batch(known)["prefix_cache_hit_rate"] == 6 / (4 + 8)
    assert "prefix_cache_hit_rate" not in metrics.of_batch(known[1:])
    assert metrics.describe("agent/prefix_cache_hit_rate").high == 1


def test_statistics_of_advantages_count_steps() -> None:
    found = metrics.of_advantages([[1.0, -1.0], [], [0.0, 2.0]])
    assert (found["advantage/mean"], found["advantage/min"], found["advantage/max"]) == (0.5, -1.0, 2.0)
    assert found["advantage/std"] == pytest.approx(1.25**0.5)
    assert found["advantage/zero"] == 0.25
    assert metrics.of_advantages([[]]) == {}


def test_coverage_is_the_share_of_trained_tokens_over_all_processes() -> None:
    row = Row([1, 2], [3, 4, 5], [1, 0, 1], [0.0] * 3, [0.0] * 3, 0)
    assert metrics.covered([row, row]) == (4, 10)
    assert metrics.coverage([(4, 10), (1, 2)]) == 5 / 12
    assert metrics.coverage([metrics.covered([])]) == 0.0


def test_a_name_has_the_line_of_its_longest_beginning() -> None:
    assert "paid" in metrics.describe("agent/reward/f1").meaning
    assert "environment" in metrics.describe("agent/exact_match").meaning
    assert metrics.describe("agent/drift") is metrics.TABLE["agent/drift"]
    with pytest.raises(UnknownName, match="did you mean 'entropy'"):
        metrics.describe("entropi")
