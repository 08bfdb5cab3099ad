from __future__ import annotations

from typing import Any

import pytest

from agent_r1_env.schemafit import Fit, types_of

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
POINT = {"type": "object", "properties": {"x": NUMBER}, "required": ["x"], "additionalProperties": False}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


@pytest.mark.parametrize(
    ("declared", "taken", "path", "given"),
    [
        (INTEGER, STRING, (), "an integer"),
        (NUMBER, INTEGER, (), "a number"),
        ({"type": ["string", "null"]}, STRING, (), "null"),
        ({"anyOf": [STRING, INTEGER]}, STRING, (), "an integer"),
        ({"enum": ["a", 1]}, STRING, (), "an integer"),
        ({"const": 1}, STRING, (), "an integer"),
        ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}, ("enum", 1), "'c'"),
        ({"$ref": "#/$defs/Text"}, INTEGER, (), "a string"),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}, ("items",), "an integer"),
        (obj(["x"], x=STRING), POINT, ("properties", "x"), "a string"),
        (obj(["x"], x=NUMBER, z=NUMBER), POINT, ("properties", "z"), "the key 'z'"),
        (obj(x=NUMBER), POINT, (), "an object without 'x'"),
        (obj(["x"], x=STRING), {"anyOf": [POINT, {"type": "null"}]}, ("properties", "x"), "a string"),
        (obj(a=STRING), {"type": "object", "additionalProperties": INTEGER}, ("properties", "a"), "a string"),
    ],
)
def test_what_would_not_be_taken_is_found(
    declared: Any, taken: Any, path: tuple[Any, ...], given: str
) -> None:
    fit = Fit({"$defs": {"Text": STRING}}, {})
    assert [misfit[:2] for misfit in fit.misfits(declared, taken)] == [(path, given)]


@pytest.mark.parametrize(
    ("declared", "taken"),
    [
        (INTEGER, NUMBER),
        (INTEGER, {}),
        ({}, STRING),
        (True, STRING),
        ({"minimum": 3}, STRING),
        ({"anyOf": [STRING, {}]}, INTEGER),
        ({"enum": ["a"]}, STRING),
        (STRING, {"type": "string", "enum": ["a"]}),
        (obj(x={**NUMBER, "default": 1}), POINT),
        ({"type": "object"}, POINT),
        ({"allOf": [STRING]}, STRING),
        ({"type": "array"}, {"type": "array", "items": STRING}),
    ],
)
def test_what_fits_or_says_nothing_passes(declared: Any, taken: Any) -> None:
    assert list(Fit({}, {}).misfits(declared, taken)) == []


def test_schemas_that_contain_themselves_end() -> None:
    root = {"$defs": {"N": obj(next={"$ref": "#/$defs/N"}), "Loop": {"$ref": "#/$defs/Loop"}}}
    ref = {"$ref": "#/$defs/N"}
    assert list(Fit(root, root).misfits(ref, ref)) == []
    assert types_of({"$ref": "#/$defs/Loop"}, root) is None
