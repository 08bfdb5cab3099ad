"""Numbers in few bytes: they read, compare, join and travel as the lists they stand for."""

from __future__ import annotations

import copy
import json
import math
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env.compact import Numbers, Tape, floats, ints, narrow, same
from agent_r1_env.episode import Episode, Step

IDS = st.lists(st.integers(0, 2**40), max_size=12)
FLOATS = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=12)


@given(IDS, st.data())
def test_whole_numbers_act_as_their_list(values: list[int], data: st.DataObject) -> None:
    held = ints(values)
    assert held == values and values == held and held == tuple(values)
    assert list(held) == values and len(held) == len(values) and bool(held) == bool(values)
    assert all(type(each) is int for each in held)
    assert held + [1] == [*values, 1] and [1] + held == [1, *values]
    assert held + held == values + values
    assert repr(held) == repr(values)
    cut = data.draw(st.slices(len(values)))
    assert held[cut] == values[cut]
    for place in range(-len(values), len(values)):
        assert held[place] == values[place]
        assert values[place] in held
    assert held != [*values, 0] and held != "text" and held != [v + 1 for v in values] + [0]


@given(FLOATS)
def test_log_probs_come_back_as_they_went_in(values: list[float]) -> None:
    assert [repr(each) for each in floats(values)] == [repr(each) for each in values]
    assert floats(values) == values, "NaN is equal to itself, as in a list of the same one"
    assert pickle.loads(pickle.dumps(floats(values))) == floats(values)


def test_numbers_take_four_bytes_where_that_changes_none() -> None:
    assert ints([1, 2]).array.dtype == np.int32
    assert ints([1, 2**40]).array.dtype == ints(np.array([1, 2**40])).array.dtype == np.int64
    assert floats([0.5, -1.25, math.nan, math.inf]).array.dtype == np.float32
    assert floats([0.1]).array.dtype == floats([1e300]).array.dtype == np.float64
    assert narrow(np.array([float(np.float32(-0.1))])).dtype == np.float32


def test_versions_that_are_all_the_same_take_no_bytes() -> None:
    held = same([7] * 1000)
    assert held == [7] * 1000
    assert held.array.strides == (0,)
    assert same([7, 8]) == [7, 8]
    assert pickle.loads(pickle.dumps(held)) == held


def test_an_index_behind_the_end_is_refused() -> None:
    for place in (2, -3):
        with pytest.raises(IndexError):
            ints([1, 2])[place]
    with pytest.raises(TypeError):
        ints([1, 2])[0] = 3  # type: ignore[index]


def test_numpy_takes_them_as_they_are() -> None:
    held = ints([1, 2, 3])
    assert np.shares_memory(np.asarray(held), held.array)
    assert not np.shares_memory(np.array(held, dtype=np.int64), held.array)
    assert np.concatenate([held, held[1:]]).tolist() == [1, 2, 3, 2, 3]


def test_what_numpy_takes_cannot_be_written_to() -> None:
    held = ints([1, 2, 3])
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(held[1:])[0] = 9
    np.array(held)[0] = 9
    assert held == [1, 2, 3]


def test_a_prompt_that_goes_on_from_the_last_reply_is_held_once() -> None:
    tape = Tape()
    first, said = tape.ids([1, 2], [3])
    second, more = tape.ids([1, 2, 3, 4], [5, 6])
    assert second == [1, 2, 3, 4], "before it is packed"
    other, _ = tape.ids([9, 2, 3], [4])
    tape.pack()
    assert (first, said, second, more, other) == ([1, 2], [3], [1, 2, 3, 4], [5, 6], [9, 2, 3])
    assert np.shares_memory(first.array, second.array) and np.shares_memory(said.array, second.array)
    assert not np.shares_memory(second.array, other.array)
    assert second.begins_with(first.joined(said)) and not other.begins_with(first)
    assert first.joined(said).joined(more) == [1, 2, 3, 5, 6]


def test_large_ids_behind_small_ones_are_not_lost() -> None:
    tape = Tape()
    tape.ids([1], [2])
    assert tape.ids([1, 2, 2**40], [4]) == ([1, 2, 2**40], [4])
    assert tape.ids([1, 2, 2**40, 4], [5]) == ([1, 2, 2**40, 4], [5])


STEPS = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=4), IDS), max_size=6)


@given(STEPS)
def test_whatever_the_steps_were_they_come_back(steps: list[tuple[bool, list[int], list[int]]]) -> None:
    tape, held, given, found = Tape(), [], [], []  # type: ignore[var-annotated]
    for grown, more, reply in steps:
        prompt = [*held, *more] if grown else more
        held = [*prompt, *reply]
        given.append((prompt, reply))
        found.append(tape.ids(prompt, reply))
    assert found == given
    tape.pack()
    assert found == given


def test_log_probs_and_versions_of_all_steps_lie_side_by_side() -> None:
    tape = Tape()
    first, second = tape.logprobs([-0.5, math.nan]), tape.logprobs([-0.25])
    versions = tape.versions([3, 3]), tape.versions([3])
    tape.pack()
    assert (first, second) == ([-0.5, math.nan], [-0.25])
    assert np.shares_memory(first.joined(second).array, first.array)
    assert versions == ([3, 3], [3])
    assert versions[0].array.strides == (0,)


def growing(turns: int, tokens: int) -> Episode:
    tape, held, steps = Tape(), [], []  # type: ignore[var-annotated]
    random = np.random.default_rng(0)
    for _ in range(turns):
        held = [*held, *random.integers(0, 150_000, tokens).tolist()]
        reply = random.integers(0, 150_000, tokens).tolist()
        ids = tape.ids(held, reply)
        steps.append(
            Step(*ids, floats(random.random(tokens).astype(np.float32)), versions=same([3] * tokens))
        )
        held = [*held, *reply]
    tape.pack()
    return Episode("Test/E-v0", "t", 0, 0, tuple(steps))


def test_what_is_pickled_holds_each_id_once() -> None:
    episode = growing(16, 500)
    data = pickle.dumps(episode)
    assert len(data) < 16 * 500 * (2 * 4 + 4 + 4) + 10_000, "ids, log-probs and versions"
    back = pickle.loads(data)
    assert back == episode
    assert back.steps[1].prompt_ids.begins_with(back.steps[0].prompt_ids)
    assert np.shares_memory(back.steps[0].prompt_ids.array, back.steps[9].prompt_ids.array)


def test_what_is_read_from_json_is_held_once_again() -> None:
    episode = growing(16, 500)
    text = json.dumps(episode.to_dict())
    data = json.loads(text)
    tracemalloc.start()
    back = Episode.from_dict(data)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 16 * 500 * (2 * 4 + 4) + 30_000
    for read, step in zip(back.steps, episode.steps, strict=True):
        assert (read.prompt_ids, read.response_ids) == (step.prompt_ids, step.response_ids)
        assert (read.logprobs, read.versions) == (step.logprobs, step.versions)
        assert isinstance(read.logprobs, Numbers)


def test_copies_are_the_thing_itself() -> None:
    held: Any = ints([1, 2])
    assert copy.copy(held) is copy.deepcopy(held) is held
