"""A web service as a tool: ``http:`` in a tool's file says which request a call becomes.

Text in the request may name arguments in braces: ``{query}``, ``{filters.lang}`` and ``{secrets.api_key}``. A
value that is one such name alone keeps its type, and is left out where the call leaves the argument out.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agent_r1_env.entry import Entry
from agent_r1_env.errors import RateLimited, ToolError, TransientError, hint, missing_extra
from agent_r1_env.toollimits import filled_secrets, secrets_of

if TYPE_CHECKING:
    import httpx

_NAME = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}")
_FOR_THE_MOMENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_LARGEST = 4 << 20
"""Bytes of an answer that are read; what is longer is cut there."""
_LEFT_OUT = object()


def check(entry: Entry) -> None:
    """Check a request's address and the names in it, without sending it.

    Raises:
        CatalogError: an address that is none, or a name that is neither an argument nor a secret.
    """
    url = str(entry.get("http", "url"))
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise entry.error(f"{url!r} is no address; write http://... or https://...", "http", "url")
    known = {*(entry.get("parameters") or {}).get("properties", {})}
    secrets = {f"secrets.{name}" for name in secrets_of(entry)}
    for keys, text in _texts(entry.get("http"), ("http",)):
        for match in _NAME.finditer(text):
            name = match[1]
            if name and name not in secrets and name.partition(".")[0] not in known:
                raise entry.error(f"{{{name}}} is no argument{hint(name, known | secrets)}", *keys)


def load(entry: Entry) -> HttpCall:
    """What sends the request that a file declares.

    Raises:
        CatalogError: as ``check`` does, or an environment variable is not set.
        MissingExtra: httpx is not installed.
    """
    check(entry)
    return HttpCall(entry.get("http"), filled_secrets(entry))


class HttpCall:
    """Sends one request a call; connections are kept and shared by all tools of the process."""

    def __init__(self, request: Mapping[str, Any], secrets: Mapping[str, str] | None = None) -> None:
        """``request`` is the value of ``http:`` in a tool's file.

        Raises:
            MissingExtra: httpx is not installed.
        """
        self.request = request
        self._secrets = {f"secrets.{name}": value for name, value in (secrets or {}).items()}
        self._closed = False
        _CLIENTS.join()

    async def __call__(self, **arguments: Any) -> str:
        """Send the request and return the text of the answer.

        Raises:
            TransientError: the service cannot be reached, or says that it may go better later.
            ToolError: it refuses, or its answer is not what the file says.
        """
        import httpx

        built = self._built({**arguments, **self._secrets})
        try:
            async with _CLIENTS.get().stream(**built, follow_redirects=self.request["redirects"]) as answer:
                body, whole = await _bounded(answer)
        except (httpx.TransportError, httpx.TooManyRedirects) as failure:
            host = urlsplit(built["url"]).netloc.rpartition("@")[2]
            raise TransientError(f"{host} cannot be reached ({type(failure).__name__})") from failure
        self._judge(answer, body)
        return self._result(answer, body, whole)

    def close(self) -> None:
        """Let go of the connections. Idempotent."""
        if not self._closed:
            self._closed = True
            _CLIENTS.leave()

    def _built(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the request."""
        request = self.request
        built: dict[str, Any] = {
            "method": request["method"],
            "url": _NAME.sub(lambda match: _in_url(match, values), request["url"]),
            "headers": {k: _as_word(v) for k, v in _filled(request["headers"], values).items()},
        }
        query = _filled(request["query"], values)
        if query:
            built["params"] = {
                name: [_as_word(part) for part in value] if isinstance(value, list) else _as_word(value)
                for name, value in query.items()
            }
        if "json" in request:
            built["content"] = json.dumps(_filled(request["json"], values), ensure_ascii=False).encode()
            built["headers"].setdefault("Content-Type", "application/json")
        elif "body" in request:
            built["content"] = _as_word(_filled(request["body"], values)).encode()
        return built

    def _judge(self, answer: httpx.Response, body: bytes) -> None:
        """Raise what the status of the answer stands for."""
        code = answer.status_code
        told = self.request["status"]
        verdict = told.get(str(code), told.get(f"{code // 100}xx"))
        if verdict is None:
            verdict = "ok" if code < 300 else "retry" if code in _FOR_THE_MOMENT else ""
        if verdict == "ok":
            return
        said = f"the service answered {code} {answer.reason_phrase}".rstrip()
        if verdict == "retry":
            kind = RateLimited if code == 429 else TransientError
            raise kind(said, after=_seconds(answer.headers.get("Retry-After")))
        text = body[:200].decode("utf-8", "replace").strip()
        raise ToolError(verdict or (f"{said}: {text}" if text else said))

    def _result(self, answer: httpx.Response, body: bytes, whole: bool) -> str:
        path = self.request.get("result")
        text = _text(answer, body)
        if path is None:
            return text if whole else f"{text}\n[... the answer is longer than {_LARGEST} bytes]"
        if not whole:
            raise ToolError(f"the answer of the service is longer than {_LARGEST} bytes")
        try:
            found = json.loads(text)
        except ValueError:
            raise ToolError("the answer of the service is not JSON") from None
        for step in re.findall(r"[^.\[\]]+", path):
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ToolError(f"the answer of the service has no {path}") from None
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


class _Clients:
    """One client for each event loop that tools run on, closed when the last tool is."""

    def __init__(self) -> None:
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
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
        import httpx

        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
                # The time of a call is the toolbox's business, which cancels it.
                client = self._clients[loop] = httpx.AsyncClient(timeout=None, limits=limits)
            return client

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            closing = {} if self._users else self._clients
            self._clients = self._clients if self._users else {}
        for loop, client in closing.items():
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(5)


_CLIENTS = _Clients()


async def _bounded(answer: httpx.Response) -> tuple[bytes, bool]:
    """The body, and whether it is whole."""
    parts, size = [], 0
    async for part in answer.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            return b"".join(parts)[:_LARGEST], False
    return b"".join(parts), True


def _text(answer: httpx.Response, body: bytes) -> str:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    encoding = answer.charset_encoding or "utf-8"
    try:
        return body.decode(encoding, "replace" if kind.startswith("text/") or "json" in kind else "strict")
    except (UnicodeDecodeError, LookupError):
        return f"[{len(body)} bytes of {kind or 'binary data'}]"


def _seconds(header: str | None) -> float | None:
    """What ``Retry-After`` says, where it says it in seconds."""
    return float(header) if header is not None and header.strip().isdigit() else None


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A part of the request with the names in it replaced; what is not given is left out."""
    if isinstance(value, Mapping):
        filled = {name: _filled(part, values) for name, part in value.items()}
        return {name: part for name, part in filled.items() if part is not _LEFT_OUT}
    if isinstance(value, list):
        return [part for part in (_filled(each, values) for each in value) if part is not _LEFT_OUT]
    if not isinstance(value, str):
        return value
    if (alone := _NAME.fullmatch(value)) and alone[1]:
        return _look_up(alone[1], values)
    return _NAME.sub(lambda match: _in_text(match, values), value)


def _look_up(name: str, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    found: Any = values
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return _LEFT_OUT
        found = found[step]
    return found


def _in_text(match: re.Match[str], values: Mapping[str, Any]) -> str:
    if match[1] is None:
        return match[0][0]
    found = _look_up(match[1], values)
    return "" if found is _LEFT_OUT else _as_word(found)


def _in_url(match: re.Match[str], values: Mapping[str, Any]) -> str:
    return quote(_in_text(match, values), safe="") if match[1] else match[0][0]


def _as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text within ``value`` with the keys that lead to it."""
    if isinstance(value, str):
        yield keys, value
    parts: Any = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, part in parts:
        yield from _texts(part, (*keys, key))
