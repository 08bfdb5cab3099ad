"""Which wire format a chat template speaks, judged by what the template itself writes.

Two things tell: the calls that it prints, which only some formats read back as they were meant, and its
instructions on tools, which hold the marks of the format that the model was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from agent_r1_env import formats
from agent_r1_env.facts import Facts, Sample, examine
from agent_r1_env.formats.format import Format
from agent_r1_env.probe import Renderer

DEFAULT = "hermes"
"""What is used where a template tells nothing: the commonest form, and plain text to every tokenizer."""

# The instructions are what the model was trained on; templates print calls of the past carelessly, some of
# them in a form that their own model never writes. So a mark in the instructions outweighs a call read back,
# but for a format whose marks the template's own call bears.
_READ, _NEARLY, _TIDY, _ALIKE, _MARKED, _TOLD, _EXAMPLE = 8, 4, 1, 2, 4, 12, 1


@dataclass(frozen=True, slots=True)
class Detection:
    """The wire format of a tokenizer's chat template.

    Attributes:
        options: what ``formats.get`` is to be given beside the name: the version, where it isn't the usual.
        reason: why, in a sentence.
        evidence: what was seen, one sentence each.
        certain: False where the template told nothing and the format is only the default.
    """

    name: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    certain: bool = True

    @property
    def spec(self) -> str | dict[str, Any]:
        """Plain data for ``ToolEnv(format=...)``."""
        return {"name": self.name, **self.options} if self.options else self.name

    @property
    def format(self) -> Format:
        """The format itself."""
        return formats.get(self.spec)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What speaks for one format.

    Attributes:
        read: how it reads the calls that the template wrote: "exactly", "in part" or "".
        tidy: nothing of those calls was left over as text.
        likeness: how much like the format's own words for the same calls they are, up to 1.
        marks: its marks in those calls.
        told: its marks in the instructions on tools.
        source: its marks in the source of a template that printed no calls.
        example: the instructions show a call in its form; breaks ties.
        score: all of it in one number; 0 if nothing speaks for it.
    """

    format: Format
    read: str = ""
    tidy: bool = False
    likeness: float = 0.0
    marks: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    example: bool = False

    @property
    def score(self) -> float:
        share = self._share(self.told)
        if self.foreign:  # a relative of the format at best
            return (share + 1) / 2
        if not self.read:
            return _TOLD * share + _EXAMPLE * self.example or self._share(self.source) / 3
        reading: float = _READ if self.read == "exactly" else _NEARLY
        reading += _TIDY * self.tidy + _ALIKE * self.likeness + _MARKED * bool(self.marks)
        return reading + _TOLD * share + _EXAMPLE * self.example

    @property
    def certain(self) -> bool:
        """Whether more than a likeness speaks for it."""
        return bool(self.read or self.told) and not self.foreign

    @property
    def foreign(self) -> bool:
        """Whether its marks stand around something that it does not read."""
        return bool(self.marks) and not self.read

    def _share(self, marks: tuple[str, ...]) -> float:
        return len(marks) / max(1, len(self.format.markers))


def detect(tokenizer: Any) -> Detection:
    """Choose the wire format of a tokenizer by rendering a conversation with tools."""
    if not getattr(tokenizer, "chat_template", None):
        return _default("the tokenizer has no chat template; the environment's own text is used as it is")
    return conclude(examine(Renderer(tokenizer)))


def conclude(facts: Facts) -> Detection:
    """The format that the facts about a template speak for."""
    best, *others = judge(facts, every_format())
    if not best.score:
        return _default(_nothing(facts))
    rivals = {each.format.name for each in others if _close(each, best)} - {best.format.name}
    evidence = (
        *_evidence(best),
        *([f"nearly as much speaks for {', '.join(sorted(rivals))}"] if rivals else ()),
    )
    version = best.format.version
    usual = version == formats.get(best.format.name).version
    options = {} if usual else {"version": version}
    return Detection(best.format.name, _reason(best, facts), options, evidence, best.certain)


def every_format() -> Iterator[Format]:
    """Each format that is registered, in each of its versions, the usual one first."""
    for name in formats.names():
        usual = formats.get(name)
        yield usual
        for version in usual.versions:
            if version != usual.version:
                yield formats.get({"name": name, "version": version})


def _reason(best: Verdict, facts: Facts) -> str:
    name = best.format.name
    if best.read:
        text = _shown(best_sample(best.format, facts.samples).text)
        return f"{name!r} reads back {best.read} what the template writes for a call: {text}"
    if best.foreign:
        return f"the template's calls hold {', '.join(best.marks)}, but in a way that {name!r} cannot read"
    if best.told:
        return f"the template tells the model about tools in the words of {name!r}: {', '.join(best.told)}"
    return f"the template's source holds {', '.join(best.source)}, but no call was to be had of it"


def judge(facts: Facts, candidates: Iterable[Format]) -> list[Verdict]:
    """What speaks for each format, the strongest case first; ties go to the default, then by name."""
    verdicts = [_verdict(format, facts) for format in candidates]
    return sorted(verdicts, key=lambda each: (-each.score, each.format.name != DEFAULT, each.format.name))


def speaks(facts: Facts, format: Format) -> bool:
    """Whether the template was written for this format: nothing speaks more for any other."""
    verdicts = judge(facts, [format, *(other for other in every_format() if other.name != format.name)])
    own = next(verdict for verdict in verdicts if verdict.format is format)
    return own.score > 0 and _close(own, verdicts[0]) and not own.foreign


def best_sample(format: Format, samples: Iterable[Sample]) -> Sample:
    """The sample that the format reads best."""
    return max(samples, key=lambda sample: _reading(format, sample)[:2])


def _close(one: Verdict, best: Verdict) -> bool:
    """Whether only the manner of writing, or less, tells the two apart."""
    return best.score - one.score < _ALIKE


def _verdict(format: Format, facts: Facts) -> Verdict:
    told = tuple(mark for mark in format.markers if mark in facts.instructions)
    example = bool(told) and bool(format.parse(facts.instructions).calls)
    if not facts.samples:
        source = tuple(mark for mark in format.markers if mark in facts.source)
        return Verdict(format, told=told, source=source, example=example)
    sample = best_sample(format, facts.samples)
    grade, tidy = _reading(format, sample)
    marks = tuple(mark for mark in format.markers if mark in sample.text)
    likeness = SequenceMatcher(None, format.render_calls(sample.calls), sample.text, autojunk=False).ratio()
    read = ("", "in part", "exactly")[grade]
    return Verdict(format, read, tidy, likeness, marks, told, (), example)


def _reading(format: Format, sample: Sample) -> tuple[int, bool]:
    """2 for calls read as they were meant, 1 for the right names alone; and whether nothing was left over."""
    parsed = format.parse(sample.text, sample.tools)
    tidy = not parsed.content.strip()
    if [call.name for call in parsed.calls] != [call.name for call in sample.calls] or parsed.errors:
        return 0, tidy
    exact = [call.arguments for call in parsed.calls] == [call.arguments for call in sample.calls]
    return 1 + exact, tidy


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    seen = []
    if verdict.read:
        rest = "nothing is left over" if verdict.tidy else "some text is left over"
        seen.append(f"calls of the template are read {verdict.read}, and {rest}")
    if verdict.marks:
        seen.append(f"those calls hold {', '.join(verdict.marks)}")
    if verdict.told:
        seen.append(f"the instructions on tools hold {', '.join(verdict.told)}")
    return tuple(seen)


def _nothing(facts: Facts) -> str:
    if not facts.instructions:
        return "the template has no support for tools"
    return "the template prints the tools, but no call in the form of a known format"


def _default(reason: str) -> Detection:
    return Detection(DEFAULT, f"{reason}; {DEFAULT!r} is the default", certain=False)


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:117]}..."
