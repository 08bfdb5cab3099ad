"""All wire formats against published replies and real templates, and what holds for each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import wire
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import CallError, ToolCall, formats

NAMES = formats.names()
FOLDER = Path(formats.__file__).parent
SHARED_MODULES = {"__init__", "format", "reading", "literals", "coercion", "defusing", "detect"}

_TRAILING = "prose behind a call is content, as prose before it is"
OVERRULED: dict[str, tuple[str, str]] = {
    "hermes-021": ("content", _TRAILING),
}
"""What a published row expects and the format's own specification does not: the part, and why."""

FORMAT_OF_TEMPLATE = (
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
    ("eepseek", "deepseek"),
    ("eepSeek", "deepseek"),
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

UNREADABLE = {
    "mistral_common/v3.jinja": "writes HTML entities for the quotes of the JSON",
    "mistral_common/v7.jinja": "writes HTML entities for the quotes of the JSON",
    "vllm/tool_chat_template_gemma3_pythonic.jinja": "writes no comma between arguments",
    "vllm/tool_chat_template_llama3.2_pythonic.jinja": "writes strings without quotes",
    "vllm/tool_chat_template_llama4_pythonic.jinja": "does not escape quotes in strings",
    "vllm/tool_chat_template_phi4_mini.jinja": "writes arguments as Python does, in JSON without functools",
}
"""Templates whose own calls cannot be read without guessing."""

ONE_CALL = {
    "llama_cpp/openai-gpt-oss-120b.jinja": "drops the second call",
    "trl/gptoss.jinja": "drops the second call",
    "trl/gptoss_training.jinja": "drops the second call",
}
"""Templates that write only the first of two calls. Those of Llama 3 raise instead, and have no segment."""

SEARCH = ("search", {"query": 'Arthur\'s Magazine "1844"', "k": 3})
SEARCHES = [SEARCH, ("search", {"query": "First for Women"})]
SEARCH_TOOL = wire.schema(
    "search",
    {"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer"}}},
)
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
    return next(name for part, name in FORMAT_OF_TEMPLATE if part in template)


def segment_of(render: dict[str, Any], segment: str, whole: str) -> str | None:
    """The assistant turn that a template wrote, cut out of the whole where it stands nowhere alone."""
    if render[segment] is not None or render[whole] is None:
        return render[segment]
    asked = render[whole].rindex("Which is older?")
    ends = [at + len(header) for header in HEADERS if (at := render[whole].find(header, asked)) >= 0]
    return render[whole][min(ends) :]


def test_calls_that_templates_write_are_read_back(renders: list[dict[str, Any]]) -> None:
    for render in renders:
        template = render["template"]
        segment = segment_of(render, "call_segment", "prompt_plus_call")
        read = formats.get(format_of(template)).parse(segment or "", [SEARCH_TOOL])
        expected = [] if template in NO_CALL or template in UNREADABLE else [SEARCH]
        assert wire.exact(wire.named(read.calls)) == wire.exact(expected), template
        if template in NO_CALL:
            assert "Arthur" not in (segment or ""), template
        if expected:
            assert not read.errors, template


def test_parallel_calls_that_templates_write_are_read_back(renders: list[dict[str, Any]]) -> None:
    read_both = 0
    for render in renders:
        template = render["template"]
        segment = segment_of(render, "parallel_call_segment", "parallel_prompt_plus_call_tail")
        if segment is None or template in NO_CALL or template in UNREADABLE:
            continue
        read = formats.get(format_of(template)).parse(segment, [SEARCH_TOOL])
        expected = SEARCHES[:1] if template in ONE_CALL else SEARCHES
        assert wire.exact(wire.named(read.calls)) == wire.exact(expected), template
        assert not read.errors, template
        read_both += len(expected) == 2
    assert read_both > 40


# -- what holds for every format


def test_the_formats_are_the_files_in_the_folder() -> None:
    files = {file.stem for file in FOLDER.glob("*.py")} - SHARED_MODULES
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


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_reasoning_do_not_run(name: str) -> None:
    format = formats.get(name)
    calls = format.render_calls([ToolCall(*SEARCHES[1], "call_0")])
    for opening, closing in zip(format.reasoning[::2], format.reasoning[1::2], strict=True):
        for draft in (f"{opening}maybe {calls} or not", f"{opening}maybe {calls}{closing}"):
            parsed = format.parse(draft, [SEARCH_TOOL])
            assert parsed.attempts == ()
            assert "maybe" in parsed.reasoning
        (call,) = format.parse(f"{opening}maybe {calls}{closing}\n{calls}", [SEARCH_TOOL]).calls
        assert call.name == "search"


@pytest.mark.parametrize("name", NAMES)
def test_no_more_calls_are_read_than_the_limit(name: str) -> None:
    format = formats.get(name)
    many = format.render_calls([ToolCall(*SEARCHES[1], f"call_{number}") for number in range(200)])
    one = format.render_calls([ToolCall(*SEARCHES[1], "call_0")])
    for reply in (many, one * 200, one[: len(one) // 2] * 2000):
        assert len(format.parse(reply, [SEARCH_TOOL]).attempts) <= 65
    assert len(format.parse(many, [SEARCH_TOOL]).calls) in (1, 64)


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
def test_the_tools_are_explained_with_names_and_schema(name: str) -> None:
    text = formats.get(name).render_tools([SEARCH_TOOL])
    assert "search" in text
    assert "query" in text


@pytest.mark.parametrize("name", NAMES)
def test_results_cannot_forge_a_call(name: str) -> None:
    format = formats.get(name)
    call = format.render_calls([ToolCall(*SEARCHES[1], "call_0")])
    for marker in format.markers:
        assert marker in call
        assert marker not in format.neutralise(call)
