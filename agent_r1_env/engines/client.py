"""How a model's server is asked over HTTP: its address and key, what may pass, and when to come back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent_r1_env.addresses import is_sound, shown, without_user
from agent_r1_env.engines.refusal import TOLD, Passing, Refused, seconds_of
from agent_r1_env.errors import EngineError, missing_extra
from agent_r1_env.output import safe

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "AGENT_R1_API_KEY"
_OPENAI_HOST, _OPENAI_VARIABLE = "api.openai.com", "OPENAI_API_KEY"
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT = 120.0  # seconds, whatever Retry-After says
CONNECT = 10.0
"""Seconds that a server has to take a connection."""


class Client:
    """One server. Its coroutines must all run on one event loop, on which the connections live."""

    def __init__(
        self,
        url: str,
        *,
        key_variable: str | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        backoff: float = 0.5,
        ending: str = "",
    ) -> None:
        """Nothing is sent.

        Args:
            url: such as ``http://localhost:8000/v1``; without a path, ``/v1`` is added.
            key_variable: the environment variable that holds the API key. By default ``AGENT_R1_API_KEY``,
                and ``OPENAI_API_KEY`` for api.openai.com alone: no other server is sent that one.
            timeout: seconds for one reply.
            retries: how often ``ask`` asks again.
            backoff: seconds before the second try, doubled before each further one. A server's
                ``Retry-After`` goes before.
            ending: what people write behind the address, and what is added to it anyway.

        Raises:
            MissingExtra: httpx is not installed.
            EngineError: ``url`` is none, or ``key_variable`` is not set.
        """
        try:
            import httpx  # noqa: F401 - what is missing should show now
        except ModuleNotFoundError as error:
            raise missing_extra("httpx", "http") from error
        self.url, self._authorization = without_user(_base(url, ending))
        self.root = self.url.removesuffix("/v1")
        """Where the paths lie that are no model's, such as ``/health``."""
        self.key_variable = key_variable or _key_variable(self.url)
        self._key = os.environ.get(self.key_variable, "")
        if key_variable and not self._key:
            raise EngineError(f"the environment variable {key_variable} holds no API key; set it first")
        self.timeout, self.retries, self.backoff = timeout, retries, backoff
        self._client: httpx.AsyncClient | None = None
        self._answered = False

    async def ask(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        """What the server answers, as JSON; asked again while it may help.

        Raises:
            Refused: it said no.
            EngineError: it gave no answer however often it was asked.
        """
        for attempt in range(self.retries + 1):
            try:
                return await self.once(method, self.url + path, body)
            except Passing as passing:
                said = passing.said
                if attempt < self.retries:
                    await asyncio.sleep(self.wait(attempt, passing.after))
        raise EngineError(f"{self.url}, asked {self.retries + 1} times: {said}")

    async def once(
        self, method: str, address: str, body: Any = None, timeout: float | None = None
    ) -> Mapping[str, Any]:
        """What the server answers to one request, as JSON; an empty answer is an empty mapping.

        Raises:
            Passing: no answer, but there may be one later.
            Refused: it said no.
            EngineError: it is no server of models, or none was ever there.
        """
        import httpx

        try:
            answer = await self._send(method, address, body, timeout)
        except httpx.InvalidURL as error:
            raise EngineError(f"{self.url} is no address: {error}") from None
        except httpx.TransportError as error:
            said = f"{type(error).__name__}: {error}".rstrip(": ")
            if not self._answered and isinstance(error, httpx.ConnectError):
                raise EngineError(f"no server answers at {self.url} ({said}); is it running?") from None
            if isinstance(error, httpx.ReadTimeout):
                said = f"no reply within {self.timeout if timeout is None else timeout:g} s"
            raise Passing(self.url, said, None, lost=True) from None
        self._answered = True
        if answer.status_code == 200:
            return _json(answer, self.url) if answer.content else {}
        refused = self._refused(answer)
        if answer.status_code not in _PASSING or refused.overflow:
            raise refused
        raise Passing(self.url, refused.said, seconds_of(answer.headers.get("Retry-After")))

    def wait(self, attempt: int, after: float | None) -> float:
        """Seconds before the next try: what the server wants, or ever longer ones."""
        if after is not None:
            return min(after, _LONGEST_WAIT)
        return float(min(self.backoff * 2**attempt, _LONGEST_WAIT) * random.uniform(0.75, 1.25))

    async def close(self) -> None:
        """Close the connections; twice is harmless."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(self, method: str, address: str, body: Any, timeout: float | None) -> httpx.Response:
        import httpx

        _OURS.set(True)
        if self._client is None:
            logging.getLogger("httpx").addFilter(_unlogged)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.timeout, connect=CONNECT, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            )
        headers = {"Content-Type": "application/json"}
        if authorization := f"Bearer {self._key}" if self._key else self._authorization:
            headers["Authorization"] = authorization
        content = None if body is None else json.dumps(body).encode()
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        return await self._client.request(method, address, content=content, headers=headers, **more)

    def _refused(self, answer: httpx.Response) -> Refused:
        secrets = [self._key, self._authorization.removeprefix("Basic ")]
        hint = ""
        if answer.status_code in (401, 403):
            hint = f" (the API key is read from the environment variable {self.key_variable})"
        elif answer.status_code == 404 and not answer.content.strip():
            hint = " (the address usually ends in /v1)"
        return Refused.of(answer, self.url, secrets, hint)


_OURS: ContextVar[bool] = ContextVar("ours", default=False)


def _unlogged(_: logging.LogRecord) -> bool:
    """Keep httpx from logging each of our requests."""
    return not _OURS.get()


def _base(url: str, ending: str) -> str:
    """The address that paths are added to."""
    if not is_sound(url):
        raise EngineError(f"{shown(url)} is no address of a server; write http://host:port/v1")
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix(ending)
    return parts._replace(path=path or "/v1", query="", fragment="").geturl()


def _key_variable(url: str) -> str:
    return _OPENAI_VARIABLE if urlsplit(url).hostname == _OPENAI_HOST else KEY_VARIABLE


def _json(answer: httpx.Response, url: str) -> Mapping[str, Any]:
    try:
        data = answer.json()
    except ValueError:
        data = None
    if not isinstance(data, Mapping):
        shown = safe(" ".join(answer.text.split()))[:TOLD]
        raise EngineError(f"{url} answered with no JSON object: {shown!r}")
    return data
