from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agent_r1_env import limits, threads, workers
from agent_r1_env.errors import ToolError
from agent_r1_env.limits import Caching
from agent_r1_env.messages import CallError, CallFault, ToolCall, ToolResult
from agent_r1_env.signature import Hidden
from agent_r1_env.tool import Tool, tool
from agent_r1_env.toolbox import Session, Toolbox

Run = Callable[[Toolbox, Sequence[ToolCall | CallError]], list[ToolResult]]


def call(name: str, call_id: str = "1", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, call_id)


def from_a_loop(toolbox: Toolbox, calls: Sequence[ToolCall | CallError]) -> list[ToolResult]:
    async def blocking() -> list[ToolResult]:
        return toolbox.run(calls)

    return asyncio.run(blocking())


def from_a_thread(toolbox: Toolbox, calls: Sequence[ToolCall | CallError]) -> list[ToolResult]:
    results: list[ToolResult] = []
    thread = threading.Thread(target=lambda: results.extend(toolbox.run(calls)))
    thread.start()
    thread.join()
    return results


def awaited(toolbox: Toolbox, calls: Sequence[ToolCall | CallError]) -> list[ToolResult]:
    return asyncio.run(toolbox.run_async(calls))


@pytest.fixture(params=[Toolbox.run, awaited, from_a_loop, from_a_thread], ids=lambda run: run.__name__)
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@tool
def echo(text: str, times: int = 1) -> str:
    """Say it again."""
    return text * times


@tool
async def aecho(text: str) -> str:
    """Say it again, later."""
    await asyncio.sleep(0.01)
    return text


@pytest.fixture
def hangers() -> Iterator[tuple[Tool, Tool]]:
    """A tool that hangs on a thread and one that hangs on a loop."""
    gate = threading.Event()

    @tool(timeout=0.2)
    def hang() -> None:
        """Hang."""
        gate.wait()

    @tool(timeout=0.2)
    async def ahang() -> None:
        """Hang, too."""
        await asyncio.sleep(60)

    yield hang, ahang
    gate.set()


def test_results_come_back_in_call_order_with_ids(run: Run) -> None:
    toolbox = Toolbox([echo, aecho])
    results = run(
        toolbox, [call("aecho", "a", text="1"), call("echo", "b", text="2"), call("aecho", "c", text="3")]
    )
    assert [(each.call_id, each.name, each.content, each.ok, each.error) for each in results] == [
        ("a", "aecho", "1", True, None),
        ("b", "echo", "2", True, None),
        ("c", "aecho", "3", True, None),
    ]


def test_no_calls_give_no_results(run: Run) -> None:
    assert run(Toolbox([]), []) == []


def test_calls_run_at_the_same_time(run: Run) -> None:
    together = threading.Barrier(4, timeout=10)

    @tool
    def meet() -> int:
        """Wait for the others."""
        return together.wait()

    results = run(Toolbox([meet]), [call("meet")] * 4)
    assert sorted(each.content for each in results) == ["0", "1", "2", "3"]


def test_calls_that_share_the_state_act_in_their_order(run: Run) -> None:
    def put(what: str, state: Hidden[dict[str, Any]]) -> str:
        """Put something down, slowly at first."""
        seen = list(state.setdefault("seen", []))
        time.sleep(0.02 if not seen else 0)
        state["seen"] = [*seen, what]
        return " ".join(state["seen"])

    async def look(state: Hidden[dict[str, Any]]) -> str:
        """Look at everything."""
        return "".join(state.get("seen", []))

    box = Toolbox([tool(put), tool(look), echo])
    calls = [call("look"), call("put", what="a"), call("echo", text="e"), call("look"), call("put", what="b")]
    results = run(box, [*calls, call("put"), call("look")])
    assert [result.content for result in results[:5]] == ["", "a", "e", "a", "a b"]
    assert results[5].error == "invalid_arguments" and results[6].content == "ab"


def test_bad_calls_are_told_and_good_ones_beside_them_run(run: Run) -> None:
    malformed = CallError(CallFault.SYNTAX, "the call is no JSON", "write it as JSON", "{", "b")
    calls = [
        call("echo", "a", text="x"),
        malformed,
        call("ecko", "c"),
        call("echo", "d", txt="y"),
        call("echo", "e", text="z"),
    ]
    results = run(Toolbox([echo]), calls)
    assert [(each.call_id, each.error, each.content) for each in results] == [
        ("a", None, "x"),
        ("b", "malformed_call", "error: the call is no JSON; write it as JSON"),
        ("c", "unknown_tool", "error: there is no tool 'ecko'; did you mean 'echo'? the tools are echo"),
        ("d", "invalid_arguments", "error: echo takes no argument 'txt'; did you mean 'text'?"),
        ("e", None, "z"),
    ]
    assert [each.ok for each in results] == [True, False, False, False, True]


def test_invalid_arguments_never_reach_the_tool() -> None:
    reached: list[Any] = []

    @tool
    def note(n: int) -> None:
        """Note it."""
        reached.append(n)

    bad = [{"n": "1"}, {}, {"n": 1, "m": 2}, {"n": float("nan")}, {"n": None}]
    results = Toolbox([note]).run([ToolCall("note", arguments, "1") for arguments in bad])
    assert {each.error for each in results} == {"invalid_arguments"} and not reached


def test_an_unknown_tool_with_a_huge_name_is_told_in_short() -> None:
    assert len(Toolbox([echo]).run([call("x" * 1_000_000)])[0].content) < 300
    assert "there are no tools at all" in Toolbox([]).run([call("x")])[0].content


def failing(error: BaseException) -> tuple[Tool, Tool]:
    @tool
    def fail() -> None:
        """Fail."""
        raise error

    @tool
    async def afail() -> None:
        """Fail later."""
        await asyncio.sleep(0)
        raise error

    return fail, afail


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such page"), "raised ValueError: no such page"),
        (KeyError("x"), "raised KeyError: 'x'"),
        (ValueError(), "raised ValueError"),
        (TimeoutError("socket"), "raised TimeoutError: socket"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (asyncio.CancelledError(), "raised CancelledError"),
        (GeneratorExit(), "raised GeneratorExit"),
        (Unprintable(), "raised Unprintable: a message that cannot be shown (RuntimeError)"),
        (RecursionError("too deep"), "raised RecursionError: too deep"),
        (ValueError("\ud800\x00"), "raised ValueError: \ufffd\ufffd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_tool_raises_is_a_result(run: Run, error: BaseException, told: str) -> None:
    results = run(Toolbox([*failing(error), echo]), [call("fail"), call("afail"), call("echo", text="x")])
    assert [each.content for each in results] == [f"error: fail {told}", f"error: afail {told}", "x"]
    assert [each.error for each in results] == ["tool_error", "tool_error", None]


def test_a_tool_error_is_shown_as_the_tool_wrote_it(run: Run) -> None:
    results = run(Toolbox(failing(ToolError("try again tomorrow"))), [call("fail"), call("afail")])
    assert [each.content for each in results] == ["error: try again tomorrow"] * 2
    assert {each.error for each in results} == {"tool_error"}


def test_a_hanging_tool_costs_its_timeout_and_harms_no_sibling(run: Run, hangers: tuple[Tool, Tool]) -> None:
    began = time.monotonic()
    calls = [call("hang"), call("ahang"), call("echo", text="x"), call("aecho", text="y")]
    results = run(Toolbox([*hangers, echo, aecho]), calls)
    assert time.monotonic() - began < 2
    assert [each.content for each in results] == [
        "error: hang did not finish within 0.2 s",
        "error: ahang did not finish within 0.2 s",
        "x",
        "y",
    ]
    assert [each.error for each in results] == ["timeout", "timeout", None, None]
    assert results[0].seconds == 0.2 and results[2].seconds < 0.2


def test_many_hanging_calls_starve_nobody(hangers: tuple[Tool, Tool]) -> None:
    hang = hangers[0]
    calls: list[ToolCall | CallError] = [call("hang")] * 50 + [call("echo", text="x")]
    assert Toolbox([hang, echo]).run(calls)[-1].content == "x"


def test_calls_of_a_tool_that_hangs_too_often_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_HANGING", 2)
    gate = threading.Event()

    @tool(timeout=0.05)
    def stall() -> None:
        """Stall."""
        gate.wait()

    toolbox = Toolbox([stall, echo])
    toolbox.run([call("stall")] * 2)
    refused, other = toolbox.run([call("stall"), call("echo", text="x")])
    assert refused.content == "error: stall does not answer; 2 earlier calls of it still run"
    assert refused.error == "timeout" and other.ok
    gate.set()
    deadline = time.monotonic() + 5
    while workers.hanging(stall.run) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert toolbox.run([call("stall")])[0].ok


def test_a_timed_out_coroutine_is_cancelled(run: Run) -> None:
    ended = threading.Event()

    @tool(timeout=0.05)
    async def linger() -> None:
        """Linger."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    assert run(Toolbox([linger]), [call("linger")])[0].error == "timeout"
    assert ended.wait(5)


def test_a_coroutine_that_blocks_its_loop_stops_no_other_tool_and_no_later_call() -> None:
    gate = threading.Event()
    blocking = [True]

    @tool(timeout=0.3)
    async def block() -> str:
        """Block."""
        if blocking.pop():
            gate.wait()
        return "free"

    toolbox = Toolbox([block, aecho])
    first, other = toolbox.run([call("block"), call("aecho", text="x")])
    blocking.append(False)
    assert (first.error, other.content) == ("timeout", "x")
    assert toolbox.run([call("block")])[0].content == "free"
    gate.set()


def test_a_coroutine_that_ignores_its_cancellation_is_left_behind(run: Run) -> None:
    stop = threading.Event()

    @tool(timeout=0.1)
    async def stubborn() -> None:
        """Stay."""
        while not stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    began = time.monotonic()
    assert run(Toolbox([stubborn]), [call("stubborn")])[0].error == "timeout"
    assert time.monotonic() - began < 2
    stop.set()


def test_a_function_that_returns_a_coroutine_is_awaited(run: Run) -> None:
    hidden = Tool("hidden", "", {"type": "object"}, lambda: aecho.run(text="x"))
    assert run(Toolbox([hidden]), [call("hidden")])[0].content == "x"


async def test_waiting_for_tools_leaves_the_loop_free() -> None:
    @tool
    def slow() -> None:
        """Take a while."""
        time.sleep(0.2)

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await Toolbox([slow]).run_async([call("slow")] * 8)
    ticking.cancel()
    assert ticks >= 5


async def test_many_episodes_wait_at_the_same_time() -> None:
    @tool
    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(0.05)

    @tool
    def block() -> None:
        """Wait on a thread."""
        time.sleep(0.05)

    boxes = [Toolbox([wait, block]) for _ in range(64)]

    async def episode(toolbox: Toolbox) -> None:
        for name in ("wait", "block"):
            assert (await toolbox.run_async([call(name)]))[0].ok

    began = time.monotonic()
    await asyncio.gather(*map(episode, boxes))
    assert time.monotonic() - began < 1.5  # one after the other would take 6.4 s


async def test_cancelling_a_run_cancels_its_coroutines(hangers: tuple[Tool, Tool]) -> None:
    started, ended = threading.Event(), threading.Event()

    @tool
    async def linger() -> None:
        """Linger."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    running = asyncio.create_task(Toolbox([linger, hangers[0]]).run_async([call("linger"), call("hang")]))
    await asyncio.to_thread(started.wait, 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_flood_is_cut_with_a_notice(run: Run) -> None:
    @tool(max_result_chars=100)
    def flood() -> str:
        """Flood."""
        return "x" * 10_000_000

    result = run(Toolbox([flood]), [call("flood")])[0]
    assert result.content == "x" * 100 + "\n[... 9999900 more characters cut]"
    assert (result.ok, result.cut) == (True, 9_999_900)


def test_a_flood_of_calls_is_bounded_and_told() -> None:
    calls = [call("echo", str(index), text="x") for index in range(3)]
    results = Toolbox([echo], max_calls=2).run(
        [*calls, call("ecko"), CallError(CallFault.SYNTAX, "bad " * 100, "", "{", "5")]
    )
    assert [each.error for each in results] == [None, None, *["too_many_calls"] * 3]
    assert {each.content for each in results[2:]} == {
        "error: not run: only the first 2 calls of one reply are"
    }


def test_results_are_rendered_within_the_time_of_the_call() -> None:
    class Slow:
        def __str__(self) -> str:
            time.sleep(1)
            return "late"

    @tool(timeout=0.1)
    def slow() -> Slow:
        """Give something slow to show."""
        return Slow()

    assert Toolbox([slow]).run([call("slow")])[0].error == "timeout"


def test_a_result_that_cannot_be_shown_is_an_error() -> None:
    class Unshowable:
        def __str__(self) -> str:
            raise ValueError("no")

    @tool
    def odd() -> Unshowable:
        """Give something odd."""
        return Unshowable()

    assert Toolbox([odd]).run([call("odd")])[0].content == "error: odd raised ValueError: no"


def test_a_tool_cannot_change_the_call_that_is_on_record() -> None:
    @tool
    def clear(items: list[int]) -> None:
        """Clear."""
        items.clear()

    recorded = call("clear", items=[1, 2])
    Toolbox([clear]).run([recorded])
    assert recorded.arguments == {"items": [1, 2]}


def test_tools_see_the_context_of_their_caller(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @tool
    def look() -> str:
        """Look."""
        return variable.get()

    token = variable.set("set")
    try:
        expected = "unset" if run is from_a_thread else "set"
        assert run(Toolbox([look]), [call("look")])[0].content == expected
    finally:
        variable.reset(token)


def test_no_thread_to_be_had_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads._THREADS, "_idle", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    taken = limits.RUNNING._taken
    result = Toolbox([echo]).run([call("echo", text="x")])[0]
    assert result.content == "error: echo could not be started: can't start new thread"
    assert limits.RUNNING._taken == taken


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
def test_two_tools_of_one_name_are_refused(names: tuple[str, str]) -> None:
    tools = [Tool(name, "", {"type": "object"}, lambda: None) for name in names]
    with pytest.raises(ValueError, match="two tools are named 'a' and "):
        Toolbox(tools)


def test_schemas_are_those_of_the_tools_in_order() -> None:
    assert Toolbox([echo, aecho]).schemas == [echo.schema(), aecho.schema()]


def test_close_closes_every_tool_once_and_logs_the_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    async def aclose() -> None:
        closed.append("async")

    def fail() -> None:
        raise OSError("gone")

    closes: list[Callable[[], Any] | None] = [fail, lambda: closed.append("sync"), aclose, None]
    toolbox = Toolbox(
        [Tool(f"t{n}", "", {"type": "object"}, lambda: None, close=close) for n, close in enumerate(closes)]
    )
    with caplog.at_level(logging.WARNING):
        toolbox.close()
        toolbox.close()
    assert sorted(closed) == ["async", "sync"]
    assert caplog.messages == ["tool 't0' failed to close: OSError: gone"]


def test_a_close_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    stuck = Tool("stuck", "", {"type": "object"}, lambda: None, timeout=0.1, close=gate.wait)
    Toolbox([stuck]).close()
    gate.set()
    assert caplog.messages == ["tool 'stuck' failed to close: TimeoutError: not closed within 0.1 s"]


def test_one_call_costs_little_more_than_the_tool() -> None:
    toolbox, calls = Toolbox([echo]), [call("echo", text="x")]
    toolbox.run(calls)
    costs = []
    for _ in range(500):
        began = time.perf_counter()
        toolbox.run(calls)
        costs.append(time.perf_counter() - began)
    # About 30 us on an idle machine; the bound is for a busy one.
    assert statistics.median(costs) < 0.001


def test_tools_of_one_owner_share_a_cache_and_no_results() -> None:
    def named(name: str) -> Tool:
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
        return Tool(name, "", parameters, lambda text: name, cache=Caching(), owner="one server")

    box = Toolbox([named("first"), named("second")])
    assert [each.content for each in box.run([call("first", text="x"), call("second", text="x")])] == [
        "first",
        "second",
    ]


@pytest.mark.parametrize("way", ["timeout", "async timeout", "cancel"])
async def test_a_cancelled_call_cleans_up_before_its_reply_is_over(way: str) -> None:
    began, cleaned = threading.Event(), threading.Event()

    async def slow() -> None:
        """Hang, and take a while to clean up."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            cleaned.set()

    toolbox = Toolbox(
        [Tool("slow", "Hang.", {"type": "object"}, slow, timeout=60 if way == "cancel" else 0.05)]
    )
    calls = [ToolCall("slow", {}, "c")]
    if way == "timeout":
        await asyncio.to_thread(toolbox.run, calls)
    elif way == "async timeout":
        await toolbox.run_async(calls)
    else:
        task = asyncio.create_task(toolbox.run_async(calls))
        await asyncio.to_thread(began.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cleaned.is_set()


# -- what lives as long as an episode


class Workbench:
    """Made for each episode, slowly."""

    def __init__(self, alive: list[Workbench], wait: float = 0.1) -> None:
        time.sleep(wait)
        self.alive, self.uses = alive, 0
        alive.append(self)

    def __call__(self) -> str:
        self.uses += 1
        return f"use {self.uses}"

    def close(self) -> None:
        self.alive.remove(self)


class AsyncWorkbench(Workbench):
    async def __call__(self) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().__call__()


def workshop(kind: type[Workbench], **options: Any) -> tuple[Tool, list[Workbench]]:
    alive: list[Workbench] = []
    run = kind.__call__
    return Tool("bench", "", {"type": "object"}, run, begin=lambda: kind(alive), **options), alive


@pytest.mark.parametrize("kind", [Workbench, AsyncWorkbench])
@pytest.mark.parametrize("limits", [{}, {"concurrency": 4}])
def test_what_an_episode_needs_is_made_once_and_closed_at_its_end(
    run: Run, kind: type[Workbench], limits: dict[str, Any]
) -> None:
    bench, alive = workshop(kind, **limits)
    toolbox = Toolbox([bench])
    for _ in range(2):
        toolbox.begin(Session())
        results = run(toolbox, [call("bench")] * 3)
        assert sorted(each.content for each in results) == ["use 1", "use 2", "use 3"]
        assert run(toolbox, [call("bench")])[0].content == "use 4"
        assert len(alive) == 1
    toolbox.end()
    assert not alive
    toolbox.close()


@pytest.mark.parametrize("kind", [Workbench, AsyncWorkbench])
async def test_making_and_closing_it_leaves_the_loop_free(kind: type[Workbench]) -> None:
    alive: list[Workbench] = []
    gate = threading.Event()

    class Stuck(kind):  # type: ignore[valid-type, misc]
        def close(self) -> None:
            gate.wait()
            super().close()

    bench = Tool("bench", "", {"type": "object"}, kind.__call__, begin=lambda: Stuck(alive))
    boxes = [Toolbox([bench]) for _ in range(16)]
    began = time.monotonic()
    results = await asyncio.gather(*(box.run_async([call("bench")]) for box in boxes))
    for box in boxes:
        box.begin(Session())
    assert time.monotonic() - began < 1.5  # one after the other would take 1.6 s for making them alone
    assert {each.content for (each,) in results} == {"use 1"}
    gate.set()
    deadline = time.monotonic() + 5
    while alive and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not alive


def test_coroutines_begin_in_the_order_of_their_calls_also_while_it_is_made(run: Run) -> None:
    class Counter(AsyncWorkbench):
        async def __call__(self, n: int) -> str:  # type: ignore[override]
            self.uses += 1
            return f"{n}: {self.uses}"

    for wait in (0, 0.05):
        bench = Tool(
            "bench",
            "",
            {"type": "object", "additionalProperties": True},
            Counter.__call__,
            begin=lambda wait=wait: Counter([], wait),
        )
        results = run(Toolbox([bench]), [call("bench", n=n) for n in range(40)])
        assert [each.content for each in results] == [f"{n}: {n + 1}" for n in range(40)]


def test_what_cannot_be_made_is_a_result_and_tried_again(run: Run) -> None:
    faults = [OSError("no room")]

    def begin() -> Callable[[], str]:
        if faults:
            raise faults.pop()
        return lambda: "made"

    toolbox = Toolbox([Tool("bench", "", {"type": "object"}, lambda: "", begin=begin)])
    first, second = (run(toolbox, [call("bench")])[0] for _ in range(2))
    assert (first.error, first.content) == ("tool_error", "error: bench could not be started: no room")
    assert second.content == "made"


@pytest.mark.parametrize("kind", [Workbench, AsyncWorkbench])
def test_what_is_made_too_late_is_closed_at_once(kind: type[Workbench]) -> None:
    closed = threading.Event()

    class Alive(list[Workbench]):
        def remove(self, item: Workbench) -> None:
            super().remove(item)
            closed.set()

    alive = Alive()
    gate, making = threading.Event(), threading.Event()

    def begin() -> Workbench:
        making.set()
        gate.wait()
        return kind(alive, 0)

    bench = Tool("bench", "", {"type": "object"}, kind.__call__, begin=begin, timeout=0.2)
    toolbox = Toolbox([bench])
    assert toolbox.run([call("bench")])[0].error == "timeout"
    assert making.is_set()
    toolbox.end()
    gate.set()
    assert closed.wait(5)
    assert not alive


def test_an_episode_without_calls_makes_nothing() -> None:
    bench, alive = workshop(Workbench)
    toolbox = Toolbox([bench])
    toolbox.begin(Session())
    toolbox.close()
    assert not alive


def test_closing_takes_no_longer_than_the_slowest(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    stuck = [
        Tool(f"t{n}", "", {"type": "object"}, lambda: None, timeout=0.3, close=gate.wait) for n in range(8)
    ]
    began = time.monotonic()
    Toolbox(stuck).close()
    assert time.monotonic() - began < 1.5  # one after the other would take 2.4 s
    gate.set()
    assert len(caplog.messages) == 8
