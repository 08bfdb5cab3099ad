"""An engine behind a URL: token ids in, token ids out, for processes that cannot hold it themselves.

It speaks the part of vLLM's protocol that `engines.server.ServerEngine` uses, so that any engine of this
package, one that lives in a trainer's process included, serves episodes elsewhere. One event loop on one
thread holds all connections, because a request does little but wait, and sees at once that a client has
left. The parsing of HTTP is h11's, which comes with httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any

from agent_r1_env.completions import answered, asked_of
from agent_r1_env.engines import Engine
from agent_r1_env.errors import EngineError, PromptTooLong, Unsupported, missing_extra

MAX_BYTES = 64 << 20
"""Bytes of a request that are read; a prompt of a million ids has seven million."""
_PIECE = 1 << 16
_BACKLOG = 1024
_Answer = tuple[HTTPStatus, Mapping[str, Any]]


class EngineServer:
    """Answers for an engine from entering the context to leaving it; the engine stays its owner's.

    Whoever reaches the address may ask: keep to the loopback interface, or to a network that is yours.
    """

    def __init__(
        self, engine: Engine, *, model: str = "policy", host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Nothing listens yet.

        Args:
            model: the name that clients ask for, if they name one.
            host: an address of this machine.
            port: 0 takes a free one.

        Raises:
            MissingExtra: h11 is not installed.
        """
        try:
            import h11  # noqa: F401 - what is missing should show now
        except ModuleNotFoundError as error:
            raise missing_extra("h11", "http") from error
        self.engine, self.model = engine, model
        self.host, self.port = host, port
        self.running = 0
        """Requests that the engine works on."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it can be reached."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def __enter__(self) -> EngineServer:
        """Listen.

        Raises:
            EngineError: the address is not free, or is none of this machine.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listening = socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise EngineError(
                f"cannot serve at {self.host}:{self.port}: {reason}; choose another host or port"
            ) from error
        self.port = int(listening.getsockname()[1])
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, listening), name="agent-r1-serve", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and cancel what is under way; twice is harmless."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(listening))
        finally:
            loop.close()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._begin, sock=listening, backlog=_BACKLOG)
        await self._stop.wait()
        server.close()
        while self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.wait(self._connections)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a stream's callback is run as one
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            writer.transport.abort()  # the server ends, or the client has left: nobody is there to be told
        finally:
            self._connections.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after another."""
        import h11

        connection = h11.Connection(h11.SERVER)
        while True:
            try:
                request = await _request(connection, reader)
            except h11.RemoteProtocolError as error:
                await _send(connection, writer, _error(HTTPStatus(error.error_status_hint), str(error)))
                return
            except _TooLarge:
                told = f"a request has at most {MAX_BYTES} bytes"
                await _send(connection, writer, _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told))
                return
            if request is None:
                return
            answer = await self._while_connected(connection, reader, request)
            if answer is None:
                return
            await _send(connection, writer, answer)
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _while_connected(
        self, connection: Any, reader: asyncio.StreamReader, request: tuple[str, str, bytes]
    ) -> _Answer | None:
        """The answer; None, and nothing left to be computed, once the client is gone."""
        answering = asyncio.ensure_future(self._answer(*request))
        listening = asyncio.ensure_future(_gone(connection, reader))
        try:
            await asyncio.wait((answering, listening), return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            for task in (answering, listening):
                task.cancel()
            await asyncio.wait((answering, listening))

    async def _answer(self, method: str, target: str, body: bytes) -> _Answer:
        path = target.partition("?")[0]
        known = {
            ("GET", "/health"): self._health,
            ("GET", "/v1/models"): self._models,
            ("GET", "/server_info"): self._info,
        }
        if (method, path) in known:
            return HTTPStatus.OK, known[method, path]()
        if (method, path) != ("POST", "/v1/completions"):
            told = ", ".join(f"{verb} {place}" for verb, place in (*known, ("POST", "/v1/completions")))
            return _error(HTTPStatus.NOT_FOUND, f"no {method} {path}; known: {told}")
        try:
            prompt, sampling = asked_of(json.loads(body), self.model)
        except (ValueError, RecursionError) as error:
            return _error(HTTPStatus.BAD_REQUEST, f"{error}")
        self.running += 1
        try:
            found = await self.engine.generate(prompt, sampling)
            return HTTPStatus.OK, answered(self.model, self.engine.tokenizer, len(prompt), found)
        except PromptTooLong as error:
            told = f"the maximum context length is {self.engine.max_model_len} tokens: {error}"
            return _error(HTTPStatus.BAD_REQUEST, told)
        except Unsupported as error:  # a status that clients do not try again
            return _error(HTTPStatus.NOT_IMPLEMENTED, str(error))
        except Exception as error:  # whatever the engine died of, this client has to know it
            told = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, told)
        finally:
            self.running -= 1

    def _health(self) -> dict[str, Any]:
        return {"status": "healthy"}

    def _models(self) -> dict[str, Any]:
        """As vLLM lists them; ``root`` is where the tokenizer can be had."""
        root = getattr(self.engine.tokenizer, "name_or_path", None) or self.model
        card = {"id": self.model, "object": "model", "root": root, "max_model_len": self.engine.max_model_len}
        return {"object": "list", "data": [card]}

    def _info(self) -> dict[str, Any]:
        """What every `Generation` keeps to, in vLLM's words."""
        return {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}}


class _TooLarge(Exception):
    """A request with more bytes than are read."""


async def _request(connection: Any, reader: asyncio.StreamReader) -> tuple[str, str, bytes] | None:
    """Method, target and body of the next request; None once there is none."""
    import h11

    method, target, body = "", "", bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Request):
            method, target = event.method.decode(), event.target.decode("latin-1")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BYTES:
                raise _TooLarge
        elif isinstance(event, h11.EndOfMessage):
            return method, target, bytes(body)
        else:
            return None


async def _gone(connection: Any, reader: asyncio.StreamReader) -> None:
    """Return when the other side has left; what it sends before is kept for the next request."""
    while data := await reader.read(_PIECE):
        connection.receive_data(data)


async def _send(connection: Any, writer: asyncio.StreamWriter, answer: _Answer) -> None:
    import h11

    data = json.dumps(answer[1]).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    parts = [
        h11.Response(status_code=int(answer[0]), headers=headers, reason=answer[0].phrase.encode()),
        h11.Data(data=data),
        h11.EndOfMessage(),
    ]
    with contextlib.suppress(h11.LocalProtocolError):  # the client is past hearing it
        writer.write(b"".join(connection.send(part) for part in parts))
    await writer.drain()


def _error(status: HTTPStatus, reason: str) -> _Answer:
    return status, {"error": {"message": reason, "code": int(status)}}
