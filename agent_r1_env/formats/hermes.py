"""The Hermes wire format: JSON calls in ``<tool_call>`` tags (Qwen2.5, QwQ, Qwen3, Hermes-2 and -3).

Inside a call the JSON decoder itself finds the end of the value, so that tags and braces in strings are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agent_r1_env.formats.format import Format, ToolSchema, Turn, in_tools_tags
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import MOST_CALLS, ParsedReply, Scanner
from agent_r1_env.messages import CallError, CallFault, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"<tool_call>|</tool_call>")
_GAP = re.compile(r"[ \t\r\n,]*")
_EXAMPLE = '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'


class Hermes(Format):
    """Reads and writes Hermes calls."""

    name = "hermes"
    models = "Qwen2.5, QwQ, Qwen3, Hermes-2, Hermes-3, SmolLM3"
    end_of_turn = ("<|im_end|>", "<|endoftext|>")
    markers = (_OPEN,)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply; a failed attempt at a call becomes a ``CallError`` in its place."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call in a block of its own."""
        return "\n".join(
            f"{_OPEN}\n"
            f"{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}"
            f"\n{_CLOSE}"
            for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as lines of JSON in ``<tools>``."""
        return (
            f"{in_tools_tags(tools)}\n\n"
            "To call a function, write its name and arguments as JSON inside <tool_call></tool_call>:\n"
            f"{_EXAMPLE}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result in ``<tool_response>``."""
        return "\n".join(f"<tool_response>\n{result['content']}\n</tool_response>" for result in results)


class _Scanner(Scanner):
    openers = _TAG
    mend = 'write {"name": ..., "arguments": {...}} between <tool_call> and </tool_call>'

    def read(self, opener: re.Match[str]) -> None:
        if opener.group() == _CLOSE:
            fault = f"a {_CLOSE} stands without its {_OPEN}"
            self.fail(CallFault.STRAY, fault, opener.start(), opener.end())
            return
        start = end = opener.start()
        found, kept = 0, len(self.content)
        while not self.full:
            at = self._skip(self.position)
            if found and (self.text.startswith(_CLOSE, at) or at >= len(self.text)):
                # At the end of the reply: the model ended its turn after a whole call, without the tag.
                if isinstance(self.attempts[-1], CallError):
                    self.content.append(self.text[end : at + len(_CLOSE)])
                self.position = min(at + len(_CLOSE), len(self.text))
                return
            if at >= len(self.text):
                self.fail(CallFault.INCOMPLETE, "the tool call ends before it began", start, at)
                return
            try:
                value, end, repairs = self.value(at)
            except ValueError as error:
                self._fail_block(at if found else start, at, error)
                return
            after = self._skip(end)
            if not self._call_may_end(after):
                del self.attempts[len(self.attempts) - found :], self.content[kept:]
                self._fail_block(start, at, ValueError(f"text follows it where {_CLOSE} should stand"))
                return
            self.position = after
            found += self._take(value, at if found else start, end, repairs)

    def _take(self, value: Any, start: int, end: int, repairs: tuple[str, ...]) -> int:
        """Record the calls that one JSON value holds and return their number."""
        before = len(self.attempts)
        for item in value[:MOST_CALLS] if isinstance(value, list) and value else [value]:
            self.take(item, start, end, repairs=repairs)
        return len(self.attempts) - before

    def _skip(self, position: int) -> int:
        match = _GAP.match(self.text, position)
        return match.end() if match else position

    def _call_may_end(self, position: int) -> bool:
        return (
            position >= len(self.text)
            or self.text[position] in "{["
            or self.text.startswith((_CLOSE, _OPEN), position)
        )

    def _fail_block(self, start: int, at: int, error: ValueError) -> None:
        """Give up on a block: it ends at its closing tag, before any other tag, or with the reply."""
        match = self.tags.search(self.text, at)
        if match is None:
            end = len(self.text)
        else:
            end = match.end() if match.group() == _CLOSE else match.start()
        closing = f" and {_CLOSE} is missing" if match is None else ""
        kind = CallFault.INCOMPLETE if match is None or is_cut(error, self.text) else CallFault.SYNTAX
        fault = f"the tool call is not valid JSON: {json_fault(error, at)}{closing}"
        self.fail(kind, fault, start, end)
