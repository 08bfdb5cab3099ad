"""What the doctor says of a chat template, in words, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from agent_r1_env import probe
from agent_r1_env.formats.detection import Detection
from agent_r1_env.formats.format import Format
from agent_r1_env.layout import Layout, Mode
from agent_r1_env.template import ChatTemplate

Status = Literal["note", "wrong"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing worth knowing.

    Attributes:
        topic: the part of a conversation that it is about.
        found: what was seen.
        do: what to do, or why there is nothing to do.
    """

    topic: str
    found: str
    do: str
    status: Status = "note"


def format_remarks(detected: Detection, chosen: Format) -> Iterator[Remark]:
    """Whether the format that is used is the one that the template speaks."""
    if not detected.certain:
        yield Remark(
            "format",
            detected.reason,
            f"if you know what the model writes, say --format NAME; it will be taught {chosen.name!r} by the "
            "prompt",
        )
    elif detected.name != chosen.name:
        yield Remark(
            "format",
            f"the chat template speaks {detected.name!r}, not {chosen.name!r}",
            f"run the environment with format={detected.name!r} or 'auto', unless the model is to learn "
            f"{chosen.name!r}",
            "wrong",
        )
    elif detected.format.version != chosen.version:
        yield Remark(
            "format",
            f"the template writes version {detected.format.version!r} of {chosen.name!r}, "
            f"not {chosen.version!r}",
            f"both are read; with format={detected.spec!r} hints to the model are in its own version, too",
        )


_DROPPED = {
    "tools": "a server that relies on the template would show the model no tools",
    "calls": "a server that relies on the template would hide its own calls from the model",
    "results": "a server that relies on the template would hide the results from the model",
    "parallel calls": "a server that relies on the template would lose all but one of the calls",
    "text beside a call": "the model does not see again what it wrote beside a call",
    "reasoning beside a call": "the model does not see again why it called",
    "earlier reasoning": "a prompt is then no longer what was sampled, and the steps of an episode become "
    "rows of their own; a training template of the family keeps it",
    "system role": "",
}
_REFUSED = {
    "system role": "the system text is put on top of the first user turn",
    "results": "results are written into user turns",
    "parallel calls": "each call gets a turn of its own",
    "other ids": "ids are made of nine letters and digits",
    "content None": "a turn with calls gets an empty text here; a client of your own must send '' as well",
    "text beside a call": "",
    "tools": "",
    "calls": "",
}
_OF_CALLS_AS_DATA = frozenset({"parallel calls", "other ids", "text beside a call"})
_SAFE = frozenset({"tools", "calls", "results", "parallel calls", "system role"})


def template_remarks(template: ChatTemplate) -> Iterator[Remark]:
    """What the template drops and what it raises on, whether or not the mode avoids it."""
    layout = template.layout
    for topic, finding in template.facts.findings.items():
        if finding.kept or (topic == "reasoning beside a call" and not template.facts.reasoning_key):
            continue
        if finding.outcome is probe.Outcome.DROPPED:
            avoided = f"the mode {str(layout.mode)!r} avoids it; " if topic in _SAFE else ""
            yield Remark(topic, "dropped in silence", avoided + _how(topic, layout, _DROPPED))
        else:
            yield Remark(topic, f"raises: {finding.said}", _how(topic, layout, _REFUSED))
    for mode, reason in template.why_not.items():
        yield Remark(f"mode {mode}", reason, f"the mode {str(layout.mode)!r} is used")


def _how(topic: str, layout: Layout, table: Mapping[str, str]) -> str:
    if topic in _OF_CALLS_AS_DATA and layout.mode is not Mode.STRUCTURED:
        return f"the mode {str(layout.mode)!r} prints replies whole"
    return table.get(topic) or f"the mode {str(layout.mode)!r} does without"


def prefix_remarks(append_only: Mapping[str, bool]) -> Iterator[Remark]:
    """What a prompt that rewrites what stood there before costs."""
    broken = [what for what, held in append_only.items() if not held]
    if broken:
        yield Remark(
            "append-only",
            f"the next prompt does not begin with the prompt and the reply ({', '.join(broken)})",
            "training stays exact, but steps are not merged into one row and cost more; merge=True merges "
            "where it can, and a training template of the family keeps the prefix; see 'by ids' for what "
            "representation: tokens can join",
        )


def growth_remarks(grows: Mapping[str, str]) -> Iterator[Remark]:
    """Where the representation "tokens" cannot make one prompt out of another, and what happens then."""
    reasons: dict[str, list[str]] = {}
    for what, why in grows.items():
        if why:
            reasons.setdefault(why, []).append(what)
    for why, parts in reasons.items():
        yield Remark(
            "representation",
            f"a prompt cannot grow by ids behind a reply with this in it: {', '.join(parts)} ({why})",
            "with representation: tokens it is encoded anew there, which is right and counted as "
            "prompts_rewritten; where that is every step, steps gives the same rows",
        )


def vanishing_remark(marks: tuple[str, ...]) -> Remark:
    """What other decoders would do to the calls."""
    return Remark(
        "special tokens",
        f"{', '.join(marks)} would vanish with skip_special_tokens=True, and every call with them",
        "decoding here keeps them; ask any other server for skip_special_tokens=False",
    )
