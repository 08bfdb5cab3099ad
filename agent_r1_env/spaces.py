"""A Gymnasium space of text in any script.

``gymnasium.spaces.Text`` knows the characters of one fixed set; prompts and replies hold any Unicode.
The three functions at the end let ``AsyncVectorEnv`` carry such text through shared memory, where the
observation buffer is expected to change in place.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Iterable, Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any, overload

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

_SAMPLED = "abcdefghijklmnopqrstuvwxyz ABCXYZ 0123456789 .,;:?!{}\"'<>/\n éßçğщжλ中文日本語한국어عربى🙂"


class UnicodeText(Space[str]):
    """Any string, the empty one included.

    Args:
        shared_bytes: room for one text, in UTF-8 bytes, where processes share memory. The memory is
            reserved by the vector environment and only touched as far as texts reach.
        seed: seed of ``sample``.
    """

    def __init__(self, shared_bytes: int = 1 << 22, seed: int | np.random.Generator | None = None) -> None:
        self.shared_bytes = shared_bytes
        super().__init__(shape=None, dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed length."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short random text over several scripts."""
        length = int(self.np_random.integers(1, 33))
        picks = self.np_random.integers(0, len(_SAMPLED), size=length)
        return "".join(_SAMPLED[pick] for pick in picks)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string."""
        return isinstance(x, str)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """The texts themselves."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """The texts themselves."""
        return [str(text) for text in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.shared_bytes == self.shared_bytes

    def __hash__(self) -> int:
        return hash((UnicodeText, self.shared_bytes))

    def __repr__(self) -> str:
        return "UnicodeText()"


class SharedTexts(Sequence[str]):
    """The current texts of all sub-environments, read from shared memory whenever they are looked at."""

    def __init__(self, memory: SynchronizedArray[Any], width: int, count: int) -> None:
        self._bytes = _view(memory).reshape(count, width)

    def __len__(self) -> int:
        return len(self._bytes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        row = self._bytes[index]
        length = int(row[:8].view(np.int64)[0])
        return bytes(row[8 : 8 + length]).decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _view(memory: SynchronizedArray[Any]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(memoryview(memory.get_obj()), dtype=np.uint8)


def _width(space: UnicodeText) -> int:
    return 8 + (space.shared_bytes + 7) // 8 * 8


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = multiprocessing) -> SynchronizedArray[Any]:
    memory: SynchronizedArray[Any] = ctx.Array(ctypes.c_uint8, n * _width(space))
    return memory


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: SynchronizedArray[Any], n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, _width(space), n)


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: SynchronizedArray[Any]) -> None:
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > space.shared_bytes:
        raise ValueError(
            f"an observation of {len(data)} bytes does not fit {space.shared_bytes} bytes of shared memory; "
            "use AsyncVectorEnv(..., shared_memory=False)"
        )
    row = _view(shared_memory)[index * _width(space) :]
    row[8 : 8 + len(data)] = np.frombuffer(data, dtype=np.uint8)
    row[:8].view(np.int64)[0] = len(data)
