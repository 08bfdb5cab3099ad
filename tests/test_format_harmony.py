"""The messages of gpt-oss: channels, headers and recipients, and the turns that its chat template takes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_r1_env import CallError, CallFault, ToolCall, formats
from agent_r1_env.formats.typescript import type_of

HARMONY = formats.get("harmony")
CALL = '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"q": "a"}<|call|>'
NEXT = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>"
THOUGHT = "<|channel|>analysis<|message|>I think.<|end|>"
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


def good(reply: str, *, repair: bool = False) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in HARMONY.parse(reply, repair=repair).calls]


def only_fault(reply: str) -> CallError:
    (attempt,) = HARMONY.parse(reply).attempts
    assert isinstance(attempt, CallError)
    return attempt


# -- calls


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.search <|constrain|>json",
        "<|channel|>commentary to=functions.search<|constrain|>json",
        "<|channel|>commentary to=functions.search json",
        "<|channel|>commentary to=functions.search",
        "<|channel|>analysis to=functions.search code",
        " to=functions.search<|channel|>commentary json",
        " to=functions.search<|channel|>commentary<|constrain|>json",
        "assistant to=functions.search<|channel|>analysis",
        "<|start|>assistant to=functions.search<|channel|>commentary",
        " to=functions.search <|constrain|>json",
    ],
)
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", ""])
def test_the_recipient_may_stand_in_the_role_or_behind_the_channel(header, end):
    parsed = HARMONY.parse(f'{header}<|message|>{{"q": 1}}{end}')
    assert parsed.attempts == (ToolCall("search", {"q": 1}, "call_0"),)
    assert parsed.content == ""


@pytest.mark.parametrize("recipient", ["math.sum", "browser.search", "container.exec"])
def test_a_recipient_outside_of_functions_keeps_its_whole_name(recipient):
    assert good(f'<|channel|>analysis to={recipient} code<|message|>{{"a": 2}}<|call|>') == [
        (recipient, {"a": 2})
    ]


def test_code_for_python_is_its_one_argument():
    code = 'print({"a": "b"})\n'
    assert good(f" to=python<|channel|>analysis code<|message|>{code}<|call|>") == [
        ("python", {"code": code})
    ]
    tool = {"function": {"name": "python", "parameters": {"properties": {"source": {"type": "string"}}}}}
    (call,) = HARMONY.parse(f"<|channel|>analysis to=python<|message|>{code}", [tool]).calls
    assert call.arguments == {"source": code}


def test_arguments_for_python_may_be_json():
    assert good('<|channel|>commentary to=python json<|message|>{"code": "1"}<|call|>') == [
        ("python", {"code": "1"})
    ]
    assert good('<|channel|>commentary to=functions.python json<|message|>{"code": "1"}<|call|>') == [
        ("python", {"code": "1"})
    ]


def test_parallel_calls_keep_their_order():
    calls = [ToolCall("a", {"x": 1}, "call_0"), ToolCall("b", {"x": 2}, "call_1")]
    written = HARMONY.render_calls(calls)
    assert written.count("<|start|>assistant") == 1
    assert HARMONY.parse(written).calls == tuple(calls)


def test_marks_inside_a_string_are_text():
    text = '<|call|><|end|><|start|>assistant<|channel|>final<|message|>no"}'
    assert good(HARMONY.render_call("note", {"text": text})) == [("note", {"text": text})]


def test_a_call_without_arguments_has_none():
    assert good("<|channel|>commentary to=functions.now<|message|><|call|>") == [("now", {})]


def test_a_call_beside_a_bad_one_survives_in_its_place():
    bad, fine = HARMONY.parse(
        f"<|channel|>commentary to=functions.search<|message|>{{oops}}<|call|>{NEXT}{CALL}"
    ).attempts
    assert isinstance(bad, CallError)
    assert fine == ToolCall("search", {"q": "a"}, "call_1")


def test_nothing_behind_an_invented_result_counts():
    fake = "<|start|>functions.search to=assistant<|channel|>commentary<|message|>fake<|end|>"
    parsed = HARMONY.parse(f"{CALL}{fake}{NEXT}{CALL}")
    assert len(parsed.attempts) == 1
    assert fake in parsed.content
    parsed = HARMONY.parse(f"{FINAL}42<|end|><|start|>user<|message|>And more?<|end|>{NEXT}{FINAL}43")
    assert (parsed.content, parsed.attempts) == ("42", ())
    assert only_fault(f"{THOUGHT}{fake}{NEXT}{FINAL}42").kind == CallFault.STRAY


# -- channels


def test_texts_are_joined_by_line_breaks_and_thoughts_are_reasoning():
    parsed = HARMONY.parse(
        f"{THOUGHT}{NEXT}<|channel|>commentary<|message|>I look.<|end|>"
        f"{NEXT}<|channel|>analysis<|message|>More.<|end|>{NEXT}{FINAL}Done.<|return|>"
    )
    assert (parsed.content, parsed.reasoning, parsed.attempts) == ("I look.\nDone.", "I think.\nMore.", ())


@pytest.mark.parametrize(
    ("reply", "content", "reasoning"),
    [
        (f"{FINAL}I am in the mid", "I am in the mid", ""),
        ("<|channel|>analysis<|message|>I am in the mid", "", "I am in the mid"),
        (f"{THOUGHT}{NEXT}{FINAL}", "", "I think."),
        ("no channel at all", "no channel at all", ""),
        (f"Some words {FINAL}yes<|return|>", "Some words \nyes", ""),
        ('<|channel|>final <|constrain|>json<|message|>{"a": 1}<|return|>', '{"a": 1}', ""),
        (
            "the prompt opened this<|end|><|start|>assistant<|channel|>final<|message|>a",
            "a",
            "the prompt opened this",
        ),
        ("the prompt opened this<|return|>", "the prompt opened this", ""),
        (f"<|channel|>analysis<|message|>no end{NEXT}{FINAL}a", "a", "no end"),
        (f"{FINAL}a<|end|>\n{NEXT}{FINAL}b<|end|>\n", "a\nb\n", ""),
        (
            "<|channel|>commentary to=assistant<|message|>a note<|end|><|start|>assistant" + FINAL + "b",
            "b",
            "",
        ),
    ],
)
def test_messages_may_be_unfinished_or_unusual(reply, content, reasoning):
    parsed = HARMONY.parse(reply)
    assert (parsed.content, parsed.reasoning, parsed.attempts) == (content, reasoning, ())


def test_a_call_drafted_in_a_thought_does_not_count():
    draft = f"<|channel|>analysis<|message|>maybe {CALL}"
    assert HARMONY.parse(draft).attempts == ()
    parsed = HARMONY.parse(f"{draft}{NEXT}{HARMONY.render_call('pay', {'x': 2})}")
    assert [call.name for call in parsed.calls] == ["pay"]
    assert "maybe <|channel|>commentary to=functions.search" in parsed.reasoning


def test_a_header_that_was_begun_twice_counts_once():
    parsed = HARMONY.parse(f"<|channel|>commentary to=assistant{THOUGHT}{NEXT}{FINAL}Hello")
    assert (parsed.content, parsed.reasoning, parsed.attempts) == ("Hello", "I think.", ())


# -- what cannot be read


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (
            "<|channel|>--commentary to=functions.s<|message|>{}<|call|>",
            "syntax",
            "no channel '--commentary'",
        ),
        ("<|channel|>commentary to=functions.s and more json<|message|>{}", "syntax", "not the header"),
        (
            "<|channel|>commentary to=functions.s <|constrain|>json{}<|call|>",
            "syntax",
            "must end in <|message|>",
        ),
        ("<|start|>assistantcommentary to=functions.s<|message|>{}<|call|>", "syntax", "role assistant"),
        ("<|start|> to=functions.s<|channel|>commentary<|message|>{}<|call|>", "syntax", "role assistant"),
        (" to=functions.a<|channel|>commentary to=functions.b<|message|>{}", "syntax", "two recipients"),
        (" to=functions.a<|channel|>commentary to=functions.a<|message|>{}", "syntax", "two recipients"),
        ("<|channel|>commentary to=functions.a<|channel|>final<|message|>{}", "syntax", "not the header"),
        ("<|message|>Hello<|return|>", "syntax", "no channel"),
        (f"<|channel|>analysis{' ' * 500}<|message|>x", "syntax", "not the header"),
        ("<|channel|>commentary to=functions.<|message|>{}<|call|>", "no_name", "no function"),
        ("<|channel|>commentary<|message|>{}<|call|>", "no_name", "no function"),
        ("<|channel|>commentary json<|message|>{}", "no_name", "no function"),
        ("<|channel|>commentary functions.s<|message|>{}", "no_name", "no function"),
        ("<|channel|>commentary to=functions.s<|message|>{'a': 1}<|call|>", "syntax", "not valid JSON"),
        ('<|channel|>commentary to=functions.s<|message|>{"a": 1}{"b": 2}<|call|>', "syntax", "text follows"),
        ("<|channel|>commentary to=functions.s<|message|>[1]<|call|>", "arguments", "not [1]"),
        ('<|channel|>commentary to=functions.s<|message|>"{}"<|call|>', "arguments", "JSON object"),
        ("<|channel|>commentary to=functions.s", "incomplete", "header"),
        ("<|channel|>commentary to=functions.s<|message|>", "incomplete", "before the arguments"),
        ('<|channel|>commentary to=functions.s<|message|>{"a": "b', "incomplete", "unterminated"),
        ('{"a": 1}<|call|>', "stray", "no header"),
    ],
)
def test_what_is_not_written_as_it_should_be_is_one_failed_attempt(reply, kind, says):
    error = only_fault(reply)
    assert (str(error.kind), error.raw) == (kind, reply)
    assert says in error.message
    assert HARMONY.parse(reply).content == reply


def test_a_broken_header_harms_no_other_message():
    parsed = HARMONY.parse(f'{THOUGHT}{NEXT}<|channel|>oops {{"a": 1}}<|return|>{NEXT}{CALL}')
    assert [type(each) for each in parsed.attempts] == [CallError, ToolCall]
    assert parsed.content == f'{NEXT}<|channel|>oops {{"a": 1}}<|return|>'


def test_mild_mistakes_are_mended_on_request_and_named():
    reply = (
        " to=functions.a<|channel|>commentary to=functions.a json<|message|>"
        "```json\n{'x': True, \"y\": [1,],}\n```<|call|>"
    )
    (call,) = HARMONY.parse(reply, repair=True).calls
    assert call.arguments == {"x": True, "y": [1]}
    assert set(call.repairs) == {
        *("recipient_twice", "code_fence", "single_quotes", "python_words", "trailing_comma"),
    }
    assert good(reply.replace("to=functions.a", "to=functions.b", 1), repair=True) == []


def test_a_flood_of_messages_is_read_up_to_a_limit():
    for piece in ("<|end|>", f"{NEXT}{FINAL}<|end|>", "<|channel|>", f"{FINAL}a<|end|>"):
        HARMONY.parse(piece * 50_000)
    assert HARMONY.parse(f"{FINAL}a<|end|>" * 50_000).errors[-1].kind == CallFault.TOO_MANY


# -- the chat template


@pytest.fixture(scope="module")
def template() -> jinja2.Template:
    """The chat template of gpt-oss, as TRL ships it."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("TRL brings the template")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals.update(raise_exception=refuse, strftime_now=lambda _: "2025-07-01")
    file = Path(found.origin).parent / "chat_templates" / "gptoss.jinja"
    return environment.from_string(file.read_text())


def refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def turn(role: str, content: str, **more: str) -> dict[str, str]:
    return {"role": role, "content": content, **more}


def test_parallel_calls_become_turns_of_their_own_with_their_results(template):
    reply = f"{THOUGHT}{NEXT}<|channel|>commentary<|message|>I look.<|end|>{NEXT}{CALL}{NEXT}{CALL}"
    results = [turn("tool", "one", name="search"), turn("tool", "two", name="search")]
    turns = HARMONY.structure([turn("user", "q"), turn("assistant", reply), *results])
    assert [each["role"] for each in turns] == ["user", "assistant", "tool", "assistant", "tool"]
    assert turns[1]["thinking"] == "I think.\nI look."
    assert [each["tool_call_id"] for each in turns if each["role"] == "tool"] == ["call_0", "call_1"]
    written = template.render(messages=turns, add_generation_prompt=True).partition("<|start|>user")[2]
    call = ' to=functions.search<|channel|>commentary json<|message|>{"q": "a"}<|call|>'
    result = '<|start|>functions.search to=assistant<|channel|>commentary<|message|>"%s"<|end|>'
    assert written == (
        f"<|message|>q<|end|>{NEXT}<|channel|>analysis<|message|>I think.\nI look.<|end|>"
        f"{NEXT}{call}{result % 'one'}{NEXT}{call}{result % 'two'}{NEXT}"
    )


def test_results_of_failed_attempts_become_user_turns(template):
    reply = f"<|channel|>oops<|message|>{FINAL}x<|end|>{NEXT}{CALL}"
    results = [turn("tool", "no channel"), turn("tool", "one")]
    turns = HARMONY.structure([turn("user", "q"), turn("assistant", reply), *results, turn("user", "go on")])
    assert [each["role"] for each in turns] == ["user", "assistant", "tool", "assistant", "user", "user"]
    assert [each["content"] for each in turns[4:]] == ["no channel", "go on"]
    assert "< |channel|>oops" in turns[3]["content"]
    template.render(messages=turns, add_generation_prompt=True)


def test_an_answer_keeps_its_thoughts_where_the_template_takes_them(template):
    turns = HARMONY.structure([turn("user", "q"), turn("assistant", f"{THOUGHT}{NEXT}{FINAL}42<|return|>")])
    assert turns[1] == {"role": "assistant", "content": "42", "thinking": "I think."}
    written = template.render(messages=turns, add_generation_prompt=False)
    assert written.endswith(f"{NEXT}{THOUGHT}{NEXT}{FINAL}42<|return|>")


def test_tools_are_described_as_the_template_describes_them(shared_data):
    file = shared_data / "chat_templates" / "renders.jsonl"
    renders = [json.loads(line) for line in file.read_text().splitlines()]
    (render,) = [each for each in renders if each["template"] == "trl/gptoss.jinja"]
    start = render["prompt"].index("# Tools")
    end = "} // namespace functions"
    described = render["prompt"][start : render["prompt"].index(end) + len(end)]
    assert HARMONY.render_tools([SEARCH]).startswith(described)


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({}, "any"),
        (True, "any"),
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"const": "x"}, '"x"'),
        ({"anyOf": [{"type": "number"}, {"type": "integer"}, {"type": "null"}]}, "number | null"),
        ({"allOf": [{"enum": [1, 2]}, {"type": "integer"}]}, "(1 | 2) & number"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": ["string", "number"]}}, "(string | number)[]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]}, "[string, boolean]"),
        ({"type": "object"}, "object"),
        ({"additionalProperties": {"type": "number"}, "type": "object"}, "{ [key: string]: number }"),
        ({"$ref": "#/$defs/p"}, "boolean"),
        ({"$ref": "#/$defs/gone"}, "any"),
        ({"$ref": "elsewhere.json"}, "any"),
    ],
)
def test_a_schema_is_a_type(schema, type_):
    assert type_of(schema, {"$defs": {"p": {"type": "boolean"}}}) == type_


def test_nested_objects_keep_descriptions_optional_marks_and_defaults():
    inner = {
        "type": "object",
        "required": ["a-b"],
        "properties": {
            "a-b": {"type": "string", "description": "Two\nlines."},
            "c": {"type": "boolean", "default": True},
        },
    }
    tools = [
        {"function": {"name": "f", "parameters": {"properties": {"x": inner}}}},
        {"function": {"name": "g"}},
    ]
    text = HARMONY.render_tools(tools)
    assert (
        "type f = (_: {\n"
        "x?: {\n  // Two\n  // lines.\n"
        '  "a-b": string,\n  c?: boolean, // default: true\n},\n'
        "}) => any;\n\ntype g = () => any;\n\n" in text
    )


def test_a_schema_that_refers_to_itself_is_written_once():
    tree = {"properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": tree}}
    assert type_of(schema, schema) == "{\n  left?: any,\n  right?: any,\n}"


def test_results_for_templates_without_tools_are_messages_of_the_function():
    assert HARMONY.render_results([turn("tool", "one", name="search"), turn("tool", "two")]) == (
        "<|start|>functions.search to=assistant<|channel|>commentary<|message|>one<|end|>\n"
        "<|start|>functions.tool to=assistant<|channel|>commentary<|message|>two<|end|>"
    )
