"""The tools of a server of the Model Context Protocol: ``mcp:`` in a tool's file says how to reach it."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent_r1_env import placeholders, workers
from agent_r1_env.addresses import check_address
from agent_r1_env.entry import Entry
from agent_r1_env.errors import ToolError, TransientError, hint
from agent_r1_env.mcp_connection import NoServer, Server, give, take
from agent_r1_env.mcp_result import as_shown
from agent_r1_env.parameters import check_parameters
from agent_r1_env.schematree import SchemaFault
from agent_r1_env.tool import Tool

if TYPE_CHECKING:
    import mcp_types

logger = logging.getLogger(__name__)


def check(entry: Entry) -> None:
    """Check how a server is reached, without reaching it.

    Raises:
        CatalogError: an address, file or name that is none, or a key that the server says itself.
    """
    said = entry.get("mcp")
    placeholders.check(entry, "mcp", set())
    for key in ("parameters", "description"):
        if key in entry.data:
            raise entry.error(f"key {key!r} stands beside mcp, whose server says it", key, of_key=True)
    for key, other in (("env", "url"), ("headers", "command")):
        if key in said and other in said:
            raise entry.error(f"key {key!r} means nothing beside {other!r}", "mcp", key, of_key=True)
    for keys, name in placeholders.names({key: said[key] for key in ("command", "url") if key in said}):
        if name.startswith("secrets."):
            better = "headers" if "url" in said else "env; the server finds it in its environment anyway"
            raise entry.error(f"{{{name}}} would be seen by others here; use {better}", "mcp", *keys)
    if "url" in said:
        check_address(entry, "mcp", "url")
    elif said["command"][0].startswith("./") and not (entry.path.parent / said["command"][0]).is_file():
        raise entry.error(f"no file {said['command'][0]} beside this one", "mcp", "command", 0)


def load(entry: Entry, limits: Mapping[str, Any]) -> list[Tool]:
    """The tools of a server, or those that the file chooses. Each must be closed.

    Args:
        limits: arguments of ``Tool`` that all of them share.

    Raises:
        CatalogError: the server cannot be reached, has no such tool, or two that would be named alike.
        MissingExtra: mcp is not installed.
    """
    check(entry)
    server = Server.of(entry)
    connection = take(server)
    try:
        try:
            listed = connection.tools()
        except NoServer as failure:
            raise entry.error(str(failure), "mcp", "command" if server.command else "url") from failure
        chosen = list(_chosen(entry, listed))
        return [_tool(entry, server, name, tool, limits) for name, tool in chosen]
    finally:
        give(connection)


def _chosen(entry: Entry, listed: list[mcp_types.Tool]) -> Iterator[tuple[str, mcp_types.Tool]]:
    """The tools that the file asks for, each with the name that the model reads."""
    asked, known = entry.get("mcp", "tools"), {tool.name: tool for tool in listed}
    if asked == "all":
        asked = list(known)
    if not asked:
        raise entry.error("the server has no tools", "mcp", of_key=True)
    taken: dict[str, str] = {}
    for index, name in enumerate(asked):
        if name not in known:
            raise entry.error(f"the server has no tool {name!r}{hint(name, known)}", "mcp", "tools", index)
        valid = re.sub(r"[^A-Za-z0-9_-]", "_", entry.get("mcp", "prefix") + name)[:64]
        twin = taken.setdefault(valid.lower(), name)
        if twin != name:
            reason = f"{twin!r} and {name!r} of the server would both be named {valid!r}; choose one of them"
            raise entry.error(reason, "mcp", "tools", of_key=True)
        yield valid, known[name]


def _tool(
    entry: Entry,
    server: Server,
    name: str,
    listed: mcp_types.Tool,
    limits: Mapping[str, Any],
) -> Tool:
    call = ServerTool(server, listed.name)
    return Tool(
        name,
        listed.description or listed.title or "",
        listed.input_schema,
        call,
        close=call.close,
        accepts=_accepted(name, listed.input_schema),
        version=str(entry.get("version")),
        owner=json.dumps([str(entry.path), entry.name, entry.get("config")], sort_keys=True, default=str),
        **limits,
    )


def _accepted(name: str, schema: dict[str, Any]) -> dict[str, Any] | None:
    """What calls are checked with, where a server's schema is not what we would take for one."""
    accepted = json.loads(json.dumps(schema))
    if "properties" not in accepted and "$ref" not in accepted:
        accepted.setdefault("additionalProperties", True)
    accepted.setdefault("type", "object")
    while True:
        try:
            check_parameters(accepted)
        except SchemaFault as fault:
            if not fault.path or fault.path[-1] != "default":
                logger.warning(
                    "the schema of %s is unsound, so its server alone checks calls: %s", name, fault
                )
                return {"type": "object", "additionalProperties": True}
            functools.reduce(lambda part, key: part[key], fault.path[:-1], accepted).pop("default")
        else:
            return None if accepted == schema else accepted


class ServerTool:
    """Calls one tool of a server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._connection, self._name = server, take(server), name
        self._closed = False

    async def __call__(self, /, **arguments: Any) -> str:
        """Call the tool.

        Raises:
            TransientError: the server is gone, or cannot be reached; the next call starts anew.
            ToolError: the tool failed, or the server refuses the call.
        """
        ask = functools.partial(self._connection.call, self._name, arguments)
        try:
            result = await asyncio.wrap_future(workers.spawn(ask, loop="mcp"))
        except NoServer as failure:
            logger.warning("the server of %s cannot be reached: %s", self._server.name, failure)
            raise TransientError(f"the server of {self._name} cannot be reached") from failure
        except ToolError as error:
            error.args = tuple(self._server.veiled(text) for text in error.args)
            raise
        text = self._server.veiled(as_shown(result))
        if result.is_error:
            raise ToolError(text)
        return text

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        if not self._closed:
            self._closed = True
            give(self._connection)
