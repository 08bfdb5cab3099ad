"""Makes the embedded question set: an invented world in the official form of MuSiQue.

Run it to write `train.jsonl.gz` and `validation.jsonl.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/musique/make_world.py

Nobody and nothing in the world exists; a whole name belongs to one split only. A question takes two to four
hops, in the six shapes of the real set: chains (`2hop`, `3hop1`, `4hop1`), and two ends that meet in the road
between two cities (`3hop2`; `4hop2` goes on from there; `4hop3` has a longer way to it). No paragraph but the
last one holds the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from agent_r1_env.invented import TITLE_STARTS, Entity, Paragraphs, World, as_lines, write

COUNTS = {  # in about the shares of the real set
    "train": {"2hop": 150, "3hop1": 60, "4hop1": 40, "3hop2": 20, "4hop2": 10, "4hop3": 20},
    "validation": {"2hop": 100, "3hop1": 40, "4hop1": 26, "3hop2": 14, "4hop2": 7, "4hop3": 13},
}
SEEDS, WORKS, ROADS = {"train": 1, "validation": 2}, {"train": 200, "validation": 150}, 70

# How a question calls what a fact leads to, and the relation in its decomposition. The words are not those of
# the paragraphs where a search for them would find the end of a chain at once.
LINKS = {
    "maker": ("the {role} of {name}", "{role}"),
    "house": ("the {house} of {name}", "{house}"),
    "school": ("the school of {name}", "educated at"),
    "born in": ("the birthplace of {name}", "place of birth"),
    "city": ("the home city of {name}", "headquarters location"),
    "region": ("the province of {name}", "located in the administrative territorial entity"),
    "capital": ("the seat of {name}", "capital"),
}


@dataclass(frozen=True)
class Hop:
    """One step: the paragraph, the fact of it that is needed, and the question that asks for it alone."""

    entity: Entity
    fact: str
    question: str

    @property
    def answer(self) -> str:
        return self.entity.facts[self.fact]


@dataclass(frozen=True)
class Chain:
    """Hops and what they come to: words that call the last answer, or in the end the question for it."""

    words: str
    hops: tuple[Hop, ...] = ()

    @property
    def answer(self) -> str:
        return self.hops[-1].answer

    @property
    def subject(self) -> str:
        """What a hop from here on asks about: the answer of the last one, by its number."""
        return f"#{len(self.hops)}" if self.hops else self.words

    @property
    def sound(self) -> bool:
        """Whether the hops lead through different things and only the last of them tells the answer."""
        names = [hop.entity.name for hop in self.hops] + [self.answer]
        told = [hop.entity.text for hop in self.hops[:-1]] + [self.words]
        return len(set(names)) == len(names) and not any(self.answer in text for text in told)


class RoadWorld(World):
    """A world with roads between its cities, at most one between two."""

    def __init__(self, rng: random.Random, works: int, avoid: frozenset[str]) -> None:
        super().__init__(rng, works, avoid)
        pairs = rng.sample(list(combinations(self.places, 2)), ROADS)
        self.roads = self.named(ROADS, TITLE_STARTS, ["Road", "Pass", "Trail"])
        for road, (start, end) in zip(self.roads, pairs, strict=True):
            opener, year = rng.choice(self.people).name, self.year()
            road.facts = {"start": start.name, "end": end.name, "opener": opener, "year": year}
            road.sentences = [
                f"{road.name} is a road between {start.name} and {end.name}.",
                f" It was opened by {opener} in {year}.",
            ]

    def entities(self) -> list[Entity]:
        return [*super().entities(), *self.roads]


class Asker:
    """Questions of each shape about one world."""

    def __init__(self, world: RoadWorld) -> None:
        self.world = world
        self.by_name = {entity.name: entity for entity in world.entities()}
        self._ends = {hops: self._ends_in_cities(hops) for hops in (1, 2)}

    def ask(self, shape: str, count: int) -> list[Chain]:
        """So many questions of one shape."""
        questions = {
            "2hop": lambda: self._asked(self._chains(1)),
            "3hop1": lambda: self._asked(self._chains(2)),
            "4hop1": lambda: self._asked(self._chains(3)),
            "3hop2": lambda: self._about_roads(1),
            "4hop2": lambda: self._asked(self._openers()),
            "4hop3": lambda: self._about_roads(2),
        }
        return self.world.rng.sample([chain for chain in questions[shape]() if chain.sound], count)

    def _chains(self, hops: int) -> Iterator[Chain]:
        """Every way of so many hops from one thing to another; without any, the things themselves."""
        if hops:
            for chain in self._chains(hops - 1):
                yield from self._longer(chain)
        else:
            yield from map(Chain, self.by_name)

    def _longer(self, chain: Chain) -> Iterator[Chain]:
        """A chain with one hop more to another thing."""
        entity = self._reached(chain)
        for fact in entity.facts:
            link = "born in" if fact == "city" and "role" in entity.facts else fact
            if link in LINKS:
                words, relation = (
                    part.format_map({**entity.words, "name": chain.words}) for part in LINKS[link]
                )
                yield Chain(words, (*chain.hops, Hop(entity, fact, f"{chain.subject} >> {relation}")))

    def _asked(self, chains: Iterable[Chain]) -> Iterator[Chain]:
        """Questions for a fact of what a chain leads to."""
        for chain in chains:
            entity = self._reached(chain)
            if "year" in entity.facts:
                form = "When was {} born?" if "role" in entity.facts else "When was {} founded?"
                hop = Hop(entity, "year", form.format(chain.subject))
                yield Chain(form.format(chain.words), (*chain.hops, hop))
            for longer in self._longer(chain):
                yield Chain(f"What is {longer.words}?", longer.hops)

    def _reached(self, chain: Chain) -> Entity:
        return self.by_name[chain.answer if chain.hops else chain.words]

    def _ends_in_cities(self, hops: int) -> dict[str, list[Chain]]:
        cities: dict[str, list[Chain]] = {place.name: [] for place in self.world.places}
        for chain in self._chains(hops):
            if chain.answer in cities:
                cities[chain.answer].append(chain)
        return cities

    def _roads(self, hops: int) -> Iterator[tuple[Entity, str, str, tuple[Hop, ...]]]:
        """Roads with the words for one, the same by the numbers of the hops, and those hops.

        One end is found in ``hops`` hops, the other in one.
        """
        for road in self.world.roads:
            cities = road.facts["start"], road.facts["end"]
            for start, end in (cities, cities[::-1]):
                for one, other in product(self._ends[hops][start], self._ends[1][end]):
                    words = f"the road between {one.words} and {other.words}"
                    yield road, words, f"the road between #{hops} and #{hops + 1}", one.hops + other.hops

    def _about_roads(self, hops: int) -> Iterator[Chain]:
        for road, words, numbers, found in self._roads(hops):
            for fact, form in (("year", "When was {} opened?"), ("opener", "Who opened {}?")):
                yield Chain(form.format(words), (*found, Hop(road, fact, form.format(numbers))))

    def _openers(self) -> Iterator[Chain]:
        for road, words, numbers, found in self._roads(1):
            hop = Hop(road, "opener", f"Who opened {numbers}?")
            yield Chain(f"the person who opened {words}", (*found, hop))


def _aliases(world: World, answer: str) -> list[str]:
    """Other names under which an answer counts as right."""
    if answer in {place.name for place in world.places}:
        return [f"{answer} City", f"the city of {answer}"]
    if answer in {person.name for person in world.people}:
        first, last = answer.split()
        return [f"{first[0]}. {last}"]
    return []


def rows(split: str, avoid: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """The questions of one split; nothing in its world has one of the names to avoid."""
    rng = random.Random(SEEDS[split])
    world = RoadWorld(rng, WORKS[split], avoid)
    asker, paragraphs = Asker(world), Paragraphs(world.entities(), rng)
    asked = [(shape, chain) for shape, count in COUNTS[split].items() for chain in asker.ask(shape, count)]
    rng.shuffle(asked)
    facts = ((entity.name, fact) for entity in world.entities() for fact in entity.facts)
    numbers = {fact: number for number, fact in enumerate(facts, start=1)}
    return [_row(shape, chain, paragraphs, numbers, _aliases(world, chain.answer)) for shape, chain in asked]


def _row(
    shape: str,
    chain: Chain,
    paragraphs: Paragraphs,
    numbers: Mapping[tuple[str, str], int],
    aliases: list[str],
) -> dict[str, Any]:
    titles = [hop.entity.name for hop in chain.hops]
    around = paragraphs.around(titles)
    place = {entity.name: idx for idx, entity in enumerate(around)}
    ids = [numbers[hop.entity.name, hop.fact] for hop in chain.hops]
    return {
        "id": f"{shape}__{'_'.join(map(str, ids))}",
        "paragraphs": [
            {
                "idx": idx,
                "title": entity.name,
                "paragraph_text": entity.text,
                "is_supporting": entity.name in titles,
            }
            for idx, entity in enumerate(around)
        ],
        "question": chain.words,
        "question_decomposition": [
            {
                "id": number,
                "question": hop.question,
                "answer": hop.answer,
                "paragraph_support_idx": place[hop.entity.name],
            }
            for number, hop in zip(ids, chain.hops, strict=True)
        ],
        "answer": chain.answer,
        "answer_aliases": aliases,
        "answerable": True,
    }


def files() -> dict[str, bytes]:
    """The embedded files, unpacked."""
    train = rows("train")
    names = frozenset(paragraph["title"] for row in train for paragraph in row["paragraphs"])
    return {"train.jsonl.gz": as_lines(train), "validation.jsonl.gz": as_lines(rows("validation", names))}


if __name__ == "__main__":
    write(Path(__file__).parent, files())
