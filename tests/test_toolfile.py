from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.catalog import Catalog
from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError, UnknownName
from agent_r1_env.messages import ToolCall
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Toolbox
from agent_r1_env.toolfile import check_tool, load_tool

CODE = '''\
from agent_r1_env import tool

def today(city: str, unit: str = "C") -> str:
    """Weather of a city today.

    Args:
        city: City name.
    """
    return f"{city} {unit}"

async def later(city: str) -> str:
    """Weather of a city tomorrow."""
    return city

@tool
def made(city: str) -> str:
    """Weather, made by a decorator."""
    return city

def silent(city: str) -> str:
    return city

class Station:
    """Weather of a station."""
    built = 0
    def __init__(self, tasks, path: str = "", unit: str = "C"):
        type(self).built += 1
        self.tasks, self.path, self.unit, self.closed = tasks, path, unit, False
    def __call__(self, city: str) -> str:
        return f"{city} {self.unit} {self.path} {len(self.tasks)}"
    def close(self) -> None:
        self.closed = True

class Needy:
    """Needs something."""
    def __init__(self, url):
        raise ConnectionError(f"no answer from {url}")
    def __call__(self, city: str) -> None: ...

class Mute:
    """Cannot be called."""

number = 3
'''
PARAMETERS = """
parameters:
  type: object
  properties:
    city: {type: string}
  required: [city]
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "code.py").write_text(CODE)

    def entry(text: str) -> Entry:
        (tmp_path / "tools" / "weather.yaml").write_text(text)
        return Catalog.open(tmp_path).tool("weather")

    return entry


def yaml(run: str = "today", more: str = PARAMETERS, description: str = "description: Weather.") -> str:
    return f"name: weather\n{description}\nrun: ./code.py:{run}\n{more}"


def result(tool: Tool, **arguments: Any) -> str:
    return Toolbox([tool]).run([ToolCall("weather", arguments, "1")])[0].content


def test_a_function_becomes_a_tool(write: Any) -> None:
    tool = load_tool(write(yaml(more="timeout: 5\nmax_result_chars: 100" + PARAMETERS)))
    assert (tool.name, tool.description, tool.timeout, tool.max_result_chars) == (
        "weather",
        "Weather.",
        5,
        100,
    )
    assert tool.parameters["required"] == ["city"]
    assert result(tool, city="x") == "x C"


def test_a_coroutine_function_becomes_a_tool(write: Any) -> None:
    assert result(load_tool(write(yaml("later"))), city="x") == "x"


def test_what_the_file_leaves_out_comes_from_the_code(write: Any) -> None:
    tool = load_tool(write(yaml(more="", description="")))
    assert tool.description == "Weather of a city today."
    assert tool.parameters["properties"] == {
        "city": {"type": "string", "description": "City name."},
        "unit": {"type": "string", "default": "C"},
    }
    assert (tool.timeout, tool.max_result_chars) == (30, 8000)


def test_a_decorated_function_brings_its_own_schema(write: Any) -> None:
    tool = load_tool(write(yaml("made", "", "")))
    assert (tool.name, tool.description) == ("weather", "Weather, made by a decorator.")
    assert result(tool, city="x") == "x"


def test_config_of_a_function_is_hidden_from_the_model(write: Any) -> None:
    tool = load_tool(write(yaml(more="config: {unit: F}")))
    assert list(tool.parameters["properties"]) == ["city"]
    assert result(tool, city="x") == "x F"
    assert "takes no argument 'unit'" in result(tool, city="x", unit="C")


def test_a_class_is_built_with_config_and_tasks_and_closed(write: Any, tmp_path: Path) -> None:
    entry = write(yaml("Station", "config: {unit: F, path: ./data}"))
    check_tool(entry)
    assert entry.target("run").built == 0
    tool = load_tool(entry, tasks=[1, 2, 3])
    assert result(tool, city="x") == f"x F {tmp_path / 'tools' / 'data'} 3"
    assert load_tool(entry, tasks=[]).run is not tool.run
    Toolbox([tool]).close()
    assert tool.run.closed  # type: ignore[attr-defined]


def test_overrides_come_before_the_file(write: Any) -> None:
    entry = write(yaml("Station", "timeout: 5\nconfig: {unit: F, path: a}"))
    overrides = {"config": {"unit": "K"}, "timeout": 1, "description": "Other.", "max_result_chars": 9}
    tool = load_tool(entry, [], overrides)
    assert (tool.timeout, tool.description, tool.max_result_chars) == (1, "Other.", 9)
    assert tool.run("x") == "x K a 0"
    with pytest.raises(
        UnknownName, match=r"no override named 'timeuot' in tool 'weather'; did you mean 'timeout'"
    ):
        load_tool(entry, [], {"timeuot": 1})
    with pytest.raises(CatalogError, match=r"Station takes no 'units'; did you mean 'unit'\?"):
        load_tool(entry, [], {"config": {"units": "K"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "weather.yaml: the file is empty"),
        ("name: weather\n", "weather.yaml:1:1: one of the keys 'run', 'http', 'mcp', 'process' is missing"),
        ("run: ./code.py:today\n", "weather.yaml:1:1: key 'name' is missing"),
        (
            yaml(description="descripton: x"),
            r"weather.yaml:2:1: unknown key 'descripton'; did you mean 'description'\?",
        ),
        (
            yaml(description="zzz: x"),
            "weather.yaml:2:1: unknown key 'zzz'; known: name, description, version, parameters, run",
        ),
        (
            yaml(more="timeout: fast"),
            r"weather.yaml:4:10: key 'timeout' must be a number, but it is a string \('fast'\)",
        ),
        (yaml(more="timeout: .nan"), "weather.yaml:4:10: key 'timeout' must be a number"),
        (
            yaml(more="timeout: 0"),
            "weather.yaml:4:10: key 'timeout' must be more than 0, but it is an integer",
        ),
        (yaml(more="timeout:"), "weather.yaml:4:9: key 'timeout' must be a number, but it is null"),
        (yaml(more="config: [a]"), "weather.yaml:4:9: key 'config' must be an object, but it is a list"),
        (yaml(more="max_result_chars: 1.5"), "weather.yaml:4:19: key 'max_result_chars' must be an integer"),
        (
            "name: wetter\nrun: ./code.py:today\n",
            "weather.yaml:1:7: the name is 'wetter', but the file is called",
        ),
        ("name: 3\nrun: ./code.py:today\n", "weather.yaml:1:7: key 'name' must be a string"),
        ("name: a b\nrun: ./code.py:today\n", "weather.yaml:1:7: key 'name' must be text that matches"),
        ("name: weather\nrun: ./code.py\n", "weather.yaml:2:6: key 'run' must be text that matches"),
        (yaml("tody"), r"weather.yaml:3:6: ./code.py holds no 'tody'; did you mean 'today'\?"),
        (yaml("number"), "weather.yaml:3:6: ./code.py:number is of type int, no function or class"),
        (yaml("Mute"), "weather.yaml:3:6: class Mute has no __call__ method to run"),
        (yaml("silent", "", ""), "weather.yaml:1:1: key 'description' is missing"),
        (
            yaml(more="config: {units: F}"),
            r"weather.yaml:4:10: today takes no 'units'; did you mean 'unit'\?",
        ),
        (
            yaml("Station", "config: {units: F}"),
            r"weather.yaml:4:10: Station takes no 'units'; did you mean 'unit'\?",
        ),
        (yaml("Needy", ""), "weather.yaml:3:6: Needy needs 'url' in config"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(text: str, message: str, write: Any) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        check_tool(write(text))
    assert caught.value.file is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "properties",
            "propertes",
            r"weather.yaml:6:3: unknown JSON Schema keyword 'propertes'; did you mean",
        ),
        (
            "{type: string}",
            "{typ: string}",
            r"weather.yaml:7:12: unknown JSON Schema keyword 'typ'; did you mean 'type'",
        ),
        (
            "required",
            "requird",
            r"weather.yaml:8:3: unknown JSON Schema keyword 'requird'; did you mean 'required'",
        ),
        (
            "{type: string}",
            "{type: strng}",
            r"weather.yaml:7:18: unknown type 'strng'; did you mean 'string'\?",
        ),
        (
            "{type: string}",
            "{type: string, format: data}",
            "weather.yaml:7:34: unknown format 'data'; did you mean 'date'",
        ),
        ("{type: string}", "{$ref: '#/x'}", r"weather.yaml:7:18: \$ref '#/x' leads to nothing"),
        ("{type: string}", "{type: string, default: 3}", "weather.yaml:7:35: the default must be a string"),
        (
            "[city]",
            "[citty]",
            r"weather.yaml:8:14: required names 'citty', which is no property; did you mean 'city'",
        ),
        ("[city]", "city", "weather.yaml:8:13: 'required' must be a list of strings"),
        ("type: object", "type: array", "weather.yaml:5:9: the parameters of a tool need type: object"),
        (
            "required: [city]",
            "",
            "weather.yaml:4:1: today needs the argument 'city', which parameters doesn't require",
        ),
        ("city:", "town:", "required names 'city', which is no property"),
        (
            "    city:",
            "    town: {}\n    city:",
            "weather.yaml:4:1: today takes no argument 'town', which parameters",
        ),
        (
            "city: {type: string}",
            "city: {type: string}\n    city: {}",
            "key 'city' stands here and in line 7",
        ),
    ],
)
def test_a_mistake_in_the_parameters_is_told_with_its_place(
    old: str, new: str, message: str, write: Any
) -> None:
    text = yaml(more=PARAMETERS.lstrip())
    assert old in text
    with pytest.raises(CatalogError, match=message):
        check_tool(write(text.replace(old, new)))


def test_a_misfit_knows_the_key_to_blame(write: Any) -> None:
    with pytest.raises(CatalogError) as caught:
        check_tool(write(yaml().replace("{type: string}", "{typ: string}")))
    assert (caught.value.line, caught.value.column) == (8, 12)
    assert caught.value.key == "parameters.properties.city.typ"


def test_code_that_fails_shows_its_cause(write: Any, tmp_path: Path) -> None:
    (tmp_path / "tools" / "code.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(
        CatalogError, match=r"weather.yaml:3:6: running ./code.py failed: ModuleNotFoundError: No module"
    ):
        check_tool(write(yaml()))


def test_a_class_that_cannot_be_built_shows_its_cause(write: Any) -> None:
    entry = write(yaml("Needy", "config: {url: here}"))
    check_tool(entry)
    with pytest.raises(
        CatalogError, match="building Needy failed: ConnectionError: no answer from here"
    ) as caught:
        load_tool(entry)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_class_that_needs_tasks_says_so(write: Any) -> None:
    with pytest.raises(CatalogError, match="Station needs the tasks of an environment; none were given"):
        load_tool(write(yaml("Station", "")))


def test_the_first_object_of_an_episode_is_built_with_its_tool(tmp_path: Path) -> None:
    """So that a wrong config raises where the tool is loaded, and is no observation of the first call."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "count.py").write_text(
        "alive = []\n"
        "class Count:\n"
        '    """Count calls."""\n'
        "    def __init__(self, start: int = 0):\n"
        "        if start < 0: raise ValueError('start is below 0')\n"
        "        self.n = start; alive.append(self)\n"
        "    def __call__(self) -> int:\n"
        "        self.n += 1; return self.n\n"
        "    def close(self) -> None: alive.remove(self)\n"
    )
    file = tmp_path / "tools" / "count.yaml"
    file.write_text("name: count\nrun: ./count.py:Count\ninstance: episode\nconfig: {start: -1}\n")
    with pytest.raises(CatalogError, match="count.yaml:2:6: .*start is below 0"):
        load_tool(Catalog.open(tmp_path).tool("count"))
    file.write_text("name: count\nrun: ./count.py:Count\ninstance: episode\n")
    made = load_tool(Catalog.open(tmp_path).tool("count"))
    alive = made.run.__globals__["alive"]
    assert len(alive) == 1 and made.begin is not None
    first, second = made.begin(), made.begin()
    assert alive == [first, second]
    second.close()
    first.close()
    assert made.close is not None
    made.close()
    unused = load_tool(Catalog.open(tmp_path).tool("count"))
    assert len(alive) == 1 and unused.close is not None
    unused.close()
    assert not alive
