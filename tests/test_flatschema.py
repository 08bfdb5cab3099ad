"""The short cut for simple schemas: never laxer than JSON Schema, and taken where most tools need it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env.arguments import ArgumentChecker
from agent_r1_env.errors import ArgumentError
from agent_r1_env.flatschema import flat

NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 2.5, 3.0, 10**400, -0.0])
TEXTS = st.sampled_from(["", "a", "bc", "é\U0001f600"])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.sampled_from([math.nan, math.inf]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2)
)
NAMES = st.sampled_from(["a", "b", "c", "d"])
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null"])
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3),
        "minimum": st.sampled_from([0, 1.5]),
        "exclusiveMaximum": st.sampled_from([2, 3.0]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "description": st.just("Words."),
        "default": SCALARS,
        "pattern": st.just("a"),
    },
)
PARTS = LEAVES | st.builds(
    lambda items, rules: {**rules, "type": "array", "items": items}, LEAVES, LEAVES | st.just({})
)
SCHEMAS = st.builds(
    lambda properties, required: {"type": "object", "properties": properties, "required": required},
    st.dictionaries(NAMES, PARTS, max_size=4),
    st.lists(NAMES, max_size=2, unique=True),
)
ARGUMENTS = st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=4) | VALUES


ALL_VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3, 2.5, 3.0, 10**400, -0.0, math.nan, math.inf, -math.inf),
    *("", "a", "ab", "abc", "\U0001f600", [], {}, {"a": 1}, ["a"], ["a", "abc"], [1], [1, True], [1, 2, 3]),
    *([1.0], [math.nan], [None], [[1]]),
]
ALL_PARTS: list[Any] = [
    *({"type": name} for name in ("string", "integer", "number", "boolean", "null")),
    *({"type": ["integer", "null"]}, {"type": ["string", "number"]}, {"enum": ["a", "abc"]}, {"enum": [1]}),
    *({"type": "number", "minimum": 1, "maximum": 2.5}, {"type": "string", "enum": ["a"], "maxLength": 2}),
    *({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}, {"type": ["string", "null"]}),
    *({"type": "string", "minLength": 1}, {"type": "string", "maxLength": 2}, {}, True, False),
    *({"type": "array", "items": {"type": name}} for name in ("string", "integer", "number", "null")),
    *({"type": "array", "items": {"enum": ["a"]}, "minItems": 1}, {"type": "array"}, {"type": "object"}),
    *({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, {"type": "number", "multipleOf": 2}),
]


def outcome(checker: ArgumentChecker, arguments: Any) -> str:
    """What comes of a check, in full: the order of keys and the types of numbers, too."""
    try:
        return json.dumps(checker.check(arguments))
    except ArgumentError as refusal:
        return str(refusal)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, st.lists(ARGUMENTS, min_size=1, max_size=4))
def test_arguments_are_judged_and_completed_as_json_schema_does(schema: Any, asked: list[Any]) -> None:
    short, whole = ArgumentChecker("t", schema), ArgumentChecker("t", schema)
    whole._flat = None
    for arguments in asked:
        before = repr(arguments)
        assert outcome(short, arguments) == outcome(whole, arguments)
        assert repr(arguments) == before


@pytest.mark.parametrize("part", ALL_PARTS, ids=str)
def test_each_value_is_judged_as_json_schema_does(part: Any) -> None:
    schema = {"type": "object", "properties": {"a": part, "b": {"type": "integer", "default": 3}}}
    short, whole = ArgumentChecker("t", schema), ArgumentChecker("t", schema)
    whole._flat = None
    for value in ALL_VALUES:
        for arguments in ({"a": value}, {"b": value}, {"c": value}, {"b": value, "a": value}, value):
            assert outcome(short, arguments) == outcome(whole, arguments)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "description": "A text."},
        {"type": "integer", "default": 3, "minimum": 1, "maximum": 10},
        {"type": ["number", "null"], "default": None},
        {"enum": ["a", "b"]},
        {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 5},
    ],
)
def test_what_most_tools_take_is_taken_by_the_short_cut(part: dict[str, Any]) -> None:
    assert flat({"type": "object", "properties": {"a": part}, "additionalProperties": False}) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {}, "additionalProperties": False},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}, "additionalProperties": False, "minProperties": 1},
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "array"}}, "additionalProperties": False},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "format": "date"}},
            "additionalProperties": False,
        },
    ],
)
def test_what_it_does_not_know_is_left_to_json_schema(schema: dict[str, Any]) -> None:
    assert flat(schema) is None


def test_lists_of_a_call_are_copied() -> None:
    checker = ArgumentChecker(
        "t", {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    )
    given = {"a": [1]}
    checker.check(given)["a"].append(2)
    assert given == {"a": [1]}
