"""``agent-r1 tools``: check, list and show the tools of a catalogue, and call one of them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_r1_env.catalog import BUILTIN_NAMESPACE, Catalog, builtin_root, fold, tool_env_id
from agent_r1_env.errors import CatalogError, UnknownName, unknown_name

if TYPE_CHECKING:
    from agent_r1_env.entry import Entry
    from agent_r1_env.tool import Tool

BACKENDS = ("run", "http", "mcp", "process")
Write = Callable[[str], object]


def check(folder: str, write: Write = print) -> int:
    """Print every fault in the tools of a folder, one a line, as ``file:line:column: reason``.

    Args:
        folder: a catalogue, the folder tools/ in it, or one file.

    Returns:
        0 if there is none, else 1.

    Raises:
        CatalogError: there is no such folder, or no tool in it.
    """
    faults: list[CatalogError] = []
    count = 0
    seen: dict[str, CatalogError] = {}
    for path in _files(folder):
        for name, fault, found in _checked(path):
            count += 1
            faults += found
            if fold(name) in seen:
                other = seen[fold(name)]
                twin = fault(f"{name!r} stands here and in {_near(str(other.file))}:{other.line}; keep one")
                faults.append(twin)
            elif name:
                seen[fold(name)] = fault("")
    for each in faults:
        write(_near(str(each)))
    if faults:
        print(f"{_number(len(faults), 'fault')} in {_number(count, 'tool')}", file=sys.stderr)
        return 1
    write(f"{_number(count, 'tool')} checked, no faults")
    return 0


def show_all(folder: str | None, namespace: str, *, as_json: bool = False, write: Write = print) -> int:
    """Print every tool: those of a folder, which is registered under ``namespace``, and the built-in ones."""
    groups = [_Rows(Path(folder).expanduser().resolve(), namespace)] if folder is not None else []
    groups.append(_Rows(builtin_root(), BUILTIN_NAMESPACE))
    if as_json:
        write(json.dumps([row for group in groups for row in group.rows], indent=2))
        return 0
    blocks = []
    for group in groups:
        table = [("NAME", "BACKEND", "ENVIRONMENT", "DESCRIPTION"), *map(_cells, group.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, (*widths, 0), strict=True)).rstrip()
            for row in table
        ]
        blocks.append("\n".join([f"{group.root / 'tools'}:", *(lines if group.rows else ["no tools"])]))
    write("\n\n".join(blocks))
    return 0


def show(
    name: str, folder: str | None, namespace: str, *, as_json: bool = False, write: Write = print
) -> int:
    """Print all that there is to know about one tool; a server is asked for its tools.

    Raises:
        UnknownName: there is no such tool.
        CatalogError: its file is wrong, or its server cannot be reached.
    """
    found = list(_described(_entry(name, folder), namespace))
    if as_json:
        write(json.dumps(found[0] if len(found) == 1 else found, indent=2))
        return 0
    write("\n\n".join(map(_page, found)))
    return 0


def call(
    name: str,
    arguments: str,
    folder: str | None,
    *,
    config: Mapping[str, Any],
    seed: int,
    as_json: bool = False,
) -> tuple[int, str]:
    """Run one tool once, with all of its limits.

    Args:
        arguments: a JSON object, or plain text where the tool has one argument and it is a string; "-" reads
            them from standard input.

    Returns:
        The exit status, 1 for a call that failed, and what the model would read or, as JSON, all of the
        record.

    Raises:
        UnknownName: there is no such tool.
        CatalogError: its file is wrong, or it cannot be built.
    """
    from agent_r1_env.messages import ToolResult, record_of
    from agent_r1_env.tool_env import SingleToolEnv

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if arguments == "-" else arguments
    tool = _tool(name, folder, config)
    if tool.max_result_tokens is not None:
        print("note: max_result_tokens is not applied, for there is no tokenizer here", file=sys.stderr)
        tool = dataclasses.replace(tool, max_result_tokens=None)
    env = SingleToolEnv(tool)
    try:
        env.reset(seed=seed)
        env.step(text)
        result = cast(ToolResult, env.result)
    finally:
        env.close()
    shown = json.dumps(record_of(result), indent=2, ensure_ascii=False) if as_json else result.content
    return (0 if result.ok else 1), shown


def schema() -> dict[str, Any]:
    """The JSON Schema of a file in tools/, for editors: one tool, or a list of them."""
    from agent_r1_env.entry import entry_schema

    tool = dict(entry_schema("tool"))
    return {
        "$schema": tool.pop("$schema"),
        "title": "Tools of an agent-r1-env catalogue",
        "if": {"type": "array"},
        "then": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tool"}},
        "else": {"$ref": "#/$defs/tool"},
        "$defs": {"tool": tool},
    }


class _Rows:
    """What ``tools list`` tells of one folder."""

    def __init__(self, root: Path, namespace: str) -> None:
        self.root, self.namespace = root, namespace
        catalog = Catalog.open(root)
        self.rows = [self._row(catalog, name) for name in catalog.names("tool")]

    def _row(self, catalog: Catalog, name: str) -> dict[str, Any]:
        try:
            entry = catalog.tool(name)
            text = entry.get("description") or _told(entry)
        except CatalogError as fault:
            row = {"name": name, "description": f"broken: {fault}", "backend": None, "environment": None}
            return {**row, "file": str(fault.file)}
        return {
            "name": entry.name,
            "description": " ".join(text.split()),
            "backend": _backend(entry),
            "environment": _env_id(entry, self.namespace),
            "file": str(entry.path),
        }


def _told(entry: Entry) -> str:
    from agent_r1_env.toolfile import outline

    return "the tools of a server" if "mcp" in entry.data else outline(entry).description


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    sentence = re.split(r"(?<=[.:]) ", row["description"], maxsplit=1)[0]
    return row["name"], row["backend"] or "-", row["environment"] or "-", sentence


def _described(entry: Entry, namespace: str) -> Iterator[dict[str, Any]]:
    from agent_r1_env.toolfile import load_tools, outline
    from agent_r1_env.toollimits import LIMITS, secrets_of

    common = {
        "backend": _backend(entry),
        "environment": _env_id(entry, namespace),
        "file": str(entry.path),
        "version": str(entry.get("version")),
        "config": entry.get("config"),
        "secrets": secrets_of(entry),
    }
    if "mcp" not in entry.data:
        found = outline(entry)
        limits = {key: _plain(found.limits[key]) for key in LIMITS}
        function = {"name": entry.name, "description": found.description, "parameters": found.parameters}
        told = {"name": entry.name, "description": found.description, **common, "limits": limits}
        yield {**told, "schema": {"type": "function", "function": function}}
        return
    tools = load_tools(entry)
    try:
        for tool in tools:
            limits = {key: _plain(getattr(tool, key)) for key in LIMITS}
            told = {"name": f"{entry.name}/{tool.name}", "description": tool.description, **common}
            yield {**told, "limits": limits, "schema": tool.schema()}
    finally:
        _close(tools)


def _page(found: Mapping[str, Any]) -> str:
    limits = {key: value for key, value in found["limits"].items() if value not in (None, {"times": 0})}
    rows = {
        "backend": found["backend"],
        "environment": found["environment"]
        or "none: environments are made of tools that are known beforehand",
        "file": found["file"],
        "version": found["version"],
        "config": json.dumps(found["config"], ensure_ascii=False) if found["config"] else "",
        "secrets": ", ".join(f"{name} from {variable}" for name, variable in found["secrets"].items()),
        "limits": ", ".join(f"{key} {_short(value)}" for key, value in limits.items()),
    }
    lines = [f"{name + ':':13}{text}" for name, text in rows.items() if text]
    schema = json.dumps(found["schema"], indent=2, ensure_ascii=False)
    return "\n".join([f"{found['name']}: {found['description']}", "", *lines, "", schema])


def _plain(value: Any) -> Any:
    """A limit as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {key: part for key, part in dataclasses.asdict(value).items() if part != math.inf}
        return {"times": 0} if fields.get("times") == 0 else fields
    return f"{value.__module__}:{value.__qualname__}" if callable(value) else value


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_short(part)}" for key, part in value.items()) + ")"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _backend(entry: Entry) -> str:
    key = next(key for key in BACKENDS if key in entry.data)
    return "python" if key == "run" else key


def _env_id(entry: Entry, namespace: str) -> str | None:
    if "mcp" in entry.data:
        return None
    builtin = entry.path.is_relative_to(builtin_root() / "tools")
    return tool_env_id(BUILTIN_NAMESPACE if builtin else namespace, entry.name, entry.data["version"])


def _entry(name: str, folder: str | None) -> Entry:
    """The tool of that name, or in that file."""
    from agent_r1_env.entry import read_entry

    if name.endswith((".yaml", ".yml")):
        return read_entry("tool", Path(name).expanduser())
    try:
        return Catalog.open(folder).tool(name.partition("/")[0])
    except UnknownName as unknown:
        if folder is not None:
            raise
        raise UnknownName(f"{unknown}; --register FOLDER finds those of a folder of your own") from None


def _tool(name: str, folder: str | None, config: Mapping[str, Any]) -> Tool:
    """The tool of that name; ``server/tool`` for one of several."""
    from agent_r1_env.toolfile import load_tools

    entry = _entry(name, folder)
    tools = load_tools(entry, None, {"config": dict(config)})
    wanted = "" if name.endswith((".yaml", ".yml")) else name.partition("/")[2]
    chosen = [tool for tool in tools if tool.name == wanted] if wanted else tools
    if len(chosen) == 1:
        _close([tool for tool in tools if tool is not chosen[0]])
        return chosen[0]
    _close(tools)
    known = [f"{entry.name}/{tool.name}" for tool in tools]
    if wanted:
        raise unknown_name("tool", name, known)
    raise entry.error(f"declares {len(tools)} tools; call one of {', '.join(known)}")


def _close(tools: list[Tool]) -> None:
    from agent_r1_env.toolbox import Toolbox

    for tool in tools:
        Toolbox([dataclasses.replace(tool, max_result_tokens=None)]).close()


def _files(folder: str) -> list[Path]:
    path = Path(folder).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CatalogError("no such folder", file=path)
    where = path / "tools" if (path / "tools").is_dir() else path
    files = sorted(where.glob("*.y*ml"))
    if not files:
        raise CatalogError("holds no .yaml file; a tool is declared in tools/NAME.yaml", file=where)
    return files


def _checked(path: Path) -> Iterator[tuple[str, Callable[[str], CatalogError], list[CatalogError]]]:
    """Each tool in a file: its name, what makes an error about that name, and what is wrong with it."""
    from agent_r1_env import yamlfile
    from agent_r1_env.entry import entry_faults, read_entry
    from agent_r1_env.toolfile import faults

    path = path.absolute()

    def whole(reason: str) -> CatalogError:
        return CatalogError(reason, file=path)

    if path.suffix != ".yaml":
        yield "", whole, [whole(f"entries end in .yaml; rename it to {path.stem}.yaml")]
        return
    try:
        items = yamlfile.read_all(path)
    except CatalogError as fault:
        yield "", whole, [fault]
        return
    for index, file in enumerate(items):
        line, column = file.place(("name",))
        named = len(items) == 1 and not file.listed

        def about(reason: str, line: int = line, column: int = column) -> CatalogError:
            return CatalogError(reason, file=path, line=line, column=column, key="name")

        found = entry_faults("tool", file, named=named)
        if not found:
            found = faults(read_entry("tool", path, None if named else index))
        yield str(file.data.get("name", "")), about, found


def _near(text: str) -> str:
    """A message with its file as seen from here."""
    return text.removeprefix(f"{Path.cwd()}/")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
