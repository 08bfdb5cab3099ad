"""A catalogue entry: one YAML file, checked against the JSON Schema of its kind."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_r1_env import yamlfile
from agent_r1_env.catalog import fold
from agent_r1_env.errors import CatalogError, RecipeError, hint, nearest
from agent_r1_env.loading import TargetFault, load_target
from agent_r1_env.signature import signature_of
from agent_r1_env.validation import validator, with_defaults
from agent_r1_env.wording import constraint, found, meant_branch, shown


@dataclass(frozen=True, eq=False)
class Entry:
    """One tool, environment or recipe, as its file declares it.

    Attributes:
        kind: "tool", "env" or "recipe".
        data: what the file says, with the defaults of the schema; shared, so copy before changing it.
    """

    kind: str
    name: str
    file: yamlfile.YamlFile = field(repr=False)
    data: dict[str, Any] = field(repr=False)

    @property
    def path(self) -> Path:
        return self.file.path

    def error(self, reason: str, *keys: str | int, of_key: bool = False) -> CatalogError:
        """The error to raise about the value at ``keys`` (or about the key itself), with its place."""
        return _error(self.kind, self.file, reason, keys, of_key)

    def get(self, *keys: str | int) -> Any:
        """The value at ``keys``, or None. Text in a config that begins with ./ is made absolute."""
        value: Any = self.data
        for key in keys:
            if isinstance(value, dict):
                value = value.get(key)
            else:
                value = value[key] if isinstance(value, list) and isinstance(key, int) else None
        return self._absolute(value) if {"config", "tool_config"} & set(keys) else value

    def target(self, *keys: str | int) -> Any:
        """The Python object that the text at ``keys`` names.

        Raises:
            CatalogError: it names none; the message says what is missing and what is near.
        """
        try:
            return load_target(str(self.get(*keys)), self.path.parent)
        except TargetFault as fault:
            raise self.error(str(fault), *keys) from fault.__cause__

    def changed(self, data: dict[str, Any]) -> Entry:
        """The entry with other data, checked as the file was; ``file`` stays as it is.

        Raises:
            CatalogError: the data don't fit the schema; placed where the file has the nearest key.
        """
        for fault in _misfits(self.kind, dataclasses.replace(self.file, data=data)):
            raise fault
        return dataclasses.replace(self, data=data)

    def check_config(
        self, target: Any, config: Mapping[str, Any], *keys: str, filled: Collection[str] = ()
    ) -> None:
        """Make sure that ``target`` takes every key of ``config``, which stands at ``keys``.

        Args:
            filled: names that somebody else fills in, so that they are no use in ``config``.

        Raises:
            CatalogError: it does not take one, with the nearest that it takes.
        """
        parameters = signature_of(target)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return
        known = [name for name in parameters if name not in filled]
        for key in config:
            if key not in known:
                name = getattr(target, "__name__", type(target).__name__)
                raise self.error(f"{name} takes no {key!r}{hint(key, known)}", *keys, key, of_key=True)

    def _absolute(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(("./", "../")):
            return str((self.path.parent / value).resolve())
        if isinstance(value, dict):
            return {key: self._absolute(part) for key, part in value.items()}
        return [self._absolute(part) for part in value] if isinstance(value, list) else value


def read_entry(kind: str, path: Path, item: int | None = None) -> Entry:
    """Read and check one file, or one item of the list in it.

    Raises:
        CatalogError: the file doesn't fit; a RecipeError if it is a recipe.
    """
    path = path.absolute()
    try:
        status = path.stat()
    except OSError:
        return _read(kind, path, item, 0, 0)
    return _read(kind, path, item, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=256)
def _read(kind: str, path: Path, item: int | None, modified: int, size: int) -> Entry:
    """``read_entry``, once for each state of the file: a batch of environments reads it once."""
    error = _error_class(kind)
    file = yamlfile.read(path, error) if item is None else yamlfile.read_all(path, error)[item]
    for fault in entry_faults(kind, file, named=item is None):
        raise fault
    check = validator(json.dumps(entry_schema(kind)))
    return Entry(kind, file.data["name"], file, with_defaults(copy.deepcopy(file.data), check))


def entry_faults(kind: str, file: yamlfile.YamlFile, *, named: bool = True) -> list[CatalogError]:
    """All that can be told to be wrong without the code behind an entry, what explains most first.

    Args:
        named: the file is called by the name of the entry.
    """
    faults = _misfits(kind, file)
    if not faults and named and fold(name := file.data["name"]) != fold(file.path.stem):
        reason = f"the name is {name!r}, but the file is called {file.path.name}; name both alike"
        faults.append(_error(kind, file, reason, ("name",)))
    return faults


@functools.cache
def entry_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of entry, as it is shipped for editors."""
    path = Path(__file__).parent / "schemas" / f"{kind}.json"
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema


def _misfits(kind: str, file: yamlfile.YamlFile) -> list[CatalogError]:
    schema = entry_schema(kind)
    errors = validator(json.dumps(schema)).iter_errors(file.data)
    faults = [fault for error in errors for fault in _faults(error, schema)]
    # A misspelt key explains the missing one beside it.
    misspelt = {keys[:-1] for what, _, keys in faults if what == "unknown"}
    faults = [fault for fault in faults if fault[0] != "missing" or fault[2] not in misspelt]
    rank = {"unknown": 0, "missing": 1}
    faults.sort(key=lambda fault: (rank.get(fault[0], 2), file.place(fault[2], True)))
    return [
        _error(
            kind, file, reason if what != "unknown" else _whence(reason, keys, file), keys, what == "unknown"
        )
        for what, reason, keys in faults
    ]


def _whence(reason: str, keys: yamlfile.Keys, file: yamlfile.YamlFile) -> str:
    """The reason, with the whole key where no line of the file has it: it came from whoever changed it."""
    return reason if keys in file.keys else f"{'.'.join(map(str, keys))}, set from outside: {reason}"


def _faults(error: Any, root: Mapping[str, Any]) -> list[tuple[str, str, yamlfile.Keys]]:
    """What one validation error says, in our words: its kind, the reason, and the keys to blame."""
    keys: yamlfile.Keys = tuple(error.absolute_path)
    schema, given = error.schema, error.instance
    if error.validator == "additionalProperties" and isinstance(error.validator_value, bool):
        known = schema.get("properties", {})
        return [("unknown", _unknown(name, known), (*keys, name)) for name in given if name not in known]
    if "propertyNames" in error.schema_path and error.validator == "enum":
        return [("unknown", _unknown(given, dict.fromkeys(error.validator_value)), (*keys, given))]
    if error.validator == "anyOf" and (meant := meant_branch(error)):
        return [fault for inner in meant for fault in _faults(inner, root)]
    if error.validator == "required":
        return [
            ("missing", _missing(name, keys, schema), keys)
            for name in schema["required"]
            if name not in given
        ]
    subject = f"key {_dotted(keys)}" if keys else "the file"
    choices = [part.get("required") for part in error.validator_value] if error.validator == "oneOf" else []
    if choices and all(choices):
        return [_alternatives([name for choice in choices for name in choice], given, keys)]
    return [("wrong", f"{subject} must be {constraint(error, root)}, but it is {found(given)}", keys)]


def _alternatives(
    names: list[str], given: Mapping[str, Any], keys: yamlfile.Keys
) -> tuple[str, str, yamlfile.Keys]:
    """What is wrong where exactly one of several keys is asked for."""
    if both := [name for name in names if name in given]:
        return "wrong", f"keys {' and '.join(map(repr, both))} stand together; keep one", (*keys, both[1])
    return "missing", f"one of the keys {', '.join(map(repr, names))} is missing", keys


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    guess = nearest(name, known)
    return f"unknown key {name!r}" + (
        f"; did you mean {guess!r}?" if guess else f"; known: {', '.join(known)}"
    )


def _missing(name: str, keys: yamlfile.Keys, schema: Mapping[str, Any]) -> str:
    told = schema.get("properties", {}).get(name, {}).get("description")
    within = f" of {_dotted(keys)}" if keys else ""
    return f"key {name!r}{within} is missing" + (f"; it is {told}" if told else "")


def _dotted(keys: yamlfile.Keys) -> str:
    return shown(".".join(str(key) for key in keys))


def _error(
    kind: str, file: yamlfile.YamlFile, reason: str, keys: yamlfile.Keys, of_key: bool = False
) -> CatalogError:
    line, column = file.place(keys, of_key)
    key = ".".join(str(part) for part in keys) or None
    return _error_class(kind)(reason, file=file.path, line=line, column=column, key=key)


def _error_class(kind: str) -> type[CatalogError]:
    return RecipeError if kind == "recipe" else CatalogError
