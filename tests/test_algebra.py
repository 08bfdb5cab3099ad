"""Exact values and their limits."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_r1_env.algebra import Algebra, Undecided, Value, name, number

VALUES = st.recursive(
    st.one_of(
        st.fractions(-20, 20, max_denominator=9).map(number),
        st.sampled_from([name("x"), name("y"), name("pi"), name("i")]),
        st.integers(2, 60).map(lambda radicand: Algebra().root(number(radicand), 2)),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: Algebra().add(*pair)),
        st.tuples(inner, inner).map(lambda pair: Algebra().multiply(*pair)),
    ),
    max_leaves=4,
)


@given(VALUES, VALUES, VALUES)
def test_the_laws_of_arithmetic_hold(a: Value, b: Value, c: Value) -> None:
    algebra = Algebra(100_000)
    add, multiply, same = algebra.add, algebra.multiply, algebra.same
    assert same(add(a, b), add(b, a))
    assert same(multiply(a, b), multiply(b, a))
    assert same(multiply(a, add(b, c)), add(multiply(a, b), multiply(a, c)))
    assert same(add(a, algebra.negative(a)), number(0))
    if a.above:
        assert same(algebra.divide(multiply(a, b), a), b)
        assert same(multiply(algebra.divide(b, a), a), b)


@given(st.integers(1, 10**6), st.integers(1, 10**3), st.integers(2, 4))
def test_roots_of_up_to_12_digits_are_drawn_out_whole(inside: int, outside: int, degree: int) -> None:
    assume(inside * outside**degree <= 10**12)
    algebra = Algebra()
    value = algebra.root(number(inside * outside**degree), degree)
    assert algebra.same(value, algebra.multiply(number(outside), algebra.root(number(inside), degree)))


@given(st.integers(1, 10**12))
def test_the_square_of_a_square_root_is_the_number(radicand: int) -> None:
    algebra = Algebra()
    root = algebra.root(number(radicand), 2)
    assert algebra.multiply(root, root).fraction == radicand
    assert float(root.approximate or 0) == pytest.approx(math.sqrt(radicand), rel=1e-12)


def test_roots_of_negative_numbers() -> None:
    algebra = Algebra()
    assert algebra.same(algebra.root(number(-4), 2), algebra.multiply(number(2), name("i")))
    assert algebra.root(number(-8), 3).fraction == -2
    assert algebra.multiply(name("i"), name("i")).fraction == -1
    assert algebra.root(number(0), 2).fraction == 0


def test_what_has_no_exact_form_equals_itself_alone() -> None:
    algebra = Algebra()
    assert algebra.same(algebra.call("sin", number(2)), algebra.call("sin", number(Fraction(4, 2))))
    assert not algebra.same(algebra.call("sin", number(2)), algebra.call("cos", number(2)))
    assert algebra.call("sin", number(2)).approximate is None


def test_powers() -> None:
    algebra = Algebra()
    assert algebra.power(number(4), number(Fraction(-1, 2))).fraction == Fraction(1, 2)
    assert algebra.power(number(2), number(-3)).fraction == Fraction(1, 8)
    huge = [algebra.power(number(2), number(10**9 + each)) for each in (0, 0, 1)]
    assert algebra.same(huge[0], huge[1])
    assert not algebra.same(huge[0], huge[2])


def test_impossible_and_endless_work_is_refused() -> None:
    algebra = Algebra()
    with pytest.raises(Undecided, match="division by zero"):
        algebra.divide(number(1), number(0))
    with pytest.raises(Undecided, match="no root of degree 1"):
        algebra.root(number(2), 1)
    with pytest.raises(Undecided, match="too high a degree"):
        algebra.root(number(2), 65)
    with pytest.raises(Undecided, match="too many digits"):
        algebra.multiply(*[algebra.power(number(3), number(10_000))] * 2)
    total = algebra.add(algebra.add(name("x"), name("y")), number(1))
    with pytest.raises(Undecided, match="too much work"):
        algebra.power(total, number(60))
