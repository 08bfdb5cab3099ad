"""Tests of statistics: numbers worked out by hand, intervals that hold what they claim, and no surprises."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.statistics import (
    MCNEMAR,
    PERMUTATION,
    Interval,
    average,
    bootstrap,
    detectable_difference,
    holm,
    interval,
    mcnemar,
    paired,
    pass_at_k,
    permutation_test,
    ratio,
    wilson,
)

NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
SHARES = st.sampled_from([0.0, 1.0])


def bounds(found: Interval) -> tuple[float, float]:
    return found.low, found.high


# -- intervals


@given(st.lists(SHARES, min_size=1, max_size=50))
def test_the_interval_of_shares_holds_the_mean_within_bounds(values: list[float]) -> None:
    found = interval(values)
    assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
    assert found.low < found.high


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (97, 200, 0.4167, 0.5539)],
)
def test_the_interval_of_shares_is_wilsons(successes: int, n: int, low: float, high: float) -> None:
    assert bounds(wilson(successes, n)) == pytest.approx((low, high), abs=1e-4)
    assert interval([1.0] * successes + [0.0] * (n - successes)) == wilson(successes, n)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_successes_that_cannot_be_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes in {n} tasks"):
        wilson(successes, n)


def test_the_interval_of_other_numbers_is_near_the_normal_one() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400).tolist()
    found = interval(values)
    half = 1.96 * np.std(values) / 20
    assert (found.mean - found.low, found.high - found.mean) == pytest.approx((half, half), rel=0.1)
    assert str(interval([1.0] * 200)) == "1.000  [0.981, 1.000]"


def test_the_interval_of_four_numbers_is_the_exact_one() -> None:
    # Of 256 draws of [0, 1, 2, 3] five have a sum up to 1, fifteen up to 2.
    assert bootstrap([0.0, 1.0, 2.0, 3.0]) == Interval(1.5, 0.5, 2.5)


@pytest.mark.parametrize("values", [[0.25], [0.25] * 7, [3.0], [-1.5, -1.5]])
def test_equal_numbers_have_an_interval_without_width(values: list[float]) -> None:
    assert bootstrap(values) == Interval(values[0], values[0], values[0])


@pytest.mark.parametrize(
    "found", [interval([]), bootstrap([]), wilson(0, 0), ratio([], []), ratio([0, 0], [0, 0]), average([])]
)
def test_the_mean_of_nothing_is_nan(found: Interval) -> None:
    assert all(map(math.isnan, (found.mean, *bounds(found))))


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_tasks_changes_nothing(values: list[float], random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert interval(shuffled) == interval(values)
    assert permutation_test(shuffled) == permutation_test(values)


@given(st.lists(NUMBERS, min_size=1, max_size=60))
def test_an_interval_lies_within_the_values(values: list[float]) -> None:
    found = bootstrap(values)
    scale = max(map(abs, values))
    assert min(values) - 1e-12 * scale <= found.low <= found.high <= max(values) + 1e-12 * scale


def test_another_seed_draws_others() -> None:
    values = np.random.default_rng(0).exponential(size=50).tolist()
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1) != bootstrap(values, seed=2)


def test_few_distinct_values_are_drawn_like_many() -> None:
    rng = np.random.default_rng(3)
    coarse = rng.integers(5, size=1000) / 4
    fine = coarse + 1e-9 * rng.random(1000)  # the same numbers, but each its own
    found, other = bootstrap(coarse.tolist()), bootstrap(fine.tolist())
    assert bounds(found) == pytest.approx(bounds(other), abs=0.003)


@pytest.mark.parametrize(("share", "n"), [(0.05, 60), (0.4, 40), (0.97, 100)])
def test_wilsons_interval_covers_the_truth_as_often_as_it_says(share: float, n: int) -> None:
    successes = np.random.default_rng(5).binomial(n, share, size=2000)
    holds = [found.low <= share <= found.high for found in (wilson(int(each), n) for each in successes)]
    assert 0.92 <= np.mean(holds) <= 0.985


def test_the_bootstrap_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    samples = rng.choice([0.0, 0.3, 0.5, 1.0], p=[0.4, 0.2, 0.2, 0.2], size=(400, 80))
    truth = 0.2 * (0.3 + 0.5 + 1.0)
    holds = [found.low <= truth <= found.high for found in (bootstrap(each.tolist()) for each in samples)]
    assert 0.91 <= np.mean(holds) <= 0.98


def test_samples_of_a_task_do_not_count_as_independent() -> None:
    # Each task is always right or always wrong: eight samples of it tell no more than one.
    rng = np.random.default_rng(7)
    covered, naive = [], []
    for tasks in rng.integers(2, size=(300, 40)).astype(float):
        samples = np.repeat(tasks, 8)
        by_task = interval(samples.reshape(40, 8).mean(axis=1).tolist())
        by_sample = interval(samples.tolist())
        covered.append(by_task.low <= 0.5 <= by_task.high)
        naive.append(by_sample.low <= 0.5 <= by_sample.high)
    assert np.mean(covered) > 0.91
    assert np.mean(naive) < 0.7


def test_a_ratio_is_of_the_sums() -> None:
    found = ratio([1, 0], [1, 3])
    assert found == Interval(0.25, 0.0, 1.0)
    assert ratio([1, 1, 1], [3, 3, 3]) == Interval(1 / 3, 1 / 3, 1 / 3)
    assert ratio([1, 0], [4, 0]) == Interval(0.25, 0.25, 0.25)  # a draw of the second twice says nothing


def test_a_ratio_of_ones_is_the_mean() -> None:
    values = np.random.default_rng(8).random(50).tolist()
    found = ratio(values, [1.0] * 50)
    assert (found.mean, *bounds(found)) == pytest.approx((bootstrap(values).mean, *bounds(bootstrap(values))))


def test_the_average_of_data_sets_is_narrower_than_theirs() -> None:
    found = average([Interval(0.2, 0.1, 0.3), Interval(0.4, 0.3, 0.5)])
    half = math.sqrt(0.02) / 2
    assert (found.mean, *bounds(found)) == pytest.approx((0.3, 0.3 - half, 0.3 + half))
    assert average([Interval(0.2, 0.1, 0.5)]) == Interval(0.2, 0.1, 0.5)


def test_the_average_of_data_sets_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(9)
    shares, sizes = (0.05, 0.3, 0.6), (50, 80, 40)
    holds = []
    for _ in range(1500):
        drawn = [wilson(int(rng.binomial(n, share)), n) for share, n in zip(shares, sizes, strict=True)]
        found = average(drawn)
        holds.append(found.low <= np.mean(shares) <= found.high)
    assert 0.92 <= np.mean(holds) <= 0.98


# -- pass@k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(4, 1, 2, 0.5), (4, 1, 1, 0.25), (4, 0, 4, 0.0), (4, 3, 2, 1.0), (5, 2, 3, 0.9), (1, 1, 1, 1.0)],
)
def test_pass_at_k_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


@given(st.integers(1, 300), st.data())
def test_pass_at_k_is_the_formula(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_takes_many_tasks_and_large_numbers() -> None:
    found = pass_at_k([4, 4, 10], [1, 0, 10], 2)
    assert found.tolist() == pytest.approx([0.5, 0.0, 1.0])
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)
    assert pass_at_k([], [], 3).shape == (0,)


def test_pass_at_k_is_unbiased() -> None:
    successes = np.random.default_rng(10).binomial(6, 0.3, size=20_000)
    assert pass_at_k(6, successes, 4).mean() == pytest.approx(1 - 0.7**4, abs=0.01)


@pytest.mark.parametrize(
    ("n", "c", "k", "told"),
    [
        (4, 1, 5, "within 1 and the number of samples, 4, got 5"),
        ([4, 2], [1, 1], 3, "the number of samples, 2, got 3"),
        (4, 1, 0, "got 0"),
        (4, 5, 1, "successes must be within 0"),
        (4, -1, 1, "successes must be within 0"),
    ],
)
def test_what_pass_at_k_cannot_tell_is_refused(n: int, c: int, k: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pass_at_k(n, c, k)


# -- pairs


@pytest.mark.parametrize(
    ("higher", "lower", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (1, 9, 22 / 1024), (9, 1, 22 / 1024), (3, 3, 1.0), (0, 10, 2 / 1024)],
)
def test_mcnemars_test_by_hand(higher: int, lower: int, p: float) -> None:
    assert mcnemar(higher, lower) == pytest.approx(p, rel=1e-12)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemars_test_is_the_exact_binomial_one(higher: int, lower: int) -> None:
    m, s = higher + lower, min(higher, lower)
    exact = min(Fraction(1), 2 * sum(Fraction(math.comb(m, i), 2**m) for i in range(s + 1)))
    assert mcnemar(higher, lower) == pytest.approx(float(exact), rel=1e-12)


def test_mcnemars_test_takes_thousands_of_tasks() -> None:
    assert mcnemar(3000, 3000) == 1.0
    assert 0.0 < mcnemar(2900, 3100) < 0.011
    assert mcnemar(0, 5000) == 0.0  # less than a float can say


@pytest.mark.parametrize(
    ("differences", "p"),
    [([], 1.0), ([0.0, 0.0], 1.0), ([2.0], 1.0), ([1.0, 2.0, 3.0], 0.25), ([1.0, -2.0, 3.0], 0.75)],
)
def test_the_permutation_test_by_hand(differences: list[float], p: float) -> None:
    assert permutation_test(differences) == p


@given(st.integers(0, 6), st.integers(0, 7))
def test_the_permutation_test_of_shares_is_mcnemars(higher: int, lower: int) -> None:
    differences = [1.0] * higher + [-1.0] * lower + [0.0] * 5
    assert permutation_test(differences) == pytest.approx(mcnemar(higher, lower))


def test_drawn_signs_come_near_all_signs() -> None:
    differences = [0.1 * number for number in range(1, 15)]
    differences[:4] = [-each for each in differences[:4]]
    sizes = np.abs(differences)
    patterns = 2 * (np.arange(1 << 14)[:, None] >> np.arange(14) & 1) - 1
    exact = float((np.abs(patterns @ sizes) >= sum(differences) - 1e-9).mean())
    assert permutation_test(differences) == pytest.approx(exact, abs=0.01)


def test_a_permutation_test_never_says_never() -> None:
    assert permutation_test([1.0 + 0.01 * number for number in range(200)]) == pytest.approx(1e-4)


def test_the_permutation_test_is_right_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    p = [permutation_test(rng.normal(size=12).tolist()) for _ in range(600)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(p) == pytest.approx(0.5, abs=0.05)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_which_of_a_pair_comes_first_turns_the_sign_alone(pairs: list[tuple[float, float]]) -> None:
    a, b = map(list, zip(*pairs, strict=True))
    found, turned = paired(a, b), paired(b, a)
    assert (turned.p, turned.test) == (found.p, found.test)
    assert turned.difference.mean == -found.difference.mean
    assert (turned.higher, turned.lower) == (found.lower, found.higher)
    assert (turned.a, turned.b) == (found.b, found.a)


def test_a_pair_by_hand() -> None:
    found = paired([1, 1, 0, 0], [1, 0, 1, 1])
    assert (found.n, found.a, found.b, found.difference.mean) == (4, 0.5, 0.75, 0.25)
    assert (found.higher, found.lower, found.p, found.test) == (2, 1, 1.0, MCNEMAR)
    other = paired([0.5, 1.0, 1.5], [1.5, 3.0, 4.5])
    assert (other.p, other.test, other.difference.mean) == (0.25, PERMUTATION, 2.0)


def test_equal_scores_differ_by_nothing() -> None:
    found = paired([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    assert (found.difference, found.p) == (Interval(0.0, 0.0, 0.0), 1.0)
    assert math.isnan(found.detectable)


def test_pairs_of_no_task_and_of_one_have_no_surprise() -> None:
    none, one = paired([], []), paired([0.0], [1.0])
    assert (none.n, none.p, none.higher, none.lower) == (0, 1.0, 0, 0)
    assert math.isnan(none.difference.mean)
    assert (one.n, one.p, one.difference) == (1, 1.0, Interval(1.0, 1.0, 1.0))


def test_pairs_need_as_many_of_each() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        paired([1.0], [1.0, 2.0])


def test_the_interval_of_a_difference_is_narrower_when_paired() -> None:
    rng = np.random.default_rng(12)
    hard = rng.normal(size=200)
    found = paired(hard.tolist(), (hard + 0.2 + 0.1 * rng.normal(size=200)).tolist())
    assert found.difference.low > 0.15
    assert found.difference.high < 0.25
    assert found.p == pytest.approx(1e-4)


# -- several tests, and tests to come


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holms_correction_keeps_the_order_and_lowers_nothing(p_values: list[float]) -> None:
    found = holm(p_values)
    assert all(given <= corrected <= 1.0 for given, corrected in zip(p_values, found, strict=True))
    in_order = [found[place] for place in np.argsort(p_values, kind="stable")]
    assert in_order == sorted(in_order)


def test_the_detectable_difference_by_hand() -> None:
    differences = [1.0] * 10 + [-1.0] * 10 + [0.0] * 80
    assert detectable_difference(differences) == pytest.approx(0.1259, abs=1e-4)
    assert all(math.isnan(detectable_difference(few)) for few in ([], [1.0], [0.0, 0.0]))


def test_the_detectable_difference_is_found_four_times_out_of_five() -> None:
    rng = np.random.default_rng(13)
    truth = detectable_difference(rng.normal(size=2000).tolist()) * math.sqrt(2000 / 60)
    found = [permutation_test(rng.normal(truth, size=60).tolist(), seed=1) < 0.05 for _ in range(100)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.12)
