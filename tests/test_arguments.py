from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_r1_env.arguments import ArgumentChecker
from agent_r1_env.errors import ArgumentError, ToolError

SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "mode": {"enum": ["bm25", "dense"]},
        "site": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "since": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "filters": {
            "type": "object",
            "properties": {"min": {"type": "number", "default": 0}, "unit": {"const": "km"}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
    "required": ["query"],
}


def check(arguments: Any, schema: dict[str, Any] = SEARCH) -> dict[str, Any]:
    return ArgumentChecker("search", schema).check(arguments)


def refusal(arguments: Any, schema: dict[str, Any] = SEARCH) -> str:
    with pytest.raises(ArgumentError) as caught:
        check(arguments, schema)
    assert isinstance(caught.value, ToolError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"query": 5}, "argument 'query' of search must be a string, but an integer (5) was given"),
        ({}, "search needs the argument 'query' (a string), which is missing"),
        ({"qurey": "x"}, "search takes no argument 'qurey'; did you mean 'query'?"),
        ({"Query": "x"}, "search takes no argument 'Query'; did you mean 'query'?"),
        ({"query": "x", "k": "3"}, "argument 'k' of search must be an integer, but a string ('3') was given"),
        (
            {"query": "x", "k": True},
            "argument 'k' of search must be an integer, but a boolean (true) was given",
        ),
        ({"query": "x", "k": 0}, "argument 'k' of search must be at least 1, but an integer (0) was given"),
        ({"query": None}, "argument 'query' of search must be a string, but null was given"),
        (
            {"query": "x", "mode": "fuzzy"},
            "argument 'mode' of search must be one of 'bm25', 'dense', but a string ('fuzzy') was given",
        ),
        (
            {"query": "x", "site": 1},
            "argument 'site' of search must be a string or null, but an integer (1) was given",
        ),
        (
            {"query": "x", "tags": "a"},
            "argument 'tags' of search must be a list of strings, but a string ('a') was given",
        ),
        (
            {"query": "x", "tags": ["a", 2]},
            "argument 'tags[1]' of search must be a string, but an integer (2) was given",
        ),
        (
            {"query": "x", "since": "yesterday"},
            "argument 'since' of search must be text in the format 'date', "
            "but a string ('yesterday') was given",
        ),
        (
            {"query": "x", "code": "A1"},
            "argument 'code' of search must be text that matches the pattern '^[a-z]+$', "
            "but a string ('A1') was given",
        ),
        (
            {"query": "x", "filters": {}},
            "argument 'filters' of search needs the key 'unit' ('km'), which is missing",
        ),
        (
            {"query": "x", "filters": {"unit": "km", "mni": 3}},
            "argument 'filters' of search takes no key 'mni'; did you mean 'min'?",
        ),
        (["x"], 'the arguments of search must be an object, but a list (["x"]) was given'),
        (None, "the arguments of search must be an object, but null was given"),
    ],
)
def test_a_misfit_is_told_in_one_sentence(arguments: Any, sentence: str) -> None:
    assert refusal(arguments) == sentence


def test_an_unknown_argument_unlike_any_other_lists_what_there_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    assert (
        refusal({"zzz": 1}, schema)
        == "search takes no argument 'zzz'; it takes 'a' (a string), 'b' (an integer)"
    )
    assert refusal({"zzz": 1}, {"type": "object"}) == "search takes no argument 'zzz'; it takes none"


def test_extra_arguments_pass_where_the_schema_says_so() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert check({"a": 1, "b": 2}, schema) == {"a": 1, "b": 2}
    assert "argument 'b' of search must be an integer" in refusal({"b": "x"}, schema)


def test_properties_declared_in_other_parts_of_the_schema_are_no_extras() -> None:
    schema = {
        "type": "object",
        "anyOf": [
            {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
            {"properties": {"name": {"type": "string"}}, "required": ["name"]},
        ],
    }
    assert check({"id": 1}, schema) == {"id": 1}
    assert check({"name": "x"}, schema) == {"name": "x"}
    refusal({"id": 1, "nome": 2}, schema)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (json.loads("1e999"), "Infinity"),
    ],
)
def test_numbers_that_json_does_not_know_are_refused_at_any_depth(number: float, shown: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 0}, "y": {}}}
    assert (
        refusal({"x": number}, schema)
        == f"argument 'x' of search must be a finite number, but {shown} was given"
    )
    assert "argument 'y[0].z' of search must be a finite" in refusal({"y": [{"z": number}]}, schema)


def test_defaults_are_filled_in_at_every_depth() -> None:
    assert check({"query": "x", "filters": {"unit": "km"}}) == {
        "query": "x",
        "k": 3,
        "filters": {"unit": "km", "min": 0},
    }
    schema = {
        "type": "object",
        "properties": {
            "area": {"$ref": "#/$defs/area", "default": {}},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/area"}},
            "target": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/area"}]},
            "both": {"allOf": [{"$ref": "#/$defs/area"}, {"properties": {"z": {"default": None}}}]},
        },
        "$defs": {"area": {"type": "object", "properties": {"km": {"type": "integer", "default": 5}}}},
    }
    assert check({"stops": [{}, {"km": 1}], "target": {}, "both": {}}, schema) == {
        "area": {"km": 5},
        "stops": [{"km": 5}, {"km": 1}],
        "target": {"km": 5},
        "both": {"km": 5, "z": None},
    }


def test_an_argument_with_a_default_is_never_missing() -> None:
    inner = {"type": "object", "properties": {"k": {"default": 1}}, "required": ["k"]}
    schema = {"type": "object", "properties": {"a": inner, "b": {"default": 2}}, "required": ["a", "b"]}
    assert check({"a": {}}, schema) == {"a": {"k": 1}, "b": 2}


def test_defaults_do_not_make_a_call_fit_that_does_not() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"], "default": None}},
        "oneOf": [{"required": ["id"]}, {"required": ["name"]}],
    }
    assert check({"id": 1}, schema) == {"id": 1, "name": None}


def test_defaults_and_arguments_are_copied() -> None:
    schema = {"type": "object", "properties": {"a": {"default": {"x": []}}, "b": {"type": "array"}}}
    checker = ArgumentChecker("t", schema)
    given_list: list[Any] = [[1]]
    result = checker.check({"b": given_list})
    result["a"]["x"].append(1)
    result["b"][0].append(2)
    assert given_list == [[1]]
    assert checker.check({})["a"] == {"x": []}


def test_the_schema_itself_is_left_as_it_was() -> None:
    schema = {"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]}
    before = copy.deepcopy(schema)
    check({}, schema)
    assert schema == before


@pytest.mark.parametrize(
    ("schema", "value", "part"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "must be an integer or null"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, "as its schema says"),
        ({"anyOf": [{"type": "object", "required": ["row"]}, {"type": "null"}]}, {}, "needs the key 'row'"),
        ({"$ref": "#/$defs/level"}, 9, "must be one of 1, 2"),
        ({"not": {"type": "string"}}, "x", "as its schema says"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, 3, "a list whose items are one of 'a', 'b'"),
        ({"enum": list(range(30))}, "x", "or 10 others"),
        ({"multipleOf": 3}, 4, "a multiple of 3"),
        ({"uniqueItems": True}, [1, 1], "without repeated items"),
        ({"minProperties": 1}, {}, "at least 1 keys"),
        (False, 1, "as its schema says"),
    ],
)
def test_every_kind_of_constraint_has_words(schema: Any, value: Any, part: str) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"level": {"enum": [1, 2]}}}
    assert part in refusal({"x": value}, whole)


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-01-01T10:00:00Z", "2024-01-01 10:00"),
        ("time", "10:00:00+02:00", "25:00:00Z"),
        ("duration", "P1DT2H", "2 hours"),
        ("email", "a@b.c", "a.b.c"),
        ("uri", "https://x.y/z?q=1", "not a uri"),
        ("uri-reference", "/a/b", "a b"),
        ("hostname", "a-b.example", "-a.example"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "::g"),
        ("uuid", "12345678-1234-5678-1234-567812345678", "1234"),
        ("regex", "a+", "a("),
        ("json-pointer", "/a/0", "a"),
    ],
)
def test_formats_are_checked(format_: str, good: str, bad: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "format": format_}}}
    assert check({"x": good}, schema) == {"x": good}
    assert f"text in the format '{format_}'" in refusal({"x": bad}, schema)


def test_long_values_are_shown_in_short() -> None:
    assert len(refusal({"query": ["x" * 1_000_000]})) < 200
    assert len(refusal({"query": "x", "x" * 1_000_000: 1})) < 300


def test_deep_and_large_values_are_refused_and_not_raised() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    schema = {"type": "object", "properties": {"x": {}, "n": {"multipleOf": 0.1}}}
    assert refusal({"x": deep}, schema) == "the arguments of search are nested too deeply"
    assert "too large" in refusal({"n": 10**400}, schema)
    while deep:  # taken apart by hand: freeing it at once would recurse as deep
        deep = deep.pop()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*SEARCH["properties"], "qurey", "x"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(names, json_values, max_size=4) | json_values)
def test_whatever_comes_is_completed_or_refused(arguments: Any) -> None:
    checker = ArgumentChecker("search", SEARCH)
    before = copy.deepcopy(arguments)
    try:
        completed = checker.check(arguments)
    except ArgumentError as refused:
        assert "\n" not in str(refused) and len(str(refused)) < 500
    else:
        assert completed["k"] in range(1, 11) and isinstance(completed["query"], str)
        assert {name: completed[name] for name in arguments if name != "filters"} == {
            name: value for name, value in arguments.items() if name != "filters"
        }
        assert checker.check(completed) == completed
    assert repr(arguments) == repr(before)
