"""Long lists of numbers in few bytes, and prompts that are held once where one begins with another.

A list of Python takes 8 bytes a number and mostly 24 or 28 for the number itself; an episode of n turns whose
context only grows holds its ids n times. ``Numbers`` is a sequence that reads and compares as such a list, of
4 bytes an id, and any number of them may look at one buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T", int, float)


class _Buffer:
    """An array that may grow at its end; whoever looks at a part of it sees that part unchanged."""

    __slots__ = ("array",)

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return _Buffer, (np.ascontiguousarray(self.array),)


class Numbers(Sequence[_T]):
    """An unchangeable sequence of numbers, equal to any list or tuple of the same ones.

    A slice looks at the same bytes. It adds to lists as a list does, NumPy takes it without copying, and of
    those that are pickled together shared bytes are pickled once.
    """

    __slots__ = ("_buffer", "_start", "_stop")

    def __init__(self, buffer: _Buffer, start: int, stop: int) -> None:
        """A part of a buffer; see ``ints`` and ``floats`` for lists."""
        self._buffer, self._start, self._stop = buffer, start, stop

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Numbers[_T]:
        """The numbers of a 1-D array, which must not be changed from now on."""
        return cls(_Buffer(array), 0, len(array))

    @property
    def array(self) -> npt.NDArray[Any]:
        """The numbers as they are held; not to be written to."""
        return self._buffer.array[self._start : self._stop]

    def tolist(self) -> list[_T]:
        """A list of Python's numbers."""
        listed: list[_T] = self.array.tolist()
        return listed

    def begins_with(self, other: Numbers[_T]) -> bool:
        """Whether the other one's numbers stand at the beginning of these."""
        if len(other) > len(self):
            return False
        if other._buffer is self._buffer and other._start == self._start:
            return True
        return np.array_equal(self.array[: len(other)], other.array)

    def joined(self, other: Numbers[_T]) -> Numbers[_T]:
        """These numbers and then the other ones, without copying where they stand so already."""
        if other._buffer is self._buffer and other._start == self._stop:
            return Numbers(self._buffer, self._start, other._stop)
        return Numbers.of(np.concatenate([self.array, other.array]))

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Numbers[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Numbers[_T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Numbers(self._buffer, self._start + start, self._start + max(start, stop))
            return Numbers.of(self.array[index])
        number: _T = self.array[index].item()
        return number

    def __iter__(self) -> Iterator[_T]:
        return iter(self.tolist())

    def __contains__(self, value: object) -> bool:
        return value in self.tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbers):
            kinds = self.array.dtype.kind + other.array.dtype.kind
            return np.array_equal(self.array, other.array, equal_nan="f" in kinds)
        if not isinstance(other, list | tuple):
            return NotImplemented
        pairs = zip(self.tolist(), other, strict=False)
        # As with lists, the same NaN is equal to itself.
        return len(self) == len(other) and all(a == b or (a != a and b != b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[_T]) -> list[_T]:
        joined = self.tolist()
        joined.extend(other)
        return joined

    def __radd__(self, other: Iterable[_T]) -> list[_T]:
        joined = list(other)
        joined.extend(self.tolist())
        return joined

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        array = self.array if dtype is None else self.array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        return repr(self.tolist())

    def __copy__(self) -> Numbers[_T]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Numbers[_T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Numbers, (self._buffer, self._start, self._stop)


Ints = list[int] | Numbers[int]
Floats = list[float] | Numbers[float]


def ints(values: Iterable[int]) -> Numbers[int]:
    """Whole numbers, in 4 bytes each where they fit; nothing if all are the same."""
    if isinstance(values, Numbers):
        return values
    if not isinstance(values, np.ndarray):
        values = list(values)
    try:
        array = np.asarray(values, dtype=np.int32)
    except OverflowError:
        array = np.asarray(values, dtype=np.int64)
    if isinstance(values, np.ndarray) and not np.array_equal(array, values):
        array = np.asarray(values, dtype=np.int64)
    return Numbers.of(array.reshape(-1))


def same(values: Sequence[int]) -> Numbers[int]:
    """As ``ints``, for numbers which are mostly all the same, and then take no bytes."""
    found = ints(values)
    if len(found) > 1 and bool((found.array == found.array[0]).all()):
        return Numbers.of(np.broadcast_to(found.array[0], len(found)))
    return found


def floats(values: Iterable[float]) -> Numbers[float]:
    """Numbers that are given back as they came: in 4 bytes each if none of them has more, else in 8."""
    if isinstance(values, Numbers):
        return values
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return Numbers.of(narrow(array.reshape(-1)))


def narrow(array: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """The array in 4 bytes a number where that changes none."""
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    return small if np.array_equal(small, array, equal_nan=True) else array


class Tape:
    """The ids of one episode, as its steps come: a prompt that goes on from the last reply adds what is new.

    Attributes:
        held: the last prompt and reply, for the next prompt to be compared with.
    """

    def __init__(self) -> None:
        self.held: list[int] = []
        self._buffer = _Buffer(np.empty(0, np.int32))

    def step(self, prompt: Sequence[int], reply: Sequence[int]) -> tuple[Numbers[int], Numbers[int]]:
        """Prompt and reply of the next step."""
        prompt, reply = _listed(prompt), _listed(reply)
        known = len(self.held)
        grown = prompt[:known] == self.held
        added = ints([*(prompt[known:] if grown else prompt), *reply]).array
        if grown and added.dtype == self._buffer.array.dtype:
            self._buffer.array = np.concatenate([self._buffer.array, added])
        else:
            self._buffer = _Buffer(ints([*prompt, *reply]).array)
        self.held = [*prompt, *reply]
        end = len(self.held)
        return Numbers(self._buffer, 0, len(prompt)), Numbers(self._buffer, len(prompt), end)

    def prompt(self, prompt: Sequence[int]) -> Numbers[int]:
        """A prompt that no reply follows."""
        return self.step(prompt, ())[0]


def _listed(values: Sequence[int]) -> list[int]:
    if isinstance(values, list):
        return values
    return values.tolist() if isinstance(values, np.ndarray | Numbers) else list(values)
