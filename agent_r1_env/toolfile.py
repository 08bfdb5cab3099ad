"""A tool from its catalogue entry: the code that ``run`` names, checked against ``parameters``."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError, hint, unknown_name
from agent_r1_env.parameters import check_parameters, unknown_keywords
from agent_r1_env.schematree import SchemaFault
from agent_r1_env.signature import (
    SignatureFault,
    compare,
    converters_of,
    describe,
    description_of,
    hidden_of,
    signature_of,
)
from agent_r1_env.tool import Tool
from agent_r1_env.toollimits import LIMITS, WAITING, filled_secrets, limits_of, secrets_of
from agent_r1_env.toolobjects import SHARED, built, by_episode
from agent_r1_env.workers import is_coroutine_function

OVERRIDES = ("config", "description", *LIMITS)
"""The keys of a tool's file that whoever loads it may set anew; ``config`` is merged key by key."""
BACKENDS = {"http": "agent_r1_env.http_tool", "process": "agent_r1_env.process_tool"}
"""The module that makes what runs a tool, by the key of the file that declares it."""
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Plan:
    """Everything about a tool but the object that runs it.

    Attributes:
        made: the tool that ``run`` names, if it is one already, by ``@tool``.
        constructor: the arguments that ``config`` and the environment's variables fill of a class.
        call: the environment's variables, by the argument of the call that they fill.
        ready: other arguments of ``Tool``.
    """

    target: Any
    description: str
    parameters: dict[str, Any]
    made: Tool | None = None
    config: dict[str, Any] = field(default_factory=dict)
    constructor: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    ready: dict[str, Any] = field(default_factory=dict)


def faults(entry: Entry) -> list[CatalogError]:
    """Everything that ``check_tool`` finds, in the order of the file."""
    parameters = entry.get("parameters")
    if parameters is not None and (found := list(unknown_keywords(parameters))):
        return [_unknown_keyword(entry, fault) for fault in found]
    try:
        check_tool(entry)
    except CatalogError as fault:
        return [fault]
    return []


@dataclass(frozen=True)
class Outline:
    """What there is to say about a tool without building, starting or asking anything.

    Attributes:
        limits: arguments of ``Tool``.
    """

    description: str
    parameters: dict[str, Any]
    limits: dict[str, Any]


def outline(entry: Entry) -> Outline:
    """The outline of a tool that is not a server's.

    Raises:
        CatalogError: as ``check_tool`` does.
    """
    if _backend(entry):
        return Outline(*_declared(entry), limits_of(entry))
    plan = _plan(entry)
    return Outline(plan.description, plan.parameters, _limits(entry, plan, ()))


def check_tool(entry: Entry) -> None:
    """Load the code of a tool and compare it with its file, without building, starting or asking anything.

    Raises:
        CatalogError: with the line that is to blame.
    """
    if "run" not in entry.data and "instance" in entry.file.data:
        backend = next(key for key in ("mcp", *BACKENDS) if key in entry.data)
        raise entry.error(f"key 'instance' is for classes, not for {backend}", "instance", of_key=True)
    if "mcp" in entry.data:
        limits_of(entry)
        importlib.import_module("agent_r1_env.mcp_tool").check(entry)
        if "paraphrases" in entry.file.data:
            raise entry.error("key 'paraphrases' is for one tool, not for mcp", "paraphrases", of_key=True)
    elif backend := _backend(entry):
        limits_of(entry)
        _paraphrases(entry, _declared(entry)[1])
        backend.check(entry)
    else:
        plan = _plan(entry)
        _paraphrases(entry, plan.parameters)
        limits = _limits(entry, plan, ())
        if limits["cache"] is not None and plan.ready["hidden"]:
            name = plan.ready["hidden"][0]
            reason = f"results cannot be kept by arguments, because the code also takes {name!r}"
            raise entry.error(reason, "cache", of_key=True)


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
    changed = _changed(entry, overrides)
    if "mcp" in entry.data:
        server = importlib.import_module("agent_r1_env.mcp_tool")
        tools: list[Tool] = server.load(changed, limits_of(changed))
        return tools
    return [_load(changed, tasks, overrides)]


def load_tool(entry: Entry, tasks: Any = None, overrides: Mapping[str, Any] | None = None) -> Tool:
    """The one tool that an entry declares; see ``load_tools``."""
    tools = load_tools(entry, tasks, overrides)
    if len(tools) != 1:
        for tool in tools:
            if tool.close is not None:
                tool.close()
        raise entry.error(f"declares {len(tools)} tools, where one was asked for", "mcp", of_key=True)
    return tools[0]


def _changed(entry: Entry, overrides: Mapping[str, Any]) -> Entry:
    """The entry with the values that whoever loads it has set anew."""
    if not any(overrides.values()):
        return entry
    config = {**entry.data["config"], **overrides.get("config", {})}
    return entry.changed({**entry.data, **overrides, "config": config})


def _load(entry: Entry, tasks: Any, overrides: Mapping[str, Any]) -> Tool:
    made: dict[str, Any]
    if backend := _backend(entry):
        description, parameters = _declared(entry)
        run = backend.load(entry)
        made = {"run": run, "close": getattr(run, "close", None), **limits_of(entry)}
    else:
        plan = _plan(entry)
        description, parameters = plan.description, plan.parameters
        made = {**plan.ready, **_limits(entry, plan, overrides), **_runner(entry, plan, tasks)}
    owner = json.dumps([str(entry.path), entry.name, entry.get("config")], sort_keys=True, default=str)
    try:
        return Tool(
            *(entry.name, description, parameters),
            **made,
            version=str(entry.get("version")),
            owner=owner,
            veiled=tuple(filled_secrets(entry).values()),
            paraphrases=_paraphrases(entry, parameters),
        )
    except ValueError as fault:
        raise entry.error(str(fault)) from None


def _limits(entry: Entry, plan: _Plan, overrides: Collection[str]) -> dict[str, Any]:
    """The limits of the file; those that it leaves out are as ``@tool`` has them."""
    limits = limits_of(entry)
    if plan.made is not None:
        said = {*entry.file.data, *overrides}
        limits |= {key: getattr(plan.made, key) for key in LIMITS if key not in said}
    if limits["inline"]:
        _check_inline(entry, plan.target)
    return limits


def _check_inline(entry: Entry, target: Any) -> None:
    """Refuse what asks to be waited for. Values that are not written in the file are refused by ``Tool``."""
    called = target.__call__ if isinstance(target, type) else target
    if is_coroutine_function(called):
        reason = f"{entry.get('run')} is a coroutine function, which cannot run inline; take inline out"
        raise entry.error(reason, "inline" if "inline" in entry.file.data else "run", of_key=True)
    for key in WAITING:
        if key in entry.file.data:
            reason = (
                f"the tool is inline, so nobody waits for it and {key!r} cannot be kept; take one of them out"
            )
            raise entry.error(reason, key, of_key=True)


def _backend(entry: Entry) -> Any:
    """The module that makes what runs the tool, or None for Python code."""
    return next(
        (importlib.import_module(module) for key, module in BACKENDS.items() if key in entry.data), None
    )


def _declared(entry: Entry) -> tuple[str, dict[str, Any]]:
    """Description and parameters of a tool without code that could say them."""
    text = entry.get("description")
    if not text:
        raise entry.error("key 'description' is missing; it tells a model when to use the tool")
    parameters = entry.get("parameters")
    if parameters is None:
        raise entry.error("key 'parameters' is missing; it says what a call takes, as JSON Schema")
    _check_parameters(entry, parameters)
    return text, parameters


def _paraphrases(entry: Entry, parameters: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    known = parameters.get("properties", {})
    for place, wording in enumerate(entry.data["paraphrases"]):
        for name in wording.get("parameters", {}):
            if name not in known:
                reason = f"tool {entry.name!r} has no parameter {name!r}{hint(name, known)}"
                raise entry.error(reason, "paraphrases", place, "parameters", name, of_key=True)
    return tuple(entry.data["paraphrases"])


def _plan(entry: Entry) -> _Plan:
    target = entry.target("run")
    made = target if isinstance(target, Tool) else None
    target = made.run if made else target
    if not callable(target):
        raise entry.error(
            f"{entry.get('run')} is of type {type(target).__name__}, no function or class", "run"
        )
    if entry.get("parameters") is not None:
        _check_parameters(entry, entry.get("parameters"))
    try:
        plan = _of_class(entry, target) if isinstance(target, type) else _of_function(entry, target, made)
    except SignatureFault as fault:
        if entry.get("parameters") is None:
            raise entry.error(str(fault), "run") from None
        raise entry.error(str(fault), "parameters", *fault.path, of_key=True) from None
    if not plan.description:
        raise entry.error("key 'description' is missing; it tells a model when to use the tool")
    return plan


def _of_function(entry: Entry, target: Any, made: Tool | None) -> _Plan:
    if "instance" in entry.file.data:
        raise entry.error(
            f"'instance' is for classes, and {entry.get('run')} is none; take it out", "instance", of_key=True
        )
    config, secrets = entry.get("config"), secrets_of(entry)
    entry.check_config(target, config, "config")
    entry.check_config(target, secrets, "secrets")
    _check_apart(entry, config, secrets)
    own_secrets = {} if made is None else dict(made.secrets)
    given = [*config, *secrets, *own_secrets]
    parameters = entry.get("parameters")
    if parameters is None and made is not None:
        parameters = _without(made.parameters, given)
    ready = _ready(target, parameters, given, method=False)
    if made is not None:
        hidden = tuple(dict.fromkeys((*made.hidden, *ready["hidden"])))
        converters = {**ready["converters"], **made.converters}
        ready |= {"hidden": hidden, "converters": converters, "close": made.close, "begin": made.begin}
        ready |= {"secrets": own_secrets}
    if parameters is None:
        parameters = describe(target, given=given)
    else:
        compare(target, parameters, given=[*given, *ready["hidden"]])
    text = entry.get("description") or (made.description if made else description_of(target))
    return _Plan(target, text, parameters, made, config, call=tuple(secrets), ready=ready)


def _of_class(entry: Entry, target: Any) -> _Plan:
    call = next((base.__dict__["__call__"] for base in target.__mro__ if "__call__" in base.__dict__), None)
    if call is None:
        raise entry.error(f"class {target.__name__} has no __call__ method to run", "run")
    config, secrets = entry.get("config"), secrets_of(entry)
    entry.check_config(target, config, "config", filled=("tasks",))
    _check_apart(entry, config, secrets)
    taken, called = signature_of(target), signature_of(call)
    constructor = tuple(name for name in secrets if name in taken or name not in called)
    entry.check_config(target, dict.fromkeys(constructor, ""), "secrets", filled=("tasks",))
    _check_complete(entry, target, {*config, *constructor})
    rest = tuple(name for name in secrets if name not in constructor)
    parameters = entry.get("parameters")
    ready = _ready(call, parameters, rest, method=True)
    if parameters is None:
        parameters = describe(call, method=True, given=rest)
    else:
        compare(call, parameters, method=True, given=[*rest, *ready["hidden"]])
    text = entry.get("description") or description_of(target)
    return _Plan(target, text, parameters, None, config, constructor, rest, ready)


def _ready(
    function: Any, parameters: dict[str, Any] | None, given: Collection[str], *, method: bool
) -> dict[str, Any]:
    return {
        "hidden": hidden_of(function, parameters, method=method),
        "converters": converters_of(function, method=method, given=given),
    }


def _without(parameters: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """``parameters`` of ``@tool`` without the arguments that the file fills in."""
    properties = {name: part for name, part in parameters.get("properties", {}).items() if name not in given}
    required = [name for name in parameters.get("required", ()) if name not in given]
    return {**parameters, "properties": properties, "required": required}


def _check_apart(entry: Entry, config: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    for name in secrets:
        if name in config:
            raise entry.error(
                f"{name!r} stands in config and in secrets; keep one", "config", name, of_key=True
            )


def _check_parameters(entry: Entry, parameters: dict[str, Any]) -> None:
    for fault in unknown_keywords(parameters):
        raise _unknown_keyword(entry, fault)
    try:
        check_parameters(parameters)
    except SchemaFault as fault:
        raise entry.error(str(fault), "parameters", *fault.path) from None


def _unknown_keyword(entry: Entry, fault: SchemaFault) -> CatalogError:
    return entry.error(str(fault), "parameters", *fault.path, of_key=fault.path[-1] != "format")


def _check_complete(entry: Entry, target: type, given: Collection[str]) -> None:
    for name, parameter in signature_of(target).items():
        optional = parameter.default is not parameter.empty or parameter.kind in _REST
        if not optional and name not in given and name != "tasks":
            key = "config" if entry.get("config") else "run"
            raise entry.error(f"{target.__name__} needs {name!r} in config", key, of_key=key == "config")


def _runner(entry: Entry, plan: _Plan, tasks: Any) -> dict[str, Any]:
    """What runs the tool, how it is begun and closed, and its secrets, as arguments of ``Tool``."""
    values = filled_secrets(entry)
    secrets = {**plan.ready.get("secrets", {}), **{name: values[name] for name in plan.call}}
    if not isinstance(plan.target, type):
        run = functools.partial(plan.target, **plan.config) if plan.config else plan.target
        return {"run": run, "secrets": secrets}
    given = {**plan.config, **{name: values[name] for name in plan.constructor}}
    build = functools.partial(built, entry, plan.target, _with_tasks(entry, plan, tasks, given))
    instance = entry.get("instance")
    if instance == "episode":
        return {"run": plan.target.__call__, **by_episode(build), "secrets": secrets}
    if instance == "shared":
        key = json.dumps([str(entry.path), entry.name, given], sort_keys=True, default=str)
        # The tasks are part of what is shared: environments over other tasks need another object.
        taken = (key, id(tasks) if "tasks" in signature_of(plan.target) else None)
        close = functools.partial(SHARED.give, taken)
        return {"run": SHARED.take(taken, build), "close": close, "secrets": secrets}
    run = build()
    return {"run": run, "close": getattr(run, "close", None), "secrets": secrets}


def _with_tasks(entry: Entry, plan: _Plan, tasks: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What the constructor of a class is called with."""
    parameter = signature_of(plan.target).get("tasks")
    if parameter is not None and "tasks" not in given:
        if tasks is not None:
            return {**given, "tasks": tasks}
        if parameter.default is parameter.empty:
            raise entry.error(
                f"{plan.target.__name__} needs the tasks of an environment; none were given", "run"
            )
    return given
