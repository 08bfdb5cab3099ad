"""Observations of no fixed length in memory that processes share.

``AsyncVectorEnv`` expects an observation buffer that changes in place. Here each sub-environment owns a row
of that buffer: the length of its newest value in bytes, then the bytes. A space takes part by deriving from
``EncodedSpace``, which turns its values into bytes and back.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any, TypeVar, overload

import numpy as np
from gymnasium.spaces import Space, Tuple
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

Value = TypeVar("Value")

DEFAULT_BYTES = 1 << 22
_HEADER = 8  # bytes that hold the length of the value, an int64


class EncodedSpace(Space[Value]):
    """A space of values of no fixed length, with bytes to carry them between processes.

    Args:
        shared_bytes: room for one value, encoded, where processes share memory. So much is reserved for each
            sub-environment, and never grows.
        dtype: as of any ``Space``.
        seed: seed of ``sample``.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # This one function of Gymnasium looks for the very class; the others know a base class by their own.
        batch_differing_spaces.register(cls, _batch_differing)

    def __init__(
        self, shared_bytes: int, dtype: type[Any] | None, seed: int | np.random.Generator | None
    ) -> None:
        if shared_bytes < 1:
            raise ValueError(f"shared_bytes must be at least 1, not {shared_bytes}")
        self.shared_bytes = shared_bytes
        super().__init__(shape=None, dtype=dtype, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: the values have no fixed length."""
        return False

    @abstractmethod
    def encode(self, value: Value) -> bytes:
        """A value as bytes."""

    @abstractmethod
    def decode(self, data: bytes) -> Value:
        """The value of these bytes; no bytes stand for the empty value."""

    def same(self, one: Value, other: Value) -> bool:
        """Whether two values are equal."""
        return bool(one == other)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def _key(self) -> tuple[Any, ...]:
        """What tells apart two spaces of this class."""
        return (self.shared_bytes,)


class SharedValues(Sequence[Any]):
    """The current values of all sub-environments, read from shared memory whenever they are looked at."""

    def __init__(self, space: EncodedSpace[Any], memory: SynchronizedArray[Any], count: int) -> None:
        self._space = space
        self._rows = _rows(space, memory)[:count]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        row = self._rows[index]
        length = int(row[:_HEADER].view(np.int64)[0])
        return self._space.decode(row[_HEADER : _HEADER + length].tobytes())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(other) == len(self)
            and all(self._space.same(mine, theirs) for mine, theirs in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]  # the values change in place

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(self)


def _batch_differing(spaces: Sequence[EncodedSpace[Any]]) -> Tuple[Any]:
    return Tuple([deepcopy(space) for space in spaces], seed=deepcopy(spaces[0].np_random))


@is_space_dtype_shape_equiv.register(EncodedSpace)
def _alike(one: EncodedSpace[Any], other: Any) -> bool:
    return type(one) is type(other) and one.shared_bytes == other.shared_bytes


@create_empty_array.register(EncodedSpace)
def _create_empty(space: EncodedSpace[Any], n: int = 1, fn: Callable[..., Any] = np.zeros) -> tuple[Any, ...]:
    return tuple(space.decode(b"") for _ in range(n))


@create_shared_memory.register(EncodedSpace)
def _create(space: EncodedSpace[Any], n: int = 1, ctx: Any = multiprocessing) -> SynchronizedArray[Any]:
    memory: SynchronizedArray[Any] = ctx.Array(ctypes.c_uint8, n * _width(space))
    return memory


@read_from_shared_memory.register(EncodedSpace)
def _read(space: EncodedSpace[Any], shared_memory: SynchronizedArray[Any], n: int = 1) -> SharedValues:
    return SharedValues(space, shared_memory, n)


@write_to_shared_memory.register(EncodedSpace)
def _write(space: EncodedSpace[Any], index: int, value: Any, shared_memory: SynchronizedArray[Any]) -> None:
    data = space.encode(value)
    if len(data) > space.shared_bytes:
        raise ValueError(
            f"an observation of {len(data)} bytes does not fit {space.shared_bytes} bytes of shared memory; "
            "use AsyncVectorEnv(..., shared_memory=False), "
            f"or give {type(space).__name__} more shared_bytes"
        )
    row = _rows(space, shared_memory)[index]
    row[_HEADER : _HEADER + len(data)] = np.frombuffer(data, dtype=np.uint8)
    row[:_HEADER].view(np.int64)[0] = len(data)


def _width(space: EncodedSpace[Any]) -> int:
    return _HEADER + space.shared_bytes


def _rows(
    space: EncodedSpace[Any], memory: SynchronizedArray[Any]
) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    flat = np.frombuffer(memoryview(memory.get_obj()), dtype=np.uint8)
    return flat.reshape(-1, _width(space))
