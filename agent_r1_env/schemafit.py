"""Whether one JSON Schema lets something through that another does not take, as far as types tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_r1_env.schematree import Path, resolve
from agent_r1_env.wording import expected, shown

Misfit = tuple[Path, str, str]
_DEPTH = 6


class Fit:
    """A declared schema and the one that it has to fit into, each with the whole that its references mean.

    Judged are types, the values of ``enum``, and the same within lists and objects. Where either says
    nothing, everything fits.
    """

    def __init__(self, declared_root: Mapping[str, Any], taken_root: Mapping[str, Any]) -> None:
        self._given, self._taken = declared_root, taken_root

    def misfits(self, declared: Any, taken: Any, path: Path = ()) -> Iterator[Misfit]:
        """What doesn't fit: the keys that lead to it in ``declared``, what comes, and what would be taken."""
        given_types, taken_types = types_of(declared, self._given), types_of(taken, self._taken)
        if given_types is None or taken_types is None or len(path) > _DEPTH:
            return
        wide = taken_types | ({"integer"} if "number" in taken_types else set())
        if odd := sorted(given_types - wide):
            yield path, expected({"type": odd}, {}), expected(taken, self._taken)
            return
        yield from self._values(declared, taken, path)
        yield from self._items(
            _of_type("array", declared, self._given), _of_type("array", taken, self._taken), path
        )
        yield from self._keys(
            _of_type("object", declared, self._given), _of_type("object", taken, self._taken), path
        )

    def _values(self, declared: Any, taken: Any, path: Path) -> Iterator[Misfit]:
        if "enum" in declared and "enum" in taken:
            for index, value in enumerate(declared["enum"]):
                if value not in taken["enum"]:
                    yield (*path, "enum", index), shown(value), expected(taken, self._taken)

    def _items(self, declared: Mapping[str, Any], taken: Mapping[str, Any], path: Path) -> Iterator[Misfit]:
        if "items" in declared and "items" in taken:
            yield from self.misfits(declared["items"], taken["items"], (*path, "items"))

    def _keys(self, declared: Mapping[str, Any], taken: Mapping[str, Any], path: Path) -> Iterator[Misfit]:
        known, rest = taken.get("properties", {}), taken.get("additionalProperties", True)
        properties = declared.get("properties", {})
        for name, part in properties.items():
            here = (*path, "properties", name)
            if name not in known and rest is False:
                yield here, f"the key {name!r}", f"an object with {', '.join(map(repr, known)) or 'no keys'}"
            else:
                yield from self.misfits(part, known.get(name, rest), here)
        if not properties:
            return
        sure = {
            *declared.get("required", ()),
            *(name for name in properties if "default" in properties[name]),
        }
        for name in taken.get("required", ()):
            if name not in sure:
                yield path, f"an object without {name!r}", f"an object that has {name!r}"


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> set[str] | None:
    """The JSON types that ``schema`` lets through; None: it doesn't say."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    for keyword in ("enum", "const"):
        if keyword in schema:
            values = schema[keyword] if keyword == "enum" else [schema[keyword]]
            return {_type_of(value) for value in values}
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    if "$ref" in schema:
        return types_of(resolve(schema["$ref"], root), root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            parts = [types_of(part, root, depth + 1) for part in schema[keyword]]
            known = [part for part in parts if part is not None]
            return set().union(*known) if len(known) == len(parts) else None
    parts = [types_of(part, root, depth + 1) for part in schema.get("allOf", ())]
    return next((part for part in parts if part is not None), None)


def _of_type(kind: str, schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one part of ``schema`` that describes values of that type; {} if there is no such part."""
    while isinstance(schema, Mapping) and "$ref" in schema:
        schema = resolve(schema["$ref"], root)
    if not isinstance(schema, Mapping):
        return {}
    parts = [
        part for part in schema.get("anyOf", schema.get("oneOf", ())) if kind in (types_of(part, root) or ())
    ]
    if len(parts) == 1:
        return _of_type(kind, parts[0], root)
    return schema if not parts and kind in (types_of(schema, root) or ()) else {}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for name, kind in (("string", str), ("integer", int), ("number", float), ("array", list)):
        if isinstance(value, kind):
            return name
    return "object"
