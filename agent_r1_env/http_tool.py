"""A web service as a tool: ``http:`` in a tool's file says which request a call becomes.

Text in the request may hold names in braces, see ``placeholders``. A value that is one such name alone keeps
its type, and is left out where the call leaves the argument out.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import email.utils
import functools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from agent_r1_env import placeholders, workers
from agent_r1_env.addresses import check_address, in_url, without_user
from agent_r1_env.entry import Entry
from agent_r1_env.errors import RateLimited, ToolError, TransientError, missing_extra
from agent_r1_env.placeholders import LEFT_OUT
from agent_r1_env.toollimits import filled_secrets

if TYPE_CHECKING:
    import httpx

_FOR_THE_MOMENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_LARGEST = 4 << 20
"""Bytes of an answer that are read; what is longer is cut there."""
_TOLD = 200
"""Characters of a refusal that the model reads."""
_CODINGS = ("", "identity", "gzip", "deflate")
"""Compressions whose chunks cannot grow without bound when they are undone."""


def check(entry: Entry) -> None:
    """Check a request's address and the names in it, without sending it.

    Raises:
        CatalogError: an address that is none; a name that is neither an argument, a secret nor under
            ``config``; or a value under ``config`` that no name asks for.
    """
    arguments = set((entry.get("parameters") or {}).get("properties", {}))
    placeholders.check(entry, "http", arguments)
    if "json" in entry.get("http") and "body" in entry.get("http"):
        raise entry.error("keys 'json' and 'body' stand together; keep one", "http", "body", of_key=True)
    check_address(entry, "http", "url")


def load(entry: Entry) -> HttpCall:
    """What sends the request that a file declares.

    Raises:
        CatalogError: as ``check`` does, or an environment variable is not set.
        MissingExtra: httpx is not installed.
    """
    check(entry)
    return HttpCall(entry.get("http"), filled_secrets(entry), entry.get("config"))


class HttpCall:
    """Sends one request a call; connections are kept and shared by all tools of the process."""

    def __init__(
        self,
        request: Mapping[str, Any],
        secrets: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """``request`` is the value of ``http:`` in a tool's file.

        Raises:
            MissingExtra: httpx is not installed.
        """
        self.request = request
        self._filled = {"secrets": dict(secrets or {}), "config": dict(config or {})}
        self._closed = False
        _CLIENT.join()

    async def __call__(self, /, **arguments: Any) -> str:
        """Send the request and return the text of the answer.

        Raises:
            TransientError: the service cannot be reached, or says that it may go better later.
            ToolError: it refuses, or its answer is not what the file says.
        """
        import httpx

        built = self._built({**arguments, **self._filled})
        host = urlsplit(built["url"]).netloc
        exchange = functools.partial(_exchange, built, self.request["redirects"])
        try:
            # On a loop of our own: connections outlive the loops that tools run on.
            answer = await asyncio.wrap_future(workers.spawn(exchange, loop="http"))
        except (httpx.LocalProtocolError, httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
            # Without its text, which may hold a secret.
            raise ToolError("the arguments make a request that cannot be sent") from failure
        except httpx.TransportError as failure:
            raise TransientError(f"the request to {host} failed ({type(failure).__name__})") from failure
        except httpx.RequestError as failure:  # too many redirects, or an encoding that is none
            raise ToolError(f"{host} gave no usable answer ({type(failure).__name__})") from failure
        try:
            self._judge(answer)
            return self._veiled(self._result(answer))
        except ToolError as error:
            error.args = tuple(self._veiled(text) for text in error.args)
            raise

    def close(self) -> None:
        """Let go of the connections. Idempotent."""
        if not self._closed:
            self._closed = True
            _CLIENT.leave()

    def _veiled(self, text: str) -> str:
        return placeholders.veiled(text, self._filled["secrets"].values())

    def _built(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the request."""
        request = self.request
        headers = {"Accept-Encoding": "gzip, deflate"}
        url, headers["Authorization"] = without_user(in_url(request["url"], values))
        if query := _query(placeholders.filled(request["query"], values)):
            url += f"{'&' if urlsplit(url).query else '?'}{query}"
        content = None
        if "json" in request and (data := placeholders.filled(request["json"], values)) is not LEFT_OUT:
            content, headers["Content-Type"] = json.dumps(data, ensure_ascii=False), "application/json"
        elif "body" in request and (text := placeholders.filled(request["body"], values)) is not LEFT_OUT:
            content, headers["Content-Type"] = placeholders.word(text), "text/plain; charset=utf-8"
        for name, value in placeholders.filled(request["headers"], values).items():
            headers = {known: said for known, said in headers.items() if known.lower() != name.lower()}
            headers[name] = placeholders.word(value)
        return {
            "method": request.get("method") or ("POST" if content is not None else "GET"),
            "url": url,
            # As bytes, for httpx would refuse what is not ASCII.
            "headers": {name: _encoded(value) for name, value in headers.items() if value},
            "content": None if content is None else _encoded(content),
        }

    def _judge(self, answer: _Answer) -> None:
        """Raise what the status of the answer stands for."""
        code, told = answer.status, self.request["status"]
        verdict = told.get(str(code), told.get(f"{code // 100}xx"))
        if verdict is None:
            verdict = "ok" if 200 <= code < 300 else "retry" if code in _FOR_THE_MOMENT else ""
        if verdict == "ok":
            return
        said = f"the service answered {code} {answer.reason}".rstrip()
        if verdict == "retry":
            kind = RateLimited if code == 429 else TransientError
            raise kind(said, after=_seconds(answer.headers.get("Retry-After")))
        text = answer.text()[:_TOLD].strip()
        raise ToolError(verdict or (f"{said}: {text}" if text else said))

    def _result(self, answer: _Answer) -> str:
        path = self.request.get("result")
        text = answer.text()
        if path is None:
            return text if answer.whole else f"{text}\n[... the answer is longer than {_LARGEST} bytes]"
        if not answer.whole:
            raise ToolError(f"the answer of the service is longer than {_LARGEST} bytes")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ToolError("the answer of the service is not JSON") from None
        for step in re.findall(r"[^.\[\]]+", path):
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ToolError(f"the answer of the service has no {path}") from None
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


class _Answer(NamedTuple):
    """An answer that was read as far as ``_LARGEST`` allows."""

    status: int
    reason: str
    headers: Mapping[str, str]
    charset: str | None
    body: bytes
    whole: bool

    def text(self) -> str:
        """The body as text; bytes that are none are named, with their number."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        lenient = kind.startswith("text/") or "json" in kind
        try:
            decoder = codecs.getincrementaldecoder(_charset(self.charset))("replace" if lenient else "strict")
            return str(decoder.decode(self.body, final=self.whole)).removeprefix("\ufeff")
        except UnicodeDecodeError:
            return f"[{kind or 'binary data'}, {len(self.body)} bytes]"


class _Client:
    """The one client of this process, closed when the last tool is."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._lock = threading.Lock()

    def join(self) -> None:
        try:
            import httpx  # noqa: F401 - missing packages show when a tool is loaded, not when it is called
        except ModuleNotFoundError as error:
            raise missing_extra("httpx", "http") from error
        with self._lock:
            self._users += 1

    def get(self) -> httpx.AsyncClient:
        """The client, for the loop that runs; called there alone."""
        import httpx

        if self._client is None or self._loop is not asyncio.get_running_loop():
            logging.getLogger("httpx").addFilter(_unlogged)
            self._loop = asyncio.get_running_loop()
            self._client = httpx.AsyncClient(
                timeout=None,  # the time of a call is the toolbox's business, which cancels it
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                # What a service remembers of one episode is none of the next one's business.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            )
        return self._client

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
        with contextlib.suppress(TimeoutError):
            workers.spawn(self._close, loop="http").result(5)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def forget(self) -> None:
        """In a forked child, whose loop is another."""
        self._lock = threading.Lock()


_CLIENT = _Client()
_OURS: ContextVar[bool] = ContextVar("ours", default=False)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CLIENT.forget)


def _unlogged(_: logging.LogRecord) -> bool:
    """Keep httpx from logging our requests, whose addresses may hold secrets."""
    return not _OURS.get()


async def _exchange(built: Mapping[str, Any], redirects: bool) -> _Answer:
    """Send a request and read the answer, to the end or to the limit."""
    _OURS.set(True)
    async with _CLIENT.get().stream(**built, follow_redirects=redirects) as answer:
        coding = answer.headers.get("Content-Encoding", "").strip().lower()
        if coding not in _CODINGS:
            raise ToolError(f"the answer of the service is compressed as {coding}, which was not asked for")
        parts, size = [], 0
        async for part in answer.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > _LARGEST:
                break
        body = b"".join(parts)[:_LARGEST]
        return _Answer(
            *(answer.status_code, answer.reason_phrase, answer.headers),
            *(answer.charset_encoding, body, size <= _LARGEST),
        )


def _charset(name: str | None) -> str:
    """The encoding that an answer names, where it is one of text that we know."""
    try:
        b"x".decode(name or "utf-8", "ignore")  # unlike a look-up, refuses codecs that are not of text
    except (LookupError, ValueError):
        return "utf-8"
    return name or "utf-8"


def _seconds(header: str | None) -> float | None:
    """What ``Retry-After`` says, in seconds or as a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _query(query: Mapping[str, Any]) -> str:
    """What stands behind the ? of an address: lists as repeated names, null left out."""
    pairs = [
        (name, placeholders.word(part))
        for name, value in query.items()
        for part in (value if isinstance(value, list) else [value])
        if part is not None
    ]
    return urlencode(pairs, errors="replace")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
