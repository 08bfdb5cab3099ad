"""Tools in other words: shown anew, checked as ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError, UnknownName
from agent_r1_env.paraphrase import Paraphrase
from agent_r1_env.testing import call, sum_env
from agent_r1_env.tool import Tool, tool
from agent_r1_env.toolfile import check_tool


@tool
def travel(start: str, goal: str, stops: int = 0, first_class: bool = False) -> str:
    """Plan a journey.

    Args:
        start: Where it begins.
        goal: Where it ends.
        stops: How many.
    """
    return f"from {start} to {goal}"


WORDINGS = [
    {"description": "Find a way.", "parameters": {"start": "The first place.", "first_class": "In comfort."}},
    {"description": "Look up connections."},
]


def shown(made: list[Tool]) -> dict[str, Any]:
    function: dict[str, Any] = made[0].schema()["function"]
    return function


def test_words_of_ones_own_replace_those_of_the_tool() -> None:
    made = shown(Paraphrase(texts={"travel": WORDINGS[0]})([travel]))
    described = {name: each.get("description") for name, each in made["parameters"]["properties"].items()}
    assert made["description"] == "Find a way."
    assert described == {
        "start": "The first place.",
        "goal": "Where it ends.",
        "stops": "How many.",
        "first_class": "In comfort.",
    }


def test_a_seed_draws_one_of_several_wordings() -> None:
    said = {
        shown(Paraphrase(seed, texts={"travel": WORDINGS})([travel]))["description"] for seed in range(20)
    }
    assert said == {"Find a way.", "Look up connections."}
    once = [shown(Paraphrase(5, texts={"travel": WORDINGS})([travel])) for _ in range(2)]
    assert once[0] == once[1]


def test_wordings_of_the_tool_itself_are_drawn_from() -> None:
    own = replace(travel, paraphrases=tuple(WORDINGS))
    assert shown(Paraphrase()([own]))["description"] in ("Find a way.", "Look up connections.")


def test_properties_change_their_order_and_nothing_else() -> None:
    orders = set()
    for seed in range(30):
        (made,) = Paraphrase(seed)([travel])
        assert made.parameters == travel.parameters
        orders.add(tuple(made.parameters["properties"]))
    assert len(orders) > 8


def test_calls_are_checked_as_ever() -> None:
    (made,) = Paraphrase(texts={"travel": WORDINGS[0]})([travel])
    assert made.validate({"start": "a", "goal": "b"}) == travel.validate({"start": "a", "goal": "b"})
    wrong = {"start": "a", "gaol": "b"}
    told = []
    for each in (travel, made):
        with pytest.raises(Exception, match="goal") as caught:
            each.validate(wrong)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_what_checks_calls_of_an_unsound_schema_goes_on_to() -> None:
    odd = replace(travel, accepts={"type": "object"})
    assert Paraphrase()([odd])[0].accepts == {"type": "object"}


def test_an_environment_shows_the_other_words_and_runs_the_same_tool() -> None:
    said = {"description": "Sum two numbers up."}
    env = sum_env(Paraphrase(texts={"add": said})(list(sum_env().toolbox.tools.values())))
    observation, _ = env.reset(seed=0)
    assert "Sum two numbers up." in observation
    *_, info = env.step(call("add", a=1, b=2))
    assert info["calls"][0]["result"] == "3"


def test_tools_that_are_not_named_stay_the_same_objects() -> None:
    assert Paraphrase(tools=[])([travel])[0] is travel


@pytest.mark.parametrize("name", ["search", "calculator", "python", "sql"])
def test_built_in_tools_have_other_words(name: str) -> None:
    entry = Catalog.open().tool(name)
    said = entry.data["paraphrases"]
    assert len({entry.data["description"], *(each["description"] for each in said)}) == len(said) + 1 >= 3
    assert all(set(each["parameters"]) == set(entry.data["parameters"]["properties"]) for each in said)


def test_a_built_in_tool_can_be_shown_in_other_words() -> None:
    (made,) = Paraphrase(1)([load_tool(Catalog.open().tool("calculator"))])
    assert made.description != load_tool(Catalog.open().tool("calculator")).description
    assert made.run(expression="1+1") == "2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "- {description: X.}\n  - {parameters: {cty: Y}}",
            r"weather.yaml:6:\d+: .*'cty'; did you mean 'city'",
        ),
        ("- {descripton: X.}", r"unknown key 'descripton'; did you mean 'description'"),
        ("- {}", r"key .paraphrases.0. must be an object with at least 1"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_place(tmp_path: Any, text: str, told: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "weather.yaml").write_text(
        f"name: weather\nrun: ./weather.py:weather\ndescription: Weather.\nparaphrases:\n  {text}\n"
    )
    (tmp_path / "tools" / "weather.py").write_text("def weather(city: str) -> str:\n    return city\n")
    with pytest.raises(CatalogError, match=told):
        check_tool(Catalog.open(tmp_path).tool("weather"))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"travle": WORDINGS}, "no tool named 'travle'; did you mean 'travel'"),
        (
            {"travel": {"parameters": {"strat": "x"}}},
            "no parameter named 'strat' in tool 'travel'; did you mean 'start'",
        ),
        ({"travel": {"describtion": "x"}}, "no key named 'describtion' in other words for a tool"),
        ({"travel": "x"}, "other words are a mapping of description and parameters, got 'x'"),
        ({"travel": {"description": 3}}, "a description must be text, got 3"),
        ({"travel": {"parameters": ["x"]}}, "parameters in other words are a mapping"),
        (["travel"], "texts must be a mapping from tools to other words"),
    ],
)
def test_words_that_cannot_be_are_told(texts: Any, told: str) -> None:
    with pytest.raises((ValueError, UnknownName)) as caught:
        Paraphrase(texts=texts)([travel])
    assert told in str(caught.value)
