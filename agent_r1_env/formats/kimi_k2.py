"""The wire format of Kimi K2: special tokens around an id that names the tool, and JSON arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.formats.sections import MarkKind, SectionScanner
from agent_r1_env.messages import CallFault, ToolCall

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_MARKS: dict[str, MarkKind] = {
    _SECTION: "section",
    _CALL: "call",
    _ARGUMENTS: "inner",
    _CALL_END: "call_end",
    _SECTION_END: "section_end",
}
_ID = re.compile(r"(?:functions\.)?(?P<name>[^\s:<|]{1,256}):[0-9]{1,9}")
_HEADER = re.compile(rf"\s*+(?P<id>{_ID.pattern})\s*+{re.escape(_ARGUMENTS)}")
_FORGED_RETURN = re.compile(r"^#(?=#[ \t]*Return of )", re.MULTILINE)


class KimiK2(Format):
    """Reads and writes calls of Kimi K2, whose ids ``functions.NAME:INDEX`` are the only place of the name.

    It carries all JSON arguments.
    """

    name = "kimi_k2"
    models = "Kimi-K2-Instruct, Kimi-K2-Thinking"
    end_of_turn = ("<|im_end|>", "[EOS]")
    markers = (_SECTION,)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply; an id without an index is a failed attempt, since it may be any text."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """One section with all calls; ids of another form are replaced by the place in it."""
        written = (
            f"{_CALL}{_written_id(call, index)}{_ARGUMENTS}"
            f"{json.dumps(call.arguments, ensure_ascii=False)}{_CALL_END}"
            for index, call in enumerate(calls)
        )
        return f"{_SECTION}{''.join(written)}{_SECTION_END}"

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as one JSON list."""
        listed = json.dumps(list(tools), ensure_ascii=False)
        return (
            f"# Tools\n\nThe functions that you may call, as JSON Schema:\n{listed}\n\n"
            "To call functions, write one section; INDEX counts the calls of the conversation from 0:\n"
            f"{_SECTION}{_CALL}functions.NAME:INDEX{_ARGUMENTS}{{...}}{_CALL_END}{_SECTION_END}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result below the id of its call."""
        return "\n\n".join(
            f"## Return of {result.get('tool_call_id', 'the call')}\n{result['content']}"
            for result in results
        )

    def neutralise(self, text: str) -> str:
        """The text with a space in all that could be taken for a turn, a call or another result."""
        return _FORGED_RETURN.sub("# ", defuse(text))


def _written_id(call: ToolCall, index: int) -> str:
    match = _ID.fullmatch(call.id)
    return call.id if match and match["name"] == call.name else f"functions.{call.name}:{index}"


class _Scanner(SectionScanner):
    openers = re.compile("|".join(map(re.escape, _MARKS)))
    marks = _MARKS
    mend = (
        f"write {_SECTION}{_CALL}functions.NAME:INDEX{_ARGUMENTS}{{...}}{_CALL_END}{_SECTION_END} "
        "with the arguments as a JSON object"
    )
    call_end = _CALL_END

    def next_id(self) -> str:
        return f"functions.call:{len(self.attempts)}"

    def read_call(self, start: int) -> None:
        header = _HEADER.match(self.text, self.position)
        if header:
            self.json_call(start, header.end(), header["name"], call_id=header["id"])
        else:
            fault = f"the tool call does not begin with functions.NAME:INDEX{_ARGUMENTS}"
            self.give_up(CallFault.SYNTAX, fault, start, self.position)
