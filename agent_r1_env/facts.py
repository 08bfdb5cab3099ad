"""What a chat template does with tools, calls and results, whatever the wire format.

Nothing is read from its source: each question is a small conversation, and the answer is in the text that
comes out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_r1_env.layout import REASONING_KEYS
from agent_r1_env.messages import ToolCall
from agent_r1_env.probe import (
    AGAIN,
    ANSWER,
    DESCRIPTION,
    PROSE,
    REASONING,
    RESULT,
    SCALE,
    SYSTEM,
    TOOLS,
    USER,
    Finding,
    Outcome,
    Refused,
    Renderer,
    called,
    stone_call,
    turn,
    turn_text,
)

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Calls as the template itself writes them.

    Attributes:
        calls: what was to be written.
        text: the template's own words for it, without the head of the turn.
        as_text: whether the arguments were handed over as JSON text.
        nine: whether ids had to be nine letters and digits.
        tools: schemas of what is called.
    """

    calls: tuple[ToolCall, ...]
    text: str
    as_text: bool = False
    nine: bool = False
    tools: Sequence[Mapping[str, Any]] = (SCALE,)


@dataclass(frozen=True)
class Facts:
    """What a template does, whatever the wire format.

    Attributes:
        instructions: what the prompt holds with tools and does not hold without; "" if tools are dropped.
        opening: the end of the prompt, behind the user's words: where the model's turn begins.
        samples: calls that the template wrote; none if it dropped or refused them.
        reasoning_key: under which key it takes reasoning, or "".
        source: of the template.
        silence: what stands for a reply without any text; "" unless the template refuses that.
        findings: by part: "system role", "tools", "calls", "parallel calls", "results", "other ids",
            "content None", "text beside a call", "reasoning beside a call", "earlier reasoning".
    """

    instructions: str = ""
    opening: str = ""
    samples: tuple[Sample, ...] = ()
    reasoning_key: str = ""
    source: str = ""
    silence: str = ""
    findings: Mapping[str, Finding] = field(default_factory=dict)


def examine(render: Renderer) -> Facts:
    """Ask a template everything that does not depend on the wire format."""
    findings: dict[str, Finding] = {}
    user, system = turn("user", USER), [turn("system", SYSTEM), turn("user", USER)]
    bare = render.finds(USER, [user])
    # Some templates are for conversations with tools alone.
    always = None if bare.kept else TOOLS
    findings["system role"] = render.finds(SYSTEM, system, always)
    lead = system if findings["system role"].kept else [user]
    findings["tools"] = render.finds(DESCRIPTION, lead, TOOLS)
    tools = always if findings["tools"].outcome is Outcome.REFUSED else TOOLS
    findings["calls"], samples = _calls(render, lead, tools)
    findings |= _rounds(render, lead, tools, samples[0] if samples else None)
    key, findings["reasoning beside a call"] = _reasoning_key(render, lead, tools, samples[:1])
    findings["earlier reasoning"] = _earlier_reasoning(render, lead, always, key)
    try:
        opening = render(lead, tools).rpartition(USER)[2]
        told = render(lead, TOOLS) if findings["tools"].kept else ""
        instructions = _added(render(lead) if bare.kept else "", told)
    except Refused:
        instructions = opening = ""
    silence = _silence(render, lead, tools)
    return Facts(instructions, opening, samples, key, render.source, silence, findings)


def _calls(render: Renderer, lead: Sequence[Turn], tools: Any) -> tuple[Finding, tuple[Sample, ...]]:
    """The ways to hand over calls that the template takes and prints."""
    found: list[Sample] = []
    failed = Finding(Outcome.REFUSED)
    for nine in (False, True):
        for as_text in (False, True):
            for call in (stone_call("quartz", nine=nine), stone_call("", nine=nine, times=7041)):
                value = str([*call.arguments.values()][0])
                taken = [*lead, called([call], as_text=as_text)]
                finding = render.finds(value, taken, tools, prompt=False)
                if not finding.kept:  # some templates print calls of a turn that says nothing else alone
                    taken = [*lead, called([call], None, as_text=as_text)]
                    finding = _better(finding, render.finds(value, taken, tools, prompt=False))
                if finding.kept:
                    text = turn_text(render(lead, tools), render(taken, tools, prompt=False), USER)
                    found.append(Sample((call,), text, as_text, nine))
                elif not failed.said or finding.outcome is Outcome.DROPPED:
                    failed = finding
        if found:
            return Finding(Outcome.KEPT), tuple(found)
    return failed, ()


def _better(first: Finding, second: Finding) -> Finding:
    return second if second.kept else first


def _rounds(render: Renderer, lead: Sequence[Turn], tools: Any, sample: Sample | None) -> dict[str, Finding]:
    """What becomes of results, of several calls in one turn, and of what else a turn with calls may hold."""
    nine, as_text = (sample.nine, sample.as_text) if sample else (False, False)
    calls = [stone_call("quartz", 0, nine=nine), stone_call("marble", 1, nine=nine)]
    other = [stone_call("quartz", nine=not nine)]
    name = calls[0].name
    results = [
        turn("tool", text, tool_call_id=call.id, name=name)
        for text, call in zip((RESULT, "It broke."), calls, strict=True)
    ]
    if sample is None:
        plain = [*lead, turn("assistant", PROSE), results[0]]
        return {"results": render.finds(RESULT, plain, tools)}

    def one(content: str | None) -> dict[str, Any]:
        return called(calls[:1], content, as_text=as_text)

    return {
        "results": render.finds(RESULT, [*lead, one(""), results[0]], tools),
        "parallel calls": render.finds("marble", [*lead, called(calls, as_text=as_text), *results], tools),
        "other ids": render.finds("quartz", [*lead, called(other, as_text=as_text)], tools, False),
        "content None": render.finds("quartz", [*lead, one(None)], tools, False),
        "text beside a call": render.finds(PROSE, [*lead, one(PROSE), results[0]], tools),
    }


def _reasoning_key(
    render: Renderer, lead: Sequence[Turn], tools: Any, samples: Sequence[Sample]
) -> tuple[str, Finding]:
    """The key under which the template takes the reasoning of a turn with calls, or of an answer without."""
    finding = Finding(Outcome.DROPPED)
    for key in REASONING_KEYS:
        more = {key: REASONING}
        said = (
            called(samples[0].calls, as_text=samples[0].as_text, **more)
            if samples
            else turn("assistant", ANSWER, **more)
        )
        finding = render.finds(REASONING, [*lead, said], tools, prompt=False)
        if finding.kept:
            return key, finding
    return "", finding


def _earlier_reasoning(render: Renderer, lead: Sequence[Turn], tools: Any, key: str) -> Finding:
    """What becomes of reasoning once the user has spoken again."""
    said = turn("assistant", ANSWER, **{key: REASONING}) if key else _thinking(ANSWER)
    return render.finds(REASONING, [*lead, said, turn("user", AGAIN)], tools)


def _thinking(answer: str) -> dict[str, Any]:
    return turn("assistant", f"<think>\n{REASONING}\n</think>\n\n{answer}")


def _silence(render: Renderer, lead: Sequence[Turn], tools: Any) -> str:
    """The least that the template takes for a reply: a model may say nothing at all."""
    for text in ("", " "):
        if render.finds(AGAIN, [*lead, turn("assistant", text), turn("user", AGAIN)], tools).kept:
            return text
    return "..."


def _added(bare: str, told: str) -> str:
    """The middle of ``told`` that ``bare`` lacks."""
    head = os.path.commonprefix([bare, told])
    tail = os.path.commonprefix([bare[len(head) :][::-1], told[len(head) :][::-1]])
    return told[len(head) : len(told) - len(tail)]
