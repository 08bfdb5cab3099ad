"""The context policy ``strip_reasoning``: what a model thought is not shown to it again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from agent_r1_env.formats import Format, ParsedReply
from agent_r1_env.messages import Message, ToolCall
from agent_r1_env.turns import ContextPolicy, Moment, turn_starts, whole

_BEHIND = re.compile(r"(?P<header>(?:<\|start\|>assistant)?)\s*")
"""What goes with a section. In Harmony it is a message, and the header of the next one follows it."""


def strip_reasoning(keep_last: int = 0) -> ContextPolicy:
    """Earlier replies without their reasoning, as the wire format marks it, also where the prompt opened it.

    Calls, answers and prose stay as they were written. A reply of which that could not be said, because it
    holds a mark of reasoning inside of a call, keeps its reasoning.

    Args:
        keep_last: the number of latest replies that keep theirs, 0 or more.

    Raises:
        ValueError: less than 0.
    """
    keep_last = whole("keep_last", keep_last, least=0)
    return ContextPolicy("strip_reasoning", partial(_strip_reasoning, keep_last=keep_last))


def without_reasoning(reply: str, format: Format) -> str:
    """A reply without its reasoning and without what goes with each section of it."""
    if not any(mark in reply for mark in format.reasoning):
        return reply
    read = _asked_for(format.parse(reply))
    sections = list(_sections(reply, format.reasoning))
    opened = [(start, end) for start, end in sections if start >= 0]
    # A mark may also stand inside of a call, and one that closes may close something else.
    for removed in (sections, opened, sections[:1]):
        rest = _cut_out(reply, removed)
        if removed and _asked_for(format.parse(rest)) == read:
            return rest
    return reply


def _strip_reasoning(messages: Sequence[Message], moment: Moment, *, keep_last: int) -> Sequence[Message]:
    replies = turn_starts(messages)
    stripped = moment.memory  # by reply, so that each is read once in an episode
    shown = list(messages)
    for place in replies[: max(len(replies) - keep_last, 0)]:
        content = shown[place].content
        if content not in stripped:
            stripped[content] = without_reasoning(content, moment.format)
        if stripped[content] != content:
            shown[place] = replace(shown[place], content=stripped[content])
    return shown


def _sections(reply: str, marks: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Where reasoning stands, marks included; from -1 where a mark closes what the prompt opened."""
    closing = dict(zip(marks[::2], marks[1::2], strict=True))
    at = 0
    while found := _pattern(marks).search(reply, at):
        if found.group() not in closing:
            yield -1, found.end()
            at = found.end()
            continue
        end = reply.find(closing[found.group()], found.end())
        at = len(reply) if end < 0 else end + len(closing[found.group()])
        yield found.start(), at


@lru_cache(maxsize=64)
def _pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)))


def _cut_out(reply: str, sections: Sequence[tuple[int, int]]) -> str:
    kept = ""
    at = 0
    for start, end in sections:
        kept = "" if start < 0 else kept + reply[at:start]
        behind = _BEHIND.match(reply, end)
        words_apart = kept and not kept[-1].isspace()
        at = end if behind is None else behind.end("header") if words_apart else behind.end()
    return kept + reply[at:]


def _asked_for(parsed: ParsedReply) -> tuple[Any, ...]:
    """What a reply asks for and says, whatever the white space."""
    attempts = [
        (each.name, each.arguments) if isinstance(each, ToolCall) else (each.kind, each.raw)
        for each in parsed.attempts
    ]
    return attempts, parsed.content.split(), parsed.answer
