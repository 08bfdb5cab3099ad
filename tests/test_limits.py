"""What governs calls: slots, rates, retries and cached results, each for itself."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import limits
from agent_r1_env.limits import Cache, Caching, Pace, Rate, Retries, Slots, gate


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Retries(-1), "retries must not be negative, got -1"),
        (lambda: Retries(1, wait=-1), "wait of retries must be finite and at least 0, got -1"),
        (lambda: Retries(1, wait=math.nan), "wait of retries"),
        (lambda: Retries(1, factor=0.5), "factor of retries must be finite and at least 1, got 0.5"),
        (lambda: Retries(1, longest=math.inf), "longest of retries"),
        (lambda: Rate(0), "a rate is at least 1 call in a time above 0, got 0 in 1.0 s"),
        (lambda: Rate(1, 0), "a rate is at least 1 call"),
        (lambda: Rate(1, math.nan), "a rate is at least 1 call"),
        (lambda: Caching(0), "a cache keeps at least 1 result"),
        (lambda: Caching(1, math.nan), "a cache keeps at least 1 result"),
    ],
)
def test_limits_that_make_no_sense_are_refused(made: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made()


def test_waits_grow_by_the_factor_up_to_the_longest() -> None:
    retries = Retries(9, wait=1, factor=3, longest=20)
    assert [retries.delay(attempt) for attempt in (1, 2, 3, 4, 9)] == [1, 3, 9, 20, 20]
    assert retries.delay(10**9) == 20


def test_what_a_service_asked_for_comes_before_the_own_wait() -> None:
    retries = Retries(3, wait=1, longest=20)
    assert [retries.delay(1, asked) for asked in (0, 5, 90, -3)] == [0, 5, 20, 0]


# -- slots


async def waiting(slots: Slots, number: int) -> list[asyncio.Task[bool]]:
    """Tasks that wait for a place, in their order."""
    tasks = [asyncio.create_task(slots.wait()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def settled(task: asyncio.Task[bool]) -> bool:
    return await asyncio.wait_for(task, 5)


async def test_places_are_given_in_the_order_asked_for() -> None:
    slots = Slots(1)
    assert slots.take()
    tasks = await waiting(slots, 5)
    for number, task in enumerate(tasks):
        slots.give()
        assert await settled(task)
        assert not any(later.done() for later in tasks[number + 1 :])


async def test_nobody_overtakes_those_who_wait() -> None:
    slots = Slots(1)
    slots.take()
    (task,) = await waiting(slots, 1)
    assert not slots.take()
    slots.give()
    assert not slots.take()
    assert await settled(task)
    slots.give()
    assert slots.take()


async def test_a_place_given_by_another_thread_arrives() -> None:
    slots = Slots(1)
    slots.take()
    (task,) = await waiting(slots, 1)
    threading.Thread(target=slots.give).start()
    assert await settled(task)


async def test_who_gave_up_waiting_takes_no_place() -> None:
    slots = Slots(1)
    slots.take()
    first, second, third = await waiting(slots, 3)
    first.cancel()
    third.cancel()
    await asyncio.sleep(0)
    slots.give()
    assert await settled(second)
    slots.give()
    assert slots.take()


async def test_a_place_that_comes_while_its_taker_is_cancelled_is_not_lost() -> None:
    for _ in range(200):
        slots = Slots(1)
        slots.take()
        (task,) = await waiting(slots, 1)
        giving = threading.Thread(target=slots.give)
        giving.start()
        task.cancel()
        giving.join()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slots.take()


async def test_when_all_places_hang_whoever_waits_is_told_at_once() -> None:
    slots = Slots(2)
    slots.take(), slots.take()
    ends: list[Future[None]] = [Future(), Future()]
    tasks = await waiting(slots, 3)
    for end in ends:
        end.add_done_callback(slots.give)
    slots.hang(ends[0])
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    slots.hang(ends[1])
    assert [await settled(task) for task in tasks] == [False] * 3
    assert not await slots.wait()
    ends[0].set_result(None)
    assert slots.hanging == 1
    assert await slots.wait()
    ends[1].set_result(None)
    assert slots.hanging == 0
    assert slots.take()


@given(
    moves=st.lists(st.sampled_from(["take", "give", "wait", "cancel"]), max_size=60), limit=st.integers(1, 3)
)
def test_no_more_places_are_taken_than_there_are(moves: list[str], limit: int) -> None:
    async def play() -> None:
        slots, held = Slots(limit), 0
        tasks: list[asyncio.Task[bool]] = []
        for move in moves:
            if move == "take":
                held += slots.take()
            elif move == "give" and held:
                held -= 1
                slots.give()
            elif move == "wait":
                tasks.append(asyncio.create_task(slots.wait()))
            elif move == "cancel" and tasks:
                tasks[-1].cancel()
            for _ in range(4):
                await asyncio.sleep(0)
            done = [task for task in tasks if task.done()]
            tasks = [task for task in tasks if not task.done()]
            held += sum(not task.cancelled() for task in done)
            assert held <= limit
            assert held == limit or not tasks  # no place is free while somebody waits
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(play())


# -- rates


@given(
    calls=st.integers(1, 5),
    seconds=st.floats(0.1, 10),
    steps=st.lists(st.floats(0, 4), min_size=1, max_size=60),
    patience=st.floats(0, 20),
)
def test_no_window_holds_more_than_the_rate_allows(
    calls: int, seconds: float, steps: list[float], patience: float
) -> None:
    now = 0.0
    pace = Pace(Rate(calls, seconds), clock=lambda: now)
    begun = []
    for step in steps:
        now += step
        turn = pace.turn(patience)
        assert turn is None or 0 <= turn <= patience
        if turn is not None:
            begun.append(now + turn)
    assert begun == sorted(begun)
    for first, beyond in zip(begun, begun[calls:], strict=False):
        assert beyond - first >= seconds - 1e-9


def test_a_call_waits_no_longer_than_it_must() -> None:
    now = 0.0
    pace = Pace(Rate(2, 10), clock=lambda: now)
    assert [pace.turn(30) for _ in range(5)] == [0, 0, 10, 10, 20]
    assert pace.turn(19) is None  # and whoever is refused uses no turn
    assert pace.turn(20) == 20
    now = 100
    assert pace.turn(0) == 0


# -- cached results


def test_what_was_found_is_kept_and_the_least_used_given_up() -> None:
    cache = Cache(Caching(size=2))
    for key in "ab":
        assert cache.get(key) == (None, None)
        cache.settle(key, key.upper())
    assert cache.get("a") == ("A", None)
    assert cache.get("c") == (None, None)
    cache.settle("c", "C")
    assert cache.get("a") == ("A", None)
    assert cache.get("b") == (None, None)


def test_what_is_too_old_is_found_out_anew() -> None:
    now = 0.0
    cache = Cache(Caching(seconds=10), clock=lambda: now)
    cache.get("a")
    cache.settle("a", "A")
    now = 10
    assert cache.get("a") == ("A", None)
    now = 10.1
    assert cache.get("a") == (None, None)


def test_several_who_seek_wait_for_the_first() -> None:
    cache = Cache(Caching())
    assert cache.get("a") == (None, None)
    _, sought = cache.get("a")
    assert sought is not None and not sought.done()
    cache.settle("a", "A")
    assert sought.result(1) == "A"


def test_nothing_is_kept_of_a_failure() -> None:
    cache = Cache(Caching())
    cache.get("a")
    _, sought = cache.get("a")
    cache.settle("a", None)
    assert sought is not None and sought.result(1) is None
    assert cache.get("a") == (None, None)


async def test_who_gives_up_waiting_takes_the_result_from_nobody() -> None:
    cache = Cache(Caching())
    cache.get("a")
    _, sought = cache.get("a")
    assert sought is not None
    first, second = (asyncio.ensure_future(asyncio.wrap_future(sought)) for _ in range(2))
    first.cancel()
    await asyncio.sleep(0.01)
    cache.settle("a", "A")
    assert await second == "A"


# -- gates


def test_tools_of_one_owner_and_equal_limits_share_a_gate() -> None:
    made = gate("x", concurrency=1, rate=Rate(1), caching=None)
    assert gate("x", concurrency=1, rate=Rate(1), caching=None) is made
    assert gate("x", concurrency=2, rate=Rate(1), caching=None) is not made
    assert gate("y", concurrency=1, rate=Rate(1), caching=None) is not made


def test_tools_without_an_owner_share_nothing() -> None:
    gates = [gate(None, concurrency=1, rate=None, caching=None) for _ in range(2)]
    assert gates[0] is not gates[1]


def test_a_gate_goes_with_the_last_tool_that_holds_it() -> None:
    before = len(limits._GATES)
    made = gate("gone", concurrency=1, rate=None, caching=None)
    assert len(limits._GATES) == before + 1
    del made
    gc.collect()
    assert len(limits._GATES) == before
