"""BM25 search over paragraphs: an index in memory, or one that was saved and is memory-mapped.

``bm25s`` computes the scores when an index is built. A search adds them up, so that a saved index needs
neither ``bm25s`` nor what it imports.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.derived import cache_folder, kept
from agent_r1_env.errors import DataError
from agent_r1_env.hits import MAX_QUERY_WORDS, Hit, words
from agent_r1_env.mapped import Lookup, Texts, mapped, write_lookup, write_texts
from agent_r1_env.task import Paragraph

_TITLE_WEIGHT = 2
_SETTINGS = f"bm25 1, lucene, titles x{_TITLE_WEIGHT}"
"""To be changed whenever an index of the same corpus comes out differently."""
_GROUPS = 1024
_SMALL = 4 << 20
"""Bytes of a corpus that is indexed faster than a saved index is worth."""


class _Matrix(NamedTuple):
    """The score of each word in each paragraph, by columns of words."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]


class Index:
    """BM25 scores of a corpus. Titles weigh more than text, and a query that is a title finds it first."""

    paragraphs: Sequence[Paragraph]
    _word: Callable[[str], int | None]
    _titled: Callable[[str], Any]

    def __init__(self, corpus: Iterable[Paragraph]) -> None:
        """Index paragraphs in memory; see ``Index.open`` for those of a file."""
        self.paragraphs = tuple(corpus)
        tokens = _Tokens()
        titled: dict[str, list[int]] = {}
        for row, paragraph in enumerate(tokens.taking(self.paragraphs)):
            titled.setdefault(" ".join(words(paragraph.title)), []).append(row)
        self._matrix = tokens.matrix()
        self._word = tokens.numbers.get
        self._titled = lambda title: titled.get(title, [])

    @classmethod
    def open(cls, corpus: str | Path, folder: str | Path | None = None) -> Index:
        """The index of a file of paragraphs, see ``corpus.read_paragraphs`` for its forms.

        An index that was saved is memory-mapped, with the paragraphs, and the file is not read. It is built
        anew when the file has changed, which takes about 50 bytes of memory for each word. Callers in one
        process share it.

        Args:
            folder: where indexes are saved; by default in the user's cache, and not at all for a small file.

        Raises:
            DataError: the file is missing or wrong, or the index cannot be saved.
        """
        file = Path(corpus).expanduser().absolute()
        status = file.stat() if file.is_file() else None
        state = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        with _OPENING:
            key = (file, state, str(folder))
            index = _OPEN.get(key)
            if index is None:
                if folder is None and state[0] < _SMALL:
                    index = cls(read_paragraphs(file))
                else:
                    place = Path(folder) if folder is not None else cache_folder() / "bm25"
                    index = cls.saved(kept(file, _SETTINGS, place, lambda made: build(file, made)))
                _OPEN[key] = index
            return index

    @classmethod
    def saved(cls, folder: Path) -> Index:
        """The index that ``build`` wrote to ``folder``.

        Raises:
            DataError: it is not complete.
        """
        index = cls.__new__(cls)
        try:
            index.paragraphs = _SavedParagraphs(folder)
            index._matrix = _Matrix(*(mapped(folder / f"{name}.npy") for name in _Matrix._fields))
            numbers, index._titled = Lookup(folder, "words"), Lookup(folder, "titles")
        except (OSError, ValueError) as error:
            raise DataError(f"the saved index is damaged ({error}); delete it", file=folder) from error
        index._word = lambda word: next(iter(numbers(word)), None)
        return index

    def __len__(self) -> int:
        return len(self.paragraphs)

    def search(self, query: str, k: int) -> list[Hit]:
        """At most ``k`` paragraphs that have a word of the query, by falling score.

        Equal scores keep the order of the corpus.
        """
        found = []
        for row, score in self._ranked(words(query), k):
            paragraph = self.paragraphs[row]
            found.append(Hit(paragraph.title, paragraph.text, score, str(row)))
        return found

    def best(self, terms: Sequence[str], k: int) -> list[Paragraph]:
        """The same for a query in words, without scores."""
        return [self.paragraphs[row] for row, _ in self._ranked(terms, k)]

    def scores(self, terms: Sequence[str]) -> NDArray[Any]:
        """The score of each paragraph, 0 for those that have none of the words."""
        scores = np.zeros(len(self.paragraphs), np.float32)
        for term in terms:
            if (number := self._word(term)) is not None:
                column = slice(self._matrix.indptr[number], self._matrix.indptr[number + 1])
                np.add.at(scores, self._matrix.indices[column], self._matrix.data[column])
        return scores

    def _ranked(self, terms: Sequence[str], k: int) -> list[tuple[int, float]]:
        terms = terms[:MAX_QUERY_WORDS]
        scores = self.scores(terms)
        # BM25 alone ranks pages about a thing above its own page when they repeat its name more often.
        if len(titled := self._titled(" ".join(terms))):
            scores[titled] += scores.max()
        rows = _promising(scores, k)
        k = min(k, len(rows))
        if k == 0:
            return []
        reached = scores[rows]
        rows = rows[reached >= np.partition(reached, -k)[-k]]  # ties at the edge too: the order decides
        rows = rows[np.argsort(-scores[rows], kind="stable")[:k]]
        return [(int(row), float(scores[row])) for row in rows]


def build(corpus: Path, folder: Path) -> None:
    """Index a file of paragraphs into a folder; the paragraphs are never all in memory.

    Raises:
        DataError: the file is missing or wrong.
    """
    tokens = _Tokens()
    titles: list[str] = []

    def lines() -> Iterator[str]:
        for paragraph in tokens.taking(read_paragraphs(corpus)):
            titles.append(" ".join(words(paragraph.title)))
            yield json.dumps({"title": paragraph.title, "text": paragraph.text}, ensure_ascii=False) + "\n"

    write_texts(folder, "paragraphs", lines())
    write_lookup(folder, "titles", titles)
    write_lookup(folder, "words", tokens.numbers)
    for name, part in tokens.matrix()._asdict().items():
        np.save(folder / f"{name}.npy", part)


def _promising(scores: NDArray[Any], k: int) -> NDArray[np.intp]:
    """The rows with the ``k`` best scores above 0, and all that tie with one of them; often few others.

    The rows are dealt out to groups. The k-th best of what leads the groups is no better than the k-th best
    of all, and found in one pass, where sorting out the best of all would take longer than adding scores up.
    """
    if k < _GROUPS < len(scores) // 4:
        deal = len(scores) // _GROUPS
        leads = scores[: deal * _GROUPS].reshape(deal, _GROUPS).max(axis=0)
        if (floor := np.partition(leads, -k)[-k]) > 0:
            return np.flatnonzero(scores >= floor)
    return np.flatnonzero(scores)


class _SavedParagraphs(Sequence[Paragraph]):
    def __init__(self, folder: Path) -> None:
        self._lines = Texts(folder, "paragraphs")

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, row: Any) -> Any:
        return Paragraph(**json.loads(self._lines[row]))


class _Tokens:
    """The words of paragraphs, as numbers in the order in which they were met."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._documents: list[array[int]] = []

    def taking(self, paragraphs: Iterable[Paragraph]) -> Iterator[Paragraph]:
        """The paragraphs, whose words are counted in passing."""
        fresh = count()
        for paragraph in paragraphs:
            document = array("i")
            for word in words(paragraph.title) * _TITLE_WEIGHT + words(paragraph.text):
                number = self.numbers.get(word)
                if number is None:
                    number = self.numbers[word] = next(fresh)
                document.append(number)
            self._documents.append(document)
            yield paragraph

    def matrix(self) -> _Matrix:
        """The scores that bm25s gives them."""
        if not self.numbers:  # bm25s refuses a corpus without a single word
            return _Matrix(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64))
        import bm25s  # 0.2 s, and only building needs it

        model = bm25s.BM25(method="lucene", backend="numpy")
        model.index((self._documents, dict(self.numbers)), show_progress=False)
        return _Matrix(*(np.asarray(model.scores[name]) for name in _Matrix._fields))


_OPEN: WeakValueDictionary[tuple[Path, tuple[int, int], str], Index] = WeakValueDictionary()
_OPENING = threading.Lock()
