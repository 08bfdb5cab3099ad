"""The wire format of Phi-4-mini: one JSON list of calls behind the word ``functools``.

FireFunction-v2 writes the same. Phi-4-mini also puts the list between ``<|tool_call|>`` and
``<|/tool_call|>``, and a template that is in use writes past calls as bare objects, so a reply may begin so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import MOST_CALLS, ParsedReply, Scanner
from agent_r1_env.messages import CallError, CallFault, ToolCall

_WORD, _OPEN, _CLOSE = "functools", "<|tool_call|>", "<|/tool_call|>"
_BARE = re.compile(r'\{\s*"name"\s*:\s*"(?P<name>[^"\\]{1,128})"\s*,\s*"(?:arguments|parameters)"\s*:')
_OPENERS = re.compile(
    r"(?P<word>functools)(?=[\[{])|(?P<tag><\|tool_call\|>(?:\s*functools\b)?)|(?P<close><\|/tool_call\|>)"
    rf"|(?P<bare>\A\s*+)(?={_BARE.pattern})"
)
_BLOCK_END = re.compile(r"<\|/?tool_call\|>|functools\[")
_KEYS = ("arguments", "parameters")
_EXAMPLE = 'functools[{"name": "...", "arguments": {...}}]'


class Phi4Mini(Format):
    """Reads and writes lists of calls. Every JSON object can be carried."""

    name = "phi4_mini"
    models = "Phi-4-mini, FireFunction-v2"
    end_of_turn = ("<|end|>", "<|endoftext|>")
    markers = (f"{_WORD}[",)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply; of a list that breaks off or goes wrong, the calls before that count."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """All calls in one list."""
        listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return f"{_WORD}{json.dumps(listed, ensure_ascii=False)}"

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as a JSON list in ``<|tool|>``."""
        functions = [tool.get("function", tool) for tool in tools]
        return (
            f"You have these tools:\n<|tool|>{json.dumps(functions, ensure_ascii=False)}<|/tool|>\n\n"
            "To call some of them, write one JSON list with a name and arguments for each call:\n"
            f"{_EXAMPLE}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result below the name of its tool."""
        return "\n\n".join(
            f"Result of {result.get('name', 'the call')}:\n{result['content']}" for result in results
        )

    def structure(self, messages: Sequence[Turn], tools: Sequence[ToolSchema] = ()) -> list[dict[str, Any]]:
        """The conversation as it is: the templates of the family print replies with their calls as text.

        One prints calls that are given as data too, but as Python and not as JSON, and it drops those that
        come with text.
        """
        return [dict(message) for message in messages]

    def neutralise(self, text: str) -> str:
        """Besides tags, the word that begins a list of calls is broken."""
        return defuse(text).replace(f"{_WORD}[", f"{_WORD} [")


class _Scanner(Scanner):
    openers = _OPENERS
    mend = f"write {_EXAMPLE}"

    def read(self, opener: re.Match[str]) -> None:
        if opener["close"]:
            fault = f"a {_CLOSE} stands without its {_OPEN}"
            self.fail(CallFault.STRAY, fault, opener.start(), opener.end())
        elif opener["bare"] is not None:
            self._read_bare(opener)
        elif opener["word"] and not self._is_meant(opener):
            self.content.append(opener.group())
        elif opener["tag"]:
            self._read_tagged(opener.start(), self.skip(self.position))
        elif self.text.startswith("{", self.position):
            self._give_up(opener.start(), self.position, ValueError("they do not stand in a list"))
        else:
            self._read_list(opener.start(), self.position)

    def _is_meant(self, opener: re.Match[str]) -> bool:
        """Whether the word begins a list of calls: what follows looks like one, or it begins a line."""
        at = self.skip(self.position + 1)
        if self.text.startswith("[", self.position) and (at == len(self.text) or self.text[at] in "{]"):
            return True
        return not self.text[max(0, opener.start() - 64) : opener.start()].rpartition("\n")[2].strip()

    def _read_tagged(self, start: int, at: int) -> None:
        """Read the list or the one object at ``at``, which a tag should close."""
        end = self._read_list(start, at) if self.text.startswith("[", at) else self._read_value(start, at)
        if end is None:
            return
        closing = self.skip(end)
        if self.text.startswith(_CLOSE, closing):
            self._close(end, closing + len(_CLOSE))
        elif closing < len(self.text) and not _BLOCK_END.match(self.text, closing):
            self._give_up(end, closing, ValueError(f"text follows where {_CLOSE} should stand"))

    def _read_list(self, start: int, at: int) -> int | None:
        """Read the list at ``at``, call by call, and return where it ends, if it can be read so far."""
        begin, at = start, self.skip(at + 1)
        while not self.full:
            if begin == start and self.text.startswith("]", at):
                self.fail(CallFault.SYNTAX, "the list holds no call", start, at + 1)
                return None
            end = self._read_value(begin, at, listed=True)
            if end is None:
                return None
            begin = at = self.skip(end)
            if self.text.startswith(",", at):
                at = self.skip(at + 1)
                if not self.text.startswith("]", at) or not self.repair:
                    continue
                if isinstance(last := self.attempts[-1], ToolCall):
                    self.attempts[-1] = replace(last, repairs=(*last.repairs, "trailing_comma"))
            if not self.text.startswith("]", at):
                self._give_up(begin, at, ValueError("a comma or ] was expected"))
                return None
            self._close(end, at + 1)
            return self.position
        return None

    def _close(self, start: int, end: int) -> None:
        """Pass over what closes the calls; behind one that could not be read it stays as it was written."""
        if isinstance(self.attempts[-1], CallError):
            self.content.append(self.text[start:end])
        self.position = end

    def _read_value(self, start: int, at: int, *, listed: bool = False) -> int | None:
        """Read the JSON at ``at`` and return where it ends, or None if there is none.

        Args:
            start: where an attempt that fails begins.
            listed: it stands in a list, so it can be one call only.
        """
        try:
            value, end, repairs = self.value(at)
        except ValueError as error:
            self._give_up(start, at, error)
            return None
        for call in value[:MOST_CALLS] if isinstance(value, list) and not listed else [value]:
            if isinstance(call, dict) and call.get("name") and not any(key in call for key in _KEYS):
                self.fail(CallFault.NO_ARGUMENTS, 'the tool call has no "arguments"', start, end)
            else:
                self.take(call, start, end, keys=_KEYS, repairs=repairs)
        self.position = end
        return end

    def _read_bare(self, opener: re.Match[str]) -> None:
        """Read the objects that a reply begins with, if they call one of the tools."""
        names = {tool.get("function", tool).get("name") for tool in self.tools}
        if names and opener["name"] not in names:
            self.position = opener.end() + 1
            self.content.append(self.text[: self.position])
            return
        at = opener.end()
        while not self.full and (end := self._read_value(at, at)) is not None:
            at = self.skip(end)
            if not self.text.startswith(",", at) or not _BARE.match(self.text, self.skip(at + 1)):
                return
            at = self.skip(at + 1)

    def _give_up(self, start: int, at: int, error: ValueError) -> None:
        """Record a failed attempt: it ends with its closing tag, before an opening one, or with the reply."""
        mark = _BLOCK_END.search(self.text, at)
        if mark is None:
            end = len(self.text)
        else:
            end = mark.end() if mark.group() == _CLOSE else mark.start()
        cut = at >= len(self.text) or is_cut(error, self.text)
        fault = f"the calls cannot be read: {json_fault(error, at)}"
        self.fail(CallFault.INCOMPLETE if cut else CallFault.SYNTAX, fault, start, end)
