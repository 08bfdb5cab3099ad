"""An invented world to ask questions about: people, places, houses and works, told in short paragraphs.

Nobody and nothing in it exists. Every name is put together from fixed lists of generated words, which all
worlds share, and every choice comes from the random generator that a world is made with: the same
generator gives the same world anywhere. The scripts that make the embedded question sets build on it.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

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

    @property
    def text(self) -> str:
        """The paragraph; every sentence but the first brings the space before it."""
        return "".join(self.sentences)

    @property
    def words(self) -> dict[str, str]:
        """What questions call it and, if it is a work, those behind it."""
        role, house = self.facts.get("role", ""), self.facts.get("house noun", "")
        return {"name": self.name, "role": role, "house": house, "noun": NOUNS.get(role, "")}

    def sentence(self, fact: str) -> int:
        """The number of the sentence that tells a fact."""
        return next(number for number, text in enumerate(self.sentences) if self.facts[fact] in text)


WORK_KINDS = (
    WorkKind("a film", "director", "directed", "Studio", "studio", "made", "is set"),
    WorkKind("a novel", "writer", "written", "Press", "publisher", "published", "is set"),
    WorkKind("an album", "singer", "recorded", "Records", "label", "released", "was recorded"),
)
NOUNS = {kind.role: kind.noun.split()[1] for kind in WORK_KINDS}
HOUSE_NOUNS = {"Studio": "film studio", "Press": "publisher", "Records": "record label", "College": "school"}


class World:
    """The things of one world, made in one go from a random generator.

    Args:
        works: size of the world; it gets about 2.3 times as many paragraphs.
        avoid: names that nothing in it may have.
    """

    def __init__(self, rng: random.Random, works: int, avoid: frozenset[str]) -> None:
        self.rng = rng
        self.avoid = avoid
        self.regions = self.named(works // 20, REGIONS)
        self.places = self.named(works // 4, PLACES)
        self.houses = {kind: self.named(works // 20, HOUSES, [kind]) for kind in HOUSE_NOUNS}
        self.people = self.named(works * 5 // 6, FIRST_NAMES, LAST_NAMES)
        self.works = self.named(works, TITLE_STARTS, TITLE_ENDS)
        self._tell_places()
        self._tell_houses()
        self._tell_people()
        self._tell_works()

    def entities(self) -> list[Entity]:
        """Everything that has a paragraph, in a fixed order."""
        houses = [house for kind in self.houses.values() for house in kind]
        return [*self.regions, *self.places, *houses, *self.people, *self.works]

    def named(self, count: int, *lists: Sequence[str]) -> list[Entity]:
        """So many things of which nothing is told yet, named by a word of each list."""
        names = [" ".join(words) for words in product(*lists)]
        free = [name for name in names if name not in self.avoid]
        return [Entity(name) for name in self.rng.sample(free, count)]

    def year(self) -> str:
        """A year in which something may have happened."""
        return str(self.rng.randint(FIRST_YEAR, LAST_YEAR))

    def _tell_places(self) -> None:
        for place in self.places:
            region, year = self.rng.choice(self.regions), self.year()
            place.facts = {"region": region.name, "year": year}
            place.sentences = [f"{place.name} is a city in {region.name}.", f" It was founded in {year}."]
        for region in self.regions:
            capital = self.rng.choice(self.places).name
            region.facts = {"capital": capital}
            region.sentences = [f"{region.name} is a region with the capital {capital}."]

    def _tell_houses(self) -> None:
        for kind, houses in self.houses.items():
            for house in houses:
                city, year = self.rng.choice(self.places).name, self.year()
                house.facts = {"city": city, "year": year}
                house.sentences = [
                    f"{house.name} is a {HOUSE_NOUNS[kind]} based in {city}.",
                    f" It was founded in {year}.",
                ]

    def _tell_people(self) -> None:
        for number, person in enumerate(self.people):
            role = WORK_KINDS[number % len(WORK_KINDS)].role
            city, year = self.rng.choice(self.places).name, self.year()
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
            house, year = self.rng.choice(self.houses[kind.house]).name, self.year()
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


class Paragraphs:
    """All paragraphs of a world, from which a question gets its own and wrong ones."""

    def __init__(self, entities: Sequence[Entity], rng: random.Random) -> None:
        self._entities, self._rng = entities, rng
        self._by_word: dict[str, list[Entity]] = {}
        for entity in entities:
            for word in set(f"{entity.name} {entity.text}".replace(".", "").split()):
                if word[0].isupper():
                    self._by_word.setdefault(word, []).append(entity)

    def around(self, gold: Sequence[str], size: int = 10) -> list[Entity]:
        """The paragraphs of these titles among others, four of which share a word with them."""
        near = [
            entity for title in gold for entity in self._by_word[title.split()[0]] if entity.name not in gold
        ]
        chosen = {entity.name: entity for entity in self._rng.sample(near, min(4, len(near)))}
        while len(chosen) < size - len(gold):
            entity = self._rng.choice(self._entities)
            if entity.name not in gold:
                chosen[entity.name] = entity
        members = [*chosen.values(), *(entity for entity in self._entities if entity.name in gold)]
        self._rng.shuffle(members)
        return members


Rows = Sequence[Mapping[str, Any]]


def as_list(rows: Rows) -> bytes:
    """Rows as a JSON list with one row a line."""
    return ("[" + ",\n".join(map(_json, rows)) + "]\n").encode()


def as_lines(rows: Rows) -> bytes:
    """Rows as JSON lines."""
    return "".join(f"{_json(row)}\n" for row in rows).encode()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, gzipped, and print their sizes."""
    for name, content in files.items():
        # Neither a time nor a file name goes into the header, so that the file changes only with its content.
        packed = gzip.compress(content, 9, mtime=0)
        (folder / name).write_bytes(packed)
        print(f"{folder / name}: {content.count(bytes([10]))} rows, {len(packed) / 1e3:.0f} kB")


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"))
