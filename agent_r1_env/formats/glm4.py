"""The wire formats of GLM: names and values in tags from GLM-4.5 on, and a name above JSON before.

Nothing in the tags is escaped, so a value may hold the very tags that end it: a closing tag counts only where
a tag follows that may, and arguments that a value quotes are skipped whole.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from agent_r1_env.formats.coercion import parameters_of, typed_arguments, written
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn, in_tools_tags
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.formats.tags import END, Fault, TagScanner
from agent_r1_env.messages import CallFault, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY, _KEY_END, _VALUE, _VALUE_END = "arg_key", "/arg_key", "arg_value", "/arg_value"
_CALL, _CALL_END = "tool_call", "/tool_call"
_NAME = re.compile(r"[^\s<>{}\[\]\"']+")
_PLAIN = re.compile(r"\s*([A-Za-z0-9_.-]{1,64})[ \t]*\n\s*(?=\{)")
_OBSERVATION = "<|observation|>"
_EXAMPLE = """<tool_call>name of the function
<arg_key>name of an argument</arg_key>
<arg_value>its value</arg_value>
</tool_call>"""


class Glm4(Format):
    """Reads both forms of GLM-4.5 and later and that of GLM-4-9B, and writes the one of GLM-4.5 and 4.6.

    It cannot carry a text that reads as another type that the schema allows; a text with tags of this format
    that do not stand there in pairs; a value that is no text where the schema leaves the type open; and an
    argument whose name begins or ends with white space.
    """

    name = "glm4"
    models = "GLM-4.5, GLM-4.6, GLM-4.7, GLM-4-9B"
    end_of_turn = (_OBSERVATION, "<|user|>", "<|endoftext|>")
    markers = ("<arg_key>",)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply. Around calls, the content is stripped.

        The form of GLM-4-9B has no marks. It is read only where the whole reply is a name and a JSON object,
        and the name is that of a tool or the model asked for the observation.
        """
        scanner = _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn)
        scanner.asks = _OBSERVATION in reply[len(scanner.text) :]
        parsed = scanner.run()
        return dataclasses.replace(parsed, content=parsed.content.strip()) if parsed.attempts else parsed

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call in a block of its own, each name and value in a line of its own."""
        return "\n".join(_rendered(call) for call in calls)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as lines of JSON in ``<tools>``."""
        return (
            f"{in_tools_tags(tools)}\n\n"
            "To call a function, write its name and its arguments in this form:\n"
            f"{_EXAMPLE}\n\n"
            "Text is written as it is, every other value as JSON. Several calls are several blocks."
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result in ``<tool_response>``."""
        return "\n".join(f"<tool_response>\n{result['content']}\n</tool_response>" for result in results)


def _rendered(call: ToolCall) -> str:
    arguments = "".join(
        f"<arg_key>{name}</arg_key>\n<arg_value>{written(value)}</arg_value>\n"
        for name, value in call.arguments.items()
    )
    return f"{_OPEN}{call.name}\n{arguments}{_CLOSE}"


class _Scanner(TagScanner):
    openers = re.compile(r"<(?:/?tool_call|arg_key)>")
    tag = re.compile(r"<(/?(?:tool_call|arg_key|arg_value))()>\s*")
    mend = (
        "write <tool_call>, the name, for each argument <arg_key>NAME</arg_key> and "
        "<arg_value>value</arg_value>, and </tool_call>"
    )
    asks = False
    """Whether the reply ends with the token by which the model asks for the results of its calls."""

    def run(self) -> ParsedReply:
        parsed = super().run()
        start = len(self.text) - len(parsed.content)
        if parsed.attempts or not self.text.endswith(parsed.content):
            return parsed
        return self._read_plain(parsed, start)

    def read(self, opener: re.Match[str]) -> None:
        start, index = opener.start(), self.found.behind(self.position)
        if opener.group() == _CLOSE:
            self.fail(CallFault.STRAY, f"a {_CLOSE} stands without its {_OPEN}", start, self.position)
            return
        fault: Fault | None
        if opener.group() != _OPEN:
            fault = Fault(f"an <arg_key> stands without its {_OPEN}", index, CallFault.STRAY)
        else:
            fault = self._read_call(start, index)
        if fault is not None:
            self.give_up(start, fault)

    def _read_call(self, start: int, index: int) -> Fault | None:
        """Read the call whose first tag inside is at ``index``."""
        first = self.found[index]
        name = self.text[self.position : first.start].strip()
        if first.kind not in (_KEY, _CALL_END) or (name and not _NAME.fullmatch(name)):
            return Fault(f"{_OPEN} must be followed by the name of a function", index)
        if not name:
            return Fault("the tool call names no function", index, CallFault.NO_NAME)
        spans = []
        while self.found[index].kind == _KEY:
            end = self._value_end(index)
            if isinstance(end, Fault):
                return end
            key = self.text[self.found[index].end : self.found[index + 1].start].strip()
            spans.append((key, self.found[index + 2].end, self.found[end].start))
            index = end + 1
        values = ((key, self.text[at:end]) for key, at, end in spans)
        arguments, repairs = typed_arguments(values, parameters_of(self.tools, name))
        self.accept(name, arguments, None, repairs)
        self.position = self.found[index].end
        return None

    def _value_end(self, index: int) -> int | Fault:
        """The index of the tag that closes the value of the ``<arg_key>`` at ``index``."""
        if self.found[index + 1].kind != _KEY_END:
            return Fault("an <arg_key> is not closed by </arg_key>", index + 1)
        name = defuse(self.text[self.found[index].end : self.found[index + 1].start].strip()[:60])
        if self.next_kind(index + 1) != _VALUE:
            return Fault(f"the argument {name} is not followed by its <arg_value>", index + 2)
        end, quoted = index + 3, 0
        while (kind := self.found[end].kind) != END and self.patience:
            self.patience -= 1
            if kind == _VALUE and self._is_quoted(end):
                quoted += 1
            elif kind == _VALUE_END and quoted:
                quoted -= 1
            elif kind == _VALUE_END and self.next_kind(end) in (_KEY, _CALL_END):
                return end
            end += 1
        return Fault(f"the value of {name} is not closed by </arg_value>", index + 3)

    def _is_quoted(self, index: int) -> bool:
        """Whether the ``<arg_value>`` at ``index`` stands behind a whole ``<arg_key>``."""
        name = self.found[index - 2].kind == _KEY and self.found[index - 1].kind == _KEY_END
        return name and self.next_kind(index - 1) == _VALUE

    def end_of_attempt(self, index: int) -> int | None:
        tag = self.found[index]
        return {_CALL: tag.start, _CALL_END: tag.end}.get(tag.kind)

    def _read_plain(self, parsed: ParsedReply, start: int) -> ParsedReply:
        """Read the whole content as a name above a JSON object, where it is one."""
        match = _PLAIN.match(self.text, start)
        if match is None or not (self.asks or self._is_tool(match[1])):
            return parsed
        self.content.clear()
        try:
            value, end, repairs = self.value(match.end())
        except ValueError as error:
            kind = CallFault.INCOMPLETE if is_cut(error, self.text) else CallFault.SYNTAX
            fault = f"the arguments of {match[1]} are not valid JSON: {json_fault(error, match.end())}"
            self.fail(kind, fault, start, len(self.text))
        else:
            if self.skip(end) < len(self.text):
                return parsed
            self.call(match[1], value, start, end, repairs=repairs)
        return dataclasses.replace(parsed, content="".join(self.content), attempts=tuple(self.attempts))

    def _is_tool(self, name: str) -> bool:
        return any(tool.get("function", tool).get("name") == name for tool in self.tools)
