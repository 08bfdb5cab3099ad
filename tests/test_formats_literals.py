"""What is nearly JSON, or Python, is read without being evaluated, and each difference has a name."""

from __future__ import annotations

import ast
import json
import time
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env.formats.literals import DEEPEST, CutOff, Reader, read_json_like, read_python

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20) | st.text("\\'\"\n\r\t/ubx0147{}[](),:=", max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
python_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=20,
)


def as_lists(value: Any) -> Any:
    """The value with lists for its tuples, in a form that tells 1 from 1.0 and from True."""
    if isinstance(value, dict):
        return {key: as_lists(each) for key, each in value.items()}
    return [as_lists(each) for each in value] if isinstance(value, list | tuple) else repr(value)


def same(left: Any, right: Any) -> bool:
    return bool(as_lists(left) == as_lists(right))


# -- against the languages themselves


@settings(deadline=None)
@given(python_values, st.text(" ,)]x", max_size=3))
def test_what_python_writes_is_read_as_python_reads_it(value, behind):
    text = repr(value)
    read, end, differences = read_python(text + " " + behind, 0)
    assert same(read, value)
    assert (end, differences) == (len(text), ())


@settings(deadline=None)
@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_is_read_as_json_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    read, end, differences = read_json_like(text, 0)
    assert same(read, value)
    assert (end, differences) == (len(text), ())


PIECES = (
    *(
        "1",
        "0",
        "7",
        "-",
        "+",
        ".",
        "e5",
        "0x1F",
        "0b1",
        "_",
        "a",
        "True",
        "None",
        " ",
        "\n",
        ",",
        ",",
        "r",
        "u",
    ),
    *("'", '"', "'''", '"""', "\\", "\\n", "\\'", "\\x41", "\\u0041", "\\101", "\\\n"),
    *("(", ")", "[", "]", "{", "}", ":"),
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_what_is_read_without_a_difference_is_what_python_reads(text):
    try:
        read, end, differences = read_python(text, 0)
    except ValueError:
        return
    if not differences:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python keeps an unknown escape too, but warns of it
            assert same(read, ast.literal_eval(text[:end].strip()))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["[", "]", "{", "}", '"', "'", "\\", "\\u12", "\\ud83d", ":", ",", "1", "-", ".", "e", "x", "\n"]
            + ["(", ")", "tru", "True", "null", "'''", '"""', "\ud800", "f", " ", "=", "0x", "N{"]
        ),
        max_size=30,
    ).map("".join)
)
def test_no_text_raises_anything_but_a_value_error(text):
    for read in (read_json_like, read_python):
        try:
            _, end, _ = read(text, 0)
        except ValueError:
            continue
        assert 0 < end <= len(text)


@settings(deadline=None)
@given(json_values, st.integers(0, 10**6))
def test_a_value_that_is_cut_is_known_to_be_cut(value, where):
    for written, read in ((json.dumps([value]), read_json_like), (repr([value]), read_python)):
        with pytest.raises(CutOff):
            read(written[: 1 + where % (len(written) - 1)], 0)


# -- differences


@pytest.mark.parametrize(
    ("text", "value", "differences"),
    [
        ("{'a': 1}", {"a": 1}, ["single_quotes"]),
        (r"'it\'s'", "it's", ["single_quotes"]),
        ("[True, False, None]", [True, False, None], ["python_words"]),
        ('{"a": [1, 2,],}', {"a": [1, 2]}, ["trailing_comma"]),
        ('"a\nb"', "a\nb", ["raw_newline"]),
        ('"a\tb"', "a\tb", ["control_character"]),
        (r'"\d+ it\'s"', r"\d+ it's", ["escape"]),
        (r'"\1 \x41"', r"\1 A", ["escape"]),
        ("+.5", 0.5, ["number"]),
        ("007", 7, ["number"]),
    ],
)
def test_what_is_not_json_is_read_and_named(text, value, differences):
    read, end, found = read_json_like(text, 0)
    assert same(read, value)
    assert (end, list(found)) == (len(text), differences)


@pytest.mark.parametrize(
    ("text", "value", "differences"),
    [
        ("[true, false, null]", [True, False, None], ["json_words"]),
        ("'a\nb'", "a\nb", ["raw_newline"]),
        ("'''a\nb'''", "a\nb", []),
        (r"'C:\users \xg'", r"C:\users \xg", ["escape"]),
        (r"r'\d+\n'", r"\d+\n", []),
        ("f'plain'", "plain", []),
        ("07", 7, ["leading_zero"]),
        ("00", 0, []),
        ("07.5", 7.5, []),
        ("(1, 2)", [1, 2], []),
        ("(1,)", [1], []),
        ("(1)", 1, []),
        ("()", [], []),
        ("-0x1F", -31, []),
        ("1_000", 1000, []),
        (r"'\ud83d\ude42'", "🙂", []),
        (r"'\ud83d'", "\ud83d", []),
    ],
)
def test_python_is_read_and_what_is_not_python_is_named(text, value, differences):
    read, end, found = read_python(text, 0)
    assert same(read, value)
    assert (end, list(found)) == (len(text), differences)


@pytest.mark.parametrize(
    "text",
    ["not True", "x", "f(1)", "1 +", "{1: 2}", "{1, 2}", "b'a'", "f'{x}'", "[,]", "[1,,2]", "--1", "1__0"]
    + ["1e400", "9" * 500, "0x" + "f" * 500, "lambda: 0", "{'a' 1}", "{**a}", "", " "],
)
def test_what_is_no_literal_is_refused(text):
    with pytest.raises(ValueError):
        value, end, _ = read_python(text, 0)
        raise ValueError("something follows") if text[end:].strip() else AssertionError(value)


@pytest.mark.parametrize("text", ["{a: 1}", "'a'b'", '"a" "b', "(1)", "NaN", "Infinity", "r'a'", "# x"])
def test_no_difference_from_json_is_guessed(text):
    with pytest.raises(ValueError):
        value, end, _ = read_json_like(text, 0)
        raise ValueError("something follows") if text[end:].strip() else AssertionError(value)


def test_a_fault_quotes_no_tag():
    with pytest.raises(ValueError, match="< think>"):
        read_python("[<think>]", 0)


# -- bounds


@pytest.mark.parametrize("pair", ["[]", "()", "{}"])
def test_values_are_read_to_a_depth_and_no_deeper(pair):
    opening = '{"a": ' if pair == "{}" else pair[0]
    inner = ",)" if pair == "()" else pair[1]
    for depth in (1, 2, 50, DEEPEST):
        read, _, _ = read_python(opening * depth + "1" + inner * depth, 0)
        for _ in range(depth):
            read = read["a"] if pair == "{}" else read[0]
        assert read == 1
    for depth in (DEEPEST + 1, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            read_python(opening * depth + "1" + inner * depth, 0)


def test_one_reader_reads_no_more_than_its_share():
    text = "[" + "1," * 15_000 + "]"
    reader = Reader(text, python=True)
    assert len(reader.read(0)[0]) == 15_000
    with pytest.raises(ValueError, match="more than 20000 values"):
        reader.read(0)
    assert reader.after_bracket(0) is None


@pytest.mark.parametrize(
    "piece",
    ["[", "1,", "'a',", r"'\'',", '{"a":', "(", "'a' ", "'", '"""', "\\'", "\\\\", r"'\x41',", " ", "9", "a'"]
    + ["1_", "0", "-", "'''", '{"a":1},', r"\"", "\n", "\ud800", "'\\", "[]", "][", ")("],
)
@pytest.mark.parametrize("python", [True, False])
def test_a_long_text_takes_little_time(piece, python):
    text = "['" + piece * (2_000_000 // len(piece))
    for start in (0, 1):
        reader = Reader(text, python=python)
        begun = time.perf_counter()
        try:
            reader.read(start)
        except ValueError:
            reader.after_bracket(start)
        assert time.perf_counter() - begun < 5


# -- brackets


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("(a=[1, {2}])x", 12),
        ("('(', \")\")", 10),
        (r"('\'(')", 7),
        ("('''(''')", 9),
        ("((", None),
        ("('(", None),
        ("", None),
    ],
)
def test_the_end_of_brackets_is_found_past_strings(text, end):
    assert Reader(text, python=True).after_bracket(0) == end


def test_in_what_is_meant_as_json_an_apostrophe_opens_no_string():
    assert Reader("{x: don't}", python=False).after_bracket(0) == 10
