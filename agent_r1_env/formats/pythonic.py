"""Calls as a list in Python: Llama 3.2 and 4, ToolACE, and Gemma 3 with a template that asks for it.

Nothing is evaluated: arguments are read as literals. Since the list has no mark of its own, its place and the
names of the tools tell it from prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Any, NamedTuple

from agent_r1_env.formats.coercion import parameters_of
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.literals import CutOff, Reader
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.messages import CallError, CallFault, ToolCall

_END = "<|python_end|>"
_HEAD = re.compile(r"\s*(?P<name>[A-Za-z0-9_.-]+)\s*\(")
_PIECE = re.compile(r"[A-Za-z0-9_.-]*\s*\Z")
_FIRST_PIECE = re.compile(r"\[\s*(?P<name>[A-Za-z0-9_.-]*)\Z")
_KEY = r"[^\s=,()\[\]{}'\"*]++"
_KEYWORD = re.compile(rf"({_KEY})\s*=(?!=)")
_NAMED = re.compile(rf"\s*(?:\)|\*\*|{_KEY}\s*=(?!=))")
_PLAIN_KEY = re.compile(_KEY)
_CUT_KEY = re.compile(rf"(?:{_KEY}|\*)\s*\Z")
_WORD_END = re.compile(r"[\w)\]'\"]")
_CUT_LIST = "the reply ends before the list of calls does"
_MOST_PASSED = 500
"""Lists in prose that are looked at before no further one is: what bounds the time that they take."""
_FAULTS = {
    "raw_newline": r"a line break stands in a string, where \n should",
    "escape": r"a backslash in a string begins no escape; as a character it is written \\",
    "leading_zero": "a whole number begins with 0",
    "missing_comma": "a comma is missing between arguments",
}


class Pythonic(Format):
    """Reads and writes lists of calls in Python.

    All JSON arguments are carried; a key that cannot stand before ``=`` is written as ``**{"a key": value}``,
    which no model of these families was seen to write.
    """

    name = "pythonic"
    models = "Llama-3.2, Llama-4, ToolACE, Gemma-3 with a pythonic template"
    end_of_turn = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<end_of_turn>", "<|end_of_text|>")

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply.

        A value without a name is read where the tool takes exactly one argument ("positional_argument" in
        ``ToolCall.repairs``), and so are the words of JSON ("json_words"), with and without ``repair``.
        """
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """One list of all calls."""
        written = ", ".join(f"{call.name}({_written(call.arguments)})" for call in calls)
        return f"[{written}]" if calls else ""

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as indented JSON."""
        listed = json.dumps(list(tools), indent=4, ensure_ascii=False)
        return (
            f"These functions can be called, described as JSON:\n{listed}\n\n"
            "To call some of them, reply with a list of calls in Python and with nothing else. Give every "
            "argument by name, as a literal value:\n"
            "[first_function(name='a', number=1), second_function(flag=True)]"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result as a JSON object on a line of its own."""
        return "\n".join(json.dumps({"output": result["content"]}, ensure_ascii=False) for result in results)


def _written(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={value!r}" if _PLAIN_KEY.fullmatch(key) else f"**{ {key: value}!r}"
        for key, value in arguments.items()
    )


class _Intent(Enum):
    """Whether a list is meant as calls. A likely one is prose if it cannot be read."""

    NONE = auto()
    LIKELY = auto()
    SURE = auto()


class _Prose(Exception):
    """What seemed to be a list of calls is none."""


class Arguments(NamedTuple):
    """What stands between the brackets of a call.

    Attributes:
        end: the index just after the closing bracket.
        differences: how it differs from Python.
    """

    named: dict[str, Any]
    unnamed: list[Any]
    end: int
    differences: frozenset[str]


def read_arguments(reader: Reader, start: int) -> Arguments:
    """The arguments of the call whose bracket opens at ``start``.

    Raises:
        ValueError: they are no literals, or not written as Python asks for.
    """
    named: dict[str, Any] = {}
    unnamed: list[Any] = []
    reader.position = start + 1
    reader.differences = set()
    while (found := reader.peek()) != ")":
        if found == "*" and reader.text.startswith("**", reader.position):
            reader.position += 2
            _add(named, _spread(reader))
        elif keyword := _KEYWORD.match(reader.text, reader.position):
            reader.position = keyword.end()
            _add(named, {keyword[1]: reader.value()})
        elif _CUT_KEY.match(reader.text, reader.position):
            raise CutOff("the reply ends before the call does")
        elif named:
            raise reader.fault("a name and = were expected")
        else:
            unnamed.append(reader.value())
        if reader.peek() == ",":
            reader.position += 1
        elif _KEYWORD.match(reader.text, reader.position):
            reader.differences.add("missing_comma")
        elif reader.peek() != ")":
            raise reader.fault("a comma or ) was expected")
    return Arguments(named, unnamed, reader.position + 1, frozenset(reader.differences))


def _spread(reader: Reader) -> dict[str, Any]:
    value = reader.value()
    if not isinstance(value, dict):
        raise ValueError("a dictionary must stand behind **")
    return value


def _add(named: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if key in named:
            raise ValueError(f"the argument {defuse(key[:40])} is given twice")
        named[key] = value


class _Scanner(Scanner):
    openers = re.compile(rf"<\|python_(?:start|tag)\|>(?P<tag>)|\[{_HEAD.pattern}")
    mend = "write [name(argument='value')], with every argument given by name and as a literal"

    _last_end = -1
    """Where the last list of calls ended; another may follow at once."""
    _passed = 0
    _sure = True

    @cached_property
    def _names(self) -> set[str]:
        return {tool.get("function", tool)["name"] for tool in self.tools}

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.text, python=True)

    def run(self) -> ParsedReply:
        """Read the whole reply, which may begin with a piece of a list or with a call that stands in none."""
        start = self.skip(0)
        piece = _FIRST_PIECE.match(self.text, start)
        if piece and any(name.startswith(piece["name"]) for name in self._names or {piece["name"]}):
            self.fail(CallFault.INCOMPLETE, "the reply ends before the call does", start, len(self.text))
        elif (
            (head := _HEAD.match(self.text, start)) and head["name"] in self._names and self._has_names(head)
        ):
            end = self._reader.after_bracket(head.end() - 1)
            kind = CallFault.INCOMPLETE if end is None else CallFault.SYNTAX
            self.fail(kind, "the call stands in no list", start, end or self.rest())
        return super().run()

    def read(self, opener: re.Match[str]) -> None:
        start = opener.start()
        if opener["tag"] is None:
            intent = self._intent(opener)
            if intent is _Intent.NONE:
                self.content.append(opener.group())
            else:
                self._read_list(start, start, intent)
        elif self.text.startswith("[", at := self.skip(self.position)):
            self._read_list(start, at, _Intent.SURE)
        else:
            kind = CallFault.INCOMPLETE if at >= len(self.text) else CallFault.SYNTAX
            end = self.text.find(_END, at, self.rest())
            end = self.rest() if end < 0 else end + len(_END)
            self.fail(kind, "a list of calls was expected", start, end)

    def _intent(self, opener: re.Match[str]) -> _Intent:
        """Whether a bracket with a name and another bracket behind it is meant as a list of calls."""
        start, known, named = opener.start(), opener["name"] in self._names, self._has_names(opener)
        first = self.begins_reply(start) or start == self._last_end
        if first or self.begins_line(start):
            spaced = opener.end("name") + 1 < opener.end()
            bare = first and not self._names and not spaced
            return _Intent.SURE if known or named or bare else _Intent.NONE
        if known and named:
            return _Intent.SURE
        free = not self._names and named and not _WORD_END.match(self.text, start - 1)
        return _Intent.LIKELY if (known or free) and self._passed < _MOST_PASSED else _Intent.NONE

    def _has_names(self, head: re.Match[str]) -> bool:
        """Whether the arguments have names, or there are none."""
        return _NAMED.match(self.text, head.end()) is not None

    def _read_list(self, start: int, bracket: int, intent: _Intent) -> None:
        """Read a list of calls, or take its beginning for prose.

        Args:
            start: where the attempt begins, at the mark before the list if there is one.
        """
        behind, calls, content = self.position, len(self.attempts), len(self.content)
        self._sure = intent is _Intent.SURE
        try:
            closed = self._read_calls(start, bracket)
            if closed and start == bracket and self.text.startswith("(", self.position):
                self._sure = self._passed >= _MOST_PASSED
                self._give_up(CallFault.SYNTAX, "a link is no call", start, self.position)
        except _Prose:
            del self.attempts[calls:], self.content[content:]
            self.content.append(self.text[start:behind])
            self.position = behind
            self._passed += 1
            return
        end = self.skip(self.position)
        if closed and self.text.startswith(_END, end):
            self.position = end + len(_END)
        self._last_end = self.position

    def _give_up(self, kind: CallFault, fault: str, start: int, end: int | None) -> None:
        """Record a failed attempt, unless what only seemed to be one turned out to be none.

        Args:
            end: None if it has no end of its own.
        """
        if not self._sure and kind is not CallFault.INCOMPLETE:
            raise _Prose
        self.fail(kind, fault, start, self.rest() if end is None else end)

    def _read_calls(self, start: int, bracket: int) -> bool:
        """Read call by call; whether the list ends as a list does."""
        position = bracket + 1
        while not self.full:
            head = _HEAD.match(self.text, position)
            if head is None:
                return self._read_no_call(start, bracket, position)
            end = self._read_call(head, start)
            if end is None:
                return False
            failed = isinstance(self.attempts[-1], CallError)
            self.position = position = end + 1
            if self.text[end] == "]":
                return True
            start = end if failed else self.skip(position)
        return False

    def _read_call(self, head: re.Match[str], start: int) -> int | None:
        """Read one call; where the comma or the bracket behind it stands, or None if neither does."""
        opening, fault, arguments = head.end() - 1, "", None
        try:
            arguments = read_arguments(self._reader, opening)
        except ValueError as error:
            fault = f"the arguments are not written as in Python: {error}"
            if isinstance(error, CutOff) or not self._sure:
                kind = CallFault.INCOMPLETE if isinstance(error, CutOff) else CallFault.SYNTAX
                self._give_up(kind, fault, start, None)
                return None
        end = arguments.end if arguments else self._reader.after_bracket(opening)
        after = len(self.text) if end is None else self.skip(end)
        follower = self.text[after : after + 1]
        # The bracket that ends the list stays with an attempt that failed before it.
        behind = after + 1 if follower == "]" else end
        if arguments is None:
            self._give_up(CallFault.SYNTAX, fault, start, behind)
        elif not follower:
            self._give_up(CallFault.INCOMPLETE, _CUT_LIST, start, after)
        elif follower not in ",]":
            self._give_up(CallFault.SYNTAX, "a comma or ] was expected behind the call", start, end)
        else:
            self._record(head["name"], arguments, start, behind)
        return after if follower and follower in ",]" else None

    def _record(self, name: str, arguments: Arguments, start: int, end: int | None) -> None:
        named, differences = arguments.named, set(arguments.differences)
        if arguments.unnamed:
            properties = parameters_of(self.tools, name).get("properties")
            only = list(properties) if isinstance(properties, Mapping) else []
            if named or len(only) != 1 or len(arguments.unnamed) != 1:
                fault = "every argument must be given by name"
                self._give_up(CallFault.ARGUMENTS, fault, start, end)
                return
            named = {only[0]: arguments.unnamed[0]}
            differences.add("positional_argument")
        if not self.repair and (faults := sorted(differences & _FAULTS.keys())):
            self._give_up(CallFault.SYNTAX, _FAULTS[faults[0]], start, end)
        else:
            self.accept(name, named, repairs=sorted(differences))

    def _read_no_call(self, start: int, bracket: int, position: int) -> bool:
        """Read what stands where a call should: the end of the list behind a comma, or a fault."""
        at = self.skip(position)
        if self.text.startswith("]", at) and position > bracket + 1:
            self.position = at + 1
            return True
        if _PIECE.match(self.text, at):
            self._give_up(CallFault.INCOMPLETE, _CUT_LIST, start, len(self.text))
        else:
            end = self._reader.after_bracket(bracket)
            self._give_up(CallFault.SYNTAX, "the list holds something that is no call", start, end)
        return False
