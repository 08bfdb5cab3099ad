"""The functions and constants that an expression may use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from agent_r1_env import quantity
from agent_r1_env.quantity import MAX_BITS, MathFault, Number, Quantity

CONSTANTS: dict[str, Number] = {
    "pi": math.pi,
    "π": math.pi,
    "tau": math.tau,
    "e": math.e,
    "phi": (1 + math.sqrt(5)) / 2,
}
_TURN = (("turn", 1),)


class Function(NamedTuple):
    """A function of ``least`` to ``most`` arguments."""

    run: Callable[..., Quantity]
    least: int
    most: int


def _rounded(name: str, of: Callable[[float], float]) -> Callable[[Quantity], Quantity]:
    """A function of one float."""

    def run(value: Quantity) -> Quantity:
        number = quantity.as_float(quantity.plain(value, name))
        try:
            result = of(number)
        except OverflowError:
            raise MathFault("the result is too large") from None
        except ValueError:
            raise MathFault(f"{name} has no result for {quantity.show_number(number)}") from None
        return Quantity(quantity.checked(result))

    return run


def _angular(name: str, of: Callable[[float], float]) -> Callable[[Quantity], Quantity]:
    """A function of an angle, in radians where it has no unit."""

    def run(value: Quantity) -> Quantity:
        if value.dimension == _TURN and isinstance(value.number, Fraction):
            angle = quantity.as_float(value.number % 1) * math.tau
        elif value.dimension == _TURN:
            angle = quantity.as_float(value.number) * math.tau
        else:
            angle = quantity.as_float(quantity.plain(value, name))
        if name == "tan" and _clean(angle, math.cos) == 0:
            raise MathFault("tan has no result at a quarter turn")
        return Quantity(quantity.checked(_clean(angle, of)))

    return run


def _clean(angle: float, of: Callable[[float], float]) -> float:
    """Without the error that comes from pi not being a float; small angles have none."""
    result = of(angle)
    return round(result, 15) if abs(angle) > 0.5 else result


def _ln(value: Quantity) -> Quantity:
    return Quantity(_log(_positive(value, "ln")))


def _logarithm(value: Quantity, base: Quantity | None = None) -> Quantity:
    """To base 10, as on a calculator."""
    number = _positive(value, "log")
    foot = Fraction(10) if base is None else _positive(base, "log")
    if foot == 1:
        raise MathFault("a logarithm has no base 1")
    result = _log(number) / _log(foot)
    near = round(result)
    # log(1000) is 3 and no 2.9999999999999996
    exact = isinstance(number, Fraction) and isinstance(foot, Fraction)
    if exact and abs(near) * _bits(Fraction(foot)) <= MAX_BITS and foot**near == number:
        return Quantity(Fraction(near))
    return Quantity(quantity.checked(result))


def _positive(value: Quantity, name: str) -> Number:
    number = quantity.plain(value, name)
    if number <= 0:
        raise MathFault(f"{name} takes positive numbers, not {quantity.show_number(number)}")
    return number


def _log(number: Number) -> float:
    if isinstance(number, float):
        return math.log(number)
    if _bits(number) < 900:
        return (
            math.log(float(number)) if abs(number - 1) > Fraction(1, 1000) else math.log1p(float(number - 1))
        )
    return math.log(number.numerator) - math.log(number.denominator)


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _root(value: Quantity, degree: Quantity | int = 2) -> Quantity:
    times = degree if isinstance(degree, int) else quantity.whole(degree, "root")
    if times < 1:
        raise MathFault(f"there is no root of degree {times}")
    if value.number < 0 and times % 2:
        return quantity.negative(_root(quantity.negative(value), times))
    if value.number < 0:
        raise MathFault("a negative number has no real square root" if times == 2 else "no such real root")
    return quantity.power(value, Quantity(Fraction(1, times)))


def _in_its_unit(of: Callable[[Number], Number]) -> Callable[[Quantity], Quantity]:
    """A function of a number that keeps its unit."""

    def run(value: Quantity) -> Quantity:
        return quantity.of(of(value.amount), value.shown)

    return run


def _magnitude(number: Number) -> Number:
    return -number if number < 0 else number


def _round(value: Quantity, places: Quantity | None = None) -> Quantity:
    """Halves are rounded away from zero, as taught at school."""
    digits = 0 if places is None else quantity.whole(places, "round")
    if abs(digits) > 1000:
        raise MathFault("round takes at most 1000 places")
    scale = Fraction(10) ** digits
    number = value.amount
    # By its shortest decimal form: 2.675 is meant where a float is a little less.
    exact = Fraction(repr(number)) if isinstance(number, float) else number
    rounded = Fraction(math.floor(abs(exact) * scale + Fraction(1, 2))) / scale
    return quantity.of(-rounded if exact < 0 else rounded, value.shown)


def _sign(value: Quantity) -> Quantity:
    return Quantity(Fraction((value.number > 0) - (value.number < 0)))


def _extreme(sign: int) -> Callable[..., Quantity]:
    def run(*values: Quantity) -> Quantity:
        best = values[0]
        for each in values[1:]:
            if quantity.compare(each, best) == sign:
                best = each
        return best

    return run


def _sum(*values: Quantity) -> Quantity:
    total = values[0]
    for each in values[1:]:
        total = quantity.add(total, each)
    return total


def _mean(*values: Quantity) -> Quantity:
    return quantity.divide(_sum(*values), Quantity(Fraction(len(values))))


def _median(*values: Quantity) -> Quantity:
    _sum(*values)  # they must be of one kind
    ranked = sorted(values, key=lambda value: value.number)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else _mean(ranked[middle - 1], ranked[middle])


def _of_whole(name: str, of: Callable[..., int]) -> Callable[..., Quantity]:
    def run(*values: Quantity) -> Quantity:
        return Quantity(quantity.checked(Fraction(of(*(quantity.whole(value, name) for value in values)))))

    return run


def factorial(value: Quantity) -> Quantity:
    number = quantity.whole(value, "a factorial")
    if number < 0:
        raise MathFault("a negative number has no factorial")
    _bound(math.lgamma(min(number, MAX_BITS) + 1))
    return Quantity(quantity.checked(Fraction(math.factorial(number))))


def _chosen(name: str, of: Callable[[int, int], int]) -> Callable[[Quantity, Quantity], Quantity]:
    def run(number: Quantity, taken: Quantity) -> Quantity:
        n, k = quantity.whole(number, name), quantity.whole(taken, name)
        if n < 0 or k < 0:
            raise MathFault(f"{name} takes no negative numbers")
        fewer = min(k, n - k) if name == "comb" else k
        if k <= n:
            _bound(
                min(fewer, MAX_BITS) * (n.bit_length() + 1) * math.log(2)
                - math.lgamma(min(fewer, MAX_BITS) + 1)
            )
        return Quantity(quantity.checked(Fraction(of(n, k))))

    return run


def _bound(logarithm: float) -> None:
    if logarithm > MAX_BITS:
        raise MathFault("the result has more than 3,000 digits, which is too many")


def _hypot(*values: Quantity) -> Quantity:
    return _root(_sum(*(quantity.multiply(value, value) for value in values)))


def _atan2(y: Quantity, x: Quantity) -> Quantity:
    quantity.add(y, x)  # they must be of one kind
    return Quantity(math.atan2(quantity.as_float(y.number), quantity.as_float(x.number)))


_MANY = 1000
FUNCTIONS: dict[str, Function] = {
    "sqrt": Function(_root, 1, 1),
    "cbrt": Function(lambda value: _root(value, 3), 1, 1),
    "root": Function(_root, 2, 2),
    "abs": Function(_in_its_unit(_magnitude), 1, 1),
    "sign": Function(_sign, 1, 1),
    "round": Function(_round, 1, 2),
    "floor": Function(_in_its_unit(lambda number: Fraction(math.floor(number))), 1, 1),
    "ceil": Function(_in_its_unit(lambda number: Fraction(math.ceil(number))), 1, 1),
    "trunc": Function(_in_its_unit(lambda number: Fraction(math.trunc(number))), 1, 1),
    "min": Function(_extreme(-1), 1, _MANY),
    "max": Function(_extreme(1), 1, _MANY),
    "sum": Function(_sum, 1, _MANY),
    "mean": Function(_mean, 1, _MANY),
    "avg": Function(_mean, 1, _MANY),
    "median": Function(_median, 1, _MANY),
    "hypot": Function(_hypot, 1, _MANY),
    "gcd": Function(_of_whole("gcd", math.gcd), 1, _MANY),
    "lcm": Function(_of_whole("lcm", math.lcm), 1, 50),
    "factorial": Function(factorial, 1, 1),
    "comb": Function(_chosen("comb", math.comb), 2, 2),
    "perm": Function(_chosen("perm", math.perm), 2, 2),
    "mod": Function(quantity.modulo, 2, 2),
    "pow": Function(quantity.power, 2, 2),
    "log": Function(_logarithm, 1, 2),
    "log10": Function(_logarithm, 1, 1),
    "log2": Function(lambda value: _logarithm(value, Quantity(Fraction(2))), 1, 1),
    "ln": Function(_ln, 1, 1),
    "exp": Function(_rounded("exp", math.exp), 1, 1),
    "sin": Function(_angular("sin", math.sin), 1, 1),
    "cos": Function(_angular("cos", math.cos), 1, 1),
    "tan": Function(_angular("tan", math.tan), 1, 1),
    "asin": Function(_rounded("asin", math.asin), 1, 1),
    "acos": Function(_rounded("acos", math.acos), 1, 1),
    "atan": Function(_rounded("atan", math.atan), 1, 1),
    "atan2": Function(_atan2, 2, 2),
    "sinh": Function(_rounded("sinh", math.sinh), 1, 1),
    "cosh": Function(_rounded("cosh", math.cosh), 1, 1),
    "tanh": Function(_rounded("tanh", math.tanh), 1, 1),
    "degrees": Function(_rounded("degrees", math.degrees), 1, 1),
    "radians": Function(_rounded("radians", math.radians), 1, 1),
}
FUNCTIONS |= {"ceiling": FUNCTIONS["ceil"], "average": FUNCTIONS["mean"], "nCr": FUNCTIONS["comb"]}
FUNCTIONS |= {"nPr": FUNCTIONS["perm"], "arcsin": FUNCTIONS["asin"], "arccos": FUNCTIONS["acos"]}
FUNCTIONS |= {"arctan": FUNCTIONS["atan"], "binomial": FUNCTIONS["comb"]}


def call(name: str, values: Sequence[Quantity]) -> Quantity:
    """What a function gives.

    Raises:
        MathFault: it takes another number of arguments, or has no result for these.
    """
    function = FUNCTIONS[name]
    if not function.least <= len(values) <= function.most:
        few = f"{function.least} argument{'s' * (function.least > 1)}"
        most = "" if function.most == function.least else f" to {function.most}"
        separate = "; a comma separates arguments here" if len(values) > function.most else ""
        raise MathFault(f"{name} takes {few}{most}, not {len(values)}{separate}")
    return function.run(*values)
