"""Means with their uncertainty, pass@k, and whether two evaluations differ by more than chance.

The task is the unit of everything here. Several samples of one task resemble each other, so they are averaged
first, and tasks are what is resampled or counted: this is the cluster bootstrap, with the same weight for
every task. Intervals are at 95 %. What is drawn at random is drawn by ``seed`` from the sorted numbers, so
that the order of the tasks changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_Z = 1.959963984540054  # of the normal distribution at 97.5 %
_Z_POWER = 0.8416212335729143  # and at 80 %
_RESAMPLES = 2000
_FLIPS = 9999
_EXACT = 13  # pairs of which every pattern of signs is tried: 8192 patterns are fewer than _FLIPS
_AT_ONCE = 1 << 20  # numbers that are drawn together
_FEW = 20
MCNEMAR, PERMUTATION = "exact McNemar", "paired permutation"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % confidence interval over tasks; all three are NaN where there is no task."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}  [{self.low:.3f}, {self.high:.3f}]"


_NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two sets of scores of the same tasks, compared.

    Attributes:
        n: tasks.
        a: mean of the first.
        b: mean of the second.
        difference: of the means, second minus first, with a bootstrap interval over tasks.
        higher: tasks on which the second is higher; with ``lower`` the discordant ones.
        lower: tasks on which the second is lower.
        p: two-sided p-value of the hypothesis that the two are exchangeable; 1 if no task is discordant.
        test: how ``p`` was found.
        detectable: see ``detectable_difference``.
    """

    n: int
    a: float
    b: float
    difference: Interval
    higher: int
    lower: int
    p: float
    test: str
    detectable: float


def interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Mean and interval of one number for each task: ``wilson`` for zeros and ones, else ``bootstrap``.

    For several samples of a task the number is their mean. Wilson's interval, which counts successes, then
    applies only where the samples of every task agree, and it counts tasks; never samples.
    """
    if len(values) and all(value in (0.0, 1.0) for value in values):
        return wilson(int(sum(values)), len(values))
    return bootstrap(values, seed=seed)


def wilson(successes: int, n: int) -> Interval:
    """Share of successes in ``n`` independent tasks, with Wilson's score interval.

    With p = successes / n and z = 1.96 its ends are (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) (E. B.
    Wilson, Probable inference, the law of succession, and statistical inference, Journal of the American
    Statistical Association 22, 1927). It has a width where all fail or all succeed, too: of 10 tasks without
    a success it says [0, 0.278], of 10 with 5 [0.237, 0.763].

    Raises:
        ValueError: there are more successes than tasks, or fewer than none.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} tasks")
    if n == 0:
        return _NOTHING
    share, square = successes / n, _Z * _Z / n
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def bootstrap(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Mean and percentile bootstrap interval of one number for each task.

    Tasks are drawn with replacement, as many as there are, 2000 times; the interval holds the middle 95 % of
    the means (B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). It cannot see
    further than the values: where they are all equal, or there is one only, it has no width. Of [0, 1, 2, 3]
    the mean is 1.5, and among the 256 equally likely draws the 2.5 % lowest means end at 0.5: [0.5, 2.5].
    """
    if not len(values):
        return _NOTHING
    mean = fmean(values)
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    draws = _resampled(np.asarray(values, float)[:, None], seed)[:, 0] / len(values)
    return Interval(mean, *_middle(draws))


def ratio(parts: Sequence[float], wholes: Sequence[float], *, seed: int = 0) -> Interval:
    """Sum of ``parts`` over sum of ``wholes``, one of each for every task, with a bootstrap interval.

    For shares of what a task holds any number of, such as invalid calls among all calls: [1, 0] of [1, 3] is
    1/4, not the mean of 1/1 and 0/3. Draws of tasks in which the whole is 0 say nothing and are left out; NaN
    where it is 0 in all tasks together.
    """
    if not (whole := math.fsum(wholes)):
        return _NOTHING
    draws = _resampled(np.column_stack([np.asarray(parts, float), np.asarray(wholes, float)]), seed)
    draws = draws[draws[:, 1] != 0]
    share = math.fsum(parts) / whole
    low, high = _middle(draws[:, 0] / draws[:, 1])
    return Interval(share, min(share, low), max(share, high))  # equal shares differ by rounding


def average(intervals: Sequence[Interval]) -> Interval:
    """The unweighted mean of independent estimates, such as those of several data sets.

    With estimates θ and limits l and u the mean of m lies within θ̄ - √Σ(θ-l)²/m and θ̄ + √Σ(u-θ)²/m (the
    method of variance estimates recovery: G. Y. Zou, A. Donner, Construction of confidence limits about
    effect measures, Statistics in Medicine 27, 2008). Of 0.2 [0.1, 0.3] and 0.4 [0.3, 0.5] it is 0.3 [0.229,
    0.371].
    """
    count = len(intervals)
    if not count:
        return _NOTHING
    mean = fmean(each.mean for each in intervals)
    below = math.hypot(*(each.mean - each.low for each in intervals)) / count
    above = math.hypot(*(each.high - each.mean for each in intervals)) / count
    return Interval(mean, mean - below, mean + above)


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> Floats:
    """Chance that at least one of ``k`` samples of a task succeeds, given ``c`` successes among ``n``.

    1 - C(n-c, k) / C(n, k), the unbiased estimator (M. Chen et al., Evaluating Large Language Models Trained
    on Code, 2021, arXiv:2107.03374, equation 1), as the product over j < k of (n-c-j) / (n-j), which neither
    overflows nor cancels. For n = 4, c = 1, k = 2 it is 1 - 3/6 = 0.5.

    Args:
        n: samples of each task; broadcast against ``c``.

    Raises:
        ValueError: ``k`` is below 1 or above some ``n``, or some ``c`` is not within 0 and ``n``.
    """
    total, good = np.broadcast_arrays(np.asarray(n), np.asarray(c))
    if total.size and not 1 <= k <= total.min():
        raise ValueError(f"k must be within 1 and the number of samples, {total.min()}, got {k}")
    if ((good < 0) | (good > total)).any():
        raise ValueError("successes must be within 0 and the number of samples")
    drawn = np.arange(k)
    failing = np.maximum(0, (total - good)[..., None] - drawn) / (total[..., None] - drawn)
    return np.asarray(1.0 - failing.prod(axis=-1), float)


def paired(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> Paired:
    """Compare two scores of each task, in the same order of tasks.

    Pairing removes what makes tasks hard or easy for both. Zeros and ones are tested by ``mcnemar``, anything
    else by ``permutation_test``. With a = [1, 1, 0, 0] and b = [1, 0, 1, 1] the difference of the means is
    0.25, with 2 tasks higher and 1 lower; of three discordant tasks nothing follows: p = 1.

    Raises:
        ValueError: not as many of one as of the other.
    """
    if len(a) != len(b):
        raise ValueError(f"pairs need as many scores of each, got {len(a)} and {len(b)}")
    if not len(a):
        return Paired(0, math.nan, math.nan, _NOTHING, 0, 0, 1.0, PERMUTATION, math.nan)
    differences = np.asarray(b, float) - np.asarray(a, float)
    higher, lower = int((differences > 0).sum()), int((differences < 0).sum())
    shares = all(value in (0.0, 1.0) for value in (*a, *b))
    return Paired(
        n=len(a),
        a=fmean(a),
        b=fmean(b),
        difference=bootstrap(differences.tolist(), seed=seed),
        higher=higher,
        lower=lower,
        p=mcnemar(higher, lower) if shares else permutation_test(differences.tolist(), seed=seed),
        test=MCNEMAR if shares else PERMUTATION,
        detectable=detectable_difference(differences.tolist()),
    )


def mcnemar(higher: int, lower: int) -> float:
    """Exact two-sided p-value of McNemar's test, which is the sign test of the discordant tasks.

    If each of the m = higher + lower went either way with equal chance, the smaller count s or less would
    have the probability Σ C(m, i) / 2^m over i <= s; p is twice that, at most 1 (Q. McNemar, Note on the
    sampling error of the difference between correlated proportions or percentages, Psychometrika 12, 1947,
    but without the normal approximation). For 1 and 9: 2 (1 + 10) / 1024 = 0.0215.
    """
    together, term, total = higher + lower, 1, 0
    for number in range(min(higher, lower) + 1):
        total += term
        term = term * (together - number) // (number + 1)
    return min(1.0, 2 * total / (1 << together))  # whole numbers throughout: exact for any count


def permutation_test(differences: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p-value of paired differences: how often random signs give as large a sum.

    If it does not matter which of a pair is which, each sign is as likely as the other (R. A. Fisher, The
    Design of Experiments, 1935, section 21). All patterns of signs are tried for up to 13 differences other
    than 0; beyond that, 9999 at random beside the observed one, so that p is never 0 (B. Phipson, G. K.
    Smyth, Permutation p-values should never be zero, Statistical Applications in Genetics and Molecular
    Biology 9, 2010). For [1, 2, 3]: of 8 patterns two, all plus and all minus, reach 6: p = 0.25.
    """
    sizes = np.sort(np.abs([each for each in differences if each]))
    if not sizes.size:
        return 1.0
    # Sums that differ by rounding alone are equal.
    observed = abs(math.fsum(differences)) - 1e-9 * sizes.sum()
    if sizes.size <= _EXACT:
        patterns = np.arange(1 << sizes.size)[:, None] >> np.arange(sizes.size) & 1
        return float((np.abs((2 * patterns - 1) @ sizes) >= observed).mean())
    rng = np.random.default_rng(seed)
    reached = 0
    for rows in _parts(_FLIPS, sizes.size):
        signs = 2 * rng.integers(2, size=(rows, sizes.size), dtype=np.int8) - 1
        reached += int((np.abs(signs @ sizes) >= observed).sum())
    return (1 + reached) / (1 + _FLIPS)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, so that 5 % is the chance of any false alarm among them.

    The i-th smallest of m is multiplied by m - i + 1; none may fall below a smaller one's, nor exceed 1
    (S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6,
    1979). [0.01, 0.04, 0.03] becomes [0.03, 0.06, 0.06].
    """
    corrected, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def detectable_difference(differences: Sequence[float]) -> float:
    """The true difference that as many such tasks would show as significant 4 times out of 5.

    (1.960 + 0.842) s / √n with the standard deviation s of the paired differences: a power of 80 % at the
    two-sided level of 5 %, by normal approximation (J. Cohen, Statistical Power Analysis for the Behavioral
    Sciences, 1988). For 100 tasks of which 10 differ by 1 and 10 by -1 it is 2.802 · 0.449 / 10 = 0.126. NaN
    where s is 0, or there are fewer than two tasks.
    """
    if len(differences) < 2 or (spread := float(np.std(differences, ddof=1))) == 0.0:
        return math.nan
    return (_Z + _Z_POWER) * spread / math.sqrt(len(differences))


def _resampled(table: Floats, seed: int) -> Floats:
    """Sums of the columns over rows that were drawn with replacement, as many as there are; a draw a row."""
    rng, count = np.random.default_rng(seed), len(table)
    distinct, times = np.unique(table, axis=0, return_counts=True)
    if len(distinct) * _FEW < count:  # how often each of a few rows is drawn is found at once
        return np.asarray(rng.multinomial(count, times / count, size=_RESAMPLES) @ distinct, float)
    rows = np.repeat(distinct, times, axis=0)
    sums = [rows[rng.integers(count, size=(draws, count))].sum(axis=1) for draws in _parts(_RESAMPLES, count)]
    return np.concatenate(sums)


def _middle(draws: Floats) -> tuple[float, float]:
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def _parts(rows: int, columns: int) -> Iterator[int]:
    """The rows in parts that need little memory."""
    step = max(1, _AT_ONCE // columns)
    for start in range(0, rows, step):
        yield min(step, rows - start)
