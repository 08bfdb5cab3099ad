"""One call on its way to a result: slots, rates, retries, caching and cancelling, through toolboxes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from agent_r1_env import limits
from agent_r1_env.errors import RateLimited, TimedOut, ToolError, TransientError
from agent_r1_env.limits import Caching, Rate, Retries
from agent_r1_env.messages import ToolCall, ToolResult
from agent_r1_env.signature import Hidden
from agent_r1_env.testing import ByteTokenizer
from agent_r1_env.tool import Tool, ToolOutput, tool
from agent_r1_env.toolbox import Session, Toolbox

Run = Callable[[Toolbox, Sequence[ToolCall]], list[ToolResult]]
OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}


def awaited(toolbox: Toolbox, calls: Sequence[ToolCall]) -> list[ToolResult]:
    return asyncio.run(toolbox.run_async(calls))


@pytest.fixture(params=[Toolbox.run, awaited], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def calls(name: str, number: int = 1, **arguments: Any) -> list[ToolCall]:
    return [ToolCall(name, arguments, str(index)) for index in range(number)]


def made(run: Callable[..., Any], name: str = "t", **limits: Any) -> Tool:
    return Tool(name, "", OBJECT, run, **limits)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hanging functions wait for; opened at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Crowd:
    """Counts how many calls run at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1

    def block(self) -> None:
        with self.inside():
            time.sleep(0.01)

    async def wait(self) -> None:
        with self.inside():
            await asyncio.sleep(0.01)


# -- slots


@pytest.mark.parametrize("kind", ["block", "wait"])
@pytest.mark.parametrize("places", [1, 3])
def test_no_more_calls_run_than_there_are_places_in_the_whole_process(kind: str, places: int) -> None:
    crowd = Crowd()
    boxes = [Toolbox([made(getattr(crowd, kind), concurrency=places, owner="crowd")]) for _ in range(4)]

    async def in_a_loop(toolbox: Toolbox) -> list[ToolResult]:
        return await toolbox.run_async(calls("t", 5))

    with ThreadPoolExecutor(4) as threads:  # two that block, two with a loop of their own
        waiting = [threads.submit(box.run, calls("t", 5)) for box in boxes[:2]]
        waiting += [threads.submit(asyncio.run, in_a_loop(box)) for box in boxes[2:]]
        results = [result for each in waiting for result in each.result(30)]
    assert [result.content for result in results if not result.ok] == []
    assert len(results) == 20
    assert crowd.most <= places
    if places > 1:
        assert crowd.most > 1


def test_calls_of_one_place_run_in_their_order(run: Run) -> None:
    seen: list[int] = []
    numbers = [ToolCall("t", {"n": n}, str(n)) for n in range(30)]
    results = run(Toolbox([made(lambda n: seen.append(n), concurrency=1)]), numbers)
    assert seen == list(range(30))
    assert [result.call_id for result in results] == [str(n) for n in range(30)]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_time_out_may_be_longer_than_python_can_wait(run: Run, kind: str) -> None:
    async def coroutine() -> str:
        await asyncio.sleep(0.01)
        return "done"

    def function() -> str:
        time.sleep(0.01)
        return "done"

    waited = made(function if kind == "function" else coroutine, timeout=1e12)
    assert [each.content for each in run(Toolbox([waited]), calls("t"))] == ["done"]


def test_a_call_tells_how_long_it_waited_for_its_turn(run: Run) -> None:
    first, second = run(Toolbox([made(lambda: time.sleep(0.1), concurrency=1)]), calls("t", 2))
    assert first.queued < 0.09 <= second.queued
    assert second.seconds < second.queued + 1
    assert (first.attempts, second.attempts) == (1, 1)


def test_a_hanging_call_keeps_its_place_and_whoever_waits_is_refused_at_once(
    run: Run, gate: threading.Event
) -> None:
    running = threading.Event()

    def stall() -> str:
        running.set()
        gate.wait()
        return "late"

    toolbox = Toolbox([made(stall, timeout=0.2, concurrency=1)])
    began = time.monotonic()
    results = run(toolbox, calls("t", 20))
    assert time.monotonic() - began < 3
    assert [result.error for result in results] == ["timeout"] * 20
    assert results[0].content == "error: t did not finish within 0.2 s"
    assert results[1].content == "error: t does not answer; 1 earlier calls of it still run"
    assert (results[0].attempts, results[1].attempts) == (1, 0)
    gate.set()
    until(lambda: toolbox.run(calls("t"))[0].ok)


def test_a_coroutine_that_cleans_up_keeps_its_place_until_it_is_done(run: Run) -> None:
    crowd = Crowd()

    async def tidy() -> None:
        with crowd.inside():
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.03)

    results = run(Toolbox([made(tidy, timeout=0.05, concurrency=1)]), calls("t", 3))
    assert [result.content for result in results] == ["error: t did not finish within 0.05 s"] * 3
    assert crowd.most == 1


def test_a_coroutine_that_ignores_its_cancellation_hangs(run: Run) -> None:
    stop = threading.Event()

    async def stubborn() -> None:
        while not stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    toolbox = Toolbox([made(stubborn, timeout=0.05, concurrency=1)])
    results = run(toolbox, calls("t", 3))
    assert [result.attempts for result in results] == [1, 0, 0]
    assert "does not answer; 1 earlier calls" in results[1].content
    stop.set()
    until(lambda: toolbox.run(calls("t"))[0].ok)


def test_a_tool_that_raises_or_is_cut_short_gives_its_place_back(run: Run) -> None:
    def fail() -> None:
        raise SystemExit

    toolbox = Toolbox([made(fail, concurrency=1)])
    assert [result.error for result in run(toolbox, calls("t", 5))] == ["tool_error"] * 5
    assert toolbox.tools["t"].limits is not None


async def test_cancelling_takes_no_place_away(gate: threading.Event) -> None:
    def stall() -> None:
        gate.wait()

    async def linger() -> None:
        await asyncio.sleep(60)

    tools = [
        made(stall, "stall", concurrency=1),
        made(linger, "linger", concurrency=2),
        made(linger, "slow", rate_limit=Rate(1, 3600), timeout=7200),
        made(linger, "again", retries=Retries(3)),
        made(linger, "kept", cache=Caching()),
    ]
    toolbox = Toolbox(tools)
    running = asyncio.create_task(toolbox.run_async([call for each in tools for call in calls(each.name, 4)]))
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.set()
    slots = [each.limits.slots for each in tools if each.limits and each.limits.slots]
    await asyncio.to_thread(until, lambda: not any(each._taken or each.hanging for each in slots))
    await asyncio.to_thread(until, lambda: limits.RUNNING._taken == 0)


async def test_a_call_cancelled_before_the_process_has_room_leaves_its_slot(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(limits, "RUNNING", limits.Slots(1))
    busy, other = made(lambda: gate.wait(), "busy"), made(lambda: "x", "other", concurrency=1)
    toolbox = Toolbox([busy, other])
    first = asyncio.create_task(toolbox.run_async(calls("busy")))
    second = asyncio.create_task(toolbox.run_async(calls("other")))
    assert other.limits is not None and (slots := other.limits.slots) is not None
    await asyncio.to_thread(until, lambda: slots._taken == 1)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await asyncio.to_thread(until, lambda: slots._taken == 0)
    gate.set()
    assert (await first)[0].ok
    assert (await toolbox.run_async(calls("other")))[0].ok


# -- the whole process


def test_one_cap_holds_for_all_tools(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUNNING", limits.Slots(4))
    crowd = Crowd()
    toolbox = Toolbox([made(crowd.block, "a"), made(crowd.wait, "b"), made(crowd.block, "c", concurrency=3)])
    results = run(toolbox, [*calls("a", 10), *calls("b", 10), *calls("c", 10)])
    assert all(result.ok for result in results)
    assert 2 <= crowd.most <= 4
    assert limits.RUNNING._taken == 0


def test_calls_are_refused_when_hanging_ones_fill_the_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(limits, "RUNNING", limits.Slots(2))
    toolbox = Toolbox([made(lambda: gate.wait(), "stall", timeout=0.1), made(lambda: "x", "other")])
    run(toolbox, calls("stall", 2))
    (result,) = run(toolbox, calls("other"))
    assert result.content == "error: other cannot be run; 2 calls that do not answer still run"
    gate.set()
    until(lambda: toolbox.run(calls("other"))[0].ok)


def test_no_thread_is_left_per_hanging_call_of_a_tool_with_places(run: Run, gate: threading.Event) -> None:
    toolbox = Toolbox([made(lambda: gate.wait(), timeout=0.05, concurrency=2)])
    run(toolbox, calls("t", 2))
    threads = threading.active_count()
    for _ in range(5):
        run(toolbox, calls("t", 50))
    assert threading.active_count() <= threads + 1


# -- rates


def test_calls_begin_as_the_rate_says(run: Run) -> None:
    begun: list[float] = []
    toolbox = Toolbox([made(lambda: begun.append(time.monotonic()), rate_limit=Rate(2, 0.1))])
    assert all(result.ok for result in run(toolbox, calls("t", 6)))
    begun.sort()
    for first, beyond in zip(begun, begun[2:], strict=False):
        assert beyond - first > 0.09
    assert begun[-1] - begun[0] < 3


def test_a_call_whose_turn_comes_too_late_is_refused_at_once(run: Run) -> None:
    toolbox = Toolbox([made(lambda: "x", rate_limit=Rate(1, 3600), timeout=5)])
    began = time.monotonic()
    first, second = run(toolbox, calls("t", 2))
    assert time.monotonic() - began < 3
    assert first.ok
    assert (second.error, second.attempts) == ("rate_limited", 0)
    assert second.content == "error: t is busy; it takes 1 calls in 3600 s"


def test_who_waited_for_a_place_still_keeps_to_the_rate(run: Run) -> None:
    begun: list[float] = []

    def note(first: bool = False) -> None:
        begun.append(time.monotonic())
        time.sleep(0.3 if len(begun) <= 2 else 0)

    toolbox = Toolbox([made(note, concurrency=2, rate_limit=Rate(1, 0.1), timeout=5)])
    assert all(result.ok for result in run(toolbox, calls("t", 5)))
    begun.sort()
    assert min(later - earlier for earlier, later in zip(begun, begun[1:], strict=False)) > 0.09


# -- retries


def failing(times: int, error: Callable[[], Exception]) -> tuple[Callable[[], str], list[float]]:
    """A function that fails so many times, and when it was called."""
    called: list[float] = []

    def flaky() -> str:
        called.append(time.monotonic())
        if len(called) <= times:
            raise error()
        return "at last"

    return flaky, called


def test_a_failure_that_may_pass_is_tried_again(run: Run) -> None:
    flaky, called = failing(2, lambda: TransientError("busy"))
    (result,) = run(Toolbox([made(flaky, retries=Retries(2, wait=0.02, factor=3))]), calls("t"))
    assert (result.content, result.attempts, result.ok) == ("at last", 3, True)
    assert called[1] - called[0] >= 0.02 and called[2] - called[1] >= 0.06


def test_the_last_failure_is_told_when_no_attempt_is_left(run: Run) -> None:
    flaky, called = failing(9, lambda: TransientError("busy"))
    (result,) = run(Toolbox([made(flaky, retries=Retries(2, wait=0))]), calls("t"))
    assert (result.content, result.error, result.attempts) == ("error: busy", "tool_error", 3)
    assert len(called) == 3


@pytest.mark.parametrize("error", [ToolError("no"), ValueError("no"), TimeoutError("no")])
def test_other_failures_are_not_tried_again(run: Run, error: Exception) -> None:
    flaky, called = failing(1, lambda: error)
    (result,) = run(Toolbox([made(flaky, retries=Retries(5, wait=0))]), calls("t"))
    assert (result.error, result.attempts, len(called)) == ("tool_error", 1, 1)


def test_a_call_that_ran_out_of_time_is_not_tried_again(run: Run) -> None:
    tries = []

    async def slow() -> None:
        tries.append(1)
        await asyncio.sleep(60)

    (result,) = run(Toolbox([made(slow, retries=Retries(5, wait=0), timeout=0.05)]), calls("t"))
    assert (result.error, result.attempts, len(tries)) == ("timeout", 1, 1)


def test_a_service_is_given_the_time_it_asked_for(run: Run) -> None:
    flaky, called = failing(1, lambda: RateLimited("slow down", after=0.15))
    (result,) = run(Toolbox([made(flaky, retries=Retries(1, wait=0))]), calls("t"))
    assert result.ok and called[1] - called[0] >= 0.15


def test_a_service_that_stays_at_its_limit_is_told_as_such(run: Run) -> None:
    flaky, _ = failing(9, lambda: RateLimited("slow down"))
    (result,) = run(Toolbox([made(flaky, retries=Retries(1, wait=0))]), calls("t"))
    assert (result.error, result.content) == ("rate_limited", "error: slow down")


def test_no_place_is_held_between_attempts(run: Run) -> None:
    flaky, called = failing(1, lambda: TransientError("busy"))
    order: list[str] = []

    def other() -> None:
        order.append(f"after {len(called)}")

    def both(flaky_one: bool) -> str | None:
        return flaky() if flaky_one else other()

    toolbox = Toolbox([made(both, concurrency=1, retries=Retries(1, wait=0.2))])
    run(toolbox, [ToolCall("t", {"flaky_one": flag}, "") for flag in (True, False)])
    assert order == ["after 1"]


def test_each_attempt_gets_the_arguments_as_they_were_given(run: Run) -> None:
    seen = []

    def spoil(items: list[int]) -> None:
        seen.append(list(items))
        items.clear()
        raise TransientError("busy")

    (result,) = run(Toolbox([made(spoil, retries=Retries(1, wait=0))]), calls("t", items=[1, 2]))
    assert seen == [[1, 2], [1, 2]]
    assert result.arguments == {"items": [1, 2]}


# -- cached results


def counting(**options: Any) -> tuple[Toolbox, list[Any]]:
    seen: list[Any] = []

    def count(n: int = 0, **_: Any) -> str:
        seen.append(n)
        if n < 0:
            raise ToolError("negative")
        return f"{n}: {len(seen)}"

    return Toolbox([made(count, cache=Caching(), **options)]), seen


def test_equal_calls_are_run_once(run: Run) -> None:
    toolbox, seen = counting(reward=0.5)
    first, second = (run(toolbox, [ToolCall("t", {"n": 1, "m": [2]}, key)])[0] for key in "ab")
    assert len(seen) == 1
    assert (first.cached, second.cached) == (False, True)
    assert (second.content, second.call_id, second.reward) == (first.content, "b", 0.5)
    assert (second.attempts, second.seconds) == (0, 0)


def test_the_order_of_arguments_makes_no_difference_and_their_type_does(run: Run) -> None:
    toolbox, seen = counting()
    for arguments in ({"n": 1, "m": 2}, {"m": 2, "n": 1}, {"n": True, "m": 2}, {"n": 1.0, "m": 2}):
        run(toolbox, [ToolCall("t", arguments, "")])
    assert len(seen) == 3


def test_equal_calls_at_the_same_time_are_run_once(run: Run) -> None:
    seen = []

    def slow() -> str:
        seen.append(1)
        time.sleep(0.05)
        return "x"

    results = run(Toolbox([made(slow, cache=Caching())]), calls("t", 20))
    assert len(seen) == 1
    assert {result.content for result in results} == {"x"}
    assert sum(not result.cached for result in results) == 1


def test_failures_are_not_kept(run: Run) -> None:
    toolbox, seen = counting()
    for _ in range(2):
        assert run(toolbox, calls("t", n=-1))[0].error == "tool_error"
    assert len(seen) == 2


def test_another_version_knows_nothing_of_the_last(run: Run) -> None:
    toolbox, seen = counting(owner="o", version="1")
    run(toolbox, calls("t"))
    newer = Tool("t", "", OBJECT, toolbox.tools["t"].run, cache=Caching(), owner="o", version="2")
    run(Toolbox([newer]), calls("t"))
    run(Toolbox([newer]), calls("t"))
    assert len(seen) == 2


async def test_cancelling_whoever_seeks_or_waits_leaves_the_others_their_result() -> None:
    started, done = threading.Event(), asyncio.Event()

    async def slow() -> str:
        started.set()
        while not go.is_set():
            await asyncio.sleep(0.005)
        return "x"

    go = threading.Event()
    toolbox = Toolbox([made(slow, cache=Caching())])
    tasks = [asyncio.create_task(Toolbox([toolbox.tools["t"]]).run_async(calls("t"))) for _ in range(4)]
    await asyncio.to_thread(started.wait, 5)
    await asyncio.sleep(0.05)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)
    go.set()
    results = await asyncio.wait_for(asyncio.gather(tasks[1], tasks[3]), 5)
    assert [result.content for (result,) in results] == ["x", "x"]
    assert not done.is_set()


# -- rewards, answers and what is filled in


@pytest.mark.parametrize(
    ("reward", "worth"),
    [
        (0.5, [0.5, 0, 0]),
        ({"ok": 1, "tool_error": -1, "timeout": -2}, [1, -1, -2]),
        ({"timeout": -2}, [0, 0, -2]),
        (
            lambda result: len(result.content),
            [1, len("error: no"), len("error: t did not finish within 0.1 s")],
        ),
        (None, [0, 0, 0]),
    ],
)
def test_a_call_is_worth_what_the_tool_says(run: Run, reward: Any, worth: list[float]) -> None:
    async def act(how: str) -> str:
        if how == "fail":
            raise ToolError("no")
        await asyncio.sleep(60 if how == "hang" else 0)
        return "x"

    toolbox = Toolbox([made(act, reward=reward, timeout=0.1)])
    results = run(toolbox, [ToolCall("t", {"how": how}, "") for how in ("work", "fail", "hang")])
    assert [result.reward for result in results] == worth


def test_an_output_adds_its_reward_and_may_answer(run: Run) -> None:
    toolbox = Toolbox([made(lambda: ToolOutput({"a": 1}, reward=0.25, answer="42"), reward=0.5)])
    (result,) = run(toolbox, calls("t"))
    assert (result.content, result.reward, result.answer) == ('{"a": 1}', 0.75, "42")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "much"])
def test_a_reward_that_is_no_number_is_an_error_of_the_tool(run: Run, reward: Any) -> None:
    (result,) = run(Toolbox([made(lambda: ToolOutput("x", reward=reward))]), calls("t"))
    assert (result.error, result.reward) == ("tool_error", 0)


@tool
def draw(rng: Hidden[np.random.Generator], sides: int = 10**9) -> int:
    """Draw a number."""
    return int(rng.integers(sides))


@tool
async def adraw(rng: Hidden[np.random.Generator]) -> int:
    """Draw a number, later."""
    return int(rng.integers(10**9))


def test_a_seed_gives_the_same_draws_however_they_are_run() -> None:
    def episode(run: Run, seed: int) -> list[str]:
        toolbox = Toolbox([draw, adraw])
        toolbox.begin(Session(seed=seed))
        replies = [[*calls("draw", 2), *calls("adraw", 2)], calls("adraw"), calls("draw")]
        return [result.content for reply in replies for result in run(toolbox, reply)]

    def in_a_thread(toolbox: Toolbox, calls: Sequence[ToolCall]) -> list[ToolResult]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(toolbox.run, calls).result()

    drawn = [episode(run, 7) for run in (Toolbox.run, awaited, in_a_thread)]
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(set(drawn[0])) == 6  # each call has a generator of its own
    assert episode(Toolbox.run, 8) != drawn[0]


def test_what_is_filled_in_stands_in_no_record(run: Run) -> None:
    @tool(secrets={"key": "hunter2"})
    def ask(q: str, key: str, state: Hidden[dict[str, Any]]) -> str:
        """Ask."""
        state["asked"] = state.get("asked", 0) + 1
        return f"{len(key)} {state['asked']}"

    toolbox = Toolbox([ask])
    for expected in ("7 1", "7 2"):
        (result,) = run(toolbox, calls("ask", q="x"))
        assert result.content == expected
        assert result.arguments == {"q": "x"}
    toolbox.begin(Session())
    assert run(toolbox, calls("ask", q="x"))[0].content == "7 1"
    (refused,) = run(toolbox, calls("ask", q="x", key="y"))
    assert refused.error == "invalid_arguments" and "hunter2" not in repr((refused, ask))


# -- results in tokens


@pytest.mark.parametrize("text", ["x" * 1000, "\N{GRINNING FACE}" * 300, "ä" * 700, "<|im_end|>" * 200])
@pytest.mark.parametrize("tokens", [1, 7, 100, 5000])
def test_results_are_cut_in_tokens(run: Run, text: str, tokens: int) -> None:
    tokenizer = ByteTokenizer()
    toolbox = Toolbox([made(lambda: text, max_result_tokens=tokens)], tokenizer=tokenizer)
    (result,) = run(toolbox, calls("t"))
    kept = result.content.partition("\n[... ")[0]
    assert text.startswith(kept)
    assert len(tokenizer.encode(kept)) <= tokens
    assert result.cut == len(text) - len(kept)
    if result.cut:
        assert len(tokenizer.encode(text[: len(kept) + 1])) > tokens  # and not a character more than needed
        assert result.content.endswith(f"\n[... {result.cut} more characters cut]")


def test_a_flood_is_not_tokenised_whole(run: Run) -> None:
    class Counting(ByteTokenizer):
        longest = 0

        def encode(self, text: str, **options: Any) -> list[int]:
            self.longest = max(self.longest, len(text))
            return super().encode(text, **options)

    tokenizer = Counting()
    flood = made(lambda: "x" * 10**7, max_result_tokens=10, max_result_chars=10**7)
    run(Toolbox([flood], tokenizer=tokenizer), calls("t"))
    assert tokenizer.longest < 10_000


def test_tokens_without_a_tokenizer_are_a_mistake_of_the_developer() -> None:
    with pytest.raises(ValueError, match="t has max_result_tokens, so the environment needs a tokenizer"):
        Toolbox([made(lambda: "", max_result_tokens=5)])


# -- processes


def _in_the_child(toolbox: Toolbox, names: list[str], answers: Any) -> None:
    answers.put([result.content for name in names for result in toolbox.run(calls(name))])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_places_of_its_own(gate: threading.Event) -> None:
    running = [threading.Event() for _ in range(3)]
    mine = multiprocessing.current_process().pid

    def stall(index: int = 0) -> str:
        if multiprocessing.current_process().pid == mine:
            running[index].set()
            gate.wait()
        return "free"

    async def astall(index: int = 2) -> str:
        if multiprocessing.current_process().pid == mine:
            running[index].set()
            while not gate.is_set():
                await asyncio.sleep(0.01)
        return "free"

    names = ["plain", "single", "kept", "async", "paced"]
    toolbox = Toolbox(
        [
            made(stall, "plain"),
            made(stall, "single", concurrency=1),
            made(lambda: stall(1), "kept", cache=Caching(), concurrency=1),
            made(astall, "async", concurrency=1),
            made(lambda: "free", "paced", rate_limit=Rate(1, 3600)),
        ]
    )
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(toolbox.run, [call for name in names for call in calls(name, 2)])
        for each in running:
            assert each.wait(5)
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=_in_the_child, args=(toolbox, names, answers))
        child.start()
        try:
            assert answers.get(timeout=20) == ["free"] * 5
        finally:
            child.join(5)
            child.kill()
            gate.set()
        assert len(busy.result(20)) == 10


# -- what a tool says of its own failure


def test_a_tool_can_say_that_its_time_is_up(run: Run) -> None:
    def give_up() -> None:
        raise TimedOut

    def hang() -> None:
        time.sleep(0.3)

    options: dict[str, Any] = {"timeout": 0.05, "reward": {"timeout": -1.0}}
    (said,) = run(Toolbox([made(give_up, **options)]), calls("t"))
    (real,) = run(Toolbox([made(hang, **options)]), calls("t"))
    assert said == real


def test_no_time_out_is_tried_again(run: Run) -> None:
    tried = []

    def give_up() -> None:
        tried.append(1)
        raise TimedOut

    (result,) = run(Toolbox([made(give_up, retries=Retries(3, wait=0.0))]), calls("t"))
    assert (len(tried), result.attempts, result.error) == (1, 1, "timeout")


def test_what_is_simulated_stands_in_the_result_alone(run: Run) -> None:
    def fail() -> None:
        failure = ToolError("out of order")
        failure.simulated = "outage"
        raise failure

    (output,) = run(Toolbox([made(lambda: ToolOutput("as ever", simulated="nothing new"))]), calls("t"))
    (failed,) = run(Toolbox([made(fail)]), calls("t"))
    assert (output.content, output.simulated) == ("as ever", "nothing new")
    assert (failed.content, failed.simulated) == ("error: out of order", "outage")
