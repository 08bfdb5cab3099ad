"""What decoding and encoding again would change in sampled ids, and what that is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.audit import Audit, audit, model_log_probs
from agent_r1_env.cli import main
from agent_r1_env.episode import Episode, EpisodeFile, Step
from agent_r1_env.testing import ByteTokenizer, tiny_llama

END = 258


def episode(*replies: list[int]) -> Episode:
    return Episode("Test/E-v0", "t", 0, 0, [Step([1], ids, [-1.0] * len(ids)) for ids in replies])


SOUND = episode([*b"hello", END])
BROKEN = episode([*b"hi", END], [*b"a", 0xC3, *b"b", END])


def test_ids_that_come_back_are_no_drift() -> None:
    found = audit([SOUND], ByteTokenizer())
    assert (found.episodes, found.replies, found.tokens, found.changed_tokens) == (1, 1, 6, 0)
    assert found.moved is None


def test_a_changed_token_is_told_with_its_place_and_texts() -> None:
    found = audit([SOUND, BROKEN], ByteTokenizer())
    (reply,) = found.found
    (place,) = reply.places
    assert (place.episode, place.step, place.position) == (1, 1, 1)
    assert place.sampled == (0xC3,)
    assert place.encoded == tuple("\ufffd".encode())
    assert place.sampled_texts == ("#195",)
    assert found.changed_tokens == 1
    assert found.to_dict()["changed_fraction"] == 1 / 13


class Merging(ByteTokenizer):
    """Its encoder writes "ab" as one token, 300, which its sampler spells out."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids = super().encode(text)
        return [
            300 if ids[i : i + 2] == [97, 98] else token
            for i, token in enumerate(ids)
            if ids[max(0, i - 1) : i + 1] != [97, 98]
        ]

    def decode(self, token_ids: Any, *, skip_special_tokens: bool | None = None) -> str:
        spelt = [part for token in token_ids for part in ([97, 98] if token == 300 else [token])]
        return super().decode(spelt, skip_special_tokens=skip_special_tokens)


def test_a_merge_is_told_as_the_ids_on_both_sides() -> None:
    (reply,) = audit([episode([*b"xabx", END])], Merging()).found
    (place,) = reply.places
    assert (place.position, place.sampled, place.encoded) == (1, (97, 98), (300,))
    assert (place.sampled_texts, place.encoded_texts) == (("a", "b"), ("ab",))
    assert place.changed == 2


def test_the_log_prob_that_moves_is_asked_for_changed_replies_alone() -> None:
    asked: list[tuple[list[int], int]] = []

    def log_probs(ids: list[int], start: int) -> list[float]:
        asked.append((ids, start))
        return [-float(len(ids))] * (len(ids) - start)

    found = audit([SOUND, episode([*b"ab", END])], Merging(), log_probs)
    assert asked == [([1, 97, 98, END], 1), ([1, 300, END], 1)]
    (reply,) = found.found
    assert (reply.before, reply.after, reply.moved) == (-12.0, -6.0, 6.0)
    assert found.moved == 6.0


def test_the_worst_replies_come_first() -> None:
    episodes = [episode([*b"ab", END]), episode([*b"abxab", END]), SOUND]
    assert [reply.episode for reply in audit(episodes, Merging()).worst()] == [1, 0]

    def log_probs(ids: list[int], start: int) -> list[float]:
        return [-9.0 if ids == [1, 300, END] else 0.0]

    assert [reply.episode for reply in audit(episodes, Merging(), log_probs).worst(1)] == [0]


def test_episodes_without_ids_are_counted() -> None:
    assert audit([episode([])], ByteTokenizer()).without_ids == 1
    assert audit([], ByteTokenizer()) == Audit()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "episodes.jsonl"
    with EpisodeFile(path) as written:
        # In the alphabet of the tiny model the first ids are letters, and 129 is half a letter.
        written.append(episode([1, 2, 3]))
        written.append(episode([65, 129, 66]))
    return path


def test_log_probs_of_a_model_are_those_of_each_id_given_all_before(model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    llama = AutoModelForCausalLM.from_pretrained(model)
    ids = [5, 6, 7, 8]
    logits = llama(torch.tensor([ids])).logits[0].detach().log_softmax(-1)
    wanted = [float(logits[1, 7]), float(logits[2, 8])]
    assert model_log_probs(llama)(ids, 2) == pytest.approx(wanted, rel=1e-5)


def test_the_command_shows_the_worst_places(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(file), "--model", str(model), "--log-probs"]) == 0
    shown = capsys.readouterr().out
    assert "6 sampled tokens in 2 replies of 2 episodes" in shown
    assert "episode 1, step 0" in shown
    assert "log-prob " in shown
    assert main(["audit", str(file), "--model", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["changed_replies"], found["mean_moved"]) == (1, None)
    assert found["worst"][0]["places"][0]["sampled_texts"] == ["#129"]


def test_a_file_without_ids_says_how_to_get_one(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.jsonl"
    with EpisodeFile(path, ids=False) as written:
        written.append(SOUND)
    assert main(["audit", str(path), "--model", str(model)]) == 2
    assert "none with token ids" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "no.jsonl"), "--model", str(model)]) == 2
    assert "there is no file" in capsys.readouterr().err
