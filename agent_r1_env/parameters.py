"""The ``parameters`` of a tool: a JSON Schema 2020-12 object that is checked when the tool is made.

A schema that is wrong in a way that JSON Schema tolerates (a misspelt keyword, a reference to
nowhere, a default that the schema itself refuses) is found here and not by the first model that calls.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_r1_env.errors import hint, nearest
from agent_r1_env.schematree import COMBINING, KEYWORDS, SchemaFault, resolve, subschemas
from agent_r1_env.validation import text_formats, validator
from agent_r1_env.wording import constraint, dotted, found

_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
# What people who know another dialect write, and what it is called here.
_ELSEWHERE = {
    "nullable": "add 'null' to the list of types",
    "example": "write examples: [...]",
    "enumNames": "describe the values in description",
    "optional": "list the arguments that are not optional in required",
    "additionalItems": "write items beside prefixItems",
    "dependencies": "write dependentRequired or dependentSchemas",
    "id": "write $id",
}
# Formats that only describe; nothing about the text is checked.
_DESCRIPTIVE_FORMATS = frozenset(("int32", "int64", "float", "double", "byte", "binary", "password"))


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Make sure that ``parameters`` is sound JSON Schema 2020-12 and describes an object.

    Raises:
        SchemaFault: the first thing that is wrong, and where.
    """
    try:
        text = json.dumps(parameters)
    except (TypeError, ValueError, RecursionError) as cause:
        raise SchemaFault(f"the parameters of a tool must be JSON data: {cause}") from None
    _check(text)


# Sound schemas are remembered: every environment of a batch makes the same tools anew.
@functools.lru_cache(maxsize=512)
def _check(text: str) -> None:
    parameters = json.loads(text)
    _check_form(parameters)
    _check_references(parameters)
    try:
        validator(text).is_valid({})
        for fault in (*_wrong_required(parameters), *_wrong_defaults(parameters, text)):
            raise fault
    except RecursionError:
        raise SchemaFault("a $ref leads back to itself without end") from None


def _check_form(parameters: Any) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    check = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=text_formats())
    fault = best_match(check.iter_errors(parameters))
    if fault is not None:
        raise SchemaFault(_told(fault), tuple(fault.absolute_path))
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise SchemaFault("the parameters of a tool need type: object", ("type",))


def _told(fault: Any) -> str:
    path = tuple(fault.absolute_path)
    if path and path[-1] == "type" and isinstance(fault.instance, str):
        return f"unknown type {fault.instance!r}{hint(fault.instance, _TYPES)}"
    subject = dotted(path) if path else "parameters"
    return f"{subject} must be {constraint(fault, {})}, not {found(fault.instance)}"


def _check_references(parameters: Mapping[str, Any]) -> None:
    for path, part in subschemas(parameters):
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in part:
                try:
                    resolve(part[keyword], parameters)
                except SchemaFault as unresolved:
                    raise SchemaFault(str(unresolved), (*path, keyword)) from None


def _wrong_required(parameters: Mapping[str, Any]) -> Iterator[SchemaFault]:
    """Required arguments that no call may give, because nothing declares them."""
    if not COMBINING.isdisjoint(parameters) or parameters.get("additionalProperties", False) is not False:
        return
    names = parameters.get("properties", {})
    for index, name in enumerate(parameters.get("required", ())):
        if name not in names and "patternProperties" not in parameters:
            yield SchemaFault(
                f"required names {name!r}, which is no property{hint(name, names)}", ("required", index)
            )


def _wrong_defaults(parameters: Mapping[str, Any], text: str) -> Iterator[SchemaFault]:
    check = validator(text)
    for path, part in subschemas(parameters):
        if "default" in part:
            for misfit in check.evolve(schema=dict(part)).iter_errors(part["default"]):
                wanted, came = constraint(misfit, parameters), found(misfit.instance)
                yield SchemaFault(f"the default must be {wanted}, but it is {came}", (*path, "default"))


def unknown_keywords(parameters: Mapping[str, Any]) -> Iterator[SchemaFault]:
    """Keywords and formats that JSON Schema would pass over in silence; ``x-...`` is yours to use."""
    for path, part in subschemas(parameters):
        for keyword in part:
            if keyword in KEYWORDS or keyword.startswith("x-"):
                continue
            advice = _advice(keyword, part)
            yield SchemaFault(f"unknown JSON Schema keyword {keyword!r}{advice}", (*path, keyword))
        name = part.get("format")
        known = (*text_formats().checkers, *_DESCRIPTIVE_FORMATS)
        if isinstance(name, str) and name not in known:
            guess = nearest(name, known)
            meant = f"; did you mean {guess!r}?" if guess else f"; known: {', '.join(sorted(known))}"
            yield SchemaFault(f"unknown format {name!r}{meant}", (*path, "format"))


def _advice(keyword: str, schema: Mapping[str, Any]) -> str:
    if keyword in _ELSEWHERE:
        return f"; {_ELSEWHERE[keyword]}"
    if guess := nearest(keyword, KEYWORDS):
        return f"; did you mean {guess!r}?"
    looks_declared = isinstance(schema[keyword], Mapping) and "properties" not in schema
    return "; arguments are declared under 'properties'" if looks_declared else ""
