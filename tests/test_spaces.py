"""Text, chat messages and token ids: alone, in vectors and in shared memory."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy

import numpy as np
import pytest
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import example, given
from hypothesis import strategies as st

from agent_r1_env import UnicodeText
from agent_r1_env.spaces import ChatMessages, TokenIds

TEXTS = st.text(st.characters())  # surrogates, NUL and emoji among them
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXTS},
        optional={"name": TEXTS, "tool_call_id": TEXTS},
    )
)
IDS = st.lists(st.integers(0, 151_000)).map(lambda ids: np.array(ids, dtype=np.int64))
VALUES = st.one_of(
    st.tuples(st.just(UnicodeText(1 << 16)), TEXTS, TEXTS),
    st.tuples(st.just(ChatMessages(1 << 16)), MESSAGES, MESSAGES),
    st.tuples(st.just(TokenIds(shared_bytes=1 << 16)), IDS, IDS),
)
ODD = "\ud83d\ude42\ud800\x00🙂"
"""Two surrogates that JSON would join, one alone, a NUL and an emoji."""

SPACES = [
    pytest.param(UnicodeText, id="text"),
    pytest.param(ChatMessages, id="messages"),
    pytest.param(TokenIds, id="tokens"),
    pytest.param(lambda **options: TokenIds(7, **options), id="tokens of a vocabulary"),
]


def equal(one, other):
    np.testing.assert_equal(one, other)
    return True


# -- each space alone


def test_every_string_belongs_and_nothing_else():
    space = UnicodeText()
    assert "" in space
    assert "日本語\ud800🙂" in space
    assert b"bytes" not in space
    assert None not in space


@pytest.mark.parametrize(
    "conversation",
    [
        pytest.param([], id="empty"),
        pytest.param([{"role": "user", "content": ODD}], id="any Unicode"),
        pytest.param(({"role": "system", "content": ""},), id="a tuple"),
        pytest.param([{"role": "tool", "content": "4", "tool_call_id": "c1", "name": "add"}], id="a result"),
    ],
)
def test_conversations_belong(conversation):
    assert conversation in ChatMessages()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("user: hello", id="text"),
        pytest.param({"role": "user", "content": "hello"}, id="one message alone"),
        pytest.param([{"role": "user"}], id="no content"),
        pytest.param([{"content": "hello"}], id="no role"),
        pytest.param([{"role": "wizard", "content": "hello"}], id="an unknown role"),
        pytest.param([{"role": "user", "content": None}], id="no text"),
        pytest.param([{"role": "user", "content": "hello", "answer": "4"}], id="a key too many"),
        pytest.param([{"role": np.zeros(2), "content": "hello"}], id="a role of another type"),
        pytest.param(["hello"], id="texts"),
    ],
)
def test_what_is_no_conversation_does_not_belong(value):
    assert value not in ChatMessages()


def test_ids_below_the_size_of_the_vocabulary_belong():
    space = TokenIds(10)
    assert np.array([], dtype=np.int64) in space
    assert np.array([0, 9]) in space
    assert np.array([10]) not in space
    assert np.array([10]) in TokenIds()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([1, 2], id="a list"),
        pytest.param(np.array([1, 2], dtype=np.int32), id="another type"),
        pytest.param(np.array([1.0]), id="numbers that are not whole"),
        pytest.param(np.array([[1, 2]]), id="two dimensions"),
        pytest.param(np.array(1), id="no dimension"),
        pytest.param(np.array([-1]), id="below zero"),
    ],
)
def test_what_is_no_sequence_of_ids_does_not_belong(value):
    assert value not in TokenIds()


@pytest.mark.parametrize("make", SPACES)
def test_samples_belong_and_repeat_with_their_seed(make):
    first, second = make(seed=3), make(seed=3)
    samples = [first.sample() for _ in range(50)]
    assert all(sample in first for sample in samples)
    assert equal(samples, [second.sample() for _ in range(50)])
    assert len({repr(sample) for sample in samples}) > 1
    assert first.seed(3) == second.seed(3)
    assert equal(first.sample(), second.sample())


@pytest.mark.parametrize("make", SPACES)
def test_spaces_are_equal_by_value_and_survive_copies(make):
    space = make()
    assert space == make(seed=1)
    assert hash(space) == hash(make(seed=1))
    assert space != make(shared_bytes=8)
    assert pickle.loads(pickle.dumps(space)) == space
    assert deepcopy(space) == space
    assert eval(repr(space)) == space
    assert not space.is_np_flattenable


def test_spaces_of_different_values_differ():
    assert len({UnicodeText(), ChatMessages(), TokenIds(), TokenIds(7), TokenIds(8)}) == 5


@pytest.mark.parametrize("make", SPACES)
def test_a_copied_space_goes_on_as_the_one_it_came_from(make):
    space = make(seed=5)
    space.sample()
    copy = pickle.loads(pickle.dumps(space))
    assert equal(copy.sample(), space.sample())


@given(VALUES)
@example((UnicodeText(), ODD, ""))
@example((ChatMessages(), [{"role": "user", "content": ODD}], []))
def test_values_survive_json(drawn):
    space, *values = drawn
    written = json.dumps(space.to_jsonable(values))
    assert equal(space.from_jsonable(json.loads(written)), values)


def test_no_room_and_no_vocabulary_are_refused():
    with pytest.raises(ValueError, match="shared_bytes must be at least 1, not 0"):
        UnicodeText(shared_bytes=0)
    with pytest.raises(ValueError, match="vocabulary must hold at least 1 token, not 0"):
        TokenIds(0)


# -- in vectors


@pytest.mark.parametrize("make", SPACES)
def test_a_batch_holds_one_value_for_each_environment(make):
    space = make(seed=1)
    batch = batch_space(space, 3)
    values = [space.sample() for _ in range(3)]
    joined = concatenate(space, values, create_empty_array(space, 3))
    assert joined in batch
    assert equal(list(iterate(batch, joined)), values)
    assert create_empty_array(space, 3) in batch
    assert len({repr(sample) for sample in batch.sample()}) > 1


def test_spaces_of_other_options_make_a_batch_too():
    assert is_space_dtype_shape_equiv(TokenIds(3), TokenIds(9))
    assert not is_space_dtype_shape_equiv(TokenIds(3), TokenIds(3, shared_bytes=8))
    assert not is_space_dtype_shape_equiv(TokenIds(), UnicodeText())
    batch = batch_differing_spaces([TokenIds(3), TokenIds(9)])
    assert (np.array([2]), np.array([8])) in batch
    assert (np.array([8]), np.array([2])) not in batch


# -- in shared memory


@given(VALUES)
@example((UnicodeText(), "longer than the next", ODD))
@example((ChatMessages(), [{"role": "user", "content": "a"}], [{"role": "user", "content": ODD}]))
def test_shared_memory_shows_the_newest_value(drawn):
    space, old, new = drawn
    memory = create_shared_memory(space, n=2)
    seen = read_from_shared_memory(space, memory, n=2)
    empty = create_empty_array(space, 1)[0]
    write_to_shared_memory(space, 1, old, memory)
    assert equal(seen[1], old)
    write_to_shared_memory(space, 1, new, memory)
    assert equal(list(seen), [empty, new])
    assert seen == (empty, new)
    assert deepcopy(seen) in batch_space(space, 2)


@pytest.mark.parametrize("make", SPACES)
def test_a_copy_of_what_was_read_stays_as_it_was(make):
    space = make(seed=2)
    memory = create_shared_memory(space, n=1)
    seen = read_from_shared_memory(space, memory, n=1)
    first, second = space.sample(), space.sample()
    write_to_shared_memory(space, 0, first, memory)
    kept = deepcopy(seen)
    write_to_shared_memory(space, 0, second, memory)
    assert equal(kept, (first,))
    assert equal(seen[:], (second,))
    assert seen != kept
    assert repr(seen) == repr((second,))


def test_ids_that_were_read_may_be_changed():
    space = TokenIds()
    memory = create_shared_memory(space, n=1)
    write_to_shared_memory(space, 0, np.array([1, 2]), memory)
    (ids,) = deepcopy(read_from_shared_memory(space, memory, n=1))
    ids[0] = 5
    assert ids.tolist() == [5, 2]


@pytest.mark.parametrize(
    ("space", "fits", "beyond"),
    [
        pytest.param(UnicodeText(8), "é" * 4, "é" * 4 + "a", id="text"),
        pytest.param(ChatMessages(8), [], [{"role": "user", "content": ""}], id="messages"),
        pytest.param(TokenIds(shared_bytes=8), np.array([1]), np.array([1, 2]), id="tokens"),
    ],
)
def test_a_value_beyond_the_shared_memory_is_refused_with_the_way_out(space, fits, beyond):
    memory = create_shared_memory(space, n=1)
    seen = read_from_shared_memory(space, memory, n=1)
    write_to_shared_memory(space, 0, fits, memory)
    with pytest.raises(ValueError, match=r"shared_memory=False.*more shared_bytes"):
        write_to_shared_memory(space, 0, beyond, memory)
    assert equal(seen[0], fits)
