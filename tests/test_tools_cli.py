"""``agent-r1 tools``, as a person uses it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from jsonschema import Draft202012Validator

from agent_r1_env import yamlfile
from agent_r1_env.catalog import builtin_root
from agent_r1_env.cli import main

WEATHER = """\
name: weather
description: Weather of a city today.
run: ./code.py:today
timeout: 5
retries: 2
secrets: {key: TOOLS_CLI_KEY}
config: {unit: F}
"""
CODE = '''\
import random
from agent_r1_env import Hidden, ToolError
print("loading")

def today(city: str, unit: str = "C", key: str = "") -> str:
    """Weather."""
    print("debug")
    if city == "Atlantis":
        raise ToolError("no such city")
    return f"sun in {city}, {unit}"

def add(a: int, b: int = 1) -> int:
    """Add numbers."""
    return a + b

def draw(rng: Hidden[random.Random]) -> str:
    """Draw a number."""
    return str(rng.integers(1000))
'''
LIST = """\
- name: add
  run: ./code.py:add
- name: draw
  run: ./code.py:draw
  max_result_tokens: 50
"""


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TOOLS_CLI_KEY", "s3cret-key")
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    for name, text in {"weather.yaml": WEATHER, "code.py": CODE, "numbers.yaml": LIST}.items():
        (tmp_path / "tools" / name).write_text(text)
    return tmp_path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: Any) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(["tools", *map(str, arguments)])
        return status, *capfd.readouterr()

    return run


def test_a_sound_folder_passes(folder: Path, run: Any) -> None:
    for where in (folder, folder / "tools"):
        assert run("check", where)[:2] == (0, "3 tools checked, no faults\n")
    assert run("check", folder / "tools" / "weather.yaml")[:2] == (0, "1 tool checked, no faults\n")


def test_checking_needs_no_secret_and_builds_nothing(
    folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLS_CLI_KEY")
    assert run("check", folder)[0] == 0


def test_the_built_in_tools_pass(run: Any) -> None:
    status, out, _ = run("check", builtin_root())
    assert status == 0, out


def test_every_fault_is_listed_with_its_place(
    folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "tools" / "numbers.yaml").write_text(
        "- name: add\n  run: ./code.py:ad\n"
        "- nme: x\n  run: ./code.py:add\n  timeout: -1\n"
        "- name: Add\n  run: ./code.py:add\n"
        "  parameters: {type: object, propertys: {}, requird: []}\n"
    )
    (folder / "tools" / "broken.yaml").write_text("name: [broken\n")
    (folder / "tools" / "old.yml").write_text("name: old\n")
    (folder / "tools" / "other.yaml").write_text("name: weather\nrun: ./code.py:today\n")
    status, out, err = run("check", ".")
    places = [line.split(": ")[0] for line in out.splitlines()]
    assert status == 1
    assert places == [
        "tools/broken.yaml:2:1",
        "tools/numbers.yaml:2:8",
        "tools/numbers.yaml:3:3",
        "tools/numbers.yaml:5:12",
        "tools/numbers.yaml:8:30",
        "tools/numbers.yaml:8:45",
        "tools/numbers.yaml:6:9",
        "tools/old.yml",
        "tools/other.yaml:1:7",
        "tools/weather.yaml:1:7",
    ], out
    assert "unknown key 'nme'; did you mean 'name'?" in out and "is missing" not in out
    assert "'Add' stands here and in tools/numbers.yaml:1; keep one" in out
    assert "10 faults in 7 tools" in err


@pytest.mark.parametrize("text", ["", "- just text\n", "[]\n", "3\n", "name: x\n---\nname: y\n", "\xff"])
def test_what_is_no_tool_at_all_is_a_fault(text: str, folder: Path, run: Any) -> None:
    (folder / "tools" / "weather.yaml").write_bytes(text.encode("latin-1"))
    status, out, _ = run("check", folder)
    assert status == 1 and f"{folder}/tools/weather.yaml:" in out


def test_a_folder_without_tools_is_the_callers_mistake(tmp_path: Path, run: Any) -> None:
    assert run("check", tmp_path / "none")[0::2] == (2, f"error: {tmp_path / 'none'}: no such folder\n")
    status, out, err = run("check", tmp_path)
    assert (status, out) == (2, "") and "holds no .yaml file; a tool is declared in tools/NAME.yaml" in err


def test_the_list_tells_name_backend_environment_and_purpose(folder: Path, run: Any) -> None:
    status, out, _ = run("list", "--register", folder, "--namespace", "Mine")
    rows = [line.split(maxsplit=3) for line in out.splitlines()]
    assert status == 0
    assert ["weather", "python", "Mine/WeatherTool-v0", "Weather of a city today."] in rows
    assert ["add", "python", "Mine/AddTool-v0", "Add numbers."] in rows
    assert any(row[:3] == ["search", "python", "AgentR1/SearchTool-v0"] for row in rows)
    assert out.startswith(f"{folder / 'tools'}:\n")


def test_the_list_is_json_on_request(folder: Path, run: Any) -> None:
    rows = {row["name"]: row for row in json.loads(run("list", "--register", folder, "--json")[1])}
    assert rows["draw"] == {
        "name": "draw",
        "description": "Draw a number.",
        "backend": "python",
        "environment": "Me/DrawTool-v0",
        "file": str(folder / "tools" / "numbers.yaml"),
    }
    for row in rows.values():
        assert row["environment"] is None or row["environment"] in gym.registry


def test_a_tool_is_shown_with_its_schema_and_without_its_secrets(folder: Path, run: Any) -> None:
    status, out, err = run("show", "weather", "--register", folder)
    head, _, schema = out.partition("\n{")
    assert status == 0
    assert json.loads("{" + schema)["function"]["parameters"]["required"] == ["city"]
    for text in (
        "weather: Weather of a city today.",
        "environment: Me/WeatherTool-v0",
        "secrets:     key from TOOLS_CLI_KEY",
        'config:      {"unit": "F"}',
        "timeout 5",
        "retries (times 2, ",
    ):
        assert text in head
    assert "s3cret" not in out + err


def test_a_shown_tool_is_json_on_request(folder: Path, run: Any) -> None:
    found = json.loads(run("show", folder / "tools" / "weather.yaml", "--json")[1])
    assert found["limits"]["timeout"] == 5 and found["limits"]["retries"]["times"] == 2
    assert found["secrets"] == {"key": "TOOLS_CLI_KEY"}
    assert found["schema"]["function"]["name"] == "weather"


def test_a_call_prints_the_result_alone(folder: Path, run: Any) -> None:
    status, out, err = run("call", "weather", '{"city": "Bergen"}', "--register", folder)
    assert (status, out) == (0, "sun in Bergen, F\n")
    assert "debug" in err  # what the tool prints is not its result


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("add", '{"a": 2}'), "3"),
        (("add", '{"a": 2, "b": 5}'), "7"),
        (("weather", "Bergen"), "sun in Bergen, F"),
        (("weather", "Bergen", "--config", "unit=K"), "sun in Bergen, K"),
    ],
)
def test_a_call_takes_json_text_and_config(
    arguments: tuple[str, ...], printed: str, folder: Path, run: Any
) -> None:
    assert run("call", *arguments, "--register", folder)[:2] == (0, f"{printed}\n")


def test_a_call_reads_standard_input(folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 41}\n')))
    assert run("call", "add", "-", "--register", folder)[:2] == (0, "42\n")


def test_a_call_may_need_no_arguments_and_follows_its_seed(folder: Path, run: Any) -> None:
    draws = [run("call", "draw", "--register", folder, "--seed", seed) for seed in (1, 1, 2)]
    assert draws[0][:2] == draws[1][:2] and draws[0][1] != draws[2][1]
    assert "max_result_tokens is not applied" in draws[0][2]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("weather", "Atlantis"), "error: no such city"),
        (
            ("add", '{"a": "x"}'),
            "error: argument 'a' of add must be an integer, but a string ('x') was given",
        ),
        (("add", '{"c": 1}'), "error: add needs the argument 'a' (an integer), which is missing"),
        (("add", "two"), "error: the arguments are not valid JSON"),
        (("add",), "error: add needs the argument 'a'"),
    ],
)
def test_a_call_that_fails_says_what_a_model_would_read(
    arguments: tuple[str, ...], printed: str, folder: Path, run: Any
) -> None:
    status, out, _ = run("call", *arguments, "--register", folder)
    assert status == 1 and out.startswith(printed)


def test_the_record_of_a_call_is_json_on_request(folder: Path, run: Any) -> None:
    status, out, _ = run("call", "weather", "Atlantis", "--register", folder, "--json")
    record = json.loads(out)
    assert status == 1
    assert (record["error"], record["attempts"], record["arguments"]) == (
        "tool_error",
        1,
        {"city": "Atlantis"},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("call", "weathr", "x"), "no tool named 'weathr'"),
        (("call", "weathr", "x"), "--register FOLDER finds those of a folder of your own"),
        (("show", "serch"), "did you mean 'search'?"),
        (("call", "search", "x", "--config", "top_q=1"), "did you mean 'top_k'?"),
        (("call", "search", "x", "--config", "top_k"), "--config takes KEY=VALUE, got 'top_k'"),
        (("show", "nowhere.yaml"), "nowhere.yaml: no such file"),
    ],
)
def test_a_mistake_of_the_caller_exits_with_2(arguments: tuple[str, ...], message: str, run: Any) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "") and message in err


def test_a_secret_that_is_not_set_is_told(folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLS_CLI_KEY")
    status, _, err = run("call", "weather", "x", "--register", folder)
    assert status == 2 and "weather.yaml:6:10: the environment variable TOOLS_CLI_KEY is not set" in err


def test_the_schema_for_editors_takes_every_file_and_sees_misspelt_keys(folder: Path, run: Any) -> None:
    schema = json.loads(run("schema")[1])
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    assert check.is_valid([item.data for item in yamlfile.read_all(folder / "tools" / "numbers.yaml")])
    for path in (folder / "tools" / "weather.yaml", *sorted((builtin_root() / "tools").glob("*.yaml"))):
        data = yamlfile.read(path).data
        assert check.is_valid(data), path
        assert not check.is_valid({**data, "timeuot": 1})
    assert not check.is_valid([]) and not check.is_valid("x")


def test_the_built_in_tools_point_editors_to_their_schema() -> None:
    if builtin_root().name == "_catalog":
        pytest.skip("the path is that of a clone, where the files are edited")
    for path in (builtin_root() / "tools").glob("*.yaml"):
        mark, _, schema = path.read_text().splitlines()[0].partition("$schema=")
        assert mark == "# yaml-language-server: "
        assert "A tool of" in json.loads((path.parent / schema).read_text())["title"]


def test_a_tool_is_checked_without_anything_heavy(folder: Path) -> None:
    code = (
        "import sys; from agent_r1_env.cli import main; "
        f"main(['tools', 'list']); main(['tools', 'check', {str(folder)!r}]); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "httpx", "mcp", "pydantic", "datasets"} & set(done.stdout.split())
