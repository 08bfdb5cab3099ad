from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.catalog import Catalog
from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError, UnknownName
from agent_r1_env.limits import Caching, Rate, Retries
from agent_r1_env.messages import ToolCall
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Session, Toolbox
from agent_r1_env.toolfile import check_tool, faults, load_tool

CODE = '''\
from __future__ import annotations
import enum
from dataclasses import dataclass
from agent_r1_env import Hidden, tool
from agent_r1_env.limits import Retries

class Sky(enum.Enum):
    SUN = "sun"
    RAIN = "rain"

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

class Keyed:
    """Needs a key."""
    opened = []
    def __init__(self, key: str, sky: str = "sun"):
        self.key, self.sky, self.calls = key, sky, 0
        self.opened.append(self)
    def setup(self):
        if self.sky == "none":
            raise ConnectionError(f"{self.key} is refused")
        self.ready = True
    def __call__(self, city: str, state: Hidden[dict], token: str = "") -> str:
        self.calls += 1
        state["n"] = state.get("n", 0) + 1
        return f"{city} {self.key} {token} {self.calls} {state['n']}"
    def close(self):
        self.opened.remove(self)

def keyed(city: str, key: str) -> str:
    """Needs a key."""
    raise ValueError(f"{key} is wrong")

@tool(timeout=7, retries=Retries(2), reward=0.5, max_result_chars=99)
def limited(city: str, unit: str = "C") -> str:
    """Has limits."""
    return f"{city} {unit}"

@dataclass
class Place:
    name: str

def at(place: Place, sky: Sky = Sky.SUN) -> str:
    """Weather at a place."""
    return f"{place.name} {sky.name}"

def worth(result):
    return len(result.content)

def noisy(city: str, rng: Hidden[object]) -> str:
    """Draws."""
    return city

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
        (yaml(more="inline: yes please"), "weather.yaml:4:9: key 'inline' must be a boolean"),
        (
            yaml(more="inline: true\ntimeout: 30"),
            "weather.yaml:5:1: the tool is inline, so nobody waits for it and 'timeout' cannot be kept",
        ),
        (yaml(more="inline: true\ncache: true"), "weather.yaml:5:1: the tool is inline"),
        (yaml("later", more="inline: true"), "weather.yaml:4:1: ./code.py:later is a coroutine function"),
        (
            "name: weather\ndescription: x\nparameters: {type: object}\ninline: true\nhttp: {url: 'http://x/'}\n",
            "weather.yaml:4:1: key 'inline' is for Python functions",
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


def test_code_gets_what_it_is_annotated_with(write: Any) -> None:
    tool = load_tool(write(yaml("at", "")))
    assert tool.parameters["properties"]["sky"] == {
        "type": "string",
        "enum": ["sun", "rain"],
        "default": "sun",
    }
    assert result(tool, place={"name": "x"}, sky="rain") == "x RAIN"


def test_code_gets_it_under_declared_parameters_too(write: Any) -> None:
    parameters = """
parameters:
  type: object
  properties: {place: {type: object, properties: {name: {type: string}}, required: [name]}}
  required: [place]
"""
    assert result(load_tool(write(yaml("at", parameters))), place={"name": "x"}) == "x SUN"


@pytest.mark.parametrize(
    ("city", "message"),
    [
        (
            "{type: integer}",
            "weather.yaml:8:5: parameters lets an integer through for 'city', which today annotates",
        ),
        ("{type: [string, 'null']}", "weather.yaml:8:5: parameters lets null through for 'city'"),
        ("{anyOf: [{type: string}, {type: number}]}", "lets a number through for 'city'"),
    ],
)
def test_types_that_contradict_the_code_are_told_with_their_place(
    city: str, message: str, write: Any
) -> None:
    with pytest.raises(CatalogError, match=message):
        check_tool(write(yaml().replace("{type: string}", city)))


def test_what_a_decorator_says_holds_where_the_file_says_nothing(write: Any) -> None:
    tool = load_tool(write(yaml("limited", "timeout: 3\nconfig: {unit: F}", "")))
    assert (tool.timeout, tool.retries.times, tool.reward, tool.max_result_chars) == (3, 2, 0.5, 99)
    assert list(tool.parameters["properties"]) == ["city"]
    assert result(tool, city="x") == "x F"
    assert load_tool(write(yaml("limited", "retries: 0", "")), None, {"timeout": 1}).timeout == 1


def test_secrets_are_filled_in_and_shown_nowhere(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_KEY", "s3cret-key")
    tool = load_tool(write(yaml("keyed", "secrets: {key: WEATHER_KEY}")))
    assert list(tool.parameters["properties"]) == ["city"]
    assert result(tool, city="x") == "error: weather raised ValueError: *** is wrong"
    assert "takes no argument 'key'" in result(tool, city="x", key="mine")
    assert "s3cret" not in repr(tool)


def test_secrets_go_to_the_constructor_or_the_call_of_a_class(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cret-key")
    monkeypatch.setenv("TOKEN", "t0ken")
    tool = load_tool(write(yaml("Keyed", "secrets: [KEY, TOKEN]")))
    assert tool.run.key == "s3cret-key"  # type: ignore[attr-defined]
    assert result(tool, city="x") == "x *** *** 1 1"


def test_a_secret_that_is_not_set_is_missed_only_when_it_is_needed(write: Any) -> None:
    entry = write(yaml("keyed", "secrets: {key: NOT_SET_ANYWHERE}"))
    check_tool(entry)
    with pytest.raises(
        CatalogError,
        match="weather.yaml:4:10: the environment variable NOT_SET_ANYWHERE is not set; export it",
    ):
        load_tool(entry)


def test_a_failure_to_build_shows_no_secret(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret-key")
    with pytest.raises(
        CatalogError, match=r"building Keyed failed: ConnectionError: \*\*\* is refused"
    ) as caught:
        load_tool(write(yaml("Keyed", "secrets: [KEY]\nconfig: {sky: none}")))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("instance", "counts"),
    [("environment", ["1", "2", "1"]), ("episode", ["1", "1", "1"]), ("shared", ["1", "2", "3"])],
)
def test_an_object_lives_as_long_as_the_file_says(
    instance: str, counts: list[str], write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k")
    entry = write(yaml("Keyed", f"secrets: [KEY]\ninstance: {instance}"))
    opened = entry.target("run").opened
    boxes = [Toolbox([load_tool(entry)]) for _ in range(2)]
    found = []
    for box in (boxes[0], boxes[0], boxes[1]):
        box.begin(Session())
        found.append(box.run([ToolCall("weather", {"city": "x"}, "1")])[0].content.split()[-2])
    assert found == counts
    for box in boxes:
        assert opened
        box.close()
    assert not opened


LIMITS = [
    ("retries: 3", "retries", Retries(3)),
    ("retries: {times: 2, wait: 0.1, factor: 1, longest: 5}", "retries", Retries(2, 0.1, 1, 5)),
    ("rate_limit: 10/s", "rate_limit", Rate(10, 1.0)),
    ("rate_limit: 100/min", "rate_limit", Rate(100, 60.0)),
    ("rate_limit: 5 / 2.5 s", "rate_limit", Rate(5, 2.5)),
    ("rate_limit: 60/minute", "rate_limit", Rate(60, 60.0)),
    ("rate_limit: 9/2 hours", "rate_limit", Rate(9, 7200.0)),
    ("rate_limit: {calls: 3}", "rate_limit", Rate(3, 1.0)),
    ("rate_limit: {calls: 3, seconds: 9}", "rate_limit", Rate(3, 9)),
    ("concurrency: shared", "concurrency", None),
    ("concurrency: exclusive", "concurrency", 1),
    ("concurrency: 4", "concurrency", 4),
    ("cache: true", "cache", Caching()),
    ("cache: false", "cache", None),
    ("cache: {size: 5, seconds: 2}", "cache", Caching(5, 2)),
    ("cache: {}", "cache", Caching()),
    ("reward: 1", "reward", 1.0),
    ("reward: {ok: 0.5, timeout: -1}", "reward", {"ok": 0.5, "timeout": -1}),
    ("max_result_tokens: 7", "max_result_tokens", 7),
    ("version: 3", "version", "3"),
    ("version: '1.10'", "version", "1.10"),
    ("timeout: 1e1", "timeout", 10.0),
]


@pytest.mark.parametrize(("line", "attribute", "value"), LIMITS)
def test_a_limit_is_read_in_every_way_of_writing_it(
    line: str, attribute: str, value: Any, write: Any
) -> None:
    assert getattr(load_tool(write(yaml(more=line))), attribute) == value


def test_a_reward_may_be_code(write: Any) -> None:
    tool = load_tool(write(yaml(more="reward: ./code.py:worth")))
    assert Toolbox([tool]).run([ToolCall("weather", {"city": "x"}, "1")])[0].reward == len("x C")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("retries: -1", "4:10: key 'retries' must be at least 0"),
        ("retries: true", "4:10: key 'retries' must be an integer or an object, but it is a boolean"),
        ("retries: {time: 1}", "4:11: unknown key 'time'; did you mean 'times'?"),
        (
            "retries: {wait: 1}",
            "4:10: key 'times' of 'retries' is missing; it is further attempts after the first",
        ),
        ("retries: {times: 1, factor: 0.5}", "4:29: key 'retries.factor' must be at least 1"),
        ("retries: {times: 1, wait: 1e999}", "4:10: wait of retries must be finite"),
        ("rate_limit: 10", "4:13: key 'rate_limit' must be a string or an object, but it is an integer (10)"),
        ("rate_limit: 10/week", "4:13: '10/week' is no rate; write for example 10/s or 100/min"),
        ("rate_limit: 10/2.5.1s", "is no rate"),
        ("rate_limit: 0/s", "4:13: a rate is at least 1 call in a time above 0"),
        ("rate_limit: {calls: 1, second: 1}", "4:24: unknown key 'second'; did you mean 'seconds'?"),
        ("concurrency: 0", "4:14: key 'concurrency' must be"),
        (
            "concurrency: exclusiv",
            "4:14: key 'concurrency' must be one of 'shared', 'exclusive' or an integer",
        ),
        ("cache: {sizes: 1}", "4:9: unknown key 'sizes'; did you mean 'size'?"),
        ("reward: {okay: 1}", "4:10: unknown key 'okay'; did you mean 'ok'?"),
        ("reward: ./code.py:number", "4:9: ./code.py:number is int, not a function of a ToolResult"),
        ("reward: ./code.py:wort", "4:9: ./code.py holds no 'wort'; did you mean 'worth'?"),
        ("timeout: 1e999", "4:10: must be a finite number, but it is inf"),
        ("version: 1.10", "4:10: key 'version' must be a string or an integer, but it is a number (1.1)"),
        ("instance: episode", "4:1: 'instance' is for classes, and ./code.py:today is none; take it out"),
        ("secrets: [API-KEY]", "4:11: key 'secrets.0' must be text that matches"),
        ("secrets: [API_KEY]", "4:1: today takes no 'api_key'"),
        ("secrets: {unit: X}\nconfig: {unit: F}", "5:10: 'unit' stands in config and in secrets; keep one"),
        ("retires: 2", "4:1: unknown key 'retires'; did you mean 'retries'?"),
    ],
)
def test_a_mistake_in_a_limit_is_told_with_its_place(line: str, message: str, write: Any) -> None:
    with pytest.raises(CatalogError) as caught:
        check_tool(write(yaml(more=line)))
    assert message in str(caught.value)


def test_results_that_depend_on_more_than_arguments_are_not_cached(write: Any) -> None:
    with pytest.raises(CatalogError, match="weather.yaml:4:1: results cannot be kept .* also takes 'rng'"):
        check_tool(write(yaml("noisy", "cache: true")))


def test_overrides_are_checked_as_the_file_is(write: Any) -> None:
    entry = write(yaml())
    changed = load_tool(entry, None, {"retries": {"times": 2}, "concurrency": "exclusive", "reward": 1})
    assert (changed.retries.times, changed.concurrency, changed.reward) == (2, 1, 1.0)
    with pytest.raises(CatalogError, match="'timeout' must be a number, but it is a string"):
        load_tool(entry, None, {"timeout": "fast"})


def test_all_faults_of_a_file_are_found_at_once(write: Any) -> None:
    entry = write(yaml().replace("properties", "propertes").replace("required", "requird"))
    assert [(fault.line, fault.key) for fault in faults(entry)] == [
        (7, "parameters.propertes"),
        (9, "parameters.requird"),
    ]


def test_words_that_older_yaml_took_for_booleans_stay_words(write: Any, tmp_path: Path) -> None:
    (tmp_path / "tools" / "code.py").write_text("def f(on, lang='no'):\n    return f'{on} {lang}'\n")
    entry = write(
        "name: weather\ndescription: D.\nrun: ./code.py:f\nparameters:\n  type: object\n"
        "  properties: {on: {type: string}, lang: {enum: [en, no, fr]}}\n  required: [on]\n"
    )
    tool = load_tool(entry)
    assert tool.parameters["properties"] == {"on": {"type": "string"}, "lang": {"enum": ["en", "no", "fr"]}}
    assert result(tool, on="yes", lang="no") == "yes no"
