"""The wire formats of Mistral: a JSON list behind [TOOL_CALLS], or that mark before each name.

Ids of calls are nine letters and digits; the templates of the family refuse any other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from agent_r1_env.errors import look_up
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault, read_json
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.messages import CallFault, ToolCall

_CALLS, _ARGS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_OPENERS = re.compile(r"\[TOOL_CALLS\]|\[ARGS\](?=\s*\{)")
_NAME = r"[^\s\[\]{}\"]{1,256}"
_HEAD = re.compile(
    rf"(?P<name>{_NAME})\s*+(?:(?:\[CALL_ID\]\s*+(?P<id>{_NAME})\s*+)?\[ARGS\]|(?=\{{))",
)
_CUT_HEAD = re.compile(
    rf"(?:{_NAME}\s*)?(?:\[[A-Z_]{{0,8}}|\[CALL_ID\]\s*(?:{_NAME}\s*)?(?:\[[A-Z]{{0,5}})?)?"
)
_LIST = re.compile(r"\[\s*\{")
_QUOTE = re.compile(r'&(?:#34|quot);|"|\\.', re.DOTALL)
_VALID_ID = re.compile(r"[a-zA-Z0-9]{9}")

_FORMS = {
    "v3": '[TOOL_CALLS] [{"name": "NAME", "arguments": {...}}]',
    "v11": "[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...} with nine letters or digits as the ID",
    "v13": "[TOOL_CALLS]NAME[ARGS]{...}",
}
"""How the model is told to write a call."""

MOST_QUOTES = 4_000
"""Quotes, escaped or not, that are looked at to mend one call."""


class Mistral(Format):
    """Reads all calls of Mistral, and writes those of one version of its tokenizer.

    It carries all JSON arguments; v13 carries no ids.

    Args:
        version: what is written, and what the model is told to write: "v3" (a list; until
            Mistral-Small-3.1), "v11" (names with ids; Mistral-Small-3.2) or "v13" (names without; Devstral,
            Magistral, Ministral-3).

    Raises:
        UnknownName: no such version.
    """

    name = "mistral"
    models = "Mistral-7B-v0.3, Mistral-Nemo, Mistral-Small, Devstral, Magistral, Ministral-3"
    end_of_turn = ("</s>",)
    reasoning = ("[THINK]", "[/THINK]")
    markers = (_CALLS,)
    versions = tuple(_FORMS)

    def __init__(self, version: str = "v13") -> None:
        self.version = version
        self._mend = f"write {look_up('version', version, _FORMS)}"

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply, in whichever version it is written; ``<think>`` is reasoning too.

        Ids are kept where they are valid and not used twice; others are made from the text, so that the same
        reply always gives the same ids.
        """
        scanner = _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn)
        scanner.mend = self._mend
        return scanner.run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """All calls in one list, or each behind a mark of its own."""
        if self.version == "v3":
            listed = [
                {"name": call.name, "arguments": call.arguments, "id": _valid_id(call.id)} for call in calls
            ]
            return f"{_CALLS} {_json(listed)}"
        return "".join(
            f"{_CALLS}{call.name}{self._written_id(call)}{_ARGS}{_json(call.arguments)}" for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as one JSON list between the marks of the family."""
        return (
            f"[AVAILABLE_TOOLS]{_json(list(tools))}[/AVAILABLE_TOOLS]\n\n"
            f"These are the tools that you may call. To call them, {self._mend}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result between marks of its own."""
        return "".join(f"[TOOL_RESULTS]{self._written_result(result)}[/TOOL_RESULTS]" for result in results)

    def structure(self, messages: Sequence[Turn], tools: Sequence[ToolSchema] = ()) -> list[dict[str, Any]]:
        """The conversation with calls as data; every result has an id that the templates accept."""
        turns = super().structure(messages, tools)
        for turn in turns:
            if turn["role"] == "tool":
                turn["tool_call_id"] = _result_id(turn)
        return turns

    def _written_id(self, call: ToolCall) -> str:
        return f"{_CALL_ID}{_valid_id(call.id)}" if self.version == "v11" else ""

    def _written_result(self, result: Turn) -> str:
        if self.version == "v3":
            return " " + _json({"content": result["content"], "call_id": _result_id(result)})
        if self.version == "v11":
            return f"{_result_id(result)}[TOOL_CONTENT]{result['content']}"
        return str(result["content"])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _valid_id(given: str) -> str:
    """The id itself if it is valid, or else one made from it."""
    if _VALID_ID.fullmatch(given):
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _result_id(result: Mapping[str, Any]) -> str:
    return _valid_id(str(result.get("tool_call_id", "")))


class _Scanner(Scanner):
    openers = _OPENERS
    reasoning = ("[THINK]", "[/THINK]", "<think>", "</think>")

    def read(self, opener: re.Match[str]) -> None:
        start, at = opener.start(), self.skip(self.position)
        if opener.group() == _ARGS:
            fault = f"{_ARGS} stands without {_CALLS} and the name of a tool"
            self._give_up(CallFault.STRAY, fault, start, at)
        elif head := _HEAD.match(self.text, at):
            self._read_named(start, head)
        elif self.text.startswith((_ARGS, _CALL_ID), at):
            self._give_up(CallFault.NO_NAME, f"no name of a tool follows {_CALLS}", start, at + 1)
        elif self.text.startswith(("[", "{"), at):
            self._read_list(start, at)
        else:
            self._read_late(start, at)

    def next_id(self) -> str:
        return _valid_id(f"{self._seed} {len(self.attempts)}")

    def value(self, at: int) -> tuple[Any, int, tuple[str, ...]]:
        try:
            return super().value(at)
        except ValueError as strict:
            plain = self._without_escapes(at) if self.repair else ""
            if not plain:
                raise
            try:
                value, length = read_json(plain, 0)
            except ValueError:
                raise strict from None
            return value, at + length, ("html_escapes",)

    # -- the shapes

    def _read_named(self, start: int, head: re.Match[str]) -> None:
        at = self.skip(head.end())
        if at >= len(self.text) or self.tags.match(self.text, at):
            kind = CallFault.INCOMPLETE if at >= len(self.text) else CallFault.NO_ARGUMENTS
            self._give_up(kind, "the tool call has no arguments", start, at)
            return
        try:
            value, end, repairs = self.value(at)
        except ValueError as error:
            self._give_up_json("the arguments are", error, start, at)
            return
        self.call(head["name"], value, start, end, call_id=self._id(head["id"]), repairs=repairs)

    def _read_list(self, start: int, at: int) -> None:
        try:
            value, end, repairs = self.value(at)
        except ValueError as error:
            self._read_broken_list(error, start, at)
            return
        if isinstance(value, dict) and self.repair:
            value, repairs = [value], (*repairs, "no_list")
        if not isinstance(value, list) or not value:
            fault = f"neither a list of tool calls nor the name of a tool follows {_CALLS}"
            self.fail(CallFault.SYNTAX, fault, start, end)
            return
        for item in value:
            if self.full:
                break
            self._take_item(item, start, end, repairs)
        self.position = max(self.position, end)

    def _read_broken_list(self, error: ValueError, start: int, at: int) -> None:
        """Take the calls before the place where a list cannot be read on, and give up the rest."""
        item = self.skip(at + 1)
        while self.text.startswith("{", item) and not self.full:
            try:
                value, end, repairs = self.value(item)
            except ValueError:
                break
            self._take_item(value, item, end, repairs)
            start = item = self.skip(end)
            if not self.text.startswith(",", item):
                break
            start = item = self.skip(item + 1)
        if not self.full:
            self._give_up_json("the list of tool calls is", error, start, at)

    def _take_item(self, item: Any, start: int, end: int, repairs: Sequence[str]) -> None:
        given = item.pop("id", None) if isinstance(item, dict) else None
        self.take(item, start, end, call_id=self._id(given), repairs=repairs)

    def _read_late(self, start: int, at: int) -> None:
        """Read a list that stands behind some text, or give up; before mere prose the mark is dropped."""
        end = self._end_from(at)
        if late := _LIST.search(self.text, at, end):
            self.content.append(self.text[at : late.start()])
            self._read_list(start, late.start())
            return
        fault = f"neither a list of tool calls nor a name with arguments follows {_CALLS}"
        if end == len(self.text) and _CUT_HEAD.fullmatch(self.text, at):
            self.fail(CallFault.INCOMPLETE, fault, start, end)
        else:
            self.fail(CallFault.SYNTAX, fault, start, end, kept=self.text[at:end])

    # -- inside

    def _give_up_json(self, what: str, error: ValueError, start: int, at: int) -> None:
        reached = error.pos if isinstance(error, json.JSONDecodeError) else at
        kind = CallFault.INCOMPLETE if is_cut(error, self.text) else CallFault.SYNTAX
        self._give_up(kind, f"{what} not valid JSON: {json_fault(error, at)}", start, reached)

    def _give_up(self, kind: CallFault, fault: str, start: int, at: int) -> None:
        """Record a call that cannot be read; it ends before the next mark behind ``at``."""
        end = self._end_from(at)
        if end < len(self.text) and kind is CallFault.INCOMPLETE:
            kind = CallFault.SYNTAX
        self.fail(kind, fault, start, end)

    def _end_from(self, at: int) -> int:
        marks = (mark for mark in self.tags.finditer(self.text, at) if mark.group() != _ARGS)
        return next((mark.start() for mark in marks), len(self.text))

    def _id(self, given: Any) -> str | None:
        """A valid id for the one that the model wrote, or None where it wrote none, or the same one twice."""
        if not isinstance(given, str) or not given:
            return None
        made = _valid_id(given)
        return None if any(made == attempt.id for attempt in self.attempts) else made

    @cached_property
    def _seed(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def _without_escapes(self, at: int) -> str:
        """The text up to the next call with quotes for HTML entities, as long as before; "" without any.

        An entity in a string with plain quotes is text; a plain quote in one with entities leaves doubt.
        """
        limit = self.text.find(_CALLS, at)
        limit = len(self.text) if limit < 0 else limit
        pieces: list[str] = []
        opened = ""
        for match in islice(_QUOTE.finditer(self.text, at, limit), MOST_QUOTES):
            mark = match.group()
            if mark[0] == "\\" or (mark[0] == "&" and opened == '"'):
                continue
            if mark == '"' and opened == "&":
                return ""
            if mark[0] == "&":
                padding = " " * (len(mark) - 1)
                pieces += (self.text[at : match.start()], f'"{padding}' if opened else f'{padding}"')
                at = match.end()
            opened = "" if opened else mark[0]
        return "".join((*pieces, self.text[at:limit])) if pieces else ""
