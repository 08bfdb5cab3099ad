"""What decoding and encoding again would do to sampled ids: which change, where, and what they are worth.

A trainer that keeps text and encodes it afterwards trains on other tokens than were sampled. This package
never does; the audit says what it would cost with a tokenizer and the episodes at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from agent_r1_env.episode import Episode

LogProbs = Callable[[list[int], int], Sequence[float]]
"""From ids and a place in them to the log-probs of the ids from there on, each given all before it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Some ids of a reply that would become others.

    Attributes:
        episode: number of the episode.
        step: number of the step in it.
        position: of the first changed id in the reply.
        sampled: ids as they were sampled; none where encoding puts ids in.
        encoded: ids that would take their place; none where encoding drops some.
        sampled_texts: text of each of the sampled ids, or "#id" where it is only a part of a letter.
        encoded_texts: likewise.
    """

    episode: int
    step: int
    position: int
    sampled: tuple[int, ...]
    encoded: tuple[int, ...]
    sampled_texts: tuple[str, ...]
    encoded_texts: tuple[str, ...]

    @property
    def changed(self) -> int:
        """Number of sampled ids that would be others; where there are none, of ids that are put in."""
        return len(self.sampled) or len(self.encoded)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of an episode that would change.

    Attributes:
        before: log-prob of the sampled ids behind their prompt, summed; None where no model was asked.
        after: that of the ids that would take their place.
    """

    episode: int
    step: int
    places: tuple[Place, ...]
    before: float | None = None
    after: float | None = None

    @property
    def moved(self) -> float | None:
        """By how much the log-prob of the reply would change; below 0: it would look less likely."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def changed(self) -> int:
        """Number of ids that would change."""
        return sum(place.changed for place in self.places)


@dataclass(frozen=True)
class Audit:
    """What was found in some episodes.

    Attributes:
        episodes, replies, tokens: how many were looked at; ``tokens`` counts sampled ids.
        without_ids: episodes that hold text alone, of which nothing can be said.
        found: the replies that would change.
    """

    episodes: int = 0
    replies: int = 0
    tokens: int = 0
    without_ids: int = 0
    found: Sequence[Reply] = field(default_factory=tuple)

    @property
    def changed_tokens(self) -> int:
        """Sampled ids that would change."""
        return sum(reply.changed for reply in self.found)

    @property
    def moved(self) -> float | None:
        """Mean absolute change of the log-prob of the replies that would change; None without a model."""
        moves = [abs(reply.moved) for reply in self.found if reply.moved is not None]
        return math.fsum(moves) / len(moves) if moves else None

    def worst(self, count: int = 10) -> list[Reply]:
        """The replies whose log-prob moves most, or in which most ids change where no model was asked."""
        return sorted(self.found, key=lambda reply: (-abs(reply.moved or 0.0), -reply.changed))[:count]

    def to_dict(self, worst: int = 10) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "episodes": self.episodes,
            "replies": self.replies,
            "tokens": self.tokens,
            "episodes_without_ids": self.without_ids,
            "changed_replies": len(self.found),
            "changed_tokens": self.changed_tokens,
            "changed_fraction": self.changed_tokens / self.tokens if self.tokens else 0.0,
            "mean_moved": self.moved,
            "worst": [_plain(reply) for reply in self.worst(worst)],
        }


def audit(episodes: Iterable[Episode], tokenizer: Any, log_probs: LogProbs | None = None) -> Audit:
    """Decode and encode every reply and compare.

    Args:
        tokenizer: what the ids belong to.
        log_probs: asked twice for each reply that would change, and for no other.
    """
    number = replies = tokens = without = 0
    found: list[Reply] = []
    for number, episode in enumerate(episodes, start=1):
        sampled = sum(len(step.response_ids) for step in episode.steps)
        tokens += sampled
        without += bool(episode.steps) and not sampled
        replies += len(episode.steps)
        found += _episode(episode, number - 1, tokenizer, log_probs)
    return Audit(number, replies, tokens, without, tuple(found))


def model_log_probs(model: Any) -> LogProbs:
    """``log_probs`` of a transformers model; one forward pass each, without gradients."""
    import torch

    def ask(ids: list[int], start: int) -> list[float]:
        given = torch.tensor([ids], device=model.device)
        with torch.no_grad():
            logits = model(given).logits[0, start - 1 : -1].float().log_softmax(-1)
        found: list[float] = logits.gather(-1, given[0, start:, None])[:, 0].tolist()
        return found

    return ask


def _episode(episode: Episode, number: int, tokenizer: Any, log_probs: LogProbs | None) -> Iterator[Reply]:
    for place, step in enumerate(episode.steps):
        ids = [int(token) for token in step.response_ids]
        again = _round_trip(ids, tokenizer)
        if again == ids:
            continue
        before = after = None
        if log_probs is not None and len(step.prompt_ids):
            prompt = [int(token) for token in step.prompt_ids]
            before, after = (math.fsum(log_probs(prompt + reply, len(prompt))) for reply in (ids, again))
        yield Reply(number, place, tuple(_places(number, place, ids, again, tokenizer)), before, after)


def _round_trip(ids: Sequence[int], tokenizer: Any) -> list[int]:
    text = tokenizer.decode(list(ids), skip_special_tokens=False)
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def _places(
    episode: int, step: int, ids: Sequence[int], again: Sequence[int], tokenizer: Any
) -> Iterator[Place]:
    """Where two lists of ids differ."""
    matcher = SequenceMatcher(None, ids, again, autojunk=False)
    for kind, start, stop, first, last in matcher.get_opcodes():
        if kind != "equal":
            sampled, encoded = tuple(ids[start:stop]), tuple(again[first:last])
            texts = (tuple(_text(token, tokenizer) for token in tokens) for tokens in (sampled, encoded))
            yield Place(episode, step, start, sampled, encoded, *texts)


def _text(token: int, tokenizer: Any) -> str:
    """Text of a token; its id where it is only a part of a letter."""
    text = str(tokenizer.decode([token], skip_special_tokens=False))
    return f"#{token}" if "\ufffd" in text else text


def _plain(reply: Reply) -> dict[str, Any]:
    return {
        "episode": reply.episode,
        "step": reply.step,
        "changed": reply.changed,
        "before": reply.before,
        "after": reply.after,
        "moved": reply.moved,
        "places": [
            {
                "position": place.position,
                "sampled": list(place.sampled),
                "encoded": list(place.encoded),
                "sampled_texts": list(place.sampled_texts),
                "encoded_texts": list(place.encoded_texts),
            }
            for place in reply.places
        ],
    }
