"""The embedded questions of 2WikiMultihopQA, MuSiQue and NaturalQuestions ask what they claim to ask."""

import gzip
import json
import re
from typing import Any

import pytest

from agent_r1_env.bm25 import Index
from agent_r1_env.catalog import builtin_root
from agent_r1_env.evaluate import make
from agent_r1_env.loading import load_target

ENVS = builtin_root() / "envs"
FOLDERS = ("2wikimultihopqa", "musique", "naturalquestions")
SPLITS = ("train", "validation")
Rows = list[dict[str, Any]]


def rows(folder: str, name: str) -> Rows:
    file = next((ENVS / folder).glob(f"{name}.json*"))
    text = gzip.decompress(file.read_bytes()).decode()
    found: Rows = (
        json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    )
    return found


def texts(row: dict[str, Any]) -> dict[str, str]:
    """The paragraphs of a row by title."""
    if "paragraphs" in row:
        return {each["title"]: each["paragraph_text"] for each in row["paragraphs"]}
    return {title: " ".join(sentences) for title, sentences in row["context"]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_script_makes_the_committed_files_again(folder: str) -> None:
    made = load_target("./make_world.py:files", ENVS / folder)()
    assert {path.name for path in (ENVS / folder).glob("*.gz")} == set(made)
    for name, content in made.items():
        assert gzip.decompress((ENVS / folder / name).read_bytes()) == content


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_files_are_small_and_hold_hundreds_of_questions(folder: str) -> None:
    assert sum(path.stat().st_size for path in (ENVS / folder).glob("*.gz")) < 150_000
    assert (len(rows(folder, "train")), len(rows(folder, "validation"))) == (300, 200)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("split", SPLITS)
def test_no_question_is_asked_twice(folder: str, split: str) -> None:
    assert len({row["question"] for row in rows(folder, split)}) == len(rows(folder, split))


@pytest.mark.parametrize("folder", ["2wikimultihopqa", "musique"])
def test_no_name_stands_in_both_splits(folder: str) -> None:
    train, validation = ({title for row in rows(folder, split) for title in texts(row)} for split in SPLITS)
    assert train.isdisjoint(validation)


@pytest.mark.parametrize("folder", ["2wikimultihopqa", "musique"])
@pytest.mark.parametrize("split", SPLITS)
def test_a_title_always_names_the_same_paragraph(folder: str, split: str) -> None:
    seen: dict[str, str] = {}
    for row in rows(folder, split):
        assert len(texts(row)) == 10
        for title, text in texts(row).items():
            assert seen.setdefault(title, text) == text


@pytest.mark.parametrize("name", ["2WikiMultihopQA", "MuSiQue"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_question_alone_does_not_find_the_answer_of_several_hops(name: str, split: str) -> None:
    tasks = make(f"AgentR1/{name}-v0", {"split": split}).tasks
    index = Index(tasks.corpus)
    hops = [task for task in tasks if "comparison" not in task.kind]
    assert len(hops) >= 100
    for task in hops:
        first = index.search(task.question, 1)[0]
        assert task.answers[0] not in f"{first.title} {first.text}"


class TestTwoWiki:
    KEYS = {
        "_id", "type", "question", "context", "entity_ids", "supporting_facts",
        "evidences", "answer", "evidences_id", "answer_id",
    }  # fmt: skip
    HOPS = {"comparison": 2, "compositional": 2, "inference": 2, "bridge_comparison": 4}

    @pytest.fixture(params=SPLITS)
    def rows(self, request: pytest.FixtureRequest) -> Rows:
        return rows("2wikimultihopqa", request.param)

    def test_rows_have_the_official_form(self, rows: Rows) -> None:
        assert {row["type"] for row in rows} == set(self.HOPS)
        for row in rows:
            assert set(row) == self.KEYS
            sentences = dict(row["context"])
            facts = [sentences[title][number] for title, number in row["supporting_facts"]]
            assert len(row["supporting_facts"]) == len(row["evidences"]) == self.HOPS[row["type"]]
            assert all(value in fact for fact, (_, _, value) in zip(facts, row["evidences"], strict=True))
            assert not any(text[:1].isspace() for texts in sentences.values() for text in texts)

    def test_ids_are_those_of_the_things_and_none_of_wikidata(self, rows: Rows) -> None:
        names: dict[str, str] = {}
        for row in rows:
            pairs = [(row["answer_id"], row["answer"])] if row["answer_id"] else []
            for triple, ids in zip(row["evidences"], row["evidences_id"], strict=bool(row["evidences_id"])):
                pairs += [(ids[0], triple[0]), (ids[2], triple[2])]
            for number, name in pairs:
                assert re.fullmatch(r"E\d+", number)
                assert names.setdefault(number, name) == name
        assert len(set(names.values())) == len(names) > 100

    def test_two_steps_lead_to_the_answer(self, rows: Rows) -> None:
        for row in rows:
            if row["type"] in ("compositional", "inference"):
                (first, _, link), (second, _, answer) = row["evidences"]
                assert first in row["question"]
                assert link == second
                assert answer == row["answer"]
                assert answer not in texts(row)[first]
                assert answer not in row["question"]

    def test_an_inference_has_one_word_for_both_steps(self, rows: Rows) -> None:
        words = {
            ("father", "father"): "paternal grandfather", ("father", "mother"): "paternal grandmother",
            ("mother", "father"): "maternal grandfather", ("mother", "mother"): "maternal grandmother",
            ("spouse", "father"): "father-in-law", ("spouse", "mother"): "mother-in-law",
        }  # fmt: skip
        for row in rows:
            if row["type"] == "inference":
                (_, first, _), (_, second, _) = row["evidences"]
                assert words[first, second] in row["question"]

    def test_a_comparison_follows_from_its_evidences(self, rows: Rows) -> None:
        verdicts = set()
        for row in rows:
            if "comparison" in row["type"]:
                *links, (one, relation, left), (other, _, right) = row["evidences"]
                names = [each[0] for each in row["evidences"][:2]]
                assert all(name in row["question"] for name in names)
                assert not links or [each[2] for each in links] == [one, other]
                if row["answer"] in ("yes", "no"):
                    assert row["answer"] == ("yes" if left == right else "no")
                    verdicts.add(row["answer"])
                else:
                    assert relation in ("date of birth", "publication date", "inception")
                    latest = re.search("younger|recently", row["question"])
                    best = (max if latest else min)(left, right)
                    assert left != right
                    assert row["answer"] == names[[left, right].index(best)]
        assert verdicts == {"yes", "no"}


class TestMuSiQue:
    KEYS = {
        "id",
        "paragraphs",
        "question",
        "question_decomposition",
        "answer",
        "answer_aliases",
        "answerable",
    }
    SHAPES = {"2hop": 2, "3hop1": 3, "3hop2": 3, "4hop1": 4, "4hop2": 4, "4hop3": 4}
    REFERENCES = {
        "2hop": [[], [1]],
        "3hop1": [[], [1], [2]],
        "3hop2": [[], [], [1, 2]],
        "4hop1": [[], [1], [2], [3]],
        "4hop2": [[], [], [1, 2], [3]],
        "4hop3": [[], [1], [], [2, 3]],
    }

    @pytest.fixture(params=SPLITS)
    def rows(self, request: pytest.FixtureRequest) -> Rows:
        return rows("musique", request.param)

    def test_rows_have_the_official_form(self, rows: Rows) -> None:
        assert len({row["id"] for row in rows}) == len(rows)
        for row in rows:
            assert set(row) == self.KEYS
            assert [each["idx"] for each in row["paragraphs"]] == list(range(10))
            steps = row["question_decomposition"]
            support = {each["idx"] for each in row["paragraphs"] if each["is_supporting"]}
            assert support == {step["paragraph_support_idx"] for step in steps}
            assert row["id"].split("__")[1] == "_".join(str(step["id"]) for step in steps)
            assert row["answerable"]

    def test_the_steps_have_the_shape_that_the_id_names(self, rows: Rows) -> None:
        shapes = {row["id"].split("__")[0] for row in rows}
        assert shapes == set(self.REFERENCES)
        for row in rows:
            steps = row["question_decomposition"]
            found = [[int(n) for n in re.findall(r"#(\d)", step["question"])] for step in steps]
            assert found == self.REFERENCES[row["id"].split("__")[0]]

    def test_every_step_is_answered_by_its_paragraph(self, rows: Rows) -> None:
        for row in rows:
            answers = []
            for step in row["question_decomposition"]:
                paragraph = row["paragraphs"][step["paragraph_support_idx"]]
                asked = re.sub(r"#(\d)", lambda n: answers[int(n[1]) - 1], step["question"])  # noqa: B023
                told = f"{paragraph['title']} {paragraph['paragraph_text']}"
                assert step["answer"] in paragraph["paragraph_text"]
                assert any(name in told for name in re.findall(r"[A-Z]\w+(?: [A-Z]\w+)*", asked)[-2:])
                answers.append(step["answer"])
            assert answers[-1] == row["answer"]

    def test_only_the_last_paragraph_holds_the_answer(self, rows: Rows) -> None:
        for row in rows:
            *before, _ = (step["paragraph_support_idx"] for step in row["question_decomposition"])
            assert row["answer"] not in row["question"]
            assert not any(row["answer"] in row["paragraphs"][idx]["paragraph_text"] for idx in before)

    def test_some_answers_have_aliases(self, rows: Rows) -> None:
        with_aliases = [row for row in rows if row["answer_aliases"]]
        assert 0.2 < len(with_aliases) / len(rows) < 0.7
        assert all(row["answer"] not in row["answer_aliases"] for row in with_aliases)


class TestNaturalQuestions:
    def test_the_paragraph_named_holds_the_first_answer(self) -> None:
        corpus = {row["title"]: row["text"] for row in rows("naturalquestions", "corpus")}
        assert len(corpus) == len(rows("naturalquestions", "corpus"))
        for split in SPLITS:
            for row in rows("naturalquestions", split):
                title = row["metadata"]["title"]
                assert row["golden_answers"][0] in corpus[title]
                assert row["question"] == row["question"].lower()
                assert title.lower() in row["question"] or row["golden_answers"][0] == title

    def test_no_paragraph_is_asked_about_in_both_splits(self) -> None:
        train, validation = (
            {row["metadata"]["title"] for row in rows("naturalquestions", split)} for split in SPLITS
        )
        assert train.isdisjoint(validation)

    def test_a_task_is_supported_by_the_paragraph_that_its_row_names(self) -> None:
        tasks = make("AgentR1/NaturalQuestions-v0").tasks
        for task, row in zip(tasks, rows("naturalquestions", "validation"), strict=True):
            assert task.supporting == ((row["metadata"]["title"], 0),)

    def test_most_questions_find_their_paragraph_at_once(self) -> None:
        tasks = make("AgentR1/NaturalQuestions-v0").tasks
        index = Index(tasks.corpus)
        found = sum(index.search(task.question, 1)[0].title == task.supporting[0][0] for task in tasks)
        assert 180 < found < 200
