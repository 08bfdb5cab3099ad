"""Tests of predictions in the official forms: that the data sets' own scorers say what we say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import official_files
from agent_r1_env.episode import Episode, Step
from agent_r1_env.evaluate import evaluate
from agent_r1_env.official import score
from agent_r1_env.predictions import dataset_of, predict, scored, write
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.testing import sums

HOTPOTQA = {"sentences": {"Oslo": 2, "Oslo: a  novel": 3}}
SETS = {
    "hotpotqa": ("HotpotQA", "hotpotqa/hotpot_dev_distractor_sample.json", "em", "f1"),
    "2wiki": ("2WikiMultihopQA", "2wikimultihopqa/2wiki_eval_sample.json", "em", "f1"),
    "musique": ("MuSiQue", "musique/musique_ans_eval_sample.jsonl", "answer_em", "answer_f1"),
}


def tasks(name: str, **data: Any) -> TaskSet:
    one = Task("q", "Where?", ("Oslo",), supporting=(("Oslo", 0),), data=data)
    return TaskSet([one], name=f"{name} validation", origin="code")


def episode(*results: str, answer: str | None = "Oslo", prompt: str = "") -> Episode:
    calls = [{"name": "search", "result": result} for result in results]
    step = Step((), (), (), prompt=prompt, calls=calls)
    return Episode("e", "q", 0, 0, (step,), answer=answer)


def test_data_sets_are_known_by_name_and_others_have_no_form() -> None:
    assert dataset_of(tasks("HotpotQA")) == "hotpotqa"
    assert dataset_of(tasks("2WikiMultihopQA with aliases")) == "2wiki"
    assert dataset_of(tasks("MuSiQue")) == "musique"
    assert dataset_of(sums()) is None


def test_the_sentences_of_what_was_shown_are_the_supporting_facts() -> None:
    shown = "[1] Oslo: a novel: A book.\n[2] Bergen: A city: of rain.\nnot a [3] hit"
    (found,) = predict(
        [episode(shown, "[1] Oslo: A city.", "[1] Oslo: A city.")], tasks("HotpotQA", **HOTPOTQA)
    )
    assert found.supporting == (
        ("Oslo: a  novel", 0),
        ("Oslo: a  novel", 1),
        ("Oslo: a  novel", 2),
        ("Bergen", 0),
        ("Oslo", 0),
        ("Oslo", 1),
    )


def test_what_stands_before_the_question_was_shown_too() -> None:
    prompt = "<|im_start|>user\n[1] Oslo: A city.\n\nQuestion: Where?<|im_end|>\n"
    (found,) = predict([episode(prompt=prompt)], tasks("HotpotQA", **HOTPOTQA))
    assert found.supporting == (("Oslo", 0), ("Oslo", 1))


def test_a_method_that_shows_nothing_claims_nothing() -> None:
    (found,) = predict([episode(prompt="Where?")], tasks("HotpotQA", **HOTPOTQA))
    assert found.supporting == ()


def test_paragraphs_of_musique_are_numbers_even_where_a_result_is_cut() -> None:
    paragraphs = [
        {"idx": 3, "title": "Oslo", "text": "A city\nin Norway."},
        {"idx": 7, "title": "Oslo", "text": "A novel."},
        {"idx": 9, "title": "Bergen", "text": "A city."},
    ]
    result = "[1] Oslo: A novel.\n[2] Oslo: A city in No\n[... 9 more characters cut]\n[1] Rome: x"
    (found,) = predict([episode(result)], tasks("MuSiQue", paragraphs=paragraphs))
    assert found.supporting == (7, 3)


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wiki", "musique"])
def test_no_answer_is_never_right(tmp_path: Path, dataset: str) -> None:
    one = Task("q", "Which letter?", ("A",), data={"supporting_idxs": (), "id": "q"})
    set_of = TaskSet([one], name=f"{SETS[dataset][0]} train", origin="code")
    said = predict([episode(answer=None)], set_of)
    file = write(tmp_path, dataset, said)
    assert official_files.read_predictions(dataset, file)[0].id == "q"
    if dataset != "musique":  # its form knows no missing answer, and its rule takes "" for "A"
        assert scored(dataset, said, set_of)["q"]["em"] == 0.0


def test_the_official_forms_are_written(tmp_path: Path) -> None:
    said = predict([episode("[1] Oslo: x")], tasks("2WikiMultihopQA"))
    assert json.loads(write(tmp_path, "hotpotqa", said).read_text()) == {
        "answer": {"q": "Oslo"},
        "sp": {"q": [["Oslo", 0]]},
    }
    assert json.loads(write(tmp_path, "2wiki", said).read_text())["evidence"] == {"q": []}
    (line,) = write(tmp_path, "musique", predict([episode()], tasks("MuSiQue"))).read_text().splitlines()
    assert json.loads(line) == {
        "id": "q",
        "predicted_answer": "Oslo",
        "predicted_support_idxs": [],
        "predicted_answerable": True,
    }


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wiki", "musique"])
@pytest.mark.parametrize("policy", ["oracle", "naive"])
def test_official_scores_of_real_questions_are_ours(
    shared_data: Path, tmp_path: Path, dataset: str, policy: str
) -> None:
    name, file, em, f1 = SETS[dataset]
    data = shared_data / file
    found = evaluate(
        f"AgentR1/{name}-v0", policy=policy, env_kwargs={"data": str(data)}, n=None, output=tmp_path
    )
    (written,) = tmp_path.glob("predictions.*")
    said = official_files.read_predictions(dataset, written)
    official = score(dataset, official_files.read_golds(dataset, data), said)
    assert official == pytest.approx(found.official, abs=1e-12)
    assert found.official_rows.keys() == {each.id for each in said}
    assert official[em] == pytest.approx(found.metrics["exact_match"].mean, abs=1e-12)
    assert official[f1] == pytest.approx(found.metrics["f1"].mean, abs=1e-12)
    assert json.loads((tmp_path / "official.json").read_text()).keys() == {each.id for each in said}
    assert official[em] == 1.0 if policy == "oracle" else official[em] < 0.5
