"""The wire formats of Functionary: JSON in function tags (v3.1), and recipients on lines of their own (v3.2).

In v3.2 the prompt ends in ``>>>``, so that a reply begins with the name of a tool, or with ``all`` for the
user.
Code for the tool ``python`` stands bare in both: behind ``<|python_tag|>``, or behind its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property

from agent_r1_env.errors import look_up
from agent_r1_env.formats.coercion import parameters_of, text_argument
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.formats.typescript import namespace
from agent_r1_env.messages import CallFault, ToolCall

FUNCTION_TAGS = r"<function=(?P<function>[^<>{}\s]*)(?P<whole>>)?|</function>(?P<stray>)"
"""Matches the opening tag of a function, the beginning of one, and a closing tag, for ``FunctionScanner``."""

_CLOSE = "</function>"
_TAG = re.compile(r"<function=|</function>")
_PYTHON_TAG = "<|python_tag|>"
_RECIPIENT = r"(?P<recipient>[A-Za-z0-9_.-]{1,128})[ \t]*(?:(?P<line>\r?\n)|\Z)"
_FIRST = re.compile(rf"\s*+{_RECIPIENT}")
_NEXT = re.compile(rf">>>{_RECIPIENT}")
_FORMS = {
    "v3.1": "<function=NAME>{...}</function>",
    "v3.2": ">>>NAME, a line break and {...}",
}


class Functionary(Format):
    """Reads the calls of both versions, and writes those of one.

    V3.2 cannot carry a call of a tool named ``all``; all else is carried.

    Args:
        version: "v3.1" or "v3.2"; what is written and what the model is told to write.

    Raises:
        UnknownName: no such version.
    """

    name = "functionary"
    models = "Functionary v3.1, Functionary v3.2"
    versions = tuple(_FORMS)
    end_of_turn = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

    def __init__(self, version: str = "v3.1") -> None:
        self.version = version
        self._mend = f"write {look_up('version', version, _FORMS)} with the arguments as a JSON object"
        self.markers = ("<function=",) if version == "v3.1" else ()

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply, in whichever version it is written.

        A recipient is the name of one of the tools, or any name behind ``>>>`` or without tools at hand, if a
        JSON object stands on the next line.
        """
        scanner = _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn)
        scanner.mend = self._mend
        return scanner.run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The calls one behind the other; the first ``>>>`` of v3.2 belongs to the prompt."""
        written = [(call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in calls]
        if self.version == "v3.1":
            return "".join(f"<function={name}>{arguments}{_CLOSE}" for name, arguments in written)
        return ">>>".join(f"{name}\n{arguments}" for name, arguments in written)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as the templates of the version print them."""
        if self.version == "v3.2":
            return (
                "These functions can be called:\n\n"
                f"{namespace('functions', tools)}\n\n"
                "The first line of a reply is the name of the one it is for: a function, or all for the "
                "user. Below it stands the text for the user, or one JSON object with the arguments. "
                f"To call a function after that, write {_FORMS['v3.2']}."
            )
        functions = [tool.get("function", tool) for tool in tools]
        listed = "\n\n".join(
            f"Function {each['name']}: {each.get('description', '')}\n{json.dumps(each, ensure_ascii=False)}"
            for each in functions
        )
        return f"These functions can be called:\n\n{listed}\n\nTo call one, {self._mend}, all on one line."

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result under the name of its tool."""
        return "\n\n".join(
            f"Result of {result.get('name') or 'the call'}:\n{result['content']}" for result in results
        )


class FunctionScanner(Scanner):
    """Reads ``<function=NAME>{...}</function>``, which more than one family writes."""

    def read_function(self, opener: re.Match[str]) -> None:
        """Read what begins at a match of ``FUNCTION_TAGS``."""
        start = opener.start()
        if opener["stray"] is not None:
            self.fail(CallFault.STRAY, f"a {_CLOSE} stands without its <function=...>", start, opener.end())
        elif not opener["function"] or not opener["whole"]:
            fault = "the opening tag is not written as <function=NAME>"
            self._fail_function(CallFault.SYNTAX, fault, start)
        else:
            self.read_calls(opener["function"], start, _CLOSE)

    def read_calls(self, name: str, start: int, closing: str = "") -> None:
        """Read the JSON objects that stand here, each the arguments of one call.

        Args:
            closing: the tag that ends them, unless the reply does; "" if any text may follow.
        """
        at = self.skip(self.position)
        while not self.full:
            try:
                value, end, repairs = self.value(at)
            except ValueError as error:
                self._fail_arguments(error, start, at, closing)
                return
            after = self.skip(end)
            more = self.text.startswith("{", after)
            if closing and self.text.startswith(closing, after):
                end = after + len(closing)
            elif closing and after < len(self.text) and not more:
                self._fail_function(CallFault.SYNTAX, f"text follows where {closing} should stand", start)
                return
            self.call(name, value, start, end, repairs=repairs)
            if not more:
                return
            start = at = after

    def _fail_arguments(self, error: ValueError, start: int, at: int, closing: str) -> None:
        if at >= len(self.text):
            self.fail(CallFault.INCOMPLETE, "the reply ends before the arguments do", start, at)
            return
        opened = self.text[at] == "{" and self.lenient.after_bracket(at) is None
        kind = CallFault.INCOMPLETE if opened or is_cut(error, self.text) else CallFault.SYNTAX
        fault = f"the arguments are not valid JSON: {json_fault(error, at)}"
        if closing:
            self._fail_function(kind, fault, start)
        else:
            self.fail(kind, fault, start, self.next_recipient())

    def next_recipient(self) -> int:
        """Where the next recipient is named, or the text ends that one may be named in."""
        following = _NEXT.search(self.text, self.position, self.rest())
        return following.start() if following else self.rest()

    def _fail_function(self, kind: CallFault, fault: str, start: int) -> None:
        """Give up on a function: it ends at its closing tag, at the next opening one, or with the reply."""
        match = _TAG.search(self.text, self.position, self.rest())
        if match is None:
            self.fail(CallFault.INCOMPLETE, f"{fault}, and {_CLOSE} is missing", start, self.rest())
        else:
            self.fail(kind, fault, start, match.end() if match.group() == _CLOSE else match.start())


class _Scanner(FunctionScanner):
    openers = re.compile(rf"{FUNCTION_TAGS}|<\|python_tag\|>(?P<code>)|>>>{_RECIPIENT}")

    @cached_property
    def _names(self) -> set[str]:
        return {tool.get("function", tool)["name"] for tool in self.tools}

    def run(self) -> ParsedReply:
        """Read the whole reply, at whose beginning the prompt left a recipient to be written."""
        if opener := _FIRST.match(self.text):
            self.position = opener.end()
            self._read_recipient(opener, marked=False)
        return super().run()

    def read(self, opener: re.Match[str]) -> None:
        if opener["recipient"]:
            self._read_recipient(opener, marked=True)
        elif opener["code"] is not None:
            self._read_code(opener.start(), self.rest())
        else:
            self.read_function(opener)

    def _read_recipient(self, opener: re.Match[str], *, marked: bool) -> None:
        recipient, start, line = opener["recipient"], opener.start(), opener["line"]
        has_object = self.text.startswith("{", self.skip(self.position))
        known = recipient in self._names and (line or marked)
        if recipient == "all" and line:
            return
        if recipient == "python" and line and not has_object and (known or not self._names):
            self._read_code(start, self.next_recipient())
        elif known or has_object and (marked or not self._names):
            self.read_calls(recipient, start)
        else:
            self.content.append(opener.group())
            return
        if self.text.startswith(">>>", after := self.skip(self.position)):
            self.position = after

    def _read_code(self, start: int, end: int) -> None:
        """Take bare code for the tool ``python``."""
        argument = text_argument(parameters_of(self.tools, "python")) if self.tools else "code"
        if argument is None:
            fault = "code can only be run by a tool named python that takes a text"
            self.fail(CallFault.SYNTAX, fault, start, end)
        elif self.skip(self.position) >= end:
            self.fail(CallFault.INCOMPLETE, "the reply ends before the code does", start, end)
        else:
            self.accept("python", {argument: self.text[self.position : end]})
            self.position = end
