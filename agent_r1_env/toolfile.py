"""A tool from its catalogue entry: the code that ``run`` names, checked against ``parameters``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_r1_env.entry import Entry
from agent_r1_env.errors import hint, unknown_name
from agent_r1_env.parameters import SchemaFault, check_parameters, unknown_keywords
from agent_r1_env.signature import SignatureFault, compare, describe, description_of
from agent_r1_env.tool import Tool

OVERRIDES = ("config", "description", "timeout", "max_chars")
"""The keys of a tool's file that whoever loads it may set anew; ``config`` is merged key by key."""


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
    limits = {key: overrides.get(key, entry.data[key]) for key in ("timeout", "max_chars")}
    return Tool(entry.name, plan.description, plan.parameters, run, close=close, **limits)


def _plan(entry: Entry, overrides: Mapping[str, Any]) -> _Plan:
    target = entry.target("run")
    if not callable(target):
        raise entry.error(f"{entry.get('run')} is {type(target).__name__}, not a function or class", "run")
    config = {**(entry.get("config") or {}), **overrides.get("config", {})}
    is_class = isinstance(target, type)
    if is_class and "__call__" not in dir(target):
        raise entry.error(f"class {target.__name__} has no __call__ method to run", "run")
    function = target.__call__ if is_class else target
    try:
        if is_class:
            _check_config(entry, target, config)
        parameters = entry.get("parameters")
        if parameters is None:
            parameters = describe(function, method=is_class, given=() if is_class else config)
        else:
            _check_parameters(entry, parameters)
            compare(function, parameters, given=() if is_class else config, method=is_class)
    except SignatureFault as fault:
        raise entry.error(
            str(fault), "parameters" if entry.get("parameters") else "run", of_key=True
        ) from None
    text = overrides.get("description", entry.get("description")) or description_of(target)
    if not text:
        raise entry.error(
            "key 'description' is missing: one sentence that tells a model when to use the tool"
        )
    return _Plan(target, config, text, parameters)


def _check_parameters(entry: Entry, parameters: dict[str, Any]) -> None:
    for fault in unknown_keywords(parameters):
        raise entry.error(str(fault), "parameters", *fault.path, of_key=fault.path[-1] != "format")
    try:
        check_parameters(parameters)
    except SchemaFault as fault:
        raise entry.error(str(fault), "parameters", *fault.path) from None


def _check_config(entry: Entry, target: type, config: Mapping[str, Any]) -> None:
    """Make sure that the constructor takes every key of ``config`` and needs no other."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in config:
        if key not in parameters and not takes_any:
            known = [name for name in parameters if name != "tasks"]
            reason = f"{target.__name__} takes no {key!r} in config{hint(key, known)}"
            raise entry.error(reason, "config", key, of_key=True)
    for name, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if needed and name not in config and name != "tasks":
            raise entry.error(f"{target.__name__} needs {name!r} in config", "config", of_key=True)


def _build(entry: Entry, plan: _Plan, tasks: Any) -> Callable[..., Any]:
    if not isinstance(plan.target, type):
        run: Callable[..., Any] = (
            functools.partial(plan.target, **plan.config) if plan.config else plan.target
        )
        return run
    given = dict(plan.config)
    parameter = inspect.signature(plan.target).parameters.get("tasks")
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
