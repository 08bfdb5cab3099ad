"""Our parsers against vLLM's on recorded model outputs, and why they disagree where they do.

    python benchmarks/formats_against_vllm.py tool_calls.jsonl

Each line of the file holds ``id``, ``family``, ``raw``, ``vllm_parser`` (names with ``|`` between them, or
null) and maybe ``tools``. Both sides read the same text. Exits with 1 if a disagreement stands without an
explanation in ``EXPLAINED``, or an explanation without a disagreement.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_r1_env import formats
from agent_r1_env.formats.reading import without_end_of_turn

FORMATS = {
    "deepseek_v3": "deepseek",
    "deepseek_v31": "deepseek",
    "firefunction_v2": "phi4_mini",
    "functionary_v3.1": "functionary",
    "functionary_v3.2": "functionary",
    "functiongemma": "gemma",
    "gemma4": "gemma",
    "glm4_moe": "glm4",
    "gpt_oss": "harmony",
    "llama4_pythonic": "pythonic",
    "mistral_v3": "mistral",
    "mistral_v11": "mistral",
    "qwen2.5_coder_real": "hermes",
}
"""The format that reads a family, where the two have different names."""

REASONING = {"deepseek_v3": "deepseek_r1", "deepseek_v31": "deepseek_r1", "glm45": "glm45", "glm47": "glm47"}
"""The reasoning parser that vLLM users run before a tool parser; used on texts that end their reasoning."""

NEWER_MISTRAL = "mistral_v11"
"""vLLM's parser for Mistral asks the tokenizer which shape the model writes."""

SPECIAL = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("[TOOL_CALLS]", "<|python_tag|>", "<|python_start|>", "<|python_end|>", "<|tool_call>", "<tool_call|>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", '<|"|>', "<start_function_call>"),
    *("<end_function_call>", "<escape>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|channel>", "<channel|>"),
    *("<|tool_response>", "<tool_response|>", "<turn|>"),
    *(f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")),
)
"""Special tokens that vLLM's parsers look for in the vocabulary."""

_PROSE = "we keep the prose beside a call as content, vLLM drops what stands behind it or all of it"
_AS_WRITTEN = "we keep an attempt that cannot be read as written, vLLM drops all or a part of it"
_ALL_OR_NOTHING = "one bad block costs vLLM the good calls beside it"
_TYPED = "true, false and numbers have types of their own, which vLLM drops where no tool is given"
EXPLAINED: dict[str, str] = {
    "deepseek_v3-009": _AS_WRITTEN,
    "deepseek_v3-010": _PROSE,
    "deepseek_v3-013": "vLLM asks for a line break before the closing fence, which R1 sometimes leaves out",
    "deepseek_v31-002": _PROSE,
    "gemma4-002": _TYPED,
    "gemma4-003": _TYPED,
    "hermes-021": _ALL_OR_NOTHING,
    "hermes-023": "a call that says nothing of arguments has none; vLLM asks for the key",
    "kimi_k2-006": "arguments that are no JSON are a mistake that the model is told; vLLM hands them on",
    "kimi_k2-007": _AS_WRITTEN,
    "llama3_json-001": _PROSE,
    "llama3_json-015": _PROSE,
    "llama3_json-019": _PROSE,
    "mistral_v11-010": _PROSE,
    "mistral_v11-011": _PROSE,
    "mistral_v11-013": "vLLM does not know [CALL_ID] and takes the id for a part of the name",
    "mistral_v3-007": _PROSE,
    "mistral_v3-009": _PROSE,
    "mistral_v3-013": _PROSE,
    "mistral_v3-015": _AS_WRITTEN,
    "mistral_v3-017": _AS_WRITTEN,
    "mistral_v3-018": _AS_WRITTEN,
    "mistral_v3-019": _AS_WRITTEN,
    "mistral_v3-021": _AS_WRITTEN,
    "phi4_mini-006": _PROSE,
    "phi4_mini-009": "arguments must be an object; vLLM hands a text on as the arguments",
    "phi4_mini-013": _AS_WRITTEN,
    "qwen2.5_coder_real-014": _ALL_OR_NOTHING,
    "qwen3_coder-011": "vLLM takes all up to the next > for the name of the function",
    "qwen3_coder-023": "the schema asks for an object and a list, so Python's notation leaves no doubt",
}
"""Why a row is read differently, by its id."""

VERDICTS = ("same", "other text", "other calls")
"""How two readings compare: the text beside the calls matters less than the calls."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a parser makes of a reply: its calls in order, as text, and the text beside them, stripped."""

    calls: tuple[str, ...]
    content: str

    @classmethod
    def of(cls, calls: Iterable[tuple[str, Any]], content: str | None) -> Reading:
        """A reading; its calls tell 1 from 1.0 and from true, and not one order of keys from another."""
        written = (f"{name}({json.dumps(args, ensure_ascii=False, sort_keys=True)})" for name, args in calls)
        return cls(tuple(written), (content or "").strip())

    def __str__(self) -> str:
        return f"calls: {', '.join(self.calls) or 'none'}; content: {self.content!r}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row read by both sides."""

    id: str
    parser: str
    format: str
    ours: Reading
    theirs: Reading

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        if self.ours.calls != self.theirs.calls:
            return "other calls"
        return "same" if self.ours.content == self.theirs.content else "other text"


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Read every row for which vLLM has a parser with both."""
    found = []
    for row in rows:
        ours = read_ours(row)
        for parser in (row["vllm_parser"] or "").split("|"):
            if parser:
                found.append(Comparison(row["id"], parser, format_of(row), ours, read_theirs(row, parser)))
    return found


def format_of(row: Row) -> str:
    """The name of our format for a row."""
    family: str = row["family"]
    return FORMATS.get(family, family)


def read_ours(row: Row) -> Reading:
    """What our parser makes of a row, without repairs."""
    parsed = formats.get(format_of(row)).parse(row["raw"], row.get("tools", ()))
    return Reading.of(((call.name, call.arguments) for call in parsed.calls), parsed.content)


def read_theirs(row: Row, parser: str) -> Reading:
    """What vLLM's parser makes of a row; vLLM never sees the special token that ended a turn."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request = ChatCompletionRequest(messages=[], tools=row.get("tools"))
    if parser == "openai":
        content, calls = _read_harmony(row["raw"], request)
    else:
        text = without_end_of_turn(row["raw"], formats.get(format_of(row)).end_of_turn)
        content, calls = _read_text(text, parser, request, _tokenizer(row["family"] == NEWER_MISTRAL))
    return Reading.of(((name, _loaded(arguments)) for name, arguments in calls), content)


def _read_text(text: str, parser: str, request: Any, tokenizer: Any) -> tuple[str | None, list[Any]]:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    if "</think>" in text and parser in REASONING:
        reasoner = ReasoningParserManager.get_reasoning_parser(REASONING[parser])(tokenizer)
        text = reasoner.extract_reasoning(text, request)[1] or ""
    found = ToolParserManager.get_tool_parser(parser)(tokenizer, request.tools)
    read = found.extract_tool_calls(text, request)
    return read.content, [(call.function.name, call.function.arguments) for call in read.tool_calls]


def _read_harmony(text: str, request: Any) -> tuple[str | None, list[Any]]:
    """vLLM reads the format of gpt-oss from token ids, which OpenAI's own package makes of the text."""
    from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
    from vllm.parser.parser_manager import ParserManager

    encoding = get_encoding()
    tokenizer = SimpleNamespace(get_vocab=dict, decode=encoding.decode)
    made = ParserManager.get_parser("openai", "openai_gptoss", enable_auto_tools=True, is_harmony=True)
    ids = encoding.encode(text, allowed_special="all")
    _, content, calls = made(tokenizer, request.tools).parse(text, request, True, ids)
    return content, [(call.name, call.arguments) for call in calls or ()]


def _loaded(arguments: str) -> Any:
    """The arguments as data, or as they are where they are no JSON."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


@cache
def _tokenizer(newer_mistral: bool) -> Any:
    """A tokenizer of single bytes that knows every special token: all that the parsers ask of one."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    markers = [*SPECIAL, "[ARGS]"] if newer_mistral else SPECIAL
    made.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    return PreTrainedTokenizerFast(tokenizer_object=made)


def main(arguments: Sequence[str]) -> int:
    """Print the table and what differs; 1 if ``EXPLAINED`` does not cover exactly that."""
    if len(arguments) != 1:
        raise SystemExit("usage: python benchmarks/formats_against_vllm.py tool_calls.jsonl")
    rows = [json.loads(line) for line in Path(arguments[0]).read_text(encoding="utf-8").splitlines()]
    found = compare(rows)
    _print_table(rows, found)
    apart = [each for each in found if each.verdict != "same"]
    for each in apart:
        print(f"\n{each.id}, {each.parser}: {each.verdict}, {EXPLAINED.get(each.id, 'NOT EXPLAINED')}")
        print(f"  ours  {each.ours}\n  vLLM  {each.theirs}")
    stale = sorted(set(EXPLAINED) - {each.id for each in apart})
    for id in stale:
        print(f"\n{id} is explained, but both sides agree on it or it was not read")
    return int(bool(stale) or any(each.id not in EXPLAINED for each in apart))


def _print_table(rows: Sequence[Row], found: Sequence[Comparison]) -> None:
    print("| format | readings | " + " | ".join(VERDICTS) + " |\n" + "| --- " * 5 + "|")
    for name in [*sorted({each.format for each in found}), "all"]:
        verdicts = Counter(each.verdict for each in found if name in (each.format, "all"))
        columns = [verdicts.total(), *(verdicts[verdict] for verdict in VERDICTS)]
        print(f"| {name} | " + " | ".join(map(str, columns)) + " |")
    alone = Counter(format_of(row) for row in rows if not row["vllm_parser"])
    print(
        "\nRows for which vLLM has no parser: "
        + ", ".join(f"{alone[name]} of {name}" for name in sorted(alone))
    )


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")  # it logs an exception for most bad replies
    sys.exit(main(sys.argv[1:]))
