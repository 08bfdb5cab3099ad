"""How long every wire format takes for the worst replies of 1 MB, and how the time grows up to 10 MB.

The replies are made to be hard for the format: its own tags repeated, its own call cut off at many places and
followed by a flood of quotes, brackets, digits, white space or almost-closing tags, huge valid calls, huge
prose. Times are those of the processor. With ``--all`` every reply is listed, not only the slowest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from agent_r1_env import ToolCall, formats
from agent_r1_env.formats import Format

MEGABYTE = 1_000_000
TAG = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{3,}\]|```[a-z]*|[A-Z][a-z]+(?: Input)?:|>>>|functools")
CALL = ToolCall("search", {"query": "a<b", "k": 3, "deep": {"a": [1, None]}}, "call_0")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "k": {"type": "integer"},
                    "deep": {"type": "object"},
                },
            },
        },
    }
]
FLOODS = {
    "spaces": " ",
    "line breaks": "\n",
    "double quotes": '"',
    "single quotes": "'",
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "brackets": "[",
    "braces": "{",
    "parentheses": "(",
    "opening keys": '{"a":',
    "closing brackets": "]}",
    "angle brackets": "<",
    "half-open tags": "</",
    "digits": "1",
    "commas": ",",
    "letters": "a",
    "words": "word ",
    "lines": '- a line: of "text" (1), [2] <b>\n',
    "list": "[1, 2], ",
    "objects": '{"a": 1} ',
    "objects with names": '{"name": "search"}\n',
    "Python calls": "search(k=1)\n",
    "Python lists": "[search(k=1)] ",
    "names and objects": 'search\n{"k": 1}\n',
    "wide characters": "<🙂",
    "keywords": "a=1, ",
    "open reasoning": "<think>",
    "closed reasoning": "</think>",
    "halves of characters": "\\ud83d",
}


def replies(format: Format, size: int) -> Iterator[tuple[str, str]]:
    """Names and texts of hard replies of about ``size`` characters."""
    call = format.render_call(CALL.name, CALL.arguments)
    tags = sorted({*TAG.findall(call), *format.markers, *format.end_of_turn, *format.stop})
    evenly = range(0, len(call), max(1, len(call) // 12))
    cuts = sorted({*(match.end() for match in TAG.finditer(call)), *evenly})
    floods = FLOODS | {f"almost {tag}": tag[:-1] for tag in tags if len(tag) > 1}
    for flood, piece in floods.items():
        filled = piece * (size // len(piece))
        for cut in cuts:
            yield f"call[:{cut}] + {flood}", call[:cut] + filled
        yield f"{flood} + call", filled + call
    for cut in cuts[1:]:
        for between in ("", "\n", "</think>", '"', " "):
            piece = call[:cut] + between
            yield f"call[:{cut}] + {between!r} repeated", piece * (size // len(piece))
    for tag in tags:
        yield f"{tag!r} repeated", tag * (size // len(tag))
        yield f"{tag!r} and spaces repeated", f"{tag} \n" * (size // (len(tag) + 2))
    for name, value in huge(size, tags):
        yield name, format.render_call("search", {"query": value})
    calls = [CALL] * (size // len(call))
    yield "many calls", format.render_calls(calls)


def huge(size: int, tags: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Names and values of arguments that fill ``size`` characters."""
    yield "huge text", "word " * (size // 5)
    yield "huge text of lines", 'a "line"\n' * (size // 9)
    yield "huge text of backslashes", "\\" * (size // 2)
    yield "huge text of line breaks", "\n" * (size // 2)
    yield "huge text of accents", "é" * size
    yield "huge text of tags", "".join(tags) * (size // max(1, len("".join(tags))))
    yield "huge list", list(range(size // 8))
    yield "huge list of texts", ["a b"] * (size // 7)
    yield "huge object", {f"key{number}": number for number in range(size // 18)}


def seconds(format: Format, text: str, repair: bool, times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        format.parse(text, TOOLS, repair=repair)
        best = min(best, time.process_time() - began)
    return best


def written_by(name: str) -> list[Format]:
    """The format, once for each form that it writes."""
    usual = formats.get(name)
    others = [version for version in usual.versions if version != usual.version]
    made = [usual, *(formats.get({"name": name, "version": version}) for version in others)]
    if name == "code_block":
        made.append(formats.get({"name": name, "style": "fences"}))
    return made


def measure(format: Format, options: argparse.Namespace) -> list[tuple[float, float, str]]:
    """The slowest replies of a format: seconds for 1 MB, for 10 MB, and what they are."""
    found = [
        (seconds(format, text, repair), label, repair)
        for label, text in replies(format, MEGABYTE)
        for repair in (False, True)
    ]
    found.sort(key=lambda each: -each[0])
    slow = {(label, repair) for _, label, repair in (found if options.all else found[: options.worst])}
    small = {
        (label, repair): seconds(format, text, repair, 3)
        for label, text in replies(format, MEGABYTE)
        for repair in (False, True)
        if (label, repair) in slow
    }
    rows = []
    for label, text in replies(format, 10 * MEGABYTE):
        for repair in (False, True):
            if (label, repair) in slow:
                large = seconds(format, text, repair)
                rows.append((small[label, repair], large, f"{label}{', repair' if repair else ''}"))
    return sorted(rows, reverse=True)


def decoder_alone() -> tuple[float, float, float, str]:
    """What Python's own decoder takes for one of the hard texts, a list of lists without an end."""
    times = []
    for size in (MEGABYTE, 10 * MEGABYTE):
        text = "[" + FLOODS["list"] * (size // len(FLOODS["list"]))
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            with contextlib.suppress(ValueError):
                json.loads(text)
            best = min(best, time.process_time() - began)
        times.append(best)
    return times[0], times[1], times[1] / times[0], "list"


def row_of(small: float, large: float, growth: float, label: str) -> str:
    words = label.replace("|", "\\|").replace("\n", "\\n")
    return f"{1000 * small:.1f} | {1000 * large:.0f} | {growth:.1f} | {words} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="NAME", help="default: all formats")
    parser.add_argument("--worst", type=int, default=12, metavar="N", help="how many are measured at 10 MB")
    parser.add_argument("--all", action="store_true", help="list every reply")
    options = parser.parse_args()
    print("| format | worst 1 MB, ms | the same at 10 MB, ms | greatest growth | the worst reply |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| (`json.loads` alone) | {row_of(*decoder_alone())}")
    for name in options.formats or formats.names():
        rows = sorted((row for each in written_by(name) for row in measure(each, options)), reverse=True)
        growth = max(large / max(small, 0.001) for small, large, _ in rows)
        small, large, label = rows[0]
        print(f"| {name} | {row_of(small, large, growth, label)}", flush=True)
        if options.all:
            for small, large, label in rows:
                print(f"    {1000 * small:8.1f} {1000 * large:9.1f}  {label}")


if __name__ == "__main__":
    main()
