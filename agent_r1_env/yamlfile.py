"""YAML as people mean it, with the line and column of every key.

YAML 1.2 rules for plain words: ``on``, ``off``, ``yes`` and ``no`` are text, ``1e-4`` is a number, a
date is text. Keys are always text, and a repeated key is an error.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent_r1_env.errors import CatalogError

Keys = tuple[str | int, ...]
Place = tuple[int, int]

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_WORDS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
)


class _CoreLoader(_Loader):  # type: ignore[misc]
    """Reads nodes under the core schema of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _name, _pattern, _first in _PLAIN_WORDS:
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), _first)


@dataclass(frozen=True, eq=False)
class YamlFile:
    """One mapping, which is a whole file or an item of the list in it.

    Attributes:
        data: what the file says, as JSON data.
        keys: line and column of each key, counted from 1, by the keys that lead to it.
        values: line and column of each value.
        listed: it is an item of a list.
    """

    path: Path
    data: dict[str, Any]
    keys: dict[Keys, Place]
    values: dict[Keys, Place]
    listed: bool = False

    def place(self, keys: Keys, of_key: bool = False) -> Place:
        """Where the value at ``keys`` stands, or its key; that of the nearest parent if the file lacks it."""
        while keys:
            for places in (self.keys, self.values) if of_key else (self.values, self.keys):
                if keys in places:
                    return places[keys]
            keys, of_key = keys[:-1], True
        return self.values.get((), (1, 1))


def read(path: Path, error: type[CatalogError] = CatalogError) -> YamlFile:
    """Read a YAML file that holds one mapping.

    Args:
        error: the class of what is raised.

    Raises:
        CatalogError: it is missing, empty, no YAML, no mapping, or repeats a key; with line and column.
    """
    return read_all(path, error, lists=False)[0]


def read_all(path: Path, error: type[CatalogError] = CatalogError, *, lists: bool = True) -> list[YamlFile]:
    """Read a YAML file that holds a mapping or a list of mappings; keys count from the mapping.

    Raises:
        CatalogError: as ``read`` does.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as failure:
        reason = (
            "no such file"
            if isinstance(failure, FileNotFoundError)
            else f"cannot be read: {failure.strerror}"
        )
        raise error(reason, file=path) from None
    except UnicodeDecodeError as failure:
        raise error(f"is not UTF-8 text (byte {failure.start})", file=path) from None
    root = _compose(text, path, error)
    if root is None:
        raise error("the file is empty", file=path)
    if isinstance(root, yaml.SequenceNode) and lists and root.value:
        items = [_mapping(node, path, error, "here stands") for node in root.value]
        return [dataclasses.replace(item, listed=True) for item in items]
    return [_mapping(root, path, error, "the file holds")]


def _mapping(node: Any, path: Path, error: type[CatalogError], where: str) -> YamlFile:
    builder = _Builder(path, error)
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        raise builder.error(f"expected lines of the form key: value, but {where} {kind}", node)
    return YamlFile(path, builder.build(node, ()), builder.keys, builder.values)


def value(text: str, source: str) -> Any:
    """One value, as YAML would read it behind a key; ``source`` says in messages where it stood.

    Raises:
        CatalogError: the text is no YAML.
    """
    place = Path(source)
    root = _compose(text, place, CatalogError)
    return None if root is None else _Builder(place, CatalogError).build(root, ())


def _compose(text: str, path: Path, error: type[CatalogError]) -> Any:
    try:
        return yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as fault:
        if fault.context == "expected a single document in the stream":
            fault.problem = "a second document begins here; write one list, each entry behind a dash"
        mark = fault.problem_mark or fault.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        blamed = text.split("\n")[line - 1 : line] if line else []  # none where the text ends too early
        tab = blamed and re.match(r"[ ]*\t", blamed[0])
        reason = (
            "a tab in the indentation; YAML is indented with spaces"
            if tab
            else f"not valid YAML: {fault.problem or fault.context}"
        )
        raise error(reason, file=path, line=line, column=column) from None
    except yaml.YAMLError as fault:
        raise error(f"not valid YAML: {' '.join(str(fault).split())}", file=path) from None


class _Builder:
    """Turns nodes into JSON data and remembers where each part stood."""

    def __init__(self, path: Path, error: type[CatalogError]) -> None:
        self._path, self._error = path, error
        self.keys: dict[Keys, Place] = {}
        self.values: dict[Keys, Place] = {}
        self._open: set[int] = set()

    def error(self, reason: str, node: Any, key: str | None = None) -> CatalogError:
        line, column = _place(node)
        return self._error(reason, file=self._path, line=line, column=column, key=key)

    def build(self, node: Any, keys: Keys) -> Any:
        self.values[keys] = _place(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in (f"{_TAG}seq", f"{_TAG}map"):
            raise self._unsupported(node)
        if id(node) in self._open:
            raise self.error("an alias stands within the part that it repeats", node)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, (*keys, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, keys)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: Any, keys: Keys) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error("a key must be a word, not a list or a mapping", key_node)
            name = key_node.value
            here = (*keys, name)
            if name in data:
                first = self.keys[here][0]
                raise self.error(f"key {name!r} stands here and in line {first}; keep one", key_node, name)
            self.keys[here] = _place(key_node)
            data[name] = self.build(value_node, here)
        return data

    def _scalar(self, node: Any) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return (
                    int(text, 8)
                    if text.startswith("0o")
                    else int(text, 16)
                    if text[:2] == "0x"
                    else int(text)
                )
            if kind == "float":
                return float(text)
        except (KeyError, ValueError):
            raise self.error(f"{text!r} is no {kind}", node) from None
        if kind != "str":
            raise self._unsupported(node)
        return text

    def _unsupported(self, node: Any) -> CatalogError:
        return self.error(f"tag {node.tag!r} is not supported; write plain YAML", node)


def _place(node: Any) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1
