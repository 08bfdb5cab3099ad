"""Lists of calls in Python are read without being run, and prose with brackets stays prose."""

from __future__ import annotations

import time

import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import CallFault, ToolCall, formats

PYTHONIC = formats.get("pythonic")
SEARCH = wire.schema("search", {"properties": {"query": {"type": "string"}, "k": {"type": "integer"}}})
SHOUT = wire.schema("shout", {"properties": {"text": {"type": "string"}}})
TOOLS = [SEARCH, SHOUT]


def calls(reply, tools=(), *, repair=False):
    parsed = PYTHONIC.parse(reply, tools, repair=repair)
    assert not parsed.errors, parsed.errors
    return wire.named(parsed.calls)


def fault(reply, tools=(), *, repair=False):
    parsed = PYTHONIC.parse(reply, tools, repair=repair)
    assert parsed.content == reply
    (error,) = parsed.attempts
    return error


# -- arguments


def test_signed_numbers_are_read():
    assert calls("[move(left=-3, up=+2, gain=-0.5)]") == [("move", {"left": -3, "up": 2, "gain": -0.5})]


@pytest.mark.parametrize("value", ["not True", "1 + 1", "f(1)", "x", "[i for i in y]", "lambda: 0", "{1: 2}"])
def test_what_is_no_literal_is_not_run_but_told(value):
    error = fault(f"[move(left={value})]")
    assert error.kind == CallFault.SYNTAX
    assert "not written as in Python" in error.message
    assert "write [name(argument='value')]" in error.message


def test_brackets_and_quotes_in_strings_are_text():
    reply = """[rank(items=["x, y", "z]"], opts={"k": [1, 2]}, note='a)] "b"', other="it's")]"""
    items = {"items": ["x, y", "z]"], "opts": {"k": [1, 2]}, "note": 'a)] "b"', "other": "it's"}
    assert calls(reply) == [("rank", items)]


@pytest.mark.parametrize("depth", range(1, 101))
def test_arguments_are_read_to_any_depth(depth):
    inner = {"a": 1}
    for level in range(depth):
        inner = {"b": [inner]} if level % 2 else [inner, level]
    assert calls(PYTHONIC.render_call("f", {"x": inner})) == [("f", {"x": inner})]


def test_tags_in_strings_are_text():
    text = "</think><|python_start|>[search(query='no')]<think>"
    assert calls(f"[shout(text={text!r})]", TOOLS) == [("shout", {"text": text})]


def test_the_words_of_json_are_read_and_named():
    (call,) = PYTHONIC.parse("[f(a=true, b=[null], c=False)]").calls
    assert call == ToolCall("f", {"a": True, "b": [None], "c": False}, "call_0", ("json_words",))


def test_tuples_are_lists():
    assert calls("[f(size=(800, 600), one=(1,), none=(), plain=(2))]") == [
        ("f", {"size": [800, 600], "one": [1], "none": [], "plain": 2})
    ]


def test_names_may_be_dotted_and_arguments_have_any_name():
    assert calls("[math.abs-2(from=1, class='a', content-type='b')]") == [
        ("math.abs-2", {"from": 1, "class": "a", "content-type": "b"})
    ]


@given(
    st.dictionaries(
        st.text(max_size=8) | st.text("ab =,()[]{}'\"*\\\n", max_size=4), st.integers(), max_size=4
    )
)
def test_any_key_of_an_object_can_be_carried(arguments):
    assert calls(PYTHONIC.render_call("f", arguments)) == [("f", arguments)]


def test_strings_may_be_long_and_raw():
    assert calls('[f(a="""x\n"y" """, b=r"\\d")]') == [("f", {"a": 'x\n"y" ', "b": r"\d"})]


def test_a_value_without_a_name_belongs_to_the_only_argument():
    (call,) = PYTHONIC.parse("[shout('hi')]", TOOLS).calls
    assert call == ToolCall("shout", {"text": "hi"}, "call_0", ("positional_argument",))


@pytest.mark.parametrize("reply", ["[search('hi')]", "[shout('a', 'b')]", "[unknown('a')]"])
def test_other_values_without_a_name_are_not_assigned(reply):
    tools = [*TOOLS, wire.schema("unknown")]
    error = fault(reply, tools)
    assert error.kind == CallFault.ARGUMENTS
    assert "given by name" in error.message


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("[f(x=1, x=2)]", "x is given twice"),
        ("[f(x=1, **{'x': 2})]", "x is given twice"),
        ("[f(**[1])]", "a dictionary must stand behind **"),
        ("[f(x=1, 2)]", "a name and = were expected"),
        ("[f(x=)]", "a value was expected"),
        ("[f(x=1]", "a comma or ) was expected"),
    ],
)
def test_arguments_that_python_refuses_are_refused(reply, says):
    assert says in fault(reply).message


# -- repairs


@pytest.mark.parametrize(
    ("reply", "arguments", "repair", "says"),
    [
        ("[f(x='a\nb')]", {"x": "a\nb"}, "raw_newline", "a line break stands in a string"),
        (r"[f(x='C:\users')]", {"x": r"C:\users"}, "escape", "begins no escape"),
        ("[f(month=07)]", {"month": 7}, "leading_zero", "begins with 0"),
        ("""[f(x="a"k=3)]""", {"x": "a", "k": 3}, "missing_comma", "a comma is missing"),
    ],
)
def test_mild_mistakes_are_mended_if_asked_for_and_told_otherwise(reply, arguments, repair, says):
    (call,) = PYTHONIC.parse(reply, repair=True).attempts
    assert call == ToolCall("f", arguments, "call_0", (repair,))
    assert says in fault(reply).message


@pytest.mark.parametrize(
    "reply", ["[search(query=Arthur's Magazine, k=3)]", '[search(query="a "b" c")]', "[shout(text='it's')]"]
)
def test_quotes_that_are_missing_are_not_guessed(reply):
    assert fault(reply, TOOLS, repair=True).kind == CallFault.SYNTAX


# -- several calls


def test_calls_of_one_list_and_of_several_keep_their_order():
    reply = "[f(x=1),g(),\n f(x=2),] [f(x=3)][g()]\nDone."
    parsed = PYTHONIC.parse(reply)
    assert wire.named(parsed.attempts) == [
        ("f", {"x": 1}),
        ("g", {}),
        ("f", {"x": 2}),
        ("f", {"x": 3}),
        ("g", {}),
    ]
    assert parsed.content == " \nDone."
    assert [call.id for call in parsed.calls] == [f"call_{number}" for number in range(5)]


def test_good_calls_beside_a_bad_one_survive_in_their_places():
    parsed = PYTHONIC.parse("[f(x=1), g(y=not True), f(x=2)]")
    first, bad, last = parsed.attempts
    assert [first.arguments, last.arguments] == [{"x": 1}, {"x": 2}]
    assert (bad.raw, bad.kind) == ("g(y=not True)", CallFault.SYNTAX)


def test_calls_that_cannot_be_read_stay_in_the_content_as_written():
    reply = "[f(1), g(2), h(x=y)]"
    parsed = PYTHONIC.parse(reply)
    assert [error.kind for error in parsed.attempts] == [
        CallFault.ARGUMENTS,
        CallFault.ARGUMENTS,
        CallFault.SYNTAX,
    ]
    assert parsed.content == reply


# -- ends


def test_a_reply_that_is_cut_holds_no_answer():
    reply = PYTHONIC.render_calls([ToolCall("search", {"query": 'it\'s "a"', "k": -1.5, "x": [True]}, "")])
    for end in range(1, len(reply)):
        (error,) = PYTHONIC.parse(reply[:end], TOOLS).attempts
        assert error.kind == CallFault.INCOMPLETE, reply[:end]


def test_a_call_counts_once_the_list_goes_on_behind_it():
    call, error = PYTHONIC.parse("[f(x=1), g(x=").attempts
    assert call.name == "f"
    assert error.kind == CallFault.INCOMPLETE


@pytest.mark.parametrize(
    "reply", ["[f(x=1) oops]", "[f(x=1) for x in y]", "[f(x=1); g(x=2)]", "[f(x=1)\nHi."]
)
def test_a_list_that_does_not_go_on_as_a_list_is_told(reply):
    assert "a comma or ] was expected" in fault(reply).message


# -- marks and prose


@pytest.mark.parametrize("mark", ["<|python_start|>", "<|python_tag|>"])
@pytest.mark.parametrize("end", ["", "<|python_end|>", "<|python_end|><|eot|>", "<|eom_id|>"])
def test_marks_around_a_list_are_no_content(mark, end):
    parsed = PYTHONIC.parse(f"I look.{mark}\n[search(query='a')]{end}")
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == "I look."


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("<|python_start|>print(1)<|python_end|>", CallFault.SYNTAX),
        ("<|python_start|>search(query='a')", CallFault.SYNTAX),
        ("<|python_start|>[1, 2]", CallFault.SYNTAX),
        ("<|python_start|>", CallFault.INCOMPLETE),
        ("<|python_start|>[", CallFault.INCOMPLETE),
        ("<|python_start|>[sea", CallFault.INCOMPLETE),
    ],
)
def test_behind_a_mark_nothing_but_a_list_of_calls_may_stand(reply, kind):
    assert fault(reply, TOOLS).kind == kind


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_prose_before_and_behind_a_list_is_content(tools):
    parsed = PYTHONIC.parse('I will look this up.\n[search(query="a")]\nWait.', tools)
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == "I will look this up.\n\nWait."


@pytest.mark.parametrize(
    "reply",
    [
        "See [search results] below.",
        "See [search (results)] below, and [search(query)] too.",
        "[note (see below)] is left out.",
        "[search](http://a.b/c(d)) and [shout(text='a')](http://a.b)",
        "The list [1, 2], the call f(x=1) and [[a](b)].",
        "As in [other(x=1)], which is no tool.",
        "sorted[key(x=1)]",
    ],
)
def test_brackets_in_prose_are_prose(reply):
    parsed = PYTHONIC.parse(reply, TOOLS)
    assert (parsed.content, parsed.attempts) == (reply, ())


def test_without_tools_at_hand_a_list_in_a_sentence_counts_if_it_is_whole():
    assert calls("Sure: [search(query='a')].") == [("search", {"query": "a"})]
    for prose in ("as in [f(x=y)] here", "a[f(x=1)]", "see [ls(1)]"):
        assert PYTHONIC.parse(prose).attempts == ()


def test_a_name_that_is_no_tool_is_a_call_where_a_call_is_expected():
    for reply in ("[serch(query='a')]", "Well.\n [serch(query='a')]", "<think>hm</think>[serch(query='a')]"):
        assert calls(reply, TOOLS) == [("serch", {"query": "a"})]


def test_a_call_without_its_list_is_told():
    assert "in no list" in fault("search(query='a')", TOOLS).message
    assert fault("search(query='a", TOOLS).kind == CallFault.INCOMPLETE
    assert PYTHONIC.parse("search(query) finds it", TOOLS).attempts == ()


def test_a_draft_does_not_run():
    draft = "<think>maybe [search(query='a')] or [search(query='b</think>[search(query='c')]"
    assert calls(draft, TOOLS) == [("search", {"query": "c"})]
    assert calls(draft.removeprefix("<think>"), TOOLS) == [("search", {"query": "c"})]


# -- writing


def test_calls_are_written_as_the_family_writes_them():
    written = [
        ToolCall("search", {"query": "it's", "k": 3}, ""),
        ToolCall("now", {"utc": True, "at": None}, ""),
    ]
    assert PYTHONIC.render_calls(written) == """[search(query="it's", k=3), now(utc=True, at=None)]"""
    assert PYTHONIC.render_calls([]) == ""


def test_results_are_objects_in_lines():
    results = [{"role": "tool", "content": "a\nb"}, {"role": "tool", "content": "é"}]
    assert PYTHONIC.render_results(results) == '{"output": "a\\nb"}\n{"output": "é"}'


# -- bounds


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "[",
                "]",
                "(",
                ")",
                "f",
                "search",
                "x=",
                "'",
                '"',
                "\\",
                "1",
                ",",
                "\n",
                " ",
                "**",
                "{",
                "}",
                ":",
            ]
            + [
                "<|python_start|>",
                "<|python_end|>",
                "<think>",
                "</think>",
                "[f(",
                "'a'",
                "[search(query=",
                "-",
            ]
        ),
        max_size=40,
    ).map("".join),
    st.booleans(),
    st.booleans(),
)
def test_no_text_raises_and_errors_quote_it(reply, with_tools, repair):
    parsed = PYTHONIC.parse(reply, TOOLS if with_tools else (), repair=repair)
    for error in parsed.errors:
        assert reply[error.start : error.end] == error.raw


@pytest.mark.parametrize(
    "piece",
    ["[", "[f(", "[f(x=", "[f(x='", "[f(x=[1,", "[f(x=1),", " [f(x=1)]", "[f(x=1)](", " [f(x=y)]", "x[f(a=1"]
    + [
        "<|python_start|>[f(",
        '\n[f(x="\\"',
        "[a.",
        "f(x=",
        "[f(x={'a':",
        "[search(",
        " [search(x)]",
        "\\'",
        " ",
    ],
)
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_long_reply_takes_little_time(piece, tools):
    reply = piece * (2_000_000 // len(piece))
    begun = time.process_time()
    PYTHONIC.parse(reply, tools)
    assert time.process_time() - begun < 3
