"""The wire formats of DeepSeek: special tokens around JSON (V3, R1, V3.1), and DSML (V3.2).

V4 writes DSML too, with tool_calls for function_calls as the name of the section; that is read as well.
The bars in the marks are U+FF5C and the low lines U+2581; the ASCII characters that look like them are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from agent_r1_env.errors import look_up
from agent_r1_env.formats.coercion import Schema, argument_schema, parameters_of, typed
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import json_fault
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.formats.sections import MarkKind, SectionScanner
from agent_r1_env.messages import CallFault, ToolCall

_SECTION, _SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_DSML, _DSML_END = "<｜DSML｜function_calls>", "</｜DSML｜function_calls>"
_INVOKE, _INVOKE_END = "<｜DSML｜invoke", "</｜DSML｜invoke>"
_PARAMETER, _PARAMETER_END = "<｜DSML｜parameter", "</｜DSML｜parameter>"
_MARKS: dict[str, MarkKind] = {
    _SECTION: "section",
    _CALL: "call",
    _SEP: "inner",
    _CALL_END: "call_end",
    _SECTION_END: "section_end",
    _DSML: "section",
    "<｜DSML｜tool_calls>": "section",
    _INVOKE: "call",
    _PARAMETER: "inner",
    _PARAMETER_END: "inner",
    _INVOKE_END: "call_end",
    _DSML_END: "section_end",
    "</｜DSML｜tool_calls>": "section_end",
}
_HEADER = re.compile(
    rf"\s*+(?P<first>[^\s<>｜]{{1,256}})\s*+{_SEP}\s*+(?:(?P<fenced>[^\s<>｜`{{}}\[\]\"]{{1,256}})\s*+```(?:json)?)?"
)
_INVOKED = re.compile(r'\s++name="(?P<name>[^"<>]{1,256})"\s*+>')
_GIVEN = re.compile(
    rf'{_PARAMETER}\s++name="(?P<key>[^"]{{0,256}})"(?:\s++string="(?P<string>[^"]{{0,16}})")?\s*+>'
)
_TEXT_END = re.compile(rf"{_PARAMETER_END}(?=\s*+(?:{_PARAMETER}\s|{_INVOKE_END}))")
_FORGED_RESULT = re.compile(r"<(?=/?result>)")


class DeepSeek(Format):
    """Reads all calls of DeepSeek, and writes those of one version.

    In V3.2 a text cannot hold the mark that ends a parameter with the next mark behind it, and the name of an
    argument no double quotes; the other versions carry all JSON arguments.

    Args:
        version: "v3" (also R1), "v3.1", or "v3.2"; what is written and what the model is told to write. V3.1
            is the newest whose models come with a chat template.

    Raises:
        UnknownName: no such version.
    """

    name = "deepseek"
    models = "DeepSeek-V3, DeepSeek-R1, R1-Distill, DeepSeek-V3.1, DeepSeek-V3.2"
    end_of_turn = ("<｜end▁of▁sentence｜>",)
    versions = ("v3", "v3.1", "v3.2")

    def __init__(self, version: str = "v3.1") -> None:
        self.version = version
        self.markers = (_DSML if version == "v3.2" else _SECTION,)
        self._mend = f"write {look_up('version', version, _FORMS)}"

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply, in whichever version it is written."""
        scanner = _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn)
        scanner.mend = self._mend
        return scanner.run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """One section with all calls."""
        return _CALLS[self.version](calls)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as the templates of the version print them."""
        functions = [tool.get("function", tool) for tool in tools]
        if self.version == "v3.1":
            listed = "\n\n".join(
                f"### {each['name']}\nDescription: {each.get('description', '')}\n\n"
                f"Parameters: {json.dumps(each.get('parameters', {}), ensure_ascii=False)}"
                for each in functions
            )
        elif self.version == "v3":
            listed = "\n".join(f"```json\n{json.dumps(tool, ensure_ascii=False)}\n```" for tool in tools)
        else:
            lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in functions)
            listed = f"<functions>\n{lines}\n</functions>"
        return f"## Tools\n\n{listed}\n\nTo call tools, {self._mend}"

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result between marks of its own."""
        contents = [result["content"] for result in results]
        if self.version == "v3.2":
            lines = "\n".join(f"<result>{content}</result>" for content in contents)
            return f"<function_results>\n{lines}\n</function_results>"
        outputs = [f"<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>" for content in contents]
        if self.version == "v3.1":
            return "".join(outputs)
        return "<｜tool▁outputs▁begin｜>" + "\n".join(outputs) + "<｜tool▁outputs▁end｜>"

    def neutralise(self, text: str) -> str:
        """The text with a space in all that could be taken for a turn, a call or another result."""
        text = defuse(text)
        return _FORGED_RESULT.sub("< ", text) if self.version == "v3.2" else text


def _v3(calls: Sequence[ToolCall]) -> str:
    written = (
        f"{_CALL}function{_SEP}{call.name}\n```json\n{_json(call.arguments)}\n```{_CALL_END}"
        for call in calls
    )
    return _SECTION + "\n".join(written) + _SECTION_END


def _v31(calls: Sequence[ToolCall]) -> str:
    written = (f"{_CALL}{call.name}{_SEP}{_json(call.arguments)}{_CALL_END}" for call in calls)
    return _SECTION + "".join(written) + _SECTION_END


def _v32(calls: Sequence[ToolCall]) -> str:
    written = (f'{_INVOKE} name="{call.name}">\n{_parameters(call)}\n{_INVOKE_END}' for call in calls)
    return "\n".join((_DSML, *written, _DSML_END))


def _parameters(call: ToolCall) -> str:
    return "\n".join(
        f'{_PARAMETER} name="{key}" string="true">{value}{_PARAMETER_END}'
        if isinstance(value, str)
        else f'{_PARAMETER} name="{key}" string="false">{_json(value)}{_PARAMETER_END}'
        for key, value in call.arguments.items()
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_CALLS: dict[str, Callable[[Sequence[ToolCall]], str]] = {"v3": _v3, "v3.1": _v31, "v3.2": _v32}
_FORMS = {
    "v3": f"{_SECTION}{_CALL}function{_SEP}NAME\n```json\n{{...}}\n```{_CALL_END}{_SECTION_END}",
    "v3.1": f"{_SECTION}{_CALL}NAME{_SEP}{{...}}{_CALL_END}{_SECTION_END} with JSON for {{...}}",
    "v3.2": (
        f'{_DSML}\n{_INVOKE} name="NAME">\n'
        f'{_PARAMETER} name="KEY" string="true|false">VALUE{_PARAMETER_END}\n'
        f'{_INVOKE_END}\n{_DSML_END} with string="true" for plain text and string="false" for JSON'
    ),
}
"""How the model is told to write a call."""


class _Scanner(SectionScanner):
    openers = re.compile("|".join(mark if mark[-1] == ">" else rf"{mark}(?=\s)" for mark in _MARKS))
    marks = _MARKS
    call_end = _CALL_END
    _closing = -1
    """Where the next end of a text parameter stands, kept since a search for it may pass the whole reply."""

    def read(self, opener: re.Match[str]) -> None:
        dsml = self.kind(opener) == "section" and opener.group() != _SECTION
        if dsml and self.content[-1].endswith("\n\n"):
            self.content[-1] = self.content[-1][:-2]  # the two line breaks belong to the section
        super().read(opener)

    def read_call(self, start: int) -> None:
        if self.text.endswith(_INVOKE, 0, self.position):
            self._read_invoke(start)
            return
        header = _HEADER.match(self.text, self.position)
        if header is None:
            fault = f"the tool call does not begin with the name of a tool and {_SEP}"
            self.give_up(CallFault.NO_NAME, fault, start, self.position)
        elif header["fenced"] and header["first"] != "function":
            fault = f'the type of a tool call is "function", not "{defuse(header["first"][:40])}"'
            self.give_up(CallFault.SYNTAX, fault, start, header.end())
        elif header["fenced"]:
            self.json_call(start, header.end(), header["fenced"], fence="```")
        else:
            self.json_call(start, header.end(), header["first"])

    def _read_invoke(self, start: int) -> None:
        invoked = _INVOKED.match(self.text, self.position)
        if invoked is None:
            self.give_up(CallFault.NO_NAME, f'{_INVOKE} has no name="..."', start, self.position)
            return
        parameters = parameters_of(self.tools, invoked["name"])
        arguments: dict[str, Any] = {}
        repairs: dict[str, None] = {}
        at = self.skip(invoked.end())
        while given := _GIVEN.match(self.text, at):
            try:
                value, end, found = self._parameter(given, parameters)
                if given["key"] in arguments:
                    raise ValueError("it is given twice")
            except ValueError as error:
                fault = f'the parameter "{defuse(given["key"][:40])}" cannot be read: {error}'
                self.give_up(CallFault.SYNTAX, fault, start, given.end())
                return
            arguments[given["key"]] = value
            repairs |= dict.fromkeys(found)
            at = self.skip(end)
        if not self.text.startswith(_INVOKE_END, at):
            fault = f'{_PARAMETER} name="..." string="..."> or {_INVOKE_END} was expected'
            self.give_up(CallFault.SYNTAX, fault, start, at)
            return
        self.accept(invoked["name"], arguments, repairs=self.place_repairs(tuple(repairs)))
        self.position = at + len(_INVOKE_END)
        self.done()

    def _parameter(self, given: re.Match[str], parameters: Schema) -> tuple[Any, int, tuple[str, ...]]:
        """The value of a parameter, the place behind its closing mark, and the repairs that it took."""
        if given["string"] == "true":
            return (*self._text(given.end()), ())
        if given["string"] == "false":
            return self._json_value(given.end())
        if not self.repair:
            raise ValueError('string="true" or string="false" is missing')
        text, end = self._text(given.end())
        value, repairs = typed(text, argument_schema(parameters, given["key"]), parameters)
        return value, end, ("string_attribute", *repairs)

    def _json_value(self, at: int) -> tuple[Any, int, tuple[str, ...]]:
        start = self.skip(at)
        try:
            value, end, repairs = self.value(start)
        except ValueError as error:
            if self.repair:
                return (*self._text(at), ("string_attribute",))
            raise ValueError(f"it is not valid JSON, {json_fault(error, start)}") from None
        end = self.skip(end)
        if not self.text.startswith(_PARAMETER_END, end):
            raise ValueError(f"text follows its JSON where {_PARAMETER_END} should stand")
        return value, end + len(_PARAMETER_END), repairs

    def _text(self, at: int) -> tuple[str, int]:
        if self._closing < at:
            found = _TEXT_END.search(self.text, at)
            self._closing = found.start() if found else len(self.text)
        if self._closing == len(self.text):
            raise ValueError(f"{_PARAMETER_END} is missing")
        return self.text[at : self._closing], self._closing + len(_PARAMETER_END)
