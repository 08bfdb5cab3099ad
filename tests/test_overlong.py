"""Rows that are too long: cut, masked or penalised, and counted in each case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.batch import count_drift
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import UnknownName
from agent_r1_env.overlong import WAYS, Limit, counts
from agent_r1_env.trajectory import Row, rows, trained_ids


def episode(*steps: tuple[list[int], list[int]]) -> Episode:
    made = [
        Step(prompt, response, [-1.0] * len(response), reward=float(number))
        for number, (prompt, response) in enumerate(steps, start=1)
    ]
    return Episode("Test/E-v0", "t", 0, 0, made)


GROWING = episode(([1, 2], [10, 11]), ([1, 2, 10, 11, 3], [12, 13]), ([1, 2, 10, 11, 3, 12, 13, 4], [14]))


def whole(episode: Episode = GROWING) -> list[Row]:
    return rows(episode, [0.5] * len(episode.steps), 0)


@pytest.mark.parametrize(
    ("tokens", "kept", "cut"),
    [
        pytest.param(9, [10, 11, 3, 12, 13, 4, 14], 0, id="fits"),
        pytest.param(8, [10, 11, 3, 12, 13], 1, id="last-reply-does-not"),
        pytest.param(6, [10, 11], 3, id="a-reply-is-not-cut"),
        pytest.param(4, [10, 11], 3, id="one-step"),
        pytest.param(3, [10], 4, id="not-even-the-first-reply"),
    ],
)
def test_a_row_is_cut_behind_the_last_reply_that_fits(tokens: int, kept: list[int], cut: int) -> None:
    (row,) = Limit(tokens).applied(whole())
    assert row.completion_ids == kept
    assert row.cut == cut
    assert row.loss_mask[-1] == 1
    assert counts([row])["overlong_cut_tokens"] == cut


def test_what_a_limit_took_is_no_drift_and_what_it_left_is_still_checked() -> None:
    made = Limit(6).applied(whole())
    assert count_drift([[10, 11]], made, [GROWING]) == 0
    assert count_drift([[10, 99]], made, [GROWING]) == 1
    assert count_drift([[10]], made, [GROWING]) == 1
    assert count_drift([[10, 11]], [replace(made[0], cut=2)], [GROWING]) == 1, "one more id is missing"


def test_a_masked_row_stays_in_the_batch_and_trains_nothing() -> None:
    (row,) = Limit(6, "mask").applied(whole())
    assert (row.prompt_ids, row.completion_ids) == ([1, 2], [10, 11, 3, 12])
    assert not any(row.loss_mask)
    assert not any(row.advantage_mask)
    assert counts([row]) == {
        "overlong_rows": 1,
        "overlong_episodes": 1,
        "overlong_masked_rows": 1,
        "overlong_cut_tokens": 5,
    }


def test_a_prompt_that_fills_the_row_leaves_nothing_to_train_on() -> None:
    for way, penalty in (("truncate", 0.0), ("mask", 0.0), ("penalise", -1.0)):
        (row,) = Limit(2, way, penalty).applied(whole())  # type: ignore[arg-type]
        assert (row.prompt_ids, row.completion_ids, row.loss_mask, row.cut) == ([1], [10], [0], 5)


def test_each_row_is_judged_by_itself() -> None:
    split = episode(([1, 2], [10, 11]), ([7], [12] * 9), ([8], [13]))
    made = Limit(5, "mask").applied(whole(split))
    assert [any(row.loss_mask) for row in made] == [True, False, True]
    assert counts(made)["overlong_rows"] == 1


def test_a_penalty_is_paid_at_the_last_step_that_is_trained_on() -> None:
    limit = Limit(8, "penalise", -0.5)
    fined = limit.penalised(GROWING)
    assert [step.reward for step in fined.steps] == [1.0, 1.5, 3.0]
    assert fined.steps[1].reward_terms == {"overlong": -0.5}
    assert fined.reward == GROWING.reward - 0.5
    assert limit.applied(whole(fined))[0].completion_ids == [10, 11, 3, 12, 13]


def test_a_penalty_is_paid_outside_where_nothing_can_be_trained_on() -> None:
    fined = Limit(2, "penalise", -0.5).penalised(GROWING)
    assert (fined.truncation_reward, fined.reward) == (-0.5, GROWING.reward - 0.5)


def test_who_keeps_the_limit_pays_nothing() -> None:
    assert Limit(9, "penalise", -0.5).penalised(GROWING) is GROWING
    assert Limit(3).penalised(GROWING) is GROWING


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1,), "tokens must be 2 or more, not 1"),
        ((9, "penalise"), "'penalise' needs one"),
        ((9, "mask", -1.0), "does not go with 'mask'"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limit(*arguments)


def test_an_unknown_way_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'truncate'"):
        Limit(9, "truncat")  # type: ignore[arg-type]


ids = st.lists(st.integers(0, 5), max_size=4)


@given(st.lists(st.tuples(st.booleans(), ids, ids), max_size=6), st.integers(2, 20), st.sampled_from(WAYS))
def test_no_row_and_no_token_is_lost_from_the_count(
    turns: list[tuple[bool, list[int], list[int]]], tokens: int, way: Any
) -> None:
    prompt, steps = [1], []
    for grows, added, reply in turns:
        steps.append((prompt, reply))
        prompt = [*prompt, *reply, *added] if grows else [9, *added]
    before = whole(episode(*steps))
    after = Limit(tokens, way, -1.0 if way == "penalise" else 0.0).applied(before)
    assert len(after) == len(before)
    assert all(len(row.prompt_ids) + len(row.completion_ids) <= tokens for row in after)
    sampled, trained = len(trained_ids(before)), len(trained_ids(after))
    assert trained + counts(after)["overlong_cut_tokens"] == sampled
    for old, new in zip(before, after, strict=True):
        assert old.completion_ids[: len(new.completion_ids)] == new.completion_ids
        assert new.cut or new == old
