"""A model behind a URL: any server that speaks OpenAI's chat completions.

vLLM, SGLang, llama.cpp, Ollama, TGI and the hosted services all do. Nothing but plain turns is sent: tools
and their results stand in the text, as the wire format writes them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent_r1_env import workers
from agent_r1_env.addresses import without_user
from agent_r1_env.engines import Sampling, TextGeneration
from agent_r1_env.engines.refusal import TOLD, Refused, seconds_of
from agent_r1_env.errors import EngineError, PromptTooLong, missing_extra
from agent_r1_env.output import safe

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "AGENT_R1_API_KEY"
_OPENAI_HOST, _OPENAI_VARIABLE = "api.openai.com", "OPENAI_API_KEY"
_PATH = "/chat/completions"
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT = 120.0  # seconds, whatever Retry-After says
_CONNECT = 10.0


class OpenAIEngine:
    """Asks a server for chat completions.

    What may pass (a full queue, a restart, a lost connection) is tried again; anything else is an
    ``EngineError`` of one line, and a conversation that does not fit a ``PromptTooLong``.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key_variable: str | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        backoff: float = 0.5,
    ) -> None:
        """Nothing is sent before the first reply, but for the name of the model, if it is left out.

        Args:
            url: such as ``http://localhost:8000/v1``; without a path, ``/v1`` is added.
            model: as the server calls it; by default its only one.
            key_variable: the environment variable that holds the API key. By default ``AGENT_R1_API_KEY``,
                and ``OPENAI_API_KEY`` for api.openai.com alone: no other server is sent that one.
            timeout: seconds for one reply.
            retries: how often one reply is asked for again.
            backoff: seconds before the second try, doubled before each further one. A server's
                ``Retry-After`` goes before.

        Raises:
            MissingExtra: httpx is not installed.
            EngineError: ``url`` is none, ``key_variable`` is not set, or the server has several models.
        """
        try:
            import httpx  # noqa: F401 - what is missing should show now
        except ModuleNotFoundError as error:
            raise missing_extra("httpx", "http") from error
        address, self._authorization = without_user(_base(url))
        self.url = address
        self.key_variable = key_variable or _key_variable(address)
        self._key = os.environ.get(self.key_variable, "")
        if key_variable and not self._key:
            raise EngineError(f"the environment variable {key_variable} holds no API key; set it first")
        self.timeout, self.retries, self.backoff = timeout, retries, backoff
        self._client: httpx.AsyncClient | None = None
        self._answered = False
        self._limit_name = "max_tokens"
        self.model = model or self._only_model()

    async def chat(self, messages: Sequence[Mapping[str, Any]], sampling: Sampling) -> TextGeneration:
        """Sample one reply.

        Raises:
            PromptTooLong: nothing fits behind the conversation.
            EngineError: the server refused, or gave no answer however often it was asked.
        """
        return await asyncio.wrap_future(workers.spawn(lambda: self._chat(messages, sampling), loop="openai"))

    def close(self) -> None:
        """Close the connections; twice is harmless."""
        workers.spawn(self._close, loop="openai").result(_CONNECT)

    def _only_model(self) -> str:
        listed = workers.spawn(lambda: self._answer("GET", "/models"), loop="openai").result()
        names = [str(each.get("id")) for each in listed.get("data") or () if isinstance(each, Mapping)]
        if len(names) == 1:
            return names[0]
        self.close()
        told = f"it has {', '.join(names[:8])}" if names else "it lists none"
        raise EngineError(f"{self.url} needs the name of a model; {told}")

    async def _chat(self, messages: Sequence[Mapping[str, Any]], sampling: Sampling) -> TextGeneration:
        limit = sampling.max_tokens
        body = {"model": self.model, "messages": list(messages), **_parameters(sampling)}
        while True:
            name = self._limit_name
            try:
                return self._read(await self._answer("POST", _PATH, {**body, name: limit}))
            except Refused as refused:
                if (
                    name == "max_tokens"
                    and "max_completion_tokens" in refused.reason
                    and not refused.overflow
                ):
                    self._limit_name = "max_completion_tokens"  # newer models of OpenAI know no other
                elif room := refused.room(limit):
                    limit = room
                elif refused.overflow:
                    raise PromptTooLong(f"{self.url}: {refused.reason}") from None
                else:
                    raise

    async def _answer(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        """What the server answers, as JSON; asked again while it may help."""
        import httpx

        for attempt in range(self.retries + 1):
            try:
                answer = await self._send(method, path, body)
            except httpx.InvalidURL as error:
                raise EngineError(f"{self.url} is no address: {error}") from None
            except httpx.TransportError as error:
                said, after = f"{type(error).__name__}: {error}".rstrip(": "), None
                if not self._answered and isinstance(error, httpx.ConnectError):
                    raise EngineError(f"no server answers at {self.url} ({said}); is it running?") from None
                if isinstance(error, httpx.ReadTimeout):
                    said = f"no reply within {self.timeout:g} s"
            else:
                self._answered = True
                if answer.status_code == 200:
                    return _json(answer, self.url)
                refused = self._refused(answer)
                if answer.status_code not in _PASSING or refused.overflow:
                    raise refused
                said, after = refused.said, seconds_of(answer.headers.get("Retry-After"))
            if attempt < self.retries:
                await asyncio.sleep(self._wait(attempt, after))
        raise EngineError(f"{self.url}, asked {self.retries + 1} times: {said}")

    async def _send(self, method: str, path: str, body: Any) -> httpx.Response:
        import httpx

        _OURS.set(True)
        if self._client is None:
            logging.getLogger("httpx").addFilter(_unlogged)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.timeout, connect=_CONNECT, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            )
        headers = {"Content-Type": "application/json"}
        if authorization := f"Bearer {self._key}" if self._key else self._authorization:
            headers["Authorization"] = authorization
        content = None if body is None else json.dumps(body).encode()
        return await self._client.request(method, self.url + path, content=content, headers=headers)

    def _refused(self, answer: httpx.Response) -> Refused:
        secrets = [self._key, self._authorization.removeprefix("Basic ")]
        hint = ""
        if answer.status_code in (401, 403):
            hint = f" (the API key is read from the environment variable {self.key_variable})"
        elif answer.status_code == 404 and not answer.content.strip():
            hint = " (the address usually ends in /v1)"
        return Refused.of(answer, self.url, secrets, hint)

    def _read(self, data: Mapping[str, Any]) -> TextGeneration:
        try:
            choice = data["choices"][0]
            text = choice["message"].get("content") or ""
            usage = data.get("usage") or {}
            stopped_by = choice.get("stop_reason", choice.get("matched_stop"))  # of vLLM, of SGLang
            return TextGeneration(
                str(text),
                "length" if choice.get("finish_reason") == "length" else "stop",
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                stopped_by if isinstance(stopped_by, str) else "",
            )
        except (KeyError, IndexError, TypeError, AttributeError):
            shown = json.dumps(data)[:TOLD]
            raise EngineError(f"{self.url} answered with no chat completion: {shown}") from None

    def _wait(self, attempt: int, after: float | None) -> float:
        if after is not None:
            return min(after, _LONGEST_WAIT)
        return float(min(self.backoff * 2**attempt, _LONGEST_WAIT) * random.uniform(0.75, 1.25))

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


_OURS: ContextVar[bool] = ContextVar("ours", default=False)


def _unlogged(_: logging.LogRecord) -> bool:
    """Keep httpx from logging each of our requests."""
    return not _OURS.get()


def _base(url: str) -> str:
    """The address that paths are added to."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise EngineError(f"{url!r} is no address of a server; write http://host:port/v1")
    path = parts.path.rstrip("/").removesuffix(_PATH)
    return parts._replace(path=path or "/v1", query="", fragment="").geturl()


def _key_variable(url: str) -> str:
    return _OPENAI_VARIABLE if urlsplit(url).hostname == _OPENAI_HOST else KEY_VARIABLE


def _parameters(sampling: Sampling) -> dict[str, Any]:
    """The body's keys; what has its default is left out, for not every server knows each of them."""
    body: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.top_p != 1.0:
        body["top_p"] = sampling.top_p
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    return body


def _json(answer: httpx.Response, url: str) -> Mapping[str, Any]:
    try:
        data = answer.json()
    except ValueError:
        data = None
    if not isinstance(data, Mapping):
        shown = safe(" ".join(answer.text.split()))[:TOLD]
        raise EngineError(f"{url} answered with no JSON object: {shown!r}")
    return data
