"""Code as the call: ReTool's ``<code>``, or fenced Python as models write it without being taught.

The whole text is one argument of one tool. A fence ends at a line of as many backticks, so that the closing
tag in a string of the code is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

from agent_r1_env.errors import unknown_name
from agent_r1_env.formats.coercion import parameters_of, text_argument
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.messages import CallFault, ToolCall

Style = Literal["tags", "fences"]

_LONGEST_FENCE = 10
_FENCE = rf"(?P<fence>`{{3,{_LONGEST_FENCE}}})"
_INNER = re.compile(rf"\s*{_FENCE}[ \t]*(?:python3?|py)?[ \t]*\n", re.IGNORECASE)
_FORGEABLE = re.compile(r"<(?=/?(?:code|interpreter|answer)>)|`(?=``)", re.IGNORECASE)
_MARGIN = re.compile(r"\s*\n")
_TICKS = re.compile(r"`{3,}")


class CodeBlock(Format):
    """Reads and writes code blocks. They carry one text, not blank and without ten backticks in a row.

    Args:
        style: "tags": ``<code>`` and results in ``<interpreter>``; "fences": blocks of ```` ```python ````,
            at the beginnings of lines, and results in ```` ```output ````.
        tool: what runs the code; by default the tool whose only, or only required, argument is the text
            ``argument``, else "python".
        argument: its argument.

    Raises:
        UnknownName: no such style.
    """

    name = "code_block"
    models = "ReTool and others, by a warm start or a prompt"
    end_of_turn = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")

    def __init__(self, style: Style = "tags", tool: str | None = None, argument: str = "code") -> None:
        if style not in get_args(Style):
            raise unknown_name("style", style, get_args(Style), "format 'code_block'")
        self.style, self.tool, self.argument = style, tool, argument
        tags = style == "tags"
        self.stop = ("</code>", "</answer>", "<interpreter>") if tags else ("```output", "</answer>")
        # Models write fenced Python for people, too.
        self.markers = ("<code>",) if tags else ()

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply."""
        made = _Tags if self.style == "tags" else _Fences
        scanner = made(reply, tools, repair=repair, end_of_turn=self.end_of_turn)
        scanner.tool, scanner.argument = self._tool_of(tools), self.argument
        return scanner.run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call as a block; one that has other arguments as the Python expression that would make it."""
        return "\n".join(self._block(_code(call, self.argument)) for call in calls)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tool that runs the code, and how to call it; the others are out of reach, and left out."""
        name = self._tool_of(tools)
        functions = [tool.get("function", tool) for tool in tools]
        lines = [json.dumps(each, ensure_ascii=False) for each in functions if each["name"] == name]
        results = "<interpreter></interpreter>" if self.style == "tags" else "a block of ```output"
        return "\n".join(
            [
                "You can run Python code. The tool that runs it, described as JSON Schema:",
                *lines,
                "",
                f"To run code, write it like this as its {self.argument!r} and end your reply there:",
                self._block("print(1 + 1)"),
                f"What it prints is given to you in {results}.",
            ]
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result in a block of its own."""
        before, after = ("<interpreter>", "</interpreter>") if self.style == "tags" else ("```output", "```")
        return "\n".join(f"{before}\n{result['content']}\n{after}" for result in results)

    def neutralise(self, text: str) -> str:
        """Besides what all formats break, the tags of this one and fences, whichever of them it uses."""
        return _FORGEABLE.sub(lambda match: f"{match.group()} ", defuse(text))

    def _tool_of(self, tools: Sequence[ToolSchema]) -> str:
        if self.tool is not None:
            return self.tool
        names = [str(tool.get("function", tool).get("name")) for tool in tools]
        takes_code = (name for name in names if text_argument(parameters_of(tools, name)) == self.argument)
        return next(takes_code, "python")

    def _block(self, code: str) -> str:
        fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(code))])
        block = f"{fence}python\n{code}\n{fence}"
        return f"<code>\n{block}\n</code>" if self.style == "tags" else block


def _code(call: ToolCall, argument: str) -> str:
    code = call.arguments.get(argument)
    if len(call.arguments) == 1 and isinstance(code, str):
        return code
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


@lru_cache(maxsize=32)
def _closing_fence(length: int, behind: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*`{{{length},}}{behind}", re.MULTILINE)


class _Blocks(Scanner):
    """What both styles share.

    Attributes:
        tool, argument: what the code is handed to.
        behind: what stands behind the fence that closes a block, as a pattern.
        result: what holds a result, for the model.
    """

    tool: str
    argument: str
    behind: str
    result: str
    _none_from = _LONGEST_FENCE + 1  # from here on, no fence as long as this or longer is closed

    def _fenced(self, opening: re.Match[str]) -> tuple[str, int] | None:
        """The code behind an opening fence, and the place behind the block; None if it is not closed."""
        length = len(opening["fence"])
        closing = None
        if length < self._none_from:
            closing = _closing_fence(length, self.behind).search(self.text, opening.end())
        if closing is None:
            self._none_from = min(length, self._none_from)
            return None
        return self.text[opening.end() : closing.start()].removesuffix("\n"), closing.end()

    def _take_code(self, code: str, start: int, end: int, repairs: Sequence[str] = ()) -> None:
        if code.strip():
            self.accept(self.tool, {self.argument: code}, repairs=repairs)
            self.position = end
        else:
            self.fail(CallFault.NO_ARGUMENTS, "the block holds no code", start, end)

    def _pass_result(self, start: int, end: int) -> None:
        known = self.attempts or self.text.find("</answer>", self._draft_end, start) >= 0
        fault = f"{self.result} comes from a tool, and no code stands before it"
        self.invented(start, end, "" if known else fault)


class _Tags(_Blocks):
    openers = re.compile(r"<code>|(?P<closed></code>)|(?P<result><interpreter>)")
    mend = "write the code between <code> and </code>"
    behind = r"\s*</code>"
    result = "what stands in <interpreter>"

    def read(self, opener: re.Match[str]) -> None:
        start = opener.start()
        if opener["closed"]:
            self.fail(CallFault.STRAY, "a </code> stands without its <code>", start, opener.end())
        elif opener["result"]:
            self._pass_result(start, opener.end())
        elif (fence := _INNER.match(self.text, self.position)) and (block := self._fenced(fence)):
            self._take_code(block[0], start, block[1])
        else:
            self._read_bare(start, fence)

    def _read_bare(self, start: int, fence: re.Match[str] | None) -> None:
        """Read code without a fence, or with one that is never closed."""
        end = self.ahead("</code>")
        limit = len(self.text) if end < 0 else end
        drafted = min((at for tag in self.reasoning if 0 <= (at := self.ahead(tag)) < limit), default=None)
        if end < 0 or drafted is not None:
            kind = CallFault.INCOMPLETE if drafted is None else CallFault.SYNTAX
            fault = "<code> is not closed by </code>"
            self.fail(kind, fault, start, limit if drafted is None else drafted)
        elif fence is None:
            self._take_code(_trimmed(self.text[self.position : end]), start, end + len("</code>"))
        elif self.repair and self.text[fence.end() : end].rstrip(" \t").endswith("\n"):
            code = self.text[fence.end() : end].rstrip()
            self._take_code(code, start, end + len("</code>"), ["code_fence"])
        else:
            fault = f"the fence in <code> is not closed by a line of {fence['fence']}"
            self.fail(CallFault.SYNTAX, fault, start, end + len("</code>"))


def _trimmed(code: str) -> str:
    """Code without blank lines around it; the indentation of a line of its own stays."""
    margin = _MARGIN.match(code)
    return (code[margin.end() :] if margin else code.lstrip()).rstrip()


class _Fences(_Blocks):
    openers = re.compile(
        rf"^[ \t]*{_FENCE}(?i:python3?|py|(?P<result>output))[ \t]*(?:\r?\n|\Z)", re.MULTILINE
    )
    mend = "write the code in a block that begins with a line of ```python and ends with a line of ```"
    behind = r"[ \t\r]*$"
    result = "a block of ```output"

    def read(self, opener: re.Match[str]) -> None:
        if opener["result"]:
            self._pass_result(opener.start(), opener.end())
        elif block := self._fenced(opener):
            self._take_code(block[0], opener.start(), block[1])
        else:
            fault = f"the block is not closed by a line of {opener['fence']}"
            self.fail(CallFault.INCOMPLETE, fault, opener.start(), len(self.text))
