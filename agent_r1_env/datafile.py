"""Rows of a JSON or JSON-lines file, each with its place, so that a mistake can be pointed at."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_r1_env.errors import DataError, nearest

_GZIP_MAGIC = b"\x1f\x8b"


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

    def pairs(self, key: str, left: str, right: str, kind: type) -> Iterator[tuple[str, Any]]:
        """Pairs of a text and a ``kind``: ``[[left, right], ...]``, or one column for each of the two.

        Raises:
            DataError: what stands under ``key`` is neither; nothing there is no mistake.
        """
        value = self.data.get(key)
        if value is None:
            return
        if (
            isinstance(value, dict)
            and isinstance(value.get(left), list)
            and isinstance(value.get(right), list)
        ):
            if len(value[left]) != len(value[right]):
                raise self.error(f"{left!r} and {right!r} differ in length", key)
            value = list(zip(value[left], value[right], strict=True))
        if not isinstance(value, list):
            raise self.error(f"expected a list of [{left}, {right}] pairs, or a column of each", key)
        for pair in value:
            if not (isinstance(pair, list | tuple) and len(pair) == 2):
                raise self.error(f"expected a pair [{left}, {right}], found {pair!r:.80}", key)
            if not (isinstance(pair[0], str) and isinstance(pair[1], kind)):
                raise self.error(f"expected a pair of text and {kind.__name__}, found {pair!r:.80}", key)
            yield pair[0], pair[1]


def read_rows(path: str | Path) -> list[Row]:
    """Read a JSON list of objects, or one object a line; gzip is recognised by its content.

    Raises:
        DataError: no such file, nothing in it, not UTF-8, not JSON, or not a list of objects.
    """
    file = Path(path).expanduser()
    text = _decode(_read_bytes(file), file)
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
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise DataError(f"no such file{_neighbour(file)}", file=file) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=file) from error
    if not raw.startswith(_GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"broken gzip file: {error}", file=file) from error


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
    rows = []
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise DataError(f"expected an object, found {type(value).__name__}", file=file, row=number)
        rows.append(Row(value, str(file), number))
    return rows


def _lines(text: str, file: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not rows and _is_one_object(text):
                raise DataError(
                    "the file is one JSON object; expected a list of rows, or one row a line", file=file
                ) from None
            message = f"not JSON: {json_place(error, line=number)}"
            raise DataError(message, file=file, row=number) from None
        if not isinstance(value, dict):
            raise DataError(f"expected an object, found {type(value).__name__}", file=file, row=number)
        rows.append(Row(value, str(file), number))
    return rows


def _is_one_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def json_place(error: Exception, line: int | None = None) -> str:
    """What is wrong with a JSON text and where, of an error of the decoder."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at line {line or error.lineno}, column {error.colno}"
    return str(error)
