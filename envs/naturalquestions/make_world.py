"""Makes the embedded question set: questions about an invented world as people type them, in the form of NQ.

Run it to write `train.jsonl.gz`, `validation.jsonl.gz` and `corpus.jsonl.gz` beside it; the same seed gives
the same rows anywhere:

    python envs/naturalquestions/make_world.py

Nobody and nothing in the world exists. As with the real set, all questions share one corpus, one paragraph
answers a question, several answers may be right, and questions are in lower case. Some ask for the thing that
the paragraph is about, most for what it tells. No paragraph is asked about in both splits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_r1_env.invented import Entity, World, as_lines, write

SEED, WORKS = 1, 200
COUNTS = {"train": 300, "validation": 200}

# By kind of thing: questions and the fact that answers each; without one, it is the name of the thing itself.
QUESTIONS = {
    "film": (
        ("who directed {name}", "maker"),
        ("who is the director of the film {name}", "maker"),
        ("when did the movie {name} come out", "year"),
        ("which studio made {name}", "house"),
        ("which film did {maker} make in {year}", ""),
    ),
    "novel": (
        ("who wrote {name}", "maker"),
        ("who is the author of {name}", "maker"),
        ("when was the book {name} published", "year"),
        ("who published {name}", "house"),
        ("which novel of {maker} was published in {year}", ""),
    ),
    "album": (
        ("who sings on {name}", "maker"),
        ("whose album is {name}", "maker"),
        ("when was {name} released", "year"),
        ("which label released the album {name}", "house"),
        ("which album did {maker} release in {year}", ""),
    ),
    "person": (
        ("where was {name} born", "city"),
        ("when was {name} born", "year"),
        ("where did {name} go to school", "school"),
        ("which {role} was born in {city} in {year}", ""),
    ),
    "house": (
        ("where is {name} based", "city"),
        ("when was {name} founded", "year"),
    ),
    "place": (
        ("which region is {name} in", "region"),
        ("what year was {name} founded", "year"),
        ("which city of {region} was founded in {year}", ""),
    ),
    "region": (("what is the capital of {name}", "capital"),),
}


def _kind(entity: Entity) -> str:
    facts = entity.facts
    if "role" in facts:
        return entity.words["noun"] if "maker" in facts else "person"
    return "place" if "region" in facts else "region" if "capital" in facts else "house"


def _questions(entities: list[Entity]) -> Iterator[tuple[str, Entity, str]]:
    """Every question that has one answer only, with the paragraph and the fact that it asks for."""
    asked = [
        (text.format_map(entity.facts | entity.words).lower(), entity, fact)
        for entity in entities
        for text, fact in QUESTIONS[_kind(entity)]
        if not fact or fact in entity.facts
    ]
    times = Counter(text for text, _, _ in asked)
    return (question for question in asked if times[question[0]] == 1)


def _answers(entity: Entity, fact: str, regions: Mapping[str, str]) -> list[str]:
    """Everything that counts as right, the best first."""
    answer = entity.facts[fact] if fact else entity.name
    if fact == "year":
        return [answer, f"in {answer}"]
    return [answer, f"{answer}, {regions[answer]}"] if answer in regions else [answer]


def splits() -> dict[str, list[dict[str, Any]]]:
    """The rows of both splits, and those of the corpus."""
    rng = random.Random(SEED)
    world = World(rng, WORKS, frozenset())
    entities = world.entities()
    regions = {place.name: place.facts["region"] for place in world.places}
    rng.shuffle(entities)
    cut = round(len(entities) * COUNTS["train"] / sum(COUNTS.values()))
    made = {"corpus": [{"id": n, "title": each.name, "text": each.text} for n, each in enumerate(entities)]}
    for split, part in (("train", entities[:cut]), ("validation", entities[cut:])):
        made[split] = [
            {
                "id": f"{split}_{number}",
                "question": text,
                "golden_answers": _answers(entity, fact, regions),
                "metadata": {"title": entity.name},
            }
            for number, (text, entity, fact) in enumerate(rng.sample(list(_questions(part)), COUNTS[split]))
        ]
    return made


def files() -> dict[str, bytes]:
    """The embedded files, unpacked."""
    return {f"{name}.jsonl.gz": as_lines(rows) for name, rows in splits().items()}


if __name__ == "__main__":
    write(Path(__file__).parent, files())
