"""Recorded tool traffic: a run repeats from its recording, byte for byte, without running a tool."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agent_r1_env import traffic
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import DataError, ToolError, UnknownName
from agent_r1_env.limits import Caching
from agent_r1_env.messages import ToolCall
from agent_r1_env.signature import Hidden
from agent_r1_env.testing import answer, call, sum_env
from agent_r1_env.tool import Tool, ToolOutput, tool
from agent_r1_env.toolbox import Session, Toolbox
from agent_r1_env.traffic import NotRecordedWarning, Recorder, Replay


class Workshop:
    """Tools of every kind, and how often they were run."""

    def __init__(self) -> None:
        self.runs = self.built = 0

    def tools(self) -> list[Tool]:
        shop = self

        @tool
        def draw(rng: Hidden[np.random.Generator]) -> int:
            """Draw a number."""
            shop.runs += 1
            return int(rng.integers(1 << 40))

        @tool(timeout=0.1)
        async def linger() -> None:
            """Never end."""
            shop.runs += 1
            await asyncio.sleep(60)

        @tool
        def fail(text: str) -> None:
            """Fail."""
            shop.runs += 1
            raise ToolError(text)

        @tool(max_result_chars=20, reward=0.25, concurrency=1, cache=Caching())
        def echo(text: str, n: int = 1) -> ToolOutput:
            """Say it again."""
            shop.runs += 1
            return ToolOutput(text * n, reward=0.5)

        @tool
        def finish(text: str) -> ToolOutput:
            """Answer."""
            shop.runs += 1
            return ToolOutput("taken", answer=text)

        def build() -> Any:
            shop.built += 1
            counted: list[int] = []

            def count() -> int:
                shop.runs += 1
                counted.append(1)
                return len(counted)

            return count

        count = Tool("count", "Count.", {"type": "object"}, lambda: 0, begin=build)
        return [draw, linger, fail, echo, finish, count]


REPLIES = [
    call("draw") * 3,
    call("echo", text="\u2028\x85\x00\ud800<|im_end|>\N{GRINNING FACE}") + call("echo", text="y" * 99, n=3),
    call("echo", text="again") * 3,
    call("fail", text="no \u2029") + call("linger") + call("count") + call("count"),
    call("echo", txt="wrong") + call("nobody") + "<tool_call>{</tool_call>",
    "neither a call nor an answer",
    call("finish", text="1"),
]


def played(env: ToolEnv, task: int) -> list[Any]:
    """Everything that a run shows."""
    observation, info = env.reset(seed=3, options={"task": task})
    seen: list[Any] = [observation, info]
    for reply in REPLIES:
        seen += env.step(reply)
    return seen


async def played_async(env: ToolEnv, task: int) -> list[Any]:
    observation, info = env.reset(seed=3, options={"task": task})
    seen: list[Any] = [observation, info]
    for reply in REPLIES:
        seen += await env.step_async(reply)
    return seen


def test_a_run_repeats_from_its_recording_byte_for_byte_without_running_a_tool(tmp_path: Path) -> None:
    file = str(tmp_path / "deep" / "traffic.jsonl")
    shop = Workshop()
    env = sum_env(shop.tools(), tool_traffic={"record": file})
    recorded = [played(env, 0), played(env, 1), asyncio.run(played_async(env, 2))]
    assert shop.runs and shop.built == 3
    infos = [part for run in recorded for part in run if isinstance(part, dict)]
    records = [record for info in infos for record in info["calls"]]
    assert any(record["queued"] for record in records) and any(record["cached"] for record in records)
    again = Workshop()
    env = sum_env(again.tools(), tool_traffic={"replay": file})
    replayed = [played(env, 0), asyncio.run(played_async(env, 1)), played(env, 2)]
    assert json.dumps(replayed) == json.dumps(recorded)
    assert again.runs == again.built == 0


def test_equal_calls_are_replayed_in_the_order_of_the_calls(tmp_path: Path) -> None:
    first_may_end, numbers = threading.Event(), itertools.count(1)

    @tool
    def race() -> str:
        """End in the wrong order; a tool that took the state would end in the right one."""
        number = next(numbers)
        if number == 1:
            assert first_may_end.wait(60)
        else:
            first_may_end.set()
        return f"call {number}"

    file = tmp_path / "traffic.jsonl"
    calls = [ToolCall("race", {}, str(n)) for n in range(2)]
    recorded = Toolbox([race], traffic=Recorder(file)).run(calls)
    replayed = Toolbox([race], traffic=Replay(file)).run(calls)
    assert [each.content for each in replayed] == [each.content for each in recorded]


def test_the_last_of_equal_calls_answers_for_ever(tmp_path: Path) -> None:
    numbers = iter("abc")
    count = Tool("count", "", {"type": "object"}, lambda: next(numbers))
    box = Toolbox([count], traffic=Recorder(tmp_path / "t"))
    for _ in range(2):
        box.run([ToolCall("count", {}, "1")])
    box = Toolbox([count], traffic=Replay(tmp_path / "t"))
    assert [box.run([ToolCall("count", {}, "1")])[0].content for _ in range(4)] == list("abbb")


def echo(text: str) -> str:
    return text


ECHO = Tool("echo", "", {"type": "object", "additionalProperties": True}, echo)


def replaying(tmp_path: Path, tool: Tool = ECHO, task: str = "") -> Toolbox:
    """A toolbox over a recording of one call, ``echo(text="x")``."""
    file = tmp_path / "t"
    Toolbox([ECHO], traffic=Recorder(file)).run([ToolCall("echo", {"text": "x"}, "1")])
    box = Toolbox([tool], traffic=Replay(file))
    box.begin(Session(type("T", (), {"id": task})() if task else None))
    return box


def test_a_call_that_was_not_recorded_is_a_failure_and_a_warning(tmp_path: Path) -> None:
    box = replaying(tmp_path)
    with pytest.warns(NotRecordedWarning, match="holds no such call of echo for task ''"):
        (result,) = box.run([ToolCall("echo", {"text": "y"}, "7")])
    assert (result.error, result.call_id, result.ok) == ("not_recorded", "7", False)
    assert result.content == "error: this call of echo is not in the recording"


def test_another_task_or_version_is_another_call(tmp_path: Path) -> None:
    with pytest.warns(NotRecordedWarning):
        assert not replaying(tmp_path, task="other").run([ToolCall("echo", {"text": "x"}, "1")])[0].ok
    newer = Tool("echo", "", ECHO.parameters, echo, version="2")
    (tmp_path / "t").unlink()
    with pytest.warns(NotRecordedWarning):
        assert not replaying(tmp_path, newer).run([ToolCall("echo", {"text": "x"}, "1")])[0].ok


def test_unrecorded_calls_are_counted_in_the_metrics(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.touch()
    env = sum_env(tool_traffic={"replay": str(file)})
    env.reset(seed=0)
    with pytest.warns(NotRecordedWarning):
        env.step(call("add", a=1, b=2))
    *_, info = env.step(answer(1))
    assert info["metrics"]["calls/not_recorded"] == 1


def test_calls_that_never_reached_a_tool_are_not_recorded(tmp_path: Path) -> None:
    box = Toolbox([ECHO], traffic=Recorder(tmp_path / "t"))
    box.run([ToolCall("nobody", {}, "1"), ToolCall("echo", {"text": float("nan")}, "1")])
    assert (tmp_path / "t").read_text() == ""


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t")
    boxes = [Toolbox([ECHO], traffic=recorder) for _ in range(8)]
    calls = [ToolCall("echo", {"text": "x" * 5000}, "1")] * 20
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda box: box.run(calls), boxes))
    lines = (tmp_path / "t").read_text().splitlines()
    assert len(lines) == 160
    assert {json.loads(line)["content"] for line in lines} == {"x" * 5000}


def test_a_file_that_holds_something_is_not_recorded_over(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("mine\n")
    with pytest.raises(DataError, match="holds something already; delete it or record to another file"):
        sum_env(tool_traffic={"record": str(file)})
    assert file.read_text() == "mine\n"


def test_environments_of_one_process_share_a_recording(tmp_path: Path) -> None:
    how = {"record": str(tmp_path / "t")}
    for _ in range(2):
        env = sum_env(tool_traffic=how)
        env.reset(seed=0)
        env.step(call("add", a=1, b=2))
    assert len((tmp_path / "t").read_text().splitlines()) == 2
    (tmp_path / "t").unlink()
    assert traffic.opened(how) is not env.toolbox.traffic


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"rekord": "t"}, UnknownName, "no way of tool traffic named 'rekord'; did you mean 'record'"),
        ({"record": "t", "replay": "t"}, UnknownName, "no way of tool traffic"),
        ({"replay": "nothing"}, DataError, "no such recording"),
        ({"replay": "broken"}, DataError, "row 2: no line of a recording"),
        ({"replay": "other"}, DataError, "row 1: no line of a recording: 'tool'"),
    ],
)
def test_wrong_recordings_are_told_when_an_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str], error: type[Exception], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Toolbox([ECHO], traffic=Recorder(Path("broken"))).run([ToolCall("echo", {"text": "x"}, "1")])
    with Path("broken").open("a") as file:
        file.write('{"tool": "ech')
    Path("other").write_text('{"question": "x"}\n')
    with pytest.raises(error, match=told):
        sum_env(tool_traffic=how)


def test_a_registered_environment_takes_the_same(tmp_path: Path) -> None:
    import agent_r1_env  # noqa: F401 - registers the environment

    seen = []
    for way in ("record", "replay"):
        env = gym.make("AgentR1/HotpotQA-v0", tool_traffic={way: str(tmp_path / "t")})
        env.reset(seed=0)
        seen.append(env.step(call("search", query="capital"))[0])
        env.close()
    assert seen[0] == seen[1]
