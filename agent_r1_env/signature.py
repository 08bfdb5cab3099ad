"""What a Python function says about itself as a tool: a JSON Schema from its signature and docstring."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from agent_r1_env.annotations import AnnotationFault, Convert, Reader, Reading, hints_of, with_default
from agent_r1_env.docstrings import read_docstring
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.schemafit import Fit
from agent_r1_env.wording import dotted

HIDDEN = ("state", "task", "rng")
"""Arguments that an environment fills in where a function asks for them."""


class _Mark:
    """What tells a hidden argument from one that a model gives."""


_T = TypeVar("_T")
Hidden = Annotated[_T, _Mark]
"""Marks an argument that a model never sees: ``def draw(n: int, rng: Hidden[np.random.Generator])``.

``state`` is a dict that lives as long as the episode, ``task`` the task with its right answers, and ``rng`` a
generator that is seeded by episode and call.
"""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class SignatureFault(AgentR1Error, TypeError):
    """A function cannot be offered as a tool, or doesn't fit the schema that it stands under.

    Attributes:
        path: the keys that lead to the part of the schema that it doesn't fit, if one is to blame.
    """

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.path = path


def describe(
    function: Callable[..., Any], *, method: bool = False, given: Collection[str] = ()
) -> dict[str, Any]:
    """The parameters that a model needs to call ``function``.

    What the docstring says of an argument becomes its description, unless the annotation is
    ``Annotated[..., "text"]``.

    Args:
        method: ``function`` is a method of a class, not yet bound to an instance.
        given: names that somebody else fills in, which a model never sees.

    Raises:
        SignatureFault: an argument has no annotation, or one that JSON cannot express.
    """
    _, told = read_docstring(inspect.getdoc(function) or "")
    hints, reader = _hints(function), Reader()
    properties: dict[str, Any] = {}
    required: list[str] = []
    described: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    for name, parameter in _visible(function, method, given, hints):
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise SignatureFault(
                f"{_name(function)} takes *{name}, but a call gives arguments by name; take a list instead"
            )
        schema = _reading(function, parameter, hints, reader).schema
        if parameter.kind is parameter.VAR_KEYWORD:
            described["additionalProperties"] = schema or True
            continue
        if name in told and not ("description" in schema and get_origin(hints[name]) is Annotated):
            schema["description"] = told[name]
        if parameter.default is parameter.empty:
            required.append(name)
        properties[name] = schema
    return described | ({"$defs": reader.definitions} if reader.definitions else {})


def converters_of(
    function: Callable[..., Any], *, method: bool = False, given: Collection[str] = ()
) -> dict[str, Convert]:
    """What makes the values that ``function`` is annotated with of arguments as JSON has them.

    Arguments whose JSON is such a value already are left out, as are those whose annotation says nothing to
    JSON: a schema may be declared beside them.
    """
    hints, reader = _hints(function), Reader()
    converters: dict[str, Convert] = {}
    for name, parameter in _visible(function, method, given, hints):
        if parameter.kind in _BY_NAME and name in hints:
            try:
                convert = _reading(function, parameter, hints, reader).convert
            except SignatureFault:
                continue
            if convert is not None:
                converters[name] = convert
    return converters


def hidden_of(
    function: Callable[..., Any], parameters: Mapping[str, Any] | None = None, *, method: bool = False
) -> tuple[str, ...]:
    """The arguments that the environment fills in: those marked ``Hidden``.

    Args:
        parameters: a schema declared beside the function; arguments of these names that it doesn't know are
            hidden, too.

    Raises:
        SignatureFault: one is marked whose name the environment doesn't know.
    """
    declared = None if parameters is None else parameters.get("properties", {})
    hints = _hints(function)
    hidden = []
    for name in _by_name(function, method):
        marked = _Mark in get_args(hints.get(name))
        if marked and name not in HIDDEN:
            raise SignatureFault(
                f"argument {name!r} of {_name(function)} is hidden, but an environment only knows "
                f"{', '.join(HIDDEN)}"
            )
        if marked or (declared is not None and name in HIDDEN and name not in declared):
            hidden.append(name)
    return tuple(hidden)


def description_of(function: Callable[..., Any]) -> str:
    """The docstring of ``function`` up to its sections, on one line."""
    return read_docstring(inspect.getdoc(function) or "")[0]


def compare(
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    *,
    method: bool = False,
    given: Collection[str] = (),
) -> None:
    """Make sure that ``function`` can be called with every set of arguments that ``parameters`` lets through.

    Args:
        method: ``function`` is a method of a class, not yet bound to an instance.
        given: names that somebody else fills in.

    Raises:
        SignatureFault: it needs an argument that a call may lack, takes none of a declared name, or is
            annotated with another type than is declared.
    """
    accepted = _by_name(function, method)
    properties = parameters.get("properties", {})
    sure = {name for name in parameters.get("required", ()) if name in properties}
    sure |= {name for name, schema in properties.items() if isinstance(schema, dict) and "default" in schema}
    takes_any = any(taken.kind is taken.VAR_KEYWORD for taken in signature_of(function).values())
    for name in properties:
        if name in given:
            raise SignatureFault(f"{name!r} stands in config and in parameters; keep one")
        if name not in accepted and not takes_any:
            raise SignatureFault(
                f"{_name(function)} takes no argument {name!r}, which parameters declares; "
                f"it takes {', '.join(map(repr, accepted)) or 'none'}"
            )
    for name, parameter in accepted.items():
        if parameter.default is parameter.empty and name not in sure and name not in given:
            lack = "parameters doesn't require" if name in properties else "parameters doesn't declare"
            raise SignatureFault(f"{_name(function)} needs the argument {name!r}, which {lack}")
    _compare_types(function, parameters, method)


def _compare_types(function: Callable[..., Any], parameters: Mapping[str, Any], method: bool) -> None:
    hints, reader = _hints(function), Reader()
    for name, parameter in _by_name(function, method).items():
        declared = parameters.get("properties", {}).get(name)
        if name not in hints or declared is None:
            continue
        try:
            derived = _reading(function, parameter, hints, reader).schema
        except SignatureFault:
            continue  # an annotation that says nothing to JSON
        for path, given, taken in Fit(parameters, {"$defs": reader.definitions}).misfits(declared, derived):
            raise SignatureFault(
                f"parameters lets {given} through for {dotted((name, *path))}, which {_name(function)} "
                f"annotates as {taken}",
                ("properties", name, *path),
            )


def signature_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of ``function``. A builtin that hides them is taken to accept anything."""
    try:
        return dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return {"hidden": inspect.Parameter("hidden", inspect.Parameter.VAR_KEYWORD)}


def _by_name(function: Callable[..., Any], method: bool) -> dict[str, inspect.Parameter]:
    parameters = signature_of(function)
    if method:
        parameters.pop(next(iter(parameters), ""), None)
    for parameter in parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise SignatureFault(
                f"{_name(function)} takes {parameter.name!r} by position only; a call gives arguments by name"
            )
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in _BY_NAME}


def _visible(
    function: Callable[..., Any], method: bool, given: Collection[str], hints: Mapping[str, Any]
) -> Iterator[tuple[str, inspect.Parameter]]:
    """The parameters that a call may fill, and those that stand for any number of arguments."""
    _by_name(function, method)
    parameters = list(signature_of(function).items())
    for name, parameter in parameters[1:] if method else parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY or name in given or _Mark in get_args(hints.get(name)):
            continue
        yield name, parameter


def _reading(
    function: Callable[..., Any], parameter: inspect.Parameter, hints: Mapping[str, Any], reader: Reader
) -> Reading:
    name = parameter.name
    hidden = f"; if the environment fills it in, write {name}: Hidden[...]" if name in HIDDEN else ""
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    subject = f"argument {stars + name!r} of {_name(function)}"
    if name not in hints:
        raise SignatureFault(f"{subject} has no annotation{hidden}")
    try:
        reading = reader.read(hints[name])
        return reading if parameter.default is parameter.empty else with_default(reading, parameter.default)
    except AnnotationFault as fault:
        raise SignatureFault(f"{subject}: {fault}{hidden}") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    plain = isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type)
    owner = inspect.unwrap(function if plain else type(function).__call__)
    # Without the result: what it is annotated with is nobody's business here, and may be unknown.
    annotations = {
        key: each for key, each in getattr(owner, "__annotations__", {}).items() if key != "return"
    }
    try:
        return hints_of(types.SimpleNamespace(__annotations__=annotations), getattr(owner, "__globals__", {}))
    except AnnotationFault as fault:
        raise SignatureFault(f"{_name(function)}: {fault}") from None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
