"""The XML-like wire format of Qwen3-Coder, Qwen3.5 and Qwen3.6.

Nothing in it is escaped, so a value may hold the very tags that end it. A call is therefore read first as one
in which every tag is closed: a closing tag counts only where a tag follows that may, and a call that a value
quotes is skipped whole. Only if that fails, it is read as one in which closing tags are missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from agent_r1_env.formats.coercion import argument_schema, parameters_of, typed_arguments, written
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn, in_tools_tags
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.formats.tags import END, Fault, TagScanner
from agent_r1_env.messages import CallFault, ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _PARAMETER = "function=", "parameter="
_BLOCK, _BLOCK_END, _FUNCTION_END, _PARAMETER_END = "tool_call", "/tool_call", "/function", "/parameter"
_ENDS = {
    _BLOCK: (_FUNCTION,),
    _FUNCTION: (),
    _FUNCTION_END: (_BLOCK_END, _BLOCK, _FUNCTION, END),
    _BLOCK_END: (_BLOCK, END),
}
"""What tells that a tag is none of the value that it stands in: what follows it."""
_EXAMPLE = """<tool_call>
<function=name of the function>
<parameter=name of a parameter>
its value
</parameter>
</function>
</tool_call>"""


class Qwen3Coder(Format):
    """Reads and writes the calls of Qwen3-Coder and its successors.

    It cannot carry a text that reads as another type that the schema allows, nor "null" anywhere; a text with
    tags of this format that do not stand there in pairs; a value that is no text where the schema leaves the
    type open; and a parameter whose name holds ``<``, ``>`` or a line break.
    """

    name = "qwen3_coder"
    models = "Qwen3-Coder, Qwen3.5, Qwen3.6"
    end_of_turn = ("<|im_end|>", "<|endoftext|>")
    markers = ("<function=",)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply. What the family's own parser mends is read without ``repair`` too."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call in a block of its own, each value between line breaks."""
        return "\n".join(_rendered(call) for call in calls)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as lines of JSON in ``<tools>``."""
        return (
            f"{in_tools_tags(tools)}\n\n"
            "To call a function, write its name and its parameters in this form, with nothing behind:\n"
            f"{_EXAMPLE}\n\n"
            "A value may run over several lines; objects and arrays are written as JSON. Every required "
            "parameter must be given. Several calls are several blocks, one after another."
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result in ``<tool_response>``."""
        return "\n".join(f"<tool_response>\n{result['content']}\n</tool_response>" for result in results)


def _rendered(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{written(value)}\n</parameter>\n" for name, value in call.arguments.items()
    )
    return f"{_OPEN}\n<function={call.name}>\n{parameters}</function>\n{_CLOSE}"


class _Body(NamedTuple):
    """What stands in a function.

    Attributes:
        parameters: the name of each, and where its value begins and ends.
        last: the index of the tag that ends the function.
        unclosed: whether closing tags are missing.
    """

    parameters: list[tuple[str, int, int]]
    last: int
    unclosed: bool


class _Value(NamedTuple):
    """The end of a value, the index of the tag that comes next, and where that must stand."""

    end: int
    then: int
    here: int
    unclosed: bool = False


class _Scanner(TagScanner):
    openers = re.compile(r"<(?:/?tool_call>|function=|/parameter>\s*</function>(?:\s*</tool_call>)?)")
    mend = (
        "write <tool_call>, <function=NAME>, each parameter as <parameter=NAME>value</parameter>, "
        "</function> and </tool_call>"
    )
    tag = re.compile(r"<((?:/?tool_call|/parameter|/function)(?=>)|(?:parameter|function)=)([^<>\n]*)>\s*")

    def read(self, opener: re.Match[str]) -> None:
        start, text = opener.start(), opener.group()
        if text == _OPEN:
            self._read_function(start, self.skip(self.position), wrapped=True)
        elif text == f"<{_FUNCTION}":
            self._read_bare(start)
        else:
            stray, opening = (_CLOSE, _OPEN) if text == _CLOSE else ("</function>", "<function=NAME>")
            self.fail(CallFault.STRAY, f"a {stray} stands without its {opening}", start, self.position)

    def _read_bare(self, start: int) -> None:
        """Read a function without its ``<tool_call>``; in the middle of a line only if there is no doubt."""
        index = self.found.behind(start)
        certain = self.found[index].start == start and self.next_kind(index) in (_PARAMETER, _FUNCTION_END)
        if not certain and not self.begins_line(start):
            self.content.append(self.text[start : self.position])
            return
        self._read_function(start, start, wrapped=False)

    def _read_function(self, start: int, at: int, *, wrapped: bool) -> None:
        """Read the function that must stand at ``at``, and the end of its block if it is followed by that."""
        index = self.found.behind(at)
        if self.found[index].kind != _FUNCTION or self.found[index].start != at:
            self.give_up(start, Fault(self._no_function(at), index))
            return
        name, body = self.found[index].name.strip(), self._body(index, wrapped)
        if isinstance(body, Fault):
            self.give_up(start, body)
            return
        values = ((key, _unwrapped(self.text, first, end)) for key, first, end in body.parameters)
        arguments, repairs = typed_arguments(values, parameters_of(self.tools, name), null_word=True)
        self.accept(name, arguments, None, (*repairs, *(("unclosed_tag",) if body.unclosed else ())))
        last = self.found[body.last]
        if last.kind == _FUNCTION_END and self.next_kind(body.last) == _BLOCK_END:
            last = self.found[body.last + 1]
        self.position = last.end

    def _no_function(self, at: int) -> str:
        if self.text.startswith("<function=", at):
            return "the tag <function=...> is not closed by >"
        return f"{_OPEN} must be followed by <function=NAME>"

    # -- the body of a function

    def _body(self, index: int, wrapped: bool) -> _Body | Fault:
        name = self.found[index].name.strip()
        body = self._closed_body(index, wrapped) or self._open_body(index, parameters_of(self.tools, name))
        if isinstance(body, _Body) and not name:
            return Fault("<function=> names no function", body.last, CallFault.NO_NAME)
        return body

    def _closed_body(self, index: int, wrapped: bool) -> _Body | None:
        """The body of a function in which every tag is closed, or None."""
        parameters: list[tuple[str, int, int]] = []
        while (kind := self.next_kind(index)) == _PARAMETER:
            end = self._closing(index + 1, wrapped)
            if end is None:
                return None
            tag = self.found[index + 1]
            parameters.append((tag.name, tag.end, self.found[end].start))
            index = end
        return _Body(parameters, index + 1, False) if kind == _FUNCTION_END else None

    def _closing(self, index: int, wrapped: bool) -> int | None:
        """The index of the tag that closes the parameter at ``index``, or None if there is none."""
        quoted = 0
        while (kind := self.found[index + 1].kind) != END and self.patience:
            self.patience -= 1
            index += 1
            if kind == _PARAMETER and self._is_quoted(index):
                quoted += 1
            elif kind == _PARAMETER_END and quoted:
                quoted -= 1
            elif kind == _PARAMETER_END and self._may_close(index, wrapped):
                return index
        return None

    def _may_close(self, index: int, wrapped: bool) -> bool:
        """Whether behind the ``</parameter>`` at ``index`` stands what may."""
        kind = self.next_kind(index)
        if kind == _FUNCTION_END and wrapped:
            return self.next_kind(index + 1) in (_BLOCK_END, _FUNCTION, END)
        return kind in (_PARAMETER, _FUNCTION_END)

    def _is_quoted(self, index: int) -> bool:
        """Whether the ``<parameter=...>`` at ``index`` stands where one of a quoted call does."""
        before, tag = self.found[index - 1], self.found[index]
        follows = before.after == tag.start and before.kind in (_FUNCTION, _PARAMETER_END)
        return follows or self.begins_line(tag.start)

    def _open_body(self, index: int, parameters: ToolSchema) -> _Body | Fault:
        """The body of a function in which closing tags may be missing."""
        read: list[tuple[str, int, int]] = []
        seen: set[str] = set()
        here, unclosed = self.found[index].after, False
        index += 1
        while (tag := self.found[index]).kind == _PARAMETER and tag.start == here:
            seen.add(tag.name)
            value = self._open_value(index, seen, parameters)
            if isinstance(value, Fault):
                return value
            read.append((tag.name, tag.end, value.end))
            index, here, unclosed = value.then, value.here, unclosed or value.unclosed
        if tag.start == here and tag.kind in (_FUNCTION_END, _BLOCK_END):
            return _Body(read, index, unclosed or tag.kind == _BLOCK_END)
        return Fault("only <parameter=NAME>value</parameter> may stand in a function", index)

    def _open_value(self, start: int, seen: set[str], parameters: ToolSchema) -> _Value | Fault:
        """The end of a value whose closing tag may be missing; then it ends where a tag begins a line."""
        index = start + 1
        while (tag := self.found[index]).kind != END:
            following = self.next_kind(index)
            if tag.kind == _PARAMETER_END:
                if following not in ("", _PARAMETER_END):
                    return _Value(tag.start, index + 1, tag.after)
            elif tag.kind == _PARAMETER:
                known = not parameters or argument_schema(parameters, tag.name) is not None
                if known and tag.name not in seen and self.begins_line(tag.start):
                    return _Value(tag.start, index, tag.start, True)
            elif following in _ENDS[tag.kind] or self.begins_line(tag.start):
                if tag.kind == _FUNCTION_END:
                    return _Value(tag.start, index, tag.start, True)
                break
            index += 1
        name = defuse(self.found[start].name[:60])
        return Fault(f"<parameter={name}> is not closed by </parameter>", index)

    def end_of_attempt(self, index: int) -> int | None:
        tag = self.found[index]
        if tag.kind == _BLOCK or (tag.kind == _FUNCTION and self.begins_line(tag.start)):
            return tag.start
        if tag.kind == _FUNCTION_END and self.next_kind(index) == _BLOCK_END:
            return self.found[index + 1].end
        return tag.end if tag.kind in (_BLOCK_END, _FUNCTION_END) else None


def _unwrapped(text: str, start: int, end: int) -> str:
    """A value without the line break on either side, which belongs to the tags."""
    line_break = "\r\n" if text.startswith("\r\n", start, end) else "\n"
    value = text[start:end].removeprefix(line_break)
    return value.removesuffix(line_break)
