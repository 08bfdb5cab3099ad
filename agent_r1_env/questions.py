"""The public sets of questions: how the rows of each become tasks.

Each is a function of ``sources.load``'s arguments. ``Task.answers`` holds all right answers, the one that
the data set prefers first. Under ``sentences``, ``Task.data`` says how many sentences the paragraphs of the
question have, by title, where the set numbers its sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from agent_r1_env.corpus import context_paragraphs, musique_paragraphs
from agent_r1_env.datafile import Row
from agent_r1_env.official_files import read_aliases
from agent_r1_env.sources import DataSet, Hub, Stamp, load, stamp
from agent_r1_env.task import Task, TaskSet

_GOLDS = ("answer", "golden_answers")  # as the sets have it, and as collections of sets have it
_HOPS = re.compile(r"\d+hop\d*(?=__)")
_FINAL = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")


def _hotpotqa(row: Row) -> Task:
    return Task(
        id=row.text("_id", "id"),
        question=row.text("question"),
        answers=row.texts(*_GOLDS),
        supporting=_facts(row),
        kind=_kind(row),
        data={"sentences": _sentences(row)},
    )


def _sentences(row: Row) -> dict[str, int]:
    """How many sentences a row's paragraphs have, by title; of several of one title, the longest counts."""
    counts: dict[str, int] = {}
    for title, sentences in row.records("context", title=str, sentences=list):
        counts[title] = max(counts.get(title, 0), len(sentences))
    return counts


def _facts(row: Row) -> tuple[tuple[str, int], ...]:
    return tuple((title, number) for title, number in row.records("supporting_facts", title=str, sent_id=int))


def _kind(row: Row) -> str:
    kind = row.data.get("type")
    return kind if isinstance(kind, str) else ""


HOTPOTQA = DataSet(
    name="HotpotQA",
    variable="AGENT_R1_HOTPOTQA",
    files={"train": ["hotpot_train_v1.1"], "validation": ["hotpot_dev_distractor_v1"]},
    task=_hotpotqa,
    paragraphs=context_paragraphs,
    hub=Hub("hotpotqa/hotpot_qa", "distractor"),
)

hotpotqa = partial(load, HOTPOTQA)


def two_wiki(
    split: str = "validation",
    *,
    aliases: str | Path | None = None,
    data: str | Path | None = None,
    corpus: str | Path | None = None,
    source: str | None = None,
    embedded: str | Path | None = None,
    streaming: bool | None = None,
) -> TaskSet:
    """2WikiMultihopQA. ``Task.data`` holds ``evidences`` (triples of text) and ``answer_id`` or None.

    Args:
        aliases: the file ``id_aliases.json`` of the release with ids: other names of what the answers
            are. They count as right answers too, as they do in the official scorer.
    """
    return load(
        TWO_WIKI if aliases is None else _with_aliases(stamp(aliases)),
        split,
        data=data,
        corpus=corpus,
        source=source,
        embedded=embedded,
        streaming=streaming,
    )


def _two_wiki(row: Row, aliases: Mapping[str, Sequence[str]]) -> Task:
    answer_id = row.data.get("answer_id")
    answers = (*row.texts(*_GOLDS), *aliases.get(str(answer_id), ()))
    triples = row.records("evidences", fact=str, relation=str, entity=str)
    return Task(
        id=row.text("_id", "id"),
        question=row.text("question"),
        answers=tuple(dict.fromkeys(answers)),
        supporting=_facts(row),
        kind=_kind(row),
        data={"evidences": triples, "answer_id": answer_id, "sentences": _sentences(row)},
    )


@lru_cache(maxsize=2)
def _with_aliases(file: Stamp) -> DataSet:
    task = partial(_two_wiki, aliases=read_aliases(file[0]))
    return replace(TWO_WIKI, name="2WikiMultihopQA with aliases", task=task)


TWO_WIKI = DataSet(
    name="2WikiMultihopQA",
    variable="AGENT_R1_2WIKIMULTIHOPQA",
    files={"train": [], "validation": ["dev"]},
    task=partial(_two_wiki, aliases={}),
    paragraphs=context_paragraphs,
    hub=Hub("framolfese/2WikiMultihopQA"),
)


def _musique(row: Row) -> Task:
    """One row. A whole paragraph supports an answer, so that the numbers of ``supporting`` are all 0.

    The full set asks each question twice under one id, once with a paragraph missing; that one's id gets
    an ending here.
    """
    official = row.text("id")
    paragraphs = row.records("paragraphs", idx=int, title=str, paragraph_text=str, is_supporting=bool)
    steps = row.records(
        "question_decomposition", question=str, answer=str | None, paragraph_support_idx=int | None
    )
    answerable = row.data.get("answerable") is not False
    aliases = row.texts("answer_aliases") if row.data.get("answer_aliases") else ()
    hops = _HOPS.match(official)
    supporting = _in_order_of_steps([index for index, _, _, supports in paragraphs if supports], steps)
    titles = {index: title for index, title, _, _ in paragraphs}
    return Task(
        id=official if answerable else f"{official}#unanswerable",
        question=row.text("question"),
        answers=tuple(dict.fromkeys((*row.texts(*_GOLDS), *aliases))),
        supporting=tuple((titles[index], 0) for index in supporting),
        kind=hops[0] if hops else f"{len(steps)}hop" if steps else "",
        data={
            "id": official,
            "answerable": answerable,
            "supporting_idxs": sorted(supporting),
            "paragraphs": [
                {"idx": index, "title": title, "text": text} for index, title, text, _ in paragraphs
            ],
            "decomposition": [
                {"question": question, "answer": answer, "paragraph_support_idx": index}
                for question, answer, index in steps
            ],
        },
    )


def _in_order_of_steps(supporting: list[int], steps: list[tuple[Any, ...]]) -> list[int]:
    """What is needed first comes first; paragraphs that no step names come last."""
    named = [index for _, _, index in steps if index in supporting]
    return list(dict.fromkeys([*named, *supporting]))


MUSIQUE = DataSet(
    name="MuSiQue",
    variable="AGENT_R1_MUSIQUE",
    files={
        "train": ["musique_ans_v1.0_train", "musique_full_v1.0_train"],
        "validation": ["musique_ans_v1.0_dev", "musique_full_v1.0_dev"],
    },
    task=_musique,
    paragraphs=musique_paragraphs,
    hub=Hub("bdsaglam/musique", "answerable"),
)

musique = partial(load, MUSIQUE)


def _natural_questions(row: Row) -> Task:
    """One row. The article that ``metadata`` names, where it does, supports the answer as a whole."""
    metadata = row.data.get("metadata")
    title = metadata.get("title") if isinstance(metadata, dict) else None
    return Task(
        id=_id(row, "nq"),
        question=row.text("question"),
        answers=row.texts(*_GOLDS),
        supporting=((title, 0),) if isinstance(title, str) and title.strip() else (),
    )


def _id(row: Row, name: str) -> str:
    """The row's id; where the set has none, its place."""
    return row.text("id") if row.key_of("id") else f"{name}-{row.number}"


NATURAL_QUESTIONS = DataSet(
    name="Natural Questions",
    variable="AGENT_R1_NATURALQUESTIONS",
    files={"train": ["NQ-open.train"], "validation": ["NQ-open.dev", "dev"], "test": ["NQ-open.dev"]},
    task=_natural_questions,
    hub=Hub("google-research-datasets/nq_open", splits={"test": "validation"}),
)

natural_questions = partial(load, NATURAL_QUESTIONS)


def _gsm8k(row: Row) -> Task:
    """One row. The number comes without commas first, then as written; ``data`` has the way to it."""
    solution = row.text("answer")
    final = _FINAL.search(solution)
    if final is None:
        raise row.error("expected the solution to end in a line '#### ' and a number", "answer")
    written = final[1]
    answers = tuple(dict.fromkeys((written.replace(",", ""), written)))
    return Task(_id(row, "gsm8k"), row.text("question"), answers, data={"solution": solution})


GSM8K = DataSet(
    name="GSM8K",
    variable="AGENT_R1_GSM8K",
    files={"train": [], "test": [], "validation": ["test"]},
    task=_gsm8k,
    hub=Hub("openai/gsm8k", "main", splits={"validation": "test"}),
)

gsm8k = partial(load, GSM8K)
