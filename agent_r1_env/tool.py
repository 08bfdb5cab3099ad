"""A tool: one action that a model can call by name, with arguments that a JSON Schema describes."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack, overload

from agent_r1_env.arguments import ArgumentChecker
from agent_r1_env.errors import ArgumentError
from agent_r1_env.limits import Caching, Gate, Rate, Retries, gate
from agent_r1_env.messages import ToolResult
from agent_r1_env.parameters import check_parameters
from agent_r1_env.signature import compare, converters_of, describe, description_of, hidden_of
from agent_r1_env.workers import is_coroutine_function

PATIENCE = 30.0
"""Seconds that a call may take, unless its tool says otherwise."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Reward = float | Mapping[str, float] | Callable[[ToolResult], float]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool may return in place of a bare value, to say more than the text.

    Attributes:
        content: what the model reads, as text or data.
        reward: what this call is worth, besides what the tool's ``reward`` says.
        answer: the final answer; it ends the episode.
        done: the task is over, won or lost, without an answer; it ends the episode, too.
        simulated: what about it is simulated, such as a kind of fault; for the records, never the model.
    """

    content: Any
    reward: float = 0.0
    answer: str | None = None
    done: bool = False
    simulated: str | None = None


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
            is shown to the model as text; see ``ToolOutput``. Raise ``ToolError`` to tell the model why a
            call failed, ``TransientError`` if it may go better the next time.
            A coroutine function runs on an event loop of its own and must not block it.
        timeout: seconds that one attempt at a call may take.
        inline: ``run`` only computes a little and always returns at once, so it is called on the thread that
            steps, which saves waking another. Then nothing can end it: an inline tool that hangs, hangs its
            environment, and every episode of the same event loop.
        max_result_chars: longer results are cut, with a notice.
        max_result_tokens: the same in tokens, where the environment has a tokenizer.
        close: called once when the environment that owns the tool is closed.
        retries: what happens after a ``TransientError``.
        concurrency: calls that may run at the same time in the whole process; None: any number.
        rate_limit: calls that may begin in a time, in the whole process.
        cache: keep results, by arguments and ``version``; for tools that always answer alike.
        reward: what a call is worth: a number for each that went well, a mapping from "ok" and failure kinds
            to numbers, or a function of the ``ToolResult``.
        hidden: arguments of ``run`` that the environment fills in: "state", "task", "rng".
        secrets: arguments of ``run`` that are filled in and never shown or recorded.
        converters: by argument, what makes the value that ``run`` expects of what JSON carries, such as a
            dataclass of an object; only where they differ.
        begin: called at the first call of each episode, in its time; what it returns, a function or a
            coroutine function as ``run`` is, takes the place of ``run``, and is closed by its own ``close``
            at the end.
        version: of the tool's behaviour; part of the key of cached and recorded results.
        owner: what identifies the tool in this process. Tools of the same owner share limits and cache.
        accepts: what calls are checked with in place of ``parameters``, where these are somebody else's and
            unsound; what the model reads stays as it is.
        veiled: texts that no result shows, such as keys of a service; ``secrets`` are among them anyway.
        paraphrases: other words for ``description`` and the descriptions of parameters, see `paraphrase`.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]
    timeout: float = PATIENCE
    max_result_chars: int = 8000
    max_result_tokens: int | None = None
    close: Callable[[], Any] | None = field(default=None)
    retries: Retries = Retries()
    concurrency: int | None = None
    rate_limit: Rate | None = None
    cache: Caching | None = None
    reward: Reward | None = None
    hidden: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    converters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, repr=False)
    begin: Callable[[], Callable[..., Any]] | None = None
    version: str = ""
    owner: str | None = None
    accepts: dict[str, Any] | None = None
    veiled: tuple[str, ...] = field(default=(), repr=False)
    paraphrases: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    inline: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or NAME.fullmatch(self.name) is None:
            raise ValueError(f"a tool's name has 1 to 64 letters, digits, '_' and '-', got {self.name!r}")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise ValueError(f"the timeout of {self.name} must be positive and finite, got {self.timeout!r}")
        for limit in ("max_result_chars", "max_result_tokens", "concurrency"):
            value = getattr(self, limit)
            if value is not None and value <= 0:
                raise ValueError(f"{limit} of {self.name} must be positive, got {value!r}")
        if self.cache is not None and self.hidden:
            raise ValueError(
                f"{self.name} takes {self.hidden[0]!r}, so its results cannot be cached by arguments"
            )
        if self.inline:
            self._check_inline()
        check_parameters(self._accepted)
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

    def converted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the valid ``arguments`` that ``run`` takes in another form than JSON has, in that form.

        Raises:
            ArgumentError: a class refuses what its schema lets through; the text tells the model why.
        """
        values = {}
        for name, convert in self.converters.items():
            if name in arguments:
                try:
                    values[name] = convert(arguments[name])
                except Exception as misfit:  # the user's classes may refuse in any way
                    reason = " ".join(str(misfit).split()) or type(misfit).__name__
                    raise ArgumentError(f"argument {name!r} of {self.name}: {reason}") from misfit
        return values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function behind the tool directly: no validation, no timeout, nothing filled in."""
        return self.run(*args, **kwargs)

    @functools.cached_property
    def limits(self) -> Gate | None:
        """What every call has to pass, shared by all tools of this owner; None if there is nothing."""
        if (
            self.concurrency is None
            and self.rate_limit is None
            and self.cache is None
            and not self.retries.times
        ):
            return None
        return gate(self.owner, concurrency=self.concurrency, rate=self.rate_limit, caching=self.cache)

    @functools.cached_property
    def awaited(self) -> bool:
        """Whether ``run`` is a coroutine function."""
        return is_coroutine_function(self.run)

    @functools.cached_property
    def _checker(self) -> ArgumentChecker:
        return ArgumentChecker(self.name, self._accepted)

    def _check_inline(self) -> None:
        if self.awaited:
            raise ValueError(
                f"{self.name} is a coroutine function, which runs on a loop of its own; take inline out"
            )
        asked = {
            "timeout": self.timeout != PATIENCE,
            "retries": self.retries.times,
            "rate_limit": self.rate_limit,
            "concurrency": self.concurrency,
            "cache": self.cache,
        }
        for key, given in asked.items():
            if given:
                raise ValueError(
                    f"{self.name} is inline, so nobody waits for it and {key} cannot be kept; "
                    f"take out inline or {key}"
                )

    @property
    def _accepted(self) -> dict[str, Any]:
        return self.parameters if self.accepts is None else self.accepts


class ToolOptions(TypedDict, total=False):
    """The attributes of ``Tool`` that ``@tool`` takes; see there."""

    timeout: float
    max_result_chars: int
    max_result_tokens: int | None
    close: Callable[[], Any] | None
    retries: Retries
    concurrency: int | None
    rate_limit: Rate | None
    cache: Caching | None
    reward: Reward | None
    secrets: Mapping[str, str]
    version: str
    inline: bool


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, its schema from annotations, defaults and docstring.

    ::

        @tool(timeout=5)
        def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
            \"\"\"Weather of a city today.

            Args:
                city: City name, for example "Bergen".
            \"\"\"

    Args:
        options: other attributes of ``Tool``.

    Raises:
        SignatureFault: an argument has no annotation, or one that JSON cannot express; or the function
            doesn't fit the given ``parameters``.
        ValueError: an option is wrong, see ``Tool``; or it is inline and has a time-out.
    """
    if options.get("inline") and "timeout" in options:
        raise ValueError("an inline tool has no timeout: nobody waits for it; take out inline or timeout")

    def make(function: Callable[..., Any]) -> Tool:
        given, hidden = options.get("secrets", ()), hidden_of(function, parameters)
        if parameters is not None:
            compare(function, parameters, given=[*given, *hidden])
        return Tool(
            name=name or function.__name__,
            description=description_of(function) if description is None else description,
            parameters=describe(function, given=given) if parameters is None else parameters,
            run=function,
            converters=converters_of(function, given=given),
            hidden=hidden,
            **options,
        )

    return make if function is None else make(function)
