"""Text of any script, alone, in vectors and in shared memory."""

from __future__ import annotations

import pickle

import pytest
from gymnasium.vector.utils import (
    batch_space,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import UnicodeText


def test_every_string_belongs_and_nothing_else():
    space = UnicodeText()
    assert "" in space
    assert "日本語\ud800🙂" in space
    assert b"bytes" not in space
    assert None not in space


def test_samples_repeat_with_their_seed():
    first, second = UnicodeText(seed=3), UnicodeText(seed=3)
    assert [first.sample() for _ in range(5)] == [second.sample() for _ in range(5)]
    assert len({first.sample() for _ in range(20)}) > 1


def test_spaces_are_equal_by_value_and_survive_pickling():
    assert UnicodeText() == UnicodeText(seed=1)
    assert UnicodeText() != UnicodeText(shared_bytes=8)
    assert pickle.loads(pickle.dumps(UnicodeText())) == UnicodeText()


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_texts_survive_json(texts):
    space = UnicodeText()
    assert space.from_jsonable(space.to_jsonable(texts)) == texts


def test_a_batch_holds_one_text_for_each_environment():
    batch = batch_space(UnicodeText(), 3)
    assert ("a", "", "ж") in batch
    assert list(iterate(batch, ["a", "b", "c"])) == ["a", "b", "c"]


@given(st.text(), st.text())
def test_shared_memory_shows_the_newest_text(old, new):
    space = UnicodeText(shared_bytes=4096)
    memory = create_shared_memory(space, n=2)
    seen = read_from_shared_memory(space, memory, n=2)
    write_to_shared_memory(space, 1, old, memory)
    assert seen[1] == old
    write_to_shared_memory(space, 1, new, memory)
    assert (seen[0], seen[1]) == ("", new)


def test_a_text_beyond_the_shared_memory_is_refused_with_the_way_out():
    space = UnicodeText(shared_bytes=8)
    memory = create_shared_memory(space, n=1)
    with pytest.raises(ValueError, match="shared_memory=False"):
        write_to_shared_memory(space, 0, "123456789", memory)
