"""Tests of the public sets of questions: their forms, and the real files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import corpus
from agent_r1_env.bm25 import Index
from agent_r1_env.corpus import read_paragraphs
from agent_r1_env.errors import DataError, UnknownName
from agent_r1_env.questions import gsm8k, hotpotqa, musique, natural_questions, two_wiki
from agent_r1_env.scoring import exact_match
from agent_r1_env.task import Paragraph, Task, TaskSet

LOADERS = {
    "hotpotqa": hotpotqa,
    "two_wiki": two_wiki,
    "musique": musique,
    "natural_questions": natural_questions,
    "gsm8k": gsm8k,
}
VARIABLES = {
    "hotpotqa": "AGENT_R1_HOTPOTQA",
    "two_wiki": "AGENT_R1_2WIKIMULTIHOPQA",
    "musique": "AGENT_R1_MUSIQUE",
    "natural_questions": "AGENT_R1_NATURALQUESTIONS",
    "gsm8k": "AGENT_R1_GSM8K",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


def two_wiki_row(**changes: Any) -> dict[str, Any]:
    return {
        "_id": "w1",
        "type": "compositional",
        "question": "Where was the director born?",
        "context": [["Film", ["By Ann.", "It is long."]], ["Ann", ["Born in Rome.", "She sings."]]],
        "supporting_facts": [["Film", 0], ["Ann", 7]],
        "evidences": [["Film", "director", "Ann"], ["Ann", "place of birth", "Rome"]],
        "answer": "Rome",
        "answer_id": "Q220",
    } | changes


def musique_row(**changes: Any) -> dict[str, Any]:
    titles = ["Ann", "Other", "Film"]
    return {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": n, "title": title, "paragraph_text": f"On {title}.", "is_supporting": title != "Other"}
            for n, title in enumerate(titles)
        ],
        "question": "Where was the director born?",
        "question_decomposition": [
            {"id": 1, "question": "Film >> director", "answer": "Ann", "paragraph_support_idx": 2},
            {"id": 2, "question": "#1 >> born", "answer": "Rome", "paragraph_support_idx": 0},
        ],
        "answer": "Rome",
        "answer_aliases": ["Roma", "Rome", "Roma"],
        "answerable": True,
    } | changes


def load(name: str, folder: Path, *rows: dict[str, Any], **options: Any) -> TaskSet:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return LOADERS[name]("train", data=file, **options)


def columns(rows: list[Any], *names: str) -> dict[str, list[Any]]:
    """A list of lists or of objects in the form of the Hub: one list for each field."""
    if rows and isinstance(rows[0], dict):
        return {name: [row[name] for row in rows] for name in names}
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


# -- 2WikiMultihopQA


def two_wiki_on_the_hub() -> dict[str, Any]:
    row = two_wiki_row()
    del row["answer_id"]
    return row | {
        "context": columns(row["context"], "title", "sentences"),
        "supporting_facts": columns(row["supporting_facts"], "title", "sent_id"),
        "evidences": columns(row["evidences"], "fact", "relation", "entity"),
    }


def two_wiki_in_texts() -> dict[str, Any]:
    row = two_wiki_row()
    return row | {key: json.dumps(row[key]) for key in ("context", "supporting_facts", "evidences")}


@pytest.mark.parametrize(
    ("row", "answer_id"),
    [
        pytest.param(two_wiki_row(), "Q220", id="official"),
        pytest.param(two_wiki_on_the_hub(), None, id="columns"),
        pytest.param(two_wiki_in_texts(), "Q220", id="json-in-texts"),
    ],
)
def test_every_form_of_2wiki_gives_the_same_task(
    tmp_path: Path, row: dict[str, Any], answer_id: str | None
) -> None:
    tasks = load("two_wiki", tmp_path, row)
    assert tasks[0] == Task(
        "w1",
        "Where was the director born?",
        ("Rome",),
        (("Film", 0), ("Ann", 7)),
        "compositional",
        {
            "evidences": [("Film", "director", "Ann"), ("Ann", "place of birth", "Rome")],
            "answer_id": answer_id,
            "sentences": {"Film": 2, "Ann": 2},
        },
    )
    assert tasks.corpus == (
        Paragraph("Film", "By Ann. It is long."),
        Paragraph("Ann", "Born in Rome. She sings."),
    )


def test_of_paragraphs_with_one_title_the_longest_counts(tmp_path: Path) -> None:
    context = [["Film", ["One.", "Two."]], ["Film", ["One."]]]
    assert load("two_wiki", tmp_path, two_wiki_row(context=context))[0].data["sentences"] == {"Film": 2}


def test_the_spelling_of_the_first_paragraphs_holds_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_SAMPLE", 1)
    texts = [page.text for page in load("two_wiki", tmp_path, two_wiki_row(), two_wiki_row(_id="w2")).corpus]
    assert texts == ["By Ann. It is long.", "Born in Rome. She sings."]


def test_aliases_of_the_answer_are_right_answers_too(tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    known = [
        {"Q_id": "Q220", "aliases": ["Roma", "Rome"], "demonyms": ["Roman"]},
        {"Q_id": "Q1", "aliases": ["World"], "demonyms": []},
    ]
    aliases.write_text("".join(json.dumps(row) + "\n" for row in known))
    rows = two_wiki_row(), two_wiki_row(_id="w2", answer="yes", answer_id=None)
    tasks = load("two_wiki", tmp_path, *rows, aliases=aliases)
    assert tasks[0].answers == ("Rome", "Roma", "Roman")
    assert tasks[1].answers == ("yes",)
    assert "aliases" in tasks.name
    assert load("two_wiki", tmp_path, *rows).by_id("w1").answers == ("Rome",)


def test_one_set_is_shared_by_callers_with_the_same_aliases(tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text('{"Q_id": "Q220", "aliases": ["Roma"], "demonyms": []}\n')
    first = load("two_wiki", tmp_path, two_wiki_row(), aliases=aliases)
    assert two_wiki("train", data=tmp_path / "rows.jsonl", aliases=aliases) is first


def test_a_mistake_in_the_aliases_names_its_row(tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text('{"Q_id": "Q1", "aliases": [], "demonyms": []}\n{"q_id": "Q2", "aliases": ["x"]}\n')
    with pytest.raises(DataError, match="no 'Q_id'; did you mean it by 'q_id'") as caught:
        load("two_wiki", tmp_path, two_wiki_row(), aliases=aliases)
    assert (caught.value.file, caught.value.row) == (str(aliases), 2)


# -- MuSiQue


def musique_in_columns() -> dict[str, Any]:
    row = musique_row()
    return row | {
        "paragraphs": columns(row["paragraphs"], "idx", "title", "paragraph_text", "is_supporting"),
        "question_decomposition": columns(
            row["question_decomposition"], "id", "question", "answer", "paragraph_support_idx"
        ),
    }


@pytest.mark.parametrize("row", [musique_row(), musique_in_columns()], ids=["objects", "columns"])
def test_both_forms_of_musique_give_the_same_task(tmp_path: Path, row: dict[str, Any]) -> None:
    tasks = load("musique", tmp_path, row)
    assert (tasks[0].id, tasks[0].kind) == ("2hop__1_2", "2hop")
    assert tasks[0].answers == ("Rome", "Roma")
    assert tasks[0].supporting == (("Film", 0), ("Ann", 0)), "in the order in which they are needed"
    assert tasks[0].data == {
        "id": "2hop__1_2",
        "answerable": True,
        "supporting_idxs": [0, 2],
        "paragraphs": [
            {"idx": 0, "title": "Ann", "text": "On Ann."},
            {"idx": 1, "title": "Other", "text": "On Other."},
            {"idx": 2, "title": "Film", "text": "On Film."},
        ],
        "decomposition": [
            {"question": "Film >> director", "answer": "Ann", "paragraph_support_idx": 2},
            {"question": "#1 >> born", "answer": "Rome", "paragraph_support_idx": 0},
        ],
    }
    assert [page.title for page in tasks.corpus] == ["Ann", "Other", "Film"]


def test_a_question_and_its_unanswerable_twin_keep_apart(tmp_path: Path) -> None:
    steps = musique_row()["question_decomposition"]
    lacking = [steps[0], steps[1] | {"paragraph_support_idx": None}]
    twin = musique_row(answerable=False, question_decomposition=lacking)
    twin["paragraphs"][0]["is_supporting"] = False
    tasks = load("musique", tmp_path, musique_row(), twin)
    assert [task.id for task in tasks] == ["2hop__1_2", "2hop__1_2#unanswerable"]
    assert [task.data["answerable"] for task in tasks] == [True, False]
    assert tasks[1].data["id"] == "2hop__1_2"
    assert tasks[1].supporting == (("Film", 0),)


def test_the_hops_are_counted_where_the_id_does_not_tell(tmp_path: Path) -> None:
    rows = musique_row(id="3hop1__a"), musique_row(id="x"), musique_row(id="y", question_decomposition=None)
    assert [task.kind for task in load("musique", tmp_path, *rows)] == ["3hop1", "2hop", ""]


# -- Natural Questions


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "nq_7", "question": "who", "golden_answers": ["a", "b", "a"]}, ("nq_7", ("a", "b"))),
        ({"question": "who", "answer": ["a", "b"]}, ("nq-1", ("a", "b"))),
        ({"question": "who", "answer": "a"}, ("nq-1", ("a",))),
    ],
    ids=["golden-answers", "nq-open", "one-answer"],
)
def test_the_forms_of_natural_questions(tmp_path: Path, row: dict[str, Any], expected: Any) -> None:
    task = load("natural_questions", tmp_path, row)[0]
    assert (task.id, task.answers) == expected


# -- GSM8K


@pytest.mark.parametrize(
    ("solution", "answers"),
    [
        ("2 + 3 = <<2+3=5>>5\n#### 5", ("5",)),
        ("So.\n#### 1,450,000", ("1450000", "1,450,000")),
        ("So.\n#### -3", ("-3",)),
        ("So.\n####2.50 \n", ("2.50",)),
        ("#### 1 is no answer\n#### 2", ("2",)),
    ],
)
def test_the_number_of_gsm8k_is_read(tmp_path: Path, solution: str, answers: tuple[str, ...]) -> None:
    task = load("gsm8k", tmp_path, {"question": "How many?", "answer": solution})[0]
    assert (task.id, task.answers, task.data) == ("gsm8k-1", answers, {"solution": solution})


def test_the_test_split_of_gsm8k_is_its_validation_split_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test.jsonl").write_text('{"question": "How many?", "answer": "#### 1"}\n')
    monkeypatch.setenv("AGENT_R1_GSM8K", str(tmp_path))
    assert gsm8k("test")[0] == gsm8k("validation")[0]
    with pytest.raises(DataError, match=r"GSM8K holds none of train\.json"):
        gsm8k("train")
    with pytest.raises(UnknownName, match="no split named 'dev' in GSM8K"):
        gsm8k("dev")


# -- mistakes


@pytest.mark.parametrize(
    ("name", "row", "key", "message"),
    [
        ("two_wiki", two_wiki_row(evidences=[["a", "b"]]), "evidences", "fact, relation, entity.*found"),
        ("two_wiki", two_wiki_row(answer=[]), "answer", "list is empty"),
        ("musique", musique_row(answer_aliases=[3]), "answer_aliases", "found int"),
        ("musique", musique_row(paragraphs=None), "paragraphs", "no 'paragraphs'"),
        ("musique", musique_row(paragraphs=[{"idx": 0}]), "paragraphs", "no 'title'"),
        (
            "musique",
            musique_row(paragraphs=[{"idx": 0, "title": "A", "paragraphtext": "x", "is_supporting": True}]),
            "paragraphs",
            "no 'paragraph_text'; did you mean it by 'paragraphtext'",
        ),
        (
            "musique",
            musique_row(
                paragraphs=[{"idx": "0", "title": "A", "paragraph_text": "x", "is_supporting": True}]
            ),
            "paragraphs",
            "expected idx to be int, found '0'",
        ),
        ("natural_questions", {"question": "who", "golden_answer": ["x"]}, "answer", "by 'golden_answer'"),
        ("natural_questions", {"question": "who", "answer": ["x", ""]}, "answer", "blank"),
        ("gsm8k", {"question": "How many?", "answer": "five"}, "answer", "'#### '"),
        ("gsm8k", {"question": "How many?", "answer": "#### five"}, "answer", "'#### '"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["held", "streamed"])
def test_a_mistake_names_row_and_key(
    tmp_path: Path, name: str, row: dict[str, Any], key: str, message: str, streaming: bool
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(name, tmp_path, row, streaming=streaming).corpus  # noqa: B018
    assert (caught.value.file, caught.value.row, caught.value.key) == (str(tmp_path / "rows.jsonl"), 1, key)


@pytest.mark.parametrize("streaming", [False, True], ids=["held", "streamed"])
@pytest.mark.parametrize(
    ("name", "row"),
    [("hotpotqa", musique_row()), ("two_wiki", musique_row()), ("musique", two_wiki_row(id="x"))],
)
def test_a_file_of_another_data_set_is_refused(
    tmp_path: Path, name: str, row: dict[str, Any], streaming: bool
) -> None:
    with pytest.raises(DataError, match="no '(context|paragraphs)'") as caught:
        load(name, tmp_path, row, streaming=streaming)
    assert caught.value.row == 1


# -- the real files

FILES = [
    ("hotpotqa", "hotpotqa/hotpot_dev_distractor_sample.json", 200),
    ("hotpotqa", "hotpotqa/hotpot_train_sample.json", 300),
    ("hotpotqa", "hotpotqa/hotpot_qa_hf_validation_sample.jsonl", 30),
    ("two_wiki", "2wikimultihopqa/2wiki_eval_sample.json", 164),
    ("two_wiki", "2wikimultihopqa/2wiki_train_sample.json", 336),
    ("musique", "musique/musique_ans_eval_sample.jsonl", 200),
    ("musique", "musique/musique_ans_train_sample.jsonl", 100),
    ("natural_questions", "nq/nq_sample.jsonl", 100),
    ("gsm8k", "gsm8k/test.jsonl", 1319),
    ("gsm8k", "gsm8k/train_first1000.jsonl", 1000),
]
"""(loader, file, rows)"""


@pytest.mark.parametrize(("name", "file", "rows"), FILES, ids=[file for _, file, _ in FILES])
def test_every_row_of_a_real_file_is_a_task(shared_data: Path, name: str, file: str, rows: int) -> None:
    tasks = LOADERS[name]("train", data=shared_data / file)
    assert len(tasks) == rows
    for task in tasks:
        assert exact_match(task.answers[0], task.answers)
        assert all(answer.strip() for answer in task.answers)
    assert not [page for page in tasks.corpus if page.text.startswith(" ")]


@pytest.mark.parametrize(("name", "file", "rows"), FILES, ids=[file for _, file, _ in FILES])
def test_a_streamed_real_file_equals_the_held_one(shared_data: Path, name: str, file: str, rows: int) -> None:
    held, streamed = (
        LOADERS[name]("train", data=shared_data / file, streaming=streaming) for streaming in (False, True)
    )
    assert list(streamed) == list(held)
    assert streamed.corpus == held.corpus
    assert streamed.by_id(held[rows - 1].id) == streamed[-1] == held[-1]


@pytest.mark.parametrize(
    ("name", "folder", "file"),
    [
        ("hotpotqa", "hotpotqa", "hotpot_dev_distractor_sample.json"),
        ("two_wiki", "2wikimultihopqa", "2wiki_train_sample.json"),
        ("musique", "musique", "musique_ans_eval_sample.jsonl"),
    ],
)
def test_the_paragraphs_of_real_questions_are_those_of_the_public_corpus(
    shared_data: Path, name: str, folder: str, file: str
) -> None:
    public = set(read_paragraphs(shared_data / folder / "corpus.jsonl"))
    tasks = LOADERS[name]("train", data=shared_data / folder / file)
    strange = [page for page in tasks.corpus if page not in public]
    assert not strange


@pytest.mark.parametrize(
    ("name", "folder", "file"),
    [
        ("two_wiki", "2wikimultihopqa", "2wiki_eval_sample.json"),
        ("musique", "musique", "musique_ans_eval_sample.jsonl"),
    ],
)
def test_supporting_paragraphs_are_found_by_their_titles(
    shared_data: Path, name: str, folder: str, file: str
) -> None:
    tasks = LOADERS[name](
        "train", data=shared_data / folder / file, corpus=shared_data / folder / "corpus.jsonl"
    )
    index = Index(tasks.corpus)
    titles = [title for task in tasks[:40] for title, _ in task.supporting]
    found = sum(title in {hit.title for hit in index.search(title, 5)} for title in titles)
    assert found >= 0.97 * len(titles)


def test_2wiki_keeps_the_facts_that_its_paragraphs_do_not_have(shared_data: Path) -> None:
    file = shared_data / "2wikimultihopqa" / "2wiki_train_sample.json"
    sentences = {
        (row["_id"], title): len(sentences)
        for row in json.loads(file.read_text(encoding="utf-8"))
        for title, sentences in row["context"]
    }
    outside = {
        (task.id, title, number)
        for task in two_wiki("train", data=file)
        for title, number in task.supporting
        if number >= sentences[task.id, title]
    }
    assert outside == {
        ("e2d3bbb60bd911eba7f7acde48001122", "Prince Hubertus of Hohenzollern", 2),
        ("9784007e0bdb11eba7f7acde48001122", "Edward Ludwig", 6),
        ("307d502e0bdb11eba7f7acde48001122", "Perdonami!", 1),
    }


def test_kinds_and_evidences_of_2wiki(shared_data: Path) -> None:
    folder = shared_data / "2wikimultihopqa"
    tasks = two_wiki(data=folder / "2wiki_eval_sample.json", aliases=folder / "id_aliases_synthetic.jsonl")
    kinds = {"compositional": 57, "comparison": 54, "bridge_comparison": 43, "inference": 10}
    assert Counter(task.kind for task in tasks) == kinds
    assert all(len(triple) == 3 for task in tasks for triple in task.data["evidences"])
    assert sum(task.data["answer_id"] is None for task in tasks) == 26
    assert sum(len(task.answers) > 1 for task in tasks) > 100


def test_aliases_and_support_of_musique(shared_data: Path) -> None:
    sets = [
        musique(data=shared_data / "musique" / f"musique_ans_{part}_sample.jsonl")
        for part in ("eval", "train")
    ]
    assert sum(len(task.answers) > 1 for tasks in sets for task in tasks) == 89
    for task in [*sets[0], *sets[1]]:
        hops = int(task.kind[0])
        assert len(task.supporting) == len(task.data["supporting_idxs"]) == hops
        titles = {paragraph["idx"]: paragraph["title"] for paragraph in task.data["paragraphs"]}
        assert Counter(title for title, _ in task.supporting) == Counter(
            titles[index] for index in task.data["supporting_idxs"]
        )


def test_commas_and_signs_of_gsm8k(shared_data: Path) -> None:
    tasks = gsm8k("test", data=shared_data / "gsm8k" / "test.jsonl")
    assert sum(len(task.answers) > 1 for task in tasks) == 14
    assert sum(task.answers[0].startswith("-") for task in tasks) == 2
    assert all(float(task.answers[0]) == int(task.answers[0]) for task in tasks)


def test_the_answers_of_natural_questions_are_all_kept(shared_data: Path) -> None:
    tasks = natural_questions(data=shared_data / "nq" / "nq_sample.jsonl")
    assert tasks[0].answers == ("A simple majority", "A simple majority vote")
    assert Counter(len(task.answers) for task in tasks)[1] == 51
