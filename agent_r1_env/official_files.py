"""Predictions and golds of three data sets, read from files in their official forms.

Golds: the data set's own file, or the Hugging Face form of it, as a JSON list or JSON lines. Predictions of
HotpotQA and 2Wiki: one object, ``{"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}``, for 2Wiki
with ``"evidence": {id: [[subject, relation, object], ...]}``. Those of MuSiQue: rows of ``id``,
``predicted_answer``, ``predicted_support_idxs`` and ``predicted_answerable``. All may be gzipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_r1_env.datafile import Row, read_rows, read_value
from agent_r1_env.errors import DataError, look_up, nearest
from agent_r1_env.official import Evidence, Gold, Prediction

Aliases = Mapping[str, Sequence[str]]
"""Other names by Wikidata id."""


def read_golds(dataset: str, path: str | Path, aliases: Aliases | None = None) -> list[Gold]:
    """The golds of a file, in its order.

    Args:
        aliases: further names of 2Wiki's answers and of the subjects and objects of its evidence.

    Raises:
        UnknownName: no such data set.
        DataError: the file is missing or wrong; names the file, row and key.
    """
    read = look_up("data set", dataset, _GOLDS)
    rows = read_rows(path)
    if isinstance(rows[0].data.get("answer"), dict) or "predicted_answer" in rows[0].data:
        raise DataError("these are predictions; expected the data set's own rows, with the golds", file=path)
    return [read(row, aliases or {}) for row in rows]


def read_predictions(dataset: str, path: str | Path) -> list[Prediction]:
    """The predictions of a file, in its order.

    Raises:
        UnknownName: no such data set.
        DataError: the file is missing or of another form; names the file, row and key.
    """
    return look_up("data set", dataset, _PREDICTIONS)(path)


def read_aliases(path: str | Path) -> dict[str, list[str]]:
    """2Wiki's alias file: JSON lines of ``{"Q_id", "aliases": [...], "demonyms": [...]}``.

    Raises:
        DataError: the file is missing or of another form; names the file, row and key.
    """
    return {row.text("Q_id"): [*_texts(row, "aliases"), *_texts(row, "demonyms")] for row in read_rows(path)}


def _texts(row: Row, key: str) -> list[str]:
    found = row.data.get(key)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise row.error("expected a list of texts", key)
    return found


def _hotpotqa_gold(row: Row, _: Aliases) -> Gold:
    return Gold(row.text("_id", "id"), (row.text("answer"),), _supporting(row))


def _two_wiki_gold(row: Row, aliases: Aliases) -> Gold:
    answer, answer_id = row.text("answer"), row.data.get("answer_id")
    others = aliases.get(answer_id, ()) if isinstance(answer_id, str) else ()
    return Gold(row.text("_id", "id"), (answer, *others), _supporting(row), tuple(_evidences(row, aliases)))


def _supporting(row: Row) -> tuple[tuple[Any, ...], ...]:
    """The pairs of the official form, or of the two columns of the Hugging Face form."""
    _, value = row.get("supporting_facts")
    if isinstance(value, dict):
        titles, sentences = value.get("title"), value.get("sent_id")
        if not (isinstance(titles, list) and isinstance(sentences, list) and len(titles) == len(sentences)):
            raise row.error("expected equally long lists of title and sent_id", "supporting_facts")
        value = list(zip(titles, sentences, strict=True))
    return _facts(value, lambda message: row.error(message, "supporting_facts"))


def _evidences(row: Row, aliases: Aliases) -> Iterator[Evidence]:
    triples = _triples(row.get("evidences")[1], lambda message: row.error(message, "evidences"))
    ids = _triples(row.data.get("evidences_id") or [], lambda message: row.error(message, "evidences_id"))
    if ids and len(ids) != len(triples):
        raise row.error(f"expected as many as the {len(triples)} evidences, found {len(ids)}", "evidences_id")
    for number, (subject, relation, object) in enumerate(triples):
        known = ids[number] if ids else ("", "", "")
        yield Evidence((subject, *aliases.get(known[0], ())), relation, (object, *aliases.get(known[-1], ())))


def _musique_gold(row: Row, _: Aliases) -> Gold:
    others = _texts(row, "answer_aliases") if row.data.get("answer_aliases") is not None else ()
    paragraphs = row.get("paragraphs")[1]
    answerable = row.data.get("answerable", True)
    if not isinstance(answerable, bool):
        raise row.error("expected true or false", "answerable")
    try:
        supporting = tuple(int(each["idx"]) for each in paragraphs if each["is_supporting"])
    except (TypeError, KeyError, ValueError, OverflowError):
        raise row.error("expected a list of objects with idx and is_supporting", "paragraphs") from None
    return Gold(row.text("id"), (row.text("answer"), *others), supporting, answerable=answerable)


def _facts(value: Any, error: Callable[[str], DataError]) -> tuple[tuple[Any, ...], ...]:
    facts = value if isinstance(value, list) else [value]
    for fact in facts:
        if not (isinstance(fact, list | tuple) and len(fact) == 2 and isinstance(fact[0], str)):
            raise error(f"expected pairs [title, number of the sentence], found {fact!r:.80}")
        if not isinstance(fact[1], int | float):
            raise error(f"expected the number of a sentence, found {fact[1]!r:.80}")
    return tuple(map(tuple, facts))


def _triples(value: Any, error: Callable[[str], DataError]) -> tuple[tuple[str, ...], ...]:
    triples = value if isinstance(value, list) else [value]
    for triple in triples:
        texts = isinstance(triple, list) and all(isinstance(part, str) for part in triple)
        if not texts or len(triple) != 3:
            raise error(f"expected triples [subject, relation, object], found {triple!r:.80}")
    return tuple(map(tuple, triples))


def _said(value: Any, error: Callable[[str], DataError]) -> str:
    if not isinstance(value, str):
        raise error(f"expected the answer as text, found {type(value).__name__}")
    return value


_READERS = {"answer": ("answer", _said), "sp": ("supporting", _facts), "evidence": ("evidences", _triples)}


def _by_part(path: str | Path, parts: Sequence[str]) -> list[Prediction]:
    """The predictions of one object that holds an object for each part."""
    value = _one_object(path, parts)
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        attribute, read = _READERS[part]
        for each, said in _column(value, part, path).items():
            found.setdefault(each, {})[attribute] = read(said, _blaming(path, f"{part}.{each}"))
    return [Prediction(each, **row) for each, row in found.items()]


def _blaming(path: str | Path, key: str) -> Callable[[str], DataError]:
    return lambda message: DataError(message, file=path, key=key)


def _column(value: Mapping[str, Any], part: str, path: str | Path) -> Mapping[str, Any]:
    """What was said of one part, by id. Facts and evidence may be left out, the answers may not."""
    column = value.get(part)
    if column is None and part != "answer":
        return {}
    if not isinstance(column, dict):
        guess = nearest(part, value) if column is None else None
        meant = f"; did you mean it by {guess!r}?" if guess else ""
        raise DataError(f"expected an object of predictions by id under {part!r}{meant}", file=path, key=part)
    return column


def _one_object(path: str | Path, parts: Sequence[str]) -> Mapping[str, Any]:
    form = "one object {" + ", ".join(f'"{part}": {{ID: ...}}' for part in parts) + "}"
    try:
        value = read_value(path)
    except DataError as fault:
        try:
            value = [row.data for row in read_rows(path)]
        except DataError:
            raise fault from None
    if isinstance(value, dict) and "predicted_answer" not in value:
        return value
    rows = value if isinstance(value, list) else [value]
    keys = {key for row in rows if isinstance(row, dict) for key in row}
    hint = "; these are golds" if "question" in keys else ""
    hint = "; this is the form of the data set 'musique'" if "predicted_answer" in keys else hint
    raise DataError(f"expected {form}, found {_kind(value)}{hint}", file=path)


def _kind(value: Any) -> str:
    return "a list of rows" if isinstance(value, list) else f"one {type(value).__name__}"


def _by_row(path: str | Path) -> list[Prediction]:
    rows = read_rows(path)
    if len(rows) == 1 and isinstance(rows[0].data.get("answer"), dict):
        raise rows[0].error("expected rows with predicted_answer; this is the form of 'hotpotqa' and '2wiki'")
    if "question" in rows[0].data and "predicted_answer" not in rows[0].data:
        raise rows[0].error("expected rows with predicted_answer; these are golds")
    return [_musique_prediction(row) for row in rows]


def _musique_prediction(row: Row) -> Prediction:
    said = row.data.get("predicted_answer")
    if not isinstance(said, str):
        row.get("predicted_answer")
        raise row.error(f"expected a text, found {type(said).__name__}", "predicted_answer")
    facts, answerable = row.data.get("predicted_support_idxs"), row.data.get("predicted_answerable")
    if answerable is not None and not isinstance(answerable, bool):
        raise row.error("expected true or false", "predicted_answerable")
    try:
        supporting = None if facts is None else tuple(map(int, facts))
    except (TypeError, ValueError, OverflowError):
        raise row.error("expected a list of whole numbers", "predicted_support_idxs") from None
    return Prediction(row.text("id"), said, supporting, answerable=answerable)


_GOLDS: dict[str, Callable[[Row, Aliases], Gold]] = {
    "hotpotqa": _hotpotqa_gold,
    "2wiki": _two_wiki_gold,
    "musique": _musique_gold,
}
_PREDICTIONS: dict[str, Callable[[str | Path], list[Prediction]]] = {
    "hotpotqa": lambda path: _by_part(path, ("answer", "sp")),
    "2wiki": lambda path: _by_part(path, ("answer", "sp", "evidence")),
    "musique": _by_row,
}
