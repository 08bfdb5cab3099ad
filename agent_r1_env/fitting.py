"""Choosing the layout in which a chat template loses nothing of an environment's conversation.

Each layout is tried on a conversation as an environment would have it, over several rounds, because many
templates fail only in the second: roles that must alternate, a system text that is printed with the last turn
alone, calls of earlier turns that are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_r1_env import probe
from agent_r1_env.facts import Facts
from agent_r1_env.formats.format import Format
from agent_r1_env.layout import Layout, Mode
from agent_r1_env.messages import ToolCall
from agent_r1_env.probe import Finding, Outcome, Refused, Renderer

_ROUNDS = (("quartz",), ("basalt", "marble"), (), ("flint",))
"""The stones weighed in each turn of the model; in the one without, it answers and is asked again."""

_Parts = tuple[str, tuple[str, ...]]
"""What something is, and the texts of it, which may stand in any order."""

_ANYWHERE: tuple[_Parts, ...] = (
    ("the tools", (probe.DESCRIPTION,)),
    ("the system text", (probe.SYSTEM,)),
    ("what the user said", (probe.USER,)),
)
_CANNOT = Finding(Outcome.REFUSED)


@dataclass(frozen=True, slots=True)
class Fit:
    """The layout that a template and a format get on with.

    Attributes:
        layout: the first in which nothing is lost; None if there is none.
        why_not: by mode that was passed over, what would have been lost.
    """

    layout: Layout | None
    why_not: Mapping[Mode, str]


def fit(render: Renderer, facts: Facts, format: Format, *, spoken: bool, mode: Mode | None = None) -> Fit:
    """Find the layout.

    Args:
        spoken: whether the template was written for this format; else it is shown no tools.
        mode: the only mode to try.
    """
    why_not: dict[Mode, str] = {}
    modes = [mode] if mode is not None else list(Mode)
    for each in modes:
        if mode is None and each is not Mode.FLATTENED and (reason := _unfit(facts, format, spoken)):
            why_not[each] = reason
            continue
        for layout in _layouts(render, facts, each):
            lost = what_is_lost(render, layout, format)
            if not lost:
                return Fit(layout, why_not)
            why_not.setdefault(each, lost)
        if each not in why_not:
            why_not[each] = "the template prints no calls that are given as data"
    return Fit(None, why_not)


def _unfit(facts: Facts, format: Format, spoken: bool) -> str:
    tools = facts.findings["tools"]
    if not tools.kept:
        return f"the template refuses tools: {tools.said}" if tools.said else "the template drops the tools"
    return "" if spoken else f"the template was not written for calls in the form of {format.name!r}"


def what_is_lost(render: Renderer, layout: Layout, format: Format) -> str:
    """The first thing that a layout loses, in words; "" if it loses nothing."""
    messages, groups = _conversation(format, layout)
    turns, tools = layout.lay_out(messages, probe.TOOLS, format)
    try:
        text = render(turns, tools)
        position = 0
        for kind, parts in _anywhere(format, layout):
            if any(part not in text for part in parts):
                return f"the template drops {kind}"
        for kind, parts in groups:
            places = [text.find(part, position) for part in parts]
            if -1 in places:
                return f"the template drops or alters {kind}"
            position = max(place + len(part) for place, part in zip(places, parts, strict=True))
        return _misread(render, layout, format) if layout.mode is Mode.STRUCTURED else ""
    except Refused as refused:
        return f"the template raises: {refused}"


def _anywhere(format: Format, layout: Layout) -> tuple[_Parts, ...]:
    """What must stand somewhere. A format may itself leave out tools that it cannot call."""
    if layout.mode is Mode.FLATTENED and probe.DESCRIPTION not in format.render_tools(probe.TOOLS):
        return _ANYWHERE[1:]
    return _ANYWHERE


def _misread(render: Renderer, layout: Layout, format: Format) -> str:
    """What is wrong with the calls as the template writes them, judged by the format."""
    lead = [probe.turn("system", probe.SYSTEM), probe.turn("user", probe.USER)]
    calls = [probe.stone_call("quartz"), probe.stone_call("basalt")][: 1 if layout.one_call else 2]
    said = [*lead, probe.turn("assistant", format.render_calls(calls))]
    before, tools = layout.lay_out(lead, probe.TOOLS, format)
    after, _ = layout.lay_out(said, probe.TOOLS, format)
    written = probe.turn_text(render(before, tools), render(after, tools, False), probe.USER)
    read = format.parse(written, probe.TOOLS).calls
    if [(call.name, call.arguments) for call in read] == [(call.name, call.arguments) for call in calls]:
        return ""
    return f"calls as the template writes them are not read back: {' '.join(written.split())[:120]}"


def _layouts(render: Renderer, facts: Facts, mode: Mode) -> Iterator[Layout]:
    """The layouts of one mode, the plainest first; those without a system turn last."""
    plain = [Layout(mode, silence=facts.silence)]
    if mode is Mode.STRUCTURED:
        plain = list(_structured(render, facts))
    for system in (True, False):
        if facts.findings["system role"].kept or not system:
            yield from (replace(layout, system=system) for layout in plain)


def _structured(render: Renderer, facts: Facts) -> Iterator[Layout]:
    parallel = facts.findings.get("parallel calls", _CANNOT).kept
    for as_text in sorted({sample.as_text for sample in facts.samples}):
        base = Layout(
            Mode.STRUCTURED, silence=facts.silence, as_text=as_text, reasoning_key=facts.reasoning_key
        )
        base = _with_text(render, facts, base)
        if parallel:
            yield base
        yield replace(base, one_call=True)


def _with_text(render: Renderer, facts: Facts, layout: Layout) -> Layout:
    """The layout with a place for text beside a call where the template has one."""
    nine = all(sample.nine for sample in facts.samples)
    call = probe.stone_call("quartz", nine=nine)
    said = probe.called([call], probe.PROSE, as_text=layout.as_text)
    lead = [probe.turn("user", probe.USER)]
    if not render.finds(probe.PROSE, [*lead, said], probe.TOOLS, False).kept:
        first = [*lead, probe.turn("assistant", probe.PROSE), {**said, "content": ""}]
        later = [_result(call, probe.RESULT), probe.turn("assistant", probe.ANSWER)]
        apart = render.finds(probe.PROSE, [*first, *later], probe.TOOLS, False).kept
        return replace(layout, apart=apart)
    both = {**said, layout.reasoning_key: probe.REASONING}
    joined = (
        bool(layout.reasoning_key) and not render.finds(probe.PROSE, [*lead, both], probe.TOOLS, False).kept
    )
    return replace(layout, joined=joined)


def _conversation(format: Format, layout: Layout) -> tuple[list[dict[str, Any]], list[_Parts]]:
    """Messages as an environment has them, and what must be found of them, in order."""
    messages = [probe.turn("system", probe.SYSTEM), probe.turn("user", probe.USER)]
    groups: list[_Parts] = []
    for stones in _ROUNDS:
        if not stones:
            messages += [probe.turn("assistant", probe.ANSWER), probe.turn("user", probe.AGAIN)]
            groups += [("an answer", (probe.ANSWER,)), ("what the user said then", (probe.AGAIN,))]
            continue
        meant = [probe.stone_call(stone, place) for place, stone in enumerate(stones)]
        reply = format.render_calls(meant)
        read = format.parse(reply, probe.TOOLS).calls
        calls = read if len(read) == len(meant) else meant  # an environment has the ids that were read
        results = tuple(f"The {stone} weighs seven grams." for stone in stones)
        messages.append(probe.turn("assistant", reply))
        messages += [_result(call, text) for call, text in zip(calls, results, strict=True)]
        groups += _shown(reply, stones, results, layout)
    return messages, groups


def _result(call: ToolCall, text: str) -> dict[str, Any]:
    return probe.turn("tool", text, tool_call_id=call.id, name=call.name)


def _shown(reply: str, stones: tuple[str, ...], results: tuple[str, ...], layout: Layout) -> list[_Parts]:
    if layout.mode is not Mode.STRUCTURED:
        return [("a reply", (reply.strip(),)), ("a result", results)]
    if not layout.one_call:
        return [("a call", stones), ("a result", results)]
    pairs = zip(stones, results, strict=True)
    return [each for call, result in pairs for each in (("a call", (call,)), ("a result", (result,)))]
