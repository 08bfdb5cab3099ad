"""Calls handed to threads: what they give, in what order they tell, and that nobody waits in vain."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from agent_r1_env import threads
from agent_r1_env.threads import Handed, hand


def nothing(_: object) -> None: ...


def same(value: Any) -> Any:
    return value


def test_a_call_gives_what_it_returned_or_raised() -> None:
    assert hand(int, {}, str, nothing).result(5).value == "0"
    for failing, kind in ((lambda: 1 / 0, ZeroDivisionError), (sys.exit, SystemExit)):
        outcome = hand(failing, {}, same, nothing).result(5)
        assert outcome.value is None and isinstance(outcome.failure, kind)


def test_who_waits_too_long_is_told_and_may_ask_again() -> None:
    gate = threading.Event()
    call = hand(gate.wait, {"timeout": 10}, same, nothing)
    assert not call.done()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            call.result(0.01)
    gate.set()
    assert call.result(5).value is True and call.done()
    assert call.result(0).value is True


def test_any_number_of_threads_may_wait_for_one_call() -> None:
    gate, found = threading.Event(), []
    call = hand(gate.wait, {"timeout": 10}, same, nothing)
    waiting = [threading.Thread(target=lambda: found.append(call.result(10).value)) for _ in range(8)]
    for each in waiting:
        each.start()
    gate.set()
    for each in waiting:
        each.join(10)
    assert found == [True] * 8


def test_callbacks_are_called_once_before_and_after_the_end() -> None:
    told: list[str] = []
    for _ in range(200):
        told.clear()
        call = hand(int, {}, same, lambda _: told.append("first"))
        for name in "abc":
            call.add_done_callback(lambda _, name=name: told.append(name))
        call.result(5)
        call.add_done_callback(lambda _: told.append("last"))
        assert sorted(told) == ["a", "b", "c", "first", "last"] and told[-1] == "last"


def test_an_idle_thread_holds_on_to_nothing() -> None:
    class Big: ...

    big = Big()
    gone = weakref.ref(big)
    hand(lambda it: None, {"it": big}, same, nothing).result(5)
    del big
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.005)
        gc.collect()
    assert gone() is None


def test_threads_beyond_the_idle_ones_end() -> None:
    gate = threading.Event()
    calls = [hand(gate.wait, {"timeout": 10}, same, nothing) for _ in range(threads.MAX_IDLE + 20)]
    assert len(ours()) >= threads.MAX_IDLE + 20
    gate.set()
    assert all(each.result(5).value for each in calls)
    deadline = time.monotonic() + 5
    while len(ours()) > threads.MAX_IDLE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0 < len(ours()) <= threads.MAX_IDLE


def ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "agent-r1-tool"]


def test_many_at_once_lose_nothing() -> None:
    counted: list[int] = []

    def go(start: int) -> None:
        for number in range(start, start + 200):
            made: Handed = hand(lambda n: n, {"n": number}, same, nothing)
            counted.append(made.result(10).value)

    waiting = [threading.Thread(target=go, args=(each * 200,)) for each in range(8)]
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(30)
    assert sorted(counted) == list(range(1600))
