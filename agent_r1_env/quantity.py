"""Numbers with units, kept exact as long as they can be, and bounded in size.

A number is a fraction; only roots, logarithms and the like, which no fraction can hold, give floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from agent_r1_env.units import Dimension, Unit, dimension_of

Number = Fraction | float
Shown = tuple[tuple[Unit, int], ...]

MAX_BITS = 10_000
"""Size of numerators and denominators, about 3,000 digits."""
DIGITS = 15
"""Digits of results that have no end."""
_MOST_EXACT = 30
_LARGEST_PLAIN, _SMALLEST_PLAIN = 21, -7
_MAX_ROOT = 64


class MathFault(ValueError):
    """What was asked for has no result; the text is one short sentence for the model."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in base units, and the units to show it in.

    Attributes:
        percent: it is written as a percentage, so that adding it to something means a share of that.
    """

    number: Number
    dimension: Dimension = ()
    shown: Shown = ()
    percent: bool = False

    @property
    def zero(self) -> Fraction:
        """What 0 of its unit is in base units."""
        return self.shown[0][0].zero if len(self.shown) == 1 else Fraction(0)

    @property
    def unit(self) -> str:
        """The units as text; "" without any."""
        return unit_name(self.shown)

    @property
    def amount(self) -> Number:
        """The number in the units that are shown."""
        return _divided(checked(self.number - self.zero), _factor(self.shown))


def of(number: Number | int, shown: Shown = ()) -> Quantity:
    """So many of these units."""
    value = Fraction(number) if isinstance(number, int) else number
    if not shown:
        return Quantity(checked(value))
    zero = shown[0][0].zero if len(shown) == 1 and shown[0][1] == 1 else 0
    return Quantity(checked(value * _factor(shown) + zero), dimension_of(_powers(shown)), shown)


def negative(value: Quantity) -> Quantity:
    return Quantity(2 * value.zero - value.number, value.dimension, value.shown, value.percent)


def add(left: Quantity, right: Quantity, sign: int = 1) -> Quantity:
    """The sum, or the difference where ``sign`` is -1; a percentage is one of what stands to its left."""
    if right.percent and not left.percent:
        right = multiply(_plain(left), Quantity(right.number))
    word = "added to" if sign > 0 else "subtracted from"
    if left.dimension != right.dimension:
        raise MathFault(f"{_described(right)} cannot be {word} {_described(left)}")
    if sign < 0 and left.zero and right.zero:  # the difference of two temperatures is one of kelvins
        return Quantity(checked(left.number - right.number), left.dimension, _kelvins(left))
    _plain(left), _plain(right)
    return Quantity(checked(left.number + sign * right.number), left.dimension, left.shown)


def multiply(left: Quantity, right: Quantity) -> Quantity:
    _plain(left), _plain(right)
    return _combined(checked(left.number * right.number), left, right, 1)


def divide(left: Quantity, right: Quantity) -> Quantity:
    _plain(left), _plain(right)
    return _combined(checked(_divided(left.number, right.number)), left, right, -1)


def floor_divide(left: Quantity, right: Quantity) -> Quantity:
    """How often ``right`` goes into ``left``, rounded down."""
    ratio = divide(_same(left, right, "divided by"), right)
    return Quantity(checked(Fraction(math.floor(ratio.number))))


def modulo(left: Quantity, right: Quantity) -> Quantity:
    """What is left of ``left``; it has the sign of ``right``."""
    times = floor_divide(left, right).number
    return Quantity(checked(left.number - times * right.number), left.dimension, left.shown)


def power(base: Quantity, exponent: Quantity) -> Quantity:
    _plain(base)
    if exponent.dimension:
        raise MathFault(f"an exponent has no unit, but this one is in {exponent.unit}")
    number = exponent.number
    if not base.dimension:
        return Quantity(checked(_power(base.number, number)))
    powers = [(unit, times * Fraction(number)) for unit, times in base.shown]
    if any(times.denominator != 1 or abs(times) > 99 for _, times in powers):
        raise MathFault(f"{base.unit} cannot be raised to the power of {show_number(number)}")
    return of(_power(base.amount, number), tuple((unit, int(times)) for unit, times in powers if times))


def convert(value: Quantity, shown: Shown) -> Quantity:
    """The same, in other units. A plain number is an angle in radians where an angle is asked for."""
    dimension = dimension_of(_powers(shown))
    if not value.dimension and dimension == (("turn", 1),):
        from agent_r1_env.units import names

        value = of(value.number, ((names()["rad"], 1),))
    if value.dimension != dimension:
        raise MathFault(f"{_described(value)} cannot be converted to {unit_name(shown)}")
    return Quantity(value.number, dimension, shown)


def compare(left: Quantity, right: Quantity) -> int:
    """-1, 0 or 1. Numbers that were rounded are equal where they differ by rounding alone."""
    if left.dimension != right.dimension:
        raise MathFault(f"{_described(left)} cannot be compared with {_described(right)}")
    a, b = left.number, right.number
    inexact = isinstance(a, float) or isinstance(b, float)
    if inexact and abs(Fraction(a) - Fraction(b)) <= abs(Fraction(a)) / 10**12:
        return 0
    return (a > b) - (a < b)


def plain(value: Quantity, what: str) -> Number:
    """The number of something that must have no unit."""
    if value.dimension:
        raise MathFault(f"{what} takes numbers without a unit, but this one is in {value.unit}")
    return value.number


def whole(value: Quantity, what: str) -> int:
    """The whole number that something must be."""
    number = plain(value, what)
    if isinstance(number, float):
        number = Fraction(number)
    if number.denominator != 1:
        raise MathFault(f"{what} takes whole numbers, not {show_number(number)}")
    return number.numerator


def as_float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        raise MathFault(
            "the numbers are too large or too small for a result that has to be rounded"
        ) from None


def checked(number: Number) -> Number:
    """The number, if it is one and not too large."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise MathFault("the result is too large")
        return number
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > MAX_BITS:
        raise MathFault("the result has more than 3,000 digits, which is too many")
    return number


def show(value: Quantity) -> str:
    """The result as a model reads it, such as ``5.3 km``."""
    number = show_number(value.amount)
    return f"{number} {value.unit}" if value.unit else number


def show_number(number: Number) -> str:
    """Exactly where that takes few digits, else rounded to 15 of them."""
    if isinstance(number, float):
        return _decimal(Context(prec=DIGITS).create_decimal_from_float(number))
    if number.denominator == 1:
        return str(number.numerator)
    twos, fives, rest = _count(number.denominator, 2), _count(number.denominator, 5), number.denominator
    rest //= 2**twos * 5**fives
    places = max(twos, fives)
    if rest == 1 and places <= _MOST_EXACT + 10:
        exact = Decimal(number.numerator * 10**places // number.denominator).scaleb(
            -places, Context(prec=MAX_BITS)
        )
        if len(exact.as_tuple().digits) <= _MOST_EXACT:
            return _decimal(exact)
    context = Context(prec=DIGITS)
    return _decimal(context.divide(Decimal(number.numerator), Decimal(number.denominator)))


def unit_name(shown: Shown) -> str:
    above = [_raised(unit, times) for unit, times in shown if times > 0]
    below = [_raised(unit, -times) for unit, times in shown if times < 0]
    return "/".join(["*".join(above) or "1", *below]) if above or below else ""


def _raised(unit: Unit, times: int) -> str:
    return unit.name if times == 1 else f"{unit.name}^{times}"


def _decimal(number: Decimal) -> str:
    if not number:
        return "0"
    number = number.normalize(Context(prec=max(DIGITS, len(number.as_tuple().digits))))
    if _SMALLEST_PLAIN < number.adjusted() < _LARGEST_PLAIN:
        return f"{number:f}"
    return f"{number:e}"


def _count(number: int, prime: int) -> int:
    """How often a prime goes into a number; not more often than it can matter."""
    times = 0
    while number % prime == 0 and times <= 2 * _MOST_EXACT:
        number //= prime
        times += 1
    return times


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        return _whole_power(base, exponent.numerator)
    if base < 0:
        raise MathFault("a negative number has no real power with a fraction; for a cube root write cbrt(x)")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator <= _MAX_ROOT:
        root = exact_root(base, exponent.denominator)
        if root is not None:
            return _whole_power(root, exponent.numerator)
    return _rounded_power(as_float(base), as_float(exponent))


def _whole_power(base: Number, exponent: int) -> Number:
    if not base and exponent < 0:
        raise MathFault("division by zero")
    if isinstance(base, float):
        return _rounded_power(base, as_float(Fraction(exponent)))
    if abs(base) in (0, 1):
        return base ** (2 - exponent % 2 if base else min(exponent, 1))
    bits = (max(abs(base.numerator), base.denominator).bit_length() - 1) * abs(exponent)
    if bits <= MAX_BITS:
        return Fraction(base**exponent)
    if base.denominator == 1 and exponent > 0:
        raise MathFault("the power has more than 3,000 digits, which is too many")
    return _rounded_power(as_float(base), as_float(Fraction(exponent)))


def _rounded_power(base: float, exponent: float) -> float:
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        raise MathFault("the result is too large") from None
    except ValueError:
        raise MathFault("the power has no real result") from None
    if result == 0 and base:
        raise MathFault("the result is too small")
    return result


def exact_root(number: Fraction, degree: int) -> Fraction | None:
    """The root, if it is a fraction."""
    above, below = _whole_root(number.numerator, degree), _whole_root(number.denominator, degree)
    if above**degree == number.numerator and below**degree == number.denominator:
        return Fraction(above, below)
    return None


def _whole_root(number: int, degree: int) -> int:
    """The root of a number that is not negative, rounded down."""
    if degree == 2:
        return math.isqrt(number)
    if number < 2:
        return number
    guess = 1 << -(-number.bit_length() // degree)
    while True:  # Newton's method from above
        better = ((degree - 1) * guess + number // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better


def _divided(left: Number, right: Number) -> Number:
    if not right:
        raise MathFault("division by zero")
    return left / right


def _combined(number: Number, left: Quantity, right: Quantity, sign: int) -> Quantity:
    """A product, in units that merge: what measures the same is shown in the unit that came first."""
    if not left.shown and not right.shown:
        return Quantity(number)
    merged: dict[Unit, int] = {}
    for unit, times in (*left.shown, *((unit, sign * times) for unit, times in right.shown)):
        same = next((known for known in merged if known.dimension == unit.dimension), unit)
        merged[same] = merged.get(same, 0) + times
    shown = tuple((unit, times) for unit, times in merged.items() if times)
    dimension = dimension_of(_powers(shown))
    return Quantity(number, dimension, shown if dimension else ())


def _same(left: Quantity, right: Quantity, word: str) -> Quantity:
    if left.dimension != right.dimension:
        raise MathFault(f"{_described(left)} cannot be {word} {_described(right)} without a rest")
    return left


def _plain(value: Quantity) -> Quantity:
    if value.zero:
        raise MathFault(f"temperatures in {value.unit} can only be converted, compared and subtracted; use K")
    return value


def _kelvins(value: Quantity) -> Shown:
    from agent_r1_env.units import names

    return ((names()["K"], 1),)


def _described(value: Quantity) -> str:
    return f"a quantity in {value.unit}" if value.shown else "a number without a unit"


def _factor(shown: Shown) -> Fraction:
    factor = Fraction(1)
    for unit, times in shown:
        factor *= unit.factor**times
    return factor


def _powers(shown: Iterable[tuple[Unit, int]]) -> dict[str, int]:
    powers: dict[str, int] = {}
    for unit, times in shown:
        for base, count in unit.dimension:
            powers[base] = powers.get(base, 0) + count * times
    return powers
