"""The calls of FunctionGemma and Gemma 4: bare keys, texts between marks, and what their templates take."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_r1_env import CallError, ToolCall, UnknownName, formats

GEMMA = formats.get("gemma")
GEMMA4 = formats.get({"name": "gemma", "version": "gemma4"})
Q = '<|"|>'
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search Wikipedia.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "search query"},
                "k": {"type": "integer", "description": "number of results"},
            },
            "required": ["query"],
        },
    },
}


def call(body: str) -> str:
    return f"<|tool_call>call:f{body}<tool_call|>"


def arguments(body: str, *, repair: bool = False) -> Any:
    (found,) = GEMMA.parse(call(body), repair=repair).attempts
    assert isinstance(found, ToolCall), found.fault
    return found.arguments


def only_fault(reply: str, *, repair: bool = False) -> CallError:
    (attempt,) = GEMMA.parse(reply, repair=repair).attempts
    assert isinstance(attempt, CallError)
    return attempt


# -- values


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{}", {}),
        (f"{{a:{Q}x{Q},b:3}}", {"a": "x", "b": 3}),
        ("{a:true,b:false,c:null}", {"a": True, "b": False, "c": None}),
        ("{a:-1,b:0.5,c:-2.5e-3,d:1E+2}", {"a": -1, "b": 0.5, "c": -0.0025, "d": 100.0}),
        (f"{{a:{{b:{{c:[1,[],{{}},{Q}{Q}]}}}}}}", {"a": {"b": {"c": [1, [], {}, ""]}}}),
        (f"{{a:{Q}use {{key: [value]}}, or }}{Q}}}", {"a": "use {key: [value]}, or }"}),
        (f'{{a:{Q}say "hi"\n\\n<tool_call|><escape>{Q}}}', {"a": 'say "hi"\n\\n<tool_call|><escape>'}),
        (f"{{{Q}a b{Q}:1,c-d:2,é:3}}", {"a b": 1, "c-d": 2, "é": 3}),
        ("{ a : 1 ,\n b : [ 1 , 2 ] }", {"a": 1, "b": [1, 2]}),
        ("{a:1,a:2}", {"a": 2}),
    ],
)
def test_values_are_read_as_written(body, expected):
    assert arguments(body) == expected


def test_both_families_are_read_whatever_is_written():
    replies = [each.render_call("f", {"a": "x", "n": [1]}) for each in (GEMMA, GEMMA4)]
    assert replies == [
        "<start_function_call>call:f{a:<escape>x<escape>,n:[1]}<end_function_call>",
        f"<|tool_call>call:f{{a:{Q}x{Q},n:[1]}}<tool_call|>",
    ]
    for format in (GEMMA, GEMMA4):
        for reply in replies:
            assert format.parse(reply).attempts == (ToolCall("f", {"a": "x", "n": [1]}, "call_0"),)


@pytest.mark.parametrize("format", [GEMMA, GEMMA4])
def test_the_mark_inside_a_text_is_broken(format):
    mark = "<escape>" if format is GEMMA else Q
    (found,) = format.parse(format.render_call("f", {"a": f"x{mark}y", mark: 1})).calls
    assert found.arguments == {"a": f"x< {mark[1:]}y", f"< {mark[1:]}": 1}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "boolean"}, "true", True),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"type": "object"}, "{'a': None}", {"a": None}),
        ({"type": "integer"}, "next Monday", "next Monday"),
        ({"type": "string"}, "3", "3"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "3", "3"),
        ({}, "3", "3"),
    ],
)
def test_functiongemma_may_put_any_value_between_its_marks(schema, text, value):
    tool = {"function": {"name": "f", "parameters": {"properties": {"a": schema}}}}
    reply = f"<start_function_call>call:f{{a:<escape>{text}<escape>}}<end_function_call>"
    (found,) = GEMMA.parse(reply, [tool]).calls
    assert found.arguments == {"a": value}


def test_gemma_4_means_what_it_marks_as_text_unless_it_is_mended():
    reply = f"<|tool_call>call:search{{query:{Q}3{Q},k:{Q}3{Q}}}<tool_call|>"
    assert GEMMA.parse(reply, [SEARCH]).calls == (ToolCall("search", {"query": "3", "k": "3"}, "call_0"),)
    (found,) = GEMMA.parse(reply, [SEARCH], repair=True).calls
    assert (found.arguments, found.repairs) == ({"query": "3", "k": 3}, ("quoted_value",))


def test_mild_mistakes_are_mended_on_request_and_named():
    body = "{\"a\": \"x\", 'b': 'y', c: True, d: [1,],}"
    only_fault(call(body))
    (found,) = GEMMA.parse(call(body), repair=True).calls
    assert found.arguments == {"a": "x", "b": "y", "c": True, "d": [1]}
    assert found.repairs == ("python_words", "quotes", "single_quotes", "trailing_comma")


# -- calls


def test_parallel_calls_keep_their_order_and_prose_stays():
    parsed = GEMMA.parse(f"First {call('{a:1}')}{call('{a:2}')} then\n{call('{a:3}')} last.<turn|>\n")
    assert [each.arguments["a"] for each in parsed.calls] == [1, 2, 3]
    assert parsed.content == "First  then\n last."


@pytest.mark.parametrize("end", ["", "\n", "<turn|>", "<end_of_turn>\n", "<|tool_response>", "<eos>"])
def test_a_whole_call_without_its_closing_tag_counts(end):
    assert GEMMA.parse(f"<|tool_call>call:f{{a:1}}{end}").attempts == (ToolCall("f", {"a": 1}, "call_0"),)


def test_a_call_may_follow_a_whole_one_that_was_not_closed():
    assert len(GEMMA.parse(f"<|tool_call>call:f{{a:1}}\n{call('{a:2}')}").calls) == 2


@pytest.mark.parametrize("name", ["get-weather", "weather.get", "_x", "call"])
def test_names_may_hold_dots_and_dashes(name):
    assert GEMMA.parse(f"<|tool_call>call:{name}{{}}<tool_call|>").calls == (ToolCall(name, {}, "call_0"),)


@pytest.mark.parametrize("opened", ["<|channel>thought\n", "<|channel>thought", ""])
def test_calls_in_thoughts_do_not_run(opened):
    parsed = GEMMA.parse(f"{opened}Maybe {call('{a:1}')}\n<channel|>Now: {call('{a:2}')}")
    assert [each.arguments["a"] for each in parsed.calls] == [2]
    assert (parsed.content, parsed.reasoning) == ("Now: ", f"Maybe {call('{a:1}')}")


def test_an_empty_thought_is_none():
    parsed = GEMMA.parse("<|channel>thought\n<channel|>Paris.")
    assert (parsed.content, parsed.reasoning) == ("Paris.", "")


def test_nothing_behind_an_invented_result_counts():
    fake = f"<|tool_response>response:f{{value:1}}<tool_response|>{call('{a:2}')}"
    parsed = GEMMA.parse(call("{a:1}") + fake)
    assert [each.arguments["a"] for each in parsed.calls] == [1]
    assert parsed.content == fake
    assert "not yours" in only_fault(fake).message
    assert GEMMA.parse(f"42 {fake}").attempts == ()


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ("<|tool_call>", "incomplete", "must follow <|tool_call>"),
        ("<|tool_call>cal", "incomplete", "must follow <|tool_call>"),
        ("<|tool_call>call:f", "incomplete", "in braces"),
        (f"<|tool_call>call:f{{a:{Q}x", "incomplete", f"a closing {Q}"),
        ("<|tool_call>call:f{a:tru", "incomplete", "the text ends"),
        ("<|tool_call>call:f{a:[1,", "incomplete", "the text ends"),
        ('<|tool_call>call\n{"name": "f"}<tool_call|>', "syntax", "call:NAME{...} must follow"),
        ("<|tool_call>f{a:1}<tool_call|>", "syntax", "call:NAME{...} must follow"),
        ("<|tool_call>call:f<tool_call|>", "no_arguments", "in braces"),
        ("<|tool_call>call:f(a=1)<tool_call|>", "no_arguments", "in braces"),
        ("<|tool_call>call:{a:1}<tool_call|>", "no_name", "no function"),
        (call("{a:London}"), "syntax", "a value was expected"),
        (call("{a:}"), "syntax", "a value was expected"),
        (call("{a:01}"), "syntax", "a value was expected"),
        (call("{a:1e999}"), "syntax", "a value was expected"),
        (call("{a:NaN}"), "syntax", "a value was expected"),
        (call("{a:[1 2]}"), "syntax", "a comma or ] was expected"),
        (call("{a}"), "syntax", "a colon was expected"),
        (call("{a:1,}"), "syntax", "another item was expected"),
        (call("{a:<escape>x<escape>}"), "syntax", f"between {Q} and {Q}"),
        (call("{a:1} and more"), "syntax", "text follows the call"),
        (call("{a:" + "[" * 300), "syntax", "nested too deeply"),
        (call("{a:[" + "1," * 30_000 + "1]}"), "syntax", "more than"),
        ("<tool_call|>", "stray", "without its <|tool_call>"),
        ("<end_function_call>", "stray", "without its <start_function_call>"),
    ],
)
def test_what_is_not_written_as_it_should_be_is_one_failed_attempt(reply, kind, says):
    error = only_fault(reply)
    assert (str(error.kind), error.raw) == (kind, reply)
    assert says in error.message
    assert GEMMA.parse(reply).content == reply


def test_a_good_call_beside_a_bad_one_survives_in_its_place():
    bad, good = GEMMA.parse(call("{a:oops}") + call("{a:1}")).attempts
    assert isinstance(bad, CallError)
    assert good == ToolCall("f", {"a": 1}, "call_1")


def test_only_the_two_families_can_be_chosen():
    with pytest.raises(UnknownName, match="did you mean 'gemma4'"):
        formats.get({"name": "gemma", "version": "gemma"})
    assert GEMMA.markers != GEMMA4.markers


# -- what templates write and take


def test_tools_are_declared_as_the_template_declares_them(shared_data):
    file = shared_data / "chat_templates" / "renders.jsonl"
    renders = [json.loads(line) for line in file.read_text().splitlines()]
    (render,) = [each for each in renders if each["template"] == "vllm/tool_chat_template_gemma4.jinja"]
    declared = render["prompt"].partition("<|tool>")[2].partition("<tool|>")[0]
    assert f"<|tool>{declared}<tool|>" in GEMMA4.render_tools([SEARCH])
    functiongemma = declared.replace(Q, "<escape>")
    assert f"<start_function_declaration>{functiongemma}<end_function_declaration>" in GEMMA.render_tools(
        [SEARCH]
    )


def test_nested_schemas_keep_all_they_say_with_types_in_capitals():
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["a", None]},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/t"}]}},
        },
        "$defs": {"t": {"type": "boolean"}},
    }
    assert (
        f"parameters:{{$defs:{{t:{{type:{Q}BOOLEAN{Q}}}}},properties:{{"
        f"tags:{{items:{{anyOf:[{{type:{Q}INTEGER{Q}}},{{$ref:{Q}#/$defs/t{Q}}}]}},type:{Q}ARRAY{Q}}},"
        f"type:{{enum:[{Q}a{Q},null],type:[{Q}STRING{Q},{Q}NULL{Q}]}}}},type:{Q}OBJECT{Q}}}"
    ) in GEMMA4.render_tools([{"function": {"name": "f", "parameters": schema}}])


def turn(role: str, content: str, **more: str) -> dict[str, str]:
    return {"role": role, "content": content, **more}


def test_results_stand_between_the_tags_of_the_family():
    results = [turn("tool", "one", name="f"), turn("tool", "two")]
    assert GEMMA.render_results(results) == (
        "<start_function_response>response:f{value:<escape>one<escape>}<end_function_response>"
        "<start_function_response>response:unknown{value:<escape>two<escape>}<end_function_response>"
    )
    assert (
        GEMMA4.render_results(results[:1]) == f"<|tool_response>response:f{{value:{Q}one{Q}}}<tool_response|>"
    )


@pytest.fixture(scope="module")
def template() -> jinja2.Template:
    """A chat template of Gemma 4, as TRL ships it."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("TRL brings the template")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    file = Path(found.origin).parent / "chat_templates" / "gemma4_v5.jinja"
    return environment.from_string(file.read_text())


def test_the_template_of_gemma_4_prints_what_was_written(template):
    reply = f"<|channel>thought\nI think.\n<channel|>{call('{a:1}')}{call('{a:2}')}"
    results = [turn("tool", "one", name="f"), turn("tool", "two", name="f")]
    turns = GEMMA4.structure([turn("user", "q"), turn("assistant", reply), *results])
    written = template.render(messages=turns, bos_token="", add_generation_prompt=True)
    assert written == f"<|turn>user\nq<turn|>\n<|turn>model\n{reply}{GEMMA4.render_results(results)}"


def test_the_template_of_gemma_4_prints_the_results_of_failed_attempts(template):
    reply = f"Look: {call('{a:oops}')}{call('{a:1}')}"
    results = [turn("tool", "no value"), turn("tool", "one", name="f")]
    turns = GEMMA4.structure([turn("user", "q"), turn("assistant", reply), *results])
    assert [each["role"] for each in turns] == ["user", "assistant", "tool", "user"]
    written = template.render(messages=turns, bos_token="", add_generation_prompt=True)
    assert call("{a:1}") + GEMMA4.render_results(results[1:]) in written
    assert "<|turn>user\nno value<turn|>" in written
