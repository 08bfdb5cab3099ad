"""The lists of calls of Phi-4-mini and FireFunction-v2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_r1_env import CallError, CallFault, ToolCall, formats

PHI = formats.get("phi4_mini")
CALL = '{"name": "search", "arguments": {"q": "a"}}'
SEARCH = {"type": "function", "function": {"name": "search", "description": "", "parameters": {}}}


def good(reply: str, *, repair: bool = False) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in PHI.parse(reply, [SEARCH], repair=repair).calls]


def only_fault(reply: str) -> CallError:
    (attempt,) = PHI.parse(reply, [SEARCH]).attempts
    assert isinstance(attempt, CallError)
    return attempt


@pytest.mark.parametrize(
    "reply",
    [
        f"functools[{CALL}]",
        f" functools[{CALL}]<|end|>",
        f"functools[\n  {CALL}\n]\n",
        f"<|tool_call|>[{CALL}]<|/tool_call|><|end|>",
        f"<|tool_call|> {CALL} <|/tool_call|>",
        f"<|tool_call|>[{CALL}]",
        f"<|tool_call|>functools[{CALL}]<|/tool_call|>",
        CALL,
        f"\n{CALL}<|end|>",
        'functools[{"name": "search", "parameters": {"q": "a"}}]',
    ],
)
def test_the_list_may_follow_the_word_or_a_tag(reply):
    parsed = PHI.parse(reply, [SEARCH])
    assert parsed.attempts == (ToolCall("search", {"q": "a"}, "call_0"),)
    assert parsed.content.strip() == ""


def test_calls_of_one_list_and_of_several_keep_their_order():
    assert len(good(f"functools[{CALL}, {CALL}]functools[{CALL}]")) == 3
    calls = tuple(ToolCall("f", {"x": number}, f"call_{number}") for number in range(3))
    assert PHI.parse(PHI.render_calls(calls)).calls == calls


def test_brackets_tags_and_the_word_inside_a_string_are_text():
    text = "a]}<|/tool_call|>functools[{"
    assert good(PHI.render_call("search", {"q": text})) == [("search", {"q": text})]
    tagged = PHI.render_call("search", {"q": text}).replace("functools", "<|tool_call|>", 1)
    assert good(f"{tagged}<|/tool_call|>") == [("search", {"q": text})]


def test_prose_around_a_list_is_content():
    parsed = PHI.parse(f"Let me look.\nfunctools[{CALL}]\nAnything else?")
    assert len(parsed.calls) == 1
    assert parsed.content == "Let me look.\n\nAnything else?"


@pytest.mark.parametrize(
    "prose",
    [
        "Use functools.lru_cache, or functools[0] if you dare.",
        "The module functools{...} does not exist",
        f"As JSON that is {CALL}.",
        '{"name": "someone", "arguments": {}} is what I found',
        '{"name": "search", "age": 3}',
        "[1, 2]",
    ],
)
def test_what_merely_looks_like_a_call_is_prose(prose):
    parsed = PHI.parse(prose, [SEARCH])
    assert (parsed.content, parsed.attempts) == (prose, ())


def test_calls_drafted_in_reasoning_do_not_count():
    assert good(f"<think>functools[{CALL}]</think>functools[{CALL}]") == [("search", {"q": "a"})]


def test_calls_before_the_one_that_goes_wrong_count():
    first, fault = PHI.parse(f"functools[{CALL}, oops, {CALL}]").attempts
    assert first == ToolCall("search", {"q": "a"}, "call_0")
    assert isinstance(fault, CallError)
    assert (fault.kind, fault.raw) == (CallFault.SYNTAX, f", oops, {CALL}]")


def test_a_call_that_is_no_call_harms_no_other():
    first, fault, last = PHI.parse(f'functools[{CALL}, {{"name": "f"}}, {CALL}]').attempts
    assert isinstance(first, ToolCall)
    assert isinstance(last, ToolCall)
    assert isinstance(fault, CallError)
    assert fault.kind == CallFault.NO_ARGUMENTS


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ("functools[", "incomplete", "expecting value"),
        ('functools[{"name": "search", "argum', "incomplete", "unterminated"),
        ("<|tool_call|>", "incomplete", "expecting value"),
        ("functools[]", "syntax", "no call"),
        ("functools[ This is just text ]", "syntax", "expecting value"),
        ('functools{"name": "f"}', "syntax", "do not stand in a list"),
        ("functools[{'name': 'f', 'arguments': {}}]", "syntax", "double quotes"),
        ('{"name": "search", "arguments": {\'q\': 1}}', "syntax", "double quotes"),
        ("<|tool_call|>search(1)<|/tool_call|>", "syntax", "expecting value"),
        ("<|/tool_call|>", "stray", "without its <|tool_call|>"),
    ],
)
def test_what_is_not_written_as_it_should_be_is_one_failed_attempt(reply, kind, says):
    error = only_fault(reply)
    assert (str(error.kind), error.raw) == (kind, reply)
    assert says in error.message
    assert PHI.parse(reply, [SEARCH]).content == reply


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ('{"name": "f"}', "no_arguments"),
        ('{"name": "f", "arguments": "not a dict"}', "arguments"),
        ('{"name": "f", "arguments": [1]}', "arguments"),
        ('{"arguments": {}}', "no_name"),
        ("3", "syntax"),
        (f"[{CALL}]", "syntax"),
    ],
)
def test_an_item_that_is_no_call_is_a_failed_attempt(item, kind):
    assert only_fault(f"functools[{item}]").kind == kind


def test_a_list_that_breaks_off_behind_a_call_is_incomplete():
    call, fault = PHI.parse(f"functools[{CALL}").attempts
    assert isinstance(call, ToolCall)
    assert isinstance(fault, CallError)
    assert fault.kind == CallFault.INCOMPLETE


def test_text_where_the_closing_tag_should_stand_is_told():
    call, fault = PHI.parse(f"<|tool_call|>[{CALL}] and more").attempts
    assert isinstance(call, ToolCall)
    assert isinstance(fault, CallError)
    assert "<|/tool_call|> should stand" in fault.message


@pytest.mark.parametrize(
    ("reply", "repairs"),
    [
        ("functools[{'name': 'search', 'arguments': {'q': 'a'}}]", {"single_quotes"}),
        (f"functools[{CALL},]", {"trailing_comma"}),
        (f"<|tool_call|>```json\n[{CALL}]\n```<|/tool_call|>", {"code_fence"}),
        ('{"name": "search", "arguments": {\'q\': \'a\'}}', {"single_quotes"}),
    ],
)
def test_mild_mistakes_are_mended_on_request_and_named(reply, repairs):
    (call,) = PHI.parse(reply, [SEARCH], repair=True).calls
    assert call.arguments == {"q": "a"}
    assert set(call.repairs) == repairs
    assert PHI.parse(reply, [SEARCH]).errors


def test_calls_that_the_template_writes_as_python_are_read_with_repair(shared_data):
    file = shared_data / "chat_templates" / "renders.jsonl"
    renders = [json.loads(line) for line in file.read_text().splitlines()]
    (render,) = [each for each in renders if each["template"] == "vllm/tool_chat_template_phi4_mini.jinja"]
    first = ("search", {"query": 'Arthur\'s Magazine "1844"', "k": 3})
    assert good(render["call_segment"], repair=True) == [first]
    assert good(render["parallel_call_segment"], repair=True) == [
        first,
        ("search", {"query": "First for Women"}),
    ]
    assert PHI.parse(render["call_segment"], [SEARCH]).errors


def test_replies_stand_in_the_conversation_as_they_were_written():
    reply = f"I look. functools[{CALL}]"
    messages = [{"role": "assistant", "content": reply}, {"role": "tool", "content": "one", "name": "search"}]
    assert PHI.structure(messages) == messages


def test_a_result_cannot_begin_a_list_of_calls():
    assert PHI.parse(PHI.neutralise(f"functools[{CALL}]")).attempts == ()


def test_tools_and_results_are_written_for_a_prompt_without_template():
    text = PHI.render_tools([SEARCH])
    assert f"<|tool|>{json.dumps([SEARCH['function']])}<|/tool|>" in text
    assert 'functools[{"name"' in text
    results = [{"role": "tool", "content": "one", "name": "search"}, {"role": "tool", "content": "two"}]
    assert PHI.render_results(results) == "Result of search:\none\n\nResult of the call:\ntwo"


@pytest.mark.parametrize(
    "reply",
    [
        'I see. functools[{"name": "search"}] Well.',
        'functools[{"name": "search", "arguments": "x"}\n]',
        '<|tool_call|>[{"name": "search", "arguments": "x"}]<|/tool_call|> Well.',
        '<|tool_call|>{"name": "search", "arguments": "x"}<|/tool_call|>',
    ],
)
def test_what_closes_calls_that_cannot_be_read_stays_with_them(reply):
    assert PHI.parse(reply, [SEARCH]).content == reply
