"""Rows as arrays: padded on either side, in batches of a bounded size, and packed into sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.packing import Padded, bins, lengths, micro_batches, packed, padded
from agent_r1_env.testing import tiny_llama
from agent_r1_env.trajectory import Row

PAD = 99


def row(prompt: Sequence[int], completion: Sequence[int], mask: Sequence[int], episode: int = 0) -> Row:
    """A row whose log-probs are minus its ids and whose advantages are 0.5, where the mask is 1."""
    return Row(
        list(prompt),
        list(completion),
        list(mask),
        [-float(token) * sampled for token, sampled in zip(completion, mask, strict=True)],
        [0.5 * sampled for sampled in mask],
        episode,
    )


LONG = row([1, 2], [3, 4, 5], [1, 0, 1], episode=7)
SHORT = row([6], [8], [1], episode=9)


def test_rows_are_padded_on_the_right() -> None:
    made = padded([LONG, SHORT], PAD)
    assert made.input_ids.tolist() == [[1, 2, 3, 4, 5], [6, 8, PAD, PAD, PAD]]
    assert made.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert made.loss_mask.tolist() == [[0, 0, 1, 0, 1], [0, 1, 0, 0, 0]]
    assert made.advantage_mask.tolist() == made.loss_mask.tolist()
    assert made.advantages.tolist() == [[0, 0, 0.5, 0, 0.5], [0, 0.5, 0, 0, 0]]
    assert made.logprobs.tolist() == [[0, 0, -3, 0, -5], [0, -8, 0, 0, 0]]
    assert made.position_ids.tolist() == [[0, 1, 2, 3, 4], [0, 1, 0, 0, 0]]
    assert made.episode.tolist() == [7, 9]


def test_rows_are_padded_on_the_left() -> None:
    made = padded([LONG, SHORT], PAD, "left")
    assert made.input_ids.tolist() == [[1, 2, 3, 4, 5], [PAD, PAD, PAD, 6, 8]]
    assert made.position_ids.tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]
    assert made.loss_mask.tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 0, 1]]


def test_packed_rows_begin_anew() -> None:
    (made,) = packed([LONG, SHORT], 8)
    assert made.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 8]
    assert made.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert made.cu_seqlens.tolist() == [0, 5, 7]
    assert made.max_seqlen == 5
    assert made.loss_mask.tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert (made.row.tolist(), made.episode.tolist()) == ([0, 1], [7, 9])
    assert [part.tolist() for part in made.split(made.input_ids)] == [[1, 2, 3, 4, 5], [6, 8]]


def test_a_packed_row_looks_at_no_other() -> None:
    (made,) = packed([SHORT, SHORT], 8)
    assert made.block_mask()[0, 0].tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, True, True],
    ]


def test_a_row_without_a_prompt_is_not_packed() -> None:
    with pytest.raises(ValueError, match="the row before would predict its first token"):
        packed([SHORT, row([], [1], [1])], 8)


def test_no_rows_are_no_batch() -> None:
    with pytest.raises(ValueError, match="there are no rows"):
        padded([], PAD)
    assert packed([], 8) == []


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match="not 'top'"):
        padded([SHORT], PAD, "top")  # type: ignore[arg-type]


sizes = st.lists(st.integers(1, 30), max_size=20)


@given(sizes, st.integers(1, 40))
def test_micro_batches_hold_every_row_once_and_keep_to_the_budget(found: list[int], tokens: int) -> None:
    made = micro_batches(found, tokens)
    assert sorted(place for batch in made for place in batch) == list(range(len(found)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(found[place] for place in batch) <= tokens
    longest = [max(found[place] for place in batch) for batch in made]
    assert longest == sorted(longest)


@given(sizes, st.integers(1, 40))
def test_bins_hold_every_row_once_and_keep_to_the_budget(found: list[int], tokens: int) -> None:
    made = bins(found, tokens)
    assert sorted(place for each in made for place in each) == list(range(len(found)))
    assert all(len(each) == 1 or sum(found[place] for place in each) <= tokens for each in made)
    # First-fit decreasing is never worse than 11/9 of the best plus one; half-full bins are.
    short = [size for size in found if size <= tokens]
    if len(short) == len(found):
        assert len(made) <= 2 * -(-sum(found) // tokens)


@pytest.mark.parametrize("act", [micro_batches, bins])
def test_a_budget_of_nothing_is_refused(act: Any) -> None:
    with pytest.raises(ValueError, match="at least 1 token, not 0"):
        act([1], 0)


def test_arrays_become_tensors_that_models_take() -> None:
    torch = pytest.importorskip("torch")
    tensors = padded([LONG, SHORT], PAD).tensors()
    assert {name: tensors[name].dtype for name in ("input_ids", "advantages")} == {
        "input_ids": torch.int64,
        "advantages": torch.float32,
    }


def some_rows(vocabulary: int) -> list[Row]:
    random = np.random.default_rng(0)
    made = []
    for number, size in enumerate([5, 17, 3, 9, 30, 12]):
        ids = random.integers(0, vocabulary, size + 4).tolist()
        made.append(row(ids[:4], ids[4:], [1] * size, number))
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tiny_llama(tmp_path_factory.mktemp("llama"))

    def load(attention: str) -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation=attention
        ).double()

    return load


def of_next(logits: Any, ids: Any) -> Any:
    """(..., T) log-prob of each token given those before it; 0 for the first."""
    import torch

    found = logits[..., :-1, :].log_softmax(-1).gather(-1, ids[..., 1:, None])[..., 0]
    return torch.nn.functional.pad(found, (1, 0))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_packed_log_probs_are_those_of_rows_alone(model: Any, attention: str) -> None:
    import torch

    llama, rows = model(attention), some_rows(250)
    alone = []
    for each in rows:
        ids = torch.tensor([each.prompt_ids + each.completion_ids])
        alone.append(of_next(llama(ids).logits, ids)[0, 1:])
    packs = packed(rows, 50)
    assert 1 < len(packs) < len(rows)
    seen = []
    for pack in packs:
        given, allowed = pack.tensors(), torch.from_numpy(pack.block_mask())
        if attention == "eager":  # it adds the mask to the scores
            allowed = torch.zeros(allowed.shape).double().masked_fill(~allowed, -1e9)
        out = llama(
            given["input_ids"][None],
            position_ids=given["position_ids"][None],
            attention_mask=allowed,
        )
        for place, found in zip(
            pack.row.tolist(), pack.split(of_next(out.logits, given["input_ids"][None])[0]), strict=True
        ):
            seen.append(place)
            torch.testing.assert_close(found[1:], alone[place], rtol=1e-6, atol=0)
    assert sorted(seen) == list(range(len(rows)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_log_probs_are_those_of_rows_alone(model: Any, side: Any) -> None:
    import torch

    llama, rows = model("sdpa"), some_rows(250)
    made: Padded = padded(rows, 0, side)
    given = made.tensors()
    out = llama(
        given["input_ids"], attention_mask=given["attention_mask"], position_ids=given["position_ids"]
    )
    found = of_next(out.logits, given["input_ids"])
    for number, each in enumerate(rows):
        ids = torch.tensor([each.prompt_ids + each.completion_ids])
        held = found[number][given["attention_mask"][number].bool()]
        torch.testing.assert_close(held[1:], of_next(llama(ids).logits, ids)[0, 1:], rtol=1e-6, atol=0)


def test_the_mask_is_what_keeps_packed_rows_apart(model: Any) -> None:
    import torch

    llama, rows = model("sdpa"), some_rows(250)
    (pack,) = packed(rows[:2], 100)
    ids = pack.tensors()["input_ids"][None]
    careless = pack.split(of_next(llama(ids).logits, ids)[0])[1][1:]
    alone = torch.tensor([rows[0].prompt_ids + rows[0].completion_ids])
    assert (careless - of_next(llama(alone).logits, alone)[0, 1:]).abs().max() > 1e-2


def test_lengths_count_the_whole_row() -> None:
    assert lengths([LONG, SHORT]) == [5, 2]
