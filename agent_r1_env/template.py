"""From what an environment shows to prompt ids, and from sampled ids back to the text of a reply.

``ChatTemplate`` speaks through a tokenizer's own chat template, ``PlainText`` takes the environment's text as
it is. Decoding a reply is for the environment's eyes only: the ids that are trained on never come from here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent_r1_env.engines import Tokenizer
from agent_r1_env.errors import TemplateWarning
from agent_r1_env.facts import Facts, examine
from agent_r1_env.fitting import fit
from agent_r1_env.formats import Format
from agent_r1_env.formats.detection import speaks
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.layout import Layout, Mode
from agent_r1_env.probe import Refused, Renderer, turn
from agent_r1_env.prompt import TemplateFault, printable

_SENTINEL = "sentinel-of-an-assistant-turn"
_REASONING = ("<think>", "</think>", "[THINK]", "[/THINK]")
Turn = Mapping[str, Any]


class Template(Protocol):
    """What a rollout asks of a template."""

    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Prompt ids of what ``reset`` or ``step`` returned."""

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids as the environment reads it, without the token that ended the turn."""


@dataclass(frozen=True, slots=True)
class Stops:
    """What ends a reply.

    Attributes:
        texts: texts that end it and stay in it.
        ids: tokens that end it, those of ``kept`` too; the template's own end of turn last.
        kept: tokens that end it and stay in what the environment reads.
    """

    texts: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    kept: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        format: Format | None = None,
        more: Iterable[int] = (),
        texts: Sequence[str] = (),
    ) -> Stops:
        """The stops of a tokenizer and a format.

        A text that is one token of the tokenizer is looked for as a token: where decoding drops special
        tokens, as engines do by default, their text never appears.

        Args:
            more: further tokens that end a reply.
            texts: further texts that do.
        """
        known = {text: token for token, text in added_tokens(tokenizer).items()}
        wanted = dict.fromkeys([*texts, *(format.stop if format else ())])
        kept = [known[text] for text in wanted if text in known]
        ends = [known[text] for text in (format.end_of_turn if format else ()) if text in known]
        ids = [*_eos(tokenizer), *ends, *kept]
        last = list(dict.fromkeys(more))
        ids = [*(token for token in dict.fromkeys(ids) if token not in last), *last]
        silent = {*_eos(tokenizer), *ends, *last}
        return cls(tuple(text for text in wanted if text not in known), tuple(ids), frozenset(kept) - silent)


class PlainText:
    """Hands an environment's text to the tokenizer as it is."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop_token_ids: Sequence[int] = (),
        stop: Sequence[str] = (),
        format: Format | None = None,
    ) -> None:
        """The tokenizer's end of sequence stops too, and what ends a reply in the format."""
        self.tokenizer = tokenizer
        self.stops = Stops.of(tokenizer, format, stop_token_ids, stop)
        self.stop, self.stop_token_ids = self.stops.texts, self.stops.ids

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of the observation, with a begin token where the tokenizer is used to one."""
        return self.encode_text(self.text(observation, info))

    def text(self, observation: str, info: Mapping[str, Any]) -> str:
        """The observation."""
        return printable(observation)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a whole prompt."""
        return list(self.tokenizer.encode(text))

    def says(self, rendition: str, reply: str, info: Mapping[str, Any]) -> bool:
        """Whether what a prompt shows of a reply is the reply: letter for letter."""
        return rendition == reply

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens kept, the one that ended the turn left out."""
        return _reply_text(self.tokenizer, ids, self.stops)


class ChatTemplate:
    """Renders an environment's messages with the chat template of a tokenizer.

    What the template does with tools, calls and results is found out by rendering, and the first `Mode` is
    taken in which it loses none of them.

    Attributes:
        layout: how conversations are handed to the template.
        stop_token_ids: The tokenizer's end of sequence, the tokens that end a reply in the format, and what
            the template writes behind an assistant turn, which for many models is another one.
    """

    def __init__(self, tokenizer: Any, format: Format, mode: Mode | str | None = None) -> None:
        """Probe the tokenizer's template; with a ``mode`` no other is tried.

        Raises:
            ValueError: the tokenizer has no chat template.
            TemplateFault: whatever the mode, the template loses a part of the conversation.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"the tokenizer {type(tokenizer).__name__!r} has no chat template; use PlainText"
            )
        self.tokenizer = tokenizer
        self.format = format
        self._special = _special_pattern(tokenizer)
        self._render = Renderer(tokenizer)
        self.facts: Facts = examine(self._render)
        found = fit(
            self._render,
            self.facts,
            format,
            spoken=speaks(self.facts, format),
            mode=None if mode is None else Mode(mode),
        )
        self.why_not = found.why_not
        if found.layout is None:
            reasons = "; ".join(f"{each}: {reason}" for each, reason in found.why_not.items())
            raise TemplateFault(
                f"the tokenizer's chat template loses a part of a conversation with tools in the format "
                f"{format.name!r} ({reasons}); give tokenizer.chat_template another template"
            )
        self.layout: Layout = found.layout
        self._opened, self._closing = _opened(self.facts.opening, (*format.reasoning, *_REASONING))
        self.stops = Stops.of(tokenizer, format, self._end_of_turn())
        self.stop, self.stop_token_ids = self.stops.texts, self.stops.ids
        self._warned = False

    @property
    def mode(self) -> Mode:
        """Who writes tools, calls and results into the prompt."""
        return self.layout.mode

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of ``info["messages"]``; without messages the observation is taken as one user turn."""
        return self.encode_text(self.text(observation, info))

    def prompt_ids(
        self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]], prompt: bool = True
    ) -> list[int]:
        """Ids of ``prompt_text``."""
        return self.encode_text(self.prompt_text(messages, tools, prompt))

    def text(self, observation: str, info: Mapping[str, Any]) -> str:
        """What ``encode`` gives the ids of."""
        messages = info.get("messages") or [turn("user", observation)]
        return self.prompt_text(messages, info.get("tools") or [])

    def encode_text(self, text: str) -> list[int]:
        """Ids of a whole prompt; the template has written its begin token already."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def says(self, rendition: str, reply: str, info: Mapping[str, Any]) -> bool:
        """Whether what a prompt shows of a reply says the same as the reply.

        White space around it may differ, and where the template gets calls as data, the way in which they
        are written.
        """
        if rendition.strip() == reply.strip():
            return True
        if self.layout.mode is not Mode.STRUCTURED:
            return False
        tools = info.get("tools") or []
        shown, said = (self.format.parse(text, tools) for text in (rendition, reply))
        return not said.errors and bool(said.calls) and _meaning(shown) == _meaning(said)

    def prompt_text(
        self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]], prompt: bool = True
    ) -> str:
        """Text of the whole conversation; special tokens inside user and tool turns are broken by a space.

        Args:
            prompt: it ends where the model's next turn begins, and not with the last message.
        """
        turns = [self._prepared(message) for message in messages]
        try:
            return self._render(*self.layout.lay_out(turns, tools, self.format, self._disarm), prompt)
        except Refused as refused:
            if self.layout.mode is Mode.FLATTENED:
                raise TemplateFault(f"the chat template fails on this conversation: {refused}") from refused
            return self._flattened(turns, tools, refused, prompt)

    def _flattened(
        self, turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], why: Refused, prompt: bool
    ) -> str:
        """A conversation that the template refuses as it is: what a model writes must not end a run."""
        if not self._warned:
            self._warned = True
            text = (
                f"the chat template refused a conversation ({why}); it was rendered in the mode 'flattened'"
            )
            warnings.warn(text, TemplateWarning, stacklevel=3)
        system = self.facts.findings["system role"].kept
        layout = Layout(Mode.FLATTENED, system, self.facts.silence)
        try:
            return self._render(*layout.lay_out(turns, tools, self.format), prompt)
        except Refused as refused:
            raise TemplateFault(f"the chat template fails on this conversation: {refused}") from refused

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens kept, the one that ended the turn left out."""
        return _reply_text(self.tokenizer, ids, self.stops)

    def _prepared(self, message: Turn) -> dict[str, Any]:
        """The message as it may be rendered: what others wrote disarmed, what the model wrote made whole."""
        content = printable(str(message.get("content") or ""))
        if message["role"] in ("user", "tool"):
            content = self._disarm(content)
        elif message["role"] == "assistant" and self._only_closes(content):
            content = self._opened + content
        return {**message, "content": content}

    def _only_closes(self, reply: str) -> bool:
        """Whether a reply ends reasoning that the prompt opened."""
        before, closed, _ = reply.partition(self._closing) if self._closing else ("", "", "")
        return bool(closed) and self._opened.strip() not in before

    def _disarm(self, text: str) -> str:
        return self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _end_of_turn(self) -> list[int]:
        """The special token right behind an assistant turn, if there is one."""
        said = [turn("user", "u"), turn("assistant", _SENTINEL)]
        try:
            behind = self._render(said, prompt=False).rpartition(_SENTINEL)[2]
        except Refused:
            return []
        ids = list(self.tokenizer.encode(behind, add_special_tokens=False)) if behind else []
        return ids[:1] if ids and _is_special(self.tokenizer, ids[0]) else []


def _meaning(parsed: ParsedReply) -> tuple[Any, ...]:
    """All that a reply says, but not how it is written."""
    calls = [(call.name, call.arguments) for call in parsed.calls]
    return calls, parsed.content.strip(), (parsed.reasoning or "").strip()


def _opened(opening: str, tags: Sequence[str]) -> tuple[str, str]:
    """The tag that the head of a turn ends with, white space included, and the one that closes it."""
    for tag, closing in zip(tags[::2], tags[1::2], strict=False):
        if opening.rstrip().endswith(tag):
            return opening[opening.rindex(tag) :], closing
    return "", ""


def _eos(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """Id to text of every token that is never ordinary text."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    tokens = {int(i): str(token) for i, token in added.items() if getattr(token, "special", True)}
    tokens.update(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return tokens


def _is_special(tokenizer: Any, token: int) -> bool:
    return token in _special_tokens(tokenizer)


def _special_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Matches the special tokens, the longest first; a token of one character can't be broken and is left."""
    texts = sorted(
        {text for text in _special_tokens(tokenizer).values() if len(text) > 1}, key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")


def added_tokens(tokenizer: Any) -> dict[int, str]:
    """Id to text of every token that was added to the vocabulary, special or not."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {int(i): str(token) for i, token in added.items()} | _special_tokens(tokenizer)


def _reply_text(tokenizer: Tokenizer, ids: Sequence[int], stops: Stops) -> str:
    ended = bool(ids) and ids[-1] in stops.ids and ids[-1] not in stops.kept
    # Whatever the tokenizer's default: the marks of many formats are special tokens.
    return str(tokenizer.decode(list(ids[:-1] if ended else ids), skip_special_tokens=False))


def template_for(tokenizer: Any, format: Format) -> Template:
    """``ChatTemplate`` for a tokenizer that has a chat template, else ``PlainText``."""
    if getattr(tokenizer, "chat_template", None):
        return ChatTemplate(tokenizer, format)
    return PlainText(tokenizer, format=format)
