"""From a catalogue entry to an environment: what ``gymnasium.make`` calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from agent_r1_env import context as contexts
from agent_r1_env import formats, methods
from agent_r1_env import perturb as perturbing
from agent_r1_env.around import Perturbation
from agent_r1_env.catalog import Catalog, load_tool, load_tools
from agent_r1_env.entry import Entry
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import AgentR1Error, CatalogError, UnknownName, unknown_name
from agent_r1_env.loading import TargetFault, load_target
from agent_r1_env.responding import Responder
from agent_r1_env.scorecard import Scorecard
from agent_r1_env.signature import SignatureFault
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool
from agent_r1_env.tool_env import SingleToolEnv

_OPTIONS = (
    "answer_tag",
    "chat_template",
    "context",
    "format",
    "max_calls",
    "max_calls_per_step",
    "max_seconds",
    "max_steps",
    "max_tokens",
    "metrics",
    "observation",
    "render_mode",
    "repair",
    "rewards",
    "system",
    "tokenizer",
    "tool_traffic",
)


def make_env(
    entry: str,
    folder: str | None = None,
    *,
    method: str = methods.TOOL_CALL,
    tools: Sequence[str] | None = None,
    tool_config: Mapping[str, Mapping[str, Any]] | None = None,
    perturb: Any = None,
    **options: Any,
) -> ToolEnv:
    """Make the environment that a catalogue entry declares.

    Args:
        entry: ``namespace/name``.
        folder: of the catalogue; the built-in one by default.
        method: how its questions are put, see `agent_r1_env.methods`.
        tools: names of tools in place of those that the entry lists.
        tool_config: by tool, values in place of those under ``config`` in the entry and the tool's file.
        perturb: simulated trouble with the tools that the model calls, see `agent_r1_env.perturb`, in place
            of what the entry says; an empty list: none.
        options: arguments of ``ToolEnv`` in place of what the entry says; all others go to the function
            that loads the tasks, such as ``split``, ``data``, ``corpus`` and ``source``.

    Raises:
        CatalogError: the entry is wrong; names file, line and key.
        UnknownName: an option, or a name in one, that does not exist.
        DataError: the tasks cannot be read.
        AgentR1Error: the environment cannot be put by that method.
    """
    catalog = Catalog.open(folder)
    env = catalog.env(entry.rpartition("/")[2])
    if tools is not None:
        env = env.changed({**env.data, "tools": list(tools)})
    chosen = {name: options.pop(name) for name in _OPTIONS if name in options}
    settings = _settings(env) | chosen
    settings["format"] = _format(env, settings["format"])
    if "context" not in chosen:  # what a caller asks for is no fault of the file, nor relative to it
        settings["context"] = _context(env, settings["context"])
    settings["respond"] = _respond(env)
    settings["terms"] = _own_terms(env, [*settings["rewards"], *settings["metrics"]])
    settings["rewards"] = {_term_name(name): weight for name, weight in settings["rewards"].items()}
    settings["metrics"] = [_term_name(name) for name in settings["metrics"]]
    tasks = _load_tasks(env, options)
    load_tools = partial(_load_tools, catalog, env, tasks, tool_config or {})
    trouble = _perturbations(env) if perturb is None else perturbing.resolve(perturb)
    if trouble and method == methods.TOOL_CALL:
        load_tools = partial(_perturbed, env if perturb is None else None, load_tools, trouble, tasks)
    system = chosen.get("system")
    settings = methods.settings_for(method, settings, tasks, load_tools, name=env.name, system=system)
    return ToolEnv(tasks, **settings)


def make_tool_env(
    entry: str,
    folder: str | None = None,
    *,
    max_calls: int = 1,
    tokenizer: Any = None,
    render_mode: str | None = None,
    **config: Any,
) -> SingleToolEnv:
    """Make the environment of one tool of a catalogue.

    Args:
        entry: ``namespace/name`` of the tool.
        folder: of the catalogue; the built-in one by default.
        config: values in place of those under ``config`` in the tool's file.

    Raises:
        CatalogError: the entry is wrong, or takes no such ``config``; names file, line and key.
    """
    tool = load_tool(Catalog.open(folder).tool(entry.rpartition("/")[2]), None, {"config": config})
    try:
        return SingleToolEnv(tool, max_calls=max_calls, tokenizer=tokenizer, render_mode=render_mode)
    except ValueError:
        if tool.close is not None:
            tool.close()
        raise


def check_env_entry(env: Entry) -> None:
    """Check the names in an environment's entry that the schema cannot know.

    Raises:
        CatalogError: a format, context policy, or reward term that does not exist, or an option of the
            format that it cannot use; with its line.
    """
    try:
        _format(env, env.get("format"))
    except CatalogError:
        raise
    except (UnknownName, ValueError, TypeError) as fault:
        raise env.error(str(fault), "format") from None
    _context(env, env.data["context"])
    _perturbations(env)
    _respond(env)
    weights, metrics = env.data["reward"], env.data["metrics"]
    own = _own_terms(env, [*weights, *metrics])
    for key in ("reward", "metrics"):
        for place, name in _places(env.data[key]):
            weight = {_term_name(name): weights[name]} if key == "reward" else {}
            try:
                # The tools are not known yet: they may be those of an MCP server.
                if not name.startswith("tools/"):
                    Scorecard(weight, [] if weight else [_term_name(name)], own)
            except (UnknownName, ValueError, TypeError) as fault:
                raise env.error(str(fault), key, place, of_key=key == "reward") from None


def _context(env: Entry, given: Any) -> contexts.ContextPolicy:
    try:
        return contexts.resolve(given, env.path.parent)
    except TargetFault as fault:
        raise env.error(str(fault), "context") from fault.__cause__
    except (UnknownName, ValueError, TypeError) as fault:
        raise env.error(str(fault), "context") from None


def _perturbations(env: Entry) -> list[Perturbation]:
    found: list[Perturbation] = []
    given = env.data["perturb"]
    for place, each in enumerate(given if isinstance(given, list) else [given]):
        try:
            found += perturbing.resolve(each)
        except (UnknownName, ValueError, TypeError) as fault:
            raise env.error(str(fault), "perturb", *[place] * isinstance(given, list)) from None
    return found


def _perturbed(
    env: Entry | None, load: Callable[[], Sequence[Tool]], trouble: Sequence[Perturbation], tasks: TaskSet
) -> list[Tool]:
    """The tools after all perturbations; ``env`` is the file to blame where they don't fit, if it is one."""
    tools = load()
    try:
        return perturbing.perturbed(tools, trouble, tasks)
    except (UnknownName, ValueError) as fault:
        _close(tools)
        raise fault if env is None else env.error(str(fault), "perturb") from None


def _respond(env: Entry) -> Callable[..., Any] | None:
    if env.data.get("respond") is None:
        return None
    respond = env.target("respond")
    try:
        Responder.of(respond)
    except (SignatureFault, TypeError) as fault:
        raise env.error(str(fault), "respond") from None
    return cast(Callable[..., Any], respond)


def _settings(env: Entry) -> dict[str, Any]:
    data = env.data
    return {
        "system": data["system"],
        "format": data["format"],
        "repair": data["repair"],
        "answer_tag": data["answer"]["tag"],
        "max_steps": data["max_steps"],
        "max_calls": data.get("max_calls"),
        "max_calls_per_step": data["max_calls_per_step"],
        "max_tokens": data.get("max_tokens"),
        "max_seconds": data.get("max_seconds"),
        "context": data["context"],
        "rewards": data["reward"],
        "metrics": data["metrics"],
    }


def _format(env: Entry, given: str | Mapping[str, Any] | formats.Format) -> formats.Format:
    """The wire format: one of ours by name, or a class of the user's own by target; with its options."""
    if isinstance(given, formats.Format):
        return given
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = str(options.pop("name", ""))
    if ":" not in name:
        return formats.get({"name": name, **options})
    try:
        made = load_target(name, env.path.parent)
        made = made(**options) if isinstance(made, type) else made
    except (TargetFault, TypeError) as fault:
        raise env.error(str(fault), "format") from fault.__cause__
    if not isinstance(made, formats.Format):
        raise env.error(
            f"{name} is {type(made).__name__}, not a Format; derive it from formats.Format", "format"
        )
    return made


def _load_tasks(env: Entry, options: Mapping[str, Any]) -> TaskSet:
    load = env.target("tasks", "load")
    config = env.get("tasks", "config") or {}
    taken = inspect.signature(load).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        for name in options:
            if name not in taken:
                raise unknown_name(
                    "option",
                    name,
                    {*taken, *_OPTIONS, "method", "tools", "tool_config", "perturb"} - set(config),
                    env.name,
                )
    tasks = load(**{**config, **options})
    if not isinstance(tasks, TaskSet):
        raise env.error(
            f"{env.get('tasks', 'load')} returned {type(tasks).__name__}, not a TaskSet", "tasks", "load"
        )
    return tasks


def _load_tools(
    catalog: Catalog, env: Entry, tasks: TaskSet, tool_config: Mapping[str, Mapping[str, Any]]
) -> list[Tool]:
    entries, own = catalog.tools_of(env), env.get("tool_config")
    for name in tool_config:
        if name not in [entry.name for entry in entries]:
            raise unknown_name("tool", name, [entry.name for entry in entries], env.name)
    tools: list[Tool] = []
    try:
        for entry in entries:
            config = {**own.get(entry.name, {}), **tool_config.get(entry.name, {})}
            tools += load_tools(entry, tasks, {"config": config})
    except AgentR1Error:
        _close(tools)
        raise
    return tools


def _close(tools: Iterable[Tool]) -> None:
    for tool in tools:
        if tool.close is not None:
            tool.close()


def _own_terms(env: Entry, names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """The terms that are named by a target of the user's own."""
    places = {name: (key, place) for key in ("reward", "metrics") for place, name in _places(env.data[key])}
    return {
        _term_name(name): _own_term(env, name, *places.get(name, ("reward",)))
        for name in names
        if ":" in name
    }


def _own_term(env: Entry, name: str, *keys: str | int) -> Callable[..., Any]:
    try:
        term = load_target(name, env.path.parent)
    except TargetFault as fault:
        raise env.error(str(fault), *keys) from fault.__cause__
    if not callable(term):
        raise env.error(f"{name} is {type(term).__name__}, not a function of an Outcome", *keys)
    return cast(Callable[..., Any], term)


def _term_name(name: str) -> str:
    return name.rpartition(":")[2]


def _places(value: Mapping[str, Any] | list[str]) -> list[tuple[str | int, str]]:
    """Each name in a mapping or list, with the key under which its line is found."""
    return [(name, name) for name in value] if isinstance(value, Mapping) else list(enumerate(value))
