"""Long lists of numbers in few bytes, and prompts that are held once where one begins with another.

A list of Python takes 8 bytes a number and mostly 24 or 28 for the number itself; an episode of n turns whose
context only grows holds its ids n times. ``Numbers`` is a sequence that reads and compares as such a list, of
4 bytes an id, and any number of them may look at one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T", int, float)


class _Buffer:
    """Numbers that may be added to at the end; whoever looks at a part of them sees that part unchanged."""

    __slots__ = ("_array", "_make", "held")

    def __init__(
        self, array: npt.NDArray[Any] | None = None, make: Callable[[Any], npt.NDArray[Any]] | None = None
    ) -> None:
        """Those of an array, or a list that grows and which ``make`` makes one of."""
        self._array, self._make = array, make
        self.held: list[Any] = []

    @property
    def array(self) -> npt.NDArray[Any]:
        """All of them."""
        if self._make is not None and (self._array is None or len(self._array) != len(self.held)):
            self._array = self._make(self.held)
        assert self._array is not None
        return self._array

    def pack(self) -> None:
        """Let go of the list."""
        self._array, self._make, self.held = self.array, None, []

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
        if copy:
            return array.copy()
        seen = array.view()
        seen.flags.writeable = False  # all that share the bytes would change
        return seen

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
    """Whole numbers, in 4 bytes each where they fit."""
    return values if isinstance(values, Numbers) else Numbers.of(_whole(values))


def same(values: Iterable[int]) -> Numbers[int]:
    """As ``ints``, for numbers which are mostly all the same, and then take no bytes."""
    return Numbers.of(_repeated(values))


def floats(values: Iterable[float]) -> Numbers[float]:
    """Numbers that are given back as they came: in 4 bytes each if none of them has more, else in 8."""
    return values if isinstance(values, Numbers) else Numbers.of(_exact(values))


def narrow(array: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """The array in 4 bytes a number where that changes none."""
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    # Without NaN, which is what there mostly is, the first look is enough and a third of the time.
    return small if (small == array).all() or np.array_equal(small, array, equal_nan=True) else array


def _whole(values: Iterable[int]) -> npt.NDArray[Any]:
    if not isinstance(values, np.ndarray | list):
        values = list(values)
    try:
        array = np.asarray(values, dtype=np.int32)
    except OverflowError:
        return np.asarray(values, dtype=np.int64)
    if isinstance(values, np.ndarray) and not np.array_equal(array, values):
        return np.asarray(values, dtype=np.int64)
    return array


def _repeated(values: Iterable[int]) -> npt.NDArray[Any]:
    array = _whole(values)
    alike = len(array) > 1 and bool((array == array[0]).all())
    return np.broadcast_to(array[0].copy(), len(array)) if alike else array


def _exact(values: Iterable[float]) -> npt.NDArray[Any]:
    held = values if isinstance(values, np.ndarray | list) else list(values)
    return narrow(np.asarray(held, dtype=np.float64))


class Tape:
    """The numbers of one episode, as its steps come, each held once.

    They are lists while steps come, for making arrays of few numbers at a time is slow; ``pack`` ends that.
    """

    def __init__(self) -> None:
        self._ids = _Buffer(make=_whole)
        self._logprobs = _Buffer(make=_exact)
        self._versions = _Buffer(make=_repeated)
        self._all = [self._ids, self._logprobs, self._versions]

    def ids(self, prompt: Sequence[int], reply: Sequence[int]) -> tuple[Numbers[int], Numbers[int]]:
        """Prompt and reply of the next step; a prompt that goes on from the last reply adds what is new."""
        prompt, held = _listed(prompt), self._ids.held
        if prompt[: len(held)] != held:
            self._ids, held = _Buffer(make=_whole), []
            self._ids.held = held
            self._all.append(self._ids)
        held.extend(prompt[len(held) :])
        before = len(held)
        held.extend(_listed(reply))
        return Numbers(self._ids, 0, before), Numbers(self._ids, before, len(held))

    def logprobs(self, values: Sequence[float]) -> Numbers[float]:
        """Log-probs of a reply, as they are given."""
        return _added(self._logprobs, values)

    def versions(self, values: Sequence[int]) -> Numbers[int]:
        """Versions of the ids of a reply."""
        return _added(self._versions, values)

    def pack(self) -> None:
        """Make arrays of all numbers; no step may come any more."""
        for each in self._all:
            if each.held:
                each.pack()


def _added(buffer: _Buffer, values: Sequence[Any]) -> Numbers[Any]:
    before = len(buffer.held)
    buffer.held.extend(_listed(values))
    return Numbers(buffer, before, len(buffer.held))


def _listed(values: Sequence[Any]) -> list[Any]:
    if isinstance(values, list):
        return values
    return values.tolist() if isinstance(values, np.ndarray | Numbers) else list(values)
