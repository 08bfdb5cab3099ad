"""Padding, weights, drift and metrics of a batch, without a trainer."""

from __future__ import annotations

import pytest

from agent_r1_env.batch import columns, count_drift, facts, reward_spread, summary
from agent_r1_env.episode import Episode, Step
from agent_r1_env.trajectory import Row, rows


def row(tokens: int, episode: int, advantage: float = 1.0) -> Row:
    return Row([1], [2] * tokens, [1] * tokens, [-1.0] * tokens, [advantage] * tokens, episode)


def episode(*steps: Step, group: int = 0, error: str | None = None, stop: str = "answer") -> Episode:
    metrics = {"exact_match": sum(step.reward for step in steps)}
    return Episode("E-v0", "t", 0, group, steps, True, stop_reason=stop, metrics=metrics, error=error)


def step(
    prompt: list[int], response: list[int], reward: float = 0.0, calls: tuple[dict[str, object], ...] = ()
) -> Step:
    return Step(prompt, response, [-1.0] * len(response), reward, calls=calls)


def test_padding_rows_are_masked_and_one_token_long() -> None:
    padded = columns([row(3, 0)], 3, token=9)
    assert padded["env_mask"] == [[1, 1, 1], [0], [0]]
    assert padded["completion_ids"][1:] == padded["prompt_ids"][1:] == [[9], [9]]
    assert {name: len(column) for name, column in padded.items()} == dict.fromkeys(padded, 3)


def test_drift_counts_changed_missing_and_added_tokens() -> None:
    played = [episode(step([1], [5, 6]), step([1, 5, 6, 7], [8])), episode(step([1], [4]))]
    made = [r for number, e in enumerate(played) for r in rows(e, [0.0] * len(e.steps), number)]
    assert count_drift([[5, 6, 8], [4]], made, played) == 0
    assert count_drift([[5, 6, 9], [4]], made, played) == 1
    assert count_drift([[5, 6], [4, 4]], made, played) == 2


def test_an_episode_that_broke_must_not_be_trained_on() -> None:
    broken = [episode(step([1], [5]), error="boom")]
    assert count_drift([], [], broken) == 0
    assert count_drift([[5]], [row(1, 0)], broken) == 1


def test_rates_are_by_reply_and_by_call() -> None:
    good, bad = {"error": None}, {"error": "malformed_call"}
    known = [
        facts(episode(step([1], [2], calls=(good, bad)), step([1, 2], [3], 1.0))),
        facts(episode(step([1], [2], calls=(good, {"error": "tool_error"})), stop="length")),
    ]
    found = summary(known, rows=2)
    assert found["tool_call_rate"] == pytest.approx(2 / 3)
    assert found["invalid_call_rate"] == pytest.approx(1 / 4)
    assert found["steps_per_episode"] == 1.5
    assert found["merged_fraction"] == 1.0
    assert found["stop/length"] == found["exact_match"] == found["episode_reward"] == 0.5


def test_the_merged_fraction_is_left_out_where_nothing_could_merge() -> None:
    assert "merged_fraction" not in summary([facts(episode(step([1], [2])))], rows=1)


def test_the_spread_tells_constant_groups() -> None:
    known = [{"group": g, "reward": r} for g, r in ((0, 1.0), (0, 1.0), (1, 0.0), (1, 1.0))]
    deviation, constant = reward_spread(known)
    assert (round(deviation, 3), constant) == (0.433, 0.5)
