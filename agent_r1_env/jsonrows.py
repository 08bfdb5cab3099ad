"""Rows of a JSON or JSON-lines file that stay in the file: only their places are held."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, overload
from weakref import finalize

from agent_r1_env.datafile import GZIP_MAGIC, Row, changed, reading, row_of, row_of_line, state_of
from agent_r1_env.errors import DataError

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
_TO_BRACKET = re.compile(
    rb'[^][{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^][{}"]*+)*+([][{}])',
    re.DOTALL,
)
"""All up to the next bracket outside of strings. No match where a string does not end: its end is to come."""


class JsonRows(Sequence[Row]):
    """The rows of a file, read when they are asked for; 8 bytes are held for each (16 after blank lines).

    The file is run through once to find the rows and parsed only where one is read, so that a mistake
    inside a row is found then. Safe from several threads and in forked processes: rows are read at their
    place, without a position that readers would share. A copy, or what was pickled, opens the file anew.

    Raises:
        DataError: no such file, or one that is gzipped or not a list or lines of anything; when read from,
            also a changed one, or a row that is no object.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open()
        with reading(file), file.open("rb") as stream:
            first = _first_byte(stream, file)
            self._is_list = first == b"["
            find = _places_in_list if self._is_list else _places_of_lines
            self._starts, self._numbers = find(stream, file)

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        raw = self._read(self._starts[position], self._starts[position + 1])
        number = self._numbers[position] if self._numbers else position + 1
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 (byte {raw[error.start]:#04x})", file=self._file, row=number
            ) from None
        if not self._is_list:
            return row_of_line(text, self._file, number)
        return row_of(self._item(text, number, last=position == len(self) - 1), self._file, number)

    def __iter__(self) -> Iterator[Row]:
        return (self[position] for position in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_descriptor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()
        if self._state != state["_state"]:
            raise changed(self._file)

    def _open(self) -> None:
        with reading(self._file):
            self._descriptor = os.open(self._file, os.O_RDONLY)
            finalize(self, os.close, self._descriptor)
            self._state = state_of(os.fstat(self._descriptor))

    def _read(self, start: int, end: int) -> bytes:
        if state_of(os.fstat(self._descriptor)) != self._state:
            raise changed(self._file)
        raw = os.pread(self._descriptor, end - start, start)
        while len(raw) < end - start:  # the system reads at most 2 GiB at once
            raw += os.pread(self._descriptor, end - start - len(raw), start + len(raw))
        return raw

    def _item(self, text: str, number: int, last: bool) -> Any:
        """The value that begins ``text``; what follows it up to the next one is a comma, or nothing."""
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError as error:
            message = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos} of the row"
            raise DataError(message, file=self._file, row=number) from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON: {error}", file=self._file, row=number) from None
        if text[end:].strip() != ("" if last else ","):
            message = f"expected {'the end of the list' if last else 'a comma and a row'} after it"
            raise DataError(
                f"not JSON: {message}, found {text[end:].strip()!r:.40}", file=self._file, row=number
            )
        return value


_Places = tuple["array[int]", "array[int]"]
"""Where each row begins, and where the last one ends; the number of each, unless they are 1, 2, 3, ..."""


def _first_byte(stream: IO[bytes], file: Path) -> bytes:
    """The first byte that is not white space. The stream stands at the start of the file again."""
    head = stream.read(len(GZIP_MAGIC))
    if head == GZIP_MAGIC:
        raise DataError(
            "a gzipped file cannot be read from its middle; unpack it, or load it whole with streaming=False",
            file=file,
        )
    stream.seek(0)
    _skip_mark(stream)
    while block := stream.read(_BLOCK):
        if block.strip():
            stream.seek(0)
            return block.strip()[:1]
    raise DataError("the file is empty", file=file)


def _skip_mark(stream: IO[bytes]) -> int:
    """Skip a byte order mark; its length."""
    if stream.read(len(_BOM)) == _BOM:
        return len(_BOM)
    stream.seek(0)
    return 0


def _places_of_lines(stream: IO[bytes], file: Path) -> _Places:
    starts, numbers = array("Q"), array("Q")
    place = end = _skip_mark(stream)
    for number, line in enumerate(stream, start=1):
        if not line.isspace():
            starts.append(place)
            numbers.append(number)
            end = place + len(line)
        place += len(line)
    starts.append(end)
    return starts, numbers if numbers[-1] != len(numbers) else array("Q")


def _places_in_list(stream: IO[bytes], file: Path) -> _Places:
    """Found by brackets outside of strings. What stands between rows is looked at when they are read."""
    starts = array("Q")
    depth = 0
    for place, bracket in _brackets(stream):
        if bracket in b"[{":
            if depth == 1:
                starts.append(place)
            depth += 1
            continue
        depth -= 1
        if depth == 0:
            _check_ends(stream, file, starts, place)
            starts.append(place)
            return starts, array("Q")
    raise DataError(
        "not JSON: the list is not closed; is the file cut off?", file=file, row=len(starts) or None
    )


def _brackets(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each bracket outside of strings, and its place."""
    place, rest = _skip_mark(stream), b""
    while block := stream.read(max(_BLOCK, len(rest))):  # a string of many blocks is not read anew for each
        rest += block
        used = 0
        while found := _TO_BRACKET.match(rest, used):
            used = found.end()
            yield place + used - 1, found[1]
        place, rest = place + used, rest[used:]


def _check_ends(stream: IO[bytes], file: Path, starts: array[int], end: int) -> None:
    """Make sure that nothing stands before the first row, nor behind the list, which ends at ``end``."""
    stream.seek(0)
    head = stream.read(starts[0] if starts else end).removeprefix(_BOM).strip()[1:].strip()
    if head:
        raise DataError(f"expected an object, found {head.decode(errors='replace')!r:.40}", file=file, row=1)
    if not starts:
        raise DataError("the list is empty", file=file)
    stream.seek(end + 1)
    tail = stream.read(_BLOCK).strip()
    if tail:
        raise DataError(f"not JSON: after the list stands {tail.decode(errors='replace')!r:.40}", file=file)
