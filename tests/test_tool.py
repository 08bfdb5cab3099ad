from __future__ import annotations

import copy
import math
from typing import Any, Literal

import pytest

from agent_r1_env.errors import AgentR1Error, ArgumentError
from agent_r1_env.schematree import SchemaFault
from agent_r1_env.tool import Tool, tool

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def made(**changes: Any) -> Tool:
    settings = {
        "name": "weather",
        "description": "Weather.",
        "parameters": PARAMETERS,
        "run": lambda city: city,
    }
    return Tool(**{**settings, **changes})


def test_the_schema_shown_is_the_one_given() -> None:
    assert made().schema() == {
        "type": "function",
        "function": {"name": "weather", "description": "Weather.", "parameters": PARAMETERS},
    }


def test_changing_a_schema_given_or_shown_changes_no_tool() -> None:
    theirs = copy.deepcopy(PARAMETERS)
    weather = made(parameters=theirs)
    theirs["properties"].clear()
    weather.schema()["function"]["parameters"]["properties"].clear()
    assert weather.schema()["function"]["parameters"] == PARAMETERS
    assert weather.validate({"city": "Bergen"}) == {"city": "Bergen"}


def test_arguments_are_validated() -> None:
    with pytest.raises(ArgumentError, match="argument 'city' of weather must be a string"):
        made().validate({"city": 3})


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a.b", "a\n", None, 3])
def test_names_that_wire_formats_cannot_carry_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="1 to 64 letters"):
        made(name=name)


@pytest.mark.parametrize(
    "limits",
    [{"timeout": 0}, {"timeout": math.inf}, {"timeout": math.nan}, {"timeout": -1}, {"max_result_chars": 0}],
)
def test_limits_that_limit_nothing_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        made(**limits)


def test_an_unsound_schema_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(SchemaFault, match="unknown type 'strng'") as caught:
        made(parameters={"type": "object", "properties": {"city": {"type": "strng"}}})
    assert caught.value.path == ("properties", "city", "type")
    assert isinstance(caught.value, AgentR1Error)


def test_the_decorator_makes_a_tool_that_is_still_a_function() -> None:
    @tool
    def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        """Weather of a city today."""
        return f"{city}: 7 {unit}"

    assert isinstance(weather, Tool)
    assert (weather.name, weather.description) == ("weather", "Weather of a city today.")
    assert weather.parameters["required"] == ["city"]
    assert weather.validate({"city": "Bergen"}) == {"city": "Bergen", "unit": "C"}
    assert weather("Bergen", unit="F") == "Bergen: 7 F"


def test_the_decorator_takes_what_a_signature_cannot_say() -> None:
    @tool(name="sky", description="The sky.", parameters=PARAMETERS, timeout=5, max_result_chars=10)
    def weather(city):  # type: ignore[no-untyped-def]
        return city

    assert (weather.name, weather.description, weather.timeout, weather.max_result_chars) == (
        "sky",
        "The sky.",
        5,
        10,
    )
    assert weather.parameters == PARAMETERS


def test_a_schema_of_somebody_else_is_shown_as_it_is_and_checked_as_accepted() -> None:
    unsound = {**PARAMETERS, "properties": {"city": {"type": "string", "default": None}}}
    with pytest.raises(SchemaFault):
        made(parameters=unsound)
    weather = made(parameters=unsound, accepts=PARAMETERS)
    assert weather.schema()["function"]["parameters"] == unsound
    with pytest.raises(ArgumentError):
        weather.validate({})
