"""Search through a server: that of Search-R1, those of Agent-R1, or ``agent-r1 serve-search``."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Sequence
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_r1_env.errors import ToolError
from agent_r1_env.hits import NO_WORDS, Hit, clamped, shown, words
from agent_r1_env.http_tool import HttpCall
from agent_r1_env.retrieval import protocol as protocol_named

_Waiting = list[tuple[str, asyncio.Future[list[Hit]]]]


class HttpSearch:
    """The paragraphs that a search server finds, shown as ``search`` shows its own.

    Queries that come within a moment of each other are sent in one request. A query that spoils the request
    spoils no other: then each is sent alone.

    Args:
        url: of the server; without a path, that of the protocol is added.
        protocol: "search_r1", "agent_r1_wiki" or "agent_r1_kilt"; see ``agent_r1_env.retrieval``.
        top_k: how many paragraphs to ask for.
        batch_size: queries in one request at most; 1 sends each alone, at once.
        batch_wait: seconds that a query waits for others.
    """

    def __init__(
        self,
        url: str = "http://localhost:8000",
        protocol: str = "search_r1",
        top_k: int = 3,
        batch_size: int = 32,
        batch_wait: float = 0.002,
    ) -> None:
        for name, value in (("top_k", top_k), ("batch_size", batch_size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
        if not (math.isfinite(batch_wait) and batch_wait >= 0):
            raise ValueError(f"batch_wait must be a number of seconds from 0 upwards, got {batch_wait!r}")
        self.protocol, self.top_k = protocol_named(protocol), top_k
        self.batch_size, self.batch_wait = batch_size, batch_wait
        body = {"queries": "{queries}", self.protocol.top_k: "{top_k}", **self.protocol.constants}
        request = {"url": "{config.url}", "query": {}, "headers": {}, "json": body, "status": {}}
        self._call = HttpCall({**request, "redirects": False}, config={"url": self._address(url)})
        # Futures belong to a loop, and a loop that hangs is replaced by another.
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()
        self._sending: set[asyncio.Task[None]] = set()

    async def __call__(self, query: str) -> str:
        """Answer as the model will read it.

        Raises:
            TransientError: the server cannot be reached, or asks to come back later.
            ToolError: it refuses, or its answer is not what the protocol says.
        """
        if not words(query):
            return NO_WORDS
        asked, notes = clamped(query)
        hits = (await self._ask([asked]))[0] if self.batch_size == 1 else await self._together(asked)
        return shown(query, hits[: self.top_k], notes)

    async def batch(self, queries: Sequence[str]) -> list[str]:
        """The answers to several queries, in their order."""
        return list(await asyncio.gather(*map(self, queries)))

    def close(self) -> None:
        """Let go of the connections."""
        self._call.close()

    def _address(self, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be an address such as http://localhost:8000, got {url!r}")
        return url if parts.path.strip("/") else f"{url.rstrip('/')}{self.protocol.path}"

    async def _ask(self, queries: Sequence[str]) -> list[list[Hit]]:
        answer = await self._call(queries=list(queries), top_k=self.top_k)
        try:
            return self.protocol.read(answer, len(queries))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
            name = self.protocol.name
            raise ToolError(f"the answer of the search server is not that of the protocol {name}") from fault

    async def _together(self, query: str) -> list[Hit]:
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(loop, [])
        future: asyncio.Future[list[Hit]] = loop.create_future()
        waiting.append((query, future))
        if len(waiting) == 1:
            loop.call_later(self.batch_wait, self._flush, loop)
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = [each for each in self._waiting.pop(loop, []) if not each[1].done()]
        for first in range(0, len(waiting), self.batch_size):
            sending = loop.create_task(self._send(waiting[first : first + self.batch_size]))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, waiting: _Waiting) -> None:
        try:
            found = await self._ask([query for query, _ in waiting])
        except Exception as failure:
            if len(waiting) > 1:
                await asyncio.gather(*(self._send([each]) for each in waiting))
            elif not waiting[0][1].done():
                waiting[0][1].set_exception(copy.copy(failure))
            return
        for (_, future), hits in zip(waiting, found, strict=True):
            if not future.done():
                future.set_result(hits)
