"""The metrics of the official scripts, against their own numbers and by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import official
from agent_r1_env.errors import DataError, UnknownName
from agent_r1_env.official import Evidence, Gold, Prediction, musique_f1
from agent_r1_env.official_files import read_aliases, read_golds, read_predictions
from agent_r1_env.scoring import exact_match, f1

FOLDERS = {"hotpotqa": "hotpotqa", "2wiki": "2wikimultihopqa", "musique": "musique"}
FILES = {
    "hotpotqa": ("hotpot_dev_distractor_sample.json", "eval_predictions.json"),
    "2wiki": ("2wiki_eval_sample.json", "eval_predictions.json"),
    "musique": ("musique_ans_eval_sample.jsonl", "eval_predictions.jsonl"),
}
ALIASES = "id_aliases_synthetic.jsonl"
RUNS = [
    pytest.param("hotpotqa", (), False, id="hotpotqa"),
    pytest.param("2wiki", ("no_aliases",), False, id="2wiki"),
    pytest.param("2wiki", ("synthetic_aliases",), True, id="2wiki-aliases"),
    pytest.param("musique", (), False, id="musique"),
]


def load(dataset: str, shared_data: Path, aliased: bool = False) -> tuple[list[Gold], list[Prediction]]:
    folder = shared_data / FOLDERS[dataset]
    gold, predictions = (folder / name for name in FILES[dataset])
    aliases = read_aliases(folder / ALIASES) if aliased else None
    return read_golds(dataset, gold, aliases), read_predictions(dataset, predictions)


@pytest.mark.parametrize(("dataset", "keys", "aliased"), RUNS)
def test_the_official_numbers_come_out(
    dataset: str, keys: tuple[str, ...], aliased: bool, shared_data: Path
) -> None:
    file = shared_data / FOLDERS[dataset] / "eval_expected.json"
    expected = json.loads(file.read_text(encoding="utf-8"))["metrics"]
    for key in keys:
        expected = expected[key]
    found = official.score(dataset, *load(dataset, shared_data, aliased))
    assert official.as_printed(dataset, found) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("dataset", "keys", "aliased"), RUNS)
def test_the_right_predictions_score_1_in_everything(
    dataset: str, keys: tuple[str, ...], aliased: bool, shared_data: Path
) -> None:
    golds, _ = load(dataset, shared_data, aliased)
    right = [_perfect(gold) for gold in golds]
    assert official.score(dataset, golds, right) == pytest.approx(
        dict.fromkeys(official.score(dataset, golds, right), 1.0)
    )


def _perfect(gold: Gold) -> Prediction:
    triples = tuple((each.subjects[0], each.relation, each.objects[0]) for each in gold.evidences)
    return Prediction(gold.id, gold.answers[0], gold.supporting, triples, gold.answerable)


def test_musique_scores_equal_the_official_ones_on_the_hard_cases(shared_data: Path) -> None:
    file = shared_data.parent / "cases" / "qa_scoring.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        prediction, golds = row["prediction"], row["golds"]
        assert musique_f1(prediction, golds) == pytest.approx(row["musique_f1"], abs=1e-9), row
        assert exact_match(prediction, golds) == row["musique_em"] == row["search_r1_em"], row


def test_what_is_missing_counts_0_and_is_counted() -> None:
    golds = [Gold(str(number), ("Oslo",), (("Oslo", 0),)) for number in range(4)]
    predictions = [
        Prediction("0", "Oslo", (("Oslo", 0),)),
        Prediction("1", "Oslo"),
        Prediction("2", None, (("Oslo", 0),)),
        Prediction("stray", "Oslo"),
    ]
    found = official.score("hotpotqa", golds, predictions)
    assert (found["em"], found["sp_em"], found["joint_em"]) == (0.5, 0.5, 0.25)
    assert official.missing("hotpotqa", golds, predictions) == {"answer": 2, "sp": 2}


def test_questions_can_be_scored_one_by_one() -> None:
    gold = Gold("q", ("Oslo",), (("Oslo", 0), ("Norway", 2)))
    found = official.per_question("hotpotqa", [gold], [Prediction("q", "in Oslo", (("Oslo", 0),))])
    assert found["q"] == pytest.approx(
        {
            "em": 0, "f1": 2 / 3, "prec": 0.5, "recall": 1,
            "sp_em": 0, "sp_f1": 2 / 3, "sp_prec": 1, "sp_recall": 0.5,
            "joint_em": 0, "joint_f1": 0.5, "joint_prec": 0.5, "joint_recall": 0.5,
        }
    )  # fmt: skip
    assert official.means(found) == found["q"]


@pytest.mark.parametrize(
    ("said", "right", "em", "hotpotqa", "musique"),
    [
        pytest.param("the", "A", 1, 0, 1, id="nothing-left-of-both"),
        pytest.param("", "A", 1, 0, 1, id="nothing-said-nothing-left"),
        pytest.param("", "Oslo", 0, 0, 0, id="nothing-said"),
        pytest.param("yes they are", "yes", 0, 0, 0.5, id="verdict-and-more"),
        pytest.param("noanswer", "no answer", 0, 0, 0, id="noanswer"),
        pytest.param("no", "no answer", 0, 0, 2 / 3, id="verdict-against-words"),
    ],
)
def test_the_scripts_differ_as_documented(
    said: str, right: str, em: float, hotpotqa: float, musique: float
) -> None:
    gold, prediction = [Gold("q", (right,))], [Prediction("q", said)]
    for dataset in ("hotpotqa", "2wiki"):
        found = official.score(dataset, gold, prediction)
        assert (found["em"], found["f1"]) == (em, hotpotqa)
    found = official.score("musique", gold, prediction)
    assert (found["answer_em"], found["answer_f1"]) == pytest.approx((em, musique))


def test_each_2wiki_metric_takes_the_gold_that_is_best_for_it() -> None:
    gold = Gold("q", ("New York City", "York"))
    found = official.score("2wiki", [gold], [Prediction("q", "New York")])
    assert (found["prec"], found["recall"], found["f1"]) == pytest.approx((1.0, 1.0, 0.8))


def test_2wiki_titles_match_in_any_case_and_hotpotqa_titles_do_not() -> None:
    gold, prediction = [Gold("q", ("x",), (("Oslo", 0),))], [Prediction("q", "x", (("OSLO", 0),))]
    assert official.score("2wiki", gold, prediction)["sp_em"] == 1.0
    assert official.score("hotpotqa", gold, prediction)["sp_em"] == 0.0


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wiki"])
def test_a_fact_that_is_repeated_counts_once(dataset: str) -> None:
    gold = [Gold("q", ("x",), (("Oslo", 0), ("Bergen", 0)))]
    found = official.score(dataset, gold, [Prediction("q", "x", (("Oslo", 0), ("Oslo", 0), ("Rome", 1)))])
    assert (found["sp_prec"], found["sp_recall"]) == (0.5, 0.5)


def test_2wiki_facts_that_differ_in_case_alone_count_one_by_one() -> None:
    gold = [Gold("q", ("x",), (("Oslo", 0), ("Bergen", 0)))]
    prediction = [Prediction("q", "x", (("Oslo", 0), ("OSLO", 0)))]
    found = official.score("2wiki", gold, prediction)
    assert (found["sp_prec"], found["sp_recall"]) == pytest.approx((1.0, 2 / 3))


def test_evidence_matches_under_any_name_and_keeps_articles() -> None:
    evidence = Evidence(("Free Guy", "Guy"), "director", ("Shawn Levy", "S. Levy"))
    gold = [Gold("q", ("x",), (), (evidence,))]

    def em(*triples: tuple[str, ...]) -> float:
        return official.score("2wiki", gold, [Prediction("q", "x", (), triples)])["evi_em"]

    assert em(("guy!", "Director", "S Levy")) == 1.0
    assert em(("The Free Guy", "director", "Shawn Levy")) == 0.0
    assert em(("Free Guy", "director")) == 0.0
    twice = Prediction("q", "x", (), (("Guy", "director", "Shawn Levy"), ("Free Guy", "director", "S Levy")))
    found = official.score("2wiki", gold, [twice])
    assert (found["evi_prec"], found["evi_recall"], found["evi_em"]) == (1.0, 2.0, 0.0)


def test_no_evidence_where_there_is_none_is_right() -> None:
    found = official.score("2wiki", [Gold("q", ("x",))], [Prediction("q", "x", (), ())])
    assert (found["evi_em"], found["evi_f1"], found["sp_em"], found["joint_em"]) == (1.0, 0.0, 1.0, 1.0)


def _pair(answerable: tuple[bool | None, bool | None], answer: str = "Oslo") -> list[Prediction]:
    return [Prediction("q", answer, (1,), None, answerable[0]), Prediction("q", "x", (), None, answerable[1])]


def test_musique_groups_score_if_both_questions_were_told_apart() -> None:
    golds = [Gold("q", ("Oslo",), (1,)), Gold("q", ("Oslo",), (1,), (), False)]
    names = ("answer_f1", "group_answer_sufficiency_f1", "group_support_sufficiency_f1")
    for told, score in (((True, False), 1.0), ((True, True), 0.0), ((False, False), 0.0)):
        found = official.score("musique", golds, _pair(told))
        assert [found[name] for name in names] == [1.0, score, score]
    half = official.score("musique", golds, _pair((True, False), "in Oslo"))
    assert half["group_answer_sufficiency_f1"] == pytest.approx(2 / 3)
    swapped = official.score("musique", golds[::-1], _pair((True, False))[::-1])
    assert swapped["answer_em"] == swapped["group_answer_sufficiency_f1"] == 1.0


def test_musique_without_unanswerable_questions_has_no_groups() -> None:
    found = official.score("musique", [Gold("q", ("Oslo",))], [Prediction("q", "Oslo")])
    assert list(found) == ["answer_f1", "answer_em", "support_f1"]


@pytest.mark.parametrize(
    ("golds", "predictions", "message"),
    [
        pytest.param(["qa"], [], "questions without a prediction: 1 of 1, such as 'qa'", id="lacking"),
        pytest.param(["qa", "qb1"], ["qa", "qb2"], "the nearest is 'qb2'", id="misspelt"),
        pytest.param(["qa"], ["qa", "qb"], "predictions without a question: 1, such as 'qb'", id="surplus"),
        pytest.param(["qa", "qa"], ["qa", "qa"], "expected one gold of the id 'qa', found 2", id="twice"),
    ],
)
def test_musique_takes_complete_files_only(golds: list[str], predictions: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        official.score(
            "musique", [Gold(each, ("x",)) for each in golds], [Prediction(each, "x") for each in predictions]
        )


def test_musique_pairs_need_to_say_what_is_answerable() -> None:
    golds = [Gold("q", ("Oslo",), (1,)), Gold("q", ("Oslo",), (1,), (), False)]
    with pytest.raises(DataError, match="every prediction must say predicted_answerable"):
        official.score("musique", golds, _pair((True, None)))
    for wrong in (golds[1:], [*golds, golds[1]], [*golds, Gold("r", ("x",))]):
        with pytest.raises(DataError, match="expected one answerable and one unanswerable gold of the id"):
            official.score("musique", wrong, _pair((True, False)))


def test_an_id_that_comes_twice_is_an_error() -> None:
    gold, prediction = Gold("q", ("x",)), Prediction("q", "x")
    with pytest.raises(DataError, match="more than one prediction for the id 'q'"):
        official.score("hotpotqa", [gold], [prediction, prediction])
    with pytest.raises(DataError, match="more than one gold for the id 'q'"):
        official.score("2wiki", [gold, gold], [prediction])


def test_an_unknown_data_set_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no data set named 'hotpot'; did you mean 'hotpotqa'"):
        official.score("hotpot", [], [])


def test_printed_numbers_are_rounded_as_by_each_script() -> None:
    metrics = {"x": 2 / 3}
    assert official.as_printed("hotpotqa", metrics) == metrics
    assert official.as_printed("2wiki", metrics) == {"x": 66.67}
    assert official.as_printed("musique", metrics) == {"x": 0.667}


ANSWERS = st.sampled_from(["the", "Oslo", "oslo!", "New York", "yes", "no way", "", "3.5", "York New York"])


@given(ANSWERS, ANSWERS)
def test_musique_f1_is_symmetric_and_at_least_hotpotqas(left: str, right: str) -> None:
    assert musique_f1(left, [right]) == pytest.approx(musique_f1(right, [left]))
    assert exact_match(left, [right]) <= musique_f1(left, [right]) <= 1.0
    assert f1(left, [right]) <= musique_f1(left, [right]) + 1e-12


@given(st.lists(st.tuples(ANSWERS, ANSWERS), min_size=1, max_size=6), st.randoms())
def test_the_order_of_predictions_does_not_matter(pairs: list[tuple[str, str]], random: Any) -> None:
    golds = [Gold(str(number), (right,)) for number, (_, right) in enumerate(pairs)]
    predictions = [Prediction(str(number), said, ()) for number, (said, _) in enumerate(pairs)]
    shuffled = random.sample(predictions, len(predictions))
    for dataset in official.DATASETS:
        assert official.score(dataset, golds, shuffled) == official.score(dataset, golds, predictions)


# -- files


def test_the_hugging_face_form_of_golds_is_read_too(shared_data: Path) -> None:
    golds = read_golds("hotpotqa", shared_data / "hotpotqa" / "hotpot_qa_hf_validation_sample.jsonl")
    assert len(golds) == 30
    assert golds[0].supporting[1] == ("Gesellschaft mit beschränkter Haftung", 0)


def test_golds_and_predictions_may_be_gzipped_and_in_either_layout(tmp_path: Path) -> None:
    row = {
        "id": "q",
        "answer": "x",
        "answer_aliases": None,
        "paragraphs": [{"idx": 3, "is_supporting": True}],
    }
    said = {"id": "q", "predicted_answer": "x", "predicted_support_idxs": ["3"]}
    gold, predictions = tmp_path / "gold", tmp_path / "predictions"
    gold.write_bytes(gzip.compress(json.dumps([row]).encode()))
    predictions.write_text(json.dumps(said, indent=None))
    found = official.score("musique", read_golds("musique", gold), read_predictions("musique", predictions))
    assert set(found.values()) == {1.0}


def test_aliases_name_answers_subjects_and_objects(tmp_path: Path) -> None:
    file = tmp_path / "aliases.jsonl"
    file.write_text(json.dumps({"Q_id": "Q1", "aliases": ["USA"], "demonyms": ["American"]}))
    row = {
        "_id": "q",
        "answer": "United States",
        "answer_id": "Q1",
        "supporting_facts": [],
        "evidences": [["Bob", "country", "United States"]],
        "evidences_id": [["Q7", "country", "Q1"]],
    }
    gold = tmp_path / "gold.json"
    gold.write_text(json.dumps([row]))
    (found,) = read_golds("2wiki", gold, read_aliases(file))
    assert found.answers == ("United States", "USA", "American")
    assert found.evidences == (Evidence(("Bob",), "country", ("United States", "USA", "American")),)
    (found,) = read_golds("2wiki", gold)
    assert found.answers == ("United States",)


@pytest.mark.parametrize(
    ("dataset", "text", "message"),
    [
        ("hotpotqa", '{"answers": {}}', "under 'answer'; did you mean it by 'answers'"),
        ("hotpotqa", '{"answer": ["x"]}', "expected an object of predictions by id under 'answer'"),
        ("hotpotqa", '{"answer": {"q": 3}}', "key 'answer.q': expected the answer as text, found int"),
        ("hotpotqa", '{"answer": {}, "sp": {"q": [["Oslo"]]}}', r"key 'sp.q': expected pairs \[title"),
        ("hotpotqa", '{"answer": {}, "sp": {"q": [["Oslo", "0"]]}}', "expected the number of a sentence"),
        ("2wiki", '{"answer": {}, "evidence": {"q": [["a", "b"]]}}', r"expected triples \[subject"),
        ("2wiki", '[{"id": "q"}]', 'expected one object {"answer": {ID: ...}, "sp"'),
        (
            "hotpotqa",
            '{"predicted_answer": "x"}\n{"predicted_answer": "x"}',
            "form of the data set 'musique'",
        ),
        ("hotpotqa", '{"predicted_answer": "x"}', "form of the data set 'musique'"),
        ("hotpotqa", "{", "not JSON"),
        ("musique", '{"answer": {"q": "x"}, "sp": {}}', "this is the form of 'hotpotqa' and '2wiki'"),
        ("musique", '{"id": "q", "answer": "x"}', "the row has no 'predicted_answer'"),
        ("musique", '{"id": "q", "question": "?"}', "these are golds"),
        ("2wiki", '[{"id": "q", "question": "?"}]', "these are golds"),
        ("musique", '{"id": "q", "predicted_answer": 1}', "expected a text, found int"),
        (
            "musique",
            '{"id": "q", "predicted_answer": "", "predicted_support_idxs": [Infinity]}',
            "expected a list of whole numbers",
        ),
        (
            "musique",
            '{"id": "q", "predicted_answer": "", "predicted_answerable": "no"}',
            "expected true or false",
        ),
    ],
)
def test_predictions_of_another_form_are_told(dataset: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "predictions"
    file.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_predictions(dataset, file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "row", "message"),
    [
        ("hotpotqa", {"_id": "q", "answer": "x", "supporting_facts": {"title": []}}, "equally long lists"),
        ("2wiki", {"_id": "q", "answer": "x", "supporting_facts": [], "evidences": [3]}, "expected triples"),
        ("hotpotqa", {"answer": {"q": "x"}, "sp": {}}, "these are predictions"),
        ("musique", {"id": "q", "predicted_answer": "x"}, "these are predictions"),
        ("musique", {"id": "q", "answer": "x", "paragraphs": [{}]}, "objects with idx and is_supporting"),
        ("musique", {"id": "q", "answer": "x", "paragraphs": [], "answerable": 1}, "expected true or false"),
        ("musique", {"_id": "q", "answer": "x", "paragraphs": []}, "no 'id'; did you mean it by '_id'"),
    ],
)
def test_golds_of_another_form_are_told(
    dataset: str, row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "gold.json"
    file.write_text(json.dumps([row]))
    with pytest.raises(DataError, match=message):
        read_golds(dataset, file)
