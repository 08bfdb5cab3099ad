"""Tests of the command line: output, exit status, one-line errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env import formats
from agent_r1_env.cli import main
from agent_r1_env.command import settings

HOTPOTQA = "AgentR1/HotpotQA-v0"


@pytest.fixture(autouse=True)
def embedded_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_R1_HOTPOTQA", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    return status, *capsys.readouterr()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line on stderr of a command that ends with status 2."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("evaluate",),
        ("eval", HOTPOTQA),
        ("eval", HOTPOTQA, "--policy", "oracle", "--model", "x"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--n", "0"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--temperature", "-1"),
        ("eval", HOTPOTQA, "--policy", "oracle", "--temperature", "nan"),
    ],
)
def test_wrong_usage_is_explained(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "usage: agent-r1" in err


def test_list_shows_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "list", "--json")
    found = json.loads(out)
    assert status == 0
    assert HOTPOTQA in found["environments"]
    assert "search" in found["tools"]
    assert "hermes" in found["formats"]
    assert "exact_match" in found["reward terms"]
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert HOTPOTQA in out


def test_a_folder_of_ones_own_takes_part(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "capitals.yaml").write_text(
        "name: Capitals\ntasks: {load: ./capitals.py:load}\npolicies: {right: ./capitals.py:right}\n"
    )
    (tmp_path / "envs" / "capitals.py").write_text(
        "from agent_r1_env import Task, TaskSet\n"
        "def load(country='Norway'):\n"
        "    task = Task('1', f'Capital of {country}?', ('Oslo',))\n"
        "    return TaskSet([task], name='capitals', origin='code')\n"
        "def right(env, rng):\n"
        "    return '<answer>Oslo</answer>'\n"
    )
    own = ("--register", tmp_path, "--namespace", "CliTest")
    try:
        status, out, _ = run(capsys, "eval", "CliTest/Capitals-v0", "--policy", "right", "--json", *own)
        assert status == 0
        assert json.loads(out)["reward"]["mean"] == 1.0
        assert "CliTest/Capitals-v0" in run(capsys, "list", *own)[1]
        assert "namespace" in fails(capsys, "list", "--register", tmp_path, "--namespace", "a/b")
    finally:
        gym.registry.pop("CliTest/Capitals-v0", None)


TOOL = {"name": "search", "parameters": {"type": "object", "properties": {"k": {"type": "integer"}}}}


def parses(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: str | bytes,
    *arguments: str | Path,
) -> tuple[int, list[Any], str]:
    """The exit status of ``agent-r1 formats parse``, what it prints, and what it says on stderr."""
    raw = given.encode() if isinstance(given, str) else given
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    status, out, err = run(capsys, "formats", "parse", *arguments)
    return status, [json.loads(line) for line in out.splitlines()], err


def test_a_reply_is_read_as_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = '<tool_call>{"name": "search", "arguments": {"query": "é"}}</tool_call>'
    reply = f"<think>hm</think> So \r\n{call}<tool_call>{{\n".encode() + b"\xff"
    status, (found,), _ = parses(capsys, monkeypatch, reply, "hermes")
    (error,) = found.pop("errors")
    assert status == 0
    assert found == {
        "content": " So \r\n<tool_call>{\n\ufffd",
        "reasoning": "hm",
        "calls": [{"name": "search", "arguments": {"query": "é"}}],
    }
    assert (error["kind"], error["raw"]) == ("incomplete", "<tool_call>{\n\ufffd")
    assert reply.decode(errors="replace")[error["start"] : error["end"]] == error["raw"]
    assert error["hint"] in error["message"]


def test_a_reply_without_content_has_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (found,), _ = parses(capsys, monkeypatch, "", "hermes")
    assert found == {"content": None, "reasoning": None, "calls": [], "errors": []}


def test_repairs_are_named_beside_the_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = '<tool_call>{"name": "a", "arguments": {"x": 1,}}</tool_call>'
    _, (found,), _ = parses(capsys, monkeypatch, reply, "hermes", "--repair")
    assert found["calls"] == [{"name": "a", "arguments": {"x": 1}}]
    assert found["repairs"] == [["trailing_comma"]]


def test_replies_are_read_one_a_line_with_tools_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"raw": "a\nb", "id": 7}, {"raw": "c", "tools": [TOOL]}, {"raw": "\ud800", "tools": None}]
    lines = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    status, found, _ = parses(capsys, monkeypatch, lines, "hermes", "--jsonl")
    assert status == 0
    assert [each["content"] for each in found] == ["a\nb", "c", "\ud800"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", "row 3: not JSON: "),
        ("[" * 100_000, "row 3: not JSON: "),
        ("[]", 'row 3: expected an object with the reply as text under "raw"'),
        ('{"raw": null}', "row 3: expected an object"),
        ('{"raw": "", "tools": 3}', "row 3: the tools must be a list"),
        ('{"raw": "", "tools": [{"type": "function"}]}', "row 3: tool 1 must be"),
    ],
)
def test_a_broken_line_is_named_after_the_results_before_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    given = f'{{"raw": "a"}}\n\n{line}\n{{"raw": "b"}}\n'
    status, found, err = parses(capsys, monkeypatch, given, "hermes", "--jsonl")
    assert status == 2
    assert [each["content"] for each in found] == ["a"]
    assert err.startswith(f"error: standard input, {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        [{"type": "function", "function": TOOL}],
        {"tools": [TOOL]},
        {"tools": [{"function": TOOL}]},
    ],
)
def test_tools_may_be_written_in_several_ways(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tools: Any
) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(tools, indent=2))
    reply = "<tool_call><function=search><parameter=k>3</parameter></function></tool_call>"
    _, (found,), _ = parses(capsys, monkeypatch, reply, "qwen3_coder", "--tools", file)
    assert found["calls"] == [{"name": "search", "arguments": {"k": 3}}]


def test_a_mistake_about_a_format_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "did you mean 'hermes'" in fails(capsys, "formats", "parse", "hermess")
    absent = tmp_path / "absent.json"
    assert f"{absent}: no such file" in fails(capsys, "formats", "parse", "hermes", "--tools", absent)
    for text, message in (
        ("", "the file is empty"),
        ("{", "not JSON"),
        ("{}", "the tools must be a list"),
        ('[{"name": "a"}, 3]', "tool 2 must be"),
        ('[{"name": "a", "parameters": 3}]', 'the "parameters" of tool 1'),
    ):
        (tmp_path / "tools.json").write_text(text)
        line = fails(capsys, "formats", "parse", "hermes", "--tools", tmp_path / "tools.json")
        assert f"tools.json: {message}" in line


def test_replies_are_read_as_they_come_and_without_torch() -> None:
    code = (
        "import sys; from agent_r1_env.cli import main; main(sys.argv[1:]);"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'transformers', 'vllm')))"
    )
    command = [sys.executable, "-c", code, "formats", "parse", "hermes", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for _ in range(2):
            program.stdin.write(b'{"raw": "a"}\n')
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["content"] == "a"
        program.stdin.close()
        assert program.wait(timeout=60) == 0


def test_formats_are_listed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "formats", "list", "--json")
    found = {each["name"]: each for each in json.loads(out)}
    assert status == 0
    assert sorted(found) == formats.names()
    assert found["hermes"]["reasoning"] == ["<think>", "</think>"]
    status, out, _ = run(capsys, "formats", "list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", *formats.names()]
    assert all(each["families"] in out for each in found.values())


def test_version_and_doctor_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"agent-r1 {agent_r1_env.__version__}\n", "")
    status, out, _ = run(capsys, "doctor", "--json")
    assert status in (0, 1)
    assert json.loads(out)["environments"] is True


def test_the_module_runs_as_a_program_and_survives_a_closed_pipe() -> None:
    command = [sys.executable, "-W", "error", "-m", "agent_r1_env.cli", "list"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=buffered)
    assert (done.returncode, done.stderr) == (0, "")
    assert HOTPOTQA in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=60, env=buffered)
    assert (done.returncode, done.stderr) == (0, b"")


def test_train_passes_on_what_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_r1_env import train

    seen: list[Any] = []
    monkeypatch.setattr(train, "run", lambda *arguments, **options: seen.append((arguments, options)))
    every = "--model m --output o --seed 3 --resume --data d --corpus c --no-loss-mask --set eval.episodes=5"
    assert run(capsys, "train", "quickstart", *every.split())[0] == 0
    assert run(capsys, "train", "quickstart")[0] == 0
    given = {"model": "m", "output": "o", "seed": 3, "resume": True, "data": "d", "corpus": "c"}
    assert seen[0] == (
        ("quickstart",),
        given | {"loss_mask": False, "overrides": {"eval.episodes": 5}},
    )
    nothing = dict.fromkeys((*given, "loss_mask"), None) | {"resume": False, "overrides": {}}
    assert seen[1] == (("quickstart",), nothing)


def test_a_mistake_in_training_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no recipe named 'quikstart'" in fails(capsys, "train", "quikstart")
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nmodel: x\nenv: AgentR1/HotpotQA-v0\ntrl: {}\nalgoritm: grpo\n")
    assert f"{file}:5:1: unknown key 'algoritm'; did you mean 'algorithm'" in fails(capsys, "train", file)


def test_values_on_the_command_line_follow_the_rules_of_the_files() -> None:
    pairs = ("a.b=1e-6", "c=on", "d=[1, x]", "e=", "f=x=y", "g=3")
    assert settings(pairs) == {"a.b": 1e-6, "c": "on", "d": [1, "x"], "e": None, "f": "x=y", "g": 3}
