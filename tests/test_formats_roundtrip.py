"""What a family writes for arbitrary schemas and arguments is read back whole, in every wire format."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import wire
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agent_r1_env import ToolCall, formats

EXAMPLES = int(os.environ.get("AGENT_R1_EXAMPLES", "200"))

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
    shapes = ["plain", "plain", "plain", "enum", "free", "open"]
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
    if shape == "open":
        return {"description": "anything"}, draw(anything)
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


# -- what a format cannot carry

LOOKS_TYPED = re.compile(r"\s*(?:[\[{(]|[-+.]?[0-9]|(?:null|none|true|false)\s*\Z)", re.IGNORECASE)


def leaves(schema: Any, root: Any) -> Iterator[Any]:
    """The schemas that a schema may stand for."""
    if "$ref" in schema:
        yield from leaves(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for option in schema.get("anyOf", ()):
        yield from leaves(option, root)
    if not {"$ref", "anyOf"} & set(schema):
        yield schema


def texts(value: Any) -> Iterator[str]:
    """All texts in a value, and all keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from texts(each)


def listed(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind


def reads_as_typed(value: Any, schema: Any, root: Any) -> bool:
    """Whether bare text leaves no doubt about a value, by its schema."""
    options = list(leaves(schema, root))
    if any("type" not in option and "enum" not in option for option in options):
        return isinstance(value, str)
    members = [member for option in options for member in option.get("enum", ())]
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) not in members
    kinds = {kind for option in options for kind in listed(option.get("type", []))}
    if "string" not in kinds:
        return True
    only_text = kinds == {"string"} and all(isinstance(member, str) for member in members)
    return only_text or not LOOKS_TYPED.match(value)


def typed_by_schema(call: ToolCall, parameters: Any) -> bool:
    return all(
        reads_as_typed(value, parameters["properties"][key], parameters)
        for key, value in call.arguments.items()
    )


def without(*marks: str) -> Callable[[ToolCall, Any], bool]:
    def carries(call: ToolCall, _: Any) -> bool:
        return not any(mark in text for text in texts(call.arguments) for mark in marks)

    return carries


def plain_text(pattern: str) -> Callable[[ToolCall, Any], bool]:
    """Carries what the schema types, and no text with a tag of the format, which nothing escapes."""
    tag = re.compile(pattern)

    def carries(call: ToolCall, parameters: Any) -> bool:
        return typed_by_schema(call, parameters) and not any(tag.search(t) for t in texts(call.arguments))

    return carries


CARRIES: dict[str, Callable[[ToolCall, Any], bool]] = {
    # One text, which must be code, in a fence that can be made longer than those in it, but not for ever.
    "code_block": lambda call, _: (
        bool(call.arguments["code"].strip()) and "`" * 10 not in call.arguments["code"]
    ),
    # The mark that ends a text is not escaped.
    "deepseek v3.2": without("</｜DSML｜parameter>"),
    # That recipient is the user.
    "functionary v3.2": lambda call, _: call.name != "all",
    # The marks around a text are not escaped.
    "gemma": without("<escape>"),
    "gemma gemma4": without('<|"|>'),
    # Values are bare text.
    "glm4": plain_text(r"</?arg_|</?tool_call>"),
    # Values are bare text, and the word null is null whatever the schema says.
    "qwen3_coder": lambda call, parameters: (
        plain_text(r"</?(?:tool_call|function|parameter)")(call, parameters)
        and "null" not in [str(value).strip().lower() for value in call.arguments.values()]
    ),
    # These tags have a meaning of their own, and the last one ends a turn.
    "xml_tags": lambda call, _: call.name not in ("information", "answer", "think", "s"),
}
"""What each format can carry; those that are not named can carry everything."""
CARRIES["code_block fences"] = CARRIES["code_block"]


IDS = {"mistral": r"[a-zA-Z0-9]{9}", "kimi_k2": r"functions\.[a-zA-Z0-9_-]{1,64}:[0-9]+"}
"""The form of ids, in families whose templates refuse others."""


def as_code(calls: list[ToolCall]) -> tuple[list[dict[str, Any]], list[ToolCall]]:
    """The calls as calls of the one tool that runs code."""
    tool = wire.schema("run", {"type": "object", "properties": {"code": {"type": "string"}}})
    return [tool], [
        ToolCall("run", {"code": next(texts(call.arguments), call.name)}, call.id) for call in calls
    ]


@pytest.mark.parametrize("spec", wire.SPECS)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(given_=tools_and_calls(), prose=st.text("ab .,é", max_size=12).map(str.strip))
def test_rendered_calls_are_read_back_whole(
    spec: str, given_: tuple[list[dict[str, Any]], list[ToolCall]], prose: str
) -> None:
    tools, calls = as_code(given_[1]) if spec.startswith("code_block") else given_
    parameters = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    carries = CARRIES.get(spec, lambda call, _: True)
    assume(all(carries(call, parameters[call.name]) for call in calls))
    parsed = formats.get(wire.SPECS[spec]).parse(wire.reply_with(spec, prose, calls), tools)
    assert not parsed.errors
    assert wire.exact(wire.named(parsed.calls)) == wire.exact(wire.named(calls))
    assert parsed.content.strip() == prose
    assert parsed.reasoning == ""
    assert len({call.id for call in parsed.calls}) == len(calls)
    assert all(re.fullmatch(IDS.get(spec.partition(" ")[0], ".+"), call.id) for call in parsed.calls)
