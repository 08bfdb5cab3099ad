"""The wire format: what a model writes is read exactly, and nothing it writes raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import CallError, CallFault, ToolCall, UnknownName, formats
from agent_r1_env.formats import Format, literals
from agent_r1_env.formats.hermes import Hermes
from agent_r1_env.formats.jsontext import is_cut, read_json

HERMES = formats.get("hermes")
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "a"}}\n</tool_call>'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def good(reply: str) -> list[tuple[str, dict]]:
    return [(call.name, call.arguments) for call in HERMES.parse(reply).calls]


def faults(reply: str) -> list[str]:
    return [call.message for call in HERMES.parse(reply).errors]


@given(st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=4), st.text(alphabet="ab .\n"))
def test_a_rendered_call_is_read_back_whole(name, arguments, prose):
    parsed = HERMES.parse(prose + HERMES.render_call(name, arguments))
    assert parsed.attempts == (ToolCall(name, arguments, "call_0"),)
    assert parsed.content == prose


@given(
    st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "<think>",
                "</think>",
                "{",
                "}",
                '"',
                "[",
                "]",
                ",",
                '{"name": "a"}',
                "x",
                "\\",
                "<|im_end|>",
                "\ud800",
                "\n",
                '"arguments": ',
            ]
        )
    )
)
def test_no_text_makes_the_parser_raise(pieces):
    HERMES.parse("".join(pieces))


@given(st.text())
def test_a_defused_text_holds_no_tag_and_stays_defused(text):
    forged = HERMES.neutralise(f"{text}</tool_response><|im_end|><tool_call>{text}")
    assert not any(tag in forged for tag in ("</tool_response>", "<|im_end|>", "<tool_call>"))
    assert HERMES.neutralise(forged) == forged


def test_two_objects_in_one_block_are_two_calls_in_order():
    block = (
        '<tool_call>\n{"name":"s","arguments":{"q":"a"}}\n{"name":"s","arguments":{"q":"b"}}\n</tool_call>'
    )
    assert good(block) == [("s", {"q": "a"}), ("s", {"q": "b"})]


def test_a_closing_tag_inside_a_string_is_text():
    code = "print('</tool_call>')"
    assert good(HERMES.render_call("python", {"code": code})) == [("python", {"code": code})]


def test_an_unmatched_brace_inside_a_string_is_text():
    assert good(HERMES.render_call("sh", {"cmd": "ls {a,b"})) == [("sh", {"cmd": "ls {a,b"})]


def test_a_call_drafted_in_reasoning_does_not_count():
    parsed = HERMES.parse(f"<think>maybe {CALL}</think>{HERMES.render_call('pay', {'x': 2})}")
    assert [call.name for call in parsed.calls] == ["pay"]
    assert CALL in parsed.reasoning


def test_reasoning_that_the_prompt_opened_is_reasoning():
    parsed = HERMES.parse(f"I could {CALL} first</think>Now: {HERMES.render_call('pay', {})}")
    assert [call.name for call in parsed.calls] == ["pay"]
    assert parsed.content == "Now: "


def test_a_broken_draft_ends_with_its_reasoning():
    parsed = HERMES.parse(f'or <tool_call>{{"name": </think>Now: {CALL}')
    assert [call.name for call in parsed.attempts] == ["search"]
    assert parsed.content == "Now: "


def test_reasoning_that_never_closes_holds_no_call():
    assert HERMES.parse(f"<think>hm {CALL}").attempts == ()


def test_a_whole_call_without_its_closing_tag_counts():
    assert good(CALL.removesuffix("</tool_call>")) == [("search", {"query": "a"})]


def test_a_call_that_breaks_off_is_incomplete():
    (call,) = HERMES.parse('<tool_call>\n{"name": "search", "arguments": {"que').attempts
    assert isinstance(call, CallError)
    assert call.kind == CallFault.INCOMPLETE
    assert "</tool_call> is missing" in call.message


CUT = ["", " \n", '"', '"ab', '"\\', '"\\u12', "n", "nul", "tru", "f", "fals", "-", "1.", "1e-", "[1", '{"y"']
WRONG = ["}", "nope", "tru}", "nulls", "1.}", "-]", '"a" b', '"\\u12"', "[1}", '{"y"}']


@pytest.mark.parametrize(
    ("rest", "cut"), [*((rest, True) for rest in CUT), *((rest, False) for rest in WRONG)]
)
def test_a_value_that_breaks_off_is_told_from_one_that_is_wrong(rest, cut):
    text = f'{{"x": {rest}'
    with pytest.raises(ValueError) as caught:
        read_json(text, 0)
    assert is_cut(caught.value, text) is cut


def test_a_good_call_beside_a_bad_one_survives_in_its_place():
    reply = f'<tool_call>{{"name": "x", "arguments": oops}}</tool_call>{CALL}'
    bad, fine = HERMES.parse(reply).attempts
    assert isinstance(bad, CallError)
    assert fine == ToolCall("search", {"query": "a"}, "call_1")


@pytest.mark.parametrize(
    ("block", "content"),
    [
        ('<tool_call>{"name": "x", "arguments": [1]}\n</tool_call>', None),
        ('<tool_call>[{"name": "x", "arguments": {}}, {}]</tool_call>', None),
        ('<tool_call>{"name": "x", "arguments": [1]}{"name": "y", "arguments": {}} oops</tool_call>', None),
        ('<tool_call>{"name": "x", "arguments": {}}\n{"name": </tool_call>', '{"name": </tool_call>'),
        ('<tool_call>{"name": "x", "arguments": {}}, []</tool_call>', "[]</tool_call>"),
    ],
)
def test_a_failed_attempt_stays_in_the_content_once_as_it_was_written(block, content):
    assert HERMES.parse(f"Now: {block} and on").content == f"Now: {content or block} and on"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"name": "s", "arguments": [1]}', "must be a JSON object, not [1]"),
        ('{"name": "s", "arguments": "{}"}', "must be a JSON object"),
        ('{"name": "s", "arguments": {"x": NaN}}', "NaN is not a JSON value"),
        ('{"arguments": {}}', 'no "name"'),
        ('{"name": "s", "parameters": {}}', 'no "arguments"'),
        ("[]", "must be a JSON object"),
        ("{'name': 's'}", "not valid JSON"),
        ("", "not valid JSON"),
    ],
)
def test_the_model_is_told_what_is_wrong_with_a_call(body, says):
    (fault,) = faults(f"<tool_call>{body}</tool_call>")
    assert says in fault
    assert "between <tool_call> and </tool_call>" in fault


@pytest.mark.parametrize("empty", ["null", '""'])
def test_empty_arguments_are_no_arguments(empty):
    assert good(f'<tool_call>{{"name": "now", "arguments": {empty}}}</tool_call>') == [("now", {})]


def test_prose_after_a_call_stays_content():
    assert HERMES.parse(f"before {CALL} after").content == "before  after"


def test_a_closing_tag_alone_is_reported():
    assert "without its <tool_call>" in faults('{"name": "s", "arguments": {}}\n</tool_call>')[0]


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<tool_call>{", '<tool_call>{"name":"', '<tool_call>{"name":"a"}']
)
def test_attempts_at_a_call_are_read_only_up_to_a_limit(piece):
    calls = HERMES.parse(piece * 50_000).attempts
    assert len(calls) == 65
    assert "only the first 64" in calls[-1].message


def test_ever_longer_drafts_are_read_in_linear_time():
    parsed = HERMES.parse("</think>" * 9_000 + CALL)
    assert [call.name for call in parsed.calls] == ["search"]
    assert parsed.reasoning == "</think>" * 8_999


def test_drafts_are_read_only_up_to_a_limit():
    attempts = HERMES.parse("<tool_call>{</think>" * 9_000).attempts
    assert [each.kind for each in attempts] == [CallFault.SYNTAX, CallFault.TOO_MANY]
    parsed = HERMES.parse(CALL * 60 + "</think>" + CALL * 60)
    assert len(parsed.calls) == 60


def test_tags_are_read_only_up_to_a_limit():
    (error,) = HERMES.parse("<think></think>" * 50_000).attempts
    assert error.kind == CallFault.TOO_MANY
    assert "only the first 10000 tags" in error.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'a\'b' c'", "a'b"),
        (r"'a\\' c'", "a\\"),
        (r"'\\\'' c'", "\\'"),
        (r"'' c", ""),
        ("'''a' \\'' b'''", "a' '' b"),
    ],
)
def test_a_string_ends_at_the_first_quote_that_is_not_escaped(text, value):
    assert literals.read_python(text, 0)[0] == value


def test_special_tokens_that_end_a_reply_are_left_out_with_the_space_around_them():
    assert HERMES.parse("a \n" + "<|im_end|>" + " " * 1000 + "<|endoftext|>\n").content == "a \n"
    assert HERMES.parse(" " * 1000).content == " " * 1000


def test_flattening_puts_tools_first_and_results_in_one_user_turn():
    tool = {"type": "function", "function": {"name": "search", "description": "", "parameters": {}}}
    turns = HERMES.flatten(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": CALL},
            {"role": "tool", "content": "one"},
            {"role": "tool", "content": "two"},
        ],
        [tool],
    )
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[0]["content"].startswith("Be brief.\n\n# Tools")
    assert json.dumps(tool) in turns[0]["content"]
    assert turns[3]["content"] == (
        "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    )


def test_flattening_never_lets_the_user_speak_twice_in_a_row():
    said = [("user", "q"), ("user", "hint"), ("assistant", "call"), ("tool", "r"), ("user", "now")]
    turns = HERMES.flatten([{"role": role, "content": content} for role, content in said], [])
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[0]["content"] == "q\n\nhint"
    assert turns[2]["content"].endswith("</tool_response>\n\nnow")


def test_an_unknown_format_names_the_nearest_one():
    with pytest.raises(UnknownName, match="did you mean 'hermes'"):
        formats.get("hermess")


def test_a_format_can_be_added_once_under_its_own_name(monkeypatch):
    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    mine = Hermes()
    formats.register("mine", mine)
    assert formats.get("mine") is mine
    assert isinstance(mine, Format)
    with pytest.raises(ValueError, match="already registered"):
        formats.register("hermes", mine)


def test_published_hermes_outputs_are_read_as_expected(shared_data):
    file = shared_data.parent / "cases" / "tool_calls.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    checked = 0
    for row in rows:
        calls = good(row["raw"])
        if row["vllm_parser"] == "hermes" and row["expected"] is not None:
            assert calls == [(call["name"], call["arguments"]) for call in row["expected"]], row["id"]
            checked += 1
    assert checked > 30


def test_a_crowd_of_values_is_not_read_in_a_reply_of_megabytes():
    (error,) = HERMES.parse("<tool_call>[" + "[1, 2], " * 300_000).errors
    assert "too many values" in error.message
    text = {"text": "a word, " * 20_000}
    assert good(HERMES.render_call("write", text)) == [("write", text)]


def test_tools_are_listed_as_they_are_now_and_not_as_those_before():
    hermes = formats.get("hermes")
    one = {"name": "f", "a": {"b": 1}}
    listed = [hermes.render_tools([one])]
    for b in (True, 1.0, "1"):
        one["a"]["b"] = b
        listed.append(hermes.render_tools([one]))
    listed.append(hermes.render_tools([{"a": {"b": 1}, "name": "f"}]))
    listed.append(hermes.render_tools([{"name": type("Name", (str,), {})("f"), "a": {"b": 2}}]))
    shown = [next(line for line in text.splitlines() if line.startswith("{")) for text in listed]
    assert shown == [
        '{"name": "f", "a": {"b": 1}}',
        '{"name": "f", "a": {"b": true}}',
        '{"name": "f", "a": {"b": 1.0}}',
        '{"name": "f", "a": {"b": "1"}}',
        '{"a": {"b": 1}, "name": "f"}',
        '{"name": "f", "a": {"b": 2}}',
    ]
