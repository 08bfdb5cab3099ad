"""What the doctor says of a model's chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import formats
from agent_r1_env.cli import main
from agent_r1_env.errors import EngineError
from agent_r1_env.formats.format import Format
from agent_r1_env.layout import Mode
from agent_r1_env.model_check import ModelReport, Remark, check, load_tokenizer, render
from agent_r1_env.testing import ByteTokenizer

TOOLS = "{% if tools %}{{ tools | tojson }} write <tool_call>{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
BODY = "<|im_start|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|im_end|>\n"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
GOOD = TOOLS + "{% for m in messages %}" + BODY + "{% endfor %}" + ASKS


# Prints a result only behind a call that was given as data.
DATA = GOOD.replace(
    BODY,
    "{% if m.role != 'tool' or loop.previtem.tool_calls or loop.previtem.role == 'tool' %}"
    + BODY
    + "{% endif %}",
)
MISTRAL = DATA.replace("write <tool_call>", "").replace(
    "<tool_call>{{ c.function | tojson }}</tool_call>",
    "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}",
)


def refusing(condition: str, template: str = GOOD) -> ByteTokenizer:
    """A tokenizer whose template raises on messages ``m`` for which the condition holds."""
    return ByteTokenizer(
        "{% for m in messages if " + condition + " %}{{ raise_exception('not so') }}{% endfor %}" + template
    )


def remark(report: ModelReport, topic: str) -> Remark:
    (found,) = [each for each in report.remarks if each.topic == topic]
    return found


def test_a_template_that_does_all_well_needs_no_remark() -> None:
    report = check(ByteTokenizer(GOOD), model="m")
    assert report.remarks == ()
    assert report.ready
    assert (report.format, report.mode) == ("hermes", "verbatim")
    assert report.append_only == {"call": True, "answer": True, "reasoning": True}
    assert report.grows == {"call": "", "answer": "", "reasoning": ""}
    assert report.stop_tokens == {256: "<|endoftext|>", 258: "<|im_end|>"}


@pytest.mark.parametrize(
    ("tokenizer", "topic", "found", "do"),
    [
        pytest.param(ByteTokenizer(), "tools", "dropped", "'flattened' avoids it", id="tools-dropped"),
        pytest.param(ByteTokenizer(), "calls", "dropped", "hide its own calls", id="calls-dropped"),
        pytest.param(
            ByteTokenizer(GOOD.replace("in messages", "in messages if m.role != 'tool'")),
            "results",
            "dropped",
            "'flattened' avoids it",
            id="results-dropped",
        ),
        pytest.param(refusing("m.role == 'tool'"), "results", "not so", "into user turns", id="no-tool-role"),
        pytest.param(refusing("m.role == 'system'"), "system role", "not so", "on top of", id="no-system"),
        pytest.param(
            refusing("m.tool_calls and m.tool_calls | length > 1"),
            "parallel calls",
            "raises: TemplateFault",
            "prints replies whole",
            id="one-call",
        ),
        pytest.param(
            refusing("m.tool_calls and m.tool_calls | length > 1", DATA),
            "parallel calls",
            "not so",
            "turn of its own",
            id="one-call-as-data",
        ),
        pytest.param(
            refusing("m.tool_calls and m.tool_calls[0].id | length != 9", MISTRAL),
            "other ids",
            "not so",
            "nine letters and digits",
            id="nine",
        ),
        pytest.param(refusing("m.content is none"), "content None", "not so", "empty text", id="none"),
        pytest.param(
            ByteTokenizer(GOOD.replace("m.content }}", "m.content if not m.tool_calls }}")),
            "text beside a call",
            "dropped",
            "prints replies whole",
            id="text",
        ),
        pytest.param(
            ByteTokenizer(
                GOOD.replace("m.content }}", "m.content if loop.last else m.content.split('</think>')[-1] }}")
            ),
            "earlier reasoning",
            "dropped",
            "rows of their own",
            id="reasoning",
        ),
        pytest.param(
            ByteTokenizer(GOOD.replace("<|im_end|>\n", "<|im_end|>{{ messages | length }}")),
            "append-only",
            "(call, answer, reasoning)",
            "training stays exact",
            id="prefix",
        ),
    ],
)
def test_what_a_template_drops_or_refuses_is_told_with_what_to_do(
    tokenizer: Any, topic: str, found: str, do: str
) -> None:
    report = check(tokenizer)
    told = remark(report, topic)
    assert found in told.found
    assert do in told.do
    assert report.ready, "a mode was found that avoids it"
    assert all(each.status == "note" for each in report.remarks)


def test_a_template_that_trims_grows_by_ids_though_its_text_is_no_prefix() -> None:
    report = check(ByteTokenizer(GOOD.replace("<|im_end|>", "\n<|im_end|>")), formats.get("hermes"))
    assert set(report.grows.values()) == {""}


def test_a_template_that_drops_reasoning_cannot_grow_behind_it() -> None:
    dropping = GOOD.replace("m.content }}", "m.content if loop.last else m.content.split('</think>')[-1] }}")
    report = check(ByteTokenizer(dropping))
    assert report.grows == {
        "call": "",
        "answer": "",
        "reasoning": "the reply reads otherwise than it was sampled",
    }
    assert "(the reply reads otherwise than it was sampled)" in remark(report, "representation").found
    assert "by ids:      call yes, answer yes, reasoning no" in render(report)


def test_a_prompt_that_opens_the_reasoning_is_append_only_with_it() -> None:
    report = check(ByteTokenizer(GOOD.replace("assistant\n", "assistant\n<think>\n")))
    assert report.append_only == {"call": True, "answer": True, "reasoning": True}


def test_marks_that_are_special_tokens_are_named() -> None:
    told = GOOD.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "")
    report = check(ByteTokenizer(told, ["[TOOL_CALLS]"]), formats.get("mistral"))
    assert report.vanishing == ("[TOOL_CALLS]",)
    assert "skip_special_tokens=False" in remark(report, "special tokens").do
    whole = check(ByteTokenizer(told, ["[TOOL_CALLS]", "[ARGS]", "</s>"]), formats.get("mistral"))
    assert whole.vanishing == ("[TOOL_CALLS]", "[ARGS]"), "the end of a turn may vanish"
    assert check(ByteTokenizer(told), formats.get("mistral")).vanishing == ()


def test_a_format_that_the_template_does_not_speak_is_a_problem() -> None:
    report = check(ByteTokenizer(GOOD), formats.get("mistral"))
    told = remark(report, "format")
    assert (told.status, report.ready) == ("wrong", False)
    assert "speaks 'hermes', not 'mistral'" in told.found
    assert report.mode == "flattened"
    assert {each.topic for each in report.remarks} >= {f"mode {Mode.VERBATIM}", f"mode {Mode.STRUCTURED}"}


def test_another_version_of_the_format_is_a_note() -> None:
    v11 = "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}"
    told = GOOD.replace("<tool_call>{{ c.function | tojson }}</tool_call>", v11)
    report = check(ByteTokenizer(told), formats.get("mistral"))
    assert "version 'v11' of 'mistral', not 'v13'" in remark(report, "format").found
    assert report.ready


def test_a_template_that_loses_something_in_every_mode_is_a_problem() -> None:
    report = check(refusing("m.role == 'assistant'"))
    assert (report.ready, report.mode) == (False, "")
    assert "loses a part of a conversation" in remark(report, "mode").found


def test_without_a_chat_template_plain_text_is_used() -> None:
    report = check(ByteTokenizer(None))
    assert (report.ready, report.mode) == (True, "plain text")
    assert "no chat template" in remark(report, "format").found


def test_a_tokenizer_that_nothing_ends_a_reply_of_is_a_problem() -> None:
    class Endless(Format):
        name = "endless"
        parse = formats.get("hermes").parse
        render_calls = formats.get("hermes").render_calls
        render_tools = formats.get("hermes").render_tools
        render_results = formats.get("hermes").render_results

    tokenizer = ByteTokenizer(GOOD.replace("<|im_end|>", ""))
    tokenizer.eos_token_id = None  # type: ignore[assignment]
    assert remark(check(tokenizer, Endless()), "stops").status == "wrong"


def test_the_report_for_a_person_holds_all_of_it() -> None:
    text = render(check(ByteTokenizer(), model="some/model"))
    for part in (
        "model:       some/model (ByteTokenizer)",
        "format:      hermes",
        "mode:        flattened: the format writes tools",
        "append-only: call yes, answer yes, reasoning yes",
        "stops:       '<|endoftext|>' (256), '<|im_end|>' (258)",
        "note: tools: dropped in silence\n    the mode 'flattened' avoids it",
    ):
        assert part in text
    assert text.endswith("\nready")
    assert render(check(ByteTokenizer(GOOD), formats.get("mistral"))).endswith("\nnot ready")


# -- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from agent_r1_env.testing import tiny_tokenizer

    path = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = GOOD
    tokenizer.save_pretrained(path)
    return path


def test_the_command_prints_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", str(folder)]) == 0
    assert "mode:        verbatim" in capsys.readouterr().out
    assert main(["doctor", "--model", str(folder), "--format", "mistral"]) == 1
    assert "problem: format: the chat template speaks 'hermes'" in capsys.readouterr().out


def test_the_command_prints_json_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ready"], report["format"], report["mode"]) == (True, "hermes", "verbatim")
    assert report["detected"]["certain"] is True
    assert report["detected"]["evidence"]


def test_mistakes_of_the_command_end_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--model", str(folder / "nothing")], "there is no such folder"),
        (["--model", str(folder), "--format", "hermis"], "did you mean 'hermes'?"),
        (["--format", "hermes"], "--format goes with --model"),
    ):
        assert main(["doctor", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(EngineError, match="cannot load the tokenizer of"):
        load_tokenizer(str(tmp_path))
