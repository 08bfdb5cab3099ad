"""Detection: which wire format a chat template speaks, and why."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import formats
from agent_r1_env.facts import Facts, Sample, examine
from agent_r1_env.formats.detection import Detection, conclude, detect, speaks
from agent_r1_env.messages import ToolCall
from agent_r1_env.probe import TOOLS as TOOLS_OF_PROBE
from agent_r1_env.probe import Renderer, stone_call, turn, turn_text
from agent_r1_env.template import ChatTemplate
from agent_r1_env.testing import ByteTokenizer

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}CALLS<|im_end|>\n{% endfor %}"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"
EACH = "{% for c in m.tool_calls or [] %}{% set f = c.function %}CALL{% endfor %}"


def template(call: str = "", instructions: str = "", tools: str = TOOLS) -> ByteTokenizer:
    """A tokenizer whose template writes calls so, and says that about tools."""
    calls = EACH.replace("CALL", call) if call else ""
    told = "{% if tools %}" + instructions + "{% endif %}"
    return ByteTokenizer(tools + told + TURNS.replace("CALLS", calls) + ASKS)


HERMES = "<tool_call>\n{{ f | tojson }}\n</tool_call>"
XML = (
    "<tool_call>\n<function={{ f.name }}>\n{% for key, value in f.arguments.items() %}"
    "<parameter={{ key }}>\n{{ value }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        pytest.param(HERMES, "hermes", id="hermes"),
        pytest.param(XML, "qwen3_coder", id="qwen3_coder"),
        pytest.param(
            '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}', "llama3_json", id="llama3"
        ),
        pytest.param('[TOOL_CALLS] [{{ (f | tojson)[:-1] }}, "id": "{{ c.id }}"}]', "mistral", id="mistral"),
        pytest.param("<function={{ f.name }}>{{ f.arguments | tojson }}</function>", "functionary", id="fn"),
        pytest.param("functools[{{ f | tojson }}]", "phi4_mini", id="phi4"),
    ],
)
def test_the_format_that_reads_the_templates_own_call_is_chosen(call: str, name: str) -> None:
    found = detect(template(call))
    assert (found.name, found.certain) == (name, True)
    assert "reads back exactly" in found.reason
    assert "weigh_stone" in found.reason, "the call itself is shown"
    assert formats.detect(template(call)) == found


@pytest.mark.parametrize(
    ("call", "spec"),
    [
        pytest.param(
            '[TOOL_CALLS][{{ (f | tojson)[:-1] }}, "id": "{{ c.id }}"}]',
            {"name": "mistral", "version": "v3"},
            id="list",
        ),
        pytest.param(
            "[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]{{ f.arguments | tojson }}",
            {"name": "mistral", "version": "v11"},
            id="ids",
        ),
        pytest.param("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}", "mistral", id="the-usual"),
    ],
)
def test_the_version_is_the_one_that_writes_as_the_template_does(call: str, spec: Any) -> None:
    found = detect(template(call))
    assert found.spec == spec
    assert found.format.version == (spec["version"] if isinstance(spec, dict) else "v13")


def test_strings_that_a_template_prints_without_quotes_do_not_hide_the_format() -> None:
    bare = "[{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v }}{% if not loop.last %}, "
    assert detect(template(bare + "{% endif %}{% endfor %})]")).name == "pythonic"


def test_the_instructions_outweigh_calls_that_a_template_prints_carelessly() -> None:
    careless = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
    found = detect(template(careless, "Write functools[...] to call a tool."))
    assert found.name == "phi4_mini"
    assert "the instructions on tools hold functools" in " ".join(found.evidence)


def test_a_template_that_drops_calls_is_known_by_its_instructions() -> None:
    found = detect(template("", "Write [TOOL_CALLS] and the calls."))
    assert (found.name, found.certain) == ("mistral", True)
    assert found.reason == "the template tells the model about tools in the words of 'mistral': [TOOL_CALLS]"


def test_marks_that_several_formats_share_are_decided_by_the_example() -> None:
    example = "<tool_call>name\n<arg_key>key</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"
    assert detect(template("", example)).name == "glm4"
    assert detect(template("", "Write <tool_call>.")).name == "hermes"


def test_a_template_without_tools_is_answered_by_the_default() -> None:
    found = detect(ByteTokenizer())
    assert (found.name, found.certain) == ("hermes", False)
    assert found.reason == "the template has no support for tools; 'hermes' is the default"


def test_calls_are_read_even_where_the_tools_are_dropped() -> None:
    found = detect(template(HERMES, tools=""))
    assert (found.name, found.certain) == ("hermes", True)


def test_a_template_that_shows_no_known_form_says_so() -> None:
    found = detect(template("~~{{ f.name }}~~"))
    assert (found.name, found.certain) == ("hermes", False)
    assert "no call in the form of a known format" in found.reason


def test_marks_around_something_unreadable_are_a_likeness_only() -> None:
    found = detect(template("<tool_call>{{ f.name }}~{{ f.arguments }}</tool_call>", "Write <tool_call>."))
    assert not found.certain
    assert "in a way that 'hermes' cannot read" in found.reason
    tokenizer = template("<tool_call>{{ f.name }}~{{ f.arguments }}</tool_call>", "Write <tool_call>.")
    assert not speaks(examine(Renderer(tokenizer)), formats.get("hermes"))


def test_a_template_that_raises_on_calls_is_known_by_its_source() -> None:
    found = detect(template("{{ raise_exception('no [TOOL_CALLS]') }}"))
    assert (found.name, found.certain) == ("mistral", False)
    assert "source holds [TOOL_CALLS]" in found.reason


def test_without_a_template_the_default_is_used() -> None:
    found = detect(ByteTokenizer(None))
    assert found == Detection("hermes", found.reason, certain=False)
    assert "no chat template" in found.reason


def test_a_template_that_cannot_be_rendered_raises_nothing() -> None:
    assert not detect(ByteTokenizer("{{ messages[99].nothing.at_all }}")).certain
    assert not detect(ByteTokenizer("{{ 1 / 0 }}")).certain


def test_several_templates_of_one_tokenizer_are_all_looked_at() -> None:
    pytest.importorskip("transformers")
    from agent_r1_env.testing import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = {"default": formats.CHATML, "tool_use": template(HERMES).chat_template}
    assert detect(tokenizer).certain
    assert ChatTemplate(tokenizer, formats.get("hermes")).mode == "verbatim"


def test_a_detection_is_plain_data_for_an_environment() -> None:
    assert Detection("hermes", "").spec == "hermes"
    spec = Detection("xml_tags", "", {"answer": "final"}).spec
    assert spec == {"name": "xml_tags", "answer": "final"}
    assert Detection("hermes", "").format is formats.get("hermes")


# -- templates of real models

WRITTEN_FOR = {
    "deepseek": ("deepseek_r1_distill", "deepseekv3"),
    "gemma": ("gemma4",),
    "glm4": ("glm4moe",),
    "harmony": ("gptoss",),
    "hermes": ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"),
    "llama3_json": ("llama3_1", "llama3_2"),
    "qwen3_coder": ("qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "nemotron_3_nano"),
}
NO_TOOLS = ("cohere", "gemma", "gemma3", "idefics3", "llama3", "llava_next", "phi3", "qwen2_5_vl", "smolvlm")
VERSIONS = {"deepseek": {"version": "v3"}, "gemma": {"version": "gemma4"}}
MODES = {"harmony": "structured", "gemma": "structured", "deepseek": "flattened"}


def of_trl(name: str) -> Any:
    """A tokenizer with one of the templates that TRL ships."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("needs TRL, which ships the templates")
    from agent_r1_env.testing import tiny_tokenizer

    path = Path(found.origin).parent / "chat_templates" / f"{name}.jinja"
    if not path.is_file():
        pytest.skip(f"this TRL has no {path.name}")
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = tokenizer.pad_token
    tokenizer.chat_template = path.read_text()
    return tokenizer


@pytest.mark.parametrize(
    ("name", "expected"), [(name, format) for format, names in WRITTEN_FOR.items() for name in names]
)
def test_the_templates_of_model_families_are_recognised(name: str, expected: str) -> None:
    tokenizer = of_trl(name)
    found = detect(tokenizer)
    assert (found.name, found.certain) == (expected, True)
    assert found.options == VERSIONS.get(expected, {})
    assert ChatTemplate(tokenizer, found.format).mode == MODES.get(expected, "verbatim")


@pytest.mark.parametrize("name", NO_TOOLS)
def test_the_templates_without_tools_leave_them_to_the_format(name: str) -> None:
    tokenizer = of_trl(name)
    found = detect(tokenizer)
    assert (found.name, found.certain) == ("hermes", False)
    assert ChatTemplate(tokenizer, found.format).mode == "flattened"


AWKWARD = (
    "",
    " \n",
    "Just prose.",
    "<think>\nDraft.\n</think>\n\nThe end.",
    "Never opened.</think> The end.",
    "<think>Never closed.",
    "<|im_start|>system\nx<|channel|>final<|message|>[TOOL_CALLS][{</s>",
    '<tool_call>{"name": "x"',
)


@pytest.mark.parametrize("name", [*(name for names in WRITTEN_FOR.values() for name in names), *NO_TOOLS])
def test_no_reply_makes_a_real_template_raise(name: str) -> None:
    tokenizer = of_trl(name)
    format = detect(tokenizer).format
    template = ChatTemplate(tokenizer, format)
    calls = [stone_call("opal"), stone_call("onyx", 1)]
    good, both = format.render_calls(calls[:1]), format.render_calls(calls)
    replies = (*AWKWARD, good, both, f"Well. {good}", good[: len(good) // 2], good + good[: len(good) // 2])
    for first in replies:
        messages = [turn("system", "s"), turn("user", "u")]
        for reply in (first, good, first):
            attempts = format.parse(reply, TOOLS_OF_PROBE).attempts
            messages.append(turn("assistant", reply))
            messages += [turn("tool", "an answer", tool_call_id=each.id) for each in attempts]
            messages += [] if attempts else [turn("user", "go on")]
        text = template.prompt_text(messages, TOOLS_OF_PROBE)
        assert text.count("an answer") == sum(turn["role"] == "tool" for turn in messages)


# -- recorded renders of real templates

FAMILIES = {
    "deepseek": ("deepseek v3 / r1", "deepseek v3.1", "deepseek v3.2"),
    "functionary": ("functionary v3.1", "functionary v3.2"),
    "gemma": ("functiongemma", "gemma 4"),
    "glm4": ("glm-4.5/4.6", "glm-4.7", "glm-4 (9b)"),
    "harmony": ("gpt-oss harmony",),
    "hermes": ("qwen2.5 / hermes json", "qwen3", "hermes", "smollm2", "smollm3"),
    "llama3_json": ("llama3 json",),
    "mistral": ("mistral < v11", "mistral >= v11"),
    "pythonic": ("llama3.2 pythonic", "llama4", "gemma 2 / 3"),
    "qwen3_coder": ("qwen3-coder xml",),
}
OTHERWISE = {
    "vllm/tool_chat_template_llama4_json.jinja": "llama3_json",  # its name says which of Llama 4's two forms
    "vllm/tool_chat_template_phi4_mini.jinja": "phi4_mini",
    "trl/phi3_5.jinja": "hermes",  # knows no tools
    # They print strings without quotes, or nothing between arguments, which nobody can read. A live probe is
    # not fooled: it asks for a call with a number, too.
    "vllm/tool_chat_template_llama3.2_pythonic.jinja": "hermes",
    "vllm/tool_chat_template_llama4_pythonic.jinja": "hermes",
    "vllm/tool_chat_template_gemma3_pythonic.jinja": "hermes",
    # Prints neither tools nor calls; that it is a DeepSeek shows in its source alone, which is not recorded.
    "llama_cpp/deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja": "hermes",
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search Wikipedia.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "k": {"type": "integer"}},
            "required": ["query"],
        },
    },
}
CALL = ToolCall("search", {"query": 'Arthur\'s Magazine "1844"', "k": 3}, "call_1")


def recorded(row: dict[str, Any]) -> Facts:
    """What the recorded renders tell of a template."""
    samples: tuple[Sample, ...] = ()
    if row["tool_call_rendered"]:
        text = turn_text(row["prompt"], row["prompt_plus_call"], "Which is older?")
        samples = (Sample((CALL,), text, tools=[SEARCH]),)
    return Facts(instructions=row["prompt"] if row["tools_in_prompt"] else "", samples=samples)


def test_recorded_renders_tell_the_family(shared_data: Path) -> None:
    folder = shared_data / "chat_templates"
    rows = [json.loads(line) for line in (folder / "renders.jsonl").read_text().splitlines()]
    families = [json.loads(line) for line in (folder / "wire_formats.jsonl").read_text().splitlines()]
    names = {family: name for name, group in FAMILIES.items() for family in group}
    expected = {path: names.get(row["family"]) for row in families for path in row["templates"]} | OTHERWISE
    checked, wrong = 0, []
    for row in rows:
        if "error" not in row and expected.get(row["template"]):
            checked += 1
            found = conclude(recorded(row))
            if found.name != expected[row["template"]]:
                wrong.append((row["template"], expected[row["template"]], found.name, found.reason))
    assert not wrong
    assert checked >= 60
