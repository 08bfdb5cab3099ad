"""Makes the embedded question set: a small invented world in the official HotpotQA form.

Run it to write `train.json.gz` and `validation.json.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/hotpotqa/make_world.py

Nobody and nothing in the world exists. Every name is put together from fixed lists of generated words,
which all seeds share; a whole name belongs to one split only. A bridge question names one thing, whose
paragraph names a second one, whose paragraph holds the answer; the first paragraph never does. A
comparison question names both things.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

TRAIN_SEED, VALIDATION_SEED = 1, 2
TRAIN_QUESTIONS, VALIDATION_QUESTIONS = 2400, 400
COMPARISONS = 0.2
CONTEXT = 10
FIRST_YEAR, LAST_YEAR = 1850, 2009


def _words(count: int, endings: str, taken: set[str], rng: random.Random) -> list[str]:
    """Pronounceable capitalised words that no earlier list has."""
    words: list[str] = []
    while len(words) < count:
        stem = "".join(
            rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((1, 1, 2)))
        )
        word = (stem + rng.choice(endings.split())).capitalize()
        if word not in taken and len(word) > 3:
            taken.add(word)
            words.append(word)
    return words


_rng, _taken = random.Random(0), set[str]()
FIRST_NAMES = _words(120, "na ra lia ri mo nel rin las vin th", _taken, _rng)
LAST_NAMES = _words(160, "nn rsk ldo vek mbre ttar sko lque xel nds", _taken, _rng)
TITLE_STARTS = _words(110, "shan quil vorn zeth lume rraw nix pell", _taken, _rng)
TITLE_ENDS = _words(130, "drift glow thorn reach veil spire hollow song", _taken, _rng)
PLACES = _words(220, "bury mere holm wick stad port", _taken, _rng)
REGIONS = _words(60, "mark ovia aria estan", _taken, _rng)
HOUSES = _words(110, "co tek rax lov dux zan", _taken, _rng)
WORDS = (FIRST_NAMES, LAST_NAMES, TITLE_STARTS, TITLE_ENDS, PLACES, REGIONS, HOUSES)


@dataclass(frozen=True)
class WorkKind:
    """How one kind of work is told: who makes it, who brings it out, and the words for both."""

    noun: str
    role: str
    made: str
    house: str
    house_noun: str
    brought_out: str
    scene: str


@dataclass
class Entity:
    """One thing of the world: its name and its facts, which are names of other things or years."""

    name: str
    facts: dict[str, str] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)


WORK_KINDS = (
    WorkKind("a film", "director", "directed", "Studio", "studio", "made", "is set"),
    WorkKind("a novel", "writer", "written", "Press", "publisher", "published", "is set"),
    WorkKind("an album", "singer", "recorded", "Records", "label", "released", "was recorded"),
)
HOUSE_NOUNS = {"Studio": "film studio", "Press": "publisher", "Records": "record label", "College": "school"}

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


class World:
    """The things of one world, made in one go from a random generator."""

    def __init__(self, rng: random.Random, works: int, avoid: frozenset[str]) -> None:
        self.rng = rng
        self.avoid = avoid
        self.regions = self._named(works // 20, [REGIONS])
        self.places = self._named(works // 4, [PLACES])
        self.houses = {kind: self._named(works // 20, [HOUSES, [kind]]) for kind in HOUSE_NOUNS}
        self.people = self._named(works * 5 // 6, [FIRST_NAMES, LAST_NAMES])
        self.works = self._named(works, [TITLE_STARTS, TITLE_ENDS])
        self._tell_places()
        self._tell_houses()
        self._tell_people()
        self._tell_works()

    def entities(self) -> list[Entity]:
        """Everything that has a paragraph, in a fixed order."""
        houses = [house for kind in self.houses.values() for house in kind]
        return [*self.regions, *self.places, *houses, *self.people, *self.works]

    def _named(self, count: int, lists: list[list[str]]) -> list[Entity]:
        names = [" ".join(words) for words in product(*lists)]
        free = [name for name in names if name not in self.avoid]
        return [Entity(name) for name in self.rng.sample(free, count)]

    def _year(self) -> str:
        return str(self.rng.randint(FIRST_YEAR, LAST_YEAR))

    def _tell_places(self) -> None:
        for place in self.places:
            region, year = self.rng.choice(self.regions), self._year()
            place.facts = {"region": region.name, "year": year}
            place.sentences = [f"{place.name} is a city in {region.name}.", f" It was founded in {year}."]
        for region in self.regions:
            capital = self.rng.choice(self.places).name
            region.facts = {"capital": capital}
            region.sentences = [f"{region.name} is a region with the capital {capital}."]

    def _tell_houses(self) -> None:
        for kind, houses in self.houses.items():
            for house in houses:
                city, year = self.rng.choice(self.places).name, self._year()
                house.facts = {"city": city, "year": year}
                house.sentences = [
                    f"{house.name} is a {HOUSE_NOUNS[kind]} based in {city}.",
                    f" It was founded in {year}.",
                ]

    def _tell_people(self) -> None:
        for number, person in enumerate(self.people):
            role = WORK_KINDS[number % len(WORK_KINDS)].role
            city, year = self.rng.choice(self.places).name, self._year()
            person.facts = {"role": role, "city": city, "year": year}
            person.sentences = [f"{person.name} is a {role} born in {city} in {year}."]
            if self.rng.random() < 0.7:
                school = self.rng.choice(self.houses["College"]).name
                person.facts["school"] = school
                person.sentences.append(f" The school of {person.name} was {school}.")

    def _tell_works(self) -> None:
        for number, work in enumerate(self.works):
            kind = WORK_KINDS[number % len(WORK_KINDS)]
            maker = self.rng.choice([person for person in self.people if person.facts["role"] == kind.role])
            house, year = self.rng.choice(self.houses[kind.house]).name, self._year()
            work.facts = {
                "role": kind.role, "house noun": kind.house_noun,
                "maker": maker.name, "house": house, "year": year,
            }  # fmt: skip
            work.sentences = [
                f"{work.name} is {kind.noun} {kind.made} by {maker.name}.",
                f" It was {kind.brought_out} by {house} in {year}.",
            ]
            if self.rng.random() < 0.3:
                work.sentences.append(f" It {kind.scene} in {self.rng.choice(self.places).name}.")


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


def _sentence_with(entity: Entity, fact: str) -> int:
    return next(number for number, text in enumerate(entity.sentences) if entity.facts[fact] in text)


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
            support = (
                (entity.name, _sentence_with(entity, link)),
                (second.name, _sentence_with(second, fact)),
            )
            words = {
                "role": entity.facts.get("role"),
                "house": entity.facts.get("house noun"),
                "name": entity.name,
            }
            yield Question(text.format(**words), answer, "bridge", support)


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
    support = tuple((entity.name, _sentence_with(entity, fact)) for entity in (first, second))
    if form == "birthplace":
        answer = "yes" if first.facts["city"] == second.facts["city"] else "no"
        text = f"Is the birthplace of {first.name} the same as the birthplace of {second.name}?"
    else:
        answer = min(first, second, key=lambda entity: entity.facts["year"]).name
        text = f"Who was born first, {first.name} or {second.name}?"
        if form == "earlier":
            text = f"Which came out first, {first.name} or {second.name}?"
    return Question(text, answer, "comparison", support)


def _context(question: Question, entities: list[Entity], related: Callable[[str], list[Entity]],
             rng: random.Random) -> list[list[Any]]:  # fmt: skip
    """The two gold paragraphs among others, half of which share a word with them."""
    gold = set(question.titles)
    near = [entity for title in question.titles for entity in related(title) if entity.name not in gold]
    chosen = {entity.name: entity for entity in rng.sample(near, min(4, len(near)))}
    while len(chosen) < CONTEXT - len(gold):
        entity = rng.choice(entities)
        if entity.name not in gold:
            chosen[entity.name] = entity
    members = [*chosen.values(), *(entity for entity in entities if entity.name in gold)]
    rng.shuffle(members)
    return [[entity.name, entity.sentences] for entity in members]


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
    entities = made.entities()
    by_word: dict[str, list[Entity]] = {}
    for entity in entities:
        for word in set(" ".join([entity.name, *entity.sentences]).replace(".", "").split()):
            if word[0].isupper():
                by_word.setdefault(word, []).append(entity)
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
            "context": _context(question, entities, lambda title: by_word[title.split()[0]], rng),
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


def encode(rows: list[dict[str, Any]]) -> bytes:
    """Rows as the JSON text that the files hold, one row a line."""
    return ("[" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]\n").encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    folder = parser.parse_args().out
    for split, rows in splits().items():
        path = folder / f"{split}.json.gz"
        # Neither a time nor a file name goes into the header, so that the file changes only when its rows do.
        path.write_bytes(gzip.compress(encode(rows), 9, mtime=0))
        size = path.stat().st_size / 1e6
        print(f"{path}: {len(rows)} questions, {len(names(rows))} paragraphs, {size:.2f} MB")


if __name__ == "__main__":
    main()
