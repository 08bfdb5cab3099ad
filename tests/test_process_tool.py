"""A command as a tool."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import sandbox
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.toolbox import Toolbox
from agent_r1_env.toolfile import check_tool

LEVELS = [
    pytest.param(
        level,
        marks=pytest.mark.skipif(
            level != "none" and bool(sandbox.unavailable(level)), reason=f"no level {level} here"
        ),
    )
    for level in ("none", *sandbox.LEVELS)
]
levels = pytest.mark.parametrize("level", LEVELS)
HEAD = """name: job
description: Do a job.
timeout: {timeout}
parameters:
  type: object
  properties: {{text: {{type: string}}, more: {{}}}}
"""


class Folder:
    """A catalogue with one tool, which runs a shell script beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "tools").mkdir()

    def write(self, script: str, process: str = "level: none", rest: str = "", timeout: float = 20) -> None:
        file = self.path / "tools" / "job.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        self.write_yaml(f"process:\n  command: [./job.sh]\n  {process}\n{rest}", timeout)

    def write_yaml(self, text: str, timeout: float = 20) -> None:
        (self.path / "tools" / "job.yaml").write_text(HEAD.format(timeout=timeout) + text)

    def box(self) -> Toolbox:
        return Toolbox([load_tool(Catalog.open(self.path).tool("job"))])

    def call(self, **arguments: Any) -> ToolResult:
        toolbox = self.box()
        try:
            return toolbox.run([ToolCall("job", arguments, "c")])[0]
        finally:
            toolbox.close()

    def refused(self) -> CatalogError:
        with pytest.raises(CatalogError) as caught:
            load_tool(Catalog.open(self.path).tool("job"))
        return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def living(text: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def mark() -> str:
    return f"1000.{uuid.uuid4().int % 10**12}"


@levels
def test_arguments_come_as_json_and_output_is_the_result(folder: Folder, level: str) -> None:
    folder.write("cat", f"level: {level}")
    arguments = {"text": "grüße \ud800 \0 \n'\"$(id)", "more": {"a": [1, None, {"b": 2.5}]}}
    result = folder.call(**arguments)
    assert result.ok and json.loads(result.content) == arguments


@levels
def test_no_argument_becomes_a_word_or_reaches_a_shell(folder: Folder, level: str) -> None:
    folder.write('echo "$#"', f"level: {level}")
    assert folder.call(text="--help; touch /tmp/x", more="{text}").content == "0"


@levels
def test_another_status_is_a_failed_call_with_the_end_of_the_error(folder: Folder, level: str) -> None:
    folder.write("echo out; seq 1 5000 >&2; echo reason >&2; exit 3", f"level: {level}")
    result = folder.call()
    assert result.error == FailureKind.TOOL_ERROR and len(result.content) < 1100
    assert result.content.startswith("error: job.sh exited with status 3: ")
    assert result.content.endswith("4999\n5000\nreason")


def test_a_signal_is_named(folder: Folder) -> None:
    folder.write("kill -SEGV $$")
    assert folder.call().content == "error: job.sh was killed by SIGSEGV"


def test_status_75_is_tried_again(folder: Folder, tmp_path: Path) -> None:
    folder.write("test -e done || { touch done; exit 75; }; echo fine", rest="retries: {times: 2, wait: 0}")
    result = folder.call()
    assert (result.content, result.attempts) == ("fine", 2)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        pytest.param(r"printf 'a\377b'", "a\N{REPLACEMENT CHARACTER}b", id="no-utf-8"),
        pytest.param(r"printf 'a\000b\377'", "[4 bytes of binary data]", id="binary"),
        pytest.param(r"printf 'a\033[31mb'", "a\N{REPLACEMENT CHARACTER}[31mb", id="control"),
        pytest.param("true", "", id="nothing"),
    ],
)
def test_any_output_is_made_safe(folder: Folder, script: str, text: str) -> None:
    folder.write(script)
    assert folder.call().content == text


@levels
def test_a_flood_ends_it(folder: Folder, level: str) -> None:
    folder.write("yes", f"level: {level}\n  max_output_bytes: 5000")
    result = folder.call()
    assert result.error == FailureKind.TOOL_ERROR and len(result.content) < 1200
    assert result.content.startswith("error: job.sh was stopped: it wrote too much\ny\ny\n")


@levels
def test_all_is_dead_when_time_is_up(folder: Folder, level: str) -> None:
    n = mark()
    folder.write(f"setsid sleep {n} &\nsleep {n}", f"level: {level}", timeout=0.5)
    result = folder.call()
    assert result.error == FailureKind.TIMEOUT
    assert not living(n)


@levels
async def test_all_is_dead_when_the_call_is_cancelled(folder: Folder, level: str) -> None:
    n = mark()
    folder.write(f"setsid sleep {n} &\nsleep {n}", f"level: {level}")
    toolbox = folder.box()
    task = asyncio.create_task(toolbox.run_async([ToolCall("job", {}, "c")]))
    while not living(n):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not living(n)
    toolbox.close()


@levels
def test_what_it_leaves_behind_is_dead_when_the_call_ends(folder: Folder, level: str) -> None:
    n = mark()
    folder.write(f"setsid sleep {n} &\nnohup sleep {n} &\necho done", f"level: {level}")
    assert folder.call().content == "done" and not living(n)


@levels
def test_a_sandboxed_command_has_no_other_rights(folder: Folder, level: str) -> None:
    outside = folder.path / "outside"
    folder.write(f"touch {outside} 2>/dev/null; echo; exit 0", f"level: {level}")
    folder.call()
    assert outside.exists() == (level == "none")


@levels
def test_too_many_processes_end_it(folder: Folder, level: str) -> None:
    n = mark()
    script = f"for i in 1 2 3 4 5 6 7 8 9; do sleep {n} & done; sleep {n}"
    folder.write(script, f"level: {level}\n  max_processes: 5")
    assert "too many processes" in folder.call().content and not living(n)


def test_it_sees_named_variables_and_secrets_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANTED", "w")
    monkeypatch.setenv("UNWANTED", "u")
    monkeypatch.setenv("JOB_KEY", "k")
    folder.write("env | cut -d= -f1 | sort | tr '\\n' ' '", "env: [WANTED]", "secrets: {KEY: JOB_KEY}\n")
    names = set(folder.call().content.split()) - {"PWD", "_", "SHLVL", "LANG"}
    assert names == {"HOME", "KEY", "PATH", "WANTED"}
    folder.write("env", rest="secrets: [JOB_KEY]\n")
    assert "JOB_KEY=" in folder.call().content


def test_it_runs_beside_its_file_or_where_the_file_says(folder: Folder) -> None:
    folder.write("pwd")
    assert folder.call().content == str(folder.path / "tools")
    folder.write("pwd", "cwd: ..")
    assert folder.call().content == str(folder.path)


def test_words_that_begin_with_a_dot_are_beside_the_file(folder: Folder) -> None:
    (folder.path / "tools" / "data.txt").write_text("data")
    folder.write_yaml("process: {command: [cat, ./data.txt], cwd: /}\n")
    assert folder.call().content == "data"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("process: {command: [./jobb.sh]}", "job.yaml:7:21: there is no file "),
        ("process: {command: [no-such-program]}", "there is no program 'no-such-program' on the PATH"),
        ("process: {command: [cat, ./missing.txt]}", "there is no file "),
        ("process: {command: []}", "command"),
        ("process: {comand: [cat]}", "unknown key 'comand'; did you mean 'command'?"),
        ("process: {command: [cat], level: docker}", "level"),
        ("process: {command: [cat], cwd: nowhere}", "there is no folder "),
        ("process: {command: [cat], cwd: /, level: process}", "'cwd' goes with level none alone"),
        (
            "process: {command: [cat], network: true}",
            "'network' goes with the levels process and bwrap alone",
        ),
        ("process: {command: [cat], env: [NO_SUCH_VARIABLE]}", "NO_SUCH_VARIABLE is not set"),
        ("process: {command: [cat], level: process, memory_mb: 2}", "memory_mb must be a whole number of at"),
        ("process: {command: [cat]}\nconfig: {a: 1}", "a command takes no config"),
    ],
)
def test_a_mistake_is_told_with_its_place(folder: Folder, text: str, told: str) -> None:
    folder.write_yaml(text)
    error = folder.refused()
    assert told in str(error) and error.line is not None and error.line >= 7


def test_a_file_that_is_not_executable_is_told_with_the_line_to_run(folder: Folder) -> None:
    folder.write("cat")
    os.chmod(folder.path / "tools" / "job.sh", 0o644)
    assert "is not executable; run: chmod +x /" in str(folder.refused())


def test_checking_starts_nothing(folder: Folder) -> None:
    folder.write("touch started", "env: [NOT_SET_YET]")
    check_tool(Catalog.open(folder.path).tool("job"))
    assert not (folder.path / "tools" / "started").exists()


def test_many_calls_at_once(folder: Folder) -> None:
    folder.write("cat")
    toolbox = folder.box()
    results = toolbox.run([ToolCall("job", {"text": str(i)}, str(i)) for i in range(30)])
    assert [json.loads(result.content)["text"] for result in results] == [str(i) for i in range(30)]
    toolbox.close()
