"""Calls between marks, in a section between marks of its own: how DeepSeek and Kimi K2 write them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from agent_r1_env.formats.jsontext import json_fault
from agent_r1_env.formats.reading import Scanner
from agent_r1_env.messages import CallFault

MarkKind = Literal["section", "call", "inner", "call_end", "section_end"]


class SectionScanner(Scanner):
    """Walks through the marks of a reply; a format reads in ``read_call`` what stands in one call.

    White space between marks is no content. A section need not be closed; prose in it is content as it is
    elsewhere.

    Attributes:
        marks: what each mark is that ``openers`` matches; "inner" ones stand within a call.
        call_end: the mark that ends a call with JSON, as the model is told about it.
        inside: whether a section is open.
        missing: whether it was never opened, and is read all the same.
    """

    marks: ClassVar[Mapping[str, MarkKind]]
    call_end: ClassVar[str]
    inside: bool = False
    missing: bool = False
    _opened: tuple[int, int] = (-1, -1)
    """Where the last section began, and the call that stands directly behind its mark."""

    def read_call(self, start: int) -> None:
        """Read the call whose mark stands before ``position``, and end with ``done`` or ``give_up``.

        Args:
            start: where the attempt begins: at its section, if it is the first in it.
        """
        raise NotImplementedError

    def read(self, opener: re.Match[str]) -> None:
        kind = self.kind(opener)
        if kind == "section":
            self._open(opener)
        elif kind == "call":
            self._read_one(opener)
        elif kind == "section_end" and self.inside:
            self.inside = self.missing = False
        else:
            fault = f"{opener.group()} stands where no tool call was begun"
            if kind == "inner":
                self.give_up(CallFault.STRAY, fault, opener.start(), opener.end())
            else:
                self.fail(CallFault.STRAY, fault, opener.start(), opener.end())

    # -- what read_call() builds on

    def kind(self, mark: re.Match[str] | None) -> MarkKind | None:
        """What a match of ``tags`` or ``openers`` is; None for reasoning tags, and for no match."""
        return self.marks.get(mark.group()) if mark else None

    def json_call(
        self, start: int, at: int, name: str, *, call_id: str | None = None, fence: str = ""
    ) -> None:
        """Read the arguments of a call as JSON, and the call's end.

        Args:
            fence: what stands behind the arguments and before the closing mark.
        """
        at = self.skip(at)
        if at >= len(self.text) or self.openers.match(self.text, at):
            self.give_up(CallFault.NO_ARGUMENTS, "the tool call has no arguments", start, at)
            return
        try:
            value, end, repairs = self.value(at)
        except ValueError as error:
            fault = f"the arguments are not valid JSON: {json_fault(error, at)}"
            reached = error.pos if isinstance(error, json.JSONDecodeError) else at
            self.give_up(CallFault.SYNTAX, fault, start, reached)
            return
        after = self.skip(end)
        if fence and self.text.startswith(fence, after):
            after = self.skip(after + len(fence))
        closing = self.openers.match(self.text, after)
        if closing is None and after < len(self.text):
            fault = f"text follows the arguments where {self.call_end} should stand"
            self.give_up(CallFault.SYNTAX, fault, start, after)
            return
        end = closing.end() if closing and self.kind(closing) == "call_end" else after
        self.call(name, value, start, end, call_id=call_id, repairs=self.place_repairs(repairs))
        self.done()

    def place_repairs(self, repairs: Sequence[str]) -> tuple[str, ...]:
        """The repairs, and that the section is missing, if it is."""
        return (*repairs, "no_section") if self.missing else tuple(repairs)

    def done(self) -> None:
        """Pass the white space between the call and the next mark."""
        at = self.skip(self.position)
        if self.openers.match(self.text, at):
            self.position = at

    def give_up(self, kind: CallFault, fault: str, start: int, at: int) -> None:
        """Record a call that cannot be read.

        It ends behind its closing mark, or before the next call or the next reasoning tag.

        Args:
            at: how far it was understood; marks before that place are text.
        """
        stops = (mark for mark in self.tags.finditer(self.text, at) if self.kind(mark) != "inner")
        stop = next(stops, None)
        if stop is None:
            self.fail(CallFault.INCOMPLETE, fault, start, len(self.text))
            return
        if self.kind(stop) == "call_end":
            behind = self.openers.match(self.text, self.skip(stop.end()))
            stop = behind if behind and self.kind(behind) == "section_end" else stop
        if self.kind(stop) == "section_end":
            self.inside = self.missing = False
        own = self.kind(stop) in ("call_end", "section_end")
        self.fail(kind, fault, start, stop.end() if own else stop.start())

    # -- inside

    def _open(self, opener: re.Match[str]) -> None:
        self.inside, self.missing = True, False
        at = self.skip(self.position)
        if self.kind(self.openers.match(self.text, at)) == "call":
            self._opened = (opener.start(), at)
            self.position = at
        else:
            fault = f"no tool call follows {opener.group()}"
            self.give_up(CallFault.SYNTAX, fault, opener.start(), opener.end())

    def _read_one(self, opener: re.Match[str]) -> None:
        section, call = self._opened
        start = section if call == opener.start() else opener.start()
        if not self.inside and not self.repair:
            fault = "a tool call stands outside of a section of tool calls"
            self.give_up(CallFault.SYNTAX, fault, start, opener.end())
            return
        self.missing = self.missing or not self.inside
        self.inside = True
        self.read_call(start)
