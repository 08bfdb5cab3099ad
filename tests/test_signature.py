from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest

from agent_r1_env import Hidden, Toolbox, ToolCall, tool
from agent_r1_env.signature import SignatureFault, compare, describe, description_of, hidden_of


def search(query: str, top_k: int = 3, lang: str | None = None) -> str:
    """Search for paragraphs,
    best first.

    Longer text about it.

    Args:
        query: what to look for,
            at length: all of it.
        top_k (int): how many.

    Returns:
        lang: not an argument.
    """
    return query * top_k + str(lang)


def test_signature_and_docstring_make_the_schema() -> None:
    assert description_of(search) == "Search for paragraphs, best first. Longer text about it."
    assert describe(search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for, at length: all of it."},
            "top_k": {"type": "integer", "description": "how many.", "default": 3},
            "lang": {"type": ["string", "null"], "default": None},
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (
            list[dict[str, int]],
            {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}},
        ),
        (dict, {"type": "object"}),
        (Mapping[str, Any], {"type": "object"}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old spelling is what is tested
        (int | list[int], {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
        (Literal["bm25", "dense"], {"type": "string", "enum": ["bm25", "dense"]}),
        (Literal[1, None], {"enum": [1, None]}),
        (Annotated[str, "a city"], {"type": "string", "description": "a city"}),
        (Annotated[Literal[1, 2], "which", 3], {"type": "integer", "enum": [1, 2], "description": "which"}),
    ],
)
def test_annotations_become_schemas(annotation: Any, schema: dict[str, Any]) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    assert describe(function)["properties"]["x"] == schema


def test_a_default_of_none_makes_an_argument_nullable() -> None:
    def function(x: str = None, y: Literal["a"] = None) -> None: ...  # type: ignore[assignment]

    properties = describe(function)["properties"]
    assert properties["x"] == {"type": ["string", "null"], "default": None}
    assert properties["y"] == {"type": ["string", "null"], "enum": ["a", None], "default": None}


def test_what_json_cannot_express_is_refused_by_name() -> None:
    def no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]
    def a_class(x: pytest.Item) -> None: ...
    def odd_keys(x: dict[int, str]) -> None: ...
    def by_position(x: int, /) -> None: ...
    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function, reason in (
        (no_annotation, "argument 'x' of .*no_annotation has no annotation"),
        (a_class, "argument 'x' of .*a_class: no JSON Schema for .*Item"),
        (odd_keys, "the keys of an object are strings"),
        (by_position, "takes 'x' by position only"),
        (unknown, "cannot be read: name 'Nowhere'"),
    ):
        with pytest.raises(SignatureFault, match=reason):
            describe(function)


def test_arguments_that_no_call_can_fill_are_refused() -> None:
    def rest(city: str, *more: str) -> None: ...
    def anything(city: str, **more) -> None: ...  # type: ignore[no-untyped-def]
    def draw(n: int, rng) -> None: ...  # type: ignore[no-untyped-def]
    def other(n: int, task: pytest.Item) -> None: ...

    for function, reason in (
        (rest, r"rest takes \*more, but a call gives arguments by name; take a list instead"),
        (anything, r"argument '\*\*more' of .*anything has no annotation"),
        (draw, r"'rng' .* no annotation; if the environment fills it in, write rng: Hidden\[\.\.\.\]"),
        (other, r"'task' .*Item.*; if the environment fills it in, write task: Hidden"),
    ):
        with pytest.raises(SignatureFault, match=reason):
            describe(function)


def test_keywords_without_names_are_open_to_the_model() -> None:
    def function(city: str, **filters: int) -> None: ...

    assert describe(function)["additionalProperties"] == {"type": "integer"}


def test_hidden_arguments_are_not_described() -> None:
    def draw(n: int, rng: Hidden[Any], state: Hidden[dict[str, Any]]) -> None: ...
    def wrong(key: Hidden[str]) -> None: ...

    assert list(describe(draw)["properties"]) == ["n"]
    assert hidden_of(draw) == ("rng", "state")
    with pytest.raises(
        SignatureFault, match="'key' .* is hidden, but an environment only knows state, task, rng"
    ):
        hidden_of(wrong)


def test_what_the_docstring_says_gives_way_to_the_annotation_alone() -> None:
    @dataclass
    class Place:
        """A class."""

        city: str

    def function(a: Any, b: Any) -> None:
        """Do.

        Args:
            a: said here.
            b: said here.
        """

    function.__annotations__ |= {"a": Place, "b": Annotated[Place, "said there"]}
    Place.__annotations__["city"] = str
    properties = describe(function)["properties"]
    assert properties["a"]["description"] == "said here."
    assert properties["b"]["description"] == "said there"


def test_an_optional_argument_may_stand_before_a_required_one() -> None:
    parameters = schema(["text"], max_len={"type": "integer"}, text={"type": "string"})

    def function(text: str, max_len: int | None = None) -> str:
        return f"{text} {max_len}"

    compare(function, parameters)
    made = tool(parameters=parameters, name="f", description="d")(function)
    assert list(made.schema()["function"]["parameters"]["properties"]) == ["max_len", "text"]
    assert Toolbox([made]).run([ToolCall("f", {"text": "a"}, "1")])[0].content == "a None"


def test_names_that_somebody_else_fills_in_are_hidden() -> None:
    assert list(describe(search, given=("top_k", "lang"))["properties"]) == ["query"]


class Callable_:
    def __call__(self, city: str) -> str:
        """Weather."""
        return city


def test_methods_and_callable_objects_are_described_without_self() -> None:
    expected = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert describe(Callable_()) == expected
    assert describe(Callable_.__call__, method=True) == expected


def schema(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize(
    ("parameters", "given", "reason"),
    [
        (
            schema(["query"], query={}, top_k={}, colour={}),
            (),
            "search takes no argument 'colour', .* it takes 'query'",
        ),
        (schema(query={}), (), "needs the argument 'query', which parameters doesn't require"),
        (schema(), (), "needs the argument 'query', which parameters doesn't declare"),
        (schema(["query"], query={}, lang={}), ("lang",), "'lang' stands in config and in parameters"),
        (
            schema(["query"], query={"type": "integer"}),
            (),
            "parameters lets an integer through for 'query', which search annotates as a string",
        ),
        (
            schema(["query"], query={}, top_k={"type": ["integer", "null"]}),
            (),
            "lets null through for 'top_k', which search annotates as an integer",
        ),
    ],
)
def test_a_function_that_does_not_fit_its_parameters_is_refused(
    parameters: dict[str, Any], given: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(SignatureFault, match=reason):
        compare(search, parameters, given=given)


def test_functions_that_fit_pass() -> None:
    def anything(**arguments: Any) -> None: ...

    compare(search, schema(["query"], query={}))
    compare(search, schema(query={"default": "x"}, top_k={}))
    compare(search, schema(top_k={}), given=("query",))
    compare(search, schema(["query"], query={"enum": ["a"]}, lang={"type": ["string", "null"]}))
    compare(anything, schema(a={}, b={}), given=("c",))
    compare(Callable_.__call__, schema(["city"], city={}), method=True)
    compare(max, schema(a={}))  # a builtin that hides its signature


def test_parameters_given_to_the_decorator_are_compared_too() -> None:
    with pytest.raises(SignatureFault, match="lets a number through for 'query', which search annotates"):
        tool(parameters=schema(["query"], query={"type": "number"}))(search)
