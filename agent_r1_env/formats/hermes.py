"""The Hermes wire format: JSON calls in ``<tool_call>`` tags (Qwen2.5, QwQ, Qwen3, Hermes-2 and -3).

A reply is scanned once from left to right. Inside a call the JSON decoder itself finds the end of the
value, so that tags and braces inside strings are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_r1_env.formats.reading import ParsedReply, defuse, json_fault, read_json
from agent_r1_env.messages import CallError, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"<tool_call>|</tool_call>|<think>|</think>")
_END_OF_TURN = ("<|im_end|>", "<|endoftext|>")
_EXAMPLE = '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
_MOST_CALLS = 64
"""Failing to read a call costs time in proportion to the reply, so there is an end to it."""
_MEND = 'write {"name": ..., "arguments": {...}} between <tool_call> and </tool_call>'


class Hermes:
    """Reads and writes Hermes calls. Stateless; one instance serves every environment."""

    name = "hermes"
    stop: tuple[str, ...] = ()

    def parse(self, reply: str) -> ParsedReply:
        """Read one whole reply; a failed attempt at a call becomes a ``CallError`` in its place."""
        return _Scanner(reply).run()

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """One call as a model would write it."""
        body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
        return f"{_OPEN}\n{body}\n{_CLOSE}"

    def flatten(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, str]]:
        """System, user and assistant turns: tools stand in the first, results in user turns."""
        turns: list[dict[str, str]] = []
        if tools and (not messages or messages[0]["role"] != "system"):
            turns.append({"role": "system", "content": _tool_section(tools)})
        after_tool = False
        for index, message in enumerate(messages):
            role, content = message["role"], message["content"]
            if role == "system" and index == 0 and tools:
                content = f"{content}\n\n{_tool_section(tools)}"
            elif role == "tool":
                content = f"<tool_response>\n{content}\n</tool_response>"
                if after_tool:
                    turns[-1]["content"] += f"\n{content}"
                    continue
                role = "user"
            after_tool = message["role"] == "tool"
            turns.append({"role": role, "content": content})
        return turns

    def neutralise(self, text: str) -> str:
        """The text with its tags and special tokens broken by a space."""
        return defuse(text)


def _tool_section(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nEach line inside <tools></tools> describes one function as JSON Schema:\n"
        f"<tools>\n{lines}\n</tools>\n\n"
        "To call a function, write its name and arguments as JSON inside <tool_call></tool_call>:\n"
        f"{_EXAMPLE}"
    )


def _without_end_of_turn(reply: str) -> str:
    end = len(reply)
    while True:
        if end and reply[end - 1].isspace():
            end -= 1
        elif mark := next((mark for mark in _END_OF_TURN if reply.endswith(mark, 0, end)), None):
            end -= len(mark)
        else:
            return reply[:end]


class _Scanner:
    """One pass over one reply."""

    def __init__(self, reply: str) -> None:
        self.text = _without_end_of_turn(reply)
        self.position = 0
        self.drafted = 0
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall | CallError] = []

    def run(self) -> ParsedReply:
        while match := _TAG.search(self.text, self.position):
            self.content.append(self.text[self.position : match.start()])
            self.position = match.end()
            tag = match.group()
            if tag == _OPEN:
                self._read_block(match.start())
            elif tag == _CLOSE:
                self._fail(f"a {_CLOSE} stands without its {_OPEN}; {_MEND}", match.start(), match.end())
            elif tag == "<think>":
                self._read_reasoning()
            else:
                # The prompt opened the reasoning, so all that came before its end was a draft.
                self.drafted = match.start()
                for held in (self.content, self.reasoning, self.calls):
                    held.clear()
            if len(self.calls) >= _MOST_CALLS:
                self._fail(
                    f"only the first {_MOST_CALLS} tool calls of a reply are read",
                    self.position,
                    len(self.text),
                )
        self.content.append(self.text[self.position :])
        reasoning = self.text[: self.drafted] + "".join(self.reasoning)
        return ParsedReply("".join(self.content), reasoning, tuple(self.calls))

    def _read_reasoning(self) -> None:
        end = self.text.find("</think>", self.position)
        if end < 0:
            self.reasoning.append(self.text[self.position :])
            self.position = len(self.text)
        else:
            self.reasoning.append(self.text[self.position : end])
            self.position = end + len("</think>")

    def _read_block(self, start: int) -> None:
        """Read every JSON value of one block; ``self.position`` stands after the opening tag."""
        found = 0
        while len(self.calls) < _MOST_CALLS:
            at = self._skip(self.position)
            if self.text.startswith(_CLOSE, at) and found:
                self.position = at + len(_CLOSE)
                return
            if at >= len(self.text) and found:
                # The model ended its turn after a whole call and left out the closing tag.
                self.position = at
                return
            if at >= len(self.text):
                self._fail(f"the tool call ends before it began; {_MEND}", start, at, incomplete=True)
                return
            try:
                value, end = read_json(self.text, at)
            except ValueError as error:
                self._fail_block(start, at, error)
                return
            after = self._skip(end)
            if not self._call_may_end(after):
                for _ in range(found):
                    self.calls.pop()
                self._fail_block(start, at, ValueError(f"text follows it where {_CLOSE} should stand"))
                return
            self._accept(value, self.text[start:end])
            found += 1
            self.position = after

    def _skip(self, position: int) -> int:
        while position < len(self.text) and self.text[position] in " \t\r\n,":
            position += 1
        return position

    def _call_may_end(self, position: int) -> bool:
        return (
            position >= len(self.text)
            or self.text[position] in "{["
            or self.text.startswith((_CLOSE, _OPEN), position)
        )

    def _accept(self, value: Any, raw: str) -> None:
        for item in value[:_MOST_CALLS] if isinstance(value, list) and value else [value]:
            self.calls.append(_as_call(item, raw, self._next_id()))

    def _fail_block(self, start: int, at: int, error: ValueError) -> None:
        """Give up on a block: it ends at its closing tag, at the next opening one, or with the reply."""
        match = _TAG.search(self.text, at)
        while match and match.group() not in (_OPEN, _CLOSE):
            match = _TAG.search(self.text, match.end())
        if match is None:
            end = len(self.text)
        else:
            end = match.end() if match.group() == _CLOSE else match.start()
        incomplete = match is None
        closing = f" and {_CLOSE} is missing" if incomplete else ""
        self._fail(
            f"the tool call is not valid JSON: {json_fault(error, at)}{closing}; {_MEND}",
            start,
            end,
            incomplete,
        )

    def _fail(self, message: str, start: int, end: int, incomplete: bool = False) -> None:
        self.calls.append(CallError(message, self.text[start:end], self._next_id(), incomplete))
        self.position = end

    def _next_id(self) -> str:
        return f"call_{len(self.calls)}"


def _as_call(value: Any, raw: str, call_id: str) -> ToolCall | CallError:
    if not isinstance(value, dict):
        return CallError(f"a tool call must be a JSON object; {_MEND}", raw, call_id)
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        return CallError(f'the tool call has no "name"; {_MEND}', raw, call_id)
    if "arguments" not in value and set(value) != {"name"}:
        return CallError(f'the tool call has no "arguments"; {_MEND}', raw, call_id)
    if arguments is None or arguments == "":
        arguments = {}
    if not isinstance(arguments, dict):
        found = defuse(json.dumps(arguments)[:60])
        return CallError(f'"arguments" must be a JSON object, not {found}; {_MEND}', raw, call_id)
    return ToolCall(name, arguments, call_id)
