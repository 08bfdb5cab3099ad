"""The harmony wire format of gpt-oss: messages with a header each, on three channels.

A message whose header names a recipient is a call, and its text the arguments. The recipient may stand in the
role part of the header (``assistant to=functions.x``) or behind the channel. A reply begins inside a header,
since the prompt ends in ``<|start|>assistant``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile, zip_longest
from typing import Any

from agent_r1_env.formats.coercion import parameters_of, text_argument
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.formats.typescript import namespace
from agent_r1_env.messages import CallFault, ToolCall

_START, _CHANNEL, _CONSTRAIN, _MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_MARK = re.compile(r"<\|(?:start|channel|constrain|message|end|call|return)\|>")
_HEADER_END = re.compile(r"<\|(?:message|start|end|call|return)\|>")
_THOUGHT_END = re.compile(r"<\|(?:start|end|call|return)\|>")
_TEXT_END = re.compile(r"<\|(?:start|channel|end|call|return)\|>")
_CUT_MARK = re.compile(r"<(?:\|[a-z]{0,9}\|?)?\Z")
_CHANNELS = ("analysis", "commentary", "final")
_OTHERS = ("user", "system", "developer", "tool")
_FUNCTIONS = "functions."
_ROLE_PART = re.compile(r"assistant(?: to=[^ <]*)?|to=[^ <]*")
_HEADER = re.compile(
    r"(?P<role>(?!to=)[^ <]+)?(?: ?to=(?P<to>[^ <]*))?"
    r" ?(?:<\|channel\|> ?(?P<channel>[^ <]*)(?: to=(?P<also_to>[^ <]*))?)?"
    r"(?: ?<\|constrain\|> ?(?P<constrained>[^ <]+)| (?P<kind>[^ <]+))?"
)
_BEGUN = re.compile(r"<\|channel\|>[a-z]*(?: to=assistant)?(?=<\|channel\|>)")
"""A header that was begun once more before it was complete, and names no tool."""
_LONGEST_HEADER = 400
"""Characters; a name has at most 64, and no header needs more than one."""


class Harmony(Format):
    """Reads and writes the messages of gpt-oss. Every JSON object can be carried."""

    name = "harmony"
    models = "gpt-oss"
    end_of_turn = (_CALL, _RETURN, "<|endoftext|>")
    reasoning = (f"{_CHANNEL}analysis{_MESSAGE}", _END)
    markers = (f"{_CHANNEL}commentary", _CONSTRAIN)

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply; the texts of its messages are joined by line breaks, as are its thoughts."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=("<|endoftext|>",)).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call as a message of its own; the first goes on where the prompt ends."""
        return f"{_START}assistant".join(
            f"{_CHANNEL}commentary to={_FUNCTIONS}{call.name} {_CONSTRAIN}json{_MESSAGE}"
            f"{json.dumps(call.arguments, ensure_ascii=False)}{_CALL}"
            for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as types of a TypeScript namespace."""
        return (
            f"# Tools\n\n## functions\n\n{namespace('functions', tools)}\n\n"
            "Every message names its channel: think on analysis, call functions on commentary, answer on "
            "final. A call names the function in its header and holds the arguments as JSON:\n"
            f"{_CHANNEL}commentary to={_FUNCTIONS}NAME {_CONSTRAIN}json{_MESSAGE}{{...}}{_CALL}"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result as the message that the function would send."""
        return "\n".join(
            f"{_START}{_FUNCTIONS}{result.get('name', 'tool')} to=assistant{_CHANNEL}commentary{_MESSAGE}"
            f"{result['content']}{_END}"
            for result in results
        )

    def structure(self, messages: Sequence[Turn], tools: Sequence[ToolSchema] = ()) -> list[dict[str, Any]]:
        """The conversation as the template of gpt-oss takes it.

        That template prints one call an assistant turn, so each further call gets a turn of its own, and the
        result of each follows it. It takes reasoning as ``thinking`` and refuses other text beside a call, so
        that text is joined to the reasoning. It refuses a result without a call before it, so the results of
        failed attempts become user turns.
        """
        turns: list[dict[str, Any]] = []
        for index, message in enumerate(messages):
            results = list(takewhile(_is_result, islice(messages, index + 1, None)))
            if message["role"] == "assistant":
                turns += _exchange(self.parse(str(message["content"]), tools), results)
            elif not _is_result(message):
                turns += [dict(message), *map(_told, results)]
        return turns


def _is_result(message: Turn) -> bool:
    return bool(message["role"] == "tool")


def _told(result: Turn) -> dict[str, Any]:
    return {"role": "user", "content": result["content"]}


def _exchange(parsed: ParsedReply, results: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The turns of one reply and of the results that came back."""
    # The template raises where a text holds what looks like the header of a message.
    content, thinking = (
        _MARK.sub(lambda mark: f"< {mark.group()[1:]}", text) for text in (parsed.content, parsed.reasoning)
    )
    told = []
    if parsed.calls and not parsed.errors:
        content, thinking = "", "\n".join(filter(None, (thinking, content)))
    for attempt, result in zip_longest(parsed.attempts, results):
        if isinstance(attempt, ToolCall):
            function = {"name": attempt.name, "arguments": attempt.arguments}
            call = {"type": "function", "id": attempt.id, "function": function}
            yield _assistant("", thinking, tool_calls=[call])
            thinking = ""
            if result is not None:
                yield {**result, "tool_call_id": attempt.id}
        elif result is not None:
            told.append(_told(result))
    if content or not parsed.calls:
        yield _assistant(content, thinking)
    yield from told


def _assistant(content: str, thinking: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"thinking": thinking} if thinking else {}), **more}


@dataclass(frozen=True, slots=True)
class _Header:
    """What the header of a message says.

    Attributes:
        recipient: whom it is to, or None; "" if a name should have followed.
        kind: what its text is written in, such as json; "" where the header does not say.
    """

    role: str
    channel: str
    recipient: str | None
    kind: str
    repairs: tuple[str, ...]


class _Scanner(Scanner):
    openers = _MARK
    reasoning = ()
    mend = (
        f"write a call as {_CHANNEL}commentary to=functions.NAME {_CONSTRAIN}json{_MESSAGE}{{...}}{_CALL}, "
        f"an answer as {_CHANNEL}final{_MESSAGE}..."
    )

    def read(self, opener: re.Match[str]) -> None:
        before = self.content.pop()
        if opener.group() in (_END, _CALL, _RETURN):
            self._read_stray_end(opener, before)
        else:
            self._read_message(opener, before)
        at = self.skip(self.position)
        if _MARK.match(self.text, at):
            self.position = at

    def fail(self, kind: CallFault, fault: str, start: int, end: int, *, kept: str | None = None) -> None:
        """Record a failed attempt; it is kept on a line of its own, as a message is."""
        if self.content and start < end:
            self.content.append("\n")
        super().fail(kind, fault, start, end, kept=kept)

    def _read_stray_end(self, opener: re.Match[str], before: str) -> None:
        """Read what ends a message where none began: nothing, unless the text before it says more."""
        start = opener.start() - len(before)
        if opener.group() == _CALL and before.lstrip().startswith("{"):
            self.fail(CallFault.STRAY, "a call has no header", start, opener.end())
        elif opener.group() == _END and not start and self.text.startswith(_START, self.skip(opener.end())):
            # The prompt opened the message, and another one follows, so it was a thought.
            _add_part(self._reasoning, before)
        else:
            self._keep(before)

    def _keep(self, text: str) -> None:
        """Keep text that stands outside of all messages, as it is."""
        if text and not text.isspace():
            self.content.append(text)

    def _read_message(self, opener: re.Match[str], before: str) -> None:
        start = opener.start()
        if opener.group() != _START and _ROLE_PART.fullmatch(_one_line(before)):
            start -= len(before)
        else:
            self._keep(before)
        end = _HEADER_END.search(self.text, opener.end() if opener.group() == _START else opener.start())
        if end is None:
            self.fail(CallFault.INCOMPLETE, "the reply ends in a header", start, len(self.text))
        elif end.group() != _MESSAGE:
            fault = f"the header of a message must end in {_MESSAGE}, but {end.group()} came"
            self.fail(CallFault.SYNTAX, fault, start, _behind(end))
        else:
            try:
                header = self._header(self.text[start : end.start()])
            except ValueError as error:
                self.fail(CallFault.SYNTAX, str(error), start, self._text_end(end.end())[1])
                return
            self._read_text(header, start, end.end())

    def _header(self, text: str) -> _Header:
        """Read what stands before ``<|message|>``.

        Raises:
            ValueError: it is not written as it should be.
        """
        line = _BEGUN.sub("", _one_line(text))
        started = line.startswith(_START)
        match = _HEADER.fullmatch(line.removeprefix(_START).lstrip())
        if match is None:
            raise ValueError(f"{_shown(line)} is not the header of a message")
        role = match["role"] or ("" if started else "assistant")
        recipients = [name for name in match.group("to", "also_to") if name is not None]
        recipient = recipients[0] if recipients else None
        channel, repairs = match["channel"], tuple[str, ...]()
        if role in _OTHERS or (role != "assistant" and recipients == ["assistant"]):
            return _Header(role, channel or "", recipient, "", ())
        if role != "assistant":
            raise ValueError(f"a message must be of the role assistant, not {_shown(role)}")
        if channel is None and recipient is None:
            raise ValueError("the header of a message names no channel")
        if channel is not None and channel not in _CHANNELS:
            raise ValueError(f"there is no channel {_shown(channel)}, only {', '.join(_CHANNELS)}")
        if len(recipients) == 2:
            if not self.repair or recipients[0] != recipients[1]:
                raise ValueError("the header of a message names two recipients")
            repairs = ("recipient_twice",)
        return _Header(role, channel or "", recipient, match["constrained"] or match["kind"] or "", repairs)

    def _text_end(self, at: int, channel: str = "") -> tuple[int, int, str]:
        """Where the text of a message ends, where reading goes on, and the mark that ends it."""
        # What looks like a new header in a thought, without the start of a message, is part of the thought.
        end = (_THOUGHT_END if channel == "analysis" else _TEXT_END).search(self.text, at)
        return (end.start(), _behind(end), end.group()) if end else (len(self.text), len(self.text), "")

    def _read_text(self, header: _Header, start: int, at: int) -> None:
        """Read the text of a message, from ``at`` on."""
        if header.role != "assistant":
            self._read_invented(start)
            return
        if header.recipient not in (None, "assistant"):
            self._read_call(header, start, at)
            return
        end, behind, mark = self._text_end(at, header.channel)
        if header.channel == "analysis" and header.recipient is None:
            _add_part(self._reasoning, self.text[at:end])
        elif mark == _CALL or (header.channel == "commentary" and header.kind and header.recipient is None):
            self.fail(CallFault.NO_NAME, "the header of the call names no function", start, behind)
        elif header.recipient is None:
            _add_part(self.content, self.text[at:end])
        self.position = behind

    def _read_invented(self, start: int) -> None:
        """Pass over a message that others would write, such as a result: nothing behind it counts."""
        if not self.attempts and not self.content:
            fault = "the reply holds a message of another role than assistant"
            self.fail(CallFault.STRAY, fault, start, len(self.text))
        elif self.attempts:
            _add_part(self.content, self.text[start:])
        # Behind an answer it is left out, since an answer in it would be taken for the model's last word.
        self.position = len(self.text)

    def _read_call(self, header: _Header, start: int, at: int) -> None:
        name = (header.recipient or "").removeprefix(_FUNCTIONS)
        begin = self.skip(at)
        if not name:
            self.fail(CallFault.NO_NAME, "the call names no function", start, self._text_end(at)[1])
        elif begin == len(self.text):
            self.fail(CallFault.INCOMPLETE, "the reply ends before the arguments of the call", start, begin)
        elif end := _TEXT_END.match(self.text, begin):
            self.call(name, None, start, _behind(end), repairs=header.repairs)
        elif header.recipient == "python" and (header.kind == "code" or self.text[begin] != "{"):
            stop, self.position, _ = self._text_end(at)
            argument = text_argument(parameters_of(self.tools, name)) or "code"
            self.accept(name, {argument: self.text[at:stop]}, repairs=header.repairs)
        else:
            self._read_arguments(name, header, start, begin)

    def _read_arguments(self, name: str, header: _Header, start: int, at: int) -> None:
        try:
            value, end, repairs = self.value(at)
        except ValueError as error:
            kind = CallFault.INCOMPLETE if is_cut(error, self.text) else CallFault.SYNTAX
            fault = f"the arguments of the call are not valid JSON: {json_fault(error, at)}"
            self.fail(kind, fault, start, self._text_end(at)[1])
            return
        after = self.skip(end)
        closing = _TEXT_END.match(self.text, after)
        if closing is None and after < len(self.text):
            kind = CallFault.INCOMPLETE if _CUT_MARK.match(self.text, after) else CallFault.SYNTAX
            fault = f"text follows the arguments where {_CALL} should stand"
            self.fail(kind, fault, start, self._text_end(after)[1])
            return
        behind = _behind(closing) if closing else after
        self.call(name, value, start, behind, repairs=(*header.repairs, *repairs))


def _add_part(parts: list[str], text: str) -> None:
    """Add the text of a message to others, on a line of its own."""
    if text:
        parts += ["\n", text] if parts else [text]


def _behind(end: re.Match[str]) -> int:
    """Where reading goes on behind the end of a message, which may be the beginning of the next one."""
    return end.start() if end.group() in (_START, _CHANNEL) else end.end()


def _one_line(text: str) -> str:
    """What may be a header with single spaces between its words; what is too long for one as it is."""
    return " ".join(text.split()) if len(text) <= _LONGEST_HEADER else text


def _shown(text: str) -> str:
    return repr(defuse(text[:60]))
