"""Questions with their answers, and the paragraphs to search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from agent_r1_env.errors import DataError, UnknownName, nearest
from agent_r1_env.forklock import ForkLock


class SyntheticDataWarning(UserWarning):
    """The questions in use were made by a script; scores on them say nothing about the real ones."""


READING = ForkLock()
"""Held while a task set reads what it left in its file: 64 threads read it once."""


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

    Args:
        corpus: the paragraphs, or a function that finds them when they are first asked for.

    Attributes:
        name: of the data set and split, for a person.
        origin: one sentence that says which source was taken.
        synthetic: the tasks were made by a script.
        corpus_file: the file that a corpus was left in for its size; search tools index it there.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        name: str,
        origin: str,
        synthetic: bool = False,
        corpus: Iterable[Paragraph] | Callable[[], Iterable[Paragraph]] = (),
        corpus_file: Path | None = None,
    ) -> None:
        self._tasks = tuple(tasks)
        self._describe(name, origin, synthetic, corpus, corpus_file)
        self._index = {task.id: number for number, task in enumerate(self._tasks)}
        if not self._tasks:
            raise DataError(f"{name} has no tasks ({origin})")
        if len(self._index) < len(self._tasks):
            raise DataError(f"{name} has several tasks of one id ({origin})")

    def _describe(
        self,
        name: str,
        origin: str,
        synthetic: bool,
        corpus: Iterable[Paragraph] | Callable[[], Iterable[Paragraph]],
        corpus_file: Path | None,
    ) -> None:
        self.name, self.origin, self.synthetic, self.corpus_file = name, origin, synthetic, corpus_file
        self._corpus = corpus if callable(corpus) else tuple(dict.fromkeys(corpus))

    @property
    def corpus(self) -> tuple[Paragraph, ...]:
        """The paragraphs, without duplicates, in the order in which they were met.

        Raises:
            DataError: they are read only now, and something is wrong with them.
        """
        if callable(self._corpus):
            with READING:
                if callable(self._corpus):
                    self._corpus = tuple(dict.fromkeys(self._corpus()))
        return self._corpus

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
        paragraphs = (
            "paragraphs not read yet" if callable(self._corpus) else f"{len(self._corpus)} paragraphs"
        )
        return f"{type(self).__name__}({self.name!r}, {len(self)} tasks, {paragraphs}, {self.origin})"

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
