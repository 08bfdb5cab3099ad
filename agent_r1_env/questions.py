"""The public sets of questions: how the rows of each become tasks."""

from __future__ import annotations

from pathlib import Path

from agent_r1_env import sources
from agent_r1_env.corpus import context_paragraphs
from agent_r1_env.datafile import Row
from agent_r1_env.task import Task, TaskSet


def hotpotqa(
    split: str = "validation",
    *,
    data: str | Path | None = None,
    corpus: str | Path | None = None,
    source: str | None = None,
    embedded: str | Path | None = None,
) -> TaskSet:
    """HotpotQA, or any set of the same form: official, or that of the Hub. See ``sources.load``."""
    return sources.load(HOTPOTQA, split, data=data, corpus=corpus, source=source, embedded=embedded)


def _hotpotqa(row: Row) -> Task:
    return Task(
        id=row.text("_id", "id"),
        question=row.text("question"),
        answers=(row.text("answer"),),
        supporting=tuple(row.pairs("supporting_facts", "title", "sent_id", int)),
        kind=_kind(row),
    )


def _kind(row: Row) -> str:
    kind = row.data.get("type")
    return kind if isinstance(kind, str) else ""


HOTPOTQA = sources.DataSet(
    name="HotpotQA",
    variable="AGENT_R1_HOTPOTQA",
    files={"train": ["hotpot_train_v1.1"], "validation": ["hotpot_dev_distractor_v1"]},
    task=_hotpotqa,
    paragraphs=context_paragraphs,
    hub=sources.Hub("hotpotqa/hotpot_qa", "distractor"),
)
