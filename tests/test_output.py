from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.output import as_text, safe, shortened


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None], "ü": "ö"}, '{"a": [1, null], "ü": "ö"}'),
        ((1, 2), "[1, 2]"),
        ({3, 1, 2}, "[1, 2, 3]"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\xfe\x00", "[3 bytes of binary data]"),
        ({"image": b"\x89PNG"}, '{"image": "[4 bytes of binary data]"}'),
        (np.float64(0.5), "0.5"),
        (np.int64(3), "3"),
        (np.arange(3), "[0, 1, 2]"),
        ({"score": np.float32(0.5)}, '{"score": 0.5}'),
        (decimal.Decimal("1.10"), "1.10"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (Point(1, datetime.date(2024, 1, 2)), '{"x": 1, "when": "2024-01-02"}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_results_become_text(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_list_within_itself_becomes_text() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert as_text(loop) == "[1, [...]]"


def test_control_characters_and_lone_surrogates_are_replaced() -> None:
    assert safe("a\x00b\x1b[31mc\ud800d\x85") == "a\ufffdb\ufffd[31mc\ufffdd\ufffd"
    assert safe("tab\t, line\n, \r\n, 😀, é") == "tab\t, line\n, \r\n, 😀, é"


def test_long_text_is_cut_with_a_notice_of_how_much() -> None:
    assert shortened("x" * 12, 10) == ("x" * 10 + "\n[... 2 more characters cut]", 2)
    assert shortened("x" * 10, 10) == ("x" * 10, 0)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=5)
    | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(anything, st.integers(1, 20))
def test_whatever_a_tool_returns_is_valid_bounded_text(value: Any, limit: int) -> None:
    text, cut = shortened(as_text(value), limit)
    text.encode("utf-8")
    assert not any(ord(character) < 32 and character not in "\t\n\r" for character in text)
    assert len(text) <= limit + len(f"\n[... {cut} more characters cut]")


@pytest.mark.parametrize("around", ["{}", "a line\n\tand {} more", "naïve {}"])
def test_every_character_is_judged_alike_in_any_text(around: str) -> None:
    for code in (*range(0x300), 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x1F600):
        bad = code in {*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0xD800, 0xE000)}
        given = around.format(chr(code))
        assert safe(given) == (around.format("\N{REPLACEMENT CHARACTER}") if bad else given), hex(code)
