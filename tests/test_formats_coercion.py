"""Arguments written as bare text: typed by the schema, and left as text where it says nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import formats
from agent_r1_env.formats.coercion import (
    argument_schema,
    parameters_of,
    takes_text,
    text_argument,
    typed,
    typed_arguments,
    written,
)

NULLABLE_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
OBJECT_OR_TEXT = {"anyOf": [{"type": "object"}, {"type": "string"}]}


def value(text: str, schema: Any, root: dict[str, Any] | None = None, **options: bool) -> Any:
    return typed(text, schema, root or {}, **options)[0]


OVERRULED = {
    ("boolean", "yes"): "false in silence would hide the mistake; left as text, validation tells the model",
}
"""Published values that are read otherwise here, and why."""


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and true are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# -- published values


def test_published_values_are_typed_as_expected(shared_data):
    file = shared_data.parent / "cases" / "xml_param_coercion.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = {}
    for row in rows:
        schema = {} if row["type"] is None else {"type": row["type"]}
        tools = [{"function": {"name": "f", "parameters": {"properties": {"x": schema}}}}]
        reply = f"<function=f><parameter=x>{row['raw']}</parameter></function>"
        (call,) = formats.get("qwen3_coder").parse(reply, tools).calls
        if call.arguments != {"x": row["value"]}:
            wrong[row["type"], row["raw"]] = call.arguments["x"]
    assert wrong == {key: key[1] for key in OVERRULED}
    assert len(rows) > 30


# -- one type


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "12345", "12345"),
        ("string", " a\n", " a\n"),
        ("string", "null", "null"),
        ("string", '{"a": 1}', '{"a": 1}'),
        ("integer", "42", 42),
        ("integer", " -7\n", -7),
        ("integer", "+7", 7),
        ("integer", "007", 7),
        ("integer", "3.0", 3),
        ("integer", "2147483648", 2147483648),
        ("number", "123", 123),
        ("number", "100.0", 100.0),
        ("number", ".5", 0.5),
        ("number", "1.5e-3", 0.0015),
        ("number", "1e+22", 1e22),
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("null", "null", None),
        ("null", "None", None),
        ("array", "[1, 2.5, null]", [1, 2.5, None]),
        ("array", "(1, 2)", [1, 2]),
        ("object", ' {"a": [true]} ', {"a": [True]}),
    ],
)
def test_a_text_is_read_as_the_type_that_its_schema_names(kind, text, expected):
    assert same(value(text, {"type": kind}), expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "next Monday"),
        ("integer", "3.5"),
        ("integer", "1e3"),
        ("integer", "1_000"),
        ("integer", "٣"),
        ("integer", "true"),
        ("integer", ""),
        ("integer", "9" * 5000),
        ("number", "3.14.159"),
        ("number", "NaN"),
        ("number", "Infinity"),
        ("number", "1e999"),
        ("number", "1e"),
        ("number", "9" * 1_000_000),
        ("boolean", "maybe"),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("null", ""),
        ("array", "[1, 2, unclosed"),
        ("array", "a, b"),
        ("array", '{"a": 1}'),
        ("array", "[NaN]"),
        ("object", '{"key": unclosed'),
        ("object", "[1]"),
        ("object", '{"a": 1} and more'),
        ("object", "{'a': open('x')}"),
        ("object", '{"a":' * 100_000),
        ("array", "[" * 100_000),
        ("anything", "5"),
    ],
)
def test_what_cannot_be_typed_stays_the_text_it_is(kind, text):
    assert typed(text, {"type": kind}, {}) == (text, ())


@pytest.mark.parametrize("schema", [None, True, False, 5, {}, {"description": "x"}, {"nullable": True}])
def test_where_the_schema_says_nothing_all_is_text(schema):
    for text in ("5", "true", "null", "[1]", " x "):
        assert value(text, schema) == text


@pytest.mark.parametrize(
    ("alias", "text", "expected"),
    [
        ("float", "3.14", 3.14),
        ("int64", "3", 3),
        ("Bool", "true", True),
        ("dict", "{}", {}),
        ("list", "[]", []),
        ("str", "3", "3"),
    ],
)
def test_names_of_types_that_are_no_json_schema_are_understood(alias, text, expected):
    assert same(value(text, {"type": alias}), expected)


def test_what_a_schema_describes_says_its_type():
    assert value('{"a": 1}', {"properties": {"a": {}}}) == {"a": 1}
    assert value("[1]", {"items": {}}) == [1]


# -- Python literals


def test_a_python_container_is_read_and_named_as_a_repair():
    filters = "{'category': 'books', 'in_stock': True}"
    assert typed(filters, {"type": "object"}, {}) == (
        {"category": "books", "in_stock": True},
        ("python_literal",),
    )
    assert typed("['fiction', None]", {"type": "array"}, {}) == (["fiction", None], ("python_literal",))


def test_a_python_container_stays_text_where_text_is_allowed():
    assert typed("['a']", {"type": ["array", "string"]}, {}) == ("['a']", ())
    assert typed("(555)", {"type": ["array", "string"]}, {}) == ("(555)", ())
    assert typed('["a"]', {"type": ["array", "string"]}, {}) == (["a"], ())


# -- several types


@pytest.mark.parametrize(
    ("kinds", "text", "expected"),
    [
        (["boolean", "null"], "false", False),
        (["boolean", "null"], "null", None),
        (["boolean", "null"], "maybe", "maybe"),
        (["boolean", "null"], "None", None),
        (["string", "null"], "null", None),
        (["string", "null"], "None", "None"),
        (["string", "integer"], "123", 123),
        (["integer", "string"], "12a", "12a"),
        (["string", "number"], "42.5", 42.5),
        (["integer", "number"], "42", 42),
        (["number", "integer"], "42.0", 42.0),
        (["string", "boolean"], "false", False),
        (["boolean", "string"], "yes", "yes"),
        (["array", "object"], '{"a": 1}', {"a": 1}),
        (["array", "object"], "[1]", [1]),
        (["array", "string"], "Error: none", "Error: none"),
        (["string", "number", "boolean", "null"], "3.14", 3.14),
        ([], "3", "3"),
    ],
)
def test_of_several_types_the_narrowest_that_fits_counts(kinds, text, expected):
    assert same(value(text, {"type": kinds}), expected)
    for keyword in ("anyOf", "oneOf"):
        assert same(value(text, {keyword: [{"type": kind} for kind in kinds]}), expected)


def test_an_option_that_may_be_anything_makes_all_text():
    assert value("7", {"anyOf": [{"type": "integer"}, {}]}) == "7"


def test_a_nullable_number_is_a_number_or_nothing():
    assert value("7", NULLABLE_INTEGER) == 7
    assert value("null", NULLABLE_INTEGER) is None
    assert value("None", NULLABLE_INTEGER) is None
    assert value("null", {"type": "integer", "nullable": True}) is None
    assert value("null", {"type": "integer"}) == "null"


def test_an_object_is_not_encoded_as_text_where_both_are_allowed():
    assert value('{"row": 3}', OBJECT_OR_TEXT) == {"row": 3}
    assert value("{row}", OBJECT_OR_TEXT) == "{row}"


def test_all_parts_that_apply_must_accept_the_type():
    assert value("7", {"allOf": [{"type": "number"}, {"type": "integer"}]}) == 7
    assert value("7", {"type": ["string", "integer"], "allOf": [{"type": "string"}]}) == "7"
    assert value("7", {"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "x"}]}) == "7"
    assert value("7", {"allOf": [{"type": "string"}, {"type": "boolean"}]}) == "7"


# -- null


def test_null_is_null_everywhere_for_a_family_whose_parser_says_so():
    assert value("null", {"type": "string"}, null_word=True) is None
    assert value("NULL", {"type": "integer"}, null_word=True) is None
    assert value("null", None, null_word=True) is None
    assert value(" null ", {"type": "string"}, null_word=True) == " null "
    assert value("None", {"type": "string"}, null_word=True) == "None"
    assert value("None", {"type": ["string", "null"]}, null_word=True) is None
    assert value("null", {"enum": ["null", "x"]}, null_word=True) == "null"


# -- enumerations


@pytest.mark.parametrize(
    ("members", "text", "expected"),
    [
        (["a", "b c"], "b c", "b c"),
        (["a", "b c"], "\na ", "a"),
        (["a", "b c"], "d", "d"),
        ([" a", "a"], " a", " a"),
        (["1", "2"], "1", "1"),
        ([1, 2], "2", 2),
        ([1, 2], "2.0", 2),
        ([1, 2], "5", 5),
        ([1.5, 2], "1.5", 1.5),
        ([True, False], "True", True),
        ([None, "a"], "null", None),
        (["null", "a"], "null", "null"),
        ([[1, 2], [3]], "[1,2]", [1, 2]),
        ([{"a": 1}], '{"a":1}', {"a": 1}),
        (["3", 3], "3", "3"),
    ],
)
def test_members_of_an_enumeration_say_the_type(members, text, expected):
    assert same(value(text, {"enum": members}), expected)


def test_an_enumeration_and_its_type_agree():
    assert same(value("1", {"type": "number", "enum": [1, 2]}), 1)
    assert same(value("1", {"type": "string", "enum": ["1"]}), "1")
    assert value("null", {"type": "string", "enum": ["a"], "nullable": True}) is None


def test_a_constant_says_its_type():
    assert same(value("5", {"const": 5}), 5)
    assert same(value("5", {"const": "5"}), "5")


def test_an_enumeration_in_a_union_leaves_the_other_options_their_types():
    union = {"anyOf": [{"type": "integer"}, {"enum": ["auto"]}]}
    assert value("7", union) == 7
    assert value(" auto ", union) == "auto"
    assert value(" auto ", {"anyOf": [{"enum": ["auto"]}, {"type": "string"}]}) == " auto "


def test_a_value_from_an_enumeration_is_not_the_schemas_own_object():
    schema = {"enum": [[1]]}
    value("[1]", schema).append(2)
    assert schema == {"enum": [[1]]}


# -- references


ROOT: dict[str, Any] = {
    "properties": {"n": {"$ref": "#/$defs/Count"}, "t": {"$ref": "#/$defs/Tree"}, "x": {"$ref": "#/none"}},
    "$defs": {
        "Count": {"anyOf": [{"$ref": "#/$defs/Whole"}, {"type": "null"}]},
        "Whole": {"type": "integer"},
        "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Tree"}, {"type": "array"}]},
    },
}


def test_a_local_reference_is_followed():
    assert value("7", ROOT["properties"]["n"], ROOT) == 7
    assert value("null", ROOT["properties"]["n"], ROOT) is None
    assert value('{"row": 3}', {"$ref": "#/$defs/T"}, {"$defs": {"T": OBJECT_OR_TEXT}}) == {"row": 3}


@pytest.mark.parametrize("argument", ["t", "x"])
def test_a_reference_that_leads_nowhere_or_round_says_nothing(argument):
    assert value("7", argument_schema(ROOT, argument), ROOT) == "7"


def test_a_reference_out_of_the_schema_says_nothing():
    assert value("7", {"$ref": "https://example.com/x.json"}) == "7"


# -- where the schema of an argument is found


def test_the_parameters_of_a_tool_are_found_by_its_name():
    bare, wrapped = {"name": "a", "parameters": {"x": 1}}, {"function": {"name": "b"}}
    assert parameters_of([wrapped, bare], "a") == {"x": 1}
    assert parameters_of([wrapped, bare], "b") == {}
    assert parameters_of([wrapped, {"function": None}, {}], "c") == {}


def test_an_argument_is_found_in_the_parts_of_a_schema():
    parameters = {
        "$ref": "#/$defs/Base",
        "allOf": [{"properties": {"b": {"type": "boolean"}}}],
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "number"},
        "$defs": {"Base": {"properties": {"c": {"type": "array"}}}},
    }
    kinds = [argument_schema(parameters, name)["type"] for name in "abcd"]
    assert kinds == ["integer", "boolean", "array", "number"]
    assert argument_schema({"additionalProperties": False}, "a") is None


def test_arguments_are_typed_one_by_one_and_the_last_of_two_counts():
    parameters = {"properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}
    texts = [("a", "1"), ("b", "['x']"), ("c", "2"), ("a", "3"), ("d", "{'y': 1}")]
    assert typed_arguments(texts, parameters) == (
        {"a": 3, "b": ["x"], "c": "2", "d": "{'y': 1}"},
        ("python_literal",),
    )


def test_the_argument_that_bare_text_stands_for():
    text, number = {"type": ["string", "null"]}, {"type": "integer"}
    assert text_argument({"properties": {"q": text}}) == "q"
    assert text_argument({"properties": {"q": text, "k": number}, "required": ["q"]}) == "q"
    assert text_argument({"properties": {"q": text, "k": number}}) == "q"
    assert text_argument({"properties": {"q": text, "k": number}, "required": ["k"]}) is None
    assert text_argument({"properties": {"q": text, "k": number}, "required": ["q", "k"]}) is None
    assert text_argument({"properties": {"q": text, "r": text}}) is None
    assert text_argument({"properties": {"k": number}}) is None
    assert text_argument({}) is None


def test_a_schema_says_whether_it_takes_text():
    assert takes_text({"enum": ["a", 1]}, {})
    assert not takes_text({"type": "integer"}, {})
    assert not takes_text({}, {})


# -- what holds for all


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
).filter(lambda each: "Infinity" not in json.dumps(each))
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "integer": st.integers(),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**15), 10**15),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(json_values, max_size=4),
    "object": st.dictionaries(st.text(), json_values, max_size=4),
}
of_one_type = st.sampled_from(sorted(OF_TYPE)).flatmap(lambda kind: st.tuples(st.just(kind), OF_TYPE[kind]))


@given(of_one_type)
def test_what_is_written_for_a_type_is_read_back(pair):
    kind, original = pair
    assert same(value(written(original), {"type": kind}), original)


@given(of_one_type, st.lists(st.sampled_from(sorted(set(OF_TYPE) - {"string"})), max_size=3))
def test_what_is_written_for_a_union_without_text_is_read_back(pair, others):
    kind, original = pair
    options = [{"type": each} for each in (*others, kind)]
    root = {"$defs": {"It": {"anyOf": options}}}
    if kind != "string" or not others:
        assert same(value(written(original), {"$ref": "#/$defs/It"}, root), original)


@given(st.lists(json_values, min_size=1, max_size=3), st.data())
def test_members_of_an_enumeration_of_other_values_than_text_are_read_back(members, data):
    members = [each for each in members if not isinstance(each, str)] or [None]
    original = data.draw(st.sampled_from(members))
    read = value(written(original), {"enum": members})
    assert same(read, original) or (isinstance(original, float) and read == original)


keywords = st.sampled_from(
    ("type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "nullable", "properties", "items", "$defs")
)
words = st.sampled_from(
    ("string", "integer", "null", "object", "array", "#", "#/$defs/a", "#/properties", "a")
)
schemas = st.recursive(
    words | st.booleans() | st.none() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | words, inner, max_size=4),
    max_leaves=12,
)
awkward = st.text() | st.sampled_from(
    ("null", "None", "true", "[1]", "{'a': 1}", '{"a": 1e999}', "(", "-", "1e5", "0x1", "\ud800", "9" * 5000)
)


@settings(max_examples=300)
@given(awkward, schemas, st.booleans())
def test_no_schema_and_no_text_raises(text, schema, null_word):
    root = schema if isinstance(schema, dict) else {}
    read, repairs = typed(text, schema, root, null_word=null_word)
    assert isinstance(read, str) <= (read in (text, text.strip()))
    assert repairs in ((), ("python_literal",))
    argument_schema(root, "a")
    text_argument(root)
