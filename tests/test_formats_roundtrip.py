"""What a family writes for arbitrary schemas and arguments is read back whole, in every wire format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import wire
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agent_r1_env import ToolCall, formats

Arguments = dict[str, Any]
Defs = dict[str, Any]

names = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True) | st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
keys = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,15}", fullmatch=True)
AWKWARD = (
    *(
        '"',
        "'",
        "\\",
        "\n",
        "\r\n",
        "\t",
        " ",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
        "=",
        ";",
        "<",
        ">",
        "|",
    ),
    *(
        "null",
        "None",
        "true",
        "True",
        "3",
        "-0.5",
        "1e5",
        "NaN",
        "[1, 2]",
        '{"a": 1}',
        "{'a': None}",
        "",
        "é",
        "\u2028",
    ),
    *(
        "```",
        "```json\n",
        "\n```",
        "\x00",
        "\x1f",
        "\u200b",
        "🙂",
        "\\n",
        "\\u0041",
        "\\ud83d",
        '\\"',
        "&lt;",
        "%s",
    ),
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<function=a>", "</function>", "<parameter=a>"),
    *(
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "</arg_value>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[/TOOL_CALLS]",
        "</s>",
    ),
    *(
        "<|call|>",
        "<|end|>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|python_tag|>",
    ),
    *(
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "</｜DSML｜parameter>",
        "<|tool_call_end|>",
        "functools[",
        ">>>",
    ),
    *(
        "<escape>",
        '<|"|>',
        "<end_function_call>",
        "<tool_call|>",
        "Observation:",
        "\nObservation: x",
        "\nAction: a",
    ),
    *(
        "<search>",
        "</search>",
        "<answer>",
        "<code>",
        "</code>",
        "<|tool_calls_section_end|>",
        "functions.a:0",
    ),
)
strings = (
    st.text(max_size=12)
    | st.sampled_from(AWKWARD)
    | st.lists(st.sampled_from(AWKWARD) | st.text("ab \n", max_size=3), max_size=5).map("".join)
)
integers = st.integers(-(10**15), 10**15)
numbers = st.floats(allow_nan=False, allow_infinity=False) | integers
anything = st.recursive(
    st.none() | st.booleans() | integers | numbers | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=5,
)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "string": strings,
    "integer": integers,
    "number": numbers,
    "boolean": st.booleans(),
}


@st.composite
def typed_values(draw: st.DrawFn, defs: Defs, depth: int = 2) -> tuple[Any, Any]:
    """A schema and a value that fits it; what the schema refers to goes into ``defs``."""
    shapes = ["plain", "plain", "plain", "enum", "free"]
    if depth:
        shapes += ["array", "object", "maybe", "nullable", "union", "reference"]
    shape = draw(st.sampled_from(shapes))
    if shape == "plain":
        kind = draw(st.sampled_from(sorted(PLAIN)))
        return {"type": kind}, draw(PLAIN[kind])
    if shape == "enum":
        members = draw(st.lists(st.sampled_from(["a", "b c", "3", "null", 3, 2, True, None]), min_size=1))
        return {"enum": members}, draw(st.sampled_from(members))
    if shape == "free":
        return {"type": "object"}, draw(st.dictionaries(strings, anything, max_size=3))
    inner, value = draw(typed_values(defs, depth - 1))
    if shape == "array":
        return {"type": "array", "items": inner}, draw(st.sampled_from([[], [value], [value, value]]))
    if shape == "object":
        key = draw(keys)
        return {"type": "object", "properties": {key: inner}}, {key: value}
    if shape == "maybe":
        return {"anyOf": [inner, {"type": "null"}]}, draw(st.sampled_from([value, None]))
    if shape == "nullable":
        kind = draw(st.sampled_from(sorted(PLAIN)))
        return {"type": [kind, "null"]}, draw(PLAIN[kind] | st.none())
    if shape == "union":
        other, also = draw(typed_values(defs, depth - 1))
        return {"anyOf": [inner, other]}, draw(st.sampled_from([value, also]))
    place = f"Part{len(defs)}"
    defs[place] = inner
    return {"$ref": f"#/$defs/{place}"}, value


@st.composite
def tools_and_calls(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[ToolCall]]:
    """One or two tools, and one to three calls of them whose arguments fit."""
    tools, calls = [], []
    for name in draw(st.lists(names, min_size=1, max_size=2, unique=True)):
        defs: Defs = {}
        arguments, properties = {}, {}
        for key in draw(st.lists(keys, max_size=3, unique=True)):
            properties[key], arguments[key] = draw(typed_values(defs))
        tools.append(wire.schema(name, {"type": "object", "properties": properties, "$defs": defs}))
        calls += [ToolCall(name, arguments, "")] * draw(st.integers(1, 2))
    return tools, [ToolCall(call.name, call.arguments, f"call_{at}") for at, call in enumerate(calls[:3])]


CARRIES: dict[str, tuple[Callable[[ToolCall, dict[str, Any]], bool], str]] = {}
"""Formats that cannot carry every call: which they can, and why not the others."""


def carried(name: str, call: ToolCall, tools: list[dict[str, Any]]) -> bool:
    parameters = next(tool["function"] for tool in tools if tool["function"]["name"] == call.name)[
        "parameters"
    ]
    return name not in CARRIES or CARRIES[name][0](call, parameters)


@pytest.mark.parametrize("name", formats.names())
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(given_=tools_and_calls(), prose=st.text("ab .,é", max_size=12).map(str.strip))
def test_rendered_calls_are_read_back_whole(
    name: str, given_: tuple[list[dict[str, Any]], list[ToolCall]], prose: str
) -> None:
    tools, calls = given_
    assume(all(carried(name, call, tools) for call in calls))
    parsed = formats.get(name).parse(wire.reply_with(name, prose, calls), tools)
    assert not parsed.errors
    assert wire.exact(wire.named(parsed.calls)) == wire.exact(wire.named(calls))
    assert parsed.content.strip() == prose
    assert parsed.reasoning == ""
    assert len({call.id for call in parsed.calls}) == len(calls)
