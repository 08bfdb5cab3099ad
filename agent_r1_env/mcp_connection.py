"""Connections to servers of the Model Context Protocol.

One connection serves every tool and environment of a process that names the same server in the same way. It
is kept in one task on a loop of our own, for it outlives the loops that tools run on.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_r1_env import placeholders, workers
from agent_r1_env.addresses import without_user
from agent_r1_env.entry import Entry
from agent_r1_env.errors import ToolError, TransientError, missing_extra
from agent_r1_env.mcp_stdio import Tail, kill_all, stdio
from agent_r1_env.toollimits import filled_secrets, secrets_of

if TYPE_CHECKING:
    import mcp_types
    from mcp.client import Client

logger = logging.getLogger(__name__)

_PAGES = 100
"""Pages of tools that a server may list; it cannot keep us for ever."""
_CLOSING = 8.0
_GONE = ("Session terminated",)


class NoServer(Exception):
    """A server did not start, or does not speak the protocol; the text is for the developer."""


@dataclass(frozen=True)
class Server:
    """How a server is reached."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = field(default_factory=dict, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    startup: float = 60.0

    @classmethod
    def of(cls, entry: Entry) -> Server:
        said, secrets = entry.get("mcp"), filled_secrets(entry)
        filled = placeholders.filled(said, {"secrets": secrets, "config": entry.get("config")})
        common: dict[str, Any] = {
            "name": entry.name,
            "secrets": tuple(secrets.values()),
            "startup": said["startup"],
        }
        if "url" in said:
            url, user = without_user(filled["url"])
            headers = {name: placeholders.word(value) for name, value in filled.get("headers", {}).items()}
            return cls(url=url, headers=({"Authorization": user} if user else {}) | headers, **common)
        words = [placeholders.word(each) for each in filled["command"]]
        words = [str(entry.path.parent / each) if each.startswith("./") else each for each in words]
        env = filled.get("env", [])
        if isinstance(env, list):
            env = {name: os.environ[name] for name in env if name in os.environ}
        given = {variable: secrets[name] for name, variable in secrets_of(entry).items()}
        return cls(
            command=tuple(words),
            env=given | {name: placeholders.word(value) for name, value in env.items()},
            **common,
        )

    def veiled(self, text: str) -> str:
        return placeholders.veiled(text, self.secrets)

    @contextlib.asynccontextmanager
    async def client(self, tail: Tail, ended: Any) -> AsyncIterator[Client]:
        """A client that has shaken hands."""
        from mcp.client import Client
        from mcp.client.stdio import get_default_environment
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        async with contextlib.AsyncExitStack() as stack:
            if self.command:
                transport = stdio(self.command, get_default_environment() | self.env, tail, ended)
            else:
                http = await stack.enter_async_context(create_mcp_http_client(headers=self.headers))
                transport = streamable_http_client(self.url, http_client=http)
            yield await stack.enter_async_context(Client(transport))


class Connection:
    """A session with a server, begun when it is first used, and anew when it has ended.

    Everything but ``tools`` and ``close`` runs on one loop.

    Attributes:
        users: how many tools need it.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.users = 0
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[tuple[Client, list[mcp_types.Tool]]]
        self._stop: asyncio.Event

    def tools(self) -> list[mcp_types.Tool]:
        """What the server lists.

        Raises:
            NoServer: it cannot be reached.
        """
        return workers.spawn(self._session, loop="mcp").result()[1]

    def close(self) -> None:
        """End the session and the process of the server."""
        with contextlib.suppress(TimeoutError):
            workers.spawn(self._end, loop="mcp").result(_CLOSING)

    async def call(self, name: str, arguments: dict[str, Any]) -> mcp_types.CallToolResult:
        """Call a tool; raises as ``ServerTool`` does."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        client, _ = await self._session()
        try:
            return await client.call_tool(name, arguments)
        except MCPError as error:
            if error.message in _GONE:
                self._stop.set()
            if error.message in _GONE or error.code == CONNECTION_CLOSED:
                raise TransientError(f"the server of {name} failed: {error.message}") from error
            raise ToolError(error.message) from error
        except (ValidationError, RuntimeError) as error:
            raise ToolError(
                f"the server of {name} gave an answer that is not of the form it declares"
            ) from error

    async def _session(self) -> tuple[Client, list[mcp_types.Tool]]:
        loop = asyncio.get_running_loop()
        if (
            self._task is None
            or self._task.done()
            or self._task.get_loop() is not loop
            or self._stop.is_set()
        ):
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
            self._task = loop.create_task(self._serve(self._ready, self._stop))
        # Shielded: whoever gives up waiting must not take the session from the others.
        return await asyncio.shield(self._ready)

    async def _serve(self, ready: asyncio.Future[Any], stop: asyncio.Event) -> None:
        """Hold the session from its beginning to its end, all in this one task, as the SDK wants it."""
        tail = Tail()
        failure: Exception | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._server.startup):
                    client = await stack.enter_async_context(self._server.client(tail, stop.set))
                    tools = await _listed(client)
                ready.set_result((client, tools))
                await stop.wait()
        except Exception as raised:  # whatever a transport raises, in groups
            failure = raised
        if not ready.done():
            ready.set_exception(NoServer(self._told(failure, tail)))
        elif self.users and tail.lines():
            lines = self._server.veiled(" | ".join(tail.lines()))
            logger.warning("the server of %s ended; the last it wrote: %s", self._server.name, lines)

    def _told(self, failure: Exception | None, tail: Tail) -> str:
        while isinstance(failure, ExceptionGroup):
            failure = failure.exceptions[0]
        if isinstance(failure, TimeoutError):
            reason = f"it did not answer within {self._server.startup:g} s"
        elif isinstance(failure, FileNotFoundError):
            reason = f"there is no program {self._server.command[0]!r}"
        else:
            reason = f"{type(failure).__name__}: {failure}"
        lines = "".join(f"\n    {line}" for line in tail.lines())
        wrote = f"; the last it wrote:{lines}" if lines else ""
        return self._server.veiled(f"the server does not speak MCP ({reason}){wrote}")

    async def _end(self) -> None:
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            self._stop.set()
            await asyncio.wait([self._task])


async def _listed(client: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


_CONNECTIONS: dict[str, Connection] = {}
_LOCK = threading.Lock()


def take(server: Server) -> Connection:
    """The connection of a server, with one user more."""
    try:
        import mcp  # noqa: F401
        import mcp_types  # noqa: F401 - the old SDK has none
    except ModuleNotFoundError as error:
        raise missing_extra("mcp", "mcp") from error
    key = repr((server, sorted(server.env.items()), sorted(server.headers.items())))
    with _LOCK:
        connection = _CONNECTIONS.setdefault(key, Connection(server))
        connection.users += 1
        return connection


def give(connection: Connection) -> None:
    """One user less; the last one closes."""
    with _LOCK:
        connection.users -= 1
        if connection.users:
            return
        for key in [key for key, each in _CONNECTIONS.items() if each is connection]:
            del _CONNECTIONS[key]
    connection.close()


def _close_all() -> None:
    """At exit, end what nobody has closed."""
    for connection in list(_CONNECTIONS.values()):
        connection.users = 0
        connection.close()
    kill_all()


atexit.register(_close_all)


def _forget_lock() -> None:
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
