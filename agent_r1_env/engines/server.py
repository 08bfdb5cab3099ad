"""A model behind one or several vLLM servers, by token ids: good for training, not for evaluation alone.

The servers speak OpenAI's completions with vLLM's additions: a prompt of ids, the sampled ids and the
log-probs of the distribution they were drawn from.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from agent_r1_env import workers
from agent_r1_env.engines import Generation, Sampling, Tokenizer, room
from agent_r1_env.engines.client import CONNECT, Client
from agent_r1_env.engines.fleet import LOOK, Fleet, Server
from agent_r1_env.engines.probing import check_logprobs
from agent_r1_env.engines.refusal import TOLD, Passing, Refused
from agent_r1_env.errors import EngineError, PromptTooLong, missing_extra

_LOOP = "servers"
_PATH = "/completions"
_UNKNOWN = (404, 405)  # how a server says that it has no such endpoint
_T = TypeVar("_T")


class ServerEngine:
    """Samples from servers that all have the same model.

    What may pass (a full queue, a restart, a lost connection, an aborted request) is asked again from the
    beginning, elsewhere where a server is gone; with a seed, the same reply is drawn. Cancelling closes the
    connection, upon which the server drops the request.

    Attributes:
        version: The number of the weights of now; None: nobody counts. A reply is stamped with the number
            that held when it was asked for: where weights changed meanwhile, that is the older one for all
            of it, because a server does not tell which of its ids came before the change.
    """

    version: int | None = None

    def __init__(
        self,
        urls: str | Sequence[str],
        model: str | None = None,
        tokenizer: Tokenizer | str | None = None,
        *,
        key_variable: str | None = None,
        timeout: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        patience: float = 120.0,
        check_every: float = 5.0,
        leads: bool = True,
    ) -> None:
        """Ask each server for its model, and whether it shows what training needs.

        Args:
            urls: such as ``http://localhost:8000``; several are replicas of one model.
            model: as the servers call it; by default their only one.
            tokenizer: a name or folder, or what it loads; by default that of the model's folder, as the
                server names it.
            key_variable: the environment variable that holds the API key, by default ``AGENT_R1_API_KEY``.
            timeout: seconds for one reply.
            retries: how often one reply is asked for again.
            backoff: seconds before the second try, doubled before each further one. A server's
                ``Retry-After`` goes before.
            patience: seconds that a reply waits while no server is up.
            check_every: seconds between looks at the health of servers.
            leads: False leaves it to the engine of another process to pause the servers in ``updating``.

        Raises:
            MissingExtra: httpx, or transformers for the tokenizer, is not installed.
            EngineError: a server does not answer, has other models than the rest, or shows no token ids or
                log-probs of another distribution than the one it samples from.
        """
        made = [
            Client(
                url,
                key_variable=key_variable,
                timeout=timeout,
                retries=retries,
                backoff=backoff,
                ending=_PATH,
            )
            for url in ([urls] if isinstance(urls, str) else urls)
        ]
        if not made:
            raise EngineError("no server was named; write http://host:port")
        clients = list({client.url: client for client in made}.values())
        self.urls = [client.url for client in clients]
        self._retries, self._leads = retries, leads
        self._closed = False
        self._open = asyncio.Event()
        self._open.set()
        self._running: set[asyncio.Task[Any]] = set()
        self._cut: set[asyncio.Task[Any]] = set()  # those that closing ended
        self._paused: list[Server] = []
        self._fleet = Fleet(clients, every=check_every, patience=patience, fit=self._unfit)
        try:
            self.model, self.max_model_len, root = self._run(self._begin(model))
            self.tokenizer: Tokenizer = (
                _tokenizer(root if tokenizer is None else tokenizer, tokenizer is None)
                if tokenizer is None or isinstance(tokenizer, str)
                else tokenizer
            )
        except BaseException:
            self.close()
            raise

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one reply.

        Raises:
            PromptTooLong: nothing fits behind the prompt; mostly no server is even asked.
            EngineError: a server refused, none answered however often they were asked, or this is closed.
        """
        limit = room(len(prompt_ids), self.max_model_len, sampling.max_tokens)
        body = {"model": self.model, "prompt": list(prompt_ids), **_parameters(sampling), "max_tokens": limit}
        return await asyncio.wrap_future(
            workers.spawn(lambda: self._generate(body, sampling.session), loop=_LOOP)
        )

    @contextmanager
    def updating(self, version: int | None) -> Iterator[None]:
        """Hold the servers still while their weights are changed, then give those this number.

        Servers with vLLM's development endpoints are paused, and requests under way go on with the new
        weights where they were; on others those are waited for. New requests wait here.

        The new weights must reach all servers, those too that are not up: they come back by the number.

        Raises:
            EngineError: it was closed.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        changed = False
        try:
            self._run(self._hold())
            yield
            self.version, changed = version, True
        finally:
            # Not given up when interrupted once more: a server must not be left paused.
            workers.spawn(lambda: self._go_on(changed), loop=_LOOP).result()

    async def drain(self, timeout: float | None = None) -> None:
        """Take no new requests, wait for those under way, cancel what is left after a while, and close.

        Args:
            timeout: seconds; None waits for all.
        """
        self._closed = True
        await asyncio.wrap_future(workers.spawn(lambda: self._end(timeout), loop=_LOOP))

    def close(self) -> None:
        """Cancel what is under way and close the connections; twice is harmless."""
        self._closed = True
        workers.spawn(lambda: self._end(0.0), loop=_LOOP).result(CONNECT)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = workers.spawn(lambda: work, loop=_LOOP)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, after which it must not go on by itself
            future.cancel()
            raise

    async def _begin(self, model: str | None) -> tuple[str, int, str]:
        """Name, context length and folder of the model that all servers have."""
        found = [await _card(server.client, model) for server in self._fleet.servers]
        names = {str(card["id"]) for card in found}
        if len(names) > 1:
            told = ", ".join(f"{url}: {card['id']}" for url, card in zip(self.urls, found, strict=True))
            raise EngineError(f"the servers have different models ({told}); start replicas of one")
        name = names.pop()
        for server in self._fleet.servers:
            client = server.client
            await check_logprobs(client.once, client.url, client.root, name)
        return name, min(int(card["max_model_len"]) for card in found), str(found[0].get("root") or name)

    async def _generate(self, body: Mapping[str, Any], session: str) -> Generation:
        task = asyncio.current_task()
        assert task is not None
        if self._closed:
            raise EngineError("the engine is closed")
        self._running.add(task)
        try:
            return await self._asked({**body, "session_id": session} if session else body, session)
        except asyncio.CancelledError:
            if task in self._cut:
                raise EngineError("the engine was closed") from None
            raise
        finally:
            self._running.discard(task)

    async def _asked(self, body: Mapping[str, Any], session: str) -> Generation:
        """The reply, asked for until it is whole."""
        said = ""
        for attempt in range(self._retries + 1):
            async with self._lent(session) as server:
                version = self.version
                try:
                    return _read(await server.ask("POST", server.client.url + _PATH, body), server, version)
                except Refused as refused:
                    if refused.overflow:
                        raise PromptTooLong(f"{server.client.url}: {refused.reason}") from None
                    raise
                except Passing as passing:
                    said, after, lost = f"{server.client.url}: {passing.said}", passing.after, passing.lost
            elsewhere = lost and not (server.up and await self._fleet.look(server))
            if attempt < self._retries and not elsewhere:
                await asyncio.sleep(server.client.wait(attempt, after))
        raise EngineError(f"asked {self._retries + 1} times for a reply; the last time {said}")

    @asynccontextmanager
    async def _lent(self, session: str) -> AsyncIterator[Server]:
        """A server whose weights are not being changed."""
        while True:
            await self._open.wait()
            async with self._fleet.lend(session) as server:
                if self._open.is_set():  # no server may have been up for a while
                    yield server
                    return

    async def _hold(self) -> None:
        """Pause the servers; those that cannot be paused have nothing under way then."""
        self._open.clear()
        for server in self._fleet.up if self._leads else ():
            self._paused.append(server)
            if not await _tell(server, "/pause?mode=keep"):
                self._paused.remove(server)
            while server.up and server not in self._paused and server.running:
                await asyncio.sleep(0.01)

    async def _go_on(self, changed: bool) -> None:
        paused, self._paused = self._paused, []
        for server in self._fleet.servers if self._leads else ():
            if server in paused:
                # What was cached of prompts under way was computed with the old weights, too.
                await _tell(server, "/reset_prefix_cache?reset_running_requests=true")
            if changed and self.version is not None:
                await _tell(server, "/update_weight_version", {"new_version": str(self.version)})
            if server in paused:
                await _tell(server, "/resume")
        self._open.set()

    async def _unfit(self, client: Client) -> str:
        """Why a server that is well again may not be asked: one that was started anew has old weights."""
        if self.version is None:
            return ""
        try:
            info = await client.once("GET", f"{client.root}/weight_info")
        except Refused:  # it does not count
            return ""
        found = str(info.get("weight_version"))
        return "" if found == str(self.version) else f"it has the weights {found!r} and not {self.version}"

    async def _end(self, timeout: float | None) -> None:
        self._open.set()
        left = set(self._running)
        if left:
            await asyncio.wait(left, timeout=timeout)
        self._cut |= self._running
        for task in self._cut:
            task.cancel()
        if self._cut:
            await asyncio.wait(self._cut)
        await self._fleet.close()


async def _card(client: Client, model: str | None) -> Mapping[str, Any]:
    """What a server says of its model."""
    listed = (await client.ask("GET", "/models")).get("data") or ()
    cards = [each for each in listed if isinstance(each, Mapping) and each.get("id")]
    fitting = [each for each in cards if each["id"] == model or (model is None and not each.get("parent"))]
    names = ", ".join(str(each["id"]) for each in cards[:8]) or "none"
    if len(fitting) != 1:
        asked = "needs the name of a model" if model is None else f"has no model {model!r}"
        raise EngineError(f"{client.url} {asked}; it has {names}")
    if not isinstance(fitting[0].get("max_model_len"), int):
        raise EngineError(f"{client.url} does not say how long its context is; is it a vLLM server?")
    return fitting[0]


def _tokenizer(name: str, from_server: bool) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "transformers", "train") from error
    try:
        made: Tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        hint = "; the server has it there, so name it: --tokenizer FOLDER" if from_server else ""
        raise EngineError(f"cannot load the tokenizer of {name!r}: {reason}{hint}") from error
    return made


async def _tell(server: Server, path: str, body: Any = None) -> bool:
    """Whether a server has this development endpoint; one that fails at it is taken out."""
    timeout = None if server.up else LOOK  # one that is out may be hanging
    try:
        await server.client.once("POST", server.client.root + path, {} if body is None else body, timeout)
    except Refused as refused:
        if refused.status in _UNKNOWN:
            return False
        server.take_out(f"{path} failed: {refused.said}")
    except EngineError as error:
        server.take_out(f"{path} failed: {error}")
    return server.up


def _parameters(sampling: Sampling) -> dict[str, Any]:
    """The body's keys. Nothing is left to defaults, which a server may take from the model's folder."""
    body: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "add_special_tokens": False,
        "skip_special_tokens": False,  # a stop string may hold one, or stand beside one
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.stop_token_ids:
        body["stop_token_ids"] = list(sampling.stop_token_ids)
    if sampling.structure:
        body["structured_outputs"] = {"structural_tag": sampling.structure}
    return body


def _read(data: Mapping[str, Any], server: Server, version: int | None) -> Generation:
    """A server's answer as ours.

    Raises:
        Passing: the request was aborted, and can be asked again.
        EngineError: it is no completion by ids, or its parts contradict each other.
    """
    url = server.client.url
    try:
        choice = data["choices"][0]
        ids = [int(each) for each in choice["token_ids"]]
        tokens, numbers = choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]
        logprobs = [-math.inf if each is None else float(each) for each in numbers]
        finish, told = choice.get("finish_reason"), choice.get("versions")
        cached = ((data.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise EngineError(f"{url} answered with no completion by ids: {json.dumps(data)[:TOLD]}") from None
    if finish not in ("stop", "length"):
        raise Passing(url, f"it ended a request with finish reason {finish!r}")
    if list(tokens) != [f"token_id:{each}" for each in ids]:
        raise EngineError(f"{url} shows log-probs of other ids than it sampled: {tokens[:8]} and {ids[:8]}")
    versions = told if told is not None else [] if version is None else [version] * len(ids)
    try:
        return Generation(ids, logprobs, finish, versions, cached)
    except ValueError as error:
        raise EngineError(f"{url}: {error}") from None
