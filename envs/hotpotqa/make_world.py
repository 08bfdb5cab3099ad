"""Makes the embedded question set: a small invented world in the official HotpotQA form.

Run it to write `train.json.gz` and `validation.json.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/hotpotqa/make_world.py

Nobody and nothing in the world exists; a whole name belongs to one split only. A bridge question names one
thing, whose paragraph names a second one, whose paragraph holds the answer; the first paragraph never does.
A comparison question names both things.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from agent_r1_env.invented import Paragraphs, World, as_list, write

TRAIN_SEED, VALIDATION_SEED = 1, 2
TRAIN_QUESTIONS, VALIDATION_QUESTIONS = 2400, 400
COMPARISONS = 0.2

# Question, the fact of the first thing that names the second, and the fact of the second that is the answer.
WORK_QUESTIONS = (
    ("In which city was the {role} of {name} born?", "maker", "city"),
    ("In which year was the {role} of {name} born?", "maker", "year"),
    ("Where did the {role} of {name} study?", "maker", "school"),
    ("In which city is the {house} of {name} based?", "house", "city"),
    ("In which year was the {house} of {name} founded?", "house", "year"),
)
PERSON_QUESTIONS = (
    ("In which region does the birthplace of {name} lie?", "city", "region"),
    ("In which city is the school of {name} based?", "school", "city"),
)
HOUSE_QUESTIONS = (("In which region does the home city of {name} lie?", "city", "region"),)
PLACE_QUESTIONS = (("What is the capital of the region of {name}?", "region", "capital"),)


@dataclass(frozen=True)
class Question:
    """A question, its answer and the sentences that prove it, the paragraph to look up first coming first."""

    text: str
    answer: str
    kind: str
    support: tuple[tuple[str, int], ...]

    @property
    def titles(self) -> list[str]:
        return [title for title, _ in self.support]


def _bridges(world: World) -> Iterator[Question]:
    by_name = {entity.name: entity for entity in world.entities()}
    houses = [house for kind in world.houses.values() for house in kind]
    families = (
        (world.works, WORK_QUESTIONS), (world.people, PERSON_QUESTIONS),
        (houses, HOUSE_QUESTIONS), (world.places, PLACE_QUESTIONS),
    )  # fmt: skip
    for entities, templates in families:
        for entity, (text, link, fact) in product(entities, templates):
            second = by_name[entity.facts[link]] if link in entity.facts else None
            if second is None or fact not in second.facts:
                continue
            answer = second.facts[fact]
            if any(answer in sentence for sentence in [entity.name, *entity.sentences]):
                continue
            support = (entity.name, entity.sentence(link)), (second.name, second.sentence(fact))
            yield Question(text.format(**entity.words), answer, "bridge", support)


def _comparison(world: World) -> Question:
    rng = world.rng
    form = rng.choice(("birthplace", "birthplace", "older", "earlier"))
    first, second = rng.sample(world.works if form == "earlier" else world.people, 2)
    fact = "city" if form == "birthplace" else "year"
    if form == "birthplace" and rng.random() < 0.5:
        same = [person for person in world.people if person.facts["city"] == first.facts["city"]]
        second = rng.choice(same)
    if first is second or (fact == "year" and first.facts["year"] == second.facts["year"]):
        return _comparison(world)
    support = tuple((entity.name, entity.sentence(fact)) for entity in (first, second))
    if form == "birthplace":
        answer = "yes" if first.facts["city"] == second.facts["city"] else "no"
        text = f"Is the birthplace of {first.name} the same as the birthplace of {second.name}?"
    else:
        answer = min(first, second, key=lambda entity: entity.facts["year"]).name
        text = f"Who was born first, {first.name} or {second.name}?"
        if form == "earlier":
            text = f"Which came out first, {first.name} or {second.name}?"
    return Question(text, answer, "comparison", support)


def world(seed: int, questions: int = TRAIN_QUESTIONS, *, works: int = 480,
          avoid: frozenset[str] = frozenset()) -> list[dict[str, Any]]:  # fmt: skip
    """The questions of one world, as rows of the official HotpotQA form.

    Args:
        seed: Decides everything; two seeds share words, and seldom a whole name.
        questions: How many rows; about one in five is a comparison.
        works: Size of the world; it gets about 2.3 times as many paragraphs.
        avoid: Names that this world must not use for anything.
    """
    rng = random.Random(seed)
    made = World(rng, works, avoid)
    paragraphs = Paragraphs(made.entities(), rng)
    comparisons = {question.text: question for question in
                   (_comparison(made) for _ in range(round(questions * COMPARISONS)))}  # fmt: skip
    bridges = rng.sample(list(_bridges(made)), questions - len(comparisons))
    asked = [*bridges, *comparisons.values()]
    rng.shuffle(asked)
    return [
        {
            "_id": f"world{seed}-{number:05d}",
            "question": question.text,
            "answer": question.answer,
            "supporting_facts": [list(fact) for fact in question.support],
            "context": [[entity.name, entity.sentences] for entity in paragraphs.around(question.titles)],
            "type": question.kind,
            "level": "medium",
        }
        for number, question in enumerate(asked)
    ]


def names(rows: list[dict[str, Any]]) -> frozenset[str]:
    """Titles of all paragraphs in `rows`: the names of everything a question may ask for."""
    return frozenset(title for row in rows for title, _ in row["context"])


def splits() -> dict[str, list[dict[str, Any]]]:
    """The two embedded splits."""
    train = world(TRAIN_SEED)
    return {
        "train": train,
        "validation": world(VALIDATION_SEED, VALIDATION_QUESTIONS, works=180, avoid=names(train)),
    }


def files() -> dict[str, bytes]:
    """The embedded files, unpacked."""
    return {f"{split}.json.gz": as_list(rows) for split, rows in splits().items()}


if __name__ == "__main__":
    write(Path(__file__).parent, files())
