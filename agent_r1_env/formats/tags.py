"""What formats share whose calls are written in tags: the tags of a reply, each found once."""

from __future__ import annotations

import bisect
import re
from functools import cached_property
from typing import ClassVar, NamedTuple

from agent_r1_env.formats.reading import MOST_TAGS, Scanner
from agent_r1_env.messages import CallFault

END = "end"
"""The kind of the mark that stands for the end of the reply."""
_WIDEST_INDENT = 64


class Tag(NamedTuple):
    """One tag, from ``start`` to ``end``; ``after`` is the next place that is no white space."""

    kind: str
    name: str
    start: int
    end: int
    after: int


class Tags:
    """The tags of a text. However often they are looked at, the text is searched once.

    Behind the last tag stands one of the kind ``END``, and behind the last one that is read of very many.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._coming = pattern.finditer(text)
        self._found: list[Tag] = []
        self._starts: list[int] = []
        self._end = Tag(END, "", len(text), len(text), len(text))

    def __getitem__(self, index: int) -> Tag:
        while index >= len(self._found):
            if not self._find():
                return self._end
        return self._found[index]

    def behind(self, position: int) -> int:
        """The index of the first tag that begins there or behind."""
        while (not self._starts or self._starts[-1] < position) and self._find():
            pass
        return bisect.bisect_left(self._starts, position)

    def _find(self) -> bool:
        """Find one more tag."""
        match = next(self._coming, None) if len(self._found) < MOST_TAGS else None
        if match is None:
            return False
        kind, name = match.groups()
        self._found.append(Tag(kind, name, match.start(), match.end(2) + 1, match.end()))
        self._starts.append(match.start())
        return True


class Fault(NamedTuple):
    """Why a call could not be read, and the index of the tag from which on its end is looked for."""

    reason: str
    at: int
    kind: CallFault = CallFault.SYNTAX


class TagScanner(Scanner):
    """A scanner for calls that are written in tags, of which none is escaped in what stands between them.

    Attributes:
        tag: matches every tag of the format and the white space behind it, in two groups: of what kind it is,
            and its name, which ends before its ``>``.
        patience: tags that are still looked at in the hope that calls are well-formed. A call that never
            closes costs a look at all that follow, which this bounds.
    """

    tag: ClassVar[re.Pattern[str]]
    patience = MOST_TAGS

    @cached_property
    def found(self) -> Tags:
        """The tags of the reply."""
        return Tags(self.tag, self.text)

    def end_of_attempt(self, index: int) -> int | None:
        """Where an attempt ends that could not be read, if it does with or before the tag at ``index``."""
        raise NotImplementedError

    def next_kind(self, index: int) -> str:
        """The kind of the tag behind that one, or "" if text stands between them."""
        following = self.found[index + 1]
        return following.kind if following.start == self.found[index].after else ""

    def begins_line(self, start: int) -> bool:
        """Whether only a little white space stands before it in its line."""
        before = self.text[max(0, start - _WIDEST_INDENT) : start].rstrip(" \t")
        return before.endswith("\n") or (not before and start <= _WIDEST_INDENT)

    def give_up(self, start: int, fault: Fault) -> None:
        """Record an attempt that begins at ``start``; a draft ends at the latest where its reasoning does."""
        index = fault.at
        while (end := self.end_of_attempt(index)) is None and self.found[index].kind != END:
            index += 1
        if end is None:
            end = len(self.text)
            if fault.kind is CallFault.SYNTAX:
                fault = Fault("the reply ends before the tool call does", index, CallFault.INCOMPLETE)
        if start < self._thought_end < end and self.reasoning[0] not in self.text[start : self._thought_end]:
            end = self._thought_end
        self.fail(fault.kind, fault.reason, start, end)

    @cached_property
    def _thought_end(self) -> int:
        """Where reasoning ends that the prompt opened, or -1."""
        return self.text.find(self.reasoning[1])
