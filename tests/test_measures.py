"""Tests of measures: which there are, what they come to, and what they are for each task."""

from __future__ import annotations

import math
from typing import Any

import pytest
from evaluations import evaluation

from agent_r1_env import measures
from agent_r1_env.errors import UnknownName
from agent_r1_env.measures import by_task, headlines, measure, names
from agent_r1_env.statistics import Interval, wilson

OFFICIAL = {"q0": {"em": 1.0, "joint_f1": 0.5}, "q1": {"em": 0.0, "joint_f1": 0.25}}
SAMPLED = {"a": [1.0, 0.0, 0.0, 0.0], "b": [0.0, 0.0, 0.0, 0.0]}


def mean(found: Any, name: str) -> float:
    value = measure(found, name)
    assert value is not None
    return value.mean


def test_scores_come_first_and_counts_last() -> None:
    found = evaluation(
        SAMPLED, official=OFFICIAL, row={"metrics": {"won": 1.0, "invalid_calls": 0.0, "f1": 1.0}}
    )
    assert names(found) == [
        *("f1", "won", "official/em", "official/joint_f1", "pass@1", "pass@2", "pass@4", "reward"),
        *("steps", "tool_calls", "prompt_tokens", "reply_tokens", "tool_call_rate", "invalid_call_rate"),
        *("answer_rate", "truncation_rate", "invalid_calls"),
    ]


def test_every_measure_that_is_named_is_there() -> None:
    found = evaluation(SAMPLED, official=OFFICIAL)
    for name in names(found):
        assert isinstance(measure(found, name), Interval), name
    assert measure(found, "absent") is None
    assert by_task(found, "absent") == {}


def test_rates_are_shares_of_all_replies_and_calls() -> None:
    found = evaluation([1.0, 0.0])
    assert mean(found, "tool_call_rate") == pytest.approx(found.tool_call_rate) == pytest.approx(2 / 3)
    assert mean(found, "invalid_call_rate") == pytest.approx(found.invalid_call_rate) == 0.5
    assert measure(found, "truncation_rate") == wilson(0, 2)
    assert measure(found, "answer_rate") == wilson(2, 2)


def test_a_run_without_calls_has_no_rate_of_invalid_ones() -> None:
    found = evaluation([1.0], row={"calls": 0, "invalid_calls": 0, "calling": 0})
    assert math.isnan(mean(found, "invalid_call_rate"))


def test_tokens_that_nobody_counted_are_no_measure() -> None:
    found = evaluation([1.0], row={"prompt_tokens": None, "reply_tokens": None})
    assert "reply_tokens" not in names(found)
    assert measure(found, "reply_tokens") is None
    assert by_task(found, "reply_tokens") == {}


def test_official_scores_have_intervals_and_tasks() -> None:
    found = evaluation([1.0, 0.0], official=OFFICIAL)
    assert measure(found, "official/em") == wilson(1, 2)
    assert by_task(found, "official/joint_f1") == {"q0": 0.5, "q1": 0.25}


def test_several_samples_of_a_task_are_averaged() -> None:
    found = evaluation(SAMPLED)
    assert by_task(found, "exact_match") == {"a": 0.25, "b": 0.0}
    assert by_task(found, "tool_calls") == {"a": 2.0, "b": 2.0}


def test_pass_at_k_is_of_rewards_of_zero_and_one() -> None:
    found = evaluation(SAMPLED)
    assert measures.success(found) == "reward"
    assert by_task(found, "pass@2") == {"a": pytest.approx(0.5), "b": 0.0}
    assert measure(found, "pass@4") == wilson(1, 2)
    assert mean(found, "pass@3") == pytest.approx(0.375)
    assert measure(found, "pass@5") is None


def test_pass_at_k_is_of_exact_answers_where_rewards_are_finer() -> None:
    found = evaluation(SAMPLED, row={"reward": 0.3})
    assert measures.success(found) == "exact_match"
    assert mean(found, "pass@4") == 0.5


def test_without_zeros_and_ones_nothing_passes() -> None:
    found = evaluation(SAMPLED, row={"reward": 0.3, "metrics": {"milestones": 0.5}})
    assert measures.success(found) is None
    assert measure(found, "pass@2") is None
    assert not any(name.startswith("pass@") for name in names(found))


def test_a_task_that_lost_samples_is_left_out_of_larger_k() -> None:
    found = evaluation({"a": [1.0, 1.0], "b": [0.0]})
    assert by_task(found, "pass@2") == {"a": 1.0}
    assert by_task(found, "pass@1") == {"a": 1.0, "b": 0.0}


def test_one_sample_has_no_pass_at_k() -> None:
    assert measure(evaluation([1.0, 0.0]), "pass@1") is None


def test_an_evaluation_of_nothing_has_measures_of_nothing() -> None:
    found = evaluation([1.0], row={"error": "gone"})
    for name in names(found):
        value = measure(found, name)
        assert value is None or math.isnan(value.mean), name
    assert by_task(found, "reward") == {}


def test_headlines_are_those_of_answers_or_the_reward() -> None:
    asked = evaluation([1.0])
    played = evaluation([1.0], row={"metrics": {"won": 1.0}})
    assert headlines([asked]) == ["exact_match", "f1"]
    assert headlines([played]) == ["reward"]
    assert headlines([asked, played]) == ["exact_match", "f1", "reward"]


def test_an_unknown_measure_is_refused_with_the_nearest() -> None:
    found = evaluation(SAMPLED, official=OFFICIAL)
    with pytest.raises(UnknownName, match="no metric named 'offical/em'; did you mean 'official/em'"):
        measures.check_names(["f1", "offical/em"], [found])
    measures.check_names(["pass@3", "f1"], [evaluation([1.0]), found])


@pytest.mark.parametrize(
    ("name", "sign"),
    [("f1", 1), ("official/sp_f1", 1), ("pass@8", 1), ("truncation_rate", -1), ("steps", 0), ("moves", 0)],
)
def test_what_is_better_is_said_only_where_it_is_known(name: str, sign: int) -> None:
    assert measures.better(name) == sign
