"""Tasks whose rows stay in their file until they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from agent_r1_env.datafile import GZIP_MAGIC, PARQUET_MAGIC, Row, reading
from agent_r1_env.errors import DataError, UnknownName
from agent_r1_env.jsonrows import JsonRows
from agent_r1_env.parquet import ParquetRows
from agent_r1_env.task import READING, Paragraph, Task, TaskSet


def open_rows(path: str | Path) -> Sequence[Row]:
    """The rows of a file, read when they are asked for.

    Raises:
        DataError: the file is missing, gzipped, empty, or not of a form that has rows.
        MissingExtra: a parquet file, without the package ``pyarrow``.
    """
    file = Path(path).expanduser()
    return ParquetRows(file) if _head(file).startswith(PARQUET_MAGIC) else JsonRows(file)


def can_stream(path: str | Path) -> bool:
    """Whether the rows of a file can be read from its middle; a gzipped one is read from its start."""
    return not _head(Path(path).expanduser()).startswith(GZIP_MAGIC)


def _head(file: Path) -> bytes:
    with reading(file), file.open("rb") as stream:
        return stream.read(4)


class HubRows(Sequence[Row]):
    """The rows of a data set of the package ``datasets``, which keeps them in files of its own."""

    def __init__(self, loaded: Any, name: str) -> None:
        self._loaded, self._name = loaded, name

    def __len__(self) -> int:
        return len(self._loaded)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        return Row(dict(self._loaded[position]), self._name, position + 1)

    def __iter__(self) -> Iterator[Row]:
        for number, row in enumerate(self._loaded, start=1):
            yield Row(dict(row), self._name, number)


class StreamedTaskSet(TaskSet):
    """A ``TaskSet`` that makes a task of its row whenever it is asked for.

    Mistakes in a row are found when it is read; the first one is read at once. To find tasks by their
    ids, all rows are read once and 12 bytes held for each from then on, which also finds an id that occurs
    twice; each search then reads the row it finds. Safe from several threads and in forked processes.
    It can be pickled if ``rows``, ``task`` and ``corpus`` can.

    Args:
        rows: of a data set, such as ``open_rows`` gives.
        task: makes a task of a row, the same one each time.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        task: Callable[[Row], Task],
        *,
        name: str,
        origin: str,
        synthetic: bool = False,
        corpus: Iterable[Paragraph] | Callable[[], Iterable[Paragraph]] = (),
        corpus_file: Path | None = None,
    ) -> None:
        self._describe(name, origin, synthetic, corpus, corpus_file)
        self._rows, self._task = rows, task
        self._ids: tuple[NDArray[np.uint64], NDArray[np.uint32]] | None = None
        if not len(rows):
            raise DataError(f"{name} has no tasks ({origin})")
        task(rows[0])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(map(self._task, self._rows[index]))
        return self._task(self._rows[index])

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, self._rows)

    def index_of(self, task_id: str) -> int:
        """The position of the task of that id. The first search reads all rows.

        Raises:
            UnknownName: there is none.
            DataError: a row is wrong, or has the id of another one.
        """
        if self._ids is None:
            with READING:
                if self._ids is None:
                    self._ids = self._sorted_ids()
        digests, positions = self._ids
        digest = _digest(task_id)
        found = positions[np.searchsorted(digests, digest) : np.searchsorted(digests, digest, "right")]
        for position in map(int, found):
            if self[position].id == task_id:
                return position
        raise UnknownName(f"no task of id {task_id!r} in {self.name}; it has {len(self)} others")

    def _sorted_ids(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """A number for each id, ascending, and where its task is."""
        digests = np.fromiter((_digest(task.id) for task in self), np.uint64, len(self))
        order = np.argsort(digests, kind="stable")
        digests = digests[order]
        for twin in np.flatnonzero(digests[1:] == digests[:-1]):
            self._check_different(int(order[twin]), int(order[twin + 1]))
        return digests, order.astype(np.uint32)

    def _check_different(self, earlier: int, later: int) -> None:
        row = self._rows[later]
        task_id = self._task(row).id
        if task_id == self[earlier].id:
            raise row.error(f"the id {task_id!r} belongs to an earlier row", row.key_of("_id", "id"))


def _digest(task_id: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(task_id.encode(), digest_size=8).digest(), "little"))
