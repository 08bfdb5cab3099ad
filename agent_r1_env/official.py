"""Metrics of predictions, number for number those of the official scripts of three data sets.

``hotpotqa`` is hotpot_evaluate_v1.py, ``2wiki`` is 2wikimultihop_evaluate_v1.1.py, and ``musique`` is
evaluate_v1.0.py. All take an answer and supporting facts, and normalise answers alike. They differ in this:

===================================  ==================  ====================  =======================
\\                                    hotpotqa            2wiki                 musique
===================================  ==================  ====================  =======================
several right answers                no                  by the alias file     ``answer_aliases``
both answers normalise to nothing    EM 1, F1 0          EM 1, F1 0            EM 1, F1 1
yes/no against more words            F1 0                F1 0                  F1 counts words
supporting facts                     title, sentence     the same, any case    numbers of paragraphs
beyond answer and facts              joint               evidence, joint       groups, if unanswerable
a question without a prediction      counts 0            counts 0              is a mistake
numbers are printed as               fractions           percent, 2 decimals   fractions, 3 decimals
===================================  ==================  ====================  =======================

Here every metric is a fraction of 1, unrounded; ``as_printed`` gives what the script prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from agent_r1_env.errors import DataError, look_up, nearest
from agent_r1_env.scoring import exact_match, normalize_answer, normalize_wording, overlap

Metrics = dict[str, float]


class Evidence(NamedTuple):
    """One triple of a gold answer's reasoning, with every name that its subject and object go by."""

    subjects: tuple[str, ...]
    relation: str
    objects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right for one question.

    Attributes:
        answers: all that count as right, aliases among them.
        supporting: (title, sentence number) for HotpotQA and 2Wiki, numbers of paragraphs for MuSiQue.
        evidences: for 2Wiki alone.
        answerable: False for MuSiQue's questions whose paragraphs do not hold the answer; such a question
            has the id of the answerable one it was made from.
    """

    id: str
    answers: tuple[str, ...]
    supporting: tuple[Hashable, ...] = ()
    evidences: tuple[Evidence, ...] = ()
    answerable: bool = True


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said to one question; None for a part that is missing, which counts as wrong.

    Attributes:
        evidences: (subject, relation, object) each.
    """

    id: str
    answer: str | None = None
    supporting: tuple[Hashable, ...] | None = None
    evidences: tuple[tuple[str, ...], ...] | None = None
    answerable: bool | None = None


class _Match(NamedTuple):
    """How well one part of a prediction matches."""

    em: float
    f1: float
    precision: float
    recall: float

    def named(self, prefix: str = "") -> Metrics:
        values = zip(("em", "f1", "prec", "recall"), self, strict=True)
        return {prefix + name: float(value) for name, value in values}


_NOTHING = _Match(0.0, 0.0, 0.0, 0.0)


def per_question(
    dataset: str, golds: Iterable[Gold], predictions: Iterable[Prediction]
) -> dict[str, Metrics]:
    """Every metric of every question, by the question's id, in the order of ``golds``.

    Predictions are matched by id; those without a gold are passed over, as HotpotQA's and 2Wiki's scripts do.

    Raises:
        UnknownName: no such data set.
        DataError: an id comes twice; for MuSiQue, a question has no prediction, or a prediction no question.
    """
    rule = look_up("data set", dataset, _RULES)
    return rule(_by_id(golds), _by_id(predictions))


def means(rows: Mapping[str, Metrics]) -> Metrics:
    """The mean of every metric over questions, as ``per_question`` gives them."""
    names = next(iter(rows.values()), {})
    # Summed as the scripts do, from left to right: their last bit, and so their rounding, is matched.
    return {name: sum(row[name] for row in rows.values()) / len(rows) for name in names}


def score(dataset: str, golds: Iterable[Gold], predictions: Iterable[Prediction]) -> Metrics:
    """The metrics of a whole data set, as fractions of 1, unrounded.

    Raises:
        UnknownName: no such data set.
        DataError: as for ``per_question``.
    """
    return means(per_question(dataset, golds, predictions))


def as_printed(dataset: str, metrics: Metrics) -> Metrics:
    """Metrics the way the data set's own script prints them.

    Raises:
        UnknownName: no such data set.
    """
    return {name: look_up("data set", dataset, _PRINTED)(value) for name, value in metrics.items()}


def missing(dataset: str, golds: Iterable[Gold], predictions: Iterable[Prediction]) -> dict[str, int]:
    """How many questions have no prediction of each part, by the part's name in the file.

    Raises:
        UnknownName: no such data set.
    """
    parts = look_up("data set", dataset, _PARTS)
    given = {prediction.id: prediction for prediction in predictions}
    asked = [given.get(gold.id, Prediction(gold.id)) for gold in golds]
    return {
        name: sum(getattr(prediction, part) is None for prediction in asked) for name, part in parts.items()
    }


def musique_f1(prediction: str, golds: Sequence[str]) -> float:
    """F1 over words as MuSiQue counts it; the best gold counts.

    With nothing left of a side after normalisation it is 1 if nothing is left of the other either, else 0.
    And "yes", "no" and "noanswer" are words like others.
    """
    return max((_word_f1(prediction, gold) for gold in golds), default=0.0)


def _word_f1(prediction: str, gold: str) -> float:
    left, right = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if not left or not right:
        return float(left == right)
    common = (Counter(left) & Counter(right)).total()
    return _harmonic(common / len(left), common / len(right))


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def _answer(gold: Gold, prediction: Prediction) -> _Match:
    """Each of the four is that of the gold answer that is best for it."""
    if (said := prediction.answer) is None:
        return _NOTHING
    best = [max(column) for column in zip(*(overlap(said, right) for right in gold.answers), strict=True)]
    return _Match(exact_match(said, gold.answers), *best) if best else _NOTHING


def _facts(found: Collection[Hashable], right: Collection[Hashable]) -> _Match:
    """EM, F1, precision and recall of facts, each collection without repetitions of its own.

    The four count what is found and right (tp), found and wrong (fp), right and not found (fn):
    P = tp / (tp + fp), R = tp / (tp + fn), F1 = 2PR / (P + R), and EM is 1 where fp + fn is 0.
    """
    correct = sum(fact in right for fact in found)
    wrong, lacking = len(found) - correct, sum(fact not in found for fact in right)
    precision = correct / (correct + wrong) if found else 0.0
    recall = correct / (correct + lacking) if correct + lacking else 0.0
    return _Match(float(wrong + lacking == 0), _harmonic(precision, recall), precision, recall)


def _supporting(gold: Gold, prediction: Prediction) -> _Match:
    if prediction.supporting is None:
        return _NOTHING
    return _facts(set(prediction.supporting), set(gold.supporting))


def _supporting_any_case(gold: Gold, prediction: Prediction) -> _Match:
    """Titles match in any case. Facts that differ in case alone count one by one, as in the script."""
    if prediction.supporting is None:
        return _NOTHING
    return _facts(*(list(map(_lowered, set(facts))) for facts in (prediction.supporting, gold.supporting)))


def _lowered(fact: Hashable) -> Hashable:
    match fact:
        case (str() as title, *rest):
            return (title.lower(), *rest)
    return fact


def _evidences(gold: Gold, prediction: Prediction) -> _Match:
    """EM, F1, precision and recall of triples.

    With m of the p predicted triples equal to one of the g gold ones under any names: P = m / p, R = m / g,
    EM is 1 where m = p = g. As in the script, two names for one gold triple match twice, so R may exceed 1.
    """
    if prediction.evidences is None:
        return _NOTHING
    right = [_wordings(evidence) for evidence in gold.evidences]
    found = {tuple(map(normalize_wording, triple)) for triple in prediction.evidences}
    matches = sum(any(_is_among(triple, names) for names in right) for triple in found)
    precision, recall = matches / len(found) if found else 0.0, matches / len(right) if right else 0.0
    em = float(matches == len(found) == len(right))
    return _Match(em, _harmonic(precision, recall), precision, recall)


def _wordings(evidence: Evidence) -> tuple[set[str], ...]:
    columns = evidence.subjects, (evidence.relation,), evidence.objects
    return tuple(set(map(normalize_wording, names)) for names in columns)


def _is_among(triple: tuple[str, ...], names: tuple[set[str], ...]) -> bool:
    return len(triple) == len(names) and all(map(set.__contains__, names, triple))


def _joint(*parts: _Match) -> _Match:
    """Products of EM, precision and recall over the parts; F1 of the two latter products."""
    em = precision = recall = 1.0
    for part in parts:
        em, precision, recall = em * part.em, precision * part.precision, recall * part.recall
    return _Match(em, _harmonic(precision, recall), precision, recall)


def _hotpotqa(gold: Gold, prediction: Prediction) -> Metrics:
    answer, facts = _answer(gold, prediction), _supporting(gold, prediction)
    return answer.named() | facts.named("sp_") | _joint(answer, facts).named("joint_")


def _two_wiki(gold: Gold, prediction: Prediction) -> Metrics:
    answer, facts = _answer(gold, prediction), _supporting_any_case(gold, prediction)
    triples = _evidences(gold, prediction)
    joint = _joint(answer, facts, triples)
    return answer.named() | facts.named("sp_") | triples.named("evi_") | joint.named("joint_")


_Golds = Mapping[str, list[Gold]]
_Predictions = Mapping[str, list[Prediction]]
_Rule = Callable[[_Golds, _Predictions], dict[str, Metrics]]


def _one_by_one(measure: Callable[[Gold, Prediction], Metrics]) -> _Rule:
    """The rule of a data set whose questions have nothing to do with one another."""

    def rule(golds: _Golds, predictions: _Predictions) -> dict[str, Metrics]:
        for kind, rows in (("gold", golds), ("prediction", predictions)):
            if twice := next((each for each, of_id in rows.items() if len(of_id) > 1), None):
                raise DataError(f"there is more than one {kind} for the id {twice!r}")
        said = {each: of_id[0] for each, of_id in predictions.items()}
        return {each: measure(gold, said.get(each, Prediction(each))) for each, (gold,) in golds.items()}

    return rule


def _musique(golds: _Golds, predictions: _Predictions) -> dict[str, Metrics]:
    """Answers and facts of answerable questions; and of groups, where some questions are unanswerable.

    A group is an answerable question and the unanswerable one of its id. The group's F1 is that of the
    answerable one if both were told apart rightly, else 0.
    """
    grouped = not all(gold.answerable for of_id in golds.values() for gold in of_id)
    _check_complete(golds, predictions, grouped)
    return {each: _musique_one(of_id, predictions[each], grouped) for each, of_id in golds.items()}


def _musique_one(golds: list[Gold], predictions: list[Prediction], grouped: bool) -> Metrics:
    gold, said = next(pair for pair in zip(golds, predictions, strict=True) if pair[0].answerable)
    metrics = {
        "answer_f1": musique_f1(said.answer, gold.answers) if said.answer is not None else 0.0,
        "answer_em": exact_match(said.answer, gold.answers) if said.answer is not None else 0.0,
        "support_f1": _supporting(gold, said).f1,
    }
    if grouped:
        told = [each.answerable for each in predictions] == [each.answerable for each in golds]
        metrics["group_answer_sufficiency_f1"] = metrics["answer_f1"] * told
        metrics["group_support_sufficiency_f1"] = metrics["support_f1"] * told
    return metrics


def _check_complete(golds: _Golds, predictions: _Predictions, grouped: bool) -> None:
    """As MuSiQue's script: one prediction for each gold, and golds in pairs or without any unanswerable."""
    for each, of_id in golds.items():
        if sum(gold.answerable for gold in of_id) != 1 or len(of_id) != 1 + grouped:
            form = "one answerable and one unanswerable gold" if grouped else "one gold"
            raise DataError(f"expected {form} of the id {each!r}, found {len(of_id)}")
    lacking = [each for each, of_id in golds.items() if len(predictions.get(each, ())) < len(of_id)]
    surplus = [each for each, of_id in predictions.items() if len(golds.get(each, ())) < len(of_id)]
    if lacking:
        raise _unmatched(
            f"questions without a prediction: {len(lacking)} of {len(golds)}", lacking[0], surplus
        )
    if surplus:
        raise _unmatched(f"predictions without a question: {len(surplus)}", surplus[0], list(golds))
    if grouped and any(said.answerable is None for of_id in predictions.values() for said in of_id):
        raise DataError("some golds are unanswerable, so every prediction must say predicted_answerable")


def _unmatched(what: str, example: str, others: Collection[str]) -> DataError:
    guess = nearest(example, others)
    meant = f" (the nearest is {guess!r})" if guess else ""
    return DataError(f"{what}, such as {example!r}{meant}; MuSiQue's script takes one for each question")


_Row = TypeVar("_Row", Gold, Prediction)


def _by_id(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(row.id, []).append(row)
    return found


_RULES: dict[str, _Rule] = {
    "hotpotqa": _one_by_one(_hotpotqa),
    "2wiki": _one_by_one(_two_wiki),
    "musique": _musique,
}
_PRINTED: dict[str, Callable[[float], float]] = {
    "hotpotqa": lambda value: value,
    "2wiki": lambda value: round(value * 100, 2),
    "musique": lambda value: round(value, 3),
}
_PARTS: dict[str, dict[str, str]] = {
    "hotpotqa": {"answer": "answer", "sp": "supporting"},
    "2wiki": {"answer": "answer", "sp": "supporting", "evidence": "evidences"},
    "musique": {"predicted_answer": "answer", "predicted_support_idxs": "supporting"},
}
DATASETS = tuple(_RULES)
