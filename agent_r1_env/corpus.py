"""Files of paragraphs to search, in the forms that they come in, read one line at a time."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from agent_r1_env.datafile import GZIP_MAGIC, PARQUET_MAGIC, Row, read_rows, row_of_line
from agent_r1_env.errors import DataError
from agent_r1_env.parquet import ParquetRows
from agent_r1_env.streaming import can_stream, open_rows
from agent_r1_env.task import Paragraph

_BLOCK = 1 << 20
_SAMPLE = 10_000


def read_paragraphs(path: str | Path) -> Iterator[Paragraph]:
    """The paragraphs of a file, in order, equal ones included; none is left out for being empty.

    A row is an object with ``title`` and ``text`` (or ``contents``), of which the title may be absent; or,
    as Search-R1 has it, with ``contents`` alone, whose first line is the title in quotes. Rows come as JSON
    lines or as a JSON list, gzipped or not, or as parquet. A file of questions gives the
    paragraphs that they bring, in one of ``QUESTION_FORMS``, each once.

    Raises:
        DataError: the file is missing or wrong; names the file, row and key.
    """
    file = Path(path).expanduser()
    rows = _rows(file)
    first = next(rows, None)
    if first is None:
        raise DataError("the file is empty", file=file)
    form = next((key for key in QUESTION_FORMS if key in first.data), None)
    if form is not None and not {"text", "contents"} & set(first.data):
        yield from _different(QUESTION_FORMS[form](open_rows(file) if can_stream(file) else read_rows(file)))
        return
    yield _paragraph(first)
    yield from map(_paragraph, rows)


def _different(paragraphs: Iterable[Paragraph]) -> Iterator[Paragraph]:
    """Each paragraph once. Digests are held instead of the texts, of which there may be gigabytes."""
    seen: set[bytes] = set()
    for paragraph in paragraphs:
        text = f"{paragraph.title}\0{paragraph.text}".encode("utf-8", "surrogatepass")
        if (key := hashlib.blake2b(text, digest_size=16).digest()) not in seen:
            seen.add(key)
            yield paragraph


def musique_paragraphs(rows: Iterable[Row]) -> Iterator[Paragraph]:
    """The paragraphs that questions in MuSiQue's form bring, as often as they bring them.

    Raises:
        DataError: a row brings none, or in another form; names the file, row and key.
    """
    for row in rows:
        row.get("paragraphs")
        for title, text in row.records("paragraphs", title=str, paragraph_text=str):
            yield Paragraph(title, text)


def context_paragraphs(rows: Iterable[Row]) -> Iterator[Paragraph]:
    """The same for questions in HotpotQA's form."""
    contexts = ((title, _sentences(row, texts)) for row in rows for title, texts in _context(row))
    sample = list(islice(contexts, _SAMPLE))
    rest = [sentence for _, sentences in sample for sentence in sentences[1:]]
    # HotpotQA's later sentences bring their own space and 2WikiMultihopQA's do not. One sentence alone
    # cannot tell (some are a lone "."), many can.
    spaced = sum(sentence[:1].isspace() for sentence in rest)
    joint = "" if 2 * spaced > len(rest) else " "
    for title, sentences in chain(sample, contexts):
        yield Paragraph(title, joint.join(sentences).strip())


QUESTION_FORMS = {"context": context_paragraphs, "paragraphs": musique_paragraphs}
"""The key under which questions bring their paragraphs, and what reads them."""


def digest(path: str | Path) -> str:
    """What two files have in common if and only if their bytes are equal.

    Raises:
        DataError: the file cannot be read.
    """
    state = hashlib.blake2b(digest_size=16)
    with _opened(Path(path).expanduser()) as stream:
        while block := stream.read(_BLOCK):
            state.update(block)
    return state.hexdigest()


def split_contents(contents: str, title: str = "") -> tuple[str, str]:
    """Title and text of ``contents``, whose first line may be the title, bare or in quotes."""
    head, line_end, rest = contents.partition("\n")
    bare = head.strip()
    if quoted := len(bare) > 1 and bare.startswith('"') and bare.endswith('"'):
        bare = bare[1:-1]
    if title:
        return title, rest if line_end and bare == title.strip() else contents
    return (bare, rest) if rest.strip() or (quoted and line_end) else ("", contents)


def _context(row: Row) -> list[tuple[Any, ...]]:
    row.get("context")
    return row.records("context", title=str, sentences=list)


def _sentences(row: Row, sentences: list[Any]) -> list[str]:
    if not all(isinstance(sentence, str) for sentence in sentences):
        raise row.error("expected the sentences of a paragraph to be texts", "context")
    return sentences


def _rows(file: Path) -> Iterator[Row]:
    """The rows of a file; only a JSON list is read whole."""
    try:
        with _text_of(file) as stream:
            number = 0
            for number, raw in enumerate(stream, start=1):
                if number == 1 and raw.startswith(PARQUET_MAGIC):
                    yield from ParquetRows(file)
                    return
                line = _decoded(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, file, number)
                if not line.strip():
                    continue
                if line.lstrip().startswith("["):
                    yield from read_rows(file)
                    return
                yield row_of_line(line, file, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"broken gzip file: {error}", file=file) from error


def _paragraph(row: Row) -> Paragraph:
    title = _text(row, "title") if row.data.get("title") is not None else ""
    if row.data.get("text") is not None:
        return Paragraph(title, _text(row, "text"))
    if row.data.get("contents") is None:
        row.get("text", "contents")
    return Paragraph(*split_contents(_text(row, "contents"), title))


def _text(row: Row, key: str) -> str:
    value: Any = row.data[key]
    if not isinstance(value, str):
        raise row.error(f"expected a text, found {type(value).__name__}", key)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise row.error("the text holds half of a surrogate pair", key)
    return value


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError:
        read_rows(file)  # says what is wrong, and what is near
        raise


def _text_of(file: Path) -> IO[bytes]:
    stream = _opened(file)
    zipped = stream.read(2) == GZIP_MAGIC
    stream.seek(0)
    if not zipped:
        return stream
    stream.close()
    return gzip.open(file, "rb")  # type: ignore[return-value]


def _decoded(raw: bytes, file: Path, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"line {number} is not UTF-8 (byte {raw[error.start]:#04x})", file=file) from None
