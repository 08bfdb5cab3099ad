"""Questions with their answers, the paragraphs to search, and the places they come from."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from agent_r1_env.datafile import Row, read_rows
from agent_r1_env.errors import DataError, UnknownName, missing_extra, nearest, unknown_name

HOTPOTQA_VARIABLE = "AGENT_R1_HOTPOTQA"
_HUB_NAME, _HUB_CONFIG = "hotpotqa/hotpot_qa", "distractor"
_OFFICIAL_NAMES = {"train": "hotpot_train_v1.1", "validation": "hotpot_dev_distractor_v1"}
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


class SyntheticDataWarning(UserWarning):
    """The questions in use were made by a script; scores on them say nothing about the real ones."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One unit of search."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """One question, or another thing to do.

    Attributes:
        answers: every answer that counts as right, the preferred one first; none where the task is not a
            question.
        supporting: (title, sentence number from 0) of the facts the answer rests on. Some of the
            public sets name sentences that their own paragraphs do not have; they stay as they are.
        kind: the data set's own class of the question, such as "bridge"; "" when it has none.
        data: whatever else tools, reward terms and policies need to know; never shown to the model.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    supporting: tuple[tuple[str, int], ...] = ()
    kind: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)


class TaskSet(Sequence[Task]):
    """Tasks in a fixed order, with the paragraphs they are to be answered from.

    Attributes:
        name: of the data set and split, for a person.
        origin: one sentence that says which source was taken.
        synthetic: the tasks were made by a script.
        corpus: the paragraphs, without duplicates, in the order in which they were met.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        name: str,
        origin: str,
        synthetic: bool = False,
        corpus: Iterable[Paragraph] = (),
    ) -> None:
        self._tasks = tuple(tasks)
        self._index = {task.id: number for number, task in enumerate(self._tasks)}
        self.name, self.origin, self.synthetic = name, origin, synthetic
        self.corpus = tuple(dict.fromkeys(corpus))
        if not self._tasks:
            raise DataError(f"{name} has no tasks ({origin})")
        if len(self._index) < len(self._tasks):
            raise DataError(f"{name} has several tasks of one id ({origin})")

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __repr__(self) -> str:
        return f"TaskSet({self.name!r}, {len(self)} tasks, {len(self.corpus)} paragraphs, {self.origin})"

    def by_id(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            UnknownName: there is none.
        """
        return self[self.index_of(task_id)]

    def index_of(self, task_id: str) -> int:
        """The position of the task of that id.

        Raises:
            UnknownName: there is none.
        """
        if task_id not in self._index:
            guess = nearest(task_id, self._index)
            meant = f"; did you mean {guess!r}?" if guess else f"; it has {len(self)} others"
            raise UnknownName(f"no task of id {task_id!r} in {self.name}{meant}")
        return self._index[task_id]


def hotpotqa(
    split: str = "validation",
    *,
    data: str | Path | None = None,
    corpus: str | Path | None = None,
    source: str | None = None,
    embedded: str | Path | None = None,
) -> TaskSet:
    """HotpotQA questions, or any set of the same form.

    The first of these that is given is taken, and ``origin`` says which: ``data``; the environment
    variable ``AGENT_R1_HOTPOTQA`` (a file, or a folder that holds one for each split); the Hugging
    Face Hub if ``source="hub"``; the embedded synthetic set. ``source="embedded"`` passes over the
    variable. Nothing is downloaded unless ``source="hub"``.

    Args:
        split: "train" or "validation". A single file is taken whole for either.
        data: a file in the official form (a JSON list), in the Hugging Face form, or either as JSON lines;
            it may be gzipped.
        corpus: a file of paragraphs, each ``{"title", "text"}``, as a JSON list or JSON lines. By default
            the paragraphs are those that the questions bring in ``context``.
        embedded: the folder of the embedded set.

    Returns:
        A set that is shared by all callers of the process with equal arguments and unchanged files.

    Raises:
        DataError: a file is missing or wrong; names the file, row and key.
        UnknownName: no such split or source.
        MissingExtra: ``source="hub"`` without the package ``datasets``.
    """
    if split not in _OFFICIAL_NAMES:
        raise unknown_name("split", split, _OFFICIAL_NAMES)
    if source not in (None, "hub", "embedded"):
        raise unknown_name("source", str(source), ("hub", "embedded"))
    if data is not None and source is not None:
        raise DataError(f"data={str(data)!r} and source={source!r} exclude each other; give one of them")
    variable = os.environ.get(HOTPOTQA_VARIABLE) if data is None and source is None else None
    with _LOADING:
        if data is not None:
            return _from_file(split, _stamp(data), _optional(corpus), f"the file {str(data)!r}", False)
        if variable:
            file, beside = _named_by_variable(Path(variable).expanduser(), split)
            origin = f"the file {str(file)!r}, found through {HOTPOTQA_VARIABLE}"
            return _from_file(split, _stamp(file), _optional(corpus or beside), origin, False)
        if source == "hub":
            return _from_hub(split, _optional(corpus))
        return _from_embedded(split, embedded, corpus)


_LOADING = threading.Lock()  # lru_cache alone would let 64 threads parse the same file at once
_Stamp = tuple[str, int, int]


def _stamp(path: str | Path) -> _Stamp:
    """Path, size and time of change: a file that was edited is read again."""
    file = Path(path).expanduser().absolute()
    try:
        state = file.stat()
    except OSError:
        return str(file), 0, 0
    return str(file), state.st_size, state.st_mtime_ns


def _optional(path: str | Path | None) -> _Stamp | None:
    return None if path is None else _stamp(path)


def _named_by_variable(place: Path, split: str) -> tuple[Path, Path | None]:
    if not place.is_dir():
        return place, None
    names = [stem + suffix for stem in (split, _OFFICIAL_NAMES[split]) for suffix in _SUFFIXES]
    file = next((place / name for name in names if (place / name).is_file()), None)
    if file is None:
        listed = ", ".join(names)
        raise DataError(f"the folder named by {HOTPOTQA_VARIABLE} holds none of {listed}", file=place)
    beside = place / "corpus.jsonl"
    return file, beside if beside.is_file() else None


def _from_embedded(split: str, embedded: str | Path | None, corpus: str | Path | None) -> TaskSet:
    if embedded is None:
        raise DataError("no data was given: set data=, AGENT_R1_HOTPOTQA or source='hub'")
    file = Path(embedded) / f"{split}.json.gz"
    origin = f"the embedded synthetic file {str(file)!r}"
    tasks = _from_file(split, _stamp(file), _optional(corpus), origin, True)
    _warn_synthetic()
    return tasks


@lru_cache(maxsize=1)
def _warn_synthetic() -> None:
    warnings.warn(
        "the questions are synthetic, made by a script; for real ones pass "
        f"data='hotpot_dev_distractor_v1.json' (any file of that form), set {HOTPOTQA_VARIABLE}, "
        "or pass source='hub' to fetch them",
        SyntheticDataWarning,
        stacklevel=4,
    )


@lru_cache(maxsize=4)
def _from_file(split: str, data: _Stamp, corpus: _Stamp | None, origin: str, synthetic: bool) -> TaskSet:
    return _task_set(read_rows(data[0]), split, corpus, origin, synthetic)


@lru_cache(maxsize=2)
def _from_hub(split: str, corpus: _Stamp | None) -> TaskSet:
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "hub") from None
    origin = f"{_HUB_NAME} ({_HUB_CONFIG}, {split}) on the Hugging Face Hub"
    try:
        loaded = datasets.load_dataset(_HUB_NAME, _HUB_CONFIG, split=split)
    except Exception as error:  # the Hub's client raises errors of four libraries when it is offline
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(f"cannot load {origin}: {type(error).__name__}: {reason}") from error
    rows = [Row(dict(row), _HUB_NAME, number) for number, row in enumerate(loaded, start=1)]
    return _task_set(rows, split, corpus, origin, False)


def _task_set(
    rows: Sequence[Row], split: str, corpus: _Stamp | None, origin: str, synthetic: bool
) -> TaskSet:
    tasks: dict[str, Task] = {}
    for row in rows:
        task = _task(row)
        if task.id in tasks:
            raise row.error(f"the id {task.id!r} belongs to an earlier row", row.get("_id", "id")[0])
        tasks[task.id] = task
    paragraphs = context_paragraphs(rows) if corpus is None else read_corpus(corpus[0])
    if corpus is not None:
        origin += f", searching {corpus[0]!r}"
    return TaskSet(
        tasks.values(), name=f"HotpotQA {split}", origin=origin, synthetic=synthetic, corpus=paragraphs
    )


def _task(row: Row) -> Task:
    kind = row.data.get("type")
    return Task(
        id=row.text("_id", "id"),
        question=row.text("question"),
        answers=(row.text("answer"),),
        supporting=tuple(_pairs(row, "supporting_facts", "title", "sent_id", int)),
        kind=kind if isinstance(kind, str) else "",
    )


def _pairs(row: Row, key: str, left: str, right: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The pairs under ``key``: ``[[left, right], ...]`` officially, two columns on the Hub."""
    value = row.data.get(key)
    if value is None:
        return
    if isinstance(value, dict) and isinstance(value.get(left), list) and isinstance(value.get(right), list):
        if len(value[left]) != len(value[right]):
            raise row.error(f"{left!r} and {right!r} differ in length", key)
        value = list(zip(value[left], value[right], strict=True))
    if not isinstance(value, list):
        raise row.error(f"expected a list of [{left}, {right}] pairs, or a column of each", key)
    for pair in value:
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            raise row.error(f"expected a pair [{left}, {right}], found {pair!r:.80}", key)
        if not (isinstance(pair[0], str) and isinstance(pair[1], kind)):
            raise row.error(f"expected a pair of text and {kind.__name__}, found {pair!r:.80}", key)
        yield pair[0], pair[1]


def context_paragraphs(rows: Sequence[Row]) -> Iterator[Paragraph]:
    """The paragraphs that questions bring, as often as they bring them; a row without any is an error."""
    contexts = [(title, _sentences(row, sentences)) for row in rows for title, sentences in _context(row)]
    rest = [sentence for _, sentences in contexts for sentence in sentences[1:]]
    # HotpotQA's later sentences bring their own space and 2WikiMultihopQA's do not. One sentence alone
    # cannot tell (some are a lone "."), the whole file can.
    spaced = sum(sentence[:1].isspace() for sentence in rest)
    joint = "" if 2 * spaced > len(rest) else " "
    return (Paragraph(title, joint.join(sentences).strip()) for title, sentences in contexts)


def _context(row: Row) -> Iterator[tuple[str, Any]]:
    row.get("context")
    return _pairs(row, "context", "title", "sentences", list)


def _sentences(row: Row, sentences: list[Any]) -> list[str]:
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise row.error("expected the sentences of a paragraph to be texts", "context")
    return sentences


def read_corpus(path: str | Path) -> list[Paragraph]:
    """Paragraphs of a file: objects with ``title`` and ``text``, as a JSON list or one a line.

    Raises:
        DataError: the file is missing or wrong; names the file, row and key.
    """
    return [Paragraph(row.text("title"), row.text("text")) for row in read_rows(path)]
