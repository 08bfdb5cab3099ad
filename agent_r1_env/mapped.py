"""Files that are opened without being read: texts by number, and numbers by text.

Whatever their size, opening them costs a few system calls; only the pages that a look-up touches are read.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PAIR = np.dtype("<u8")


class Texts:
    """The texts that ``write_texts`` wrote to ``folder``, by number."""

    def __init__(self, folder: Path, name: str) -> None:
        self._ends = mapped(folder / f"{name}.ends.npy")
        with (folder / f"{name}.txt").open("rb") as file:
            # A file of no bytes cannot be mapped.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size() else b""

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = int(self._ends[number - 1]) if number else 0
        return self._bytes[begin : int(self._ends[number])].decode("utf-8")

    def _size(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0


def write_texts(folder: Path, name: str, texts: Iterable[str]) -> None:
    """Write texts one after the other, and where each ends."""
    ends, end = array("Q"), 0
    with (folder / f"{name}.txt").open("wb") as file:
        for text in texts:
            end += file.write(text.encode("utf-8"))
            ends.append(end)
    np.save(folder / f"{name}.ends.npy", np.frombuffer(ends, dtype=np.uint64))


class Lookup:
    """The numbers that ``write_lookup`` wrote to ``folder``, by text."""

    def __init__(self, folder: Path, name: str) -> None:
        self._keys = mapped(folder / f"{name}.keys.npy")
        self._checks = mapped(folder / f"{name}.checks.npy")
        self._numbers = mapped(folder / f"{name}.numbers.npy")

    def __call__(self, text: str) -> NDArray[np.int64]:
        """The numbers of every text that is equal, rising; often none."""
        key, check = np.frombuffer(_hash(text), _PAIR)
        begin, end = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        found: NDArray[np.int64] = self._numbers[begin:end][self._checks[begin:end] == check]
        return found


def write_lookup(folder: Path, name: str, texts: Iterable[str]) -> None:
    """Write down under which number each text came, counted from 0.

    A text is known by 128 bits of its hash, so that it need not be kept.
    """
    pairs = np.frombuffer(b"".join(map(_hash, texts)), _PAIR).reshape(-1, 2)
    order = np.argsort(pairs[:, 0], kind="stable")
    np.save(folder / f"{name}.keys.npy", pairs[order, 0])
    np.save(folder / f"{name}.checks.npy", pairs[order, 1])
    np.save(folder / f"{name}.numbers.npy", order.astype(np.int64))


def mapped(file: Path) -> NDArray[np.generic]:
    """The array in a file, memory-mapped, as a plain array: slices of ``np.memmap`` are slow to make."""
    return np.asarray(np.load(file, mmap_mode="r"))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
