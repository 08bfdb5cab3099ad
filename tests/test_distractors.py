"""Distractors: sound tools that belong to no task, among those that do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from agent_r1_env.distractors import Distractors, available
from agent_r1_env.errors import UnknownName
from agent_r1_env.methods import is_search
from agent_r1_env.parameters import check_parameters, unknown_keywords
from agent_r1_env.provoking import arguments_for
from agent_r1_env.testing import answer, call, sum_env
from agent_r1_env.tool import Tool


def tools(*names: str) -> list[Tool]:
    return [Tool(name, "", {"type": "object"}, lambda: "") for name in names]


def names(made: list[Tool]) -> list[str]:
    return [tool.name for tool in made]


def test_there_are_at_least_twelve_and_each_is_a_sound_tool() -> None:
    assert len(available()) >= 12
    for tool in available().values():
        check_parameters(tool.parameters)
        assert not list(unknown_keywords(tool.parameters))
        assert re.fullmatch(r"[A-Z].*\.", tool.description)
        assert all(each.get("description") for each in tool.parameters["properties"].values())
        assert not is_search(tool), "or it would take the place of the environment's search"


def test_each_gives_harmless_results_for_whatever_fits_its_schema() -> None:
    rng = np.random.default_rng(0)
    for tool in available().values():
        for _ in range(5):
            arguments = arguments_for(tool, rng)
            assert arguments is not None
            output = tool.run(**tool.validate(arguments))
            assert output.simulated == "distractor"
            assert output.content and "{" not in output.content


def test_equal_arguments_give_equal_results_and_repeat_little_of_them() -> None:
    run = available()["get_weather"].run
    assert run(city="Bergen", unit="celsius") == run(unit="celsius", city="Bergen")
    assert len({run(city=f"town {number}", unit="x").content[8:] for number in range(30)}) > 2
    assert len(run(city="x" * 5000, unit="celsius").content) < 300


def test_a_seed_decides_which_they_are_and_where_they_stand() -> None:
    def made(seed: int, count: int = 5) -> list[str]:
        return names(Distractors(count, seed=seed)(tools("search", "python")))

    assert made(1) == made(1)
    assert len({tuple(made(seed)) for seed in range(20)}) > 15
    assert {"search", "python"} <= set(made(1)) and len(made(1)) == len(set(made(1))) == 7
    assert len({made(seed).index("search") for seed in range(40)}) > 4


def test_names_can_be_asked_for() -> None:
    made = Distractors(names=["get_weather", "find_recipe"])(tools("search"))
    assert sorted(names(made)) == ["find_recipe", "get_weather", "search"]


def test_names_never_collide() -> None:
    own = tools("Get_Weather", "play_music")
    made = names(Distractors(len(available()) - 2)(own))
    assert len({name.lower() for name in made}) == len(available())
    with pytest.raises(ValueError, match="the names of only 14 distractors are free"):
        Distractors(len(available()) - 1)(own)
    with pytest.raises(ValueError, match="a tool is called 'get_weather' already; leave that distractor out"):
        Distractors(names=["get_weather"])(own)


def test_calling_one_is_a_good_call_and_counted() -> None:
    env = sum_env(Distractors(names=["get_weather"])(list(sum_env().toolbox.tools.values())))
    env.reset(seed=0)
    *_, info = env.step(call("get_weather", city="Bergen"))
    assert (info["calls"][0]["ok"], info["calls"][0]["simulated"]) == (True, "distractor")
    assert "Bergen" in info["messages"][-1]["content"]
    *_, info = env.step(answer(1))
    assert info["metrics"]["simulated/distractor"] == 1
    assert info["metrics"]["invalid_calls"] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "distractors need either count, how many, or names, which ones"),
        ({"count": 1, "names": ["get_weather"]}, "distractors need either count"),
        ({"count": -1}, "count must be a whole number from 0, got -1"),
        ({"count": ["get_weather"]}, "count must be a whole number from 0, got ['get_weather']"),
        ({"count": 400}, "count is 400, but there are 16 distractors"),
        ({"names": "get_weather"}, "names must be a list of names"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        Distractors(**options)
    assert told in str(caught.value)


def test_a_distractor_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no distractor named 'weather'; did you mean 'get_weather'"):
        Distractors(names=["weather"])
