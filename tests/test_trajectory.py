"""Rows: exact masks, exact merging, nothing lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.episode import Episode, Step
from agent_r1_env.trajectory import Row, drift, rows, sampled_ids, trained_ids


def episode(*steps: tuple[list[int], list[int]]) -> Episode:
    """An episode of (prompt, response) pairs; the log-prob of an id is minus the id."""
    made = [Step(prompt, response, [-float(token) for token in response]) for prompt, response in steps]
    return Episode("Test/E-v0", "t", 0, 0, made)


GROWING = episode(([1, 2], [10, 11]), ([1, 2, 10, 11, 3, 4], [12]), ([1, 2, 10, 11, 3, 4, 12, 5], [13, 14]))


def test_a_growing_context_becomes_one_row() -> None:
    (row,) = rows(GROWING, [0.5, 0.5, 0.5], index=3)
    assert row.prompt_ids == [1, 2]
    assert row.completion_ids == [10, 11, 3, 4, 12, 5, 13, 14]
    assert row.loss_mask == [1, 1, 0, 0, 1, 0, 1, 1]
    assert row.logprobs == [-10, -11, 0, 0, -12, 0, -13, -14]
    assert row.advantages == [0.5, 0.5, 0, 0, 0.5, 0, 0.5, 0.5]
    assert row.episode == 3


def test_mask_one_means_sampled_by_the_model() -> None:
    # Flipping the polarity would train on the tool's tokens.
    (row,) = rows(episode(([1], [10, 11, 12]), ([1, 10, 11, 12, 2, 2], [13])), [1, 1], 0)
    assert row.loss_mask == [1, 1, 1, 0, 0, 1]


def test_all_turns_are_trained_not_only_the_last() -> None:
    (row,) = rows(GROWING, [1, 1, 1], 0)
    assert sum(row.loss_mask) == 5


def test_each_step_keeps_its_own_advantage() -> None:
    (row,) = rows(GROWING, [1.0, 2.0, 3.0], 0)
    assert row.advantages == [1, 1, 0, 0, 2, 0, 3, 3]


def test_a_rewritten_context_begins_a_new_row() -> None:
    first, second = rows(episode(([1, 2], [10]), ([1, 9, 10, 3], [11])), [1, 1], 0)
    assert (first.prompt_ids, first.completion_ids) == ([1, 2], [10])
    assert (second.prompt_ids, second.completion_ids) == ([1, 9, 10, 3], [11])


def test_a_prompt_that_re_encodes_a_reply_differently_is_not_merged() -> None:
    # Sampled as two ids, rendered again as one: the same text, other tokens.
    made = rows(episode(([1], [20, 21]), ([1, 22, 3], [11])), [1, 1], 0)
    assert [row.completion_ids for row in made] == [[20, 21], [11]]


def test_a_context_that_was_cut_at_its_end_is_not_merged() -> None:
    assert len(rows(episode(([1, 2], [10, 11]), ([1, 2, 10], [12])), [1, 1], 0)) == 2


def test_without_merging_each_step_is_a_row() -> None:
    made = rows(GROWING, [1, 2, 3], 0, merge=False)
    assert [row.prompt_ids for row in made] == [list(step.prompt_ids) for step in GROWING.steps]
    assert all(set(row.loss_mask) == {1} for row in made)


def test_an_empty_reply_is_legal_and_adds_nothing() -> None:
    made = rows(episode(([1], [10]), ([1, 10, 2], []), ([1, 10, 2, 3], [11])), [1, 1, 1], 0)
    assert len(made) == 1
    assert made[0].completion_ids == [10, 2, 3, 11]
    assert rows(episode(([1], [])), [1], 0) == []


def test_an_episode_without_steps_gives_no_rows() -> None:
    assert rows(episode(), [], 0) == []


def test_a_row_never_ends_in_environment_tokens() -> None:
    # The last reply is empty, so the observation before it is behind the last sampled id.
    (row,) = rows(episode(([1], [10]), ([1, 10, 2, 3], [])), [1, 1], 0)
    assert row.completion_ids == [10]


def test_the_ablation_trains_on_what_the_environment_wrote_between_replies() -> None:
    (row,) = rows(GROWING, [1.0, 2.0, 3.0], 0, loss_mask=False)
    assert row.loss_mask == [1] * 8
    assert row.advantages == [1, 1, 1, 1, 2, 2, 3, 3]
    assert [math.isnan(logprob) for logprob in row.logprobs] == [
        mask == 0 for mask in [1, 1, 0, 0, 1, 0, 1, 1]
    ]
    assert row.prompt_ids == [1, 2], "the prompt is never trained on"


@pytest.mark.parametrize(
    ("loss_mask", "advantage_mask", "trained_on", "advantages"),
    [
        (True, True, [1, 1, 0, 0, 1], [1, 1, 0, 0, 2]),
        (False, False, [1, 1, 1, 1, 1], [1, 1, 1, 1, 2]),
        (False, True, [1, 1, 1, 1, 1], [1, 1, 0, 0, 2]),
        (True, False, [1, 1, 0, 0, 1], [1, 1, 1, 1, 2]),
    ],
)
def test_the_two_masks_are_switched_apart(
    loss_mask: bool, advantage_mask: bool, trained_on: list[int], advantages: list[float]
) -> None:
    short = episode(([1], [10, 11]), ([1, 10, 11, 3, 4], [12]))
    (row,) = rows(short, [1, 2], 0, loss_mask=loss_mask, advantage_mask=advantage_mask)
    assert (row.loss_mask, row.advantages) == (trained_on, advantages)
    assert row.advantage_mask == ([1, 1, 0, 0, 1] if advantage_mask else [1, 1, 1, 1, 1])


def test_a_row_tells_where_the_reply_of_each_step_lies() -> None:
    made = rows(episode(([1], [10]), ([1, 10, 2], []), ([1, 10, 2, 3], [11, 12]), ([7], [13])), [1] * 4, 0)
    assert [row.spans for row in made] == [((0, 0, 1), (2, 3, 5)), ((3, 0, 1),)]


def test_ids_may_come_as_arrays() -> None:
    arrays = []
    for step in GROWING.steps:
        prompt: Any = np.array(step.prompt_ids)
        response: Any = np.array(step.response_ids)
        arrays.append(Step(prompt, response, step.logprobs))
    as_arrays = Episode("Test/E-v0", "t", 0, 0, arrays)
    assert rows(as_arrays, [1, 2, 3], 0) == rows(GROWING, [1, 2, 3], 0)


def test_advantages_must_match_the_steps() -> None:
    with pytest.raises(ValueError, match="episode 5 has 3 steps but 1 advantages"):
        rows(GROWING, [1.0], 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"loss_mask": [1]}, "lengths differ", id="mask-too-short"),
        pytest.param({"logprobs": [0.0, 0.0, 0.0]}, "lengths differ", id="logprobs-too-long"),
        pytest.param({"loss_mask": [0, 0]}, "no token is trained", id="nothing-trained"),
        pytest.param({"loss_mask": [1, 0]}, "ends in environment tokens", id="trailing-observation"),
        pytest.param({"loss_mask": [1, 2]}, "other values", id="mask-of-two"),
        pytest.param({"advantages": [1.0, math.nan]}, "not finite", id="nan-advantage"),
    ],
)
def test_a_row_that_breaks_the_rules_names_its_episode(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "prompt_ids": [1],
        "completion_ids": [2, 3],
        "loss_mask": [1, 1],
        "logprobs": [-1.0, -1.0],
        "advantages": [0.0, 0.0],
        "episode": 41,
    }
    Row(**good)
    with pytest.raises(ValueError, match=f"row of episode 41: .*{message}"):
        Row(**{**good, **change})


def test_drift_counts_every_difference() -> None:
    assert drift([1, 2, 3], [1, 2, 3]) == 0
    assert drift([1, 2, 3], [1, 9, 3]) == 1
    assert drift([1, 2, 3], [1]) == 2
    assert drift([], [1]) == 1


ids = st.lists(st.integers(0, 5), max_size=4)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """Random episodes: contexts that grow, are rewritten or cut, and replies that may be empty."""
    steps: list[tuple[list[int], list[int]]] = []
    prompt = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    for _ in range(draw(st.integers(0, 6))):
        response = draw(ids)
        steps.append((prompt, response))
        held = prompt + response
        kind = draw(st.sampled_from(["grow", "grow", "grow", "rewrite", "cut", "same"]))
        if kind == "grow":
            prompt = held + draw(ids)
        elif kind == "rewrite":
            prompt = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
        elif kind == "cut":
            prompt = held[: draw(st.integers(1, len(held)))]
    return episode(*steps)


def credits(episode: Episode) -> list[float]:
    return [float(i + 1) for i in range(len(episode.steps))]


def trained(made: Sequence[Row], name: str) -> list[float]:
    """A per-token field of the rows, at the trained tokens, in order."""
    pairs = [pair for row in made for pair in zip(getattr(row, name), row.loss_mask, strict=True)]
    return [value for value, mask in pairs if mask]


@given(episodes(), st.booleans())
def test_the_tokens_trained_on_are_the_tokens_sampled(episode: Episode, merge: bool) -> None:
    made = rows(episode, credits(episode), 0, merge=merge)
    assert trained_ids(made) == sampled_ids(episode)
    assert trained(made, "logprobs") == [lp for step in episode.steps for lp in step.logprobs]


@given(episodes())
def test_merging_changes_no_credit(episode: Episode) -> None:
    merged = rows(episode, credits(episode), 0)
    apart = rows(episode, credits(episode), 0, merge=False)
    assert trained(merged, "advantages") == trained(apart, "advantages")
    assert len(merged) <= len(apart)


@given(episodes(), st.data())
def test_a_reply_in_two_steps_makes_the_row_of_one(episode: Episode, data: st.DataObject) -> None:
    # A sampler may stop and go on: the second half's prompt is the first half's prompt and ids.
    split: list[Step] = []
    for step in episode.steps:
        cut = data.draw(st.integers(0, len(step.response_ids)))
        prompt, response = list(step.prompt_ids), list(step.response_ids)
        split.append(replace(step, response_ids=response[:cut], logprobs=step.logprobs[:cut]))
        rest = step.logprobs[cut:]
        split.append(Step(prompt + response[:cut], response[cut:], rest))
    halves = Episode("Test/E-v0", "t", 0, 0, split)
    whole, made = rows(episode, [1.0] * len(episode.steps), 0), rows(halves, [1.0] * len(split), 0)
    assert [replace(row, spans=()) for row in made] == [replace(row, spans=()) for row in whole]


@given(episodes(), st.booleans())
def test_spans_are_the_replies_and_nothing_else_is_trained(episode: Episode, merge: bool) -> None:
    found: list[tuple[int, list[int]]] = []
    for row in rows(episode, credits(episode), 0, merge=merge):
        found += [(step, row.completion_ids[start:stop]) for step, start, stop in row.spans]
        assert sum(row.loss_mask) == sum(stop - start for _, start, stop in row.spans)
        assert row.advantage_mask == row.loss_mask
    assert found == [(n, list(s.response_ids)) for n, s in enumerate(episode.steps) if s.response_ids]


@given(episodes())
def test_every_sampled_token_is_trained_behind_exactly_the_prompt_it_was_sampled_from(
    episode: Episode,
) -> None:
    contexts = []
    for row in rows(episode, credits(episode), 0):
        whole = row.prompt_ids + row.completion_ids
        start = len(row.prompt_ids)
        contexts += [whole[: start + i] for i, mask in enumerate(row.loss_mask) if mask]
    wanted = [
        list(step.prompt_ids) + list(step.response_ids[:i])
        for step in episode.steps
        for i in range(len(step.response_ids))
    ]
    assert contexts == wanted


@given(episodes(), st.booleans())
def test_the_ablation_keeps_the_rows_and_changes_only_what_is_trained(episode: Episode, merge: bool) -> None:
    plain = rows(episode, credits(episode), 0, merge=merge)
    ablated = rows(episode, credits(episode), 0, merge=merge, loss_mask=False)
    assert [(r.prompt_ids, r.completion_ids) for r in plain] == [
        (r.prompt_ids, r.completion_ids) for r in ablated
    ]
    assert all(set(row.loss_mask) == {1} for row in ablated)
