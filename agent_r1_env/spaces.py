"""Gymnasium spaces of what language agents see and say: text, chat messages and token ids.

``gymnasium.spaces.Text`` knows the characters of one fixed set; prompts and replies hold any Unicode.
Each space here works in every vector environment, with shared memory too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from agent_r1_env.messages import Role
from agent_r1_env.shared import DEFAULT_BYTES, EncodedSpace

_SAMPLED = "abcdefghijklmnopqrstuvwxyz ABCXYZ 0123456789 .,;:?!{}\"'<>/\n éßçğщжλ中文日本語한국어عربى🙂"
_ROLES = get_args(Role)
_OPTIONAL = ("tool_call_id", "name")
_KEYS = {"role", "content", *_OPTIONAL}
_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


class UnicodeText(EncodedSpace[str]):
    """Any string, the empty one included.

    Args:
        shared_bytes: room for one text, in UTF-8 bytes, where processes share memory.
        seed: seed of ``sample``.
    """

    def __init__(
        self, shared_bytes: int = DEFAULT_BYTES, seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(shared_bytes, str, seed)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short random text over several scripts."""
        return _sampled_text(self.np_random)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string."""
        return isinstance(x, str)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[Any]:
        """The texts themselves; one that JSON would change, as a list of pieces."""
        return [_to_json(text) for text in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """The texts again."""
        return [_from_json(text) for text in sample_n]

    def encode(self, value: str) -> bytes:
        """UTF-8, with surrogates that stand alone kept as they are."""
        return value.encode("utf-8", "surrogatepass")

    def decode(self, data: bytes) -> str:
        """The text of these bytes."""
        return data.decode("utf-8", "surrogatepass")

    def __repr__(self) -> str:
        return "UnicodeText()"


class ChatMessages(EncodedSpace[Sequence[Mapping[str, str]]]):
    """Conversations in the form of OpenAI's chat interface, the empty one included.

    One is a list or tuple of dicts that hold ``role`` (system, user, assistant or tool) and ``content``, and
    may hold ``name`` and ``tool_call_id``; all are strings of any Unicode.

    Args:
        shared_bytes: room for one conversation, in bytes of JSON, where processes share memory.
        seed: seed of ``sample``.
    """

    def __init__(
        self, shared_bytes: int = DEFAULT_BYTES, seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(shared_bytes, None, seed)

    def sample(self, mask: None = None, probability: None = None) -> list[dict[str, str]]:
        """A short conversation of random roles and texts."""
        return [self._sampled_message() for _ in range(int(self.np_random.integers(1, 5)))]

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is such a conversation."""
        return isinstance(x, list | tuple) and all(map(_is_message, x))

    def to_jsonable(self, sample_n: Iterable[Sequence[Mapping[str, str]]]) -> list[Any]:
        """The conversations as lists; a text that JSON would change becomes a list of pieces."""
        return [
            [{key: _to_json(text) for key, text in message.items()} for message in conversation]
            for conversation in sample_n
        ]

    def from_jsonable(self, sample_n: list[Any]) -> list[Sequence[Mapping[str, str]]]:
        """The conversations again."""
        return [
            [{key: _from_json(text) for key, text in message.items()} for message in conversation]
            for conversation in sample_n
        ]

    def encode(self, value: Sequence[Mapping[str, str]]) -> bytes:
        """JSON in UTF-8, with surrogates that stand alone kept as they are."""
        return json.dumps(list(value), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def decode(self, data: bytes) -> list[dict[str, str]]:
        """The conversation of these bytes."""
        conversation: list[dict[str, str]] = json.loads(data.decode("utf-8", "surrogatepass") or "[]")
        return conversation

    def same(self, one: Sequence[Mapping[str, str]], other: Sequence[Mapping[str, str]]) -> bool:
        """Whether two conversations are equal, be they lists or tuples."""
        return list(one) == list(other)

    def __repr__(self) -> str:
        return "ChatMessages()"

    def _sampled_message(self) -> dict[str, str]:
        role = _ROLES[int(self.np_random.integers(len(_ROLES)))]
        message = {"role": role, "content": _sampled_text(self.np_random)}
        if role == "tool":
            message |= {key: _sampled_text(self.np_random) for key in _OPTIONAL}
        return message


class TokenIds(EncodedSpace[NDArray[np.int64]]):
    """Sequences of token ids of any length: one-dimensional arrays of ``np.int64``.

    Args:
        vocabulary: every id is below it; None where that is unknown, and any id from 0 belongs.
        shared_bytes: room for one sequence, 8 bytes an id, where processes share memory.
        seed: seed of ``sample``.
    """

    def __init__(
        self,
        vocabulary: int | None = None,
        shared_bytes: int = DEFAULT_BYTES,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if vocabulary is not None and vocabulary < 1:
            raise ValueError(f"vocabulary must hold at least 1 token, not {vocabulary}")
        self.vocabulary = vocabulary
        super().__init__(shared_bytes, np.int64, seed)

    def sample(self, mask: None = None, probability: None = None) -> NDArray[np.int64]:
        """A short sequence; of ids below 32768 where the vocabulary is unknown."""
        length = int(self.np_random.integers(1, 33))
        return self.np_random.integers(0, self.vocabulary or 1 << 15, size=length, dtype=np.int64)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is such an array."""
        return (
            isinstance(x, np.ndarray)
            and x.dtype == np.int64
            and x.ndim == 1
            and bool(np.all(x >= 0))
            and (self.vocabulary is None or bool(np.all(x < self.vocabulary)))
        )

    def to_jsonable(self, sample_n: Iterable[NDArray[np.int64]]) -> list[Any]:
        """The sequences as lists of numbers."""
        return [ids.tolist() for ids in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[NDArray[np.int64]]:
        """The sequences again."""
        return [np.asarray(ids, dtype=np.int64) for ids in sample_n]

    def encode(self, value: NDArray[np.int64]) -> bytes:
        """The ids, 8 bytes each."""
        return np.asarray(value, dtype=np.int64).tobytes()

    def decode(self, data: bytes) -> NDArray[np.int64]:
        """The sequence of these bytes."""
        return np.frombuffer(data, dtype=np.int64).copy()

    def same(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
        """Whether two sequences are equal."""
        return np.array_equal(one, other)

    def __repr__(self) -> str:
        return f"TokenIds({'' if self.vocabulary is None else self.vocabulary})"

    def _key(self) -> tuple[Any, ...]:
        return (self.vocabulary, self.shared_bytes)


def _sampled_text(rng: np.random.Generator) -> str:
    picks = rng.integers(0, len(_SAMPLED), size=int(rng.integers(1, 33)))
    return "".join(_SAMPLED[pick] for pick in picks)


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and {"role", "content"} <= message.keys() <= _KEYS
        and all(isinstance(text, str) for text in message.values())
        and message["role"] in _ROLES
    )


def _to_json(text: str) -> str | list[str]:
    # JSON reads two surrogates in a row as the one character that they stand for in UTF-16.
    pieces = _HALVES.split(text)
    return text if len(pieces) == 1 else pieces


def _from_json(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
