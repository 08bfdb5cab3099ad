"""GLM's calls: names and values in tags, in lines or in one, and the older name above JSON."""

from __future__ import annotations

from typing import Any

import pytest
import wire
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import CallError, CallFault, ToolCall, formats

GLM = formats.get("glm4")
PARAMETERS: dict[str, Any] = {
    "properties": {
        "city": {"type": "string"},
        "note": {"type": "string"},
        "days": {"type": "integer"},
        "wind": {"type": "boolean"},
        "at": {"anyOf": [{"type": "array"}, {"type": "null"}]},
    }
}
TOOLS = [wire.schema("weather", PARAMETERS), wire.schema("now")]
CALL = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>"
SAMPLE = "<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n<arg_key>y</arg_key>\n<arg_value>2</arg_value>"


def good(reply: str) -> list[tuple[str, Any]]:
    return wire.named(GLM.parse(reply, TOOLS).calls)


def arguments(*pairs: str) -> str:
    inside = "".join(
        f"<arg_key>{name}</arg_key><arg_value>{value}</arg_value>"
        for name, value in zip(pairs[::2], pairs[1::2], strict=True)
    )
    return f"<tool_call>weather{inside}</tool_call>"


# -- the form


def test_a_call_is_written_as_glm_4_5_writes_it():
    calls = [ToolCall("weather", {"city": "Rome", "days": 3, "wind": True}, "call_0")]
    calls.append(ToolCall("now", {}, "call_1"))
    assert GLM.render_calls(calls) == (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n<arg_key>wind</arg_key>\n<arg_value>true</arg_value>\n</tool_call>\n"
        "<tool_call>now\n</tool_call>"
    )


@pytest.mark.parametrize(
    "reply",
    [
        CALL,
        arguments("city", "Rome"),
        "<tool_call>\n  weather \n<arg_key> city </arg_key>\n\n<arg_value>Rome</arg_value>\n\n</tool_call>",
        f"<think></think>\n{CALL}<|observation|>",
    ],
)
def test_a_call_may_stand_in_lines_or_in_one(reply):
    assert good(reply) == [("weather", {"city": "Rome"})]


@pytest.mark.parametrize("body", ["now", "now\n", "\n now \n"])
def test_a_name_alone_is_a_call_without_arguments(body):
    assert good(f"<tool_call>{body}</tool_call>") == [("now", {})]


def test_calls_keep_their_order_and_prose_around_them_is_content_without_white_space_at_its_ends():
    parsed = GLM.parse(f" I look. {CALL}\nand\n{arguments('city', 'Oslo')} ", TOOLS)
    assert wire.named(parsed.calls) == [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]
    assert [call.id for call in parsed.calls] == ["call_0", "call_1"]
    assert parsed.content == "I look. \nand"


def test_a_reply_without_calls_is_content_as_it_is():
    assert GLM.parse(" Plain.\n", TOOLS).content == " Plain.\n"


def test_values_are_typed_by_the_schema_and_text_keeps_its_white_space():
    reply = arguments("city", "  42 ", "days", " 42 ", "wind", "True", "at", "null", "other", "3")
    assert good(reply) == [("weather", {"city": "  42 ", "days": 42, "wind": True, "at": None, "other": "3"})]
    assert good(arguments("city", "null", "at", "['x']")) == [("weather", {"city": "null", "at": ["x"]})]


def test_a_python_literal_is_counted_and_what_cannot_be_typed_stays_text():
    (call,) = GLM.parse(arguments("at", "('x', 1)", "days", "two"), TOOLS).calls
    assert (call.arguments, call.repairs) == ({"at": ["x", 1], "days": "two"}, ("python_literal",))


# -- values that hold tags


@pytest.mark.parametrize(
    "text",
    [
        "a < b && c > d &lt;",
        "line\n\tline",
        "ends with </arg_value> here",
        "</arg_value>",
        "a <tool_call> and </tool_call>\n",
        "<arg_key>x</arg_key>",
        "<arg_value> that never closes",
        "<think>no</think>",
        SAMPLE,
        f"<tool_call>other\n{SAMPLE}\n</tool_call>\n{CALL}",
        arguments("x", arguments("y", "1")),
    ],
)
def test_tags_in_a_value_are_text(text):
    pairs = {"note": text, "days": 3}
    for ordered in (pairs, dict(reversed(pairs.items()))):
        calls = [ToolCall("weather", ordered, "call_0"), ToolCall("now", {}, "call_1")]
        assert GLM.parse(GLM.render_calls(calls), TOOLS).attempts == tuple(calls)


@given(st.text(alphabet="ab\n <>/='\"{}[]"), st.text(alphabet="ab \n</"), st.integers())
def test_any_other_text_is_carried(note, city, days):
    call = ToolCall("weather", {"city": city, "note": note, "days": days}, "call_0")
    assert GLM.parse(GLM.render_calls([call]), TOOLS).attempts == (call,)


# -- what goes wrong


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ('<tool_call>{"name": "now"}</tool_call>', "syntax", "followed by the name of a function"),
        ("<tool_call>I would look</tool_call>", "syntax", "followed by the name of a function"),
        ("<tool_call>now</arg_value></tool_call>", "syntax", "followed by the name of a function"),
        ("<tool_call>\n</tool_call>", "no_name", "names no function"),
        ("<tool_call><arg_key>x</arg_key><arg_value>1</arg_value></tool_call>", "no_name", "no function"),
        ("<tool_call>now<arg_key>x<arg_value>1</arg_value></tool_call>", "syntax", "closed by </arg_key>"),
        ("<tool_call>now<arg_key>x</arg_key></tool_call>", "syntax", "x is not followed by its <arg_value>"),
        (
            "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome<arg_key>days</arg_key>"
            "<arg_value>3</arg_value></tool_call>",
            "syntax",
            "the value of city is not closed by </arg_value>",
        ),
        ("</tool_call>", "stray", "stands without its <tool_call>"),
        ("<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>", "stray", "without its <tool_call>"),
    ],
)
def test_the_model_is_told_what_is_wrong_with_a_call(reply, kind, says):
    parsed = GLM.parse(f"I try. {reply} Done.", TOOLS)
    (error,) = parsed.attempts
    assert isinstance(error, CallError)
    assert error.kind == kind
    assert says in error.message
    assert "write <tool_call>, the name" in error.message
    assert error.raw == reply
    assert parsed.content == f"I try. {reply} Done."


def test_arguments_without_their_call_are_an_error():
    (error,) = GLM.parse("weather<arg_key>city</arg_key><arg_value>Rome</arg_value>", TOOLS).errors
    assert error.kind == CallFault.STRAY


def test_a_call_that_is_cut_anywhere_is_incomplete():
    whole = arguments("city", "Rome", "note", "a\n<b>")
    for length in range(len("<tool_call>"), len(whole)):
        (error,) = GLM.parse(f"x {whole[:length]}", TOOLS).attempts
        assert isinstance(error, CallError)
        assert error.kind == CallFault.INCOMPLETE
        assert error.raw == whole[:length]


def test_a_good_call_beside_a_bad_one_runs_in_its_place():
    for bad in (
        "<tool_call></tool_call>",
        "<tool_call>now<arg_key>x",
        "<tool_call>now<arg_key>x</tool_call>",
    ):
        error, call = GLM.parse(f"{bad}{CALL}", TOOLS).attempts
        assert isinstance(error, CallError)
        assert error.raw == bad
        assert call == ToolCall("weather", {"city": "Rome"}, "call_1")


def test_a_draft_in_reasoning_does_not_run_however_it_ends():
    for draft in (CALL, "<tool_call>", "<tool_call>weather<arg_key>", arguments("city", "x")[:-20]):
        for opening in ("", "<think>"):
            parsed = GLM.parse(f"{opening}I could {draft}\nor so</think>\n{CALL}", TOOLS)
            assert parsed.attempts == (ToolCall("weather", {"city": "Rome"}, "call_0"),)
            assert draft in parsed.reasoning
            assert parsed.content == ""


# -- GLM-4-9B


def test_a_name_above_json_is_a_call_where_it_is_the_whole_reply():
    assert good('weather\n{"city": "Rome", "days": 3}') == [("weather", {"city": "Rome", "days": 3})]
    assert good("\nnow \n{}\n<|user|>") == [("now", {})]
    assert good("<think>hm</think>\nnow\n{}") == [("now", {})]


def test_the_name_must_be_that_of_a_tool_unless_the_model_asked_for_the_observation():
    assert good('other\n{"x": 1}') == []
    assert good('other\n{"x": 1}<|observation|>') == [("other", {"x": 1})]
    assert GLM.parse('other\n{"x": 1}<|observation|>').calls[0].name == "other"


@pytest.mark.parametrize(
    "prose",
    [
        'weather\n{"city": "Rome"} is what I would ask.',
        'I call weather\n{"city": "Rome"}',
        'weather {"city": "Rome"}',
        "weather\nRome",
        "weather",
        'other\n{"city": ',
    ],
)
def test_what_is_more_or_less_than_that_is_prose(prose):
    parsed = GLM.parse(prose, TOOLS)
    assert (parsed.content, parsed.attempts) == (prose, ())


def test_a_call_in_that_form_that_breaks_off_is_incomplete():
    (error,) = GLM.parse('weather\n{"city": "Ro', TOOLS).errors
    assert error.kind == CallFault.INCOMPLETE
    (error,) = GLM.parse('weather\n{"city": Rome}', TOOLS).errors
    assert (error.kind, error.raw) == (CallFault.SYNTAX, 'weather\n{"city": Rome}')


def test_mild_mistakes_in_that_form_are_mended_on_request():
    reply = "weather\n{'city': 'Rome',}"
    assert GLM.parse(reply, TOOLS).calls == ()
    (call,) = GLM.parse(reply, TOOLS, repair=True).calls
    assert (call.arguments, call.repairs) == ({"city": "Rome"}, ("single_quotes", "trailing_comma"))


# -- around it


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<tool_call>now", "<arg_key>x</arg_key><arg_value>", "</arg_value>", "<arg_key>"]
)
def test_very_many_tags_are_read_only_up_to_a_limit(piece):
    for start in ("", "<tool_call>weather<arg_key>city</arg_key><arg_value>"):
        assert len(GLM.parse(start + piece * 50_000, TOOLS).attempts) <= 65


def test_the_tools_are_described_as_json_and_the_form_is_shown():
    text = GLM.render_tools(TOOLS)
    assert '<tools>\n{"type": "function", "function": {"name": "weather"' in text
    assert "<tool_call>name of the function\n<arg_key>" in text


def test_each_result_stands_in_tags():
    assert GLM.render_results([{"role": "tool", "content": "one"}]) == (
        "<tool_response>\none\n</tool_response>"
    )
