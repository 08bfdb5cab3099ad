"""Tests of answer scoring against the official scripts."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.scoring import (
    cover,
    exact_match,
    f1,
    normalize_answer,
    normalize_wording,
    overlap,
    sub_exact_match,
)

WORDS = st.lists(
    st.sampled_from(["the", "a", "Oslo", "oslo!", "New", "york", "yes", "no", "3.5", "É", "北京", "-"]),
    max_size=5,
).map(" ".join)
TEXTS = st.one_of(st.text(max_size=30), WORDS)


def test_scores_equal_the_official_script_on_the_hard_cases(shared_data: Path) -> None:
    file = shared_data.parent / "cases" / "qa_scoring.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 100
    for row in rows:
        prediction, golds = row["prediction"], row["golds"]
        assert normalize_answer(prediction) == row["normalized_prediction"], row
        assert [normalize_answer(gold) for gold in golds] == row["normalized_golds"], row
        assert exact_match(prediction, golds) == row["em"], row
        assert f1(prediction, golds) == pytest.approx(row["f1"], abs=1e-9), row
        best = max(overlap(prediction, gold) for gold in golds)
        assert best[1:] == pytest.approx((row["precision"], row["recall"]), abs=1e-9), row
        assert sub_exact_match(prediction, golds) == row["search_r1_subem"], row


def test_means_equal_the_official_script_on_real_predictions(shared_data: Path) -> None:
    folder = shared_data / "hotpotqa"
    rows = json.loads((folder / "hotpot_dev_distractor_sample.json").read_text(encoding="utf-8"))
    answers = json.loads((folder / "eval_predictions.json").read_text(encoding="utf-8"))["answer"]
    expected = json.loads((folder / "eval_expected.json").read_text(encoding="utf-8"))["metrics"]
    totals = dict.fromkeys(("em", "f1", "prec", "recall"), 0.0)
    for row in rows:
        if row["_id"] not in answers:
            continue
        score, precision, recall = overlap(answers[row["_id"]], row["answer"])
        totals["em"] += exact_match(answers[row["_id"]], [row["answer"]])
        totals["f1"] += score
        totals["prec"] += precision
        totals["recall"] += recall
    assert {name: total / len(rows) for name, total in totals.items()} == pytest.approx(
        {name: expected[name] for name in totals}, abs=1e-9
    )


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "word_f1", "sub"),
    [
        pytest.param("The Who", "Who", 1, 1, 1, id="article"),
        pytest.param("Oslo Oslo Oslo Oslo", "Oslo", 0, 0.4, 1, id="repetition-counts"),
        pytest.param("It is Oslo in Norway", "Oslo", 0, 1 / 3, 1, id="containment-is-not-em"),
        pytest.param("yes they are", "yes", 0, 0, 1, id="verdict-is-never-partly-right"),
        pytest.param("3.5", "35", 1, 1, 1, id="official-rule-drops-the-dot"),
        pytest.param("the", "The", 1, 0, 1, id="nothing-left-of-both"),
        pytest.param("", "Oslo", 0, 0, 0, id="empty"),
    ],
)
def test_one_answer(prediction: str, gold: str, em: float, word_f1: float, sub: float) -> None:
    assert exact_match(prediction, [gold]) == em
    assert f1(prediction, [gold]) == pytest.approx(word_f1)
    assert sub_exact_match(prediction, [gold]) == sub


def test_the_best_gold_counts() -> None:
    assert exact_match("NYC", ["New York", "NYC"]) == 1.0
    assert f1("New York City", ["Oslo", "New York"]) == pytest.approx(0.8)
    assert exact_match("NYC", []) == f1("NYC", []) == sub_exact_match("NYC", []) == cover("NYC", []) == 0.0


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        pytest.param("It is Oslo, in Norway.", "oslo", 1, id="a-word"),
        pytest.param("the city of New York today", "New York", 1, id="words-side-by-side"),
        pytest.param("New, the York", "New York", 1, id="articles-do-not-count"),
        pytest.param("York New", "New York", 0, id="order-counts"),
        pytest.param("New old York", "New York", 0, id="a-word-between"),
        pytest.param("another", "no", 0, id="letters-inside-a-word"),
        pytest.param("1990s", "1990", 0, id="digits-inside-a-word"),
        pytest.param("anything", "A", 0, id="nothing-left-of-the-gold"),
        pytest.param("the", "A", 1, id="nothing-left-of-both"),
        pytest.param("", "Oslo", 0, id="empty"),
    ],
)
def test_cover_looks_for_whole_words(prediction: str, gold: str, score: float) -> None:
    assert cover(prediction, [gold]) == score


@given(TEXTS, st.lists(TEXTS, max_size=3))
def test_cover_lies_between_the_strict_and_the_lenient_match(prediction: str, golds: list[str]) -> None:
    assert exact_match(prediction, golds) <= cover(prediction, golds) <= sub_exact_match(prediction, golds)


def test_wording_keeps_articles() -> None:
    assert normalize_wording(" The  U.S.,\na Land") == "the us a land"


@given(TEXTS)
def test_normalising_leaves_no_case_punctuation_or_spare_space(text: str) -> None:
    bare = normalize_answer(text)
    assert not set(bare) & set(string.punctuation)
    assert bare == " ".join(bare.split())
    assert not set(bare.split()) & {"a", "an", "the"}
    assert normalize_answer(f"  {text} ") == bare


@given(TEXTS, TEXTS)
def test_scores_are_bounded_and_symmetric(left: str, right: str) -> None:
    score, precision, recall = overlap(left, right)
    assert 0.0 <= min(precision, recall) <= score + 1e-12
    assert score <= max(precision, recall) + 1e-12 <= 1.0 + 1e-12
    assert overlap(right, left) == pytest.approx((score, recall, precision))
    assert exact_match(left, [right]) == exact_match(right, [left])
    assert exact_match(left, [left]) == 1.0


@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS)
def test_more_golds_never_lower_a_score(prediction: str, golds: list[str], more: str) -> None:
    for score in (exact_match, f1, sub_exact_match, cover):
        assert score(prediction, [*golds, more]) >= score(prediction, golds)
