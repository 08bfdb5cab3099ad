"""Rows of a parquet file, read one row group at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

from agent_r1_env.datafile import Row, changed, reading, state_of
from agent_r1_env.errors import DataError, missing_extra

_BATCH = 256


class ParquetRows(Sequence[Row]):
    """The rows of a parquet file, of which the row group that was read last is held.

    A row costs reading its row group, unless it is the one that is held. Safe from several threads and in
    forked processes, for every reading opens the file anew.

    Raises:
        DataError: no such file, a broken one, or one without rows; when read from, also a changed one.
        MissingExtra: the package ``pyarrow`` is not installed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with reading(file):
            self._state = state_of(file.stat())
        self._held: tuple[int, Any] = (-1, None)
        footer = self._footer()
        self._ends = list(accumulate(footer.row_group(n).num_rows for n in range(footer.num_row_groups)))
        if not len(self):
            raise DataError("the file has no rows", file=file)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        group = bisect_right(self._ends, position)
        number, table = self._held
        if number != group:
            table = self._group(group)
            self._held = group, table  # one assignment, so that other threads never see half of it
        within = position - (self._ends[group - 1] if group else 0)
        return Row(table.slice(within, 1).to_pylist()[0], str(self._file), position + 1)

    def __iter__(self) -> Iterator[Row]:
        number = 0
        for group in range(len(self._ends)):
            for batch in self._group(group).to_batches(max_chunksize=_BATCH):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(value, str(self._file), number)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": (-1, None)}

    def _footer(self) -> Any:
        return self._opened(lambda opened: opened.metadata)

    def _group(self, group: int) -> Any:
        # Arrow's threads don't outlive a fork.
        return self._opened(lambda opened: opened.read_row_group(group, use_threads=False))

    def _opened(self, use: Any) -> Any:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise missing_extra("pyarrow", "hub") from None
        with reading(self._file):
            if state_of(self._file.stat()) != self._state:
                raise changed(self._file)
        try:
            with parquet.ParquetFile(self._file) as opened:
                return use(opened)
        except (pyarrow.lib.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise DataError(f"broken parquet file: {reason}", file=self._file) from error
