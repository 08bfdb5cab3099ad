"""From what an environment shows to prompt ids, and from sampled ids back to the text of a reply.

``ChatTemplate`` speaks through a tokenizer's own chat template, ``PlainText`` takes the environment's text as
it is. Decoding a reply is for the environment's eyes only: the ids that are trained on never come from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jinja2
import jinja2.ext
import jinja2.meta

from agent_r1_env.engines import Tokenizer
from agent_r1_env.formats import Format

_SENTINEL = "sentinel-of-an-assistant-turn"
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "X"}}},
    },
}
Turn = Mapping[str, Any]


class Template(Protocol):
    """What a rollout asks of a template."""

    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Prompt ids of what ``reset`` or ``step`` returned."""

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids as the environment reads it, without the token that ended the turn."""


class PlainText:
    """Hands an environment's text to the tokenizer as it is."""

    def __init__(
        self, tokenizer: Tokenizer, stop_token_ids: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        """The tokenizer's end of sequence stops too; ``stop`` are texts that end a reply."""
        self.tokenizer = tokenizer
        self.stop = tuple(stop)
        self.stop_token_ids = tuple(dict.fromkeys([*_eos(tokenizer), *stop_token_ids]))

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of the observation, with a begin token where the tokenizer is used to one."""
        return list(self.tokenizer.encode(_encodable(observation)))

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens kept, the one that ended the turn left out."""
        return _reply_text(self.tokenizer, ids, self.stop_token_ids)


class ChatTemplate:
    """Renders an environment's messages with the chat template of a tokenizer.

    Tools are handed to the template when it takes ``tools`` and then tells the model to write calls in the
    format that the environment reads; otherwise the format writes the tools into the system turn.

    Attributes:
        native: Whether the tokenizer's template renders tools and tool results itself.
        stop_token_ids: The tokenizer's end of sequence and what the template writes behind an assistant turn,
            which for many models is another token.
    """

    def __init__(self, tokenizer: Any, format: Format, native: bool | None = None) -> None:
        """Probe the tokenizer's template; ``native`` overrides what the probe finds.

        Raises:
            ValueError: the tokenizer has no chat template.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"the tokenizer {type(tokenizer).__name__!r} has no chat template; use PlainText"
            )
        self.tokenizer = tokenizer
        self.format = format
        self.stop = format.stop
        self._special = _special_pattern(tokenizer)
        self._system_turns = self._renders([_turn("system", "s"), _turn("user", "u")])
        self.native = self._speaks_format() if native is None else native
        self.stop_token_ids = tuple(dict.fromkeys([*_eos(tokenizer), *self._end_of_turn()]))

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of ``info["messages"]``; without messages the observation is taken as one user turn."""
        messages = info.get("messages") or [_turn("user", observation)]
        return self.prompt_ids(messages, info.get("tools") or [])

    def prompt_ids(self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of the whole conversation, ending where the model's next turn begins."""
        return list(self.tokenizer.encode(self.prompt_text(messages, tools), add_special_tokens=False))

    def prompt_text(self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> str:
        """Text of the whole conversation; special tokens inside user and tool turns are broken by a space."""
        turns = [self._disarmed(message) for message in messages]
        if self.native:
            return self._render(turns, list(tools) or None)
        return self._render(self.format.flatten(turns, tools), None)

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, special tokens kept, the one that ended the turn left out."""
        return _reply_text(self.tokenizer, ids, self.stop_token_ids)

    def _disarmed(self, message: Turn) -> dict[str, Any]:
        content = _encodable(str(message.get("content") or ""))
        if message["role"] in ("user", "tool"):
            content = self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)
        return {**message, "content": content}

    def _render(self, turns: Sequence[Turn], tools: Any, prompt: bool = True) -> str:
        if not self._system_turns:
            turns = _without_system(turns)
        text = self.tokenizer.apply_chat_template(
            [dict(turn) for turn in turns], tools=tools, tokenize=False, add_generation_prompt=prompt
        )
        return str(text)

    def _renders(self, turns: Sequence[Turn]) -> bool:
        """Whether the template accepts the turns; those that refuse a role raise."""
        try:
            self.tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True)
        except jinja2.TemplateError:
            return False
        return True

    def _speaks_format(self) -> bool:
        """Whether the template takes tools and shows the model the call syntax of our format."""
        if not _takes_tools(self.tokenizer.chat_template):
            return False
        marker = self.format.render_call("probe", {}).partition("{")[0].strip()
        return marker in self._render([_turn("user", "u")], [_PROBE_TOOL])

    def _end_of_turn(self) -> list[int]:
        """The special token right behind an assistant turn, if there is one."""
        text = self._render([_turn("user", "u"), _turn("assistant", _SENTINEL)], None, prompt=False)
        behind = text.rpartition(_SENTINEL)[2]
        ids = list(self.tokenizer.encode(behind, add_special_tokens=False)) if behind else []
        return ids[:1] if ids and _is_special(self.tokenizer, ids[0]) else []


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _without_system(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with a leading system text moved to the top of the first user turn."""
    if not turns or turns[0]["role"] != "system":
        return list(turns)
    system, rest = turns[0]["content"], list(turns[1:])
    if rest and rest[0]["role"] == "user":
        return [_turn("user", f"{system}\n\n{rest[0]['content']}"), *rest[1:]]
    return [_turn("user", system), *rest]


def _takes_tools(template: Any) -> bool:
    """Whether a chat template (or one of several named ones) reads the variable ``tools``."""
    sources = template.values() if isinstance(template, Mapping) else [template]
    return any("tools" in _variables(str(source)) for source in sources)


def _variables(source: str) -> set[str]:
    environment = jinja2.Environment(extensions=[jinja2.ext.loopcontrols])
    try:
        return jinja2.meta.find_undeclared_variables(environment.parse(source))
    except jinja2.TemplateSyntaxError:  # tags of a library's own, such as {% generation %}
        return set(re.findall(r"\w+", source))


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


def _encodable(text: str) -> str:
    """``text`` without lone surrogates, which no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reply_text(tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[int]) -> str:
    kept = ids[:-1] if ids and ids[-1] in stops else ids
    return str(tokenizer.decode(list(kept), skip_special_tokens=False))


def template_for(tokenizer: Any, format: Format) -> Template:
    """``ChatTemplate`` for a tokenizer that has a chat template, else ``PlainText``."""
    if getattr(tokenizer, "chat_template", None):
        return ChatTemplate(tokenizer, format)
    return PlainText(tokenizer, stop=format.stop)
