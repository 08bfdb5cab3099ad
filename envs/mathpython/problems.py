"""Problems in mathematics: the embedded ones, and files in the forms of GSM8K, MATH and DAPO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_r1_env.datafile import Row
from agent_r1_env.mathtext import final_answer
from agent_r1_env.sources import DataSet
from agent_r1_env.sources import load as load_set
from agent_r1_env.task import Task, TaskSet

_PROBLEM = ("problem", "question", "prompt", "Problem")
_ANSWER = ("answer", "final_answer", "ground_truth", "expected_answer", "Answer", "solution")
_LONGEST_ANSWER = 300
_MARK = re.compile(r"\\boxed|\\fbox|####")
# DAPO's way to ask for an answer, which is not the one of this environment.
_ASKS = re.compile(
    r"\ASolve the following math problem step by step\. [^\n]*\n+|\n+Remember to put your answer on [^\n]*\Z"
)


def load(
    split: str = "validation",
    *,
    data: str | None = None,
    source: str | None = None,
    embedded: str | None = None,
    streaming: bool | None = None,
) -> TaskSet:
    """Problems of the embedded set or of a file; see ``sources.load``.

    A row has a ``problem``, ``question`` or ``prompt`` (a text, or chat messages of which the last is taken),
    and an ``answer``, or a ``solution`` that holds it in ``\\boxed{}`` or behind ``####``; DAPO's
    ``reward_model`` with its ``ground_truth`` is read, too.
    """
    return load_set(_PROBLEMS, split, data=data, source=source, embedded=embedded, streaming=streaming)


def _task(row: Row) -> Task:
    program, solution = row.data.get("program"), row.data.get("answer", row.data.get("solution"))
    kind = row.data.get("type", row.data.get("subject", ""))
    return Task(
        id=str(row.data.get(row.key_of("id", "unique_id") or "", f"math-{row.number}")),
        question=_question(row),
        answers=(_gold(row),),
        kind=kind if isinstance(kind, str) else "",
        data={
            "program": program if isinstance(program, str) else None,
            "solution": solution if isinstance(solution, str) else "",
        },
    )


def _question(row: Row) -> str:
    key, value = row.get(*_PROBLEM)
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content")
    return _ASKS.sub("", Row({key: value}, row.file, row.number).text(key)).strip()


def _gold(row: Row) -> str:
    key, value = _written(row)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = Row({key: value}, row.file, row.number).text(key).strip()
    if _MARK.search(text):
        text = final_answer(text)
    elif len(text) > _LONGEST_ANSWER:
        raise row.error("the text is no answer, and holds none in \\boxed{} or behind ####", key)
    if not text:
        raise row.error("what stands in \\boxed{} or behind #### is empty", key)
    return text


def _written(row: Row) -> tuple[str, Any]:
    """What a row says about its answer, with the key."""
    verified = row.data.get("reward_model")
    if isinstance(verified, Mapping) and verified.get("ground_truth") is not None:
        return "reward_model", verified["ground_truth"]
    return row.get(*_ANSWER)


_PROBLEMS = DataSet(
    name="MathPython",
    variable="AGENT_R1_MATHPYTHON",
    files={"train": [], "test": [], "validation": ["test"]},
    task=_task,
)
