"""What a Python function says about itself as a tool: a JSON Schema from its signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from agent_r1_env.errors import AgentR1Error

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    Any: {},
    object: {},
    list: {"type": "array"},
    Sequence: {"type": "array"},
    dict: {"type": "object"},
    Mapping: {"type": "object"},
}
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
    """A function cannot be offered as a tool, or doesn't fit the schema that it stands under."""


def describe(
    function: Callable[..., Any], *, method: bool = False, given: Collection[str] = ()
) -> dict[str, Any]:
    """The parameters that a model needs to call ``function``.

    What the section ``Args:`` of the docstring says of an argument becomes its description, unless
    the annotation is ``Annotated[..., "text"]``.

    Args:
        method: ``function`` is a method of a class, not yet bound to an instance.
        given: names that somebody else fills in, which a model never sees.

    Raises:
        SignatureFault: an argument has no annotation, or one that JSON cannot express.
    """
    _, told = _docstring(inspect.getdoc(function) or "")
    hints = _hints(function)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in _by_name(function, method).items():
        if name in given or _Mark in get_args(hints.get(name)):
            continue
        if name not in hints:
            raise SignatureFault(f"argument {name!r} of {_name(function)} has no annotation")
        try:
            schema = _schema(hints[name])
        except SignatureFault as fault:
            raise SignatureFault(f"argument {name!r} of {_name(function)}: {fault}") from None
        if name in told and "description" not in schema:
            schema["description"] = told[name]
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            schema = _with_default(schema, parameter.default)
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}


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
    return _docstring(inspect.getdoc(function) or "")[0]


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
        SignatureFault: it needs an argument that a call may lack, or takes none of a declared name.
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


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    plain = isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type)
    owner = inspect.unwrap(function if plain else type(function).__call__)
    # Without the result: what it is annotated with is nobody's business here, and may be unknown.
    annotations = {
        key: each for key, each in getattr(owner, "__annotations__", {}).items() if key != "return"
    }
    try:
        return get_type_hints(
            types.SimpleNamespace(__annotations__=annotations),
            getattr(owner, "__globals__", {}),
            include_extras=True,
        )
    except NameError as unknown:
        raise SignatureFault(f"an annotation of {_name(function)} cannot be read: {unknown}") from None


def _schema(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of one annotation."""
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        text = next((extra for extra in inner[1:] if isinstance(extra, str)), None)
        return _schema(inner[0]) | ({"description": text} if text is not None else {})
    if origin is Literal:
        return _of_values(inner)
    if origin in (Union, types.UnionType):
        return _of_union([_schema(part) for part in inner])
    if origin in (list, Sequence) or (origin is not None and origin.__name__ == "Sequence"):
        return {"type": "array", "items": _schema(inner[0])}
    if origin in (dict, Mapping) or (origin is not None and origin.__name__ == "Mapping"):
        if inner[0] is not str:
            raise SignatureFault(f"the keys of an object are strings, not {inner[0]!r}")
        values = _schema(inner[1])
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    raise SignatureFault(f"no JSON Schema for {annotation!r}; declare parameters yourself")


def _of_values(values: Sequence[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in _PLAIN:
        return {**_PLAIN[kind], "enum": list(values)}
    return {"enum": list(values)}


def _of_union(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if all(set(part) == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {} if {} in parts else {"anyOf": list(parts)}


def _with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """``schema`` with its default; ``x: str = None`` also accepts null, as its author meant."""
    if default is None and schema.get("type") and "null" not in _as_list(schema["type"]):
        schema = {**schema, "type": [*_as_list(schema["type"]), "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return {**schema, "default": default}


def _as_list(types_: str | list[str]) -> list[str]:
    return [types_] if isinstance(types_, str) else types_


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the sections, and what the section ``Args:`` says of each argument."""
    head, _, rest = re.sub(r"(?m)^(Args|Arguments|Parameters):\s*$", "\f", text, count=1).partition("\f")
    head = re.split(r"(?m)^(?:Returns|Raises|Yields|Examples?|Notes?|Attributes):", head)[0]
    told: dict[str, str] = {}
    name, indent = "", None
    for line in rest.splitlines():
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth == 0:
            break
        entry = re.match(r"\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        indent = depth if indent is None and line.strip() else indent
        if entry and depth == indent:
            name = entry[1]
            told[name] = entry[2].strip()
        elif name and line.strip():
            told[name] = f"{told[name]} {line.strip()}".strip()
    return " ".join(head.split()), told


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
