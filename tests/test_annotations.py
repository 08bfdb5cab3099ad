"""Annotations as JSON Schema, and JSON made into what they promise. Their text is evaluated by module."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Required, TypedDict
from uuid import UUID

import pytest

from agent_r1_env import Tool, Toolbox, ToolCall, tool
from agent_r1_env.annotations import AnnotationFault, Reader, with_default
from agent_r1_env.messages import ToolResult

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


@dataclass
class Range:
    """From one number to another.

    Attributes:
        low: where it begins.
    """

    low: int
    high: int = 9
    tags: list[str] = field(default_factory=list, metadata={"description": "words"})
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        self.width = self.high - self.low


@dataclass
class Started:
    seed: InitVar[int]
    colour: Colour = Colour.RED


class Point(NamedTuple):
    x: float
    y: float = 0.0


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)
    other: Node | None = None


class Filter(TypedDict, total=False):
    lang: Required[str]
    since: date


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Linked(TypedDict):
    next: NotRequired[Linked]


UserId = NewType("UserId", int)


def read(annotation: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    reader = Reader()
    return reader.read(annotation).schema, reader.definitions


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Colour, {**STRING, "enum": ["red", "blue"]}),
        (Level, {**INTEGER, "enum": [1, 2]}),
        (Literal[Colour.RED], {**STRING, "enum": ["red"]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Literal[True, 1], {"enum": [True, 1]}),
        (date, {**STRING, "format": "date"}),
        (datetime, {**STRING, "format": "date-time"}),
        (time, {**STRING, "format": "time"}),
        (UUID, {**STRING, "format": "uuid"}),
        (Path, STRING),
        (Decimal, {"type": "number"}),
        (bytes, {**STRING, "contentEncoding": "base64"}),
        (UserId, INTEGER),
        (tuple, {"type": "array"}),
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [INTEGER, STRING]}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (set[str], {"type": "array", "uniqueItems": True, "items": STRING}),
        (frozenset, {"type": "array", "uniqueItems": True}),
        (Sequence[Any], {"type": "array"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (dict[Literal["a"], Any], {"type": "object", "propertyNames": {**STRING, "enum": ["a"]}}),
        (int | str | None, {"type": ["integer", "string", "null"]}),
        (int | Any, {}),
        (date | None, {"anyOf": [{**STRING, "format": "date"}, {"type": "null"}]}),
        (
            Filter,
            {
                "type": "object",
                "properties": {"lang": STRING, "since": {**STRING, "format": "date"}},
                "required": ["lang"],
                "additionalProperties": False,
            },
        ),
        (
            Row,
            {
                "type": "object",
                "properties": {"id": INTEGER, "note": STRING},
                "required": ["id"],
                "additionalProperties": False,
            },
        ),
        (
            Range,
            {
                "type": "object",
                "description": "From one number to another.",
                "properties": {
                    "low": {**INTEGER, "description": "where it begins."},
                    "high": {**INTEGER, "default": 9},
                    "tags": {"type": "array", "items": STRING, "default": [], "description": "words"},
                },
                "required": ["low"],
                "additionalProperties": False,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_an_annotation_becomes_a_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert read(annotation) == (schema, {})


def test_what_contains_itself_stands_under_defs() -> None:
    node = {"$ref": "#/$defs/Node"}
    schema, definitions = read(list[Node])
    assert schema == {"type": "array", "items": node}
    assert definitions["Node"]["properties"] == {
        "name": STRING,
        "children": {"type": "array", "items": node, "default": []},
        "other": {"anyOf": [node, {"type": "null"}], "default": None},
    }
    assert read(Linked)[0] == {"$ref": "#/$defs/Linked"}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (timedelta, "no JSON Schema for .*timedelta"),
        (complex, "declare parameters yourself"),
        (dict[int, str], "the keys of an object are strings"),
        (set[dict], r"a set cannot hold .*; write list"),
        (Odd, r"\(1, 2\) is not a value that JSON knows"),
        (list[complex], "no JSON Schema"),
    ],
)
def test_what_json_cannot_carry_is_told(annotation: Any, reason: str) -> None:
    with pytest.raises(AnnotationFault, match=reason):
        read(annotation)


def test_the_field_that_cannot_be_carried_is_named() -> None:
    @dataclass
    class Bad:
        wave: complex

    Bad.__annotations__["wave"] = complex
    with pytest.raises(AnnotationFault, match="Bad.wave: no JSON Schema"):
        read(Bad)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (Colour, Colour.BLUE, "blue"),
        (date, date(2024, 2, 29), "2024-02-29"),
        (Path, Path("a/b"), "a/b"),
        (UUID, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal, Decimal("1.5"), 1.5),
        (Decimal, Decimal(2), 2),
        (bytes, b"hi", "aGk="),
        (set[str], {"b", "a"}, ["a", "b"]),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (Range, Range(1, 2), {"low": 1, "high": 2, "tags": []}),
        (Point, Point(1.0), {"x": 1.0, "y": 0.0}),
        (list[Colour], [Colour.RED], ["red"]),
        (dict[str, Any], {"a": (1,)}, {"a": [1]}),
    ],
)
def test_a_default_is_shown_as_json_says_it(annotation: Any, default: Any, shown: Any) -> None:
    reading = with_default(Reader().read(annotation), default)
    assert reading.schema["default"] == shown
    if reading.convert is not None:
        assert reading.convert(shown) == default


def test_a_default_that_json_cannot_say_is_left_to_the_function() -> None:
    assert with_default(Reader().read(dict), object()).schema == {"type": "object"}


@pytest.mark.parametrize("annotation", [Colour, Range, int | date, Literal["a", 1], Node, Any])
def test_a_default_of_none_lets_null_through(annotation: Any) -> None:
    def function(x: Any = None) -> Any:
        return [x]

    function.__annotations__["x"] = annotation
    made = tool(name="function", description="d")(function)
    for arguments in ({}, {"x": None}):
        assert run(made, **arguments).content == "[null]"


def run(made: Tool, **arguments: Any) -> ToolResult:
    return Toolbox([made]).run([ToolCall(made.name, arguments, "1")])[0]


def taking(annotation: Any, seen: list[Any]) -> Tool:
    def function(x: Any) -> str:
        seen.append(x)
        return "ok"

    function.__annotations__["x"] = annotation
    return tool(name="function", description="d")(function)


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (Colour, "blue", Colour.BLUE),
        (Level, 2, Level.HIGH),
        (Literal[Colour.RED, "x"], "red", Colour.RED),
        (int, 3.0, 3),
        (list[int], [1.0], [1]),
        (date, "2024-02-29", date(2024, 2, 29)),
        (datetime, "2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (time, "12:00:00Z", time(12, tzinfo=UTC)),
        (UUID, str(UUID(int=7)), UUID(int=7)),
        (Path, "a", Path("a")),
        (Decimal, 0.1, Decimal("0.1")),
        (bytes, "aGk=", b"hi"),
        (tuple[int, Colour], [1, "red"], (1, Colour.RED)),
        (tuple[str, ...], ["a"], ("a",)),
        (set[Colour], ["red"], {Colour.RED}),
        (frozenset[str], ["a"], frozenset("a")),
        (dict[str, date], {"a": "2024-01-01"}, {"a": date(2024, 1, 1)}),
        (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
        (Range, {"low": 1}, Range(1)),
        (list[Range], [{"low": 1, "tags": ["a"]}], [Range(1, tags=["a"])]),
        (Range | None, {"low": 1}, Range(1)),
        (Range | Point, {"x": 1}, Point(1)),
        (Range | date | str, "2024-01-01", date(2024, 1, 1)),
        (Range | date | str, "soon", "soon"),
        (Point, {"x": 1, "y": 2}, Point(1, 2)),
        (Filter, {"lang": "no", "since": "2024-01-01"}, {"lang": "no", "since": date(2024, 1, 1)}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
        (Linked, {"next": {"next": {}}}, {"next": {"next": {}}}),
        (Annotated[Range, "which"], {"low": 2}, Range(2)),
        (UserId, 4.0, 4),
    ],
)
def test_the_function_gets_what_it_is_annotated_with(annotation: Any, given: Any, value: Any) -> None:
    seen: list[Any] = []
    result = run(taking(annotation, seen), x=given)
    assert result.ok, result.content
    assert seen == [value] and type(seen[0]) is type(value)


def test_the_record_of_a_call_is_json() -> None:
    result = run(taking(Range, []), x={"low": 1})
    assert result.arguments == {"x": {"low": 1, "high": 9, "tags": []}}


@pytest.mark.parametrize(
    ("annotation", "given", "told"),
    [
        (Range, {"low": 9, "high": 1}, "argument 'x' of function: low must not be above high"),
        (
            Range,
            {"low": 1, "hight": 1},
            "argument 'x' of function takes no key 'hight'; did you mean 'high'?",
        ),
        (Range, {}, "argument 'x' of function needs the key 'low' (an integer), which is missing"),
        (bytes, "!", "argument 'x' of function: Only base64 data is allowed"),
        (date, "2024-02-30", "text in the format 'date'"),
        (Colour, "green", "must be one of 'red', 'blue'"),
        (tuple[int, str], [1], "must be a list of at least 2 items"),
        (set[str], ["a", "a"], "must be a list without repeated items"),
        (Node, {"name": "a", "children": [{}]}, "argument 'x.children[0]' of function needs the key 'name'"),
    ],
)
def test_what_does_not_fit_is_told_to_the_model(annotation: Any, given: Any, told: str) -> None:
    seen: list[Any] = []
    result = run(taking(annotation, seen), x=given)
    assert result.error == "invalid_arguments" and told in result.content
    assert not seen


def test_an_argument_of_the_constructor_alone_is_part_of_the_schema() -> None:
    assert read(Started)[0]["properties"] == {
        "seed": INTEGER,
        "colour": {**STRING, "enum": ["red", "blue"], "default": "red"},
    }
    assert Reader().read(Started).convert is not None


def test_limits_of_annotated_types_are_kept() -> None:
    at = pytest.importorskip("annotated_types")
    assert read(Annotated[int, at.Ge(1), at.Lt(5)])[0] == {**INTEGER, "minimum": 1, "exclusiveMaximum": 5}
    assert read(Annotated[str, at.Len(2, 3)])[0] == {**STRING, "minLength": 2, "maxLength": 3}
    assert read(Annotated[list[int], at.MinLen(1)])[0] == {"type": "array", "items": INTEGER, "minItems": 1}
    with pytest.raises(AnnotationFault, match="limits the length of what has none"):
        read(Annotated[int, at.MaxLen(1)])


def test_a_pydantic_model_is_described_and_given_as_an_instance() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        name: str = pydantic.Field(description="what it is", min_length=1)
        when: date | None = None

    class Order(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        model_config = pydantic.ConfigDict(strict=True)
        items: list[Item] = []

        @pydantic.field_validator("items")
        @classmethod
        def few(cls, items: list[Any]) -> list[Any]:
            if len(items) > 1:
                raise ValueError("one at a time")
            return items

    Order.model_rebuild(_types_namespace={"Item": Item, "date": date})
    seen: list[Any] = []
    made = taking(Order, seen)
    assert made.parameters["properties"]["x"]["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert made.parameters["$defs"]["Item"]["properties"]["name"] == {
        **STRING,
        "description": "what it is",
        "minLength": 1,
    }
    assert run(made, x={"items": [{"name": "a", "when": "2024-01-01"}]}).ok
    assert seen == [Order(items=[Item(name="a", when=date(2024, 1, 1))])]
    refused = run(made, x={"items": [{"name": "a"}, {"name": "b"}]})
    assert refused.error == "invalid_arguments"
    assert refused.content == "error: argument 'x' of function: items: Value error, one at a time"
    field_ = Annotated[int, pydantic.Field(ge=1, description="how many")]
    assert read(field_)[0] == {**INTEGER, "minimum": 1, "description": "how many"}
