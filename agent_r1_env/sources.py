"""Where the rows of a data set come from: a file, an environment variable, the Hub, the embedded set."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from agent_r1_env.corpus import QUESTION_FORMS, read_paragraphs
from agent_r1_env.datafile import Row, read_rows
from agent_r1_env.errors import DataError, missing_extra, unknown_name
from agent_r1_env.forklock import ForkLock
from agent_r1_env.streaming import HubRows, StreamedTaskSet, can_stream, open_rows
from agent_r1_env.task import Paragraph, SyntheticDataWarning, Task, TaskSet

STREAMING_ABOVE = 128 << 20
"""Bytes of a file that is not read into memory unless one asks for it; in memory it takes several times as
much."""
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".parquet")
_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Hub:
    """A data set on the Hugging Face Hub.

    Attributes:
        splits: names there, where they are not the same as here.
    """

    name: str
    config: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DataSet:
    """How the rows of one public data set become tasks. Make it once: sets are shared by its identity.

    Attributes:
        name: for a person.
        variable: the environment variable that names a file of it, or a folder of files.
        files: by split, the names of its files without suffix that are looked for in a folder, the best
            first; the name of the split itself comes before all. These are the splits that exist.
        task: makes a task of a row. Its id is taken to tell rows apart; where the rows have none, make it
            of ``row.number``.
        paragraphs: of all rows, those to search, as often as they occur; None where rows bring none.
        hub: where ``source="hub"`` finds it.
    """

    name: str
    variable: str
    files: Mapping[str, Sequence[str]]
    task: Callable[[Row], Task]
    paragraphs: Callable[[Iterable[Row]], Iterable[Paragraph]] | None = None
    hub: Hub | None = None


def load(
    data_set: DataSet,
    split: str = "validation",
    *,
    data: str | Path | None = None,
    corpus: str | Path | None = None,
    source: str | None = None,
    embedded: str | Path | None = None,
    streaming: bool | None = None,
) -> TaskSet:
    """The tasks of one split.

    The first of these that is given is taken, and ``origin`` says which: ``data``; the environment
    variable of the data set (a file, or a folder that holds one for each split); the Hugging Face Hub if
    ``source="hub"``; the embedded synthetic set. ``source="embedded"`` passes over the variable. Nothing
    is downloaded unless ``source="hub"``.

    Args:
        split: one of those that the data set has. A single file is taken whole for any of them.
        data: a file of rows: a JSON list, JSON lines (either may be gzipped), or parquet.
        corpus: a file of paragraphs, see ``agent_r1_env.corpus.read_paragraphs``. By default
            ``corpus.jsonl`` or ``corpus.jsonl.gz`` beside the file, where a folder was given, else the
            paragraphs that the rows bring. One above ``STREAMING_ABOVE`` stays in its file.
        embedded: the folder of the embedded set.
        streaming: leave the rows in their file, see ``streaming.StreamedTaskSet``; by default those of a
            file above ``STREAMING_ABOVE`` that is not gzipped. Where there is no ``corpus``, search tools
            then index the paragraphs of the rows in that file, and ``TaskSet.corpus`` collects them in
            memory when it is first asked for.

    Returns:
        A set that is shared by all callers of the process with equal arguments and unchanged files.

    Raises:
        DataError: a file is missing or wrong; names the file, row and key.
        UnknownName: no such split or source.
        MissingExtra: ``source="hub"`` or a parquet file without the packages they need.
    """
    if split not in data_set.files:
        raise unknown_name("split", split, data_set.files, data_set.name)
    if source not in (None, "hub", "embedded"):
        raise unknown_name("source", str(source), ("hub", "embedded"))
    if data is not None and source is not None:
        raise DataError(f"data={str(data)!r} and source={source!r} exclude each other; give one of them")
    with _LOADING:
        if source == "hub":
            return _from_hub(data_set, split, _optional(corpus), streaming)
        found = _find(data_set, split, data, source, embedded)
        tasks = _from_file(
            data_set, split, stamp(found.file), _optional(corpus or found.corpus), found, streaming
        )
    if found.synthetic:
        _warn_synthetic(data_set)
    return tasks


@dataclass(frozen=True, slots=True)
class _Found:
    file: Path
    origin: str
    corpus: Path | None = None
    synthetic: bool = False


def _find(
    data_set: DataSet, split: str, data: str | Path | None, source: str | None, embedded: str | Path | None
) -> _Found:
    if data is not None:
        return _Found(Path(data), f"the file {str(data)!r}")
    variable = os.environ.get(data_set.variable)
    if variable and source is None:
        place = Path(variable).expanduser()
        file, corpus = _in_folder(data_set, split, place) if place.is_dir() else (place, None)
        return _Found(file, f"the file {str(file)!r}, found through {data_set.variable}", corpus)
    if embedded is None:
        raise DataError(
            f"no data of {data_set.name} were given: set data= or {data_set.variable}{_or_hub(data_set)}"
        )
    file, corpus = _in_folder(data_set, split, Path(embedded))
    return _Found(file, f"the embedded synthetic file {str(file)!r}", corpus, synthetic=True)


_LOADING = ForkLock()  # lru_cache alone would let 64 threads parse the same file at once
Stamp = tuple[str, int, int]


def stamp(path: str | Path) -> Stamp:
    """Path, size and time of change: a file that was edited is read again."""
    file = Path(path).expanduser().absolute()
    try:
        state = file.stat()
    except OSError:
        return str(file), 0, 0
    return str(file), state.st_size, state.st_mtime_ns


def _optional(path: str | Path | None) -> Stamp | None:
    return None if path is None else stamp(path)


def _in_folder(data_set: DataSet, split: str, folder: Path) -> tuple[Path, Path | None]:
    """The file of a split, and the corpus beside it."""
    names = [stem + suffix for stem in (split, *data_set.files[split]) for suffix in _SUFFIXES]
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise DataError(f"the folder of {data_set.name} holds none of {', '.join(names)}", file=folder)
    return file, next((folder / name for name in _CORPUS if (folder / name).is_file()), None)


@cache
def _warn_synthetic(data_set: DataSet) -> None:
    warnings.warn(
        f"the questions of {data_set.name} are synthetic, made by a script; for real ones set data= or "
        f"{data_set.variable} to a file of them{_or_hub(data_set)}",
        SyntheticDataWarning,
        stacklevel=3,
    )


def _or_hub(data_set: DataSet) -> str:
    return ", or source='hub' to fetch them" if data_set.hub else ""


@lru_cache(maxsize=8)
def _from_file(
    data_set: DataSet, split: str, data: Stamp, corpus: Stamp | None, found: _Found, streaming: bool | None
) -> TaskSet:
    path, size, _ = data
    if streaming is None:
        streaming = size > STREAMING_ABOVE and can_stream(path)
    rows = open_rows(path) if streaming else read_rows(path)
    return _task_set(data_set, rows, split, corpus, found, streaming, Path(path))


@lru_cache(maxsize=2)
def _from_hub(data_set: DataSet, split: str, corpus: Stamp | None, streaming: bool | None) -> TaskSet:
    if data_set.hub is None:
        raise DataError(f"{data_set.name} is not on the Hugging Face Hub; give a file of it as data=")
    hub = data_set.hub
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "hub") from None
    there = hub.splits.get(split, split)
    origin = f"{hub.name} ({', '.join(filter(None, (hub.config, there)))}) on the Hugging Face Hub"
    try:
        loaded = datasets.load_dataset(hub.name, hub.config, split=there)
    except Exception as error:  # the Hub's client raises errors of four libraries when it is offline
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(f"cannot load {origin}: {type(error).__name__}: {reason}") from error
    if streaming is None:
        streaming = (loaded.dataset_size or 0) > STREAMING_ABOVE
    rows = HubRows(loaded, hub.name)
    kept = rows if streaming else list(rows)
    return _task_set(data_set, kept, split, corpus, _Found(Path(hub.name), origin), streaming)


def _task_set(
    data_set: DataSet,
    rows: Sequence[Row],
    split: str,
    corpus: Stamp | None,
    found: _Found,
    streaming: bool,
    file: Path | None = None,
) -> TaskSet:
    described: dict[str, Any] = {
        "name": f"{data_set.name} {split}",
        "origin": found.origin,
        "synthetic": found.synthetic,
    }
    if corpus is not None:
        path, size, _ = corpus
        described["origin"] += f", searching {path!r}"
        described["corpus"] = read = partial(read_paragraphs, path)
        if size > STREAMING_ABOVE:
            described["corpus_file"] = Path(path)
        else:
            described["corpus"] = read()
    elif data_set.paragraphs is not None:
        collect = partial(data_set.paragraphs, rows)
        described["corpus"] = collect if streaming else collect()
        if streaming:
            next(iter(data_set.paragraphs([rows[0]])), None)  # a file of another form is told at once
        if streaming and file is not None and data_set.paragraphs in QUESTION_FORMS.values():
            described["corpus_file"] = file  # read_paragraphs finds the same ones there
    if streaming:
        return StreamedTaskSet(rows, data_set.task, **described)
    return TaskSet(_different(map(data_set.task, rows), rows), **described)


def _different(tasks: Iterable[Task], rows: Iterable[Row]) -> Iterator[Task]:
    """The tasks, each of an id of its own."""
    seen: set[str] = set()
    for task, row in zip(tasks, rows, strict=True):
        if task.id in seen:
            raise row.error(f"the id {task.id!r} belongs to an earlier row", row.key_of("_id", "id"))
        seen.add(task.id)
        yield task
