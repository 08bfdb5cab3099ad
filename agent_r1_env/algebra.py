"""Exact values of the expressions that answers in mathematics are made of.

A value is a quotient of sums; a term of a sum is a fraction times the root of a whole number times powers of
names. Roots of different square-free numbers are independent over the fractions, so two values are equal just
where their terms are, with letters, pi and e as independent unknowns. What has no such form, such as sin 2 or
a root of a sum, is a name of its own, spelt by its exact argument: it equals itself and nothing else.

All work is counted, so that no expression can take long: see ``Algebra``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

MAX_BITS = 20_000
"""Size of numerators and denominators, about 6,000 digits."""
MAX_WORK = 3_000
"""Products of terms in one calculation; those of long numbers count several times."""
_MAX_NAME = 2_000
_MAX_RADICAND = 10**12
_MAX_FACTORIAL = 500
_BITS_OF_ONE_STEP = 512

Powers = tuple[tuple[str, int], ...]
Monomial = tuple[int, Powers]
"""A square-free number under a root, and the powers of names, sorted."""
Sum = Mapping[Monomial, Fraction]

_UNIT: Monomial = (1, ())
_ONE: Sum = {_UNIT: Fraction(1)}
_CONSTANTS = {"pi": math.pi, "e": math.e}


class Undecided(ValueError):
    """A value does not exist, or takes too much work to find."""


@dataclass(frozen=True, slots=True)
class Value:
    """``above / below``; no sum holds a coefficient of 0, and ``below`` is 1 unless it has several terms."""

    above: Sum
    below: Sum = field(default_factory=lambda: _ONE)

    @property
    def fraction(self) -> Fraction | None:
        """The value, if it is a fraction."""
        if not self.above:
            return Fraction(0)
        return self.above.get(_UNIT) if self.below is _ONE and len(self.above) == 1 else None

    @property
    def approximate(self) -> Fraction | None:
        """The value to about 15 digits, if it is a real number; exact if it is a fraction."""
        if (exact := self.fraction) is not None:
            return exact
        try:
            return Fraction(_approximate(self.above) / _approximate(self.below))
        except (KeyError, ArithmeticError, ValueError):
            return None

    @property
    def is_name(self) -> bool:
        """It is a letter or a product of such, and no number."""
        return self.below is _ONE and list(self.above.values()) == [1] and self.fraction is None


def number(value: Fraction | int) -> Value:
    return Value({_UNIT: Fraction(value)} if value else {})


def name(text: str) -> Value:
    """A letter, ``pi``, ``e``, or ``i``, whose square is -1."""
    return Value({(1, ((text, 1),)): Fraction(1)})


class Algebra:
    """Calculations that together may take so much work.

    Every method raises ``Undecided`` where there is no result, or none within the limits.
    """

    def __init__(self, work: int = MAX_WORK) -> None:
        self._left = work

    def add(self, left: Value, right: Value) -> Value:
        if left.below == right.below:
            return self._quotient(self._plus(left.above, right.above), left.below)
        above = self._plus(self._times(left.above, right.below), self._times(right.above, left.below))
        return self._quotient(above, self._times(left.below, right.below))

    def negative(self, value: Value) -> Value:
        return Value({monomial: -factor for monomial, factor in value.above.items()}, value.below)

    def multiply(self, left: Value, right: Value) -> Value:
        return self._quotient(self._times(left.above, right.above), self._times(left.below, right.below))

    def divide(self, left: Value, right: Value) -> Value:
        if not right.above:
            raise Undecided("division by zero")
        return self._quotient(self._times(left.above, right.below), self._times(left.below, right.above))

    def power(self, base: Value, exponent: Value) -> Value:
        times = exponent.fraction
        if times is None:
            return self.call("pow", base, exponent)
        if times.denominator > 1:
            return self.power(self.root(base, times.denominator), number(times.numerator))
        if times < 0:
            return self.divide(number(1), self.power(base, number(-times)))
        plain = base.fraction
        if plain is not None and _bits(plain) * times <= MAX_BITS:
            self._spend(1 + _bits(plain) * times.numerator // _BITS_OF_ONE_STEP)
            return number(plain**times.numerator)
        if len(base.above) * len(base.below) == 1 and plain is None and times <= MAX_WORK:
            return self._repeated(base, times.numerator)
        return self._repeated(base, times.numerator) if times <= 64 else self.call("pow", base, exponent)

    def _repeated(self, base: Value, times: int) -> Value:
        result = number(1)
        for bit in bin(times)[2:]:
            result = self.multiply(result, result)
            if bit == "1":
                result = self.multiply(result, base)
        return result

    def root(self, value: Value, degree: int) -> Value:
        """The real root where there is one; the square root of a negative number is a multiple of i."""
        if degree < 2:
            raise Undecided(f"there is no root of degree {degree}")
        if not value.above:
            return value
        size = self._content(value)
        outside = self._root_of_number(size, degree)
        rest = self.divide(value, number(size))
        if rest.fraction == 1:
            return outside
        if rest.fraction == -1 and degree == 2:
            return self.multiply(outside, name("i"))
        if rest.fraction == -1 and degree % 2:
            return self.negative(outside)
        return self.multiply(outside, self.call(f"root{degree}", rest))

    def _content(self, value: Value) -> Fraction:
        """The greatest positive number that can be drawn out of all terms."""
        factors = list(value.above.values())
        above = math.gcd(*(factor.numerator for factor in factors))
        return Fraction(above, math.lcm(*(factor.denominator for factor in factors)))

    def _root_of_number(self, radicand: Fraction, degree: int) -> Value:
        """The root of a positive number, with all that is a power drawn out of it."""
        if degree > 64 or _bits(radicand) * degree > MAX_BITS:
            raise Undecided("the root is of too high a degree")
        whole = radicand.numerator * radicand.denominator ** (degree - 1)
        outside, inside = self._drawn_out(whole, degree)
        factor = number(Fraction(outside, radicand.denominator))
        if inside == 1:
            return factor
        if degree == 2 and inside <= _MAX_RADICAND:
            return self.multiply(factor, Value({(inside, ()): Fraction(1)}))
        return self.multiply(factor, self.call(f"root{degree}", number(inside)))

    def _drawn_out(self, whole: int, degree: int) -> tuple[int, int]:
        """``outside, inside`` such that ``outside ** degree * inside`` is the number, as far as found out."""
        if whole > _MAX_RADICAND:
            self._spend(1 + whole.bit_length() // 64)
            exact = _exact_root(whole, degree)
            return (exact, 1) if exact else (1, whole)
        outside, inside, prime = 1, 1, 2
        while prime**3 <= whole:
            times = 0
            while whole % prime == 0:
                whole //= prime
                times += 1
            outside, inside = outside * prime ** (times // degree), inside * prime ** (times % degree)
            prime += 1 if prime == 2 else 2
        self._spend(1 + prime // 100)
        # What is left has at most two prime factors: a power only if it is a square.
        exact = _exact_root(whole, degree)
        return (outside * exact, inside) if exact else (outside, inside * whole)

    def call(self, function: str, *arguments: Value) -> Value:
        """A function that is not worked out."""
        text = f"{function}({','.join(map(self.spelling, arguments))})"
        if len(text) > _MAX_NAME:
            raise Undecided("the expression is too long")
        return name(text)

    def factorial(self, value: Value) -> Value:
        whole = value.fraction
        if whole is None or whole.denominator > 1 or not 0 <= whole <= _MAX_FACTORIAL:
            return self.call("factorial", value)
        return number(math.factorial(whole.numerator))

    def choose(self, above: Value, below: Value) -> Value:
        n, k = above.fraction, below.fraction
        known = n is not None and k is not None and n.denominator == k.denominator == 1
        if n is None or k is None or not known or not 0 <= min(n, k) <= max(n, k) <= _MAX_FACTORIAL:
            return self.call("binomial", above, below)
        return number(math.comb(n.numerator, k.numerator))

    def same(self, left: Value, right: Value) -> bool:
        """Whether two values are equal: a/b is c/d where ad is cb."""
        if left.below == right.below:
            return left.above == right.above
        return self._times(left.above, right.below) == self._times(right.above, left.below)

    def scaled(self, value: Value, *, keep_sign: bool = False) -> Value:
        """The multiple that all its multiples share, or with ``keep_sign`` all the positive ones."""
        if not value.above:
            return value
        lead = value.above[min(value.above)]
        return self.divide(value, number(abs(lead) if keep_sign else lead))

    def spelling(self, value: Value) -> str:
        """A text that equal values without a sum below share."""
        if value.below is not _ONE:
            lead = number(value.below[min(value.below)])
            above, below = (self.divide(Value(part), lead).above for part in (value.above, value.below))
            return f"{_spelt(above)}/{_spelt(below)}"
        return _spelt(value.above)

    # -- sums

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise Undecided("the expression takes too much work")

    def _plus(self, left: Sum, right: Sum) -> Sum:
        self._spend(1 + len(right))
        total = dict(left)
        for monomial, factor in right.items():
            total[monomial] = _checked(total.get(monomial, Fraction(0)) + factor)
        return {monomial: factor for monomial, factor in total.items() if factor}

    def _times(self, left: Sum, right: Sum) -> Sum:
        if left is _ONE or right is _ONE:
            return right if left is _ONE else left
        total: dict[Monomial, Fraction] = {}
        for one, factor in left.items():
            for other, second in right.items():
                self._spend(1 + (_bits(factor) + _bits(second)) // _BITS_OF_ONE_STEP)
                monomial, extra = _product(one, other)
                total[monomial] = _checked(total.get(monomial, Fraction(0)) + factor * second * extra)
        return {monomial: factor for monomial, factor in total.items() if factor}

    def _quotient(self, above: Sum, below: Sum) -> Value:
        if not above:
            return Value({})
        if below is _ONE or below == _ONE:
            return Value(above)
        if len(below) > 1:
            return Value(above, below)
        (((radicand, powers), factor),) = below.items()
        inverse: Monomial = (radicand, tuple((each, -times) for each, times in powers))
        turned = -1 if ("i", 1) in powers else 1  # 1/i is -i
        if turned < 0:
            inverse = (
                radicand,
                tuple((each, abs(times) if each == "i" else times) for each, times in inverse[1]),
            )
        return Value(self._times(above, {inverse: Fraction(turned) / (factor * radicand)}))


def _product(left: Monomial, right: Monomial) -> tuple[Monomial, int]:
    """The product of two monomials, and the whole number that comes out of it."""
    shared = math.gcd(left[0], right[0])
    radicand = left[0] * right[0] // shared**2
    if radicand > _MAX_RADICAND:
        raise Undecided("the number under a root is too large")
    if not left[1] or not right[1]:
        return (radicand, left[1] or right[1]), shared
    powers = dict(left[1])
    for each, times in right[1]:
        powers[each] = powers.get(each, 0) + times
    if powers.get("i", 0) > 1:
        powers["i"] -= 2
        shared = -shared
    return (radicand, tuple(sorted((each, times) for each, times in powers.items() if times))), shared


def _checked(factor: Fraction) -> Fraction:
    if _bits(factor) > MAX_BITS:
        raise Undecided("a number has too many digits")
    return factor


def _bits(factor: Fraction) -> int:
    return max(factor.numerator.bit_length(), factor.denominator.bit_length())


def _exact_root(whole: int, degree: int) -> int | None:
    """The root of a positive number, if it is whole."""
    if degree == 2:
        root = math.isqrt(whole)
    else:
        root = 1 << -(-whole.bit_length() // degree)
        while (better := ((degree - 1) * root + whole // root ** (degree - 1)) // degree) < root:
            root = better
    return root if root**degree == whole else None


def _approximate(terms: Sum) -> float:
    return math.fsum(
        float(factor) * math.sqrt(radicand) * math.prod(_CONSTANTS[each] ** times for each, times in powers)
        for (radicand, powers), factor in terms.items()
    )


def _spelt(terms: Sum) -> str:
    """The terms in a fixed order; numbers in base 16, which takes no time however long they are."""
    return "+".join(
        f"{factor.numerator:x}/{factor.denominator:x}*{radicand}"
        + "".join(f"*{each}^{times}" for each, times in powers)
        for (radicand, powers), factor in sorted(terms.items())
    )
