"""Copying lessons: short texts that teach a fresh model to find a name in its prompt and to say it again.

Copying is what the policy needs most and what a small model learns last. Here nearly every text asks
for it many times, so that it comes within minutes instead of hours. A text is a list of segments, each
with whether it is to be learned.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_r1_env import invented

Segment = tuple[str, bool]
Segments = list[Segment]

QUESTIONS_BEFORE_NEW_WORLD = 150


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


make_world = _load(Path(__file__).parents[2] / "envs" / "hotpotqa" / "make_world.py")


def call(query: str) -> str:
    """The reply that searches for `query`, with the end of the turn."""
    return f'<tool_call>\n{{"name": "search", "arguments": {{"query": "{query}"}}}}\n</tool_call><|im_end|>'


def answer(text: str) -> str:
    """The reply that gives the final answer, with the end of the turn."""
    return f"<answer>{text}</answer><|im_end|>"


class Lessons:
    """An endless supply of lessons over ever new worlds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._renew()

    def next(self) -> Segments:
        """One text: one lesson, or a few of a kind in a row."""
        lesson, most = self.rng.choices(((self.repeat, 2), (self.look_up, 2), (self.ask, 6)), (35, 50, 15))[0]
        return [part for _ in range(self.rng.randint(1, most)) for part in (*lesson(), ("\n", False))]

    def repeat(self) -> Segments:
        """Names and years in a row, to be said again: all, their second words, or one of each pair."""
        entities = self._pick(self.rng.choice((2, 4, 6, 8, 12)))
        years = [str(self.rng.randint(invented.FIRST_YEAR, invented.LAST_YEAR)) for _ in entities[::3]]
        words = [*(entity.name for entity in entities), *years]
        self.rng.shuffle(words)
        form = self.rng.choice((self._again, self._second_words, self._pairs))
        return form(words)

    def look_up(self) -> Segments:
        """A few paragraphs, as the search tool returns them, then facts to be found in them."""
        entities = self._linked(self.rng.choice((1, 2, 2, 3, 3, 4)))
        lines = [f"{entity.name}: {''.join(entity.sentences)}" for entity in entities]
        if self.rng.random() < 0.7:
            text = "\n".join(f"[{number}] {line}" for number, line in enumerate(lines, start=1))
            head = f"<tool_response>\n{text}\n</tool_response>"
            head = f"<|im_start|>user\n{head}<|im_end|>\n<|im_start|>assistant\n"
        else:
            head = "\n".join(lines) + "\n"
        facts = [fact for entity in entities for fact in _facts(entity)]
        self.rng.shuffle(facts)
        segments = [(head, False)]
        for relation, name, value in facts[:10]:
            form = self.rng.choice((call, answer, None, None))
            segments += [(f"{relation} of {name}" + ("\n" if form else ": "), False)]
            segments += [(form(value) if form else value, True), ("\n", False)]
        return segments

    def ask(self) -> Segments:
        """A question and the search for the name in it."""
        entity = self._pick(1)[0]
        if "maker" in entity.facts:
            templates = make_world.WORK_QUESTIONS
        elif "role" in entity.facts:
            templates = make_world.PERSON_QUESTIONS
        else:
            templates = make_world.PLACE_QUESTIONS if "region" in entity.facts else make_world.HOUSE_QUESTIONS
        words = {
            "name": entity.name,
            "role": entity.facts.get("role"),
            "house": entity.facts.get("house noun"),
        }
        question = self.rng.choice(templates)[0].format(**words)
        head = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        return [(head, False), (call(entity.name), True)]

    def _renew(self) -> None:
        self.world = invented.World(random.Random(self.rng.randrange(1000, 10**9)), 240, frozenset())
        self.entities = self.world.entities()
        self.by_name = {entity.name: entity for entity in self.entities}
        self.left = QUESTIONS_BEFORE_NEW_WORLD

    def _pick(self, count: int) -> list[Any]:
        self.left -= 1
        if self.left < 0:
            self._renew()
        return self.rng.sample(self.entities, count)

    def _linked(self, count: int) -> list[Any]:
        """Entities the second of which, half of the time, is named by the first."""
        entities = self._pick(count)
        named = [self.by_name[value] for value in entities[0].facts.values() if value in self.by_name]
        if named and count > 1 and self.rng.random() < 0.5:
            entities[1] = self.rng.choice(named)
            entities = list({entity.name: entity for entity in entities}.values())
            self.rng.shuffle(entities)
        return entities

    def _again(self, words: list[str]) -> Segments:
        text = self.rng.choice((", ", "\n", " and ", " of ")).join(words) + "\n"
        return [(text, False), (text, True)]

    def _second_words(self, words: list[str]) -> Segments:
        segments = [(", ".join(words) + "\n", False)]
        for name in self.rng.sample(words, len(words)):
            first, space, rest = name.partition(" ")
            segments += [(first, False), (space + rest + "\n", bool(rest))]
        return segments

    def _pairs(self, words: list[str]) -> Segments:
        pairs = list(zip(words[::2], words[1::2], strict=False))
        segments = [("\n".join(f"{key}: {value}" for key, value in pairs) + "\n", False)]
        for key, value in self.rng.sample(pairs, len(pairs)):
            segments += [(f"{key}: ", False), (f"{value}\n", True)]
        return segments


def _facts(entity: Any) -> list[tuple[str, str, str]]:
    """What an entity's paragraph tells, as (relation in the words of the questions, name, value)."""
    relations = {"maker": entity.facts.get("role"), "house": entity.facts.get("house noun")}
    return [
        (relations.get(fact) or fact, entity.name, value)
        for fact, value in entity.facts.items()
        if fact not in ("role", "house noun")
    ]
