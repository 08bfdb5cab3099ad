"""Reading a reply: one pass from left to right, in which every format only says how its calls look."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from agent_r1_env.formats import literals
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.jsontext import Uncounted, is_cut, read_json
from agent_r1_env.messages import CallError, CallFault, ToolCall

MOST_CALLS = 64
"""Attempts at a call that are read in one reply. Each failure may cost a look at the whole rest of it."""
MOST_TAGS = 10_000
"""Tags at which the reading of one reply stops, calls or not: what bounds its time."""

_BLANK = re.compile(r"\s*")
_WIDEST_INDENT = 64
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n?")


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """One reply, taken apart.

    Attributes:
        content: the text outside reasoning and calls; attempts that could not be read stay in it as written.
        reasoning: the text that the model wrote for itself; calls in it are drafts and do not run.
        attempts: the calls, and the failed attempts at one, in the order written.
        answer: the final answer, in a format that has a form of its own for it.
    """

    content: str
    reasoning: str = ""
    attempts: tuple[ToolCall | CallError, ...] = ()
    answer: str | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The attempts that could be read."""
        return tuple(each for each in self.attempts if isinstance(each, ToolCall))

    @property
    def errors(self) -> tuple[CallError, ...]:
        """The attempts that could not."""
        return tuple(each for each in self.attempts if isinstance(each, CallError))


class Scanner:
    """One pass over one reply: finds reasoning and the places where calls begin, keeps the rest.

    A format derives from it, says in ``openers`` where a call may begin, and reads it in ``read``, which
    consumes text by moving ``position`` on (``accept``, ``take`` and ``fail`` record what was found there).
    Text that ``read`` consumes is hidden from the search for tags, so that a tag inside a string is text.

    Attributes:
        openers: matches where a call, or a stray piece of one, begins. No nested quantifiers.
        mend: how to write a call, as a hint for the model.
        reasoning: the tags around reasoning, each opening tag before its closing one; () if there are none.
        tags: matches all that the search stops at, the reasoning tags and the openers.
        text: the reply without the special tokens that ended it.
        json: the same text, for ``read_json``.
        position: where reading goes on; when ``read`` is called, just behind the opener.
        tools: schemas as in ``Toolbox.schemas``, for formats that need them to know types.
        repair: whether mild mistakes are mended; each is named in ``ToolCall.repairs``.
        lenient: reads what is nearly JSON; one for the whole reply, since what it reads is bounded.
    """

    openers: re.Pattern[str]
    mend: str
    reasoning: tuple[str, ...] = ("<think>", "</think>")

    def __init__(
        self,
        reply: str,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        repair: bool = False,
        end_of_turn: Sequence[str] = (),
    ) -> None:
        self.text = without_end_of_turn(reply, end_of_turn)
        self.json = Uncounted(self.text)
        self.tools = tools
        self.repair = repair
        self.position = 0
        self.attempts: list[ToolCall | CallError] = []
        self.content: list[str] = []
        self.answer: str | None = None
        self.tags = _tags(self.openers, self.reasoning)
        self._failed = (-1, -1)
        self._drafts = 0
        self._reasoning: list[str] = []
        self._ahead: dict[str, int] = {}
        self._draft_end = (
            0  # a draft may be long and replaced by a longer one: it is cut out once, at the end
        )

    def run(self) -> ParsedReply:
        """Read the whole reply."""
        left = MOST_TAGS
        while match := self.tags.search(self.text, self.position):
            left -= 1
            self.content.append(self.text[self.position : match.start()])
            self.position = match.end()
            tag = match.group()
            if tag in self.reasoning[::2]:
                self._read_reasoning(tag)
            elif tag in self.reasoning:
                # The prompt opened the reasoning, so all that came before its end was a draft.
                self._draft_end = match.start()
                self._reasoning.clear()
                self._drafts += len(self.attempts)
                self.attempts.clear()
                self.content.clear()
                self.answer = None
            else:
                self.read(match)
            if self.full or not left:
                read = f"{MOST_CALLS} tool calls" if self.full else f"{MOST_TAGS} tags"
                fault = f"only the first {read} of a reply are read"
                self.fail(CallFault.TOO_MANY, fault, self.position, len(self.text))
        self.content.append(self.text[self.position :])
        reasoning = "".join((self.text[: self._draft_end], *self._reasoning))
        return ParsedReply("".join(self.content), reasoning, tuple(self.attempts), self.answer)

    def read(self, opener: re.Match[str]) -> None:
        """Read what begins at ``opener``; ``self.position`` stands just behind it and must not move back.

        To take the opener for ordinary text, append it to ``self.content`` and return.
        """
        raise NotImplementedError

    # -- what read() builds on

    @cached_property
    def lenient(self) -> literals.Reader:
        return literals.Reader(self.text, python=False)

    @property
    def full(self) -> bool:
        """Whether no more attempts are read. Drafts count too, though not as much."""
        return len(self.attempts) >= MOST_CALLS or self._drafts + len(self.attempts) >= 2 * MOST_CALLS

    def next_id(self) -> str:
        """The id of the next call, for formats that write none."""
        return f"call_{len(self.attempts)}"

    def skip(self, position: int) -> int:
        """The first place from there that is no white space."""
        match = _BLANK.match(self.text, position)
        return match.end() if match else position

    def ahead(self, tag: str) -> int:
        """Where a text next stands, or -1. It is looked for once, however many ask while it is far away."""
        at = self._ahead.get(tag)
        if at is None or 0 <= at < self.position:
            at = self._ahead[tag] = self.text.find(tag, self.position)
        return at

    def rest(self) -> int:
        """Where an attempt without an end ends: with the reply, or with the reasoning that it stands in."""
        end = self.ahead(self.reasoning[1]) if self.reasoning else -1
        return len(self.text) if end < 0 else end

    def begins_reply(self, start: int) -> bool:
        """Whether only a little white space stands before it in the reply, or behind its reasoning."""
        before = self.text[max(0, start - _WIDEST_INDENT) : start].rstrip()
        return before.endswith(self.reasoning[1::2]) or (not before and start <= _WIDEST_INDENT)

    def begins_line(self, start: int) -> bool:
        """Whether only a little white space stands before it in its line."""
        before = self.text[max(0, start - _WIDEST_INDENT) : start].rstrip(" \t")
        return before.endswith("\n") or (not before and start <= _WIDEST_INDENT)

    def value(self, at: int) -> tuple[Any, int, tuple[str, ...]]:
        """The JSON value at ``at``, the place behind it, and the repairs that reading it took.

        Raises:
            ValueError: no JSON value stands there, nor with ``repair`` anything that was meant as one.
        """
        try:
            return (*read_json(self.json, at), ())
        except ValueError as strict:
            # All that stands before the end of the text is JSON, so nothing can be mended.
            if not self.repair or is_cut(strict, self.text):
                raise
            try:
                return self._mended(at)
            except ValueError:
                raise strict from None

    def accept(
        self, name: str, arguments: dict[str, Any], call_id: str | None = None, repairs: Sequence[str] = ()
    ) -> None:
        """Record a call."""
        self.attempts.append(ToolCall(name, arguments, call_id or self.next_id(), tuple(repairs)))

    def take(
        self,
        value: Any,
        start: int,
        end: int,
        *,
        keys: Sequence[str] = ("arguments",),
        call_id: str | None = None,
        repairs: Sequence[str] = (),
    ) -> None:
        """Record a call given as ``{"name": ..., "arguments": {...}}``, or what is wrong with it.

        Args:
            value: the JSON value that stands from ``start`` to ``end``.
            keys: the names that the arguments may go by.
        """
        kind, fault = CallFault.SYNTAX, ""
        if not isinstance(value, dict):
            fault = "a tool call must be a JSON object"
        elif not isinstance(name := value.get("name"), str) or not name:
            kind, fault = CallFault.NO_NAME, 'the tool call has no "name"'
        elif (key := next((key for key in keys if key in value), None)) is None and set(value) != {"name"}:
            kind, fault = CallFault.NO_ARGUMENTS, f'the tool call has no "{keys[0]}"'
        else:
            self.call(name, value.get(key) if key else None, start, end, call_id=call_id, repairs=repairs)
            return
        self.fail(kind, fault, start, end)

    def call(
        self,
        name: str,
        arguments: Any,
        start: int,
        end: int,
        *,
        call_id: str | None = None,
        repairs: Sequence[str] = (),
    ) -> None:
        """Record a call whose arguments are any JSON value; None and "" stand for no arguments."""
        if arguments is None or arguments == "":
            arguments = {}
        if isinstance(arguments, dict):
            self.accept(name, arguments, call_id, repairs)
            self.position = max(self.position, end)
            return
        found = defuse(json.dumps(arguments, ensure_ascii=False)[:60])
        self.fail(CallFault.ARGUMENTS, f"the arguments must be a JSON object, not {found}", start, end)

    def fail(self, kind: CallFault, fault: str, start: int, end: int, *, kept: str | None = None) -> None:
        """Record an attempt that could not be read; its text stays in the content.

        Args:
            start, end: where it stands; reading goes on behind.
            fault: what is wrong, for the model; text of the reply in it must be defused.
            kept: what stays in the content instead of the text from ``start`` to ``end``.
        """
        raw = self.text[start:end]
        hint = "" if kind is CallFault.TOO_MANY else self.mend
        if self._failed != (start, end):  # several calls of one list may fail, but its text is kept once
            self.content.append(raw if kept is None else kept)
            self._failed = (start, end)
        self.attempts.append(CallError(kind, fault, hint, raw, self.next_id(), start, end))
        self.position = max(self.position, end)

    def invented(self, start: int, end: int, fault: str) -> None:
        """Pass over a result that the model made up: nothing in it or behind it counts.

        Args:
            start, end: where the mark stands with which a result begins.
            fault: what is wrong where neither a call nor an answer stands before it; "" where one does.
        """
        until = self.text.find(self.reasoning[1], end)
        if until < 0 or self.text.find(self.reasoning[0], end, until) >= 0:
            until = len(self.text)
        if fault:
            self.fail(CallFault.STRAY, fault, start, until)
        elif self.attempts and self.text[end:until].strip():
            self.content.append(self.text[start:until])
        # Behind an answer it is left out, since an answer in it would be taken for the model's last word.
        self.position = until

    # -- inside

    def _read_reasoning(self, opening: str) -> None:
        closing = self.reasoning[self.reasoning.index(opening) + 1]
        end = self.text.find(closing, self.position)
        if end < 0:
            self._reasoning.append(self.text[self.position :])
            self.position = len(self.text)
        else:
            self._reasoning.append(self.text[self.position : end])
            self.position = end + len(closing)

    def _mended(self, at: int) -> tuple[Any, int, tuple[str, ...]]:
        repairs: list[str] = []
        fence = _FENCE.match(self.text, at)
        value, end, found = self.lenient.read(fence.end() if fence else at)
        if fence:
            repairs.append("code_fence")
            closing = self.skip(end)
            if not self.text.startswith("```", closing):
                raise ValueError("the code fence is not closed")
            end = closing + 3
        return value, end, (*repairs, *found)


@lru_cache(maxsize=64)
def _tags(openers: re.Pattern[str], reasoning: tuple[str, ...]) -> re.Pattern[str]:
    """Everything that the search stops at: the reasoning tags first, then the format's own openers.

    No group stands around the tags, since the search is fast where every choice begins with a character.
    """
    return re.compile("|".join((*map(re.escape, reasoning), openers.pattern)), openers.flags)


def without_end_of_turn(reply: str, marks: Sequence[str]) -> str:
    """The reply without the special tokens that ended it, and the white space around them."""
    end = len(reply)
    if end and not reply[-1].isspace() and not reply.endswith(tuple(marks)):
        return reply
    for _ in range(MOST_TAGS):
        blank = _rstrip(reply, end)
        mark = next((mark for mark in marks if reply.endswith(mark, 0, blank)), None)
        if mark is None:
            break
        end = blank - len(mark)
    return reply[:end]


def _rstrip(text: str, end: int) -> int:
    """Where the white space that stands before ``end`` begins; copies a little of it at a time."""
    while end and text[end - 1].isspace():
        start = max(0, end - 256)
        end = start + len(text[start:end].rstrip())
    return end
