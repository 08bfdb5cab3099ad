"""Code as the call: ReTool's tags, and fenced Python."""

from __future__ import annotations

import pytest
from wire import named, schema

from agent_r1_env import CallFault, UnknownName, formats

TAGS = formats.get("code_block")
FENCES = formats.get({"name": "code_block", "style": "fences"})
TOOLS = [
    schema("search", {"properties": {"query": {"type": "string"}}}),
    schema("sandbox", {"properties": {"code": {"type": "string"}, "seconds": {"type": "number"}}}),
]
BOTH = pytest.mark.parametrize("format", [TAGS, FENCES], ids=["tags", "fences"])
AWKWARD = (
    "print(1)",
    "    indented\n",
    "print('</code>')\n",
    "\n\nx = '''\n```\n'''",
    'y = "<code></think>"',
    "a = '`````'\n```\nb",
    '{"code": "x"}',
    "```python\nx\n```",
)


def code(reply, format=TAGS, tools=TOOLS, **options):
    return [call.arguments["code"] for call in format.parse(reply, tools, **options).calls]


# -- both styles


@BOTH
@pytest.mark.parametrize("text", AWKWARD)
def test_code_is_read_back_as_it_was_written(format, text):
    assert code(format.render_call("sandbox", {"code": text}), format) == [text]


@BOTH
def test_blocks_are_run_in_their_order_and_prose_stays_content(format):
    first, second = (format.render_call("sandbox", {"code": text}) for text in ("a", "b"))
    parsed = format.parse(f"I try.\n{first}\nAnd:\n{second}\nDone.", TOOLS)
    assert [call.arguments["code"] for call in parsed.calls] == ["a", "b"]
    assert parsed.content == "I try.\n\nAnd:\n\nDone."


@BOTH
def test_the_tool_is_the_one_that_takes_code(format):
    reply = format.render_call("sandbox", {"code": "a"})
    assert named(format.parse(reply, TOOLS).calls) == [("sandbox", {"code": "a"})]
    assert named(format.parse(reply).calls) == [("python", {"code": "a"})]
    assert named(format.parse(reply, TOOLS[:1]).calls) == [("python", {"code": "a"})]
    mine = formats.get({"name": "code_block", "style": format.style, "tool": "sh", "argument": "script"})
    assert mine.render_call("sh", {"script": "a"}) == reply
    assert named(mine.parse(reply, TOOLS).calls) == [("sh", {"script": "a"})]


@BOTH
def test_a_draft_in_reasoning_does_not_run(format):
    draft, real = (format.render_call("sandbox", {"code": text}) for text in ("draft", "real"))
    assert code(f"<think>\n{draft}\n</think>\n{real}", format) == ["real"]
    assert code(f"{draft}\n</think>\n{real}", format) == ["real"]


@BOTH
def test_an_invented_result_and_all_behind_it_is_inert(format):
    call = format.render_call("sandbox", {"code": "a"})
    tail = f"{format.render_results([{'content': 'fake'}])}\n{call}\n<answer>fake</answer>"
    parsed = format.parse(f"{call}\n{tail}", TOOLS)
    assert len(parsed.attempts) == 1
    assert parsed.content == f"\n{tail}"


@BOTH
def test_a_result_without_code_is_an_error(format):
    result = format.render_results([{"content": "5"}])
    (error,) = format.parse(f"{result}\n<answer>5</answer>", TOOLS).attempts
    assert error.kind == CallFault.STRAY


@BOTH
def test_a_result_behind_the_answer_does_not_replace_it(format):
    result = format.render_results([{"content": "5"}])
    parsed = format.parse(f"<answer>5</answer>\n{result}\n<answer>6</answer>", TOOLS)
    assert (parsed.attempts, parsed.content) == ((), "<answer>5</answer>\n")


@BOTH
def test_generation_ends_before_a_result(format):
    mark = format.render_results([{"content": ""}]).split("\n")[0]
    assert mark in format.stop
    call = format.render_call("sandbox", {"code": "a"})
    assert format.parse(f"{call}\n{mark}", TOOLS).content == "\n"


@BOTH
def test_results_cannot_forge_a_block(format):
    call = format.render_call("sandbox", {"code": "a"})
    forged = format.neutralise(f"{call}\n{format.render_results([{'content': call}])}</code></interpreter>")
    parsed = format.parse(forged, TOOLS)
    assert (parsed.attempts, parsed.content) == ((), forged)
    assert format.neutralise(forged) == forged


@BOTH
def test_the_tool_that_runs_the_code_is_explained(format):
    text = format.render_tools(TOOLS)
    assert "sandbox" in text
    assert "search" not in text
    assert format.render_call("sandbox", {"code": "print(1 + 1)"}) in text


def test_a_call_that_is_no_code_is_written_as_the_expression_that_makes_it():
    assert code(TAGS.render_call("add", {"a": 1, "b": "x"})) == ["add(a=1, b='x')"]


def test_an_unknown_style_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'fences'"):
        formats.get({"name": "code_block", "style": "fence"})


# -- tags


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("<code>print(1)</code>", "print(1)"),
        ("<code> print(1) </code>", "print(1)"),
        ("<code>\n\nif x:\n    y\n</code>", "if x:\n    y"),
        ("<code>\n```python\nx\n```\n</code>", "x"),
        ("<code>\n```\nx\n```\n</code>", "x"),
        ("<code>```py\nx\n```</code>", "x"),
        ("<code>x = '<code>'</code>", "x = '<code>'"),
    ],
)
def test_code_stands_in_tags_with_or_without_a_fence(written, read):
    assert code(written) == [read]


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ("<code>print(1", CallFault.INCOMPLETE, "not closed by </code>"),
        ("<code>\n```python\nprint(1", CallFault.INCOMPLETE, "not closed by </code>"),
        ("<code>\n```python\nprint(1)\n</code>", CallFault.SYNTAX, "fence in <code> is not closed"),
        ("<code>\n</code>", CallFault.NO_ARGUMENTS, "holds no code"),
        ("</code>", CallFault.STRAY, "without its <code>"),
    ],
)
def test_the_model_is_told_what_is_wrong(reply, kind, says):
    (error,) = TAGS.parse(reply, TOOLS).attempts
    assert error.kind == kind
    assert says in error.message
    assert "between <code> and </code>" in error.message
    assert reply[error.start : error.end] == error.raw


def test_an_open_fence_is_mended_on_request_alone():
    reply = "<code>\n```python\nprint(1)\n</code>"
    (call,) = TAGS.parse(reply, TOOLS, repair=True).calls
    assert (call.arguments, call.repairs) == ({"code": "print(1)"}, ("code_fence",))
    unclear = "<code>\n```python\nprint('</code>"
    assert TAGS.parse(unclear, TOOLS, repair=True).calls == ()


def test_a_mention_in_reasoning_that_the_prompt_opened_opens_no_block():
    assert code("I could use <code> here.</think>\n<code>real</code>") == ["real"]


# -- fences


@pytest.mark.parametrize("opening", ["```python", "```py", "``` python3".replace(" ", ""), "  ```Python "])
def test_fenced_python_is_a_call(opening):
    assert code(f"So:\n{opening}\nprint(1)\n```", FENCES) == ["print(1)"]


@pytest.mark.parametrize(
    "prose", ["```\nx\n```", "```json\n{}\n```", "use ```python inline", "<code>x</code>"]
)
def test_other_fences_are_prose(prose):
    parsed = FENCES.parse(prose, TOOLS)
    assert (parsed.content, parsed.attempts) == (prose, ())


def test_only_the_words_of_fences_may_be_in_capitals():
    assert code("<THINK>\n```PYTHON\nx\n```\n</THINK>", FENCES) == ["x"]


def test_a_fenced_block_that_breaks_off_is_incomplete():
    (error,) = FENCES.parse("```python\nprint(1", TOOLS).attempts
    assert error.kind == CallFault.INCOMPLETE
    assert "```python" in error.message


def test_a_blank_fenced_block_is_an_error():
    assert [error.kind for error in FENCES.parse("```python\n\n```", TOOLS).errors] == [
        CallFault.NO_ARGUMENTS
    ]
