"""Makes the embedded question set: an invented world in the official form of 2WikiMultihopQA.

Run it to write `train.json.gz` and `validation.json.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/2wikimultihopqa/make_world.py

Nobody and nothing in the world exists; a whole name belongs to one split only. All four types are there.
`compositional` and `inference` follow a link from the thing in the question to a second one, whose
paragraph holds the answer; `inference` has one word, such as grandfather, for both steps. `comparison`
compares two things, `bridge_comparison` two works by who or what stands behind them. Ids begin with E, so
that none is taken for one of Wikidata.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from agent_r1_env.invented import FIRST_NAMES, REGIONS, Entity, Paragraphs, World, as_list, write

COUNTS = {  # in about the shares of the real set
    "train": {"compositional": 110, "comparison": 80, "bridge_comparison": 70, "inference": 40},
    "validation": {"compositional": 70, "comparison": 55, "bridge_comparison": 45, "inference": 30},
}
SEEDS, WORKS = {"train": 1, "validation": 2}, {"train": 200, "validation": 150}
GENERATIONS, COUPLES, FIRST_BIRTH = 4, 12, 1620

# Question, the fact of the first thing that names the second, and the fact of the second that is the answer.
COMPOSITIONAL = (
    ("What is the place of birth of the {role} of {noun} {name}?", "maker", "city"),
    ("When was the {role} of {noun} {name} born?", "maker", "year"),
    ("Where did the {role} of {noun} {name} study?", "maker", "school"),
    ("In which city is the {house} of {noun} {name} based?", "house", "city"),
    ("When was the {house} of {noun} {name} founded?", "house", "year"),
    ("In which region does the place of birth of {name} lie?", "city", "region"),
    ("When was {name}'s father born?", "father", "year"),
    ("When was {name}'s mother born?", "mother", "year"),
)
INFERENCE = (
    ("Who is the paternal grandfather of {name}?", "father", "father"),
    ("Who is {name}'s paternal grandmother?", "father", "mother"),
    ("Who is the maternal grandfather of {name}?", "mother", "father"),
    ("Who is {name}'s maternal grandmother?", "mother", "mother"),
    ("Who is the father-in-law of {name}?", "spouse", "father"),
    ("Who is {name}'s mother-in-law?", "spouse", "mother"),
)

# Question, whom it is about, the fact that leads from each to another thing, if any, the fact that is then
# compared, and which of both wins; with None the question is whether they are equal.
CONTESTS = {
    "comparison": (
        ("Who was born first, {first} or {second}?", "people", "", "year", min),
        ("Who is younger, {first} or {second}?", "nobles", "", "year", max),
        ("Which {noun} came out earlier, {first} or {second}?", "works", "", "year", min),
        ("Which {noun} came out more recently, {first} or {second}?", "works", "", "year", max),
        ("Were {first} and {second} born in the same city?", "people", "", "city", None),
        ("Are {first} and {second} both in the same region?", "places", "", "region", None),
    ),
    "bridge_comparison": (
        ("Which {noun} has the {role} who was born first, {first} or {second}?",
         "works", "maker", "year", min),
        ("Which {noun} has the {role} who is younger, {first} or {second}?", "works", "maker", "year", max),
        ("Which {noun} has the older {house}, {first} or {second}?", "works", "house", "year", min),
        ("Were the {role}s of {noun}s {first} and {second} born in the same city?",
         "works", "maker", "city", None),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A question and its proof: things and the fact of each that is needed, in order."""

    text: str
    answer: str
    kind: str
    proof: tuple[tuple[Entity, str], ...]


class FamilyWorld(World):
    """A world with noble families in it."""

    def __init__(self, rng: random.Random, works: int, avoid: frozenset[str]) -> None:
        super().__init__(rng, works, avoid)
        self._unborn = self.named(GENERATIONS * COUPLES * 3, FIRST_NAMES, ["of"], REGIONS)
        self.nobles: list[Entity] = []
        people = [self._born(0) for _ in range(COUPLES * 2)]
        for generation in range(1, GENERATIONS):
            people = [
                self._born(generation, father=father.name, mother=mother.name)
                for father, mother in self._couples(people)
                for _ in range(rng.choice((1, 2, 3)))
            ]
        for noble in self.nobles:
            self._tell(noble)

    def entities(self) -> list[Entity]:
        return [*super().entities(), *self.nobles]

    def _born(self, generation: int, **parents: str) -> Entity:
        noble = self._unborn.pop()
        year = FIRST_BIRTH + 30 * generation + self.rng.randrange(20)
        title = ("count", "countess")[len(self.nobles) % 2]
        noble.facts = {"title": title, "year": str(year), **parents}
        self.nobles.append(noble)
        return noble

    def _couples(self, people: list[Entity]) -> Iterator[tuple[Entity, Entity]]:
        """Who marries whom; brothers and sisters stay single."""
        self.rng.shuffle(people)
        sides = [[each for each in people if each.facts["title"] == title] for title in ("count", "countess")]
        for husband, wife in zip(*sides, strict=False):
            if "father" not in husband.facts or husband.facts["father"] != wife.facts["father"]:
                husband.facts["spouse"], wife.facts["spouse"] = wife.name, husband.name
                yield husband, wife

    def _tell(self, noble: Entity) -> None:
        facts = noble.facts
        he, son = ("He", "son") if facts["title"] == "count" else ("She", "daughter")
        noble.sentences = [f"{noble.name} was a {facts['title']} born in {facts['year']}."]
        if "father" in facts:
            noble.sentences.append(f" {he} was the {son} of {facts['father']} and {facts['mother']}.")
        if "spouse" in facts:
            noble.sentences.append(f" {he} was married to {facts['spouse']}.")


class Asker:
    """Questions of each type about one world."""

    def __init__(self, world: FamilyWorld) -> None:
        self.world, self.rng = world, world.rng
        self.by_name = {entity.name: entity for entity in world.entities()}

    def ask(self, kind: str, count: int) -> list[Question]:
        """So many different questions of one type."""
        if kind not in CONTESTS:
            return self.rng.sample(list(self._bridges(kind)), count)
        asked: dict[str, Question] = {}
        while len(asked) < count:
            if (question := self._contest(kind)) is not None:
                asked.setdefault(question.text, question)
        return list(asked.values())

    def _bridges(self, kind: str) -> Iterator[Question]:
        templates = COMPOSITIONAL if kind == "compositional" else INFERENCE
        for entity, (text, link, fact) in product(self.by_name.values(), templates):
            # Houses lie in a city as well, but nobody says of them that they were born there.
            if link not in entity.facts or (link == "city" and "role" not in entity.facts):
                continue
            second = self.by_name[entity.facts[link]]
            if fact in second.facts and second.facts[fact] not in entity.text:
                asked = text.format(**entity.words)
                yield Question(asked, second.facts[fact], kind, ((entity, link), (second, fact)))

    def _contest(self, kind: str) -> Question | None:
        """A comparison, or None if nothing fits the one that was begun."""
        text, about, link, fact, best = self.rng.choice(CONTESTS[kind])
        members: list[Entity] = getattr(self.world, about)
        first = self.rng.choice(members)
        equal = best is None and self.rng.random() < 0.5
        rivals = [
            each
            for each in members
            if each.facts.get("role") == first.facts.get("role")
            and self._end(each, link) is not self._end(first, link)
            and (self._end(each, link).facts[fact] == self._end(first, link).facts[fact]) == equal
        ]
        if not rivals:
            return None
        pair = first, self.rng.choice(rivals)
        ends = [self._end(each, link) for each in pair]
        answer = "yes" if equal else "no"
        if best is not None:
            answer = best(pair, key=lambda each: self._end(each, link).facts[fact]).name
        proof = tuple((each, link) for each in pair if link) + tuple((end, fact) for end in ends)
        asked = text.format(first=pair[0].name, second=pair[1].name, **first.words)
        return Question(asked, answer, kind, proof)

    def _end(self, entity: Entity, link: str) -> Entity:
        return self.by_name[entity.facts[link]] if link else entity


def _relation(entity: Entity, fact: str) -> str:
    """A fact in the words of the real set."""
    facts = entity.facts
    if fact == "year":
        born = "title" in facts or ("role" in facts and "maker" not in facts)
        return "publication date" if "maker" in facts else "date of birth" if born else "inception"
    if fact == "city":
        return "place of birth" if "role" in facts else "location"
    names = {"maker": facts.get("role"), "house": facts.get("house noun"), "school": "educated at"}
    return names.get(fact) or {"region": "located in"}.get(fact, fact)


def rows(split: str, avoid: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """The questions of one split; nothing in its world has one of the names to avoid."""
    rng = random.Random(SEEDS[split])
    world = FamilyWorld(rng, WORKS[split], avoid)
    asker, paragraphs = Asker(world), Paragraphs(world.entities(), rng)
    ids = {name: f"E{number}" for number, name in enumerate(asker.by_name, start=1)}
    asked = [question for kind, count in COUNTS[split].items() for question in asker.ask(kind, count)]
    rng.shuffle(asked)
    return [_row(f"{split}-{n:04d}", question, paragraphs, ids) for n, question in enumerate(asked)]


def _row(number: str, question: Question, paragraphs: Paragraphs, ids: dict[str, str]) -> dict[str, Any]:
    titles = list(dict.fromkeys(entity.name for entity, _ in question.proof))
    evidences = [
        [entity.name, _relation(entity, fact), entity.facts[fact]] for entity, fact in question.proof
    ]
    known = all(value in ids for _, _, value in evidences)
    return {
        "_id": number,
        "type": question.kind,
        "question": question.text,
        "context": [
            [entity.name, [sentence.strip() for sentence in entity.sentences]]
            for entity in paragraphs.around(titles)
        ],
        "entity_ids": "_".join(ids[title] for title in titles),
        "supporting_facts": [[entity.name, entity.sentence(fact)] for entity, fact in question.proof],
        "evidences": evidences,
        "answer": question.answer,
        "evidences_id": [[ids[name], relation, ids[value]] for name, relation, value in evidences]
        if known
        else [],
        "answer_id": ids.get(question.answer),
    }


def files() -> dict[str, bytes]:
    """The embedded files, unpacked."""
    train = rows("train")
    names = frozenset(title for row in train for title, _ in row["context"])
    return {"train.json.gz": as_list(train), "validation.json.gz": as_list(rows("validation", names))}


if __name__ == "__main__":
    write(Path(__file__).parent, files())
