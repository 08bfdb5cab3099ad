"""Tests of the reward terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import reward
from agent_r1_env.errors import UnknownName
from agent_r1_env.reward import Outcome
from agent_r1_env.scoring import normalize_answer
from agent_r1_env.task import Task

WORDS = st.lists(
    st.sampled_from(["the", "a", "Oslo", "oslo!", "New", "york", "yes", "no", "3.5", "É", "北京", "-"]),
    max_size=5,
).map(" ".join)
OF_ANSWERS = ["answered", "cover", "exact_match", "f1", "math_equal", "sub_exact_match"]
TEXTS = st.one_of(st.text(max_size=30), WORDS)


def outcome(answer: str | None, gold: str = "Oslo", calls: int = 0, invalid: int = 0) -> Outcome:
    return Outcome(answer, Task("t", "?", (gold,)), calls, invalid, 1)


@given(TEXTS, TEXTS)
def test_strict_scores_never_exceed_loose_ones(answer: str, gold: str) -> None:
    result = outcome(answer, gold)
    strict = reward.TERMS["exact_match"](result)
    assert strict <= reward.TERMS["cover"](result) <= reward.TERMS["sub_exact_match"](result)
    if normalize_answer(gold):
        assert strict <= reward.TERMS["f1"](result) + 1e-12


@pytest.mark.parametrize("name", OF_ANSWERS)
def test_no_answer_earns_nothing(name: str) -> None:
    assert reward.get(name)(outcome(None)) == 0.0


@pytest.mark.parametrize("answer", ["", "  \n"])
@pytest.mark.parametrize("name", OF_ANSWERS)
def test_a_blank_answer_earns_nothing_even_where_the_gold_normalises_to_nothing(
    name: str, answer: str
) -> None:
    assert reward.get(name)(outcome(answer, gold="A")) == 0.0


def test_terms_read_the_outcome() -> None:
    assert reward.get("exact_match")(outcome("oslo.")) == 1.0
    assert reward.get("cover")(outcome("in Oslo, Norway")) == 1.0
    assert reward.get("math_equal")(outcome(r"\boxed{1/2}", gold="0.5")) == 1.0
    assert reward.get("answered")(outcome("anything")) == 1.0
    assert reward.get("invalid_call_rate")(outcome("x", calls=4, invalid=1)) == 0.25


def test_an_unknown_term_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no reward term named 'exact_macth'; did you mean 'exact_match'"):
        reward.get("exact_macth")
