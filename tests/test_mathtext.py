"""Where the answer of a reply stands, and its last number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.mathtext import final_answer, final_number, plain


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 18 ", "18"),
        ("a\n#### 1,234\n", "1,234"),
        ("#### 5\nand more", "5"),
        (r"\boxed{1} then \boxed{\frac{1}{2}} done #### 7", r"\frac{1}{2}"),
        (r"\boxed{2", "2"),
        (r"\fbox{2}", "2"),
        (r"\boxed 2 done", "2"),
        (r"\boxed", ""),
        ("The answer is 3.5. Really.", "3.5"),
        ("Answer: 5\nbye", "5"),
        ("answer is 4. No, the answer is 5", "5"),
        ("the answer is", "the answer is"),
        ("answering 5", "answering 5"),
    ],
)
def test_the_answer_is_found(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It costs 18.", "18"),
        ("1,234 and 5,678,901.50", "5678901.50"),
        ("It is -5", "-5"),
        ("It is −5 °C", "-5"),
        ("-$5.00", "-5.00"),
        ("$-5", "-5"),
        ("10-5", "5"),
        ("(3)-5", "5"),
        ("x - 5", "5"),
        ("1,23", "23"),
        ("about .5", ".5"),
        ("1234,567", "567"),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_number_is_found(text: str, number: str | None) -> None:
    assert final_number(text) == number


def test_the_last_number_of_every_gsm8k_solution_is_its_gold(shared_data: Path) -> None:
    rows = (shared_data / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    for solution in (json.loads(row)["answer"] for row in rows):
        assert final_number(solution) == final_answer(solution).replace(",", "")


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_found_however_it_is_written(number: int) -> None:
    for text in (f"{number}", f"{number:,}", f"so {number:,} apples.", f"= {number:,}.00 and done"):
        assert float(final_number(text) or "nan") == number


def test_one_spelling_for_each_thing() -> None:
    assert plain(r"  $\left( \dfrac{1}{2},\; 3^{\circ} \right)$. ") == r"( \frac{1}{2}, 3 )"
    assert plain(r"\text{ab}\;12\,345\%") == "ab 12,345%"
