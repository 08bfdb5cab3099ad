"""Llama 3's JSON calls are read wherever they stand, and JSON that is no call stays prose."""

from __future__ import annotations

import json
import time

import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import CallFault, ToolCall, formats

LLAMA = formats.get("llama3_json")
TOOLS = [
    wire.schema("search", {"properties": {"query": {"type": "string"}, "k": {"type": "integer"}}}),
    wire.schema("now"),
]
CALL = '{"name": "search", "parameters": {"query": "a"}}'


def calls(reply, tools=(), *, repair=False):
    parsed = LLAMA.parse(reply, tools, repair=repair)
    assert not parsed.errors, parsed.errors
    return wire.named(parsed.calls)


def fault(reply, tools=()):
    parsed = LLAMA.parse(reply, tools)
    assert parsed.content == reply
    (error,) = parsed.attempts
    return error


# -- calls


@pytest.mark.parametrize("depth", range(1, 101))
def test_arguments_are_read_to_any_depth(depth):
    inner = {}
    for level in range(depth):
        inner = {"tags": [inner]} if level % 2 else {"owner": inner, "age": level}
    assert calls(LLAMA.render_call("file_claim", {"record": inner})) == [("file_claim", {"record": inner})]


@pytest.mark.parametrize("key", ["parameters", "arguments"])
@pytest.mark.parametrize("start", ['{"', '{\n  "type": "function", "', '{"id": "1", "'])
def test_both_names_of_the_arguments_are_read_and_other_keys_are_passed_over(key, start):
    assert calls(f'{start}name": "search", "{key}": {{"query": "a"}}}}') == [("search", {"query": "a"})]


def test_arguments_that_are_given_twice_are_not_chosen_from():
    both = '{"name": "now", "parameters": {"a": 1}, "arguments": {"a": 2}}'
    assert "and differ" in fault(both).message
    assert calls(both.replace("2", "1")) == [("now", {"a": 1})]


def test_braces_and_tags_in_strings_are_text():
    text = '{"name": "no", "parameters": {}} }; {<think></think><|python_tag|><function=f>{}</function>'
    assert calls(LLAMA.render_call("search", {"query": text})) == [("search", {"query": text})]


@pytest.mark.parametrize("joint", ["; ", ";", " ; ", ";\n", "", "\n"])
def test_several_objects_are_several_calls_in_order(joint):
    reply = joint.join([CALL, '{"name": "now", "parameters": {}}', CALL])
    parsed = LLAMA.parse(reply)
    assert wire.named(parsed.attempts) == [
        ("search", {"query": "a"}),
        ("now", {}),
        ("search", {"query": "a"}),
    ]
    assert parsed.content.strip() == ""


def test_a_semicolon_that_joins_no_call_is_content():
    assert LLAMA.parse(f'{CALL}; {{"a": 1}} and so on').content == '; {"a": 1} and so on'
    assert LLAMA.parse(f"{CALL}; then I wait").content == "; then I wait"
    assert LLAMA.parse(f"{CALL};").content == ""


def test_prose_before_and_behind_a_call_is_content():
    parsed = LLAMA.parse(f"Here it is: {CALL} Would you like more?")
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == "Here it is:  Would you like more?"


def test_the_mark_before_a_call_is_no_content():
    parsed = LLAMA.parse(f"I look.\n<|python_tag|>\n{CALL}; {CALL}<|eom_id|>")
    assert len(parsed.attempts) == len(parsed.calls) == 2
    assert parsed.content == "I look.\n"


def test_function_tags_are_read_too():
    parsed = LLAMA.parse('I look: <function=search>{"query": "</function>"}</function> Wait.<|eom_id|>')
    assert wire.named(parsed.attempts) == [("search", {"query": "</function>"})]
    assert parsed.content == "I look:  Wait."
    assert fault('<function=search>{"query"').kind == CallFault.INCOMPLETE


# -- prose


@pytest.mark.parametrize(
    "reply",
    [
        'The user is {"name": "Ann"} or {"name": "search"}.',
        '{"name": "Ann", "age": 3}',
        'Found:\n{"name": "Ann"}',
        '{"answer": {"name": "search", "parameters": {}}}',
        'It takes {"parameters": {"query": "a"}}, I think.',
        'The tool {"name": "search", "description": "finds", "parameters": {"type": "object"}} is there.',
        "Use {'a': 1}, {x}, {{y}} or {\"a\": }.",
        '{"a": 1',
        "{x}",
    ],
)
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_objects_without_the_keys_of_a_call_are_prose(reply, tools):
    parsed = LLAMA.parse(reply, tools)
    assert (parsed.content, parsed.attempts) == (reply, ())


@pytest.mark.parametrize("start", ["Set {x} now. ", 'Not {"a": {"b": 1}} nor {"a" but ', '{"a": "'])
def test_objects_in_prose_do_not_hide_a_call_behind_them(start):
    parsed = LLAMA.parse(f"{start}{CALL}")
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == start


# -- failed attempts


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ('{"parameters": {}}', CallFault.NO_NAME, 'no "name"'),
        ('{"name": "now"}', CallFault.NO_ARGUMENTS, 'no "parameters"'),
        ('{"name": 123, "parameters": {}}', CallFault.NO_NAME, 'no "name"'),
        ('{"name": "", "parameters": {}}', CallFault.NO_NAME, 'no "name"'),
        ('{"function": "now", "parameters": {}}', CallFault.NO_NAME, 'no "name"'),
        ('{"type": "function", "function": {"name": "now"}}', CallFault.NO_NAME, 'no "name"'),
        ('{"name": "now", "parameters": [1]}', CallFault.ARGUMENTS, "must be a JSON object, not [1]"),
        ('{"name": "now", "parameters": "{}"}', CallFault.ARGUMENTS, "must be a JSON object"),
        ('{"name": "now", "parameters": {"a": NaN}}', CallFault.SYNTAX, "NaN is not a JSON value"),
        ('{"name": "now" "parameters": {}}', CallFault.SYNTAX, "not valid JSON"),
        ("{'name': 'now', 'parameters': {}}", CallFault.SYNTAX, "not valid JSON"),
        ("{name: 'now', parameters: {}}", CallFault.SYNTAX, "not valid JSON"),
        ("<|python_tag|>print(1)", CallFault.SYNTAX, "a JSON object must stand behind"),
        ('<|python_tag|>{"name": now}', CallFault.SYNTAX, "not valid JSON"),
        ('<|python_tag|>{"a": 1}', CallFault.NO_NAME, 'no "name"'),
        ("<|python_tag|>", CallFault.INCOMPLETE, "a JSON object must stand behind"),
        ('Sure: {"name": "now", "parameters": {"a": 1', CallFault.INCOMPLETE, "not valid JSON"),
        ('Sure: {"name": "no', CallFault.INCOMPLETE, "not valid JSON"),
        (
            '{"name": "now", "parameters": {{"name": "now", "parameters": {}}',
            CallFault.INCOMPLETE,
            "not valid",
        ),
    ],
)
def test_the_model_is_told_what_is_wrong_with_a_call(reply, kind, says):
    error = fault(reply)
    assert error.kind == kind
    assert says in error.message
    assert 'write {"name": ..., "parameters": {...}}' in error.message


def test_at_the_beginning_of_a_line_an_object_that_names_a_tool_is_an_attempt():
    reply = 'I look:\n  {"function": "search", "parameters": {"query": "a"}}'
    assert fault(reply, TOOLS).kind == CallFault.NO_NAME
    assert LLAMA.parse(reply).attempts == ()
    assert fault('Now {"name": "search", oops}', TOOLS).kind == CallFault.SYNTAX


def test_a_reply_that_is_cut_holds_no_answer():
    for end in range(1, len(CALL)):
        (error,) = LLAMA.parse(CALL[:end], TOOLS).attempts
        assert error.kind == CallFault.INCOMPLETE, CALL[:end]


def test_good_calls_beside_a_bad_one_survive_in_their_places():
    parsed = LLAMA.parse(f'{CALL}; {{"name": "now", "parameters": oops}} {CALL}')
    first, bad, last = parsed.attempts
    assert first.arguments == last.arguments == {"query": "a"}
    assert bad.raw == '{"name": "now", "parameters": oops}'
    assert parsed.content == f"{bad.raw} "


@pytest.mark.parametrize("nothing", ["null", '""', "{}"])
def test_no_arguments_may_be_written_in_several_ways(nothing):
    assert calls(f'{{"name": "now", "parameters": {nothing}}}') == [("now", {})]


def test_a_draft_does_not_run():
    draft = f'maybe {CALL} or {{"name": "now", "parameters": {{"a</think>{CALL}'
    assert calls(draft) == calls(f"<think>{draft}") == [("search", {"query": "a"})]


# -- repairs


@pytest.mark.parametrize(
    ("reply", "repairs"),
    [
        ("{'name': 'search', 'parameters': {'query': 'a'}}", ("single_quotes",)),
        ('{"name": "search", "parameters": {"query": "a",},}', ("trailing_comma",)),
        (f"```json\n{CALL}\n```", ("code_fence",)),
    ],
)
def test_mild_mistakes_are_mended_if_asked_for_and_named(reply, repairs):
    parsed = LLAMA.parse(reply, repair=True)
    assert parsed.attempts == (ToolCall("search", {"query": "a"}, "call_0", repairs),)
    assert parsed.content == ""


def test_the_fences_around_a_call_are_prose_without_repairs():
    parsed = LLAMA.parse(f"```json\n{CALL}\n```\nDone.")
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]
    assert parsed.content == "```json\n\n```\nDone."


def test_a_fence_that_is_not_closed_is_prose_with_repairs_too():
    parsed = LLAMA.parse(f"```\n{CALL} and more", repair=True)
    assert parsed.attempts == (ToolCall("search", {"query": "a"}, "call_0"),)
    assert parsed.content == "```\n and more"


def test_what_cannot_be_mended_without_doubt_is_not():
    for reply in ("{'name': 'now', 'parameters': {'a': 'it's'}}", "{name: now, parameters: {}}"):
        (error,) = LLAMA.parse(reply, repair=True).attempts
        assert error.kind == CallFault.SYNTAX


# -- writing


def test_calls_are_written_as_the_family_writes_them():
    made = [ToolCall("search", {"query": 'é "b"', "k": 3}, ""), ToolCall("now", {}, "")]
    assert LLAMA.render_calls(made) == (
        '{"name": "search", "parameters": {"query": "é \\"b\\"", "k": 3}}; {"name": "now", "parameters": {}}'
    )
    assert LLAMA.render_calls([]) == ""


def test_the_tools_are_indented_json():
    assert json.dumps(TOOLS[0], indent=4) in LLAMA.render_tools(TOOLS)


def test_results_are_objects_in_lines():
    results = [{"role": "tool", "content": "a\nb"}, {"role": "tool", "content": "é"}]
    assert LLAMA.render_results(results) == '{"output": "a\\nb"}\n{"output": "é"}'


# -- bounds


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "{",
                "}",
                '"',
                '"name"',
                ": ",
                '"now"',
                ", ",
                '"parameters"',
                "{}",
                "[",
                "]",
                "; ",
                "\n",
                "```json\n",
            ]
            + [
                "<|python_tag|>",
                "<function=now>",
                "</function>",
                "<think>",
                "</think>",
                CALL,
                "'",
                "\\",
                "```",
            ]
        ),
        max_size=40,
    ).map("".join),
    st.booleans(),
    st.booleans(),
)
def test_no_text_raises_and_errors_quote_it(reply, with_tools, repair):
    parsed = LLAMA.parse(reply, TOOLS if with_tools else (), repair=repair)
    for error in parsed.errors:
        assert reply[error.start : error.end] == error.raw


def test_a_call_behind_very_many_objects_is_found():
    parsed = LLAMA.parse('{"a": 1} ' * 50_000 + CALL)
    assert wire.named(parsed.attempts) == [("search", {"query": "a"})]


@pytest.mark.parametrize(
    "piece",
    ["{", '{"', '{"a":', '{"a":1} ', '{"name":', '{"name":"f"} ', '{"name":"f","parameters":', "```json\n{"]
    + ['{"name":"f","parameters":{"a":[', "{'a':", '{"a":["', "<|python_tag|>{", "<function=f>{", '\n{"a":']
    + ['{"description":1,"name":"f","parameters":{}} ', "```", "\n", "{\n", '{"parameters":1', '{"a":"\\"'],
)
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_long_reply_takes_little_time(piece, tools):
    reply = piece * (2_000_000 // len(piece))
    begun = time.process_time()
    LLAMA.parse(reply, tools)
    assert time.process_time() - begun < 3  # a quadratic reading would take minutes
