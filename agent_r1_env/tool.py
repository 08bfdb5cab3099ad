"""A tool: one action that a model can call by name, with arguments that a JSON Schema describes."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from agent_r1_env.arguments import ArgumentChecker
from agent_r1_env.parameters import check_parameters
from agent_r1_env.signature import describe, description_of

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, eq=False)
class Tool:
    """One action that a model can call.

    Raises on construction:
        ValueError: the name is not made of 1 to 64 letters, digits, ``_`` and ``-``; a limit is not
            positive; or ``parameters`` is not sound JSON Schema (then a ``SchemaFault`` with its path).

    Attributes:
        parameters: JSON Schema 2020-12 of the arguments, an object; shown to the model as it stands.
            An argument that it doesn't name is refused unless it says ``additionalProperties``.
        run: called with the arguments by name, possibly from several threads at once. What it returns
            is shown to the model as text. Raise ``ToolError`` to tell the model why a call failed.
            A coroutine function runs on an event loop of its own and must not block it.
        timeout: seconds that one call may take.
        max_chars: longer results are cut, with a notice.
        close: called once when the environment that owns the tool is closed.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]
    timeout: float = 30.0
    max_chars: int = 8000
    close: Callable[[], Any] | None = field(default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or NAME.fullmatch(self.name) is None:
            raise ValueError(f"a tool's name has 1 to 64 letters, digits, '_' and '-', got {self.name!r}")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise ValueError(f"the timeout of {self.name} must be positive and finite, got {self.timeout!r}")
        if self.max_chars <= 0:
            raise ValueError(f"max_chars of {self.name} must be positive, got {self.max_chars!r}")
        check_parameters(self.parameters)
        # A copy: what is checked stays what is shown, whatever the caller does with theirs.
        object.__setattr__(self, "parameters", copy.deepcopy(self.parameters))

    def schema(self) -> dict[str, Any]:
        """The tool as chat templates and OpenAI-compatible servers expect it; a copy, yours to change."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(self.parameters),
            },
        }

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the arguments with defaults filled in.

        Raises:
            ArgumentError: they do not fit ``parameters``; the text tells the model what to change.
        """
        return self._checker.check(arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function behind the tool directly: no validation, no timeout."""
        return self.run(*args, **kwargs)

    @functools.cached_property
    def _checker(self) -> ArgumentChecker:
        return ArgumentChecker(self.name, self.parameters)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    timeout: float = 30.0,
    max_chars: int = 8000,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    timeout: float = 30.0,
    max_chars: int = 8000,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, its schema from annotations, defaults and docstring.

    ::

        @tool(timeout=5)
        def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
            \"\"\"Weather of a city today.

            Args:
                city: City name, for example "Bergen".
            \"\"\"

    Raises:
        SignatureFault: an argument has no annotation, or one that JSON cannot express.
    """

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(
            name=name or function.__name__,
            description=description_of(function) if description is None else description,
            parameters=describe(function) if parameters is None else parameters,
            run=function,
            timeout=timeout,
            max_chars=max_chars,
        )

    return make if function is None else make(function)
