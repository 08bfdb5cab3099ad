"""Makes the embedded problems that need a computation, each with a program that solves it.

Run it to write `train.jsonl.gz` and `validation.jsonl.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/mathpython/make_problems.py

Each answer is found twice: by the program, and in another way by the code here (a formula where the program
counts, say). Both have to agree.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

SEEDS = {"train": 1, "validation": 2}
PROBLEMS = {"train": 250, "validation": 125}


@dataclass(frozen=True)
class Problem:
    """A question, a program that prints its answer, and the answer found in another way."""

    question: str
    program: str
    answer: int | Fraction | str


def divisors(rng: random.Random) -> Problem:
    n = rng.randrange(2_000, 60_000)
    total, rest, factor = 1, n, 2
    while rest > 1:
        power = 1
        while rest % factor == 0:
            rest, power = rest // factor, power * factor
        total *= (power * factor - 1) // (factor - 1)
        factor += 1
    program = f"n = {n}\nprint(sum(d for d in range(1, n + 1) if n % d == 0))"
    return Problem(f"What is the sum of all positive divisors of {n}?", program, total)


def power(rng: random.Random) -> Problem:
    a, b, m = rng.randrange(3, 60), rng.randrange(100, 2_000), rng.randrange(101, 5_000)
    question = f"What is the remainder when {a}^{b} is divided by {m}?"
    return Problem(question, f"print(pow({a}, {b}, {m}))", a**b % m)


def primes(rng: random.Random) -> Problem:
    low = rng.randrange(100, 4_000)
    high = low + rng.randrange(300, 3_000)
    sieve = bytearray([1]) * (high + 1)
    for p in range(2, math.isqrt(high) + 1):
        sieve[p * p :: p] = bytes(len(range(p * p, high + 1, p)))
    program = (
        f"def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))\n\n"
        f"print(sum(is_prime(n) for n in range({low}, {high} + 1)))"
    )
    return Problem(f"How many primes p are there with {low} <= p <= {high}?", program, sum(sieve[low:]))


def remainders(rng: random.Random) -> Problem:
    moduli = rng.sample((7, 8, 9, 11, 13, 17, 19, 23, 25), 3)
    rests = [rng.randrange(1, m) for m in moduli]
    whole = math.prod(moduli)
    found = sum(r * (whole // m) * pow(whole // m, -1, m) for r, m in zip(rests, moduli, strict=True)) % whole
    told = [f"{r} when divided by {m}" for r, m in zip(rests, moduli, strict=True)]
    program = f"n = 1\nwhile [n % m for m in {moduli}] != {rests}:\n    n += 1\nprint(n)"
    return Problem(
        f"What is the smallest positive integer that leaves the remainder {told[0]}, {told[1]} and "
        f"{told[2]}?",
        program, found,
    )  # fmt: skip


def coprime(rng: random.Random) -> Problem:
    n = rng.randrange(500, 20_000)
    found, rest = n, n
    for p in range(2, n + 1):
        if rest % p == 0:
            found = found // p * (p - 1)
            while rest % p == 0:
                rest //= p
    program = f"from math import gcd\n\nn = {n}\nprint(sum(gcd(k, n) == 1 for k in range(1, n + 1)))"
    return Problem(
        f"How many of the integers from 1 to {n} have no common factor above 1 with {n}?", program, found
    )


def zeros(rng: random.Random) -> Problem:
    n = rng.randrange(200, 1_200)
    found, part = 0, n
    while part:
        part //= 5
        found += part
    program = (
        f"from math import factorial\n\nf, zeros = factorial({n}), 0\nwhile f % 10 == 0:\n"
        "    f, zeros = f // 10, zeros + 1\nprint(zeros)"
    )
    return Problem(f"How many zeros does {n}! end in, written in base ten?", program, found)


def digits(rng: random.Random) -> Problem:
    a, n = rng.choice((2, 3, 5, 6, 7, 11)), rng.randrange(80, 600)
    rest, found = a**n, 0
    while rest:
        rest, digit = divmod(rest, 10)
        found += digit
    return Problem(
        f"What is the sum of the digits of {a}^{n}?", f"print(sum(map(int, str({a}**{n}))))", found
    )


def coins(rng: random.Random) -> Problem:
    kinds = sorted(rng.sample((2, 3, 5, 7, 10, 20, 25), 3))
    amount = rng.randrange(60, 240)

    @cache
    def ways(left: int, usable: int) -> int:
        if usable == 0:
            return int(left == 0)
        return sum(ways(left - used, usable - 1) for used in range(0, left + 1, kinds[usable - 1]))

    program = (
        f"ways = [1] + [0] * {amount}\nfor coin in {kinds}:\n    for total in range(coin, {amount} + 1):\n"
        f"        ways[total] += ways[total - coin]\nprint(ways[{amount}])"
    )
    told = f"{kinds[0]}, {kinds[1]} and {kinds[2]}"
    return Problem(f"In how many ways can {amount} be paid with coins of {told}?", program, ways(amount, 3))


def multiples(rng: random.Random) -> Problem:
    a, b, c = rng.sample((2, 3, 5, 6, 7, 9, 11, 13), 3)
    n = rng.randrange(500, 9_000)

    def both(*numbers: int) -> int:
        return n // math.lcm(*numbers)

    found = both(a) + both(b) - both(a, b) - both(a, c) - both(b, c) + both(a, b, c)
    program = f"print(sum((k % {a} == 0 or k % {b} == 0) and k % {c} != 0 for k in range(1, {n} + 1)))"
    question = f"How many integers from 1 to {n} are divisible by {a} or by {b}, but not by {c}?"
    return Problem(question, program, found)


def paths(rng: random.Random) -> Problem:
    m, n = rng.randrange(4, 13), rng.randrange(4, 13)
    x, y = rng.randrange(1, m), rng.randrange(1, n)
    found = math.comb(m + n, m) - math.comb(x + y, x) * math.comb(m + n - x - y, m - x)
    program = (
        f"ways = {{}}\nfor x in range({m} + 1):\n    for y in range({n} + 1):\n"
        f"        ways[x, y] = 1 if x == y == 0 else ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)\n"
        f"        if (x, y) == ({x}, {y}):\n            ways[x, y] = 0\nprint(ways[{m}, {n}])"
    )
    return Problem(
        f"A path goes from (0, 0) to ({m}, {n}) in steps of 1 to the right or up, and does not pass through "
        f"({x}, {y}). How many such paths are there?",
        program, found,
    )  # fmt: skip


def subsets(rng: random.Random) -> Problem:
    n, k, m = rng.randrange(10, 18), rng.randrange(3, 6), rng.randrange(3, 8)
    sums = Counter({(0, 0): 1})
    for number in range(1, n + 1):
        for (size, total), count in list(sums.items()):
            sums[size + 1, (total + number) % m] += count
    program = (
        f"from itertools import combinations\n\n"
        f"print(sum(sum(c) % {m} == 0 for c in combinations(range(1, {n} + 1), {k})))"
    )
    question = (
        f"How many subsets of {{1, 2, ..., {n}}} with {k} elements have a sum that is divisible by {m}?"
    )
    return Problem(question, program, sums[k, 0])


def strings(rng: random.Random) -> Problem:
    letters, longest = rng.choice((("ab", 14), ("abc", 10), ("abcd", 8)))
    n = rng.randrange(4, longest + 1)
    others = len(letters) - 1
    plain, ending = 1, 0  # by whether the last letter is an a
    for _ in range(n):
        plain, ending = others * (plain + ending), plain
    program = (
        f"from itertools import product\n\n"
        f"print(sum('aa' not in ''.join(s) for s in product('{letters}', repeat={n})))"
    )
    return Problem(
        f"How many strings of length {n} over the letters {', '.join(letters)} do not contain two "
        "neighbouring a?",
        program, plain + ending,
    )  # fmt: skip


def fixed(rng: random.Random) -> Problem:
    n = rng.randrange(5, 9)
    k = rng.randrange(0, n - 1)
    away = [1, 0]
    while len(away) <= n:
        away.append((len(away) - 1) * (away[-1] + away[-2]))
    program = (
        f"from itertools import permutations\n\n"
        f"print(sum(sum(i == p for i, p in enumerate(ps)) == {k} for ps in permutations(range({n}))))"
    )
    question = f"How many permutations of {n} things leave exactly {k} of them in their places?"
    return Problem(question, program, math.comb(n, k) * away[n - k])


def telescope(rng: random.Random) -> Problem:
    n, d = rng.randrange(12, 60), rng.randrange(1, 5)
    found = sum((Fraction(1, k) - Fraction(1, n + k) for k in range(1, d + 1)), Fraction()) / d
    program = (
        f"from fractions import Fraction\n\nprint(sum(Fraction(1, k * (k + {d})) for k in range(1, {n} + 1)))"
    )
    return Problem(
        f"What is the sum of 1/(k(k+{d})) for k from 1 to {n}? Give it as a fraction in lowest terms.",
        program, found,
    )  # fmt: skip


def squares(rng: random.Random) -> Problem:
    n, m = rng.randrange(50, 900), rng.randrange(2, 12)
    last = n // m
    found = n * (n + 1) * (2 * n + 1) // 6 - m * m * last * (last + 1) * (2 * last + 1) // 6
    program = f"print(sum(k * k for k in range(1, {n} + 1) if k % {m}))"
    question = f"What is the sum of the squares of all integers from 1 to {n} that are not divisible by {m}?"
    return Problem(question, program, found)


def harmonic(rng: random.Random) -> Problem:
    n, p = rng.randrange(20, 300), rng.choice((1, 2))
    exact = sum((Fraction(1, k**p) for k in range(1, n + 1)), Fraction())
    found = f"{round(exact * 10_000)}".rjust(5, "0")
    program = f"print(f'{{sum(1 / k**{p} for k in range(1, {n} + 1)):.4f}}')"
    term = "1/k" if p == 1 else "1/k^2"
    return Problem(
        f"What is the sum of {term} for k from 1 to {n}, rounded to four decimals?",
        program, f"{found[:-4]}.{found[-4:]}",
    )  # fmt: skip


def recurrence(rng: random.Random) -> Problem:
    p, q, m, n = (
        rng.randrange(1, 6),
        rng.randrange(1, 6),
        rng.randrange(1_000, 10_000),
        rng.randrange(60, 900),
    )

    def product(left: list[int], right: list[int]) -> list[int]:
        a, b, c, d = left
        e, f, g, h = right
        return [(a * e + b * g) % m, (a * f + b * h) % m, (c * e + d * g) % m, (c * f + d * h) % m]

    matrix, exponent, result = [p, q, 1, 0], n - 1, [1, 0, 0, 1]
    while exponent:
        if exponent % 2:
            result = product(result, matrix)
        matrix, exponent = product(matrix, matrix), exponent // 2
    program = f"a, b = 0, 1\nfor _ in range({n} - 1):\n    a, b = b, ({p} * b + {q} * a) % {m}\nprint(b)"
    return Problem(
        f"Let a(0) = 0, a(1) = 1 and a(n) = {p}a(n-1) + {q}a(n-2). What is a({n}) modulo {m}?",
        program, result[0],
    )  # fmt: skip


def collatz(rng: random.Random) -> Problem:
    start = rng.randrange(50, 5_000)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    program = (
        f"n, steps = {start}, 0\nwhile n != 1:\n    n = 3 * n + 1 if n % 2 else n // 2\n"
        "    steps += 1\nprint(steps)"
    )
    return Problem(
        f"Start with {start}. Halve an even number; triple an odd one and add 1. After how many steps is the "
        "number 1 reached for the first time?",
        program, steps(start),
    )  # fmt: skip


def newton(rng: random.Random) -> Problem:
    a, n = rng.randrange(2, 20), rng.choice((2, 3))
    over, under = 1, 1
    for _ in range(n):
        over, under = over * over + a * under * under, 2 * over * under
    program = (
        f"from fractions import Fraction\n\nx = Fraction(1)\nfor _ in range({n}):\n"
        f"    x = (x + {a} / x) / 2\nprint(x)"
    )
    return Problem(
        f"Let x(0) = 1 and x(n+1) = (x(n) + {a}/x(n))/2. What is x({n})? Give a fraction in lowest terms.",
        program, Fraction(over, under),
    )  # fmt: skip


def box(rng: random.Random) -> Problem:
    n, b, c = rng.randrange(20, 70), rng.randrange(2, 4), rng.randrange(3, 6)
    found = max((n - b * y - c * z) * y * z for z in range(1, n // c) for y in range(1, (n - c * z) // b + 1))
    program = (
        f"print(max(x * y * z for x in range(1, {n}) for y in range(1, {n}) for z in range(1, {n})\n"
        f"          if x + {b} * y + {c} * z == {n}))"
    )
    return Problem(
        f"x, y and z are positive integers with x + {b}y + {c}z = {n}. What is the largest value of xyz?",
        program, found,
    )  # fmt: skip


def knapsack(rng: random.Random) -> Problem:
    things = [(rng.randrange(2, 15), rng.randrange(3, 40)) for _ in range(7)]
    room = sum(weight for weight, _ in things) // 2
    chosen = itertools.chain.from_iterable(itertools.combinations(things, size) for size in range(8))
    found = max(sum(v for _, v in each) for each in chosen if sum(w for w, _ in each) <= room)
    program = (
        f"best = [0] * ({room} + 1)\nfor weight, value in {things}:\n"
        f"    for room in range({room}, weight - 1, -1):\n"
        f"        best[room] = max(best[room], best[room - weight] + value)\nprint(best[{room}])"
    )
    told = ", ".join(f"({weight}, {value})" for weight, value in things)
    return Problem(
        f"Seven things have these (weight, value): {told}. Some of them are packed, with a total weight of "
        f"at most {room}. What is the largest total value?",
        program, found,
    )  # fmt: skip


def dice(rng: random.Random) -> Problem:
    count, sides = rng.randrange(3, 6), rng.choice((4, 6, 8))
    wanted = rng.randrange(count + 2, count * sides - 1)
    totals = {0: 1}
    for _ in range(count):
        after: Counter[int] = Counter()
        for total, ways in totals.items():
            for side in range(1, sides + 1):
                after[total + side] += ways
        totals = after
    program = (
        f"from fractions import Fraction\nfrom itertools import product\n\n"
        f"rolls = list(product(range(1, {sides} + 1), repeat={count}))\n"
        f"print(Fraction(sum(sum(roll) == {wanted} for roll in rolls), len(rolls)))"
    )
    return Problem(
        f"{count} fair dice with the sides 1 to {sides} are rolled. What is the probability that their sum "
        f"is {wanted}? Give a fraction in lowest terms.",
        program, Fraction(totals[wanted], sides**count),
    )  # fmt: skip


def largest(rng: random.Random) -> Problem:
    n = rng.randrange(7, 200)
    program = (
        f"from fractions import Fraction\n\nn = {n}\n"
        "print(Fraction(sum(max(a, b) for a in range(1, n + 1) for b in range(1, n + 1)), n * n))"
    )
    return Problem(
        f"Two numbers are drawn from 1 to {n}, each with equal chance, and may be equal. What is the "
        "expected value of the larger one? Give a fraction in lowest terms.",
        program, Fraction((n + 1) * (4 * n - 1), 6 * n),
    )  # fmt: skip


def circle(rng: random.Random) -> Problem:
    r = rng.randrange(8, 90)
    found = sum(2 * math.isqrt(r * r - x * x) + 1 for x in range(-r, r + 1))
    program = (
        f"r = {r}\nprint(sum(x * x + y * y <= r * r for x in range(-r, r + 1) for y in range(-r, r + 1)))"
    )
    return Problem(
        f"How many points (x, y) with integers x and y have a distance of at most {r} from (0, 0)?",
        program,
        found,
    )


def triangles(rng: random.Random) -> Problem:
    n = rng.randrange(60, 400)
    sides = {
        tuple(sorted((k * (u * u - v * v), 2 * k * u * v, k * (u * u + v * v))))
        for u in range(2, math.isqrt(n) + 1) for v in range(1, u)
        for k in range(1, n // (u * u + v * v) + 1)
    }  # fmt: skip
    program = (
        f"from math import isqrt\n\nn, count = {n}, 0\nfor a in range(1, n):\n    for b in range(a, n):\n"
        "        c = isqrt(a * a + b * b)\n        count += c <= n and c * c == a * a + b * b\nprint(count)"
    )
    question = f"How many right triangles with three integer sides have a hypotenuse of at most {n}?"
    return Problem(question, program, len(sides))


KINDS: tuple[Callable[[random.Random], Problem], ...] = (
    divisors, power, primes, remainders, coprime, zeros, digits, coins, multiples, paths, subsets, strings,
    fixed, telescope, squares, harmonic, recurrence, collatz, newton, box, knapsack, dice, largest, circle,
    triangles,
)  # fmt: skip


def printed(program: str) -> str:
    """What a program writes."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(program, {})
    return written.getvalue().strip()


def problems() -> dict[str, list[dict[str, str]]]:
    """The rows of both splits; every kind has as many, and no problem stands in both.

    Raises:
        ValueError: the two ways to the answer of a problem disagree.
    """
    taken: set[str] = set()
    made: dict[str, list[dict[str, str]]] = {}
    for split, seed in SEEDS.items():
        rng = random.Random(seed)
        rows: list[dict[str, str]] = []
        while len(rows) < PROBLEMS[split]:
            kind = KINDS[len(rows) % len(KINDS)]
            problem = kind(rng)
            if problem.question not in taken:
                taken.add(problem.question)
                rows.append(_row(problem, kind.__name__))
        rng.shuffle(rows)
        made[split] = [{"id": f"{split}-{number:03d}", **row} for number, row in enumerate(rows)]
    return made


def _row(problem: Problem, kind: str) -> dict[str, str]:
    answer = str(problem.answer)
    if printed(problem.program) != answer:
        raise ValueError(f"{printed(problem.program)} is not {answer}: {problem}")
    return {"problem": problem.question, "answer": answer, "program": problem.program, "type": kind}


def encode(rows: Iterable[Mapping[str, str]]) -> bytes:
    """Rows as the text that the files hold."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the problems of both splits.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    folder = parser.parse_args().out
    for split, rows in problems().items():
        path = folder / f"{split}.jsonl.gz"
        path.write_bytes(gzip.compress(encode(rows), 9, mtime=0))
        print(f"{path}: {len(rows)} problems, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
