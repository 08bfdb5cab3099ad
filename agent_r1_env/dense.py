"""Search by meaning: paragraphs and queries as vectors of an encoder, compared by FAISS."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from agent_r1_env.corpus import digest, read_paragraphs
from agent_r1_env.derived import cache_folder, kept
from agent_r1_env.errors import DataError, missing_extra
from agent_r1_env.hits import Hit, clamped, too_long, words
from agent_r1_env.loading import load_target
from agent_r1_env.mapped import Texts, write_texts
from agent_r1_env.task import Paragraph, TaskSet

Encode = Callable[[Sequence[str]], Any]
"""Makes an array (texts, dimensions). It may have ``clamp(text)``: the beginning that it can read."""
_BLOCK = 1 << 14
_LONGEST_TOKEN = 128


@dataclass(frozen=True)
class Settings:
    """What vectors and their index depend on.

    Attributes:
        encoder: a model of sentence-transformers, by name or folder; or code, as ./file.py:name or
            package.module:name: a function of a list of texts, or a class of such functions.
        query_prefix: put before each query, as some models want it, such as "query: ".
        passage_prefix: put before each paragraph.
        factory: FAISS's description of the index. One that has to be trained is trained on the first 16,384
            paragraphs.
    """

    encoder: str
    query_prefix: str = ""
    passage_prefix: str = ""
    factory: str = "Flat"


class DenseIndex:
    """Vectors of a corpus. Paragraphs without a word are left out."""

    def __init__(self, settings: Settings, encode: Encode, corpus: Iterable[Paragraph]) -> None:
        """Encode paragraphs in memory; see ``open`` for those of a file."""
        self.settings, self.encode = settings, encode
        self._lock = threading.Lock()
        lines: list[str] = []
        self._vectors = _indexed(settings, encode, corpus, lines.append)
        self._lines: Sequence[str] | Texts = lines

    @classmethod
    def of_tasks(cls, settings: Settings, encode: Encode, tasks: TaskSet) -> DenseIndex:
        """The index of these tasks' paragraphs, shared by all callers; it lives as long as they do."""
        with _OPENING:
            known = _OF_TASKS.setdefault(tasks, {})
            if settings not in known:
                known[settings] = cls(settings, encode, tasks.corpus)
            return known[settings]

    @classmethod
    def open(
        cls, settings: Settings, encode: Encode, corpus: str | Path, folder: str | Path | None = None
    ) -> DenseIndex:
        """The index of a file of paragraphs, encoded once and then kept; see ``corpus.read_paragraphs``.

        Args:
            folder: where indexes are saved; by default in the user's cache.

        Raises:
            DataError: the file is missing or wrong, or the index cannot be saved.
            MissingExtra: FAISS is not installed.
        """
        file = Path(corpus).expanduser().absolute()
        place = Path(folder) if folder is not None else cache_folder() / "dense"
        made_of = json.dumps(["dense 1", *astuple(settings), _version(settings.encoder)])
        with _OPENING:
            saved = kept(file, made_of, place, lambda made: _build(settings, encode, file, made))
            index = _OPEN.get(saved)
            if index is None:
                index = cls.__new__(cls)
                index.settings, index.encode, index._lock = settings, encode, threading.Lock()
                index._lines, index._vectors = Texts(saved, "paragraphs"), _read(saved / "vectors.faiss")
                _OPEN[saved] = index
            return index

    def __len__(self) -> int:
        return len(self._lines)

    def search(self, query: str, k: int) -> tuple[list[Hit], list[str]]:
        """At most ``k`` paragraphs, the nearest first, and notes for the model."""
        k = min(k, len(self))
        if k == 0:
            return [], []
        # The tokenizers of fast models cannot be used by two threads at a time.
        with self._lock:
            asked, notes = self._clamped(query)
            vector = _unit(self.settings, self.encode, [asked])
        scores, rows = self._vectors.search(vector, k)
        # FAISS fills up with -1 where it finds less than it was asked for.
        pairs = [(int(row), float(score)) for row, score in zip(rows[0], scores[0], strict=True) if row >= 0]
        return [self._hit(row, score) for row, score in pairs], notes

    def _hit(self, row: int, score: float) -> Hit:
        title, text = json.loads(self._lines[row])
        return Hit(title, text, score, str(row))

    def _clamped(self, query: str) -> tuple[str, list[str]]:
        prefix = self.settings.query_prefix
        clamp = getattr(self.encode, "clamp", None)
        if clamp is None:
            asked, notes = clamped(query)
            return prefix + asked, notes
        asked = clamp(prefix + query)
        if asked == prefix + query:
            return asked, []
        return asked, [too_long(len(words(asked.removeprefix(prefix))))]


class SentenceTransformer:
    """A model of the package sentence-transformers.

    Raises:
        MissingExtra: the package is not installed.
        DataError: there is no such model.
    """

    def __init__(self, name: str, *, device: str | None = None, download: bool = False) -> None:
        try:
            import sentence_transformers
        except ModuleNotFoundError as error:
            raise missing_extra(error.name or "sentence_transformers", "dense") from error
        try:
            self._model: Any = sentence_transformers.SentenceTransformer(
                name, device=device, local_files_only=not download
            )
        except (OSError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
            remedy = "" if download else "; download it first, or set download: true"
            raise DataError(f"cannot load the encoder {name!r}: {reason}{remedy}") from error

    def __call__(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)

    def clamp(self, text: str) -> str:
        """The beginning of a text that fits the model's window."""
        window, tokenizer = self._model.max_seq_length, self._model.tokenizer
        if window is None:
            return text
        room = window - tokenizer.num_special_tokens_to_add()
        # No token is longer, so that a flood is not tokenised whole.
        text = text[: room * _LONGEST_TOKEN]
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return text if len(ids) <= room else str(tokenizer.decode(ids[:room], skip_special_tokens=True))


def load_encoder(name: str, *, device: str | None = None, download: bool = False) -> Encode:
    """What ``Settings.encoder`` names, shared by all callers.

    Raises:
        TargetFault: there is no such code.
        ValueError: it is nothing that encodes.
        MissingExtra, DataError: as ``SentenceTransformer`` does.
    """
    with _OPENING:
        key = (name, device)
        if key not in _ENCODERS:
            _ENCODERS[key] = _encoder(name, device, download)
        return _ENCODERS[key]


def _encoder(name: str, device: str | None, download: bool) -> Encode:
    if ":" not in name:
        return SentenceTransformer(name, device=device, download=download)
    target = load_target(name, Path.cwd())
    encode: Encode = target() if isinstance(target, type) else target
    if not callable(encode):
        raise ValueError(f"the encoder {name} is {type(encode).__name__}, not a function of a list of texts")
    return encode


def _version(encoder: str) -> str:
    """What tells whether the encoder is still the one that vectors were made with."""
    code = Path(encoder.rpartition(":")[0])
    if code.suffix == ".py":
        return digest(code)
    folder = Path(encoder).expanduser()
    if not folder.is_dir():
        return ""
    return str(max((path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()), default=0))


def _build(settings: Settings, encode: Encode, corpus: Path, folder: Path) -> None:
    faiss = _faiss()
    lines: list[str] = []
    vectors = _indexed(settings, encode, read_paragraphs(corpus), lines.append)
    write_texts(folder, "paragraphs", lines)
    faiss.write_index(vectors, str(folder / "vectors.faiss"))


def _indexed(
    settings: Settings, encode: Encode, corpus: Iterable[Paragraph], keep: Callable[[str], None]
) -> Any:
    """A FAISS index of the paragraphs; each that is in it is kept, as JSON of title and text."""
    faiss = _faiss()
    index = None
    for block in _blocks(corpus):
        for paragraph in block:
            keep(json.dumps([paragraph.title, paragraph.text], ensure_ascii=False))
        texts = [f"{settings.passage_prefix}{page.title}\n{page.text}".strip() for page in block]
        vectors = _unit(settings, encode, texts)
        if index is None:
            index = _empty(faiss, vectors.shape[1], settings.factory)
        if not index.is_trained:
            index.train(vectors)
        index.add(vectors)
    return index if index is not None else faiss.IndexFlatIP(1)


def _empty(faiss: Any, dimensions: int, factory: str) -> Any:
    try:
        return faiss.index_factory(dimensions, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ValueError(f"FAISS knows no index {factory!r}; write for example Flat or HNSW32") from error


def _blocks(corpus: Iterable[Paragraph]) -> Iterator[list[Paragraph]]:
    paragraphs = (page for page in corpus if words(page.title) or words(page.text))
    while block := list(islice(paragraphs, _BLOCK)):
        yield block


def _unit(settings: Settings, encode: Encode, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of texts, of length 1, so that their product is the cosine."""
    vectors = np.ascontiguousarray(encode(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        said = f"{vectors.shape}" if vectors.ndim != 2 or len(vectors) != len(texts) else "NaN or infinity"
        raise ValueError(f"the encoder {settings.encoder} made {said} of {len(texts)} texts")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.where(lengths > 0, lengths, 1)
    return unit


def _read(file: Path) -> Any:
    faiss = _faiss()
    try:
        return faiss.read_index(str(file), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
    except RuntimeError as error:
        raise DataError("the saved index is damaged; delete its folder", file=file) from error


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "faiss", "dense") from error
    return faiss


_OPENING = threading.RLock()
_OPEN: WeakValueDictionary[Path, DenseIndex] = WeakValueDictionary()
_OF_TASKS: WeakKeyDictionary[TaskSet, dict[Settings, DenseIndex]] = WeakKeyDictionary()
_ENCODERS: dict[tuple[str, str | None], Encode] = {}
