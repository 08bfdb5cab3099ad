"""Both forms of Functionary's calls are read: function tags, and recipients on lines of their own."""

from __future__ import annotations

import time

import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import CallFault, ToolCall, UnknownName, formats
from agent_r1_env.formats.functionary import Functionary

TAGS, LINES = Functionary("v3.1"), Functionary("v3.2")
SEARCH = wire.schema("search", {"properties": {"query": {"type": "string"}, "k": {"type": "integer"}}})
PYTHON = wire.schema("python", {"properties": {"code": {"type": "string"}}})
TOOLS = [SEARCH, PYTHON]


def calls(reply, tools=(), *, repair=False):
    parsed = TAGS.parse(reply, tools, repair=repair)
    assert not parsed.errors, parsed.errors
    return wire.named(parsed.calls)


def fault(reply, tools=()):
    parsed = TAGS.parse(reply, tools)
    assert parsed.content == reply
    (error,) = parsed.attempts
    return error


# -- function tags


def test_calls_in_tags_are_read_in_order_and_prose_around_them_is_content():
    parsed = TAGS.parse(
        'I look. <function=search>{"query": "a"}</function><function=now>{}</function> Wait.<|eom_id|>'
    )
    assert wire.named(parsed.attempts) == [("search", {"query": "a"}), ("now", {})]
    assert parsed.content == "I look.  Wait."


def test_a_closing_tag_inside_a_string_is_text():
    arguments = {"code": "print('</function><function=b>{')"}
    assert calls(TAGS.render_call("run", arguments)) == [("run", arguments)]


def test_two_objects_in_one_tag_are_two_calls():
    assert calls('<function=f>{"a": 1}\n{"a": 2}</function>') == [("f", {"a": 1}), ("f", {"a": 2})]


def test_a_whole_call_at_the_end_needs_no_closing_tag():
    assert calls('<function=f>{"a": 1}\n<|eot_id|>') == [("f", {"a": 1})]


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ("<function=f>{'a': 1}</function>", CallFault.SYNTAX, "not valid JSON"),
        ("<function=f></function>", CallFault.SYNTAX, "not valid JSON"),
        ('<function=f>{"a": 1} or so</function>', CallFault.SYNTAX, "text follows where </function> should"),
        ('<function=f{"a": 1}</function>', CallFault.SYNTAX, "not written as <function=NAME>"),
        ("<function=>{}</function>", CallFault.SYNTAX, "not written as <function=NAME>"),
        ("<function=f>[1]</function>", CallFault.ARGUMENTS, "must be a JSON object, not [1]"),
        ('<function=f>"{}"</function>', CallFault.ARGUMENTS, "must be a JSON object"),
        ('<function=f>{"a": [1', CallFault.INCOMPLETE, "</function> is missing"),
        ("<function=f>", CallFault.INCOMPLETE, "ends before the arguments"),
        ("<function=f", CallFault.INCOMPLETE, "</function> is missing"),
        ("</function>", CallFault.STRAY, "without its <function=...>"),
    ],
)
def test_the_model_is_told_what_is_wrong_with_a_tag(reply, kind, says):
    error = fault(reply)
    assert error.kind == kind
    assert says in error.message
    assert "write <function=NAME>{...}</function>" in error.message


def test_a_good_call_beside_a_bad_one_survives_in_its_place():
    parsed = TAGS.parse('<function=f>{oops}</function><function=g>{oops<function=h>{"a": 1}</function>')
    assert [getattr(each, "name", each.id) for each in parsed.attempts] == ["call_0", "call_1", "h"]
    assert parsed.content == "<function=f>{oops}</function><function=g>{oops"


# -- recipients


def test_a_reply_to_the_user_is_content():
    parsed = TAGS.parse("all\nHello, world!\n>>> print(1)\nWhat's up?<|eot_id|>", TOOLS)
    assert (parsed.content, parsed.attempts) == ("Hello, world!\n>>> print(1)\nWhat's up?", ())


@pytest.mark.parametrize("tools", [(), TOOLS])
@pytest.mark.parametrize("start", ["", ">>>", "\n"])
def test_recipients_and_their_arguments_are_calls(tools, start):
    reply = start + 'search\n{"query": "a", "k": 3}\n>>>search\n{"query": "b"}>>>all\nI look.'
    parsed = TAGS.parse(reply, tools)
    assert wire.named(parsed.attempts) == [("search", {"query": "a", "k": 3}), ("search", {"query": "b"})]
    assert parsed.content.strip() == "I look."


def test_recipients_follow_a_text_for_the_user():
    parsed = TAGS.parse('all\nI look.\n>>>search\n{"query": "a"}\n', TOOLS)
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content.strip() == "I look."


def test_prose_behind_arguments_is_content():
    parsed = TAGS.parse('search\n{"query": "a"}\nI wait.', TOOLS)
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == "\nI wait."


def test_a_recipient_inside_a_string_is_text():
    arguments = {"query": ">>>search\n{} >>>all\nx"}
    assert calls(LINES.render_call("search", arguments), TOOLS) == [("search", arguments)]


@pytest.mark.parametrize(
    "reply",
    ["search", "Paris\nis nice.", 'Note\n{"a": 1}', "search it\n{}", '>>> search\n{"a": 1}', "x >>>y z"],
)
def test_other_first_lines_are_prose(reply):
    parsed = TAGS.parse(reply, TOOLS)
    assert (parsed.content, parsed.attempts) == (reply, ())


def test_a_name_that_is_no_tool_counts_behind_the_mark_before_an_object():
    assert calls('all\nHm.>>>serch\n{"query": "a"}', TOOLS) == [("serch", {"query": "a"})]
    assert calls('all\nHm.>>>serch\nfor "a"', TOOLS) == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("search\nfor this", CallFault.SYNTAX),
        ('search\n{"query": "a",}', CallFault.SYNTAX),
        ("search\n[1]", CallFault.ARGUMENTS),
        ("search\n", CallFault.INCOMPLETE),
        (">>>search", CallFault.INCOMPLETE),
        ('search\n{"query": "a', CallFault.INCOMPLETE),
        ('search\n{"query": tru', CallFault.INCOMPLETE),
    ],
)
def test_a_recipient_without_whole_arguments_is_told(reply, kind):
    assert fault(reply, TOOLS).kind == kind


def test_a_broken_call_ends_before_the_next_recipient():
    bad, good = TAGS.parse('search\n{"query": >>>search\n{"query": "b"}', TOOLS).attempts
    assert bad.raw == 'search\n{"query": '
    assert good.arguments == {"query": "b"}


# -- code


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_bare_code_is_a_call_of_python(tools):
    code = "# {a}\nprint('>>>')\n"
    assert calls(f"python\n{code}>>>all\nDone.", tools) == [("python", {"code": code})]
    assert calls(f"I run this: <|python_tag|>{code}", tools) == [("python", {"code": code})]
    assert calls(LINES.render_call("python", {"code": code}), tools) == [("python", {"code": code})]


def test_bare_code_without_a_tool_for_it_is_told():
    assert "a tool named python" in fault("<|python_tag|>print(1)", [SEARCH]).message
    assert fault("<|python_tag|>", TOOLS).kind == CallFault.INCOMPLETE


# -- both


@pytest.mark.parametrize("format", [TAGS, LINES])
@pytest.mark.parametrize("depth", range(1, 101))
def test_arguments_are_read_to_any_depth(format, depth):
    inner = {}
    for level in range(depth):
        inner = {"b": [inner]} if level % 2 else {"a": inner, "c": level}
    assert calls(format.render_call("f", inner)) == [("f", inner)]


names = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True).filter(lambda name: name != "all")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(names, st.dictionaries(st.text(), values, max_size=3)), min_size=1, max_size=3))
def test_what_a_version_writes_is_read_back_with_and_without_tools(written):
    made = [ToolCall(name, arguments, f"call_{index}") for index, (name, arguments) in enumerate(written)]
    tools = [wire.schema(name) for name, _ in written]
    for format in (TAGS, LINES):
        for given_tools in (tools, []):
            parsed = format.parse(format.render_calls(made), given_tools)
            assert (parsed.attempts, parsed.content) == (tuple(made), "")


def test_calls_are_written_as_each_version_writes_them():
    made = [ToolCall("search", {"query": 'a "b"'}, ""), ToolCall("now", {}, "")]
    assert TAGS.render_calls(made) == (
        '<function=search>{"query": "a \\"b\\""}</function><function=now>{}</function>'
    )
    assert LINES.render_calls(made) == 'search\n{"query": "a \\"b\\""}>>>now\n{}'
    assert TAGS.render_calls([]) == LINES.render_calls([]) == ""


def test_repairs_are_mended_and_named():
    reply = "<function=f>{'a': True,}</function>"
    (call,) = TAGS.parse(reply, repair=True).attempts
    assert call == ToolCall("f", {"a": True}, "call_0", ("python_words", "single_quotes", "trailing_comma"))


def test_a_draft_does_not_run():
    draft = '<function=f>{"a": 1}</function> or <function=f>{"a":</think><function=f>{"a": 2}</function>'
    assert calls(f"<think>{draft}") == calls(draft) == [("f", {"a": 2})]


def test_the_tools_are_explained_in_the_form_of_the_version():
    assert "type search = (_: {" in LINES.render_tools(TOOLS)
    assert "The first line of a reply" in LINES.render_tools(TOOLS)
    assert '{"name": "search"' in TAGS.render_tools(TOOLS)
    assert "write <function=NAME>{...}</function>" in TAGS.render_tools(TOOLS)


def test_the_version_is_an_option():
    assert formats.get({"name": "functionary", "version": "v3.2"}).render_call("f", {}) == "f\n{}"
    with pytest.raises(UnknownName, match=r"did you mean 'v3\.2'"):
        Functionary("v3.3")


def test_results_stand_under_the_names_of_their_tools():
    results = [{"role": "tool", "name": "search", "content": "a\nb"}, {"role": "tool", "content": "c"}]
    assert TAGS.render_results(results) == "Result of search:\na\nb\n\nResult of the call:\nc"


# -- bounds


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "<function=",
                "f>",
                "</function>",
                ">>>",
                "search",
                "all",
                "python",
                "\n",
                "{",
                "}",
                '"',
                '"a":',
                "1",
            ]
            + ["<|python_tag|>", "<think>", "</think>", "[", "]", ",", " ", "\\", "\r", "<|eot_id|>", "<"]
        ),
        max_size=40,
    ).map("".join),
    st.booleans(),
    st.booleans(),
)
def test_no_text_raises_and_errors_quote_it(reply, with_tools, repair):
    parsed = TAGS.parse(reply, TOOLS if with_tools else (), repair=repair)
    for error in parsed.errors:
        assert reply[error.start : error.end] == error.raw


@pytest.mark.parametrize(
    "piece",
    ["<function=", "<function=f>", '<function=f>{"a":', '<function=f>{"a":"', "<function=f>{}", "</function>"]
    + [">>>", ">>>search\n", ">>>search\n{", ">>>all\n", ">>>x\n", "<|python_tag|>", "\n", "x", "<", "{"],
)
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_long_reply_takes_little_time(piece, tools):
    reply = piece * (2_000_000 // len(piece))
    begun = time.process_time()
    TAGS.parse(reply, tools)
    assert time.process_time() - begun < 3
