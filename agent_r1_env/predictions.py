"""Predictions of an evaluation in the official form of their data set, and what its scorer says of them.

Three data sets have such a form: HotpotQA, 2WikiMultihopQA and MuSiQue. Beside the answer it asks for the
facts that support it, which no method here names. Taken for them is what the episode's searches showed: every
sentence of a paragraph of the question's own context, sentence 0 of any other paragraph, and for MuSiQue the
numbers of the paragraphs. A method that searches for nothing claims nothing. The evidence triples of
2WikiMultihopQA stay empty, for nothing here states any. A question without an answer has none in the file,
where the form allows that: an empty text would be right where the gold normalises to nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_r1_env import official
from agent_r1_env.episode import Episode
from agent_r1_env.hits import Hit, shown
from agent_r1_env.official import Evidence, Gold, Prediction
from agent_r1_env.task import Task, TaskSet

_NAMES = {"HotpotQA": "hotpotqa", "2WikiMultihopQA": "2wiki", "MuSiQue": "musique"}
_HIT = re.compile(r"^\[\d+\] (.+)$", re.MULTILINE)


def dataset_of(tasks: TaskSet) -> str | None:
    """What `agent_r1_env.official` calls the data set; None for one without an official form."""
    return next((name for known, name in _NAMES.items() if tasks.name.startswith(known)), None)


def predict(episodes: Iterable[Episode], tasks: TaskSet) -> list[Prediction]:
    """One prediction for each episode, in the order of the tasks; the episodes are of one sample."""
    return [
        _prediction(episode, tasks.by_id(str(episode.task_id)))
        for episode in sorted(episodes, key=lambda each: each.group)
    ]


def _prediction(episode: Episode, task: Task) -> Prediction:
    return Prediction(
        str(task.data.get("id", task.id)),
        episode.answer,
        tuple(dict.fromkeys(_supporting(task, _shown(episode)))),
        (),
        episode.answer is not None,
    )


def write(path: Path, dataset: str, predictions: Sequence[Prediction]) -> Path:
    """Write the official file of a data set to a folder.

    Returns:
        The file: ``predictions.jsonl`` for MuSiQue, else ``predictions.json``.
    """
    if dataset == "musique":
        file = path / "predictions.jsonl"
        text = "".join(json.dumps(_musique_row(each), ensure_ascii=False) + "\n" for each in predictions)
    else:
        file = path / "predictions.json"
        text = json.dumps(_columns(dataset, predictions), ensure_ascii=False)
    path.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


def scored(dataset: str, predictions: Sequence[Prediction], tasks: TaskSet) -> dict[str, dict[str, float]]:
    """Every metric of the official scorer for each question that was predicted, by its id."""
    golds = [_gold(tasks.by_id(each.id)) for each in predictions]
    return official.per_question(dataset, golds, [_as_filed(dataset, each) for each in predictions])


def _shown(episode: Episode) -> Iterator[str]:
    """The lines of hits that the model was shown: in the first prompt, and by its calls."""
    for number, step in enumerate(episode.steps):
        if number == 0 and step.prompt:
            yield from _HIT.findall(step.prompt)
        for call in step.calls:
            yield from _HIT.findall(str(call.get("result", "")))


def _supporting(task: Task, lines: Iterable[str]) -> Iterator[Any]:
    """The facts that stand in the lines, as the data set counts them."""
    own = [(each["idx"], _line(each["title"], each["text"])) for each in task.data.get("paragraphs", ())]
    sentences: Mapping[str, int] = task.data.get("sentences", {})
    for line in lines:
        if own:
            yield from (number for number, known in own if known.startswith(line))  # a result may be cut
            continue
        known_titles = [title for title in sentences if line.startswith(_line(title, ""))]
        title = max(known_titles, key=len, default=line.partition(": ")[0])
        yield from ((title, number) for number in range(sentences.get(title, 1)))


def _line(title: str, text: str) -> str:
    """A hit as a search shows it, without its rank."""
    return shown("", [Hit(title, text, 0.0)]).removeprefix("[1] ")


def _gold(task: Task) -> Gold:
    return Gold(
        str(task.data.get("id", task.id)),
        task.answers,
        tuple(task.data.get("supporting_idxs", task.supporting)),
        tuple(
            Evidence((left,), relation, (right,)) for left, relation, right in task.data.get("evidences", ())
        ),
        bool(task.data.get("answerable", True)),
    )


def _as_filed(dataset: str, prediction: Prediction) -> Prediction:
    """The prediction as it is read back from the file: MuSiQue's has a text where there is no answer."""
    if dataset != "musique" or prediction.answer is not None:
        return prediction
    return Prediction(prediction.id, "", prediction.supporting, answerable=prediction.answerable)


def _columns(dataset: str, predictions: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    answers = {each.id: each.answer for each in predictions if each.answer is not None}
    columns: dict[str, dict[str, Any]] = {"answer": answers}
    columns["sp"] = {each.id: list(each.supporting or ()) for each in predictions}
    if dataset == "2wiki":
        columns["evidence"] = {each.id: list(each.evidences or ()) for each in predictions}
    return columns


def _musique_row(prediction: Prediction) -> dict[str, Any]:
    return {
        "id": prediction.id,
        "predicted_answer": prediction.answer or "",
        "predicted_support_idxs": list(prediction.supporting or ()),
        "predicted_answerable": bool(prediction.answerable),
    }
