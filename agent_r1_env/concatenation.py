"""Prompts that grow by ids: what stood there, what was sampled, and what the environment added behind it.

Nothing that was in a prompt is encoded again, so an episode of n turns costs O(n) tokens to encode, and each
prompt begins, id for id, with the prompt and the reply before it. What the template writes behind a reply is
found by rendering: the new text must begin with the old one, go on with the reply, and what is left is what
was added. Where that does not hold (earlier turns rewritten, reasoning dropped, the context policy cut), the
prompt is encoded anew, as it would be without this module, and the reason is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from agent_r1_env.template import Stops, added_tokens

_TAIL = 8  # ids before a seam without special tokens that are encoded again to prove it


class Seam(StrEnum):
    """Why the ids of a prompt and those of what was added behind it may be put side by side."""

    SPECIAL = "special"
    """A token that the tokenizer never merges with its neighbours stands there."""
    PROVEN = "proven"
    """Encoding the text around the seam gave the same ids."""
    FORCED = "forced"
    """On its own the tokenizer would merge across the seam. The sampled ids stay; the text is the same."""


class Rewritten(StrEnum):
    """Why a prompt could not grow by ids and was encoded anew."""

    EARLIER = "earlier turns read otherwise than before"
    REPLY = "the reply reads otherwise than it was sampled"
    END = "the reply ended with another token than the template writes"
    TEXT = "the ids of what was added do not read as its text"


class _NotGrown(Exception):
    """The prompt has to be encoded anew."""

    def __init__(self, why: Rewritten) -> None:
        super().__init__(why)
        self.why = why


class Growing(Protocol):
    """What a template must tell so that its prompts can grow; those of `template` do."""

    tokenizer: Any
    stops: Stops
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]

    def text(self, observation: str, info: Mapping[str, Any]) -> str:
        """The whole prompt as text."""

    def encode_text(self, text: str) -> list[int]:
        """Ids of a whole prompt."""

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without the token that ended the turn."""

    def says(self, rendition: str, reply: str, info: Mapping[str, Any]) -> bool:
        """Whether what a prompt shows of a reply says the same as the reply."""


class Concatenated:
    """A template for a single episode whose prompts grow by ids.

    It is used as any other: ``encode`` before each reply and ``reply_text`` with the sampled ids after it,
    which is how it learns of them.

    Attributes:
        seams: how the prompts grew, by `Seam`.
        rewritten: why prompts were encoded anew, by `Rewritten`; the first prompt is not counted, and the one
            that a truncated episode would have gone on with is.
    """

    def __init__(self, template: Growing) -> None:
        """Begin an episode.

        Raises:
            TypeError: the template cannot tell its text.
        """
        for name in ("tokenizer", "stops", "text", "encode_text", "says"):
            if not hasattr(template, name):
                raise TypeError(
                    f"the template {type(template).__name__} has no {name!r}, which the representation "
                    "'tokens' asks for; see agent_r1_env.concatenation.Growing, or take 'steps'"
                )
        self.template = template
        self.stop, self.stop_token_ids = template.stop, template.stop_token_ids
        self.seams: Counter[Seam] = Counter()
        self.rewritten: Counter[Rewritten] = Counter()
        self._text = ""
        self._held: list[int] = []
        self._sampled: list[int] | None = None
        self._known = added_tokens(template.tokenizer)
        self._ends = tuple(filter(None, map(self._token_text, template.stops.ids)))

    def encode(self, observation: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of the next prompt."""
        text = self.template.text(observation, info)
        if self._sampled is None:
            if text != self._text:
                self._held = self.template.encode_text(text)
        else:
            try:
                self._held += self._added(text, info)
            except _NotGrown as found:
                self.rewritten[found.why] += 1
                self._held = self.template.encode_text(text)
        self._text, self._sampled = text, None
        return list(self._held)

    def reply_text(self, ids: Sequence[int]) -> str:
        """Text of the sampled ids; they become part of what the next prompt begins with."""
        if self._sampled:
            del self._held[-len(self._sampled) :]
        self._sampled = [int(token) for token in ids]
        self._held += self._sampled
        return self.template.reply_text(ids)

    @property
    def metrics(self) -> dict[str, float]:
        """Of the episode: prompts that were encoded anew, and seams at which a sampled id stands unmerged."""
        return {
            "prompts_rewritten": float(self.rewritten.total()),
            "seams_forced": float(self.seams[Seam.FORCED]),
        }

    # -- what was added, as text

    def _added(self, text: str, info: Mapping[str, Any]) -> list[int]:
        """Ids of what the text has behind the last reply."""
        if not text.startswith(self._text):
            raise _NotGrown(Rewritten.EARLIER)
        sampled = self._sampled or []
        behind = self._behind(text[len(self._text) :], self.template.reply_text(sampled), info)
        last, stops = (sampled or [-1])[-1], self.template.stops
        if last in stops.ids:
            own, bare = self._token_text(last), behind.lstrip()
            if behind.startswith(own) or bare.startswith(own):
                behind = (behind if behind.startswith(own) else bare)[len(own) :]
            elif last not in stops.kept and bare.startswith(self._ends):
                raise _NotGrown(Rewritten.END)
        return self._ids(behind)

    def _behind(self, after: str, reply: str, info: Mapping[str, Any]) -> str:
        """What stands behind the reply in the text that follows the prompt it answered."""
        for end in self._places(after, reply):
            if self.template.says(after[:end], reply, info):
                return after[end:]
        raise _NotGrown(Rewritten.REPLY)

    def _places(self, after: str, reply: str) -> Iterator[int]:
        """Where the reply may end: behind its own words, or before a token that ends a turn."""
        bare = reply.strip()
        for start, words in ((0, reply), (len(after) - len(after.lstrip()), bare)):
            if after.startswith(words, start):
                yield start + len(words)
        place = -1
        while (place := _first(after, self._ends, place + 1)) >= 0:
            yield place

    def _token_text(self, token: int) -> str:
        known = self._known.get(token)
        return self._decode([token]) if known is None else known

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.template.tokenizer.decode(list(ids), skip_special_tokens=False))

    # -- what was added, as ids

    def _ids(self, behind: str) -> list[int]:
        """Ids of the text, as they are behind those of the prompt."""
        last = self._held[-1:]
        special = bool(last) and last[0] in self._known
        before = self._decode(last if special else self._held[-_TAIL:])
        around, own = self._encode(before + behind), self._encode(before)
        if around[: len(own)] == own:
            added = around[len(own) :]
            special = special or added[:1] == [token for token in added[:1] if token in self._known]
            self.seams[Seam.SPECIAL if special else Seam.PROVEN] += 1
            return added
        added = self._encode(behind)
        if self._decode([*self._held[-_TAIL:], *added]) != self._decode(self._held[-_TAIL:]) + behind:
            raise _NotGrown(Rewritten.TEXT)
        self.seams[Seam.FORCED] += 1
        return added

    def _encode(self, text: str) -> list[int]:
        return [int(token) for token in self.template.tokenizer.encode(text, add_special_tokens=False)]


def _first(text: str, parts: Sequence[str], start: int) -> int:
    """Where the first of the parts stands; -1 if none does."""
    return min((at for at in (text.find(part, start) for part in parts) if at >= 0), default=-1)
