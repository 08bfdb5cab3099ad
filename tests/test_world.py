"""The invented world, and the embedded questions of HotpotQA that are asked about it."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import invented
from agent_r1_env.catalog import builtin_root
from agent_r1_env.loading import load_target

FOLDER = builtin_root() / "envs" / "hotpotqa"
SPLITS = ("train", "validation")
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    return {
        split: json.loads(gzip.decompress((FOLDER / f"{split}.json.gz").read_bytes())) for split in SPLITS
    }


def names(rows: Rows) -> frozenset[str]:
    return frozenset(title for row in rows for title, _ in row["context"])


def paragraphs(row: dict[str, Any]) -> dict[str, str]:
    return {title: "".join(sentences) for title, sentences in row["context"]}


def test_the_script_makes_the_committed_files_again() -> None:
    for name, content in load_target("./make_world.py:files", FOLDER)().items():
        assert gzip.decompress((FOLDER / name).read_bytes()) == content


def test_another_seed_makes_another_world() -> None:
    first, again, other = (
        invented.World(random.Random(seed), 40, frozenset()).entities() for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_a_world_avoids_the_names_it_is_told_to() -> None:
    avoid = frozenset(entity.name for entity in invented.World(random.Random(1), 40, frozenset()).entities())
    other = invented.World(random.Random(1), 40, avoid).entities()
    assert avoid.isdisjoint(entity.name for entity in other)


def test_a_paragraph_tells_every_fact_of_its_entity() -> None:
    for entity in invented.World(random.Random(3), 40, frozenset()).entities():
        for fact in set(entity.facts) - {"role", "house noun"}:
            assert entity.facts[fact] in entity.sentences[entity.sentence(fact)]


def test_a_question_gets_its_own_paragraphs_among_others() -> None:
    made = invented.World(random.Random(3), 40, frozenset())
    gold = [made.works[0].name, made.people[0].name]
    found = [each.name for each in invented.Paragraphs(made.entities(), random.Random(0)).around(gold)]
    assert len(found) == len(set(found)) == 10
    assert set(gold) < set(found)


def test_files_are_written_alike_whenever_they_are(tmp_path: Path) -> None:
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        invented.write(tmp_path / name, {"x.json.gz": invented.as_list([{"a": 1}, {"a": 2}])})
        written.append((tmp_path / name / "x.json.gz").read_bytes())
    assert written[0] == written[1]
    assert json.loads(gzip.decompress(written[0])) == [{"a": 1}, {"a": 2}]


def test_names_of_one_split_are_words_of_the_shared_lists(rows: dict[str, Rows]) -> None:
    words = {word for part in invented.WORDS for word in part} | set(invented.HOUSE_NOUNS)
    for split in SPLITS:
        assert {word for name in names(rows[split]) for word in name.split()} <= words


def test_no_name_stands_in_both_splits(rows: dict[str, Rows]) -> None:
    train, validation = (names(rows[split]) for split in SPLITS)
    assert train.isdisjoint(validation)
    for name in validation:
        assert not any(name in row["question"] or name == row["answer"] for row in rows["train"])


def test_the_set_is_large_enough_and_small_on_disk(rows: dict[str, Rows]) -> None:
    assert len(rows["train"]) >= 2000
    assert len(rows["validation"]) >= 300
    assert len(names(rows["train"]) | names(rows["validation"])) >= 1000
    assert sum((FOLDER / f"{split}.json.gz").stat().st_size for split in SPLITS) < 3_000_000


@pytest.mark.parametrize("split", SPLITS)
def test_rows_have_the_official_form(split: str, rows: dict[str, Rows]) -> None:
    keys = {"_id", "question", "answer", "supporting_facts", "context", "type", "level"}
    assert len({row["_id"] for row in rows[split]}) == len(rows[split])
    assert len({row["question"] for row in rows[split]}) == len(rows[split])
    for row in rows[split]:
        assert set(row) == keys
        assert row["type"] in ("bridge", "comparison")
        assert len(row["context"]) == 10
        texts = dict(row["context"])
        assert len(texts) == 10
        assert all(1 <= len(sentences) <= 3 for sentences in texts.values())
        assert len({title for title, _ in row["supporting_facts"]}) == 2
        assert all(number < len(texts[title]) for title, number in row["supporting_facts"])


@pytest.mark.parametrize("split", SPLITS)
def test_a_title_always_names_the_same_paragraph(split: str, rows: dict[str, Rows]) -> None:
    seen: dict[str, str] = {}
    for row in rows[split]:
        for title, text in paragraphs(row).items():
            assert seen.setdefault(title, text) == text


@pytest.mark.parametrize("split", SPLITS)
def test_a_bridge_needs_both_paragraphs_in_turn(split: str, rows: dict[str, Rows]) -> None:
    bridges = [row for row in rows[split] if row["type"] == "bridge"]
    assert 0.7 < len(bridges) / len(rows[split]) < 0.9
    for row in bridges:
        texts = {
            title: texts[number]
            for title, texts in row["context"]
            for t, number in row["supporting_facts"]
            if t == title
        }
        (first, _), (second, _) = row["supporting_facts"]
        assert first in row["question"]
        assert second not in row["question"]
        assert second in texts[first]
        assert row["answer"] in texts[second]
        assert row["answer"] not in row["question"]
        assert row["answer"] not in paragraphs(row)[first]


@pytest.mark.parametrize("split", SPLITS)
def test_a_comparison_follows_from_the_two_sentences(split: str, rows: dict[str, Rows]) -> None:
    kinds = set()
    for row in rows[split]:
        if row["type"] != "comparison":
            continue
        first, second = (
            next(texts[number] for title, texts in row["context"] if title == fact)
            for fact, number in row["supporting_facts"]
        )
        names = [title for title, _ in row["supporting_facts"]]
        assert all(name in row["question"] for name in names)
        # The last word of each sentence is its year, the one after "born in" its city.
        if row["answer"] in ("yes", "no"):
            cities = [text.split(" born in ")[1].split()[0] for text in (first, second)]
            assert row["answer"] == ("yes" if cities[0] == cities[1] else "no")
        else:
            years = [int(text.rstrip(".").split()[-1]) for text in (first, second)]
            assert row["answer"] == names[years.index(min(years))]
        kinds.add(row["answer"] if row["answer"] in ("yes", "no") else row["question"].split()[0])
    assert kinds == {"yes", "no", "Who", "Which"}
