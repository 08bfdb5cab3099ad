"""``agent-r1 formats``: which wire formats there are, and what one of them reads in a reply."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_r1_env import formats
from agent_r1_env.datafile import json_place, read_value
from agent_r1_env.errors import DataError
from agent_r1_env.formats import Format, ParsedReply

_STDIN = "standard input"


def show(*, as_json: bool = False, write: Callable[[str], object] = print) -> int:
    """Print every format, one a line."""
    known = [(name, formats.get(name)) for name in formats.names()]
    if as_json:
        write(json.dumps([_described(name, format) for name, format in known], indent=2))
        return 0
    rows = [
        (name, format.models or "-", _reasoning(format) or "-", _ends(format) or "-")
        for name, format in known
    ]
    rows.insert(0, ("NAME", "FAMILIES", "REASONING", "A REPLY ENDS AT"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        write("  ".join(f"{cell:{width}}" for cell, width in zip(row, (*widths, 0), strict=True)))
    return 0


def parse(name: str, *, tools: str | None = None, jsonl: bool = False, repair: bool = False) -> int:
    """Read one reply from standard input, or one a line, and print what it holds.

    Raises:
        UnknownName: no such format.
        DataError: the tools, or a line, cannot be used; what stood before that line is printed.
    """
    format = formats.get(name)
    common = [] if tools is None else _tools(read_value(tools), tools)
    if not jsonl:
        reply = sys.stdin.buffer.read().decode("utf-8", "replace")
        found = _result(reply, format.parse(reply, common, repair=repair))
        print(json.dumps(found, indent=2 if sys.stdout.isatty() else None))
        return 0
    for reply, own in _rows(sys.stdin.buffer):
        found = _result(reply, format.parse(reply, common if own is None else own, repair=repair))
        print(json.dumps(found), flush=True)
    return 0


def _described(name: str, format: Format) -> dict[str, Any]:
    return {
        "name": name,
        "families": format.models,
        "versions": list(format.versions),
        "reasoning": list(format.reasoning),
        "stop": list(format.stop),
        "end_of_turn": list(format.end_of_turn),
        "markers": list(format.markers),
    }


def _reasoning(format: Format) -> str:
    pairs = zip(format.reasoning[::2], format.reasoning[1::2], strict=True)
    return " ".join(f"{opening}...{closing}" for opening, closing in pairs)


def _ends(format: Format) -> str:
    texts = dict.fromkeys((*format.stop, *format.end_of_turn))
    return " ".join(texts).replace("\n", "\\n")


def _result(reply: str, parsed: ParsedReply) -> dict[str, Any]:
    """What is printed; ids only where the reply holds them, answer and repairs where there are any."""
    found: dict[str, Any] = {
        "content": parsed.content if parsed.content.strip() else None,
        "reasoning": parsed.reasoning if parsed.reasoning.strip() else None,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in parsed.calls],
        "errors": [
            {
                "kind": error.kind,
                "message": error.message,
                "hint": error.hint,
                "start": error.start,
                "end": error.end,
                "raw": error.raw,
            }
            for error in parsed.errors
        ],
    }
    if parsed.answer is not None:
        found["answer"] = parsed.answer
    ids = [call.id if call.id in reply else None for call in parsed.calls]
    if any(ids):
        found["ids"] = ids
    if any(call.repairs for call in parsed.calls):
        found["repairs"] = [list(call.repairs) for call in parsed.calls]
    return found


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[str, list[dict[str, Any]] | None]]:
    """The reply of each line and its own tools; blank lines are passed over."""
    for number, line in enumerate(lines, start=1):
        text = line.decode("utf-8-sig", "replace")
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"not JSON: {json_place(error, line=number)}"
            raise DataError(message, file=_STDIN, row=number) from None
        if not isinstance(row, dict) or not isinstance(row.get("raw"), str):
            raise DataError('expected an object with the reply as text under "raw"', file=_STDIN, row=number)
        own = row.get("tools")
        yield row["raw"], None if own is None else _tools(own, _STDIN, number)


def _tools(value: Any, file: str | Path, row: int | None = None) -> list[dict[str, Any]]:
    """Tool schemas as in ``Toolbox.schemas``, from the same or bare functions, maybe under "tools"."""
    if isinstance(value, Mapping) and "tools" in value:
        value = value["tools"]
    if not isinstance(value, list):
        raise DataError('the tools must be a list, or {"tools": [...]}', file=file, row=row)
    return [_tool(tool, number, file, row) for number, tool in enumerate(value, start=1)]


def _tool(tool: Any, number: int, file: str | Path, row: int | None) -> dict[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise DataError(
            f'tool {number} must be {{"name": ..., "parameters": {{...}}}}, alone or as the "function" of '
            '{"type": "function", "function": ...}',
            file=file,
            row=row,
        )
    if not isinstance(function.get("parameters") or {}, Mapping):
        raise DataError(f'the "parameters" of tool {number} must be a JSON Schema', file=file, row=row)
    return {"type": "function", "function": {**function, "parameters": function.get("parameters") or {}}}
