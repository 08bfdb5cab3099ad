"""A tool from its catalogue entry: the code that ``run`` names, checked against ``parameters``."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent_r1_env import workers
from agent_r1_env.entry import Entry
from agent_r1_env.errors import unknown_name
from agent_r1_env.parameters import check_parameters, unknown_keywords
from agent_r1_env.schematree import SchemaFault
from agent_r1_env.signature import (
    SignatureFault,
    compare,
    describe,
    description_of,
    hidden_of,
    signature_of,
)
from agent_r1_env.tool import Tool
from agent_r1_env.toollimits import filled_secrets, limits_of, secrets_of

OVERRIDES = ("config", "description", "timeout", "max_result_chars", "max_result_tokens", "retries", "cache")
"""The keys of a tool's file that whoever loads it may set anew; ``config`` is merged key by key."""
BACKENDS = {"http": "agent_r1_env.http_tool", "process": "agent_r1_env.process_tool"}
"""The module that makes what runs a tool, by the key of the file that declares it."""
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Plan:
    """Everything about a tool but the object that runs it."""

    target: Any
    config: dict[str, Any]
    description: str
    parameters: dict[str, Any]
    hidden: tuple[str, ...] = ()


def check_tool(entry: Entry) -> None:
    """Load the code of a tool and compare it with its file, without building, starting or asking anything.

    Raises:
        CatalogError: with the line that is to blame.
    """
    limits_of(entry, {})
    if "mcp" in entry.data:
        importlib.import_module("agent_r1_env.mcp_tool").check(entry)
    elif backend := _backend(entry):
        _declared(entry, {})
        backend.check(entry)
    else:
        _plan(entry, {})


def load_tools(entry: Entry, tasks: Any = None, overrides: Mapping[str, Any] | None = None) -> list[Tool]:
    """The tools that an entry declares: one, or those of a server. A class is built anew on each call.

    Args:
        tasks: the task set of the environment, for a class whose constructor takes ``tasks``.
        overrides: values in place of the file's, for the keys in ``OVERRIDES``.

    Raises:
        CatalogError: the code is missing, fails, or doesn't fit the file; or a server does not answer.
        UnknownName: no such override.
    """
    overrides = overrides or {}
    for key in overrides:
        if key not in OVERRIDES:
            raise unknown_name("override", key, OVERRIDES, f"tool {entry.name!r}")
    if "mcp" in entry.data:
        server = importlib.import_module("agent_r1_env.mcp_tool")
        tools: list[Tool] = server.load(_with_config(entry, overrides), limits_of(entry, overrides))
        return tools
    return [_load(entry, tasks, overrides)]


def load_tool(entry: Entry, tasks: Any = None, overrides: Mapping[str, Any] | None = None) -> Tool:
    """The one tool that an entry declares; see ``load_tools``."""
    tools = load_tools(entry, tasks, overrides)
    if len(tools) != 1:
        for tool in tools:
            if tool.close is not None:
                tool.close()
        raise entry.error(f"declares {len(tools)} tools, where one was asked for", "mcp", of_key=True)
    return tools[0]


def _load(entry: Entry, tasks: Any, overrides: Mapping[str, Any]) -> Tool:
    limits = limits_of(entry, overrides)
    made: dict[str, Any]
    if backend := _backend(entry):
        entry = _with_config(entry, overrides)
        description, parameters = _declared(entry, overrides)
        run = backend.load(entry)
        made = {"run": run, "close": getattr(run, "close", None)}
        made |= {"description": description, "parameters": parameters}
        config = entry.get("config")
    else:
        plan = _plan(entry, overrides)
        made = {"description": plan.description, "parameters": plan.parameters, "hidden": plan.hidden}
        made |= _runner(entry, plan, tasks) | {"secrets": filled_secrets(entry)}
        config = plan.config
    owner = json.dumps([str(entry.path), entry.name, config], sort_keys=True, default=str)
    return Tool(entry.name, **made, **limits, version=str(entry.get("version")), owner=owner)


def _with_config(entry: Entry, overrides: Mapping[str, Any]) -> Entry:
    """The entry with the values of ``config`` that whoever loads it has set anew."""
    if not (config := overrides.get("config")):
        return entry
    return entry.changed({**entry.data, "config": {**entry.data["config"], **config}})


def _backend(entry: Entry) -> Any:
    """The module that makes what runs the tool, or None for Python code."""
    return next(
        (importlib.import_module(module) for key, module in BACKENDS.items() if key in entry.data), None
    )


def _declared(entry: Entry, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Description and parameters of a tool without code that could say them."""
    text = overrides.get("description") or entry.get("description")
    if not text:
        raise entry.error("key 'description' is missing; it tells a model when to use the tool")
    parameters = entry.get("parameters")
    if parameters is None:
        raise entry.error("key 'parameters' is missing; it says what a call takes, as JSON Schema")
    _check_parameters(entry, parameters)
    return text, parameters


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
        parameters, hidden = _fitting(
            entry, target, config, parameters or (made.parameters if made else None)
        )
    except SignatureFault as fault:
        raise entry.error(
            str(fault), "parameters" if entry.get("parameters") else "run", of_key=True
        ) from None
    text = overrides.get("description") or entry.get("description")
    text = text or (made.description if made else description_of(target))
    if not text:
        raise entry.error("key 'description' is missing; it tells a model when to use the tool")
    return _Plan(target, config, text, parameters, hidden)


def _fitting(
    entry: Entry, target: Any, config: Mapping[str, Any], parameters: dict[str, Any] | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The parameters, compared with the code or derived from it, and the hidden arguments."""
    given = {**config, **secrets_of(entry)}
    if not isinstance(target, type):
        _check_given(entry, target, config)
        hidden = hidden_of(target, parameters)
        if parameters is None:
            return describe(target, given=given), hidden
        compare(target, parameters, given=[*given, *hidden])
        return parameters, hidden
    _check_given(entry, target, config, filled=("tasks",))
    _check_complete(entry, target, given)
    call = next((base.__dict__["__call__"] for base in target.__mro__ if "__call__" in base.__dict__), None)
    if call is None:
        raise entry.error(f"class {target.__name__} has no __call__ method to run", "run")
    hidden = hidden_of(call, parameters, method=True)
    if parameters is None:
        return describe(call, method=True), hidden
    compare(call, parameters, method=True, given=hidden)
    return parameters, hidden


def _check_given(entry: Entry, target: Any, config: Mapping[str, Any], filled: Collection[str] = ()) -> None:
    """Make sure that the code takes what ``config`` and ``secrets`` fill in."""
    entry.check_config(target, config, "config", filled=filled)
    entry.check_config(target, secrets_of(entry), "secrets", filled=filled)


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


def _runner(entry: Entry, plan: _Plan, tasks: Any) -> dict[str, Any]:
    """What runs the tool, and how it is begun and closed, as arguments of ``Tool``."""
    if not isinstance(plan.target, type):
        return {"run": functools.partial(plan.target, **plan.config) if plan.config else plan.target}
    build = functools.partial(_built, entry, plan, _arguments(entry, plan, tasks))
    instance = entry.get("instance")
    if instance == "episode":
        return {"run": plan.target.__call__, **_by_episode(build)}
    if instance == "shared":
        key = json.dumps([str(entry.path), entry.name, plan.config], sort_keys=True, default=str)
        return {"run": _SHARED.take(key, build), "close": functools.partial(_SHARED.give, key)}
    built = build()
    return {"run": built, "close": getattr(built, "close", None)}


def _by_episode(build: Callable[[], Callable[..., Any]]) -> dict[str, Any]:
    """How objects of one episode each are begun. The first is built now, so that its faults show early."""
    ready = [build()]

    def close() -> None:
        while ready:
            if (ending := getattr(ready.pop(), "close", None)) is not None:
                ending()

    return {"begin": lambda: ready.pop() if ready else build(), "close": close}


def _arguments(entry: Entry, plan: _Plan, tasks: Any) -> dict[str, Any]:
    """What the constructor of a class is called with."""
    taken = signature_of(plan.target)
    secrets = {name: value for name, value in filled_secrets(entry).items() if name in taken}
    given = {**plan.config, **secrets}
    parameter = taken.get("tasks")
    if parameter is not None and "tasks" not in given:
        if tasks is not None:
            given["tasks"] = tasks
        elif parameter.default is parameter.empty:
            raise entry.error(
                f"{plan.target.__name__} needs the tasks of an environment; none were given", "run"
            )
    return given


def _built(entry: Entry, plan: _Plan, given: Mapping[str, Any]) -> Callable[..., Any]:
    """An object of the class, set up."""
    try:
        built: Callable[..., Any] = plan.target(**given)
        if (setup := getattr(built, "setup", None)) is not None:
            outcome = workers.start(setup, {}, _as_it_is).result(entry.get("timeout"))
            if outcome.failure is not None:
                raise outcome.failure
    except Exception as cause:
        reason = f"building {plan.target.__name__} failed: {type(cause).__name__}: {cause}"
        raise entry.error(reason, "run") from cause
    return built


def _as_it_is(value: Any) -> Any:
    return value


class _Shared:
    """Objects that several environments use, each closed when nobody uses it any more."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Callable[..., Any], int]] = {}
        self._lock = threading.Lock()

    def take(self, key: str, build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        with self._lock:
            held, users = self._held[key] if key in self._held else (build(), 0)
            self._held[key] = held, users + 1
            return held

    def give(self, key: str) -> None:
        with self._lock:
            held, users = self._held.pop(key)
            if users > 1:
                self._held[key] = held, users - 1
                return
        if (close := getattr(held, "close", None)) is not None:
            close()


_SHARED = _Shared()
