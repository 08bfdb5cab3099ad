"""Qwen3-Coder's XML-like calls: values that hold tags, closing tags that are missing, and types by schema."""

from __future__ import annotations

from typing import Any

import pytest
import wire
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import CallError, CallFault, ToolCall, formats
from agent_r1_env.arguments import ArgumentChecker
from agent_r1_env.errors import ArgumentError

QWEN = formats.get("qwen3_coder")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "count": {"type": "integer"},
        "recursive": {"type": ["boolean", "null"]},
        "filters": {"type": "object"},
    },
}
TOOLS = [wire.schema("write", PARAMETERS), wire.schema("now")]
CALL = "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>"
SAMPLE = "<function=other>\n<parameter=x>\n1\n</parameter>\n<parameter=y>\n2\n</parameter>\n</function>"


def good(reply: str) -> list[tuple[str, Any]]:
    return wire.named(QWEN.parse(reply, TOOLS).calls)


def function(body: str) -> str:
    return f"<tool_call>\n<function=write>\n{body}</function>\n</tool_call>"


def parameter(name: str, value: str) -> str:
    return f"<parameter={name}>\n{value}\n</parameter>\n"


# -- the form


def test_a_call_is_written_as_the_family_writes_it():
    calls = [ToolCall("write", {"path": "a b", "count": 3, "filters": {"x": [1]}}, "call_0")]
    calls.append(ToolCall("now", {}, "call_1"))
    assert QWEN.render_calls(calls) == (
        "<tool_call>\n<function=write>\n<parameter=path>\na b\n</parameter>\n"
        "<parameter=count>\n3\n</parameter>\n"
        '<parameter=filters>\n{"x": [1]}\n</parameter>\n</function>\n</tool_call>\n'
        "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    )


def test_calls_keep_their_order_and_prose_around_them_is_content():
    parsed = QWEN.parse(f"I look.\n{CALL}\nand\n{CALL}<|im_end|>\n", TOOLS)
    assert wire.named(parsed.calls) == [("write", {"path": "a"})] * 2
    assert [call.id for call in parsed.calls] == ["call_0", "call_1"]
    assert parsed.content == "I look.\n\nand\n"


def test_a_call_may_be_written_in_one_line():
    assert good("<tool_call><function=write><parameter=path>a</parameter></function></tool_call>") == [
        ("write", {"path": "a"})
    ]


def test_a_function_without_parameters_has_no_arguments():
    assert good("<tool_call>\n<function=now>\n</function>\n</tool_call>") == [("now", {})]


def test_two_functions_in_one_block_are_two_calls():
    block = function(parameter("path", "a") + "</function>\n<function=now>\n")
    assert good(block) == [("write", {"path": "a"}), ("now", {})]


def test_names_may_hold_spaces():
    reply = "<tool_call><function=get it>\n<parameter=the place>\nhere\n</parameter>\n</function></tool_call>"
    assert good(reply) == [("get it", {"the place": "here"})]


def test_of_a_parameter_that_is_given_twice_the_last_one_counts():
    assert good(function(parameter("path", "a") + parameter("path", "b"))) == [("write", {"path": "b"})]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a", "a"),
        ("\na\n", "a"),
        ("\n\na\n\n", "\na\n"),
        (" \na\n ", " \na\n "),
        ("\n    def f():\n        pass\n\n", "    def f():\n        pass\n"),
        ("", ""),
        ("\n", ""),
        ("\n\n", ""),
        ("\r\na\r\nb\r\n", "a\r\nb"),
        ("\na\r\n", "a\r"),
    ],
)
def test_one_line_break_on_either_side_belongs_to_the_tags(written, read):
    assert good(function(f"<parameter=content>{written}</parameter>\n")) == [("write", {"content": read})]


# -- without the block around it


def test_a_function_needs_no_block_around_it():
    bare = CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    assert good(bare) == [("write", {"path": "a"})]
    assert good(f"I write.\n\n{bare}\n</tool_call>") == [("write", {"path": "a"})]
    assert QWEN.parse(f"I write: {bare} Done.", TOOLS).content == "I write:  Done."


def test_a_whole_function_needs_no_end_of_its_block():
    assert good(CALL.removesuffix("</tool_call>")) == [("write", {"path": "a"})]
    assert QWEN.parse(CALL.replace("</tool_call>", "Done."), TOOLS).content == "\nDone."


def test_a_function_tag_in_the_middle_of_a_sentence_is_prose():
    prose = "Write <function=NAME> first, and </function> last; <function= alone is nothing."
    parsed = QWEN.parse(prose, TOOLS)
    assert (parsed.content, parsed.attempts) == (prose, ())


# -- values that hold tags


@pytest.mark.parametrize(
    "text",
    [
        "a > b and a < b",
        "<html>\n <b>x</b>\n</html>",
        "ends with </parameter> here",
        "</parameter>",
        "re.findall('<parameter=edits>\\n(.*?)\\n</parameter>', text)",
        "a <parameter=x> that never closes",
        "a <tool_call> that never closes",
        "</tool_call>\n",
        "</function>\n</tool_call>\n<tool_call>",
        "</parameter></function> in a sentence",
        "<function=x> in a sentence",
        "<think>not now</think>",
        SAMPLE,
        f"<tool_call>\n{SAMPLE}\n</tool_call>",
        f"before\n<tool_call>\n{SAMPLE}\n</tool_call>\n<tool_call>\n{SAMPLE}\n</tool_call>\nafter",
        CALL,
        "<parameter=x>\n1\n</parameter>",
        "<parameter=x>\n1\n</parameter>\n<parameter=y>\n2\n</parameter>",
    ],
)
def test_tags_in_a_value_are_text(text):
    arguments = {"content": text, "count": 3}
    for ordered in (arguments, dict(reversed(arguments.items()))):
        calls = [ToolCall("write", ordered, "call_0"), ToolCall("now", {}, "call_1")]
        parsed = QWEN.parse(QWEN.render_calls(calls), TOOLS)
        assert parsed.attempts == tuple(calls)


@given(st.text(alphabet="ab\n <>/='\"{}[]"), st.text(alphabet="ab \n</"), st.integers())
def test_any_other_text_is_carried(content, path, count):
    call = ToolCall("write", {"path": path, "content": content, "count": count}, "call_0")
    assert QWEN.parse(QWEN.render_calls([call]), TOOLS).attempts == (call,)


# -- closing tags that are missing


def test_a_parameter_that_is_not_closed_ends_where_the_next_begins_a_line():
    (call,) = QWEN.parse(function("<parameter=path>\na\n" + parameter("content", "b")), TOOLS).calls
    assert call.arguments == {"path": "a", "content": "b"}
    assert call.repairs == ("unclosed_tag",)


def test_a_parameter_that_the_tool_does_not_have_is_text_of_the_one_that_is_not_closed():
    text = "a\n<parameter=x>\nb"
    assert good(function(parameter("content", text) + parameter("count", "1"))) == [
        ("write", {"content": text, "count": 1})
    ]


def test_a_parameter_tag_in_the_middle_of_a_line_is_text_even_then():
    assert good(function("<parameter=path>\nsee <parameter=content> there\n")) == [
        ("write", {"path": "see <parameter=content> there"})
    ]


def test_the_last_parameter_may_be_closed_by_its_function():
    (call,) = QWEN.parse(function('<parameter=filters>\n{"a": 1}\n'), TOOLS).calls
    assert (call.arguments, call.repairs) == ({"filters": {"a": 1}}, ("unclosed_tag",))


def test_the_function_may_be_closed_by_its_block():
    (call,) = QWEN.parse(CALL.replace("</function>\n", ""), TOOLS).calls
    assert (call.arguments, call.repairs) == ({"path": "a"}, ("unclosed_tag",))


def test_a_missing_tag_does_not_reach_into_the_next_call():
    broken = function("<parameter=path>\na\n")
    assert good(f"{broken}\n{CALL}") == [("write", {"path": "a"})] * 2


def test_a_value_that_runs_into_the_next_call_is_an_error_and_the_next_call_runs():
    bad, fine = QWEN.parse(f"<tool_call>\n<function=write>\n<parameter=path>\nb\n{CALL}", TOOLS).attempts
    assert isinstance(bad, CallError)
    assert (bad.kind, bad.fault) == (CallFault.SYNTAX, "<parameter=path> is not closed by </parameter>")
    assert fine == ToolCall("write", {"path": "a"}, "call_1")


# -- types


@pytest.mark.parametrize(
    ("text", "value"), [("false", False), ("True", True), ("null", None), ("None", None), ("maybe", "maybe")]
)
def test_a_union_of_types_is_typed_and_what_fits_none_stays_text(text, value):
    assert good(f"<function=write><parameter=recursive>{text}</parameter></function>") == [
        ("write", {"recursive": value})
    ]


@pytest.mark.parametrize(("name", "text"), [("count", "next Monday"), ("recursive", "maybe")])
def test_a_value_of_the_wrong_type_survives_to_validation_which_names_the_argument(name, text):
    ((_, arguments),) = good(function(parameter(name, text)))
    with pytest.raises(ArgumentError, match=f"'{name}'.*'{text}'"):
        ArgumentChecker("write", PARAMETERS).check(arguments)


def test_optional_and_union_parameters_are_typed_through_references():
    parameters = {
        "properties": {
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "target": {"$ref": "#/$defs/Target"},
        },
        "$defs": {"Target": {"anyOf": [{"type": "object"}, {"type": "string"}]}},
    }
    body = parameter("n", "7") + parameter("target", '{"row": 3}')
    (call,) = QWEN.parse(f"<function=f>\n{body}</function>", [wire.schema("f", parameters)]).calls
    assert call == ToolCall("f", {"n": 7, "target": {"row": 3}}, "call_0")


def test_a_python_literal_is_read_and_counted():
    (call,) = QWEN.parse(function(parameter("filters", "{'a': None}")), TOOLS).calls
    assert (call.arguments, call.repairs) == ({"filters": {"a": None}}, ("python_literal",))


def test_the_word_null_is_null_as_the_familys_own_parser_has_it():
    assert good(function(parameter("path", "null"))) == [("write", {"path": None})]


def test_without_a_schema_all_is_text():
    assert good("<function=other><parameter=x>3</parameter></function>") == [("other", {"x": "3"})]


# -- what goes wrong


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ('<tool_call>{"name": "now", "arguments": {}}</tool_call>', "syntax", "followed by <function=NAME>"),
        (
            "<tool_call>\n<function=write\n<parameter=path>a</parameter>\n</function>\n</tool_call>",
            "syntax",
            ">",
        ),
        (function("now then\n" + parameter("path", "a")), "syntax", "only <parameter=NAME>value</parameter>"),
        ('<function=now>{"x": 1}</function>', "syntax", "only <parameter=NAME>value</parameter>"),
        ("<tool_call><function=></function></tool_call>", "no_name", "names no function"),
        ("</tool_call>", "stray", "a </tool_call> stands without its <tool_call>"),
        (
            "</parameter>\n</function>\n</tool_call>",
            "stray",
            "</function> stands without its <function=NAME>",
        ),
        ("<tool_call>\n<function=write>\n<parameter=path>\na\n</tool_call>", "syntax", "not closed"),
    ],
)
def test_the_model_is_told_what_is_wrong_with_a_call(reply, kind, says):
    parsed = QWEN.parse(f"I try.\n{reply} Done.", TOOLS)
    (error,) = parsed.attempts
    assert isinstance(error, CallError)
    assert error.kind == kind
    assert says in error.message
    assert "write <tool_call>, <function=NAME>" in error.message
    assert error.raw == reply
    assert parsed.content == f"I try.\n{reply} Done."


def test_a_call_that_is_cut_anywhere_is_incomplete():
    whole = function(parameter("path", "a") + parameter("content", "b\n<c>"))
    end = whole.index("</function>") + len("</function>")
    for length in range(len("<tool_call>"), end):
        (error,) = QWEN.parse(f"x {whole[:length]}", TOOLS).attempts
        assert isinstance(error, CallError)
        assert error.kind == CallFault.INCOMPLETE
        assert error.raw == whole[:length]


def test_a_good_call_beside_a_bad_one_runs_in_its_place():
    bad = "<tool_call>\n<function=bad\n</function>\n</tool_call>"
    for reply in (f"{bad}\n{CALL}", f"<tool_call>not a call</tool_call>\n{CALL}"):
        error, call = QWEN.parse(reply, TOOLS).attempts
        assert isinstance(error, CallError)
        assert call == ToolCall("write", {"path": "a"}, "call_1")


# -- reasoning


def test_a_draft_in_reasoning_does_not_run_however_it_ends():
    for draft in (CALL, "<tool_call>", "<tool_call>\n<function=write>\n", CALL[:50], "<function=now>"):
        for opening in ("", "<think>"):
            parsed = QWEN.parse(f"{opening}I could {draft}\nor so</think>\n\n{CALL}", TOOLS)
            assert parsed.attempts == (ToolCall("write", {"path": "a"}, "call_0"),)
            assert draft in parsed.reasoning
            assert parsed.content == "\n\n"


def test_reasoning_that_a_broken_call_quotes_makes_no_draft_of_it():
    (error,) = QWEN.parse(CALL[:40] + "\n<think>x</think>", TOOLS).attempts
    assert isinstance(error, CallError)


def test_the_end_of_reasoning_in_a_value_is_text_once_the_reasoning_is_over():
    call = ToolCall("write", {"content": "</think>"}, "call_0")
    assert QWEN.parse(f"<think>hm</think>{QWEN.render_calls([call])}", TOOLS).attempts == (call,)
    unclosed = function("<parameter=path>\n</think> and so on")[: -len("</function>\n</tool_call>")]
    assert len(QWEN.parse(f"<think>hm</think>{unclosed}", TOOLS).errors) == 1


# -- time


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call><function=write>",
        "<function=write>\n<parameter=path>\n",
        "<function=write><parameter=path></parameter>",
        "\n<parameter=x>",
        "</parameter></function>",
    ],
)
def test_very_many_tags_are_read_only_up_to_a_limit(piece):
    for start in ("", "<tool_call>\n<function=write>\n<parameter=path>\n"):
        assert len(QWEN.parse(start + piece * 50_000, TOOLS).attempts) <= 65


def test_the_tools_are_described_as_json_and_the_form_is_shown():
    text = QWEN.render_tools(TOOLS)
    assert '<tools>\n{"type": "function", "function": {"name": "write"' in text
    example = text[text.index("<tool_call>") : text.index("</tool_call>") + len("</tool_call>")]
    assert good(example) == [("name of the function", {"name of a parameter": "its value"})]


def test_each_result_stands_in_tags():
    results = [{"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}]
    assert QWEN.render_results(results) == (
        "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    )
