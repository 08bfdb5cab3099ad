"""A model behind a URL: any server that speaks OpenAI's chat completions.

vLLM, SGLang, llama.cpp, Ollama, TGI and the hosted services all do. Nothing but plain turns is sent: tools
and their results stand in the text, as the wire format writes them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_r1_env import workers
from agent_r1_env.engines import Sampling, TextGeneration
from agent_r1_env.engines.client import CONNECT, Client
from agent_r1_env.engines.refusal import TOLD, Refused
from agent_r1_env.errors import EngineError, PromptTooLong

_PATH = "/chat/completions"


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
        self._client = Client(
            url, key_variable=key_variable, timeout=timeout, retries=retries, backoff=backoff, ending=_PATH
        )
        self.url, self.key_variable = self._client.url, self._client.key_variable
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
        workers.spawn(self._client.close, loop="openai").result(CONNECT)

    def _only_model(self) -> str:
        listed = workers.spawn(lambda: self._client.ask("GET", "/models"), loop="openai").result()
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
                return self._read(await self._client.ask("POST", _PATH, {**body, name: limit}))
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
