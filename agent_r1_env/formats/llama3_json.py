"""The JSON calls of Llama 3.1 to 3.3, and of Llama 4 with a template that asks for them.

A call is an object with a name and parameters, in place of a text or beside one; ``<|python_tag|>`` may stand
before it. Llama 3.1 writes function tags as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from typing import Any

from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.functionary import FUNCTION_TAGS, FunctionScanner
from agent_r1_env.formats.jsontext import is_cut, json_fault, read_json
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.messages import CallFault, ToolCall

_TAG = "<|python_tag|>"
_KEYS = ("parameters", "arguments")
_ALONE = {"name", "type", "id"}
_QUOTED = r"[\"'][^\"'\\\s]{1,256}[\"']"
_BEGUN = re.compile(
    rf"\{{\s*(?:[\"']type[\"']\s*:\s*{_QUOTED}\s*,\s*)?[\"']name[\"']\s*:\s*{_QUOTED}\s*,"
    r"\s*[\"'](?:parameters|arguments)[\"']\s*:"
)
_FIRST_KEY = re.compile(
    r"\{\s*[\"']?(?:name|parameters|arguments|function)[\"']?\s*:|\{\s*[\"']type[\"']\s*:\s*[\"']function[\"']"
)
_BARE = re.compile(r"\{\s*(?:\Z|(?:name|parameters|arguments)\s*:)")
_NAMED = re.compile(r"\{\s*[\"'](?:name|function|tool)[\"']\s*:\s*[\"']([^\"'\\\s]{1,256})[\"']")
_SEPARATOR = re.compile(r"\s*;\s*(?:(?=\{)|\Z)")
_FENCE_END = re.compile(r"\s*```")
_SHORT = 16
_DEEP = 5000
"""Characters that are taken to be looked at where the decoder does not say how many."""
_MOST_PASSED = 2000
"""Objects in prose that are looked at before only such count as begin like a call: what bounds the time."""


class _Place(IntEnum):
    """Where an object stands: the more it stands where a call is expected, the less like one it must look."""

    PROSE = 0
    LINE = 1
    FIRST = 2
    TAGGED = 3


class Llama3Json(Format):
    """Reads and writes the JSON calls of Llama 3; all JSON arguments are carried."""

    name = "llama3_json"
    models = "Llama-3.1, Llama-3.2, Llama-3.3, Llama-4 with a JSON template"
    end_of_turn = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>")

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply.

        An object with a name and parameters is a call wherever it stands. Other objects are failed attempts
        at one if they have a call's keys and stand first in the reply, or name one of the tools and stand
        first in a line; all else is prose.
        """
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The objects in one line."""
        return "; ".join(
            json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False)
            for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as indented JSON."""
        listed = "\n\n".join(json.dumps(tool, indent=4, ensure_ascii=False) for tool in tools)
        return (
            "These functions can be called. To call one, reply with nothing but a JSON object of the form "
            '{"name": name of the function, "parameters": object with its arguments}; several such objects '
            f'are separated by "; ".\n\n{listed}'
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result as a JSON object on a line of its own."""
        return "\n".join(json.dumps({"output": result["content"]}, ensure_ascii=False) for result in results)


class _Scanner(FunctionScanner):
    openers = re.compile(
        rf"{FUNCTION_TAGS}|<\|python_tag\|>(?P<tag>)"
        r"|\{[ \t\r\n]*[\"']"
        r"|```[a-zA-Z]{0,12}[ \t]*\r?\n\s*(?P<fenced>\{)"
    )
    mend = 'write {"name": ..., "parameters": {...}}, with nothing before or behind it'
    _passed = 0

    @cached_property
    def _names(self) -> set[str]:
        return {tool.get("function", tool)["name"] for tool in self.tools}

    def run(self) -> ParsedReply:
        """Read the whole reply, which may begin with a piece of a call or with one that lacks all quotes."""
        start = self.skip(0)
        if _BARE.match(self.text, start):
            self._read_object(start, start, _Place.FIRST)
        return super().run()

    def read(self, opener: re.Match[str]) -> None:
        start = opener.start()
        if opener["tag"] is not None:
            self._read_tagged(start)
        elif opener["function"] is not None or opener["stray"] is not None:
            self.read_function(opener)
        elif opener["fenced"]:
            self._read_fenced(start, opener.start("fenced"))
        else:
            self._read_objects(start, start, self._place(start))

    def _place(self, start: int) -> _Place:
        if self.begins_reply(start):
            return _Place.FIRST
        return _Place.LINE if self.begins_line(start) else _Place.PROSE

    def _read_tagged(self, start: int) -> None:
        at = self.skip(self.position)
        if self.text.startswith("{", at):
            self._read_objects(start, at, _Place.TAGGED)
        else:
            kind = CallFault.INCOMPLETE if at >= len(self.text) else CallFault.SYNTAX
            self.fail(kind, f"a JSON object must stand behind {_TAG}", start, self.position)

    def _read_fenced(self, start: int, at: int) -> None:
        """Read an object at the beginning of a code block. The fences are prose, unless they are mended."""
        place, content = max(self._place(start), _Place.LINE), len(self.content)
        self._read_objects(at, at, place)
        call = self.attempts[-1] if self.attempts else None
        closing = _FENCE_END.match(self.text, self.position)
        if self.repair and closing and isinstance(call, ToolCall) and len(self.content) == content:
            self.attempts[-1] = replace(call, repairs=(*call.repairs, "code_fence"))
            self.position = closing.end()
        else:
            self.content.insert(content, self.text[start:at])

    def _read_objects(self, start: int, at: int, place: _Place) -> None:
        """Read the object at ``at``, and those that a semicolon joins to it as long as they are calls.

        Args:
            start: where the attempt begins, at the tag before the object if there is one.
        """
        joint = ""
        while True:
            content = len(self.content)
            if not self._read_object(start, at, place):
                self.content.insert(content, joint)
                return
            separator = _SEPARATOR.match(self.text, self.position)
            if separator is None or self.full:
                return
            joint, place = separator.group(), _Place.FIRST
            start = at = self.position = separator.end()
            if at == len(self.text):
                return

    def _read_object(self, start: int, at: int, place: _Place) -> bool:
        """Read one object; whether it was meant as a call."""
        try:
            value, end = read_json(self.json, at)
            repairs: tuple[str, ...] = ()
        except ValueError as error:
            looked = error.pos - at if isinstance(error, json.JSONDecodeError) else _DEEP
            if not self._is_begun(at, place, error):
                self._pass(start, at + 1, looked)
                return False
            try:
                value, end, repairs = self.value(at)
            except ValueError:
                self._fail_object(error, start, at)
                return True
        if not self._is_attempt(value, place):
            self._pass(start, end, end - at)
            return False
        self._record(value, start, end, repairs)
        return True

    def _record(self, value: Mapping[str, Any], start: int, end: int, repairs: tuple[str, ...]) -> None:
        given = [value[key] for key in _KEYS if key in value]
        if value.get("name") and not given:
            self.fail(CallFault.NO_ARGUMENTS, 'the tool call has no "parameters"', start, end)
        elif len(given) > 1 and given[0] != given[1]:
            self.fail(CallFault.ARGUMENTS, "parameters and arguments are given, and differ", start, end)
        else:
            self.take(value, start, end, keys=_KEYS, repairs=repairs)

    def _fail_object(self, error: ValueError, start: int, at: int) -> None:
        end = self.lenient.after_bracket(at)
        kind = CallFault.INCOMPLETE if end is None or is_cut(error, self.text) else CallFault.SYNTAX
        self.fail(
            kind, f"the tool call is not valid JSON: {json_fault(error, at)}", start, end or self.rest()
        )

    def _is_attempt(self, value: Mapping[str, Any], place: _Place) -> bool:
        """Whether an object is meant as a call."""
        has_arguments = any(key in value for key in _KEYS)
        if "name" in value and has_arguments:
            # A tool that is described in prose has a name and parameters as well.
            return place > _Place.PROSE or "description" not in value or self._passed > _MOST_PASSED
        if place is _Place.TAGGED:
            return True
        alike = (
            has_arguments or value.get("type") == "function" or ("name" in value and value.keys() <= _ALONE)
        )
        return alike and (place is _Place.FIRST or (place is _Place.LINE and self._names_tool(value)))

    def _names_tool(self, value: Mapping[str, Any]) -> bool:
        return any(isinstance(each, str) and each in self._names for each in value.values())

    def _is_begun(self, at: int, place: _Place, error: ValueError) -> bool:
        """Whether an object that cannot be read is meant as a call."""
        if place is _Place.TAGGED or _BEGUN.match(self.text, at):
            return True
        if (place is _Place.FIRST or is_cut(error, self.text)) and _FIRST_KEY.match(self.text, at):
            return True
        if place is _Place.FIRST and len(self.text) - at < _SHORT:
            return '{"name"'.startswith("".join(self.text[at:].split()))
        named = _NAMED.match(self.text, at)
        return named is not None and named[1] in self._names

    def _pass(self, start: int, end: int, looked: int) -> None:
        """Take the text up to ``end`` for prose, or more where too much was looked at already."""
        self._passed += 1 + _MOST_PASSED * looked // (2 * len(self.text))
        if self._passed > _MOST_PASSED:
            begun = _BEGUN.search(self.text, end)
            end = begun.start() if begun else len(self.text)
        self.content.append(self.text[start:end])
        self.position = end
