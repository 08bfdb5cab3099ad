"""Several servers of one model: which of them is asked, and which of them is well.

Requests of one session go to the same server, whose prefix cache knows their beginning. A server that fails
is taken out, what it was working on goes on elsewhere, and it comes back when it answers again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agent_r1_env.engines.client import Client
from agent_r1_env.engines.refusal import Passing
from agent_r1_env.errors import EngineError

SESSIONS = 1 << 16
"""Sessions whose server is remembered; a forgotten one is placed anew, and its cache is cold."""
LOOK = 10.0
"""Seconds that a server has to say that it is well."""
_MISSES = 3
_log = logging.getLogger(__name__)
Fit = Callable[[Client], Awaitable[str]]


class Server:
    """One server and what is under way there.

    Attributes:
        up: it is asked for replies.
        said: why not, where it is not.
        running: requests under way.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.up, self.said, self.running = True, "", 0
        self.misses = 0
        self._asks: set[Any] = set()

    async def ask(self, method: str, address: str, body: Any = None) -> Mapping[str, Any]:
        """What it answers to one request.

        Raises:
            Passing: it did not answer, or was taken out meanwhile.
            Refused: it said no.
        """
        import anyio  # httpx's own: what it closes is shielded from this way of cancelling alone

        scope = anyio.CancelScope()
        asking = asyncio.ensure_future(self._ask(scope, method, address, body))
        self._asks.add(scope)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            scope.cancel()
            await asyncio.wait([asking])
            asking.exception()  # nobody is left to be told
            raise
        finally:
            self._asks.discard(scope)

    async def _ask(self, scope: Any, method: str, address: str, body: Any) -> Mapping[str, Any]:
        with scope:
            return await self.client.once(method, address, body)
        raise Passing(self.client.url, self.said, lost=True)

    def take_out(self, said: str) -> None:
        """Ask it nothing more, and let what waits for it go on elsewhere."""
        if self.up:
            _log.warning("the server %s is taken out: %s", self.client.url, said)
        self.up, self.said = False, said
        for scope in self._asks:
            scope.cancel()


class Fleet:
    """All servers. Its methods run on one event loop."""

    def __init__(self, clients: Sequence[Client], *, every: float, patience: float, fit: Fit) -> None:
        """Nothing is sent.

        Args:
            every: seconds between looks at servers that work or are out.
            patience: seconds that a request waits while no server is up.
            fit: says why a server that is well again may not be asked yet; "" if it may.
        """
        self.servers = [Server(client) for client in clients]
        self._every, self._patience, self._fit = every, patience, fit
        self._homes: OrderedDict[str, Server] = OrderedDict()
        self._some_up = asyncio.Event()
        self._some_up.set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def up(self) -> list[Server]:
        """Those that are asked."""
        return [server for server in self.servers if server.up]

    @asynccontextmanager
    async def lend(self, session: str) -> AsyncIterator[Server]:
        """The server for a request of a session, counted as its while the context lasts.

        Raises:
            EngineError: for too long none has been up.
        """
        self._watch_over()
        if not self.up:
            await self._wait()
        server = self._home(session)
        server.running += 1
        try:
            yield server
        finally:
            server.running -= 1

    async def look(self, server: Server) -> bool:
        """Ask a server whether it is well, and take it out or back."""
        try:
            await server.client.once("GET", f"{server.client.root}/health", timeout=LOOK)
            unfit = "" if server.up else await self._fit(server.client)
        except EngineError as error:
            server.misses += 1
            silent = isinstance(error, Passing) and "no reply within" in error.said
            if server.up and silent and server.misses < _MISSES:  # a busy one may be slow to tell
                return True
            server.take_out(getattr(error, "said", "") or str(error))
        else:
            server.misses = 0
            if unfit:
                server.said = unfit
            elif not server.up:
                _log.warning("the server %s is back", server.client.url)
                server.up, server.said = True, ""
        if self.up:
            self._some_up.set()
        else:
            self._some_up.clear()
        self._watch_over()
        return server.up

    async def close(self) -> None:
        """Stop watching and close the connections; twice is harmless."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        for server in self.servers:
            await server.client.close()

    def _home(self, session: str) -> Server:
        """The server that a session is at; else the one with the least to do, which is then its home."""
        home = self._homes.get(session) if session else None
        if home is None or not home.up:
            home = min(self.up, key=lambda server: (server.running, _rank(session, server.client.url)))
        if session:
            self._homes[session] = home
            self._homes.move_to_end(session)
            if len(self._homes) > SESSIONS:
                self._homes.popitem(last=False)
        return home

    async def _wait(self) -> None:
        self._some_up.clear()
        try:
            await asyncio.wait_for(self._some_up.wait(), self._patience)
        except TimeoutError:
            told = "; ".join(f"{server.client.url}: {server.said}" for server in self.servers)
            raise EngineError(f"for {self._patience:g} s no server has been up ({told})") from None

    def _watch_over(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._watching())

    async def _watching(self) -> None:
        """Look at servers from time to time, until all of them are up and idle."""
        while True:
            await asyncio.sleep(self._every)
            watched = [server for server in self.servers if server.running or not server.up]
            if not watched:
                return
            await asyncio.gather(*map(self.look, watched))


def _rank(session: str, url: str) -> bytes:
    """Spreads sessions over equally busy servers, in every process alike."""
    return hashlib.blake2b(f"{session}\n{url}".encode(), digest_size=8).digest()
