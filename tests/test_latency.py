"""Simulated latency: its distributions, and that nothing is blocked but the call."""

from __future__ import annotations

import asyncio
import math
import statistics
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from agent_r1_env import workers
from agent_r1_env.errors import TimedOut, ToolError, UnknownName
from agent_r1_env.latency import Latency
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.signature import Hidden
from agent_r1_env.tool import Tool, tool
from agent_r1_env.toolbox import Session, Toolbox


@tool(timeout=20)
def where(rng: Hidden[np.random.Generator]) -> str:
    """Say on which thread it runs, and draw."""
    return f"{threading.current_thread().name} {rng.integers(1000)}"


@tool
async def here() -> str:
    """Say so."""
    return "here"


OBJECT = {"type": "object"}
RNG = np.random.default_rng(0)


def run(tools: Sequence[Tool], *names: str, seed: int = 0) -> list[ToolResult]:
    toolbox = Toolbox(tools)
    toolbox.begin(Session(None, seed))
    return toolbox.run([ToolCall(name, {}, str(number)) for number, name in enumerate(names)])


def drawn(latency: Latency, number: int = 4000) -> list[float]:
    return [latency.seconds(np.random.default_rng(seed)) for seed in range(number)]


def test_a_call_takes_at_least_its_latency_and_gives_what_it_gives() -> None:
    (slow,) = run(Latency(0.05)([here]), "here")
    assert (slow.content, slow.ok, slow.simulated) == ("here", True, None)
    assert 0.05 <= slow.seconds < 5


def test_a_function_still_runs_on_a_thread_for_tools_and_draws_what_it_draws() -> None:
    (plain,) = run([where], "where")
    (slow,) = run(Latency(0.01)([where]), "where")
    assert slow.content.split()[0] == plain.content.split()[0] == "agent-r1-tool"
    assert slow.content == plain.content


def test_waiting_calls_hold_no_thread() -> None:
    async def threads_of_waiting_calls() -> int:
        toolbox = Toolbox(Latency(15)([where]))
        before = threading.active_count()
        calls = [ToolCall("where", {}, str(number)) for number in range(50)]
        waiting = asyncio.ensure_future(toolbox.run_async(calls))
        while toolbox.session.calls < 50:
            await asyncio.sleep(0.001)
        more = threading.active_count() - before
        waiting.cancel()
        await asyncio.wait([waiting])
        return more

    assert asyncio.run(threads_of_waiting_calls()) < 10


def test_calls_wait_at_the_same_time_and_block_no_event_loop() -> None:
    async def many() -> tuple[float, int]:
        toolboxes = [Toolbox(Latency(0.2)([where, here])) for _ in range(16)]
        calls = [ToolCall("where", {}, "0"), ToolCall("here", {}, "1")]
        ticks, started = 0, time.monotonic()
        waiting = asyncio.gather(*(toolbox.run_async(calls) for toolbox in toolboxes))
        while not waiting.done():
            ticks += 1
            await asyncio.sleep(0.01)
        assert all(each.ok for results in await waiting for each in results)
        return time.monotonic() - started, ticks

    seconds, ticks = asyncio.run(many())
    assert 0.2 <= seconds < 3.2, "one after the other they would take 6.4 s"
    assert ticks > 1


def test_a_function_that_was_given_up_counts_as_hanging() -> None:
    started, gate = threading.Event(), threading.Event()

    def stick() -> None:
        started.set()
        gate.wait(10)

    async def give_up() -> None:
        waiting = asyncio.ensure_future(Latency(0.0)([Tool("s", "", OBJECT, stick)])[0].run(rng=RNG))
        while not started.is_set():
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(give_up())
    assert workers.hanging(stick) == 1
    gate.set()


def test_a_call_that_hangs_runs_out_of_its_time_and_never_runs() -> None:
    ran = []
    quick = Tool("quick", "", OBJECT, partial(ran.append, 1), timeout=0.1)
    slow = Latency(hang=1.0)([quick])
    (hung,) = run(slow, "quick")
    assert (hung.content, hung.error) == ("error: quick did not finish within 0.1 s", FailureKind.TIMEOUT)
    with pytest.raises(TimedOut) as caught:
        asyncio.run(slow[0].run(rng=RNG))
    assert (caught.value.simulated, ran) == ("latency", [])


def test_latency_counts_towards_the_timeout_of_the_tool() -> None:
    async def slow() -> None:
        await asyncio.sleep(0.3)

    late = Tool("late", "", OBJECT, slow, timeout=0.4)
    (found,) = run(Latency(0.2)([late]), "late")
    assert (found.error, found.simulated) == (FailureKind.TIMEOUT, None)


def test_what_a_slow_tool_raises_is_told() -> None:
    def fail() -> None:
        raise ToolError("no luck")

    (found,) = run(Latency(0.001)([Tool("fail", "", OBJECT, fail)]), "fail")
    assert found.content == "error: no luck"


def test_distributions_are_what_they_say() -> None:
    assert set(drawn(Latency(0.25))) == {0.25}
    uniform = drawn(Latency(uniform=[1, 3]))
    assert 1 <= min(uniform) < 1.05 and 2.95 < max(uniform) <= 3
    assert statistics.fmean(uniform) == pytest.approx(2, abs=5 * math.sqrt(1 / 3 / 4000))
    logs = [math.log(each) for each in drawn(Latency(lognormal=[0.5, 0.7]))]
    assert statistics.fmean(logs) == pytest.approx(math.log(0.5), abs=5 * 0.7 / math.sqrt(4000))
    assert statistics.stdev(logs) == pytest.approx(0.7, rel=0.06)
    hung = sum(math.isinf(each) for each in drawn(Latency(0.1, hang=0.2)))
    assert abs(hung - 800) < 5 * math.sqrt(4000 * 0.16)


class Noted(Latency):
    """Notes the latency of each call, and does not wait."""

    def __init__(self, **options: Any) -> None:
        super().__init__(uniform=[0, 1], **options)
        self.noted: list[float] = []

    def seconds(self, rng: np.random.Generator) -> float:
        self.noted.append(super().seconds(rng))
        return 0.0


def test_equal_seeds_wait_equally_long() -> None:
    def noted(seed: int, own: int = 0) -> list[float]:
        latency = Noted(seed=own)
        run(latency([where, here]), *["where", "here"] * 8, seed=seed)
        return sorted(latency.noted)

    assert noted(1) == noted(1)
    assert len({*noted(1), *noted(2), *noted(1, own=1)}) == 48


def test_tools_that_are_not_named_stay_the_same_objects() -> None:
    made = Latency(1.0, tools=["here"])([where, here])
    assert made[0] is where and made[1] is not here


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "latency is one of constant, uniform and lognormal, or hang; got none of them"),
        ({"constant": 1, "uniform": [0, 1]}, "got constant and uniform"),
        ({"constant": -1}, "constant must be seconds from 0, got -1"),
        ({"constant": float("inf")}, "constant must be seconds from 0, got inf"),
        ({"uniform": [2, 1]}, "uniform is [least, most], got [2, 1]"),
        ({"uniform": 2}, "uniform is [least, most], got 2"),
        ({"lognormal": [1]}, "lognormal is [median, sigma], got [1]"),
        ({"hang": 2}, "hang is a share of all calls, from 0 to 1, got 2"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        Latency(**options)
    assert told in str(caught.value)


def test_a_tool_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'here'"):
        Latency(1.0, tools=["heer"])([where, here])
