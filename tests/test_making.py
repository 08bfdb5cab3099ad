"""Environments from catalogue entries: options, overrides, and mistakes with their place."""

from __future__ import annotations

import textwrap

import gymnasium as gym
import pytest

from agent_r1_env import CatalogError, UnknownName, register
from agent_r1_env.making import make_env

ENV = """\
name: Trip
tasks:
  load: ./trip.py:load
  config: {count: 2}
tools: [weather]
reward: {exact_match: 1.0, ./trip.py:brevity: 0.5}
metrics: [f1]
"""
CODE = """\
from agent_r1_env import Task, TaskSet

def load(count, city="Bergen"):
    tasks = [Task(f"t{n}", f"How is the weather in {city}?", ("sun",)) for n in range(count)]
    return TaskSet(tasks, name="trip", origin="made for a test")

def brevity(outcome):
    return 1.0 if outcome.steps == 1 else 0.0
"""
TOOL = """\
name: weather
description: Weather of a city today.
run: ./weather.py:Weather
config: {sky: sun}
"""
TOOL_CODE = """\
class Weather:
    def __init__(self, sky):
        self.sky = sky

    def __call__(self, city: str) -> str:
        '''Weather of a city today.

        Args:
            city: City name.
        '''
        return f"{self.sky} in {city}"
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "envs/trip.yaml": ENV,
        "envs/trip.py": CODE,
        "tools/weather.yaml": TOOL,
        "tools/weather.py": TOOL_CODE,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def ask(env) -> str:
    env.reset(seed=0)
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
    return env.step(call)[4]["messages"][-1]["content"]


def test_a_folder_of_the_users_becomes_a_gymnasium_environment(folder):
    assert register(folder, namespace="Making") == ["Making/Trip-v0", "Making/WeatherTool-v0"]
    env = gym.make("Making/Trip-v0")
    assert ask(env) == "sun in Oslo"
    assert gym.make(gym.spec("Making/Trip-v0")).unwrapped.tasks.name == "trip"


def test_a_term_of_the_users_own_is_weighed_in(folder):
    env = make_env("x/Trip", str(folder))
    env.reset(seed=0)
    _, reward, *_, info = env.step("<answer>sun</answer>")
    assert reward == 1.5
    assert info["reward_terms"] == {"exact_match": 1.0, "brevity": 0.5}
    assert info["metrics"]["f1"] == 1.0


def test_options_replace_what_the_entry_says(folder):
    env = make_env("x/Trip", str(folder), max_steps=1, rewards={"f1": 2.0}, city="Rome", count=3)
    _, info = env.reset(seed=0)
    assert "Rome" in info["messages"][-1]["content"]
    assert len(env.tasks) == 3
    assert env.step("hm")[3] is True


def test_the_config_of_a_tool_can_be_replaced(folder):
    assert ask(make_env("x/Trip", str(folder), tool_config={"weather": {"sky": "rain"}})) == "rain in Oslo"
    with pytest.raises(UnknownName, match="did you mean 'weather'"):
        make_env("x/Trip", str(folder), tool_config={"wether": {}})
    with pytest.raises(CatalogError, match="did you mean 'sky'"):
        make_env("x/Trip", str(folder), tool_config={"weather": {"skyy": "rain"}})


def test_an_entry_configures_its_tools(folder):
    entry = folder / "envs" / "trip.yaml"
    entry.write_text(ENV + "tool_config: {weather: {sky: ./fog}}\n")
    assert ask(make_env("x/Trip", str(folder))) == f"{folder / 'envs' / 'fog'} in Oslo"
    assert ask(make_env("x/Trip", str(folder), tool_config={"weather": {"sky": "rain"}})) == "rain in Oslo"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{wether: {sky: fog}}", r"trip.yaml:8:15: .*no tool named 'wether'; did you mean 'weather'"),
        ("{weather: {skyy: fog}}", r"trip.yaml:8:15: .*did you mean 'sky'"),
    ],
)
def test_a_wrong_config_of_a_tool_is_told_with_its_line(folder, config, told):
    (folder / "envs" / "trip.yaml").write_text(f"{ENV}tool_config: {config}\n")
    with pytest.raises(CatalogError, match=told):
        register(folder, namespace="WrongConfig")


def test_other_tools_can_be_chosen(folder):
    env = make_env("x/Trip", str(folder), tools=["calculator", "answer"])
    assert list(env.toolbox.tools) == ["calculator", "answer"]
    assert list(make_env("x/Trip", str(folder), tools=[]).toolbox.tools) == []
    with pytest.raises(CatalogError, match="no tool named 'calculater'.*did you mean 'calculator'"):
        make_env("x/Trip", str(folder), tools=["calculater"])


def test_an_option_that_nobody_takes_names_the_nearest(folder):
    with pytest.raises(UnknownName, match="no option named 'max_step'.* did you mean 'max_steps'"):
        make_env("x/Trip", str(folder), max_step=3)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("exact_match: 1.0", "exact_mach: 1.0", r"trip\.yaml:6:10: .*did you mean 'exact_match'"),
        ("./trip.py:brevity", "./trip.py:brevty", r"trip\.yaml:6:.*did you mean 'brevity'"),
        ("metrics: [f1]", "metrics: [f1, answerd]", r"trip\.yaml:7:15: .*did you mean 'answered'"),
        ("metrics: [f1]", "format: herms", r"trip\.yaml:7:9: .*did you mean 'hermes'"),
        ("metrics: [f1]", "context: apend", r"trip\.yaml:7:10: .*did you mean 'append'"),
    ],
)
def test_an_unknown_name_is_reported_with_its_place(folder, old, new, says):
    path = folder / "envs" / "trip.yaml"
    path.write_text(ENV.replace(old, new))
    with pytest.raises(CatalogError, match=says):
        register(folder, namespace="Broken")


def test_a_loader_that_returns_something_else_is_reported(folder):
    (folder / "envs" / "trip.py").write_text("def load(count): return [1]\ndef brevity(outcome): return 0.0")
    with pytest.raises(CatalogError, match="returned list, not a TaskSet"):
        make_env("x/Trip", str(folder))
