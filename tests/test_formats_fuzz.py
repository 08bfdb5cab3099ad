"""Mutated replies: whatever stands in a reply, nothing raises, and no call is made up.

``AGENT_R1_FUZZ`` sets the number of replies a format (default 200,000), ``AGENT_R1_FUZZ_SEED`` other ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import wire

from agent_r1_env import ToolCall, formats

REPLIES = int(os.environ.get("AGENT_R1_FUZZ", "200000"))
SEED = os.environ.get("AGENT_R1_FUZZ_SEED", "0")

NAMES_NOT_WRITTEN = {"code_block"}
"""Formats whose calls do not name their tool."""

TAG = re.compile(
    r"</?[|｜a-zA-Z_][^<>\s]{0,40}>|\[/?[A-Z_]{3,}\]|```[a-z]*|functools|[A-Z][a-z]+(?: Input)?:|>>>"
)
NOISE = (
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        ",",
        ":",
        "=",
        "<",
        ">",
        "|",
        "\n",
        "\r\n",
        " ",
        "\t",
        "```",
    ),
    *(
        '""',
        "{}",
        "[]",
        "null",
        "None",
        "true",
        "0",
        "-",
        "1e999",
        "NaN",
        "'''",
        '"""',
        "\\u",
        "\\ud800",
        "\\x",
    ),
    *(
        "\x00",
        "\x1b",
        "\x7f",
        "\u2028",
        "\u200b",
        "\ufeff",
        "\ud800",
        "\udfff",
        "🙂",
        "é",
        "｜",
        "▁",
        "İ",
        "ﬁ",
    ),
    *(
        "<think>",
        "</think>",
        "[{",
        "}]",
        '{"name": ',
        '"arguments": ',
        '"parameters": ',
        "<|",
        "|>",
        "</",
        "\n\n",
    ),
)
CALLS = (
    ToolCall("search", {"query": 'Arthur\'s "1844" <b>', "k": 3}, "call_0"),
    ToolCall(
        "get-weather_2",
        {"city": "Zürich", "when": None, "hours": [1, 2.5], "deep": {"a": {"b": "c"}}},
        "call_1",
    ),
    ToolCall("run", {"code": "print('x')\nif a < b:\n    c = \"\\n\"", "keep": True}, "call_2"),
    ToolCall("now", {}, "call_3"),
)
TOOLS = [
    wire.schema("search", {"properties": {"query": {"type": "string"}, "k": {"type": "integer"}}}),
    wire.schema("get-weather_2", {"properties": {"city": {"type": "string"}, "hours": {"type": "array"}}}),
    wire.schema("run", {"properties": {"code": {"type": "string"}, "keep": {"type": ["boolean", "null"]}}}),
    wire.schema("now"),
]

Seed = tuple[str, Any]


def seeds_of(name: str, rows: list[dict[str, Any]]) -> list[Seed]:
    """Replies to begin with: published ones of the format's families, and calls in all its versions."""
    published = [(row["raw"], row.get("tools") or ()) for row in rows if wire.FAMILIES[row["family"]] == name]
    written = [
        formats.get(spec).render_calls(calls)
        for spec in wire.SPECS.values()
        if formats.get(spec).name == name
        for calls in (CALLS[:1], CALLS[1:2], CALLS[2:3], CALLS[3:], CALLS)
    ]
    return published + [
        seed
        for text in written
        for seed in ((text, TOOLS), (text, ()), (f"<think>hm</think>I look.\n{text}\nDone.", TOOLS))
    ]


def mutated(random: Random, text: str, pieces: tuple[str, ...], others: list[Seed]) -> str:
    """The text after one to four small changes."""
    number = random.random
    for _ in range(1 + int(number() * 4)):
        kind, at = int(number() * 9), int(number() * (len(text) + 1))
        if kind < 3:
            text = text[:at] + pieces[int(number() * len(pieces))] + text[at:]
        elif kind == 3:
            text = text[:at] + text[at + 1 + int(number() * 8) :]
        elif kind == 4:
            until = at + 1 + int(number() * 30)
            text = text[:until] + text[at:]
        elif kind == 5:
            until = at + 1 + int(number() * 12)
            text = text[:at] + text[until : until + 8] + text[at:until] + text[until + 8 :]
        elif kind == 6:
            text = text[:at] if number() < 0.5 else text[at:]
        elif kind == 7:
            other = others[int(number() * len(others))][0]
            text = text[:at] + other[int(number() * len(other)) :]
        else:
            text = text[:at] + chr(int(number() * 0x300)) + text[at + 1 :]
    return text


# -- what a call may say


ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
WORDS = re.compile(r"[a-zA-Z0-9_]{2,}")


def unescaped(text: str) -> str:
    """The text with its escapes resolved, as JSON and Python do."""

    def plain(match: re.Match[str]) -> str:
        four, two, letter = match.groups()
        return chr(int(four or two, 16)) if four or two else LETTERS.get(letter, letter)

    return ESCAPE.sub(plain, text)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from strings(each)


def made_up(call: ToolCall, text: str, *, named: bool) -> str | None:
    """A text in the call that the reply does not hold."""
    plain = None
    for said in (call.name, *strings(call.arguments)) if named else strings(call.arguments):
        if said in text:
            continue
        if "\\" not in text:
            return said
        plain = plain or unescaped(text)
        if said in plain:
            continue
        # Where escapes begin depends on what stands before them, so here only the words are looked for.
        if any(word not in text and word not in plain for word in WORDS.findall(said)):
            return said
    return None


@pytest.mark.slow
@pytest.mark.parametrize("spec", [*formats.names(), "code_block fences"])
def test_no_mutated_reply_raises_or_holds_a_call_that_is_made_up(shared_data: Path, spec: str) -> None:
    format = formats.get(wire.SPECS[spec])
    seeds = seeds_of(format.name, wire.rows_of(shared_data))
    tags = {tag for text, _ in seeds for tag in TAG.findall(text)} | {*format.markers, *format.end_of_turn}
    pieces = (*sorted(tags), *sorted(tags), *NOISE)
    random = Random(f"{spec} {SEED}")
    calls = errors = 0
    for number in range(REPLIES):
        text, tools = seeds[int(random.random() * len(seeds))]
        reply = mutated(random, text, pieces, seeds)
        parsed = format.parse(reply, tools, repair=number % 2 == 1)
        for attempt in parsed.attempts:
            if isinstance(attempt, ToolCall):
                calls += 1
                invented = made_up(attempt, reply, named=format.name not in NAMES_NOT_WRITTEN)
                assert invented is None, f"{invented!r} is not in {reply!r}"
            else:
                errors += 1
                assert reply[attempt.start : attempt.end] == attempt.raw, repr(reply)
        assert len(parsed.attempts) <= 65, repr(reply)
    assert calls > REPLIES / 10
    assert errors > REPLIES / 100
