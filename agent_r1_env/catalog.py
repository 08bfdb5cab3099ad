"""The catalogue: folders of YAML files that declare tools, environments and training recipes.

A catalogue is a folder with ``tools/``, ``envs/`` and ``trainers/`` in it, of which any may be absent.
This package's own is read the same way as a user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from agent_r1_env.errors import CatalogError, unknown_name

if TYPE_CHECKING:
    from agent_r1_env.entry import Entry
    from agent_r1_env.tool import Tool

BUILTIN_NAMESPACE = "AgentR1"
_ENTRY_POINT = "agent_r1_env.making:make_env"
_TOOL_ENTRY_POINT = "agent_r1_env.making:make_tool_env"
_VECTOR_ENTRY_POINTS = {
    _ENTRY_POINT: "agent_r1_env.vector:make_vec_env",
    _TOOL_ENTRY_POINT: "agent_r1_env.vector:make_vec_tool_env",
}
_FOLDERS = {"tool": "tools", "env": "envs", "recipe": "trainers"}
_LIST = re.compile(r"(?:\ufeff|---|#.*|\s)*-\s")  # the first thing in the file is an item


def builtin_root() -> Path:
    """The folder of the catalogue that ships with this package.

    Raises:
        CatalogError: the package was copied without it.
    """
    package = Path(__file__).resolve().parent
    if (package / "_catalog").is_dir():
        return package / "_catalog"
    if (package.parent / "pyproject.toml").is_file() and (package.parent / "tools").is_dir():
        return package.parent
    raise CatalogError(
        f"the catalogue of agent_r1_env is neither in {package / '_catalog'} nor beside a pyproject.toml in "
        f"{package.parent}; install the package with pip instead of copying its folder"
    )


class Catalog:
    """The entries of one folder, read when asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def open(cls, folder: str | Path | None = None) -> Catalog:
        """The catalogue in ``folder``; the built-in one by default.

        Raises:
            CatalogError: there is no such folder, or it holds none of tools/, envs/ and trainers/.
        """
        root = builtin_root() if folder is None else Path(folder).expanduser().resolve()
        if not root.is_dir():
            raise CatalogError("no such folder", file=root)
        if not any((root / name).is_dir() for name in _FOLDERS.values()):
            raise CatalogError("holds none of the folders tools, envs and trainers", file=root)
        return cls(root)

    def names(self, kind: str) -> list[str]:
        """The names of the entries of one kind, "tool", "env" or "recipe", as files may be called by them."""
        return sorted(self._files(kind))

    def tool(self, name: str) -> Entry:
        """The tool of that name in this folder or, if it has none, in the built-in catalogue.

        Raises:
            UnknownName: neither has one.
            CatalogError: its file is wrong.
        """
        try:
            return self._entry("tool", name)
        except LookupError:
            builtin = Catalog(builtin_root())
            if builtin.root == self.root:
                raise
            known = {*self.names("tool"), *builtin.names("tool")}
            if fold(name) not in known:
                raise unknown_name(
                    "tool", name, known, f"{self.root / 'tools'} or the built-in tools"
                ) from None
            return builtin.tool(name)

    def env(self, name: str) -> Entry:
        """The environment of that name; raises as ``tool`` does."""
        return self._entry("env", name)

    def recipe(self, name: str) -> Entry:
        """The training recipe of that name; raises as ``tool`` does."""
        return self._entry("recipe", name)

    def tools_of(self, env: Entry) -> list[Entry]:
        """The entries of the tools that an environment lists, by name or by a file that lies beside it.

        Raises:
            CatalogError: there is no such tool or file, with the line that names it.
        """
        found = []
        for index, name in enumerate(env.data["tools"]):
            try:
                found += _tools_in(env, name) if name.startswith(("./", "../")) else [self.tool(name)]
            except LookupError as unknown:
                raise env.error(str(unknown), "tools", index) from None
        return found

    def check(self) -> list[Entry]:
        """Read every tool and environment and load their code; returns the environments.

        Raises:
            CatalogError: the first thing that is wrong.
        """
        from agent_r1_env.making import check_env_entry
        from agent_r1_env.toolfile import check_tool

        for name in self.names("tool"):
            check_tool(self.tool(name))
        envs = [self.env(name) for name in self.names("env")]
        for env in envs:
            tools = self.tools_of(env)
            for tool in tools:
                check_tool(tool)
            _check_tool_config(env, tools)
            config = env.get("tasks", "config") or {}
            env.check_config(env.target("tasks", "load"), config, "tasks", "config")
            check_env_entry(env)
            for policy in env.data["policies"]:
                env.target("policies", policy)
        return envs

    def _entry(self, kind: str, name: str) -> Entry:
        from agent_r1_env.entry import read_entry

        files = self._files(kind)
        if fold(name) not in files:
            raise unknown_name(kind, name, files, str(self.root / _FOLDERS[kind]))
        return read_entry(kind, *files[fold(name)])

    def _files(self, kind: str) -> dict[str, tuple[Path, int | None]]:
        """Where each entry stands: a file, and the item in it if it holds a list of tools."""
        files: dict[str, tuple[Path, int | None]] = {}
        for path in sorted((self.root / _FOLDERS[kind]).glob("*.y*ml")):
            if path.suffix != ".yaml":
                raise CatalogError(f"entries end in .yaml; rename it to {path.stem}.yaml", file=path)
            for name, item in _listed(path) if kind == "tool" else [(path.stem, None)]:
                if fold(name) in files:
                    other = files[fold(name)][0].name
                    raise CatalogError(f"{name!r} stands here and in {other}; keep one", file=path)
                files[fold(name)] = path, item
        return files


def load_tool(entry: Entry, tasks: Any = None, overrides: dict[str, Any] | None = None) -> Tool:
    """See ``toolfile.load_tool``."""
    from agent_r1_env import toolfile

    return toolfile.load_tool(entry, tasks, overrides)


def load_tools(entry: Entry, tasks: Any = None, overrides: dict[str, Any] | None = None) -> list[Tool]:
    """See ``toolfile.load_tools``."""
    from agent_r1_env import toolfile

    return toolfile.load_tools(entry, tasks, overrides)


def register(folder: str | Path, namespace: str) -> list[str]:
    """Register every environment and every tool of a folder with Gymnasium.

    An environment becomes ``namespace/name-vN``, a tool ``namespace/NameTool-vN``. The whole folder is
    checked first, so that a mistake shows here and not in a training run. Environments read the folder again
    when they are made: its later changes count.

    Args:
        folder: holds ``tools/``, ``envs/``, ``trainers/``, or some of them.
        namespace: letters, digits, ``_`` and ``-``.

    Returns:
        The ids, for ``gymnasium.make``.

    Raises:
        CatalogError: an entry is wrong, or another folder has registered the same id.
        ValueError: the namespace is malformed or reserved.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]+", namespace) is None:
        raise ValueError(f"a namespace is made of letters, digits, '_' and '-', got {namespace!r}")
    if namespace == BUILTIN_NAMESPACE:
        raise ValueError(f"the namespace {BUILTIN_NAMESPACE!r} is taken by the built-in environments")
    catalog = Catalog.open(folder)
    envs = [(env.name, env.name, env.data["version"]) for env in catalog.check()]
    tools = [
        (tool_env_name(tool.name), tool.name, _number(tool.data["version"]))
        for tool in map(catalog.tool, catalog.names("tool"))
        if "mcp" not in tool.data
    ]
    ids = _register(envs, namespace, catalog.root, _ENTRY_POINT)
    return ids + _register(tools, namespace, catalog.root, _TOOL_ENTRY_POINT)


def register_builtin() -> list[str]:
    """Register what ships with this package, by the two lines of each file that it needs.

    Their files are read in full, and checked, when an environment is made.
    """
    root = builtin_root()
    # Without a folder in it, the spec means the same on every machine that has this package.
    envs = [
        (name, name, version)
        for name, version in map(_name_and_version, sorted((root / "envs").glob("*.yaml")))
    ]
    tools = [
        (tool_env_name(name), name, version)
        for name, version in map(_name_and_version, sorted((root / "tools").glob("*.yaml")))
    ]
    ids = _register(envs, BUILTIN_NAMESPACE, None, _ENTRY_POINT)
    return ids + _register(tools, BUILTIN_NAMESPACE, None, _TOOL_ENTRY_POINT)


def tool_env_name(tool: str) -> str:
    """The name of a tool as an environment: check_answer is CheckAnswerTool."""
    words = re.split(r"[_-]+", tool)
    return "".join(word[:1].upper() + word[1:] for word in words) + "Tool"


def tool_env_id(namespace: str, tool: str, version: Any) -> str:
    """The id under which a tool is registered as an environment."""
    return f"{namespace}/{tool_env_name(tool)}-v{_number(version)}"


def _number(version: Any) -> int:
    """The version of a tool as one of Gymnasium, which are whole numbers."""
    return int(version) if str(version).isdecimal() else 0


def _register(
    named: Iterable[tuple[str, str, int]], namespace: str, root: Path | None, entry_point: str
) -> list[str]:
    """Register (name in the id, name of the entry, version) with Gymnasium."""
    ids = []
    for name, entry, version in named:
        env_id = f"{namespace}/{name}-v{version}"
        kwargs = {"entry": f"{namespace}/{entry}", "folder": None if root is None else str(root)}
        known = gym.registry.get(env_id)
        if known is not None and (known.entry_point, known.kwargs) != (entry_point, kwargs):
            owner = known.kwargs.get("folder", known.entry_point)
            raise CatalogError(
                f"{env_id} is registered already, by {owner}; choose another namespace", file=root
            )
        if known is None:
            gym.register(
                env_id,
                entry_point=entry_point,
                vector_entry_point=_VECTOR_ENTRY_POINTS[entry_point],
                kwargs=kwargs,
            )
        ids.append(env_id)
    return ids


def _check_tool_config(env: Entry, tools: Iterable[Entry]) -> None:
    """Make sure that the tools of an environment take what it configures.

    Raises:
        CatalogError: one does not, or is no tool of it; with its line.
    """
    from agent_r1_env.toolfile import check_tool

    named = {tool.name: tool for tool in tools}
    for name, config in env.get("tool_config").items():
        if name not in named:
            raise env.error(str(unknown_name("tool", name, named)), "tool_config", name, of_key=True)
        tool = named[name]
        try:
            check_tool(tool.changed({**tool.data, "config": {**tool.get("config"), **config}}))
        except CatalogError as fault:
            raise env.error(str(fault), "tool_config", name, of_key=True) from None


def _tools_in(env: Entry, name: str) -> list[Entry]:
    """The entries in a file of tools that belong to one environment alone.

    Raises:
        UnknownName: there is no such file.
        CatalogError: it is wrong.
    """
    from agent_r1_env.entry import read_entry

    path = (env.path.parent / name).resolve()
    if not path.is_file():
        near = [str(other.relative_to(env.path.parent)) for other in env.path.parent.glob("*/*.yaml")]
        raise unknown_name("file", name, [f"./{other}" for other in near], str(env.path.parent))
    return [read_entry("tool", path, item) for _, item in _listed(path)]


def _listed(path: Path) -> list[tuple[str, int | None]]:
    """The names of the tools in a file, each with its place if it holds a list of them."""
    if not _LIST.match(path.read_text("utf-8", "replace")):
        return [(path.stem, None)]
    from agent_r1_env import yamlfile

    items = enumerate(yamlfile.read_all(path))
    return [(str(item.data.get("name", f"{path.stem}[{index}]")), index) for index, item in items]


def _name_and_version(path: Path) -> tuple[str, int]:
    head = path.read_text("utf-8")
    name = re.search(r"(?m)^name:\s*[\"']?([\w.-]+)", head)
    version = re.search(r"(?m)^version:\s*(\d+)", head)
    return name[1] if name else path.stem, int(version[1]) if version else 0


def fold(name: str) -> str:
    """A name as the stem of a file may spell it: HotpotQA lies in hotpotqa.yaml."""
    return name.casefold().replace("-", "_")
