from __future__ import annotations

from typing import Any

import pytest

from agent_r1_env.parameters import check_parameters, unknown_keywords
from agent_r1_env.schematree import SchemaFault


def in_object(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, **more}


@pytest.mark.parametrize(
    ("parameters", "path", "reason"),
    [
        ({}, ("type",), "the parameters of a tool need type: object"),
        ({"type": "array"}, ("type",), "the parameters of a tool need type: object"),
        (
            in_object({"type": "strng"}),
            ("properties", "x", "type"),
            "unknown type 'strng'; did you mean 'string'?",
        ),
        (
            in_object({"type": "string"}, required="x"),
            ("required",),
            "'required' must be a list of strings, not a string ('x')",
        ),
        (in_object({"minimum": "1"}), ("properties", "x", "minimum"), "must be a number, not a string ('1')"),
        (in_object({"pattern": "("}), ("properties", "x", "pattern"), "must be text in the format 'regex'"),
        (in_object({"$ref": "#/$defs/y"}), ("properties", "x", "$ref"), "leads to nothing in this schema"),
        (in_object({"$ref": "https://a.b/c"}), ("properties", "x", "$ref"), "leads out of the schema"),
        (in_object({"$ref": "#y"}), ("properties", "x", "$ref"), "names no $anchor"),
        ({"type": "object", "$ref": "#"}, (), "leads back to itself without end"),
        (
            in_object({"type": "integer", "default": "ten"}),
            ("properties", "x", "default"),
            "the default must be an integer, but it is a string ('ten')",
        ),
        (in_object({}, required=["x", "xs"]), ("required", 1), "required names 'xs', which is no property"),
    ],
)
def test_an_unsound_schema_is_told_with_its_path(
    parameters: dict[str, Any], path: tuple[str | int, ...], reason: str
) -> None:
    with pytest.raises(SchemaFault) as caught:
        check_parameters(parameters)
    assert caught.value.path == path
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object"},
        in_object({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        in_object({"$ref": "#/$defs/a~1b"}, **{"$defs": {"a/b": {"type": "string"}}}),
        in_object({"$ref": "#here"}, **{"$defs": {"y": {"$anchor": "here"}}}),
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "object", "patternProperties": {"^x": {}}, "required": ["xy"]},
        {"type": "object", "additionalProperties": True, "required": ["free"]},
        {"type": "object", "anyOf": [{"properties": {"a": {}}}], "required": ["a"]},
    ],
)
def test_sound_schemas_pass(parameters: dict[str, Any]) -> None:
    check_parameters(parameters)
    assert not list(unknown_keywords(parameters))


def test_a_schema_that_is_no_json_is_refused() -> None:
    loop: dict[str, Any] = {"type": "object"}
    loop["properties"] = {"x": loop}
    for parameters in ({"type": "object", "default": {1, 2}}, loop):
        with pytest.raises(SchemaFault, match="must be JSON data"):
            check_parameters(parameters)


@pytest.mark.parametrize(
    ("parameters", "path", "reason"),
    [
        ({"propertes": {}}, ("propertes",), "'propertes'; did you mean 'properties'?"),
        ({"requird": []}, ("requird",), "'requird'; did you mean 'required'?"),
        (in_object({"typ": "string"}), ("properties", "x", "typ"), "'typ'; did you mean 'type'?"),
        (in_object({"items": {"minLenght": 1}}), ("properties", "x", "items", "minLenght"), "'minLength'?"),
        (in_object({"anyOf": [{}, {"enm": []}]}), ("properties", "x", "anyOf", 1, "enm"), "'enum'?"),
        (in_object({"nullable": True}), ("properties", "x", "nullable"), "add 'null' to the list of types"),
        (
            {"type": "object", "city": {"type": "string"}},
            ("city",),
            "arguments are declared under 'properties'",
        ),
        (in_object({"format": "data-time"}), ("properties", "x", "format"), "did you mean 'date-time'?"),
        (in_object({"format": "zzz"}), ("properties", "x", "format"), "known: binary, byte, date"),
    ],
)
def test_keywords_that_json_schema_ignores_are_found(
    parameters: dict[str, Any], path: tuple[str | int, ...], reason: str
) -> None:
    fault = next(unknown_keywords(parameters))
    assert fault.path == path
    assert reason in str(fault)


def test_arguments_may_be_called_like_keywords_or_anything_else() -> None:
    schema = {"type": "object", "properties": {"type": {"type": "string"}, "propertes": {}}, "x-mine": 1}
    assert not list(unknown_keywords(schema))
