from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time

import pytest

from agent_r1_env import workers
from agent_r1_env.workers import is_coroutine_function, start


def ident(_: object = None) -> int:
    return threading.get_ident()


async def aident() -> int:
    return threading.get_ident()


def same(value: object) -> object:
    return value


def test_idle_threads_are_used_again() -> None:
    idents = set()
    for _ in range(20):
        idents.add(start(ident, {}, same).result(5).value)
        time.sleep(0.002)  # the thread is idle a moment after its result is there
    assert len(idents) < 15
    assert threading.get_ident() not in idents


def test_all_threads_are_daemons() -> None:
    start(ident, {}, same).result(5)
    start(aident, {}, same).result(5)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("agent-r1-tool")]
    assert ours and all(thread.daemon for thread in ours)


def test_a_coroutine_function_keeps_to_one_loop() -> None:
    assert len({start(aident, {}, same).result(5).value for _ in range(5)}) == 1
    assert (
        start(functools.partial(aident), {}, same).result(5).value == start(aident, {}, same).result(5).value
    )


def test_the_future_holds_failures_as_values() -> None:
    outcome = start(lambda: 1 / 0, {}, same).result(5)
    assert isinstance(outcome.failure, ZeroDivisionError) and outcome.value is None
    assert isinstance(start(ident, {}, lambda _: 1 / 0).result(5).failure, ZeroDivisionError)


class Awaitable:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (aident, True),
        (functools.partial(functools.partial(aident)), True),
        (Awaitable(), True),
        (Awaitable().method, True),
        (functools.partial(Awaitable()), True),
        (ident, False),
        (len, False),
        (Awaitable, False),
    ],
)
def test_coroutine_functions_are_told_apart(function: object, answer: bool) -> None:
    assert is_coroutine_function(function) is answer  # type: ignore[arg-type]


def test_a_cancelled_future_cancels_a_coroutine_before_it_begins() -> None:
    began = threading.Event()

    async def note() -> None:
        began.set()

    blocker = threading.Event()

    async def hold() -> None:
        blocker.wait(5)

    start(note, {}, same).result(5)
    began.clear()
    loop = workers._loop_of(note)
    held = loop.start(functools.partial(workers._awaited, hold, {}, same))
    waiting = start(note, {}, same)
    assert waiting.cancel()
    blocker.set()
    held.result(5)
    start(aident, {}, same).result(5)
    assert not began.wait(0.05)


def test_a_call_is_told_of_that_another_cancels_before_it_begins() -> None:
    ends: list[object] = []

    async def either(wreck: bool) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()} if wreck else ():
            task.cancel()

    start(either, {"wreck": False}, same).result(5)
    blocker = threading.Event()
    workers._loop_of(either).loop.call_soon_threadsafe(blocker.wait, 5)
    first, second = (start(either, {"wreck": wreck}, same, ends.append) for wreck in (True, False))
    blocker.set()
    assert first.result(5).failure is None
    assert isinstance(second.result(5).failure, asyncio.CancelledError)
    start(either, {"wreck": False}, same).result(5)  # behind what is left of the others
    assert ends == [first, second]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_and_loops_of_its_own() -> None:
    code = """
import asyncio, os, sys
from agent_r1_env import Toolbox, ToolCall, tool

@tool
def here() -> int:
    "Where."
    return os.getpid()

@tool
async def there() -> int:
    "Where."
    return os.getpid()

box, calls = Toolbox([here, there]), [ToolCall("here", {}, "1"), ToolCall("there", {}, "2")]
assert {each.content for each in box.run(calls)} == {str(os.getpid())}
child = os.fork()
if child == 0:
    os._exit(0 if {each.content for each in box.run(calls)} == {str(os.getpid())} else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_hanging_tools_do_not_keep_the_interpreter_alive() -> None:
    code = """
import asyncio, threading, time
from agent_r1_env import Toolbox, ToolCall, tool

@tool(timeout=0.1)
def hang() -> None:
    "Hang."
    threading.Event().wait()

@tool(timeout=0.1)
async def ahang() -> None:
    "Hang."
    await asyncio.sleep(3600)

@tool(timeout=0.1)
async def block() -> None:
    "Block the loop."
    time.sleep(3600)

box = Toolbox([hang, ahang, block])
results = box.run([ToolCall(name, {}, name) for name in ("hang", "ahang", "block")])
print([str(each.error) for each in results])
"""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['timeout', 'timeout', 'timeout']\n", "")
    assert time.monotonic() - began < 20


def test_a_loop_that_recovers_is_stopped_once_it_is_empty() -> None:
    gate = threading.Event()
    loops = set()

    async def block(wait: bool) -> None:
        loops.add(asyncio.get_running_loop())
        if wait:
            gate.wait(10)

    stuck = start(block, {"wait": True}, same)
    time.sleep(0.05)
    workers.leave(block, stuck)
    start(block, {"wait": False}, same).result(5)
    assert len(loops) == 2
    gate.set()
    deadline = time.monotonic() + 5
    while not any(loop.is_closed() for loop in loops) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [loop.is_closed() for loop in loops].count(True) == 1
