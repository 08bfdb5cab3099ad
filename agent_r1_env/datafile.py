"""Rows of a JSON, JSON-lines or parquet file, each with its place, so that a mistake can be pointed at."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_r1_env.errors import DataError, nearest

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Row:
    """One JSON object of a file.

    Attributes:
        number: counted from 1; the line in a JSON-lines file, the position in a JSON list.
    """

    data: dict[str, Any]
    file: str
    number: int

    def error(self, message: str, key: str | None = None) -> DataError:
        """The error that blames this row."""
        return DataError(message, file=self.file, row=self.number, key=key)

    def get(self, *keys: str) -> tuple[str, Any]:
        """The first of ``keys`` that the row has, and its value.

        Raises:
            DataError: the row has none of them.
        """
        if (found := self.key_of(*keys)) is not None:
            return found, self.data[found]
        guess = next((name for key in keys if (name := nearest(key, map(str, self.data)))), None)
        hint = f"; did you mean it by {guess!r}?" if guess and guess not in keys else ""
        raise self.error(f"the row has no {' or '.join(map(repr, keys))}{hint}", keys[0])

    def key_of(self, *keys: str) -> str | None:
        """The first of ``keys`` that the row has."""
        return next((key for key in keys if self.data.get(key) is not None), None)

    def text(self, *keys: str) -> str:
        """The text under the first of ``keys`` that the row has.

        Raises:
            DataError: no such key, not a text, blank, or a text that no UTF-8 file can hold.
        """
        key, value = self.get(*keys)
        if not isinstance(value, str):
            raise self.error(f"expected a text, found {type(value).__name__}", key)
        if not value.strip():
            raise self.error("the text is blank", key)
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self.error("the text holds half of a surrogate pair", key)
        return value

    def texts(self, *keys: str) -> tuple[str, ...]:
        """The different texts under the first of ``keys`` that the row has: one, or a list of them.

        Raises:
            DataError: no such key, an empty list, or something in it that is no text, see ``text``.
        """
        key, value = self.get(*keys)
        if not isinstance(value, list):
            return (self.text(key),)
        if not value:
            raise self.error("the list is empty", key)
        return tuple(dict.fromkeys(Row({key: item}, self.file, self.number).text(key) for item in value))

    def records(self, key: str, **fields: Any) -> list[tuple[Any, ...]]:
        """The fields of each object in the list under ``key``, in the order in which they are named.

        The list may come as one column for each field, its items as lists, and all of it as JSON in a
        text: copies of one data set differ in that.

        Args:
            fields: name and type, or union of types, of each.

        Raises:
            DataError: it is no such list. Nothing under ``key`` is no mistake.
        """
        value = self.data.get(key)
        if isinstance(value, str):
            value = _json_or_text(value)
        if value is None:
            return []
        shown = ", ".join(fields)
        if isinstance(value, dict) and all(isinstance(value.get(name), list) for name in fields):
            columns = [value[name] for name in fields]
            if len({len(column) for column in columns}) > 1:
                raise self.error(f"the columns {shown} differ in length", key)
            value = list(zip(*columns, strict=True))
        if not isinstance(value, list):
            raise self.error(f"expected a list of [{shown}], or a column of each", key)
        return [self._record(item, key, fields) for item in value]

    def _record(self, item: Any, key: str, fields: Mapping[str, Any]) -> tuple[Any, ...]:
        if isinstance(item, dict):
            item = tuple(Row(item, self.file, self.number)._field(name, key) for name in fields)
        if not (isinstance(item, list | tuple) and len(item) == len(fields)):
            raise self.error(f"expected [{', '.join(fields)}], found {item!r:.80}", key)
        for value, (name, kind) in zip(item, fields.items(), strict=True):
            if not isinstance(value, kind):
                wanted = getattr(kind, "__name__", str(kind))
                raise self.error(f"expected {name} to be {wanted}, found {value!r:.80}", key)
        return tuple(item)

    def _field(self, name: str, key: str) -> Any:
        if name not in self.data:
            guess = nearest(name, map(str, self.data))
            meant = f"; did you mean it by {guess!r}?" if guess else ""
            raise self.error(f"an object in the list has no {name!r}{meant}", key)
        return self.data[name]


def read_rows(path: str | Path) -> list[Row]:
    """Read a JSON list of objects, one object a line, or parquet; the content tells, also if it is gzipped.

    Raises:
        DataError: no such file, nothing in it, not UTF-8, not JSON, or not a list of objects.
        MissingExtra: a parquet file, without the package ``pyarrow``.
    """
    file = Path(path).expanduser()
    raw = _read_bytes(file)
    if raw.startswith(PARQUET_MAGIC):
        from agent_r1_env.parquet import ParquetRows  # which imports this module

        return list(ParquetRows(file))
    text = _decode(raw, file)
    if not text.strip():
        raise DataError("the file is empty", file=file)
    if text.lstrip().startswith("["):
        return _rows(_whole(text, file), file)
    return _lines(text, file)


def read_value(path: str | Path) -> Any:
    """Read a file that holds one JSON value.

    Raises:
        DataError: no such file, nothing in it, not UTF-8, or not JSON.
    """
    file = Path(path).expanduser()
    text = _decode(_read_bytes(file), file)
    if not text.strip():
        raise DataError("the file is empty", file=file)
    return _parsed(text, file)


def _read_bytes(file: Path) -> bytes:
    with reading(file):
        raw = file.read_bytes()
    if not raw.startswith(GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"broken gzip file: {error}", file=file) from error


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """What the system says about a file that cannot be read becomes a ``DataError``."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file{_neighbour(file)}", file=file) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=file) from error


State = tuple[int, int]


def state_of(status: os.stat_result) -> State:
    """Size and time of change: what differs once a file was written to."""
    return status.st_size, status.st_mtime_ns


def changed(file: Path) -> DataError:
    """The error for a file that was written to while it was read from."""
    return DataError("the file has changed since the tasks were loaded; load them again", file=file)


def _neighbour(file: Path) -> str:
    if not file.parent.is_dir():
        return f"; the folder {str(file.parent)!r} does not exist either"
    guess = nearest(file.name, (entry.name for entry in file.parent.iterdir()))
    return f"; did you mean {guess!r}?" if guess else ""


def _decode(raw: bytes, file: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"line {line} is not UTF-8 (byte {raw[error.start]:#04x})", file=file) from None


def _parsed(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {json_place(error)}", file=file) from None


def _whole(text: str, file: Path) -> Sequence[Any]:
    values: list[Any] = _parsed(text, file)
    if not values:
        raise DataError("the list is empty", file=file)
    return values


def _rows(values: Sequence[Any], file: Path) -> list[Row]:
    return [row_of(value, file, number) for number, value in enumerate(values, start=1)]


def row_of(value: Any, file: Path, number: int) -> Row:
    """The row that a JSON value is.

    Raises:
        DataError: it is no object.
    """
    if not isinstance(value, dict):
        raise DataError(f"expected an object, found {type(value).__name__}", file=file, row=number)
    return Row(value, str(file), number)


def row_of_line(line: str, file: Path, number: int) -> Row:
    """The row in a line of a JSON-lines file.

    Raises:
        DataError: it is no JSON object.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {json_place(error, line=number)}", file=file, row=number) from None
    return row_of(value, file, number)


def _lines(text: str, file: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(row_of_line(line, file, number))
        except DataError:
            if not rows and _is_one_object(text):
                raise DataError(
                    "the file is one JSON object; expected a list of rows, or one row a line", file=file
                ) from None
            raise
    return rows


def _is_one_object(text: str) -> bool:
    return isinstance(_json_or_text(text), dict)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def json_place(error: Exception, line: int | None = None) -> str:
    """What is wrong with a JSON text and where, of an error of the decoder."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at line {line or error.lineno}, column {error.colno}"
    return str(error)
