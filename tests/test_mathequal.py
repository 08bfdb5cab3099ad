r"""Equality of answers in mathematics: hard cases, properties, real golds, and limits."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_r1_env.mathequal import math_equal
from agent_r1_env.mathtext import final_answer

EQUAL = [
    # numbers
    ("18.0", "18"),
    ("-5", "−5"),
    ("+5", "5"),
    (".5", "0.5"),
    ("1{,}234", "1,234"),
    (r"1\,234\,567", "1234567"),
    (r"\$32,\!348", "32348"),
    ("3e5", "300,000"),
    (r"3 \times 10^{5}", "300000"),
    ("6.02 x 10^23", r"6.02 \cdot 10^{23}"),
    ("1.5 million", "1,500,000"),
    ("negative 5", "-5"),
    ("½", "0.5"),
    ("3½", "3.5"),
    # fractions
    ("1/2", r"\frac{1}{2}"),
    (r"\frac12", "0.5"),
    (r"\dfrac{2}{4}", r"\tfrac12"),
    (r"\frac{1}{-2}", r"-\frac{1}{2}"),
    ("1 1/2", r"\frac32"),
    (r"-1\frac{1}{2}", "-1.5"),
    (r"14\frac{2}{3}", r"\frac{44}{3}"),
    # what is left aside
    ("$18", "18"),
    ("18 dollars per day", "18"),
    ("18", "18 dollars"),
    (r"5\text{ cm}^2", "5"),
    ("5 m/s", "5 km/h"),
    ("30", r"30^\circ"),
    (r"30^{\circ}", "30°"),
    ("50%", r"50\%"),
    ("50", "50%"),
    ("1/2", "50%"),
    ("50 percent", "0.5"),
    # where the answer stands
    (r"so $x = 3$ and thus \boxed{\frac{1}{2}}.", "0.5"),
    (r"\boxed{5}, no, \boxed{6}", "6"),
    (r"\boxed 6", "6"),
    ("3 + 4 = 7\n#### 1,234", "1234"),
    ("The answer is $42$. I am sure.", "42"),
    ("**Answer:** 42", "42"),
    ("**18**", "18"),
    ("It costs $18.", "18"),
    ("She has 18 apples left, all of them red", "18"),
    ("3 + 4 = 7 apples", "7"),
    ("答案是 -7。", "-7"),
    # roots, pi, letters
    (r"\sqrt{8}", r"2\sqrt2"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"\sqrt{12}+\sqrt{27}", r"5\sqrt3"),
    (r"\frac{1}{1+\sqrt{2}}", r"\sqrt{2}-1"),
    (r"\sqrt[3]{16}", r"2\sqrt[3]{2}"),
    ("√2/2", r"\frac{1}{\sqrt2}"),
    ("sqrt(50)", r"5\sqrt{2}"),
    ("8^{1/3}", "2"),
    ("2**10", "1024"),
    ("π/2", r"\frac{\pi}{2}\text{ radians}"),
    (r"4\pi r^2", r"4 r^2 \pi"),
    ("x²", "x^2"),
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"\frac{3}{4}x", "0.75x"),
    ("(1+i)^2", "2i"),
    (r"\frac{1}{i}", "-i"),
    (r"\binom{5}{2}", "10"),
    ("5!", "120"),
    ("101_2", "101_{2}"),
    (r"\sin^2 x", r"\sin^{2}(x)"),
    (r"\sin^{-1} x", r"\arcsin x"),
    (r"\log_2 3", r"\log_{2}{3}"),
    # equations and inequalities
    ("x = 5", "5"),
    ("5", "x=5"),
    ("f(x) = x^2", "x^2"),
    ("x = 2+3 = 5", "5"),
    ("y = 2x+1", "2x - y + 1 = 0"),
    ("5 < x", "x > 5"),
    (r"-x \le -3", r"x \geq 3"),
    ("3 > x > 1", "1 < x < 3"),
    # several values
    ("3, 1, 2", "1,2,3"),
    ("x = 1 or x = 2", "1,2"),
    (r"2 \pm \sqrt{3}", r"2-\sqrt{3}, 2+\sqrt{3}"),
    (r"\pm \frac12", "0.5, -0.5"),
    (r"\{2,1\}", r"\left\{1,\frac{4}{2}\right\}"),
    (r"(1,\frac12)", "(1, 0.5)"),
    ("(1,234)", "(1, 234)"),
    ("(1,234)", r"(1, \frac{468}{2})"),
    ("(1,000, 2,000)", "(1000,2000)"),
    ("[1,2)", "[1, 2)"),
    (r"(2,\infty)\cup(-\infty,1)", r"(-\infty, 1) \cup (2, \infty)"),
    (r"x \in [1,2]", "[1,2]"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&\frac{8}{2}\end{bmatrix}"),
    (r"\emptyset", r"\{\}"),
    # decimals
    ("3.14159", "3.1416"),
    (r"\frac{1}{3}", "0.33333"),
    (r"\pi", "3.1416"),
    ("0.30000000000000004", "0.3"),
    ("30.000000000000004", "30"),
    ("0.3333333333333333", r"\frac13"),
    ("1.4142135623730951", r"\sqrt{2}"),
    # texts
    (r"\text{(A)}", "A"),
    ("(A)", r"\text{A}"),
    ("monday", r"\text{Monday}"),
    ("no solution", r"\text{No solution}"),
    ("10:30", "10 : 30"),
]
UNEQUAL = [
    ("5", "6"),
    ("-5", "5"),
    ("3.5", "35"),
    ("0.333", "1/3"),
    ("0.33", r"\frac13"),
    ("1/3", "0.33"),
    ("0.46", "0.5"),
    ("10001", "10000.50"),
    ("1.41", r"\sqrt{2}"),
    ("0.000000000000010", r"\frac{10000000000001}{10^{27}}"),
    ("123.46", "12345.67%"),
    ("2 + 2 = 5", "5"),
    (r"\{1,2)", r"\{1,2\}"),
    ("50%", "5"),
    ("0.05", "50%"),
    ("5 million", "5"),
    ("1 2", "12"),
    ("1,2", "12"),
    ("10-5", "-5"),
    ("5x", "5"),
    ("6xy", "6"),
    ("x", "y"),
    ("x^2", "2x"),
    ("2^{100000}", "2^{100001}"),
    (r"\sin x", r"\cos x"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "(1,2)"),
    ("1,2", "1,2,3"),
    ("1,2", "1,1"),
    ("5 or 6", "5"),
    (r"\pm 2", "2"),
    ("x > 5", "x < 5"),
    ("x > 5", r"x \ge 5"),
    ("101_2", "101_3"),
    ("5 pm", "5 am"),
    ("May 5", "June 5"),
    ("3 apples and 5 pears", "5"),
    ("It took 2 days for 3 people", "6"),
    (r"\boxed{5}, no, \boxed{6}", "5"),
    ("1/0", "2/0"),
    (r"\frac{0}{0}", "0"),
    ("", "5"),
    ("5", ""),
    ("", ""),
    ("the", "a"),
    ("1:2", "1/3"),
]


@pytest.mark.parametrize(("prediction", "gold"), EQUAL)
def test_the_same_in_another_form_is_equal(prediction: str, gold: str) -> None:
    assert math_equal(prediction, [gold]) == 1.0


@pytest.mark.parametrize(("prediction", "gold"), UNEQUAL)
def test_what_looks_alike_is_not_equal(prediction: str, gold: str) -> None:
    assert math_equal(prediction, [gold]) == 0.0


def test_any_gold_will_do() -> None:
    assert math_equal("2", ["1", "2"]) == 1.0
    assert math_equal("3", ["1", "2"]) == 0.0
    assert math_equal("3", []) == 0.0


# -- properties

PIECES = (
    r"\frac \sqrt \sqrt[3] { } ( ) [ ] \{ \} , ; + - * / ^ _ ! % = < 1 12 1,234 .5 3.25 x i \pi \infty \pm "
    r"\cup \in \sin or cm words \text{a} $ \boxed{ #### 1e5 1e99999 ^{99} \begin{pmatrix} \end{pmatrix} & \\ "
    r"\binom \left( \right) ² ½ √ ° (x+y+z)^{20} \emptyset : ' 5^{5^{5 \mp"
)
TEXTS = st.one_of(
    st.text(max_size=40), st.lists(st.sampled_from(PIECES.split(" ")), max_size=25).map("".join)
)
NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.integers(2, 500).map(lambda number: rf"\sqrt{{{number}}}"),
)
EXPRESSIONS = st.recursive(
    st.one_of(NUMBERS, st.sampled_from(["x", "y", r"\pi"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda parts: f"({parts[0]}){parts[1]}({parts[2]})"
        ),
        st.tuples(inner, inner).map(lambda pair: rf"\frac{{{pair[0]}}}{{1+({pair[1]})^2}}"),
        inner.map(lambda part: f"({part})^{{2}}"),
    ),
    max_leaves=5,
)


@given(TEXTS, TEXTS)
@example("\\frac", "\\frac")
@example("\\sqrti^{99}!.5\\frac3.25x", "1")
@example("\\frac" * 300, "1")
@example("٣", "3")
def test_nothing_a_model_writes_raises(prediction: str, gold: str) -> None:
    assert math_equal(prediction, [gold]) in (0.0, 1.0)


@given(TEXTS)
def test_everything_equals_itself(text: str) -> None:
    assert math_equal(text, [text]) == float(bool(final_answer(text)))


@given(EXPRESSIONS, EXPRESSIONS)
def test_exact_answers_are_compared_both_ways_alike(left: str, right: str) -> None:
    assert math_equal(left, [right]) == math_equal(right, [left])


@given(EXPRESSIONS)
def test_the_way_of_writing_does_not_matter(text: str) -> None:
    ways = [
        f"${text}$",
        f"\\boxed{{{text}}}",
        f"The final answer is ${text}$.",
        f"#### {text}",
        f"({text})",
        text.replace("\\frac", "\\dfrac"),
        text.replace("*", r" \cdot "),
        text.replace("(", r"\left(").replace(")", r"\right)"),
        text.replace("-", "−"),
        f"z = {text}",
        f"0 + {text} \\cdot 1",
    ]
    assert [math_equal(way, [text]) for way in ways] == [1.0] * len(ways)


@given(EXPRESSIONS)
def test_another_value_is_another_answer(text: str) -> None:
    assert math_equal(f"({text}) + 1", [text]) == 0.0
    assert math_equal(f"({text}) + 1 - 1", [text]) == 1.0


@given(st.lists(NUMBERS, min_size=2, max_size=5), st.randoms())
def test_order_matters_in_tuples_alone(parts: list[str], shuffle: Any) -> None:
    shuffled = shuffle.sample(parts, len(parts))
    for opening, closing in (("", ""), (r"\{", r"\}")):
        one, other = (opening + ", ".join(each) + closing for each in (parts, shuffled))
        assert math_equal(one, [other]) == 1.0
    one, other = (f"({', '.join(each)})" for each in (parts, shuffled))
    same = all(math_equal(left, [right]) for left, right in zip(parts, shuffled, strict=True))
    assert math_equal(one, [other]) == float(same)


def test_a_computer_algebra_system_agrees() -> None:
    sympy = pytest.importorskip("sympy")
    draw = random.Random(0)
    x = sympy.Symbol("x")

    def build(depth: int) -> Any:
        if depth == 0:
            whole = draw.randint(1, 12)
            return draw.choice(
                [sympy.Integer(whole), sympy.sqrt(whole), sympy.pi, x, sympy.Rational(whole, 7)]
            )
        left, right = build(depth - 1), build(depth - 1)
        return draw.choice(
            [left + right, left - right, left * right, left / (right + 20), (left + right) ** 2]
        )

    for _ in range(60):
        value = build(2)
        for same in (value, sympy.expand(value), sympy.together(value), sympy.factor(value)):
            assert math_equal(sympy.latex(same), [sympy.latex(value)]) == 1.0, (same, value)
        assert math_equal(sympy.latex(value + sympy.Rational(1, 100)), [sympy.latex(value)]) == 0.0, value


# -- real golds


def test_every_gsm8k_gold_equals_itself_in_several_renderings(shared_data: Path) -> None:
    rows = (shared_data / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    for solution in (json.loads(row)["answer"] for row in rows):
        gold = final_answer(solution)
        bare = gold.replace(",", "")
        for said in (
            solution,
            bare,
            f"${gold}",
            f"{bare}.00",
            f"\\boxed{{{gold}}}",
            f"{gold} apples",
            f"The answer is {gold}.",
        ):
            assert math_equal(said, [gold]) == 1.0, (said, gold)
        assert math_equal(str(int(bare) + 1), [gold]) == 0.0, gold
        assert math_equal(str(-int(bare)), [gold]) == float(int(bare) == 0), gold


# -- limits

HOSTILE = {
    "digits": "9" * 100_000,
    "brackets": "(" * 100_000,
    "boxes": "\\boxed{" * 14_000,
    "fractions": "\\frac" * 20_000,
    "answers": "answer is " * 10_000,
    "spaces": "answer" + " " * 100_000,
    "groups": ",".join(["111"] * 25_000),
    "short: tower": "2^{2^{2^{2^{9}}}}",
    "short: nested power": "x" + "^x" * 900,
    "short: polynomial": "(a+b+c+d+u+v+w+x+y+z)^{60}",
    "short: product": "*".join(["(a+b+c+d+x+y+z)"] * 120),
    "short: sums below": "+".join(f"1/(x+{number})" for number in range(150)),
    "short: roots": "+".join(["\\sqrt{999999999989}"] * 90),
    "short: factorials": "+".join(["500!"] * 300),
    "short: nested roots": "\\sqrt{" * 250 + "2" + "}" * 250,
    "short: nested brackets": "(" * 900 + "1" + ")" * 900,
    "short: nested tuples": "(1," * 400 + "1" + ")" * 400,
    "short: list": ",".join(["1"] * 900),
    "short: long number": "1" * 1900 + "!",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_take_little_time(text: str) -> None:
    begun = time.perf_counter()
    math_equal(text, ["x+1", f"\\boxed{{{text}}}"])
    math_equal(f"\\boxed{{{text}}}", ["x+1"])
    assert time.perf_counter() - begun < 2.0  # some 0.05 s at most, on a quiet core
