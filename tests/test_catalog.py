from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import agent_r1_env
from agent_r1_env import catalog, sandbox
from agent_r1_env.catalog import Catalog, builtin_root, fold, load_tool, register
from agent_r1_env.entry import read_entry
from agent_r1_env.errors import CatalogError, UnknownName
from agent_r1_env.messages import ToolCall
from agent_r1_env.toolbox import Toolbox

TRIP = """\
name: Trip
version: 2
tasks: {load: "./trip.py:tasks"}
tools: [weather, search]
policies:
  lazy: ./trip.py:lazy
"""
TRIP_CODE = """\
from agent_r1_env import Paragraph, Task, TaskSet

def tasks(split="train"):
    return TaskSet(
        name="trip",
        origin="made up",
        synthetic=True,
        tasks=[Task(id="1", question="Rain in Bergen?", answers=("yes",))],
        corpus=(Paragraph("Bergen", "It rains in Bergen."),),
    )

def lazy(*_):
    return "<answer>yes</answer>"
"""
WEATHER = """\
name: weather
description: Weather of a city today.
run: ./weather.py:today
timeout: 5
parameters:
  type: object
  properties: {city: {type: string, description: "City name"}}
  required: [city]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "mine")


def make_folder(root: Path) -> Path:
    for name, text in {
        "envs/trip.yaml": TRIP,
        "envs/trip.py": TRIP_CODE,
        "tools/weather.yaml": WEATHER,
        "tools/weather.py": "def today(city: str) -> str:\n    return f'Rain in {city}'\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_every_built_in_entry_is_sound() -> None:
    built_in = Catalog.open()
    assert built_in.names("env") and built_in.names("tool")
    built_in.check()


def test_the_quick_look_at_built_in_files_agrees_with_reading_them() -> None:
    for name in Catalog.open().names("env"):
        entry = Catalog.open().env(name)
        assert catalog._name_and_version(entry.path) == (entry.name, entry.data["version"])
        assert f"AgentR1/{entry.name}-v{entry.data['version']}" in gym.registry


def test_the_built_in_catalogue_is_found_beside_the_package_or_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "agent_r1_env"
    package.mkdir()
    monkeypatch.setattr(catalog, "__file__", str(package / "catalog.py"))
    with pytest.raises(CatalogError, match="install the package with pip"):
        builtin_root()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tools").mkdir()
    assert builtin_root() == tmp_path
    (package / "_catalog").mkdir()
    assert builtin_root() == package / "_catalog"


def test_a_users_folder_is_registered_and_played(folder: Path) -> None:
    assert register(folder, "Me") == ["Me/Trip-v2", "Me/WeatherTool-v0"]
    env = gym.make("Me/Trip-v2")
    _, info = env.reset(seed=0)
    assert [each["function"]["name"] for each in info["tools"]] == ["weather", "search"]
    reply = '<tool_call>{"name": "weather", "arguments": {"city": "Bergen"}}</tool_call>'
    observation, *_ = env.step(reply)
    assert "Rain in Bergen" in observation
    _, reward, terminated, *_ = env.step("<answer>yes</answer>")
    assert (reward, terminated) == (1.0, True)
    env.close()


def test_registering_a_folder_twice_is_harmless_and_sees_its_changes(folder: Path) -> None:
    register(folder, "Me")
    assert register(folder, "Me") == ["Me/Trip-v2", "Me/WeatherTool-v0"]
    edit(folder / "tools" / "weather.py", "Rain", "Snow")
    env = gym.make("Me/Trip-v2")
    env.reset(seed=0)
    assert (
        "Snow in x" in env.step('<tool_call>{"name": "weather", "arguments": {"city": "x"}}</tool_call>')[0]
    )
    env.close()


def test_another_folder_may_not_take_the_same_id(folder: Path, tmp_path: Path) -> None:
    register(folder, "Me")
    other = make_folder(tmp_path / "other")
    with pytest.raises(
        CatalogError, match=r"Me/Trip-v2 is registered already, by .*mine; choose another namespace"
    ):
        register(other, "Me")
    assert register(other, "You") == ["You/Trip-v2", "You/WeatherTool-v0"]


@pytest.mark.parametrize("namespace", ["", "a b", "a/b", "AgentR1", "a:b"])
def test_a_namespace_that_is_malformed_or_taken_is_refused(namespace: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="namespace"):
        register(folder, namespace)


def test_nothing_is_registered_from_a_folder_with_a_mistake(folder: Path) -> None:
    edit(folder / "tools" / "weather.yaml", "timeout", "timeuot")
    with pytest.raises(CatalogError, match="unknown key 'timeuot'; did you mean 'timeout'"):
        register(folder, "Me")
    assert not [env_id for env_id in gym.registry if env_id.startswith("Me/")]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "envs/trip.yaml",
            "weather, search",
            "weather, serch",
            r"trip.yaml:4:18: no tool named 'serch' in .*/tools or the built-in tools; did you mean 'search'",
        ),
        (
            "envs/trip.yaml",
            "tools:",
            "tool:",
            r"envs/trip.yaml:4:1: unknown key 'tool'; did you mean 'tools'\?",
        ),
        (
            "envs/trip.yaml",
            "py:tasks",
            "py:task",
            r"envs/trip.yaml:3:15: ./trip.py holds no 'task'; did you mean",
        ),
        ("envs/trip.yaml", "py:lazy", "py:lasy", r"envs/trip.yaml:6:9: .* did you mean 'lazy'\?"),
        (
            "envs/trip.yaml",
            "}\ntools",
            ", config: {splitt: x}}\ntools",
            r"envs/trip.yaml:3:\d+: tasks takes no 'splitt'; did you mean 'split'\?",
        ),
        ("envs/trip.yaml", "version: 2", "version: two", "trip.yaml:2:10: key 'version' must be an integer"),
        (
            "envs/trip.yaml",
            "name: Trip",
            "name: Tripp",
            "the name is 'Tripp', but the file is called trip.yaml",
        ),
        ("envs/trip.yaml", "name: Trip", "name: Trip-v1", "trip.yaml:1:7: key 'name'"),
        ("envs/trip.yaml", "version: 2", "format: hermess", r"trip.yaml:2:9: .* did you mean 'hermes'\?"),
        ("envs/trip.yaml", "version: 2", "reward: {exact: 1}", r"trip.yaml:2:\d+: .*'exact'"),
        ("tools/weather.py", "def today", "def yesterday", "weather.yaml:3:6: ./weather.py holds no 'today'"),
    ],
)
def test_a_mistake_is_told_with_its_place(file: str, old: str, new: str, message: str, folder: Path) -> None:
    edit(folder / file, old, new)
    with pytest.raises(CatalogError, match=message):
        register(folder, "Me")


def test_a_folder_that_is_no_catalogue_is_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no such folder"):
        Catalog.open(tmp_path / "none")
    with pytest.raises(CatalogError, match="holds none of the folders tools, envs and trainers"):
        Catalog.open(tmp_path)


def test_files_that_would_be_passed_over_are_told(folder: Path) -> None:
    (folder / "tools" / "other.yml").write_text(WEATHER)
    with pytest.raises(CatalogError, match="entries end in .yaml; rename it to other.yaml"):
        register(folder, "Me")
    (folder / "tools" / "other.yml").rename(folder / "tools" / "Weather.yaml")
    with pytest.raises(CatalogError, match="keep one"):
        register(folder, "Me")


def test_own_tools_come_before_built_in_ones(folder: Path) -> None:
    mine = Catalog.open(folder)
    assert mine.tool("search").path == builtin_root() / "tools" / "search.yaml"
    shutil.copy(folder / "tools" / "weather.yaml", folder / "tools" / "search.yaml")
    edit(folder / "tools" / "search.yaml", "name: weather", "name: search")
    assert mine.tool("search").path == folder / "tools" / "search.yaml"


def test_an_environment_may_bring_tools_of_its_own(folder: Path) -> None:
    (folder / "envs" / "trip").mkdir()
    (folder / "envs" / "trip" / "tools.yaml").write_text(
        "- {name: tide, run: ./sea.py:tide}\n- {name: wind, run: ./sea.py:wind}\n"
    )
    (folder / "envs" / "trip" / "sea.py").write_text(
        "def tide(city: str) -> str:\n    'Tide today.'\n    return 'high'\n"
        "def wind(city: str) -> str:\n    'Wind today.'\n    return 'west'\n"
    )
    edit(folder / "envs" / "trip.yaml", "[weather, search]", "[weather, ./trip/tools.yaml]")
    register(folder, "Me")
    env = gym.make("Me/Trip-v2", tool_config={"weather": {}})
    _, info = env.reset(seed=0)
    assert [tool["function"]["name"] for tool in info["tools"]] == ["weather", "tide", "wind"]
    assert Catalog.open(folder).names("tool") == ["weather"]
    edit(folder / "envs" / "trip.yaml", "trip/tools.yaml", "trip/tool.yaml")
    with pytest.raises(CatalogError, match=r"trip.yaml:4:\d+: .*did you mean './trip/tools.yaml'"):
        register(folder, "Me")


def test_unknown_entries_are_told_with_the_nearest(folder: Path) -> None:
    mine = Catalog.open(folder)
    with pytest.raises(
        UnknownName, match=r"no tool named 'wether' .*; did you mean 'weather'\? known: .*search.* weather"
    ):
        mine.tool("wether")
    with pytest.raises(UnknownName, match=r"no env named 'Tripp' in .*envs; did you mean 'trip'\?"):
        mine.env("Tripp")
    with pytest.raises(UnknownName, match="no recipe named 'x' in .*trainers; known: none"):
        mine.recipe("x")
    with pytest.raises(gym.error.NameNotFound, match="Did you mean: `HotpotQA`"):
        gym.make("AgentR1/Hotpot-v0")


def test_names_are_found_in_any_spelling_of_case_and_dash(folder: Path) -> None:
    assert fold("My-Env") == fold("my_env")
    assert Catalog.open(folder).env("TRIP").name == "Trip"


def test_a_file_is_read_once_until_it_changes(folder: Path) -> None:
    path = folder / "tools" / "weather.yaml"
    first = read_entry("tool", path)
    assert read_entry("tool", path) is first
    edit(path, "timeout: 5", "timeout: 55")
    assert read_entry("tool", path).data["timeout"] == 55


def test_defaults_of_the_schema_are_filled_in_at_every_depth(folder: Path) -> None:
    edit(folder / "envs" / "trip.yaml", "version: 2", "answer: {}")
    entry = Catalog.open(folder).env("Trip")
    assert (entry.data["answer"], entry.data["version"], entry.get("tasks", "config")) == (
        {"tag": "answer"},
        0,
        {},
    )
    assert entry.file.data["answer"] == {}


def test_a_tool_can_be_used_by_itself(folder: Path) -> None:
    weather = load_tool(Catalog.open(folder).tool("weather"))
    assert Toolbox([weather]).run([ToolCall("weather", {"city": "x"}, "1")])[0].content == "Rain in x"


def test_what_is_registered_is_plain_data(folder: Path) -> None:
    register(folder, "Me")
    spec = gym.spec("Me/Trip-v2")
    data = json.loads(spec.to_json())
    assert data["kwargs"] == {"entry": "Me/Trip", "folder": str(folder)}
    env = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    env.reset(seed=0)
    env.close()


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_environments_are_made_in_other_processes(context: str, folder: Path) -> None:
    register(folder, "Me")
    envs = gym.make_vec("Me/Trip-v2", 2, vectorization_mode="async", vector_kwargs={"context": context})
    try:
        envs.reset(seed=0)
        call = '<tool_call>{"name": "weather", "arguments": {"city": "Bergen"}}</tool_call>'
        observations, *_ = envs.step([call, "<answer>yes</answer>"])
        assert "Rain in Bergen" in observations[0]
    finally:
        envs.close()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agent_r1_env; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "jsonschema",
        "yaml",
        "bm25s",
        "torch",
        "transformers",
        "trl",
        "vllm",
        "datasets",
        "pandas",
        "aiohttp",
    }
    assert not heavy & set(loaded)


def test_the_schemas_of_entries_are_shipped() -> None:
    folder = Path(agent_r1_env.__file__).parent / "schemas"
    for kind in ("tool", "env", "recipe"):
        schema = json.loads((folder / f"{kind}.json").read_text())
        assert schema["additionalProperties"] is False
        assert all("description" in part for part in schema["properties"].values())


NUMBERS = """\
- name: add_up
  version: 3
  run: ./numbers.py:add
- name: echo
  version: beta
  run: ./numbers.py:echo
- name: draw
  run: ./numbers.py:draw
"""
NUMBERS_CODE = '''\
import numpy as np
from agent_r1_env import Hidden, ToolOutput

def add(a: int, b: int = 1) -> int:
    """Add numbers."""
    return a + b

def echo(text: str) -> str:
    """Say it again."""
    return ToolOutput("bye", answer="done") if text == "end" else text

def draw(rng: Hidden[np.random.Generator]) -> int:
    """Draw a number."""
    return int(rng.integers(1000))
'''


@pytest.fixture
def numbers(folder: Path) -> Path:
    (folder / "tools" / "numbers.yaml").write_text(NUMBERS)
    (folder / "tools" / "numbers.py").write_text(NUMBERS_CODE)
    return folder


OFFLINE = sorted(
    env_id
    for env_id, spec in gym.registry.items()
    if str(spec.entry_point).endswith("make_tool_env")
    and not any(word in env_id for word in ("Http", "Dense"))  # they need a server or a model
    and not ("PythonTool" in env_id and sandbox.unavailable("process"))
)


NEEDED = {"AgentR1/CheckAnswerTool-v0": {"answers": ["Bergen"]}}
"""What tools need that an environment's tasks would bring."""


def checked(env_id: str) -> None:
    env = gym.make(env_id, **NEEDED.get(env_id, {}))
    try:
        check_env(env.unwrapped, skip_render_check=True)
    finally:
        env.close()


@pytest.mark.parametrize("env_id", OFFLINE)
def test_every_built_in_tool_is_an_environment(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*synthetic")
        checked(env_id)


def test_every_tool_of_a_folder_is_an_environment(numbers: Path) -> None:
    ids = register(numbers, "Me")
    assert ids[1:] == ["Me/AddUpTool-v3", "Me/DrawTool-v0", "Me/EchoTool-v0", "Me/WeatherTool-v0"]
    for env_id in ids[1:]:
        checked(env_id)


@pytest.mark.parametrize(
    ("env_id", "action", "observation"),
    [
        ("Me/AddUpTool-v3", '{"a": 2, "b": 3}', "5"),
        ("Me/AddUpTool-v3", ' {"a": 2} ', "3"),
        ("Me/AddUpTool-v3", '{"a": "x"}', "error: argument 'a' of add_up must be an integer"),
        ("Me/AddUpTool-v3", '{"a": 2', "error: the arguments are not valid JSON"),
        ("Me/AddUpTool-v3", "two", "write an object with 'a', 'b'"),
        ("Me/AddUpTool-v3", "[1, 2]", "error: the arguments must be one JSON object, not '[1, 2]'"),
        ("Me/EchoTool-v0", "plain text", "plain text"),
        ("Me/EchoTool-v0", '{"text": "in JSON"}', "in JSON"),
        ("Me/EchoTool-v0", '{"not": "ours"}', '{"not": "ours"}'),
        ("Me/EchoTool-v0", "", ""),
        ("Me/DrawTool-v0", "{}", ""),
    ],
)
def test_an_action_is_the_arguments_of_a_call(
    env_id: str, action: str, observation: str, numbers: Path
) -> None:
    register(numbers, "Me")
    env = gym.make(env_id)
    assert "Arguments, as a JSON object" in env.reset(seed=0)[0]
    got, reward, terminated, truncated, info = env.step(action)
    assert observation in got
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, True, False, "max_calls")
    env.close()


def test_an_episode_has_as_many_calls_as_asked_for(numbers: Path) -> None:
    register(numbers, "Me")
    env = gym.make("Me/EchoTool-v0", max_calls=3)
    env.reset(seed=0)
    assert [env.step(text)[2] for text in ("a", "b", "c")] == [False, False, True]
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step("end")
    assert (terminated, truncated, info["answer"], info["stop_reason"]) == (True, False, "done", "answer")
    env.close()
    with pytest.raises(ValueError, match="max_calls must be at least 1"):
        gym.make("Me/EchoTool-v0", max_calls=0)


def test_a_tool_that_draws_follows_the_seed(numbers: Path) -> None:
    register(numbers, "Me")
    env = gym.make("Me/DrawTool-v0", max_calls=2)

    def draws(seed: int) -> list[str]:
        env.reset(seed=seed)
        return [env.step("{}")[0] for _ in range(2)]

    assert draws(1) == draws(1) != draws(2)
    env.close()


def test_a_tool_is_made_from_the_json_of_its_spec(numbers: Path) -> None:
    register(numbers, "Me")
    spec = gym.make("Me/EchoTool-v0", max_calls=2).spec
    env = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    env.reset(seed=0)
    assert env.step("a")[0:3:2] == ("a", False)
    env.close()


def test_a_built_in_tool_is_made_by_a_name_that_imports_the_package() -> None:
    code = (
        "import gymnasium as gym; env = gym.make('agent_r1_env:AgentR1/PythonTool-v0'); "
        "print(env.spec.id); env.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "AgentR1/PythonTool-v0\n"


def test_a_tool_that_counts_tokens_is_given_a_tokenizer(numbers: Path) -> None:
    edit(numbers / "tools" / "numbers.yaml", "version: beta", "max_result_tokens: 2")
    register(numbers, "Me")
    with pytest.raises(ValueError, match="echo has max_result_tokens, so the environment needs a tokenizer"):
        gym.make("Me/EchoTool-v0")
    env = gym.make("Me/EchoTool-v0", tokenizer=Letters())
    env.reset()
    assert env.step("letters")[0].startswith("le\n[... 5 more characters cut]")
    env.close()


class Letters:
    """Every letter is a token."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(map(ord, text))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_tools_run_in_vector_environments(mode: str, numbers: Path) -> None:
    register(numbers, "Me")
    envs = gym.make_vec("Me/AddUpTool-v3", 3, vectorization_mode=mode, max_calls=2)
    try:
        envs.reset(seed=0)
        observations, _, terminated, *_ = envs.step(['{"a": 1}', "bad", '{"a": 5}'])
        assert (observations[0], observations[2]) == ("2", "6") and "error" in observations[1]
        assert not terminated.any()
        assert envs.step(['{"a": 1}'] * 3)[2].all()
    finally:
        envs.close()


def test_config_of_a_tool_is_given_to_gym_make(folder: Path) -> None:
    (folder / "tools" / "weather.py").write_text(
        "def today(city: str, sky='Rain'):\n    return f'{sky} in {city}'\n"
    )
    edit(folder / "tools" / "weather.yaml", "timeout: 5", "config: {sky: Sun}")
    register(folder, "Me")
    for config, text in (({}, "Sun in x"), ({"sky": "Snow"}, "Snow in x")):
        env = gym.make("Me/WeatherTool-v0", **config)
        env.reset()
        assert env.step("x")[0] == text
        env.close()
    with pytest.raises(CatalogError, match="today takes no 'skye'; did you mean 'sky'"):
        gym.make("Me/WeatherTool-v0", skye="x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- name: weather\n  run: ./weather.py:today\n", "'weather' stands here and in more.yaml; keep one"),
        ("- name: a b\n  run: ./weather.py:today\n", "more.yaml:1:9: key 'name' must be text that matches"),
        ("- name: x\n  run: ./weather.py:today\n- name: X\n  run: ./weather.py:today\n", "keep one"),
        ("- run: ./weather.py:today\n", "more.yaml:1:3: key 'name' is missing"),
        (
            "- name: x\n  description: D.\n  run: ./weather.py:tody\n",
            "more.yaml:3:8: .* did you mean 'today'",
        ),
    ],
)
def test_a_mistake_in_a_list_of_tools_is_told_with_its_place(text: str, message: str, folder: Path) -> None:
    (folder / "tools" / "more.yaml").write_text(text)
    with pytest.raises(CatalogError, match=message):
        register(folder, "Me")
