"""Tools of MCP servers: the SDK's own server, started for real, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env.catalog import Catalog
from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Toolbox
from agent_r1_env.toolfile import check_tool, load_tool, load_tools

if importlib.util.find_spec("mcp_types") is None:
    pytest.skip("needs mcp, from the extra mcp", allow_module_level=True)

SERVER = Path(__file__).parent / "mcp_server.py"
STDIO = json.dumps([sys.executable, str(SERVER)])
NAMES = [
    "echo",
    "plan",
    "numbers",
    "odd_name_with_spaces",
    "fail",
    "wait",
    "meet",
    "die",
    "who",
    "long",
    "media",
]


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    """The address of the server over streamable HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait(30)


@pytest.fixture(params=["stdio", "http"])
def reach(request: pytest.FixtureRequest) -> str:
    """The lines under ``mcp`` that lead to the server."""
    return (
        f"command: {STDIO}"
        if request.param == "stdio"
        else f"url: '{request.getfixturevalue('http_server')}'"
    )


Write = Callable[..., Entry]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "tools").mkdir()

    def entry(mcp: str, more: str = "") -> Entry:
        lines = "\n".join(f"  {line}" for line in mcp.splitlines())
        (tmp_path / "tools" / "server.yaml").write_text(f"name: server\nmcp:\n{lines}\n{more}\n")
        return Catalog.open(tmp_path).tool("server")

    return entry


Load = Callable[..., Toolbox]


@pytest.fixture
def load(write: Write) -> Iterator[Load]:
    """A toolbox with the tools of a server, closed at the end."""
    boxes = []

    def box(mcp: str, more: str = "timeout: 30") -> Toolbox:
        boxes.append(Toolbox(load_tools(write(mcp, more)), max_calls=64))
        return boxes[-1]

    yield box
    for each in boxes:
        each.close()


def call(box: Toolbox, name: str, **arguments: Any) -> ToolResult:
    return box.run([ToolCall(name, arguments, "1")])[0]


def pid(box: Toolbox) -> int:
    return int(json.loads(call(box, "who").content)["pid"])


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def within(seconds: float, true: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


# What a server declares


def test_every_tool_of_a_server_is_declared(load: Load, reach: str) -> None:
    box = load(reach)
    assert list(box.tools) == NAMES
    assert box.tools["plan"].description.startswith("Plan a trip.")


def test_nothing_of_a_schema_is_dropped(load: Load, reach: str) -> None:
    schema = load(reach).tools["plan"].parameters
    assert schema["$defs"]["Trip"]["properties"]["mode"]["pattern"] == "^(walk|ride)$"
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


def test_tools_can_be_chosen_and_their_names_begun(load: Load) -> None:
    box = load(f"command: {STDIO}\ntools: [odd.name/with spaces, echo]\nprefix: my-")
    assert list(box.tools) == ["my-odd_name_with_spaces", "my-echo"]
    assert call(box, "my-odd_name_with_spaces").content == "odd"


def test_a_tool_that_the_server_has_not_is_told(write: Write) -> None:
    with pytest.raises(CatalogError) as caught:
        load_tools(write(f"command: {STDIO}\ntools: [echo, numbres]"))
    assert "server.yaml:4:17: the server has no tool 'numbres'; did you mean 'numbers'?" in str(caught.value)


def test_tools_that_would_be_named_alike_are_told(write: Write) -> None:
    command = json.dumps([sys.executable, str(SERVER), "unsound"])
    with pytest.raises(CatalogError, match="'a.b' and 'a_b' of the server would both be named 'a_b'"):
        load_tools(write(f"command: {command}"))


def test_a_schema_that_is_unsound_is_shown_whole_and_calls_go_through(load: Load, caplog: Any) -> None:
    from mcp_server import UNSOUND

    command = json.dumps([sys.executable, str(SERVER), "unsound"])
    box = load(f"command: {command}\ntools: [a.b, draft4]")
    assert [tool.parameters for tool in box.tools.values()] == [UNSOUND["a.b"], UNSOUND["draft4"]]
    assert json.loads(call(box, "a_b").content)["arguments"] == {}
    assert call(box, "a_b", x=1).error is FailureKind.INVALID_ARGUMENTS
    assert call(box, "draft4", n=1).ok
    assert "the schema of draft4 is unsound, so its server alone checks calls" in caplog.text
    other = load(f"command: {command}\ntools: [a_b]")
    assert json.loads(call(other, "a_b", anything=[1]).content)["arguments"] == {"anything": [1]}


# Calls


def test_a_call_goes_to_the_server_and_its_text_comes_back(load: Load, reach: str) -> None:
    box = load(reach)
    assert call(box, "echo", text="søk ✓ 😀\n{x}").content == "søk ✓ 😀\n{x}"
    assert call(box, "numbers", n=3).content == "0\n1\n2"
    assert call(box, "numbers", n=0).content == '{"result": []}'


def test_nested_arguments_are_checked_and_sent(load: Load, reach: str) -> None:
    box = load(reach)
    good = call(box, "plan", trip={"start": {"city": "Bergen"}, "stops": [{"city": "Ås", "at": [1.5]}]})
    assert json.loads(good.content) == {"cities": ["Bergen", "Ås"], "mode": "walk", "note": None}
    wrong = call(box, "plan", trip={"start": {"city": 3}})
    assert (
        wrong.content
        == "error: argument 'trip.start.city' of plan must be a string, but an integer (3) was given"
    )
    for arguments in ({}, {"trip": {}}, {"trip": {"start": {"city": "x"}}, "pace": 1}):
        assert call(box, "plan", **arguments).error is FailureKind.INVALID_ARGUMENTS


def test_parts_that_are_no_text_are_named(load: Load, reach: str) -> None:
    assert call(load(reach), "media").content.splitlines() == [
        "look: ✓",
        "[image/png, 5 bytes]",
        "[audio/wav, 5 bytes]",
        "embedded",
        "[application/pdf, 5 bytes]",
        "[link: file:///l]",
        '{"more": [1, null]}',
    ]


def test_a_tool_that_fails_is_an_observation(load: Load, reach: str) -> None:
    result = call(load(reach), "fail", reason="no")
    assert (result.error, result.attempts) == (FailureKind.TOOL_ERROR, 1)
    assert "Error executing tool fail" in result.content


def test_a_call_that_takes_too_long_is_cancelled_on_the_server(
    load: Load, reach: str, tmp_path: Path
) -> None:
    box, mark = load(reach, "timeout: 1"), tmp_path / "mark"
    result = call(box, "wait", mark=str(mark))
    assert (result.error, result.content) == (FailureKind.TIMEOUT, "error: wait did not finish within 1 s")
    assert within(20, lambda: mark.read_text() == "cancelled")
    assert call(box, "echo", text="still here").ok


async def test_a_cancelled_call_is_cancelled_on_the_server(load: Load, reach: str, tmp_path: Path) -> None:
    box, mark = load(reach), tmp_path / "mark"
    running = asyncio.create_task(box.run_async([ToolCall("wait", {"mark": str(mark)}, "1")]))
    assert await asyncio.to_thread(within, 20, mark.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(within, 20, lambda: mark.read_text() == "cancelled")


def test_calls_of_many_environments_run_at_once_in_one_process(load: Load, reach: str) -> None:
    boxes = [load(reach) for _ in range(4)]
    results: list[ToolResult] = []

    def meet(box: Toolbox) -> None:
        results.extend(box.run([ToolCall("meet", {"count": 32}, str(n)) for n in range(8)]))

    threads = [threading.Thread(target=meet, args=(box,)) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([each for each in results if each.ok]) == 32
    assert len({pid(box) for box in boxes}) == 1


def test_a_flood_is_refused_and_harms_no_other_call(load: Load) -> None:
    box = load(f"command: {STDIO}")
    flood, echo = box.run(
        [ToolCall("long", {"characters": 20_000_000}, "1"), ToolCall("echo", {"text": "x"}, "2")]
    )
    assert flood.content == "error: the answer is longer than 16777216 bytes"
    assert echo.content == "x"
    assert call(box, "long", characters=2_000_000).cut == 2_000_000 - 8000


# Servers that end


def test_a_server_killed_in_the_middle_fails_its_calls_and_is_started_anew(
    load: Load, tmp_path: Path
) -> None:
    box, mark = load(f"command: {STDIO}"), tmp_path / "mark"
    first = pid(box)
    results: list[ToolResult] = []
    thread = threading.Thread(target=lambda: results.append(call(box, "wait", mark=str(mark))))
    thread.start()
    assert within(20, mark.exists)
    os.kill(first, signal.SIGKILL)
    thread.join(20)
    assert results[0].error is FailureKind.TOOL_ERROR
    assert results[0].content == "error: the server of wait failed: Connection closed"
    assert pid(box) != first


def test_a_call_whose_server_died_is_tried_again(
    load: Load, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "s3cr3t-key")
    box = load(f"command: {STDIO}", "secrets: [SERVER_KEY]\nretries: {times: 2, wait: 0.01}")
    result = call(box, "die")
    assert (result.error, result.attempts) == (FailureKind.TOOL_ERROR, 3)
    assert call(box, "echo", text="x").ok
    assert "the server of server ended; the last it wrote: about to die of ***" in caplog.text


def test_a_server_that_died_between_calls_is_started_anew(load: Load) -> None:
    box = load(f"command: {STDIO}")
    first = pid(box)
    os.kill(first, signal.SIGKILL)
    assert within(20, lambda: not alive(first))
    time.sleep(0.3)
    assert call(box, "echo", text="x").ok


def test_a_server_that_cannot_be_started_anew_is_an_observation(load: Load, tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {SERVER}\n")
    script.chmod(0o755)
    box = load(f"command: [{script}]")
    script.unlink()
    call(box, "die")
    result = call(box, "echo", text="x")
    assert result.content == "error: the server of echo cannot be reached"


def test_a_server_over_http_that_is_gone_is_an_observation(load: Load) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], stderr=subprocess.DEVNULL)
    box = None
    end = time.monotonic() + 60
    while box is None and time.monotonic() < end:
        with contextlib.suppress(CatalogError):
            box = load(f"url: 'http://127.0.0.1:{port}/mcp'")
    assert box is not None
    process.kill()
    process.wait(30)
    assert [call(box, "echo", text="x").error for _ in range(2)] == [FailureKind.TOOL_ERROR] * 2


def test_the_server_ends_with_the_last_environment(write: Write) -> None:
    entry = write(f"command: {STDIO}")
    first, second = Toolbox(load_tools(entry)), Toolbox(load_tools(entry))
    process = pid(first)
    first.close()
    first.close()
    assert pid(second) == process
    second.close()
    assert within(20, lambda: not alive(process))


@pytest.mark.parametrize("ending", ["", "import os; os.kill(os.getpid(), 9)"])
def test_no_server_outlives_a_process_that_closes_nothing(write: Write, ending: str) -> None:
    entry = write(f"command: {STDIO}")
    code = f"""
import sys
from agent_r1_env.catalog import Catalog, load_tools
from agent_r1_env.messages import ToolCall
from agent_r1_env.toolbox import Toolbox
box = Toolbox(load_tools(Catalog.open({str(entry.path.parent.parent)!r}).tool("server")))
print(box.run([ToolCall("who", {{}}, "1")])[0].content, flush=True)
{ending}
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    assert within(20, lambda: not alive(json.loads(done.stdout)["pid"]))


# Servers that never were


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["no-such-program-here"], "there is no program 'no-such-program-here'"),
        (["cat"], "the server does not speak MCP"),
        (["echo", "hello there"], "the last it wrote:\n    hello there"),
        (
            [sys.executable, "-c", "raise SystemExit('no licence found')"],
            "the last it wrote:\n    no licence found",
        ),
        (["sleep", "60"], "it did not answer within 1 s"),
    ],
)
def test_a_server_that_does_not_speak_the_protocol_is_told_when_it_is_loaded(
    write: Write, command: list[str], told: str
) -> None:
    entry = write(f"command: {json.dumps(command)}\nstartup: {1 if command[0] == 'sleep' else 30}")
    check_tool(entry)
    with pytest.raises(CatalogError) as caught:
        load_tools(entry)
    assert "server.yaml:3:12: " in str(caught.value)
    assert told in str(caught.value)
    assert ("did not answer within" in str(caught.value)) == (command[0] == "sleep")


def test_an_address_without_a_server_is_told(write: Write) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(CatalogError) as caught:
        load_tools(write(f"url: 'http://me:pass@127.0.0.1:{port}/mcp'"))
    assert "ConnectError" in str(caught.value)
    assert "pass" not in str(caught.value)


def test_headers_with_secrets_reach_the_server_and_no_log(
    write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SERVER_KEY", "s3cr3t-key")
    seen: list[Any] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_error(401)

        def log_message(self, *_: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    headers = "headers: {Authorization: 'Bearer {secrets.key}'}"
    with pytest.raises(CatalogError, match="does not speak MCP"):
        load_tools(
            write(
                f"url: 'http://127.0.0.1:{web.server_address[1]}/'\n{headers}", "secrets: {key: SERVER_KEY}"
            )
        )
    web.shutdown()
    web.server_close()
    assert seen[0] == "Bearer s3cr3t-key"
    assert "s3cr3t" not in caplog.text


def test_a_server_gets_the_environment_that_the_file_names(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVER_KEY", "SERVER_MODE", "SERVER_OTHER"):
        monkeypatch.setenv(name, f"{name.lower()}-value")
    box = load(
        "command: [*, '{config.mode}']\nenv: [SERVER_MODE, SERVER_ABSENT]".replace("*", STDIO[1:-1]),
        "secrets: [SERVER_KEY]\nconfig: {mode: stdio}",
    )
    told = json.loads(call(box, "who").content)
    assert told["arguments"] == ["stdio"]
    assert (told["env"]["SERVER_KEY"], told["env"]["SERVER_MODE"]) == ("***", "server_mode-value")
    assert "SERVER_OTHER" not in told["env"]
    box = load(
        f"command: {STDIO}\nenv: {{MODE: fast, TOKEN: '{{secrets.key}}'}}", "secrets: {key: SERVER_KEY}"
    )
    told = json.loads(call(box, "who").content)["env"]
    assert (told["MODE"], told["TOKEN"]) == ("fast", "***")


def test_a_script_beside_the_file_is_found(load: Load, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no file ./server.sh beside this one"):
        load("command: [./server.sh]")
    script = tmp_path / "tools" / "server.sh"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {SERVER}\n")
    script.chmod(0o755)
    assert list(load("command: [./server.sh]").tools) == NAMES


@pytest.mark.parametrize(
    ("mcp", "more", "told"),
    [
        ("tools: all", "", "one of the keys 'command', 'url' is missing"),
        ("command: [a]\nurl: http://x", "", "keys 'command' and 'url' stand together; keep one"),
        ("command: a b", "", "3:12: key 'mcp.command' must be a list of strings, but it is a string"),
        ("url: x", "", "'x' is none; write http://... or https://..."),
        ("command: [a]\nheaders: {a: b}", "", "4:3: key 'headers' means nothing beside 'command'"),
        ("url: http://x\nenv: [A]", "", "4:3: key 'env' means nothing beside 'url'"),
        ("command: [a, '{secrets.k}']", "secrets: [K]", "{secrets.k} would be seen by others here; use env"),
        (
            "url: 'http://x/{secrets.k}'",
            "secrets: [K]",
            "{secrets.k} would be seen by others here; use headers",
        ),
        ("command: [a]", "description: x", "4:1: key 'description' stands beside mcp, whose server says it"),
        ("command: [a]", "config: {k: 1}", "{config.k} stands nowhere in mcp"),
        ("comand: [a]", "", "3:3: unknown key 'comand'; did you mean 'command'?"),
    ],
)
def test_a_mistake_in_the_file_is_told_without_starting_anything(
    write: Write, mcp: str, more: str, told: str
) -> None:
    with pytest.raises(CatalogError) as caught:
        check_tool(write(mcp, more))
    assert told in str(caught.value)


def test_one_tool_cannot_be_loaded_of_many(write: Write) -> None:
    with pytest.raises(CatalogError, match="declares 11 tools, where one was asked for"):
        load_tool(write(f"command: {STDIO}"))
    from agent_r1_env import mcp_connection

    assert mcp_connection._CONNECTIONS == {}


# In an environment


def test_a_service_and_a_server_serve_one_episode(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="needs httpx, from the extra http")

    class Weather(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"rain at {self.path}".encode())

        def log_message(self, *_: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Weather)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    for folder in ("tools", "envs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tools" / "weather.yaml").write_text(
        """
name: weather
description: Weather of a city.
config: {server: 'http://nowhere.invalid'}
http: {url: '{config.server}/{city}'}
parameters: {type: object, properties: {city: {type: string}}, required: [city]}
"""
    )
    (tmp_path / "tools" / "travel.yaml").write_text(
        f"name: travel\nmcp: {{command: {STDIO}, tools: [plan, echo]}}\n"
    )
    (tmp_path / "envs" / "trip.yaml").write_text(
        """
name: Trip
version: 0
description: Plan a trip.
tasks: {load: "./trip.py:tasks"}
tools: [weather, travel]
format: hermes
system: Answer inside <answer></answer>.
answer: {tag: answer}
max_steps: 4
reward: {exact_match: 1.0}
"""
    )
    (tmp_path / "envs" / "trip.py").write_text(
        """
from agent_r1_env import Task, TaskSet
def tasks() -> TaskSet:
    return TaskSet([Task("a", "Where?", ("Oslo",))], name="Trip", origin="one city")
"""
    )
    ids = agent_r1_env.register(tmp_path, namespace="OverWires")
    assert ids == ["OverWires/Trip-v0", "OverWires/WeatherTool-v0"]
    config = {"weather": {"server": f"http://127.0.0.1:{web.server_address[1]}"}}
    env = gym.make("OverWires/Trip-v0", tool_config=config)
    _, info = env.reset(seed=0)
    assert [each["function"]["name"] for each in info["tools"]] == ["weather", "plan", "echo"]
    calls = [
        {"name": "weather", "arguments": {"city": "Ås"}},
        {"name": "plan", "arguments": {"trip": {"start": {"city": "Oslo"}}}},
        {"name": "echo", "arguments": {"text": 1}},
    ]
    reply = "".join(f"<tool_call>{json.dumps(each)}</tool_call>" for each in calls)
    observation, *_, info = env.step(reply)
    assert "rain at /%C3%85s" in observation and '"Oslo"' in observation
    assert [each["error"] is None for each in info["calls"]] == [True, True, False]
    _, reward, terminated, _, info = env.step("<answer>Oslo</answer>")
    assert (reward, terminated, info["metrics"]["calls/invalid_arguments"]) == (1.0, True, 1)
    env.close()
    web.shutdown()
    web.server_close()


def test_a_tool_of_a_server_is_a_tool_like_any_other(load: Load) -> None:
    tool: Tool = load(f"command: {STDIO}", "timeout: 7\nmax_result_chars: 5\nconcurrency: 2").tools["echo"]
    assert (tool.timeout, tool.max_result_chars, tool.concurrency) == (7, 5, 2)
    assert asyncio.run(tool(text="direct")) == "direct"
