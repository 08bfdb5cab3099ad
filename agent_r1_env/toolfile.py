"""A tool from its catalogue entry: the code that ``run`` names, checked against ``parameters``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_r1_env.entry import Entry
from agent_r1_env.errors import unknown_name
from agent_r1_env.parameters import check_parameters, unknown_keywords
from agent_r1_env.schematree import SchemaFault
from agent_r1_env.signature import SignatureFault, compare, describe, description_of, signature_of
from agent_r1_env.tool import Tool

OVERRIDES = ("config", "description", "timeout", "max_result_chars")
"""The keys of a tool's file that whoever loads it may set anew; ``config`` is merged key by key."""
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Plan:
    """Everything about a tool but the object that runs it."""

    target: Any
    config: dict[str, Any]
    description: str
    parameters: dict[str, Any]


def check_tool(entry: Entry) -> None:
    """Load the code of a tool and compare it with its file, without building anything.

    Raises:
        CatalogError: with the line that is to blame.
    """
    _plan(entry, {})


def load_tool(entry: Entry, tasks: Any = None, overrides: Mapping[str, Any] | None = None) -> Tool:
    """The tool that an entry declares. A class is built anew on each call.

    Args:
        tasks: the task set of the environment, for a class whose constructor takes ``tasks``.
        overrides: values in place of the file's, for the keys in ``OVERRIDES``.

    Raises:
        CatalogError: the code is missing, fails, or doesn't fit the file.
        UnknownName: no such override.
    """
    overrides = overrides or {}
    for key in overrides:
        if key not in OVERRIDES:
            raise unknown_name("override", key, OVERRIDES, f"tool {entry.name!r}")
    plan = _plan(entry, overrides)
    run = _build(entry, plan, tasks)
    close = getattr(run, "close", None) if isinstance(plan.target, type) else None
    limits = {key: overrides.get(key, entry.data[key]) for key in ("timeout", "max_result_chars")}
    return Tool(entry.name, plan.description, plan.parameters, run, close=close, **limits)


def _plan(entry: Entry, overrides: Mapping[str, Any]) -> _Plan:
    target = entry.target("run")
    made = target if isinstance(target, Tool) else None  # by @tool
    target = made.run if made else target
    if not callable(target):
        raise entry.error(
            f"{entry.get('run')} is of type {type(target).__name__}, no function or class", "run"
        )
    config = {**entry.get("config"), **overrides.get("config", {})}
    parameters = entry.get("parameters")
    if parameters is not None:
        _check_parameters(entry, parameters)
    try:
        parameters = _fitting(entry, target, config, parameters or (made.parameters if made else None))
    except SignatureFault as fault:
        raise entry.error(
            str(fault), "parameters" if entry.get("parameters") else "run", of_key=True
        ) from None
    text = overrides.get("description") or entry.get("description")
    text = text or (made.description if made else description_of(target))
    if not text:
        raise entry.error("key 'description' is missing; it tells a model when to use the tool")
    return _Plan(target, config, text, parameters)


def _fitting(
    entry: Entry, target: Any, config: Mapping[str, Any], parameters: dict[str, Any] | None
) -> dict[str, Any]:
    """The parameters, compared with the code or derived from it."""
    if not isinstance(target, type):
        entry.check_config(target, config, "config")
        if parameters is None:
            return describe(target, given=config)
        compare(target, parameters, given=config)
        return parameters
    entry.check_config(target, config, "config", filled=("tasks",))
    _check_complete(entry, target, config)
    call = next((base.__dict__["__call__"] for base in target.__mro__ if "__call__" in base.__dict__), None)
    if call is None:
        raise entry.error(f"class {target.__name__} has no __call__ method to run", "run")
    if parameters is None:
        return describe(call, method=True)
    compare(call, parameters, method=True)
    return parameters


def _check_parameters(entry: Entry, parameters: dict[str, Any]) -> None:
    for fault in unknown_keywords(parameters):
        raise entry.error(str(fault), "parameters", *fault.path, of_key=fault.path[-1] != "format")
    try:
        check_parameters(parameters)
    except SchemaFault as fault:
        raise entry.error(str(fault), "parameters", *fault.path) from None


def _check_complete(entry: Entry, target: type, config: Mapping[str, Any]) -> None:
    for name, parameter in signature_of(target).items():
        optional = parameter.default is not parameter.empty or parameter.kind in _REST
        if not optional and name not in config and name != "tasks":
            key = "config" if config else "run"
            raise entry.error(f"{target.__name__} needs {name!r} in config", key, of_key=bool(config))


def _build(entry: Entry, plan: _Plan, tasks: Any) -> Callable[..., Any]:
    if not isinstance(plan.target, type):
        run: Callable[..., Any] = (
            functools.partial(plan.target, **plan.config) if plan.config else plan.target
        )
        return run
    given = dict(plan.config)
    parameter = signature_of(plan.target).get("tasks")
    if parameter is not None and "tasks" not in given:
        if tasks is not None:
            given["tasks"] = tasks
        elif parameter.default is parameter.empty:
            raise entry.error(
                f"{plan.target.__name__} needs the tasks of an environment; none were given", "run"
            )
    try:
        built: Callable[..., Any] = plan.target(**given)
    except Exception as cause:
        reason = f"building {plan.target.__name__} failed: {type(cause).__name__}: {cause}"
        raise entry.error(reason, "run") from cause
    return built
