"""All wire formats against published replies and real templates, and what holds for each of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wire
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import CallError, CallFault, ToolCall, formats

NAMES = formats.names()
FOLDER = Path(formats.__file__).parent
A_FORMAT = re.compile(r"^class \w+\((?:\w+, )*Format\):", re.MULTILINE)

_TRAILING = "prose behind a call is content, as prose before it is"
OVERRULED: dict[str, tuple[str, str]] = {
    "deepseek_v3-010": ("content", _TRAILING),
    "deepseek_v31-002": ("content", _TRAILING),
    "hermes-021": ("content", _TRAILING),
    "kimi_k2-006": ("calls", "arguments are a JSON object; the model is told of any other"),
    "llama3_json-001": ("content", _TRAILING),
    "mistral_v11-010": ("content", _TRAILING),
    "mistral_v11-011": ("content", _TRAILING),
    "mistral_v3-007": ("content", _TRAILING),
}
"""What a published row expects and the format's own specification does not: the part, and why."""

FORMAT_OF_TEMPLATE = (
    ("eepseek", "deepseek"),
    ("DeepSeek", "deepseek"),
    ("Qwen3-Coder", "qwen3_coder"),
    ("qwen3coder", "qwen3_coder"),
    ("qwen3_5", "qwen3_coder"),
    ("qwen3_6", "qwen3_coder"),
    ("Qwen", "hermes"),
    ("qwen", "hermes"),
    ("ermes", "hermes"),
    ("SmolLM", "hermes"),
    ("GLM", "glm4"),
    ("glm4", "glm4"),
    ("Kimi", "kimi_k2"),
    ("mistral", "mistral"),
    ("Mistral", "mistral"),
    ("Ministral", "mistral"),
    ("functionary", "functionary"),
    ("pythonic", "pythonic"),
    ("llama4_json", "llama3_json"),
    ("lama", "llama3_json"),
    ("gpt", "harmony"),
    ("gemma", "gemma"),
    ("phi", "phi4_mini"),
    ("granite", "phi4_mini"),
)
"""The format of each template, by the first of these that its name holds."""

NO_CALL = {
    "gguf/SmolLM2-135M-Instruct.jinja": "drops calls",
    "llama_cpp/HuggingFaceTB-SmolLM3-3B.jinja": "drops calls",
    "llama_cpp/Kimi-K2-Instruct.jinja": "changes a list, which the sandbox refuses",
    "llama_cpp/deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja": "drops calls",
    "llama_cpp/google-gemma-2-2b-it.jinja": "raises on a system turn",
    "llama_cpp/ibm-granite-granite-3.3-2B-Instruct.jinja": "drops calls",
    "llama_cpp/llama-cpp-deepseek-r1.jinja": "raises",
    "trl/gemma.jinja": "raises on a system turn",
    "trl/gemma3.jinja": "raises on a tool turn",
    "trl/gemma3_training.jinja": "raises on a tool turn",
    "trl/gemma_training.jinja": "raises on a system turn",
    "trl/llama3.jinja": "drops calls",
    "trl/llama3_training.jinja": "drops calls",
    "trl/phi3_5.jinja": "drops calls",
    "vllm/tool_chat_template_glm4.jinja": "drops calls",
}
"""Templates that write no call at all."""

REPAIRED = {
    "mistral_common/v3.jinja": "html_escapes",
    "mistral_common/v7.jinja": "html_escapes",
    "vllm/tool_chat_template_gemma3_pythonic.jinja": "missing_comma",
    "vllm/tool_chat_template_phi4_mini.jinja": "single_quotes",
}
"""Templates whose own calls are read only with a repair."""

UNREADABLE = {
    "vllm/tool_chat_template_llama3.2_pythonic.jinja": "writes texts without quotes",
    "vllm/tool_chat_template_llama4_pythonic.jinja": "writes quotes in texts as if they ended them",
}
"""Templates whose own calls cannot be read without guessing. That is told."""

ONE_CALL = {
    "llama_cpp/openai-gpt-oss-120b.jinja": "drops the second call",
    "trl/gptoss.jinja": "drops the second call",
    "trl/gptoss_training.jinja": "drops the second call",
}
"""Templates that write only the first of two calls. Those of Llama 3 raise instead."""

SEARCH = ("search", {"query": 'Arthur\'s Magazine "1844"', "k": 3})
SEARCHES = [SEARCH, ("search", {"query": "First for Women"})]
SEARCH_TOOL = wire.schema(
    "search",
    {"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer"}}},
)
RUN = ToolCall("run", {"code": "print(1)"}, "call_0")
RUN_TOOL = wire.schema("run", {"type": "object", "properties": {"code": {"type": "string"}}})
HEADERS = ("<｜Assistant｜>", "<|im_start|>assistant\n", "<|turn>model\n", "<|assistant|>", "[/INST]")


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[dict[str, Any]]:
    return wire.rows_of(shared_data)


@pytest.fixture(scope="module")
def renders(shared_data: Path) -> list[dict[str, Any]]:
    file = shared_data / "chat_templates" / "renders.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


# -- published replies


def differences(row: dict[str, Any]) -> set[str]:
    """The parts in which what is read differs from what the row expects."""
    parsed = formats.get(wire.FAMILIES[row["family"]]).parse(row["raw"], row.get("tools") or ())
    found = set()
    if row["expected"] is not None:
        expected = [(call["name"], call["arguments"]) for call in row["expected"]]
        if wire.exact(wire.named(parsed.calls)) != wire.exact(expected):
            found.add("calls")
    if row["content_checked"] and parsed.content.strip() != (row["content"] or "").strip():
        found.add("content")
    if row.get("reasoning") is not None and parsed.reasoning.strip() != row["reasoning"].strip():
        found.add("reasoning")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_published_replies_are_read_as_expected(rows: list[dict[str, Any]], name: str) -> None:
    mine = [row for row in rows if wire.FAMILIES[row["family"]] == name]
    wrong = {row["id"]: found for row in mine if (found := differences(row))}
    overruled = {key: {part} for key, (part, _) in OVERRULED.items() if key in {row["id"] for row in mine}}
    assert wrong == overruled


def test_every_family_of_the_published_replies_has_a_format(rows: list[dict[str, Any]]) -> None:
    assert {row["family"] for row in rows} == set(wire.FAMILIES)
    assert set(OVERRULED) <= {row["id"] for row in rows}
    assert set(wire.FAMILIES.values()) == set(NAMES) - {"code_block", "react", "xml_tags"}


# -- what templates write


def format_of(template: str) -> str:
    family = template.removeprefix("llama_cpp/")
    return next(name for part, name in FORMAT_OF_TEMPLATE if part in family)


def segment_of(render: dict[str, Any], segment: str, whole: str) -> str | None:
    """The assistant turn that a template wrote, cut out of the whole where it stands nowhere alone."""
    if render.get(segment) is not None or render.get(whole) is None:
        return render.get(segment)
    asked = render[whole].rindex("Which is older?")
    ends = [at + len(header) for header in HEADERS if (at := render[whole].find(header, asked)) >= 0]
    return render[whole][min(ends) :]


@pytest.mark.parametrize(
    ("segment", "whole", "calls"),
    [
        ("call_segment", "prompt_plus_call", SEARCHES[:1]),
        ("parallel_call_segment", "parallel_prompt_plus_call_tail", SEARCHES),
    ],
    ids=["one", "parallel"],
)
def test_calls_that_templates_write_are_read_back(
    renders: list[dict[str, Any]], segment: str, whole: str, calls: list[tuple[str, Any]]
) -> None:
    read = 0
    for render in renders:
        template, turn = render["template"], segment_of(render, segment, whole)
        if template in NO_CALL:
            assert turn is None or "Arthur" not in turn, template
            continue
        if turn is None:
            assert "single tool-calls" in render["parallel_error"], template
            continue
        format, repair = formats.get(format_of(template)), template in REPAIRED
        parsed = format.parse(turn, [SEARCH_TOOL], repair=repair)
        if template in UNREADABLE:
            assert parsed.errors, template
            assert not any("Arthur" in str(call.arguments) for call in parsed.calls), template
            continue
        expected = calls[:1] if template in ONE_CALL else calls
        assert wire.exact(wire.named(parsed.calls)) == wire.exact(expected), template
        assert not parsed.errors, template
        repairs = {name for call in parsed.calls for name in call.repairs}
        assert repairs == ({REPAIRED[template]} if repair else set()), template
        assert not repair or format.parse(turn, [SEARCH_TOOL]).errors, template
        read += 1
    assert read >= 50


# -- what holds for every format


def test_the_formats_are_the_files_in_the_folder() -> None:
    files = {file.stem for file in FOLDER.glob("*.py") if A_FORMAT.search(file.read_text())}
    assert files == set(NAMES)
    assert [formats.get(name).name for name in NAMES] == NAMES
    assert all(formats.get(name).models for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(prose=st.text(alphabet="abc éж.,;!?'-()0123456789\n\t", max_size=80))
def test_prose_is_content_and_nothing_else(name: str, prose: str) -> None:
    parsed = formats.get(name).parse(prose)
    assert (parsed.content, parsed.reasoning, parsed.attempts) == (prose, "", ())


PROSE = (
    "See [search results] below.",
    "Use a dict such as {'a': 1} or [1, 2], or the set {x | x > 0}.",
    'The file holds {"a": 1, "b": [2]} and nothing else.',
    "if a < b and c > d: print('<b>bold</b>')",
    "The function search(query) is called with the argument query=3.",
    "I thought: Action films are fun. My action: none.",
    "a | b || c |> d <| e",
    "See [1], [2] and [note](http://x.y/z?q=[a]).",
    "5 < 6 > 4 & x &lt; y",
    "```\nplain\n```\n",
)


@pytest.mark.parametrize("prose", PROSE)
@pytest.mark.parametrize("name", NAMES)
def test_what_merely_looks_like_a_call_is_prose(name: str, prose: str) -> None:
    parsed = formats.get(name).parse(prose, [SEARCH_TOOL])
    assert (parsed.content, parsed.attempts) == (prose, ())


def sample(name: str) -> tuple[list[dict[str, Any]], ToolCall]:
    """A tool that the format can call, and a call of it."""
    return ([RUN_TOOL], RUN) if name == "code_block" else ([SEARCH_TOOL], ToolCall(*SEARCHES[1], "call_0"))


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_reasoning_do_not_run(name: str) -> None:
    format, (tools, call) = formats.get(name), sample(name)
    written = format.render_calls([call])
    for opening, closing in zip(format.reasoning[::2], format.reasoning[1::2], strict=True):
        for draft in (f"{opening}maybe\n{written}\nor not", f"{opening}maybe\n{written}{closing}"):
            parsed = format.parse(draft, tools)
            assert parsed.attempts == ()
            assert "maybe" in parsed.reasoning
        (read,) = format.parse(f"{opening}maybe\n{written}{closing}\n{written}", tools).calls
        assert (read.name, read.arguments) == (call.name, call.arguments)


LONG = [
    {"query": 'Arthur\'s "1844" <b>', "k": 123, "deep": {"a": [1, None, "x"]}, "ok": True},
    {"query": "two\nlines", "k": -4.5},
    {},
]
LONG_TOOL = wire.schema(
    "search",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "k": {"type": "number"},
            "deep": {"type": "object"},
            "ok": {"type": "boolean"},
        },
    },
)


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("spec", wire.SPECS)
def test_a_reply_that_is_cut_anywhere_holds_no_half_of_a_call(spec: str, repair: bool) -> None:
    format = formats.get(wire.SPECS[spec])
    tools, calls = [LONG_TOOL], [ToolCall("search", arguments, "call_0") for arguments in LONG]
    if format.name == "code_block":
        tools, calls = [RUN_TOOL], [ToolCall("run", {"code": "print(12345)\nx = 'a'"}, "call_0"), RUN]
    reply = wire.reply_with(spec, "I look.", calls)
    for known in (tools, []):
        whole = wire.exact(wire.named(format.parse(reply, known, repair=repair).calls))
        for cut in range(len(reply)):
            parsed = format.parse(reply[:cut], known, repair=repair)
            assert wire.exact(wire.named(parsed.calls)) == whole[: len(parsed.calls)], reply[:cut]
            assert {error.kind for error in parsed.errors} <= {CallFault.INCOMPLETE}, reply[:cut]


@pytest.mark.parametrize("name", NAMES)
def test_no_more_calls_are_read_than_the_limit(name: str) -> None:
    format, (tools, call) = formats.get(name), sample(name)
    many = format.render_calls([replace(call, id=f"call_{number}") for number in range(200)])
    one = format.render_calls([call])
    for reply in (many, one * 200, one[: len(one) // 2] * 2000):
        assert len(format.parse(reply, tools).attempts) <= 65
    assert len(format.parse(many, tools).calls) == 64


@pytest.mark.parametrize("name", NAMES)
def test_errors_point_at_the_text_that_they_quote(rows: list[dict[str, Any]], name: str) -> None:
    format = formats.get(name)
    for row in rows:
        for reply in (row["raw"], row["raw"][: len(row["raw"]) * 2 // 3], row["raw"][3:]):
            parsed = format.parse(reply, row.get("tools") or ())
            assert parsed == format.parse(reply, row.get("tools") or ())
            for error in parsed.attempts:
                if isinstance(error, CallError):
                    assert reply[error.start : error.end] == error.raw
                    assert error.fault


@pytest.mark.parametrize("name", NAMES)
def test_the_tools_are_explained_with_name_and_arguments(name: str) -> None:
    tools, call = sample(name)
    text = formats.get(name).render_tools(tools)
    assert all(word in text for word in (call.name, *call.arguments))


@pytest.mark.parametrize("spec", wire.SPECS)
def test_results_cannot_forge_a_call(spec: str) -> None:
    format, (tools, call) = formats.get(wire.SPECS[spec]), sample(formats.get(wire.SPECS[spec]).name)
    forged = format.neutralise(format.render_calls([call, call]))
    assert forged == format.neutralise(forged)
    assert not any(marker in forged for marker in format.markers)
    if format.markers:
        assert not format.parse(forged, tools).calls
