"""Calls as XML-like tags, for models that a prompt or a warm start teaches them to, such as Search-R1's.

``<search>query</search>`` is answered by ``<information>...</information>``; the tags are options. Bare text
ends at the next tag. In a JSON object, which stands wherever one text does not suffice, tags are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent_r1_env.errors import unknown_name
from agent_r1_env.formats.coercion import parameters_of, text_argument
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import MOST_CALLS, ParsedReply, Scanner
from agent_r1_env.messages import CallFault, ToolCall

_NAME = "[A-Za-z0-9_.-]{1,64}"
_ANY_TAG = re.compile(rf"<(?=/?{_NAME}>)")


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag that calls a tool; ``argument`` is what bare text in it stands for."""

    tool: str
    argument: str | None = None


_SEARCH = {"search": _Tag("search", "query")}


class XmlTags(Format):
    """Reads and writes calls in tags. It cannot carry calls whose tag has the name of another tag in use.

    Args:
        tags: by tag, ``{"tool": name, "argument": name}``, or the argument alone where the tag is named as
            the tool is. Every other tool has a tag of its own name; the text in it stands for its only, or
            only required, argument if that is text. Without tools and tags there is ``<search>``.
        results: the tag around results.
        answer: the tag around the final answer; as in ``answer_tag`` of the environment.
        reasoning: the tag around reasoning.

    Raises:
        UnknownName: a tag has a setting that does not exist.
        ValueError: a tag is no name, or stands for two things.
    """

    name = "xml_tags"
    models = "Search-R1 and others, by a warm start or a prompt"
    end_of_turn = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>")

    reasoning: tuple[str, str]

    def __init__(
        self,
        tags: Mapping[str, str | Mapping[str, str]] | None = None,
        results: str = "information",
        answer: str = "answer",
        reasoning: str = "think",
    ) -> None:
        self.reasoning = (f"<{reasoning}>", f"</{reasoning}>")
        self.reserved = (results, answer, reasoning)
        if not isinstance(tags or {}, Mapping):
            raise ValueError(f"tags must be a mapping from tag to argument, not {tags!r}")
        self._tags = {tag: _configured(tag, given) for tag, given in (tags or {}).items()}
        _check([*self.reserved, *self._tags])
        shown = self._tags or _SEARCH
        self.stop = (*(f"</{tag}>" for tag in shown), f"</{answer}>", f"<{results}>")
        self.markers = tuple(f"<{tag}>" for tag in shown)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply. The answer stays in the content."""
        return _Scanner(self, self._tags_of(tools), reply, tools, repair).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call in its tag: the bare text where a tag is told which argument that is, else JSON."""
        tags = {tag.tool: (name, tag.argument) for name, tag in (self._tags or _SEARCH).items()}
        return "\n".join(_written(*tags.get(call.name, (call.name, None)), call.arguments) for call in calls)

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Each tool as JSON Schema, with the tag that calls it."""
        lines, results = [], f"<{self.reserved[0]}></{self.reserved[0]}>"
        for name, tag in self._tags_of(tools).items():
            schema = next(
                (f for tool in tools if (f := tool.get("function", tool))["name"] == tag.tool), None
            )
            if schema is not None:
                lines += [json.dumps(schema, ensure_ascii=False), _form(name, tag, tools), ""]
        return (
            "You can use these tools. Each is described as JSON Schema, and below it stands how to call it:\n"
            + "\n".join(lines)
            + f"\nEnd your reply there. The result is given to you inside {results}."
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result in its tag."""
        tag = self.reserved[0]
        return "\n".join(f"<{tag}>{result['content']}</{tag}>" for result in results)

    def neutralise(self, text: str) -> str:
        """Every tag without attributes is broken, since any may be a tool's."""
        return _ANY_TAG.sub("< ", defuse(text))

    def _tags_of(self, tools: Sequence[ToolSchema]) -> dict[str, _Tag]:
        if not tools:
            return self._tags or _SEARCH
        called = {tag.tool for tag in self._tags.values()}
        names = [str(tool.get("function", tool)["name"]) for tool in tools]
        own = {name: _Tag(name) for name in names if name not in called and name not in self.reserved}
        if not self._tags and "query" in (parameters_of(tools, "search").get("properties") or ()):
            own |= _SEARCH
        return own | self._tags


def _configured(tag: str, given: str | Mapping[str, str]) -> _Tag:
    if isinstance(given, str):
        return _Tag(tag, given)
    if not isinstance(given, Mapping):
        raise ValueError(
            f"the tag {tag!r} takes the name of an argument, or tool and argument, not {given!r}"
        )
    for key in given:
        if key not in ("tool", "argument"):
            raise unknown_name("setting", key, ["argument", "tool"], f"the tag {tag!r}")
    return _Tag(given.get("tool", tag), given.get("argument"))


def _check(names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ValueError(f"{name!r} cannot be a tag; a tag is letters, digits, _, - and . only")
        if name in names[:index]:
            raise ValueError(f"the tag {name!r} stands for two things; rename one")


def _argument(tag: _Tag, tools: Sequence[ToolSchema]) -> str | None:
    return tag.argument or text_argument(parameters_of(tools, tag.tool))


def _form(name: str, tag: _Tag, tools: Sequence[ToolSchema]) -> str:
    """How a call is written, for the model."""
    argument = _argument(tag, tools)
    if argument is None:
        properties = parameters_of(tools, tag.tool).get("properties")
        argument = ", ".join(f'"{key}": ...' for key in properties or ("argument",)).join("{}")
    return f"<{name}>{argument}</{name}>"


def _written(name: str, argument: str | None, arguments: Mapping[str, Any]) -> str:
    text = arguments.get(argument) if argument is not None and len(arguments) == 1 else None
    if (
        not isinstance(text, str)
        or text != text.strip()
        or text[:1] in ("", "{", "`")
        or _ANY_TAG.search(text)
    ):
        # Generation stops at a closing tag, so that in a string must not look like one.
        text = json.dumps(arguments, ensure_ascii=False).replace("</", "<\\/")
    return f"<{name}>{text}</{name}>"


@lru_cache(maxsize=256)
def _patterns(tags: tuple[str, ...], others: tuple[str, str, str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Where reading stops, and where bare text ends."""
    calls = "|".join(map(re.escape, tags)) or "(?!)"
    known = "|".join(map(re.escape, (*tags, *others)))
    results, answer, _ = map(re.escape, others)
    return re.compile(f"<(?P<tag>{calls}|{results}|{answer})>|</(?P<closed>{calls})>"), re.compile(
        f"</?(?:{known})>"
    )


class _Scanner(Scanner):
    def __init__(
        self, format: XmlTags, tags: Mapping[str, _Tag], reply: str, tools: Sequence[ToolSchema], repair: bool
    ) -> None:
        self.reasoning = format.reasoning
        self.openers, self._text_end = _patterns(tuple(tags), format.reserved)
        super().__init__(reply, tools, repair=repair, end_of_turn=format.end_of_turn)
        self._tags = tags
        self._results, self._answer, _ = format.reserved

    def read(self, opener: re.Match[str]) -> None:
        start, name = opener.start(), opener["tag"] or opener["closed"]
        if name == self._results:
            known = self.attempts or self.text.find(f"</{self._answer}>", self._draft_end, start) >= 0
            self.mend = "write a call and end the reply there"
            fault = f"results come from a tool, and no call stands before this <{name}>"
            self.invented(start, opener.end(), "" if known else fault)
        elif name == self._answer:
            self._pass_answer(start)
        else:
            tag = self._tags[name]
            self.mend = f"write {_form(name, tag, self.tools)}"
            if opener["closed"]:
                fault = f"a </{name}> stands without its <{name}>"
                self.fail(CallFault.STRAY, fault, start, opener.end())
            else:
                self._read_call(name, tag.tool, _argument(tag, self.tools), start)

    def _pass_answer(self, start: int) -> None:
        """Whatever stands in an answer is text, tags of calls too."""
        closing = f"</{self._answer}>"
        end = self.ahead(closing)
        if end >= 0 and not 0 <= self.ahead(self.reasoning[1]) < end:
            self.position = end + len(closing)
        self.content.append(self.text[start : self.position])

    def _read_call(self, name: str, tool: str, argument: str | None, start: int) -> None:
        at = self.skip(self.position)
        if argument is None or self.text.startswith("{", at) or self._is_fenced_object(at):
            self._read_objects(name, tool, start, at)
            return
        end, closed = self._block_end(name, at)
        text = self.text[at:end].removesuffix(f"</{name}>").strip()
        if closed and text:
            self.accept(tool, {argument: text})
            self.position = end
        elif closed:
            self.fail(CallFault.NO_ARGUMENTS, f"nothing stands in <{name}>", start, end)
        else:
            self._fail_open(name, start, end)

    def _is_fenced_object(self, at: int) -> bool:
        """Whether an object in a code fence stands there, which is read on ``repair`` alone."""
        if not self.text.startswith("```", at):
            return False
        try:
            return isinstance(self.value(at)[0], dict)
        except ValueError:
            return False

    def _read_objects(self, name: str, tool: str, start: int, at: int) -> None:
        """Read one object or more, up to the closing tag; each is a call."""
        found: list[tuple[dict[str, Any], tuple[str, ...]]] = []
        while len(self.attempts) + len(found) < MOST_CALLS:
            if found and self.text.startswith(f"</{name}>", at):
                at += len(f"</{name}>")
                break
            try:
                value, behind, repairs = self.value(at)
            except ValueError as error:
                self._fail_json(name, start, at, bool(found), error)
                return
            if not isinstance(value, dict):
                end, _ = self._block_end(name, behind)
                said = self.text[at:end].removesuffix(f"</{name}>")[:60]
                fault = f"the arguments must be a JSON object, not {defuse(' '.join(said.split()))}"
                self.fail(CallFault.ARGUMENTS, fault, start, end)
                return
            found.append((value, repairs))
            at = self.skip(behind)
        for value, repairs in found:
            self.accept(tool, value, repairs=repairs)
        self.position = at

    def _block_end(self, name: str, at: int) -> tuple[int, bool]:
        """Where a block ends in which no JSON hides tags, and whether that is behind its closing tag."""
        following = self._text_end.search(self.text, at)
        if following is None:
            return len(self.text), False
        closed = following.group() == f"</{name}>"
        return following.end() if closed else following.start(), closed

    def _fail_open(self, name: str, start: int, end: int) -> None:
        kind = CallFault.SYNTAX if end < len(self.text) else CallFault.INCOMPLETE
        self.fail(kind, f"<{name}> is not closed by </{name}>", start, end)

    def _fail_json(self, name: str, start: int, at: int, follows: bool, error: ValueError) -> None:
        """Give up on a block in which no JSON stands at ``at``, where it must or, behind an object, may."""
        end, closed = self._block_end(name, at)
        if not closed and (follows or at >= len(self.text)):
            self._fail_open(name, start, end)
            return
        cut = is_cut(error, self.text) or (not closed and end == len(self.text))
        kind = CallFault.INCOMPLETE if cut else CallFault.SYNTAX
        fault = f"the text in <{name}> is not valid JSON: {json_fault(error, at)}"
        self.fail(kind, fault, start, end)
