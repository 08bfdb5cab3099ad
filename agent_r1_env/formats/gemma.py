"""The wire formats of the Gemma models that call functions: FunctionGemma and Gemma 4.

Both write ``call:NAME{key:value,...}`` between tags of their own, with bare keys, and texts between marks in
place of quotes. Between the marks everything is text; nothing is escaped there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agent_r1_env.errors import look_up
from agent_r1_env.formats.coercion import argument_schema, parameters_of, takes_text, typed
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut
from agent_r1_env.formats.marked import Reader, is_cut_mark, written
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.messages import CallFault, ToolCall


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The pairs of tags of one family, and its mark in place of quotes."""

    call: tuple[str, str]
    result: tuple[str, str]
    tool: tuple[str, str]
    quote: str


_DIALECTS = {
    "functiongemma": _Dialect(
        ("<start_function_call>", "<end_function_call>"),
        ("<start_function_response>", "<end_function_response>"),
        ("<start_function_declaration>", "<end_function_declaration>"),
        "<escape>",
    ),
    "gemma4": _Dialect(
        ("<|tool_call>", "<tool_call|>"),
        ("<|tool_response>", "<tool_response|>"),
        ("<|tool>", "<tool|>"),
        '<|"|>',
    ),
}
_OF_TAG = {tag: dialect for dialect in _DIALECTS.values() for tag in (*dialect.call, dialect.result[0])}
_TAG = re.compile("|".join(map(re.escape, _OF_TAG)))
_MAY_FOLLOW = re.compile(rf"\Z|<end_of_turn>|<turn\|>|<eos>|{_TAG.pattern}")
_CALL = re.compile(r"\s*call:\s*(?P<name>[^\s:,{}\[\]<>\"']*)\s*(?P<brace>\{)?")
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions")
_SCHEMAS = ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems")


class Gemma(Format):
    """Reads the calls of both families and writes those of one.

    Neither can carry a text or key that holds its mark, ``<escape>`` or ``<|"|>``: that is broken by a space.
    """

    name = "gemma"
    models = "FunctionGemma, Gemma 4"
    end_of_turn = ("<end_of_turn>", "<turn|>", "<eos>", "<start_function_response>", "<|tool_response>")
    reasoning = ("<|channel>thought", "<channel|>")
    versions = tuple(_DIALECTS)

    def __init__(self, version: str = "functiongemma") -> None:
        """Write as one family does.

        Args:
            version: "functiongemma" or "gemma4".

        Raises:
            UnknownName: there is no such version.
        """
        self.version = version
        self._dialect = look_up("version", version, _DIALECTS)
        self.markers = self._dialect.call[:1]

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply of either family.

        FunctionGemma may put any value between its marks, so there the tool's schema tells what is text.
        """
        parsed = _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()
        return replace(parsed, reasoning=parsed.reasoning.strip("\n"))

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call between tags of its own, with nothing in between."""
        opening, closing = self._dialect.call
        return "".join(
            f"{opening}call:{call.name}{written(call.arguments, self._dialect.quote)}{closing}"
            for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as declarations, as the templates of the families write them."""
        (call, end), quote = self._dialect.call, self._dialect.quote
        return (
            "These functions can be called:\n"
            f"{''.join(self._declaration(tool.get('function', tool)) for tool in tools)}\n"
            f"A call names one and its arguments, with every text between {quote} and {quote}:\n"
            f"{call}call:NAME{{KEY:{quote}TEXT{quote},KEY:NUMBER}}{end}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result between tags of its own."""
        opening, closing = self._dialect.result
        return "".join(
            f"{opening}response:{result.get('name', 'unknown')}"
            f"{written({'value': result['content']}, self._dialect.quote)}{closing}"
            for result in results
        )

    def structure(self, messages: Sequence[Turn], tools: Sequence[ToolSchema] = ()) -> list[dict[str, Any]]:
        """The conversation with calls as data; results of failed attempts become user turns.

        The template of Gemma 4 drops results that do not belong to a call of the turn before them.
        """
        turns: list[dict[str, Any]] = []
        told: list[dict[str, Any]] = []
        called: set[str] = set()
        for turn in super().structure(messages, tools):
            if turn["role"] != "tool":
                turns += [*told, turn]
                told = []
                called = {call["id"] for call in turn.get("tool_calls", ())}
            elif turn.get("tool_call_id") in called:
                turns.append(turn)
            else:
                told.append({"role": "user", "content": turn["content"]})
        return turns + told

    def _declaration(self, function: Mapping[str, Any]) -> str:
        opening, closing = self._dialect.tool
        described = {
            "description": function.get("description") or "",
            "parameters": _declared(function.get("parameters") or {}),
        }
        name = function.get("name", "")
        return f"{opening}declaration:{name}{written(described, self._dialect.quote, sort=True)}{closing}"


def _declared(schema: Any) -> Any:
    """A schema with the names of types in capitals."""
    if isinstance(schema, list):
        return [_declared(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    declared = dict(schema)
    for key, part in schema.items():
        if key == "type":
            declared[key] = (
                [str(each).upper() for each in part] if isinstance(part, list) else str(part).upper()
            )
        elif key in _MAPS_OF_SCHEMAS and isinstance(part, Mapping):
            declared[key] = {name: _declared(each) for name, each in part.items()}
        elif key in _SCHEMAS:
            declared[key] = _declared(part)
    return declared


class _Scanner(Scanner):
    openers = _TAG
    reasoning = Gemma.reasoning

    @cached_property
    def _reader(self) -> Reader:
        """One for the whole reply, since what it reads is bounded."""
        return Reader(self.text, self.repair)

    def read(self, opener: re.Match[str]) -> None:
        dialect = _OF_TAG[opener.group()]
        self.mend = (
            f"write {dialect.call[0]}call:NAME{{KEY:VALUE,...}}{dialect.call[1]}, "
            f"every text between {dialect.quote} and {dialect.quote}"
        )
        if opener.group() == dialect.call[0]:
            self._read_call(opener.start(), dialect)
        elif opener.group() == dialect.call[1]:
            fault = f"a {opener.group()} stands without its {dialect.call[0]}"
            self.fail(CallFault.STRAY, fault, opener.start(), opener.end())
        else:
            known = self.attempts or self.text[: opener.start()].strip()
            self.invented(opener.start(), opener.end(), "" if known else "results are not yours to write")

    def _read_call(self, start: int, dialect: _Dialect) -> None:
        call = _CALL.match(self.text, self.position)
        if call is None:
            at = self.skip(self.position)
            kind = CallFault.SYNTAX if at + len("call:") <= len(self.text) else CallFault.INCOMPLETE
            self._give_up(kind, f"call:NAME{{...}} must follow {dialect.call[0]}", start, at)
            return
        if not call["brace"]:
            kind = CallFault.NO_ARGUMENTS if call.end() < len(self.text) else CallFault.INCOMPLETE
            self._give_up(kind, "the arguments must follow the name, in braces", start, call.end())
            return
        if not call["name"]:
            self._give_up(CallFault.NO_NAME, "the call names no function", start, call.end())
            return
        try:
            arguments, end, repairs = self._reader.arguments(call.end() - 1, dialect.quote)
        except ValueError as error:
            kind = CallFault.INCOMPLETE if is_cut(error, self.text) else CallFault.SYNTAX
            self._give_up(kind, f"the call cannot be read: {error}", start, call.end())
            return
        after = self.skip(end)
        if not _MAY_FOLLOW.match(self.text, after):
            cut = is_cut_mark(self.text, after, dialect.call[1])
            fault = f"text follows the call where {dialect.call[1]} should stand"
            self._give_up(CallFault.INCOMPLETE if cut else CallFault.SYNTAX, fault, start, after)
            return
        self.position = after + len(dialect.call[1]) * self.text.startswith(dialect.call[1], after)
        arguments, found = self._typed(call["name"], arguments, dialect)
        self.accept(call["name"], arguments, repairs=sorted({*repairs, *found}))

    def _typed(
        self, name: str, arguments: dict[str, Any], dialect: _Dialect
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """The arguments with texts that cannot be meant as text read by the tool's schema."""
        own = dialect is _DIALECTS["functiongemma"]
        repairs: list[str] = []
        if not own and not self.repair:
            return arguments, repairs
        parameters = parameters_of(self.tools, name)
        for key, text in arguments.items():
            schema = argument_schema(parameters, key)
            if isinstance(text, str) and not takes_text(schema, parameters):
                arguments[key], found = typed(text, schema, parameters)
                repairs += found if own or arguments[key] is text else [*found, "quoted_value"]
        return arguments, repairs

    def _give_up(self, kind: CallFault, fault: str, start: int, at: int) -> None:
        """Record a failed call: it ends behind its closing tag, before another tag, or with the reply."""
        tag = _TAG.search(self.text, at)
        if tag is None:
            end = len(self.text)
        else:
            end = tag.end() if tag.group() == _OF_TAG[tag.group()].call[1] else tag.start()
        self.fail(kind, fault, start, end)
