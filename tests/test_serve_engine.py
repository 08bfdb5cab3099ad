"""Tests of an engine behind a URL, spoken to with the standard library's client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines.server import ServerEngine
from agent_r1_env.errors import EngineError, PromptTooLong
from agent_r1_env.testing import ByteTokenizer, scripted

pytest.importorskip("h11")

from agent_r1_env.serve_engine import MAX_BYTES, EngineServer


class Waiting:
    """An engine that answers when it is let go, and tells what it was asked and who gave up."""

    tokenizer = ByteTokenizer()
    max_model_len = 100

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], Sampling]] = []
        self.cancelled = threading.Event()
        self.go_on = threading.Event()
        self.answer = lambda: Generation([104, 258], [-0.5, -math.inf], "stop", [3, 4], 7)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        self.asked.append((list(prompt_ids), sampling))
        try:
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.answer()

    def close(self) -> None:
        pass


@pytest.fixture
def engine() -> Waiting:
    return Waiting()


@pytest.fixture
def server(engine: Waiting) -> Iterator[EngineServer]:
    engine.go_on.set()
    with EngineServer(engine) as running:
        yield running


def connect(server: EngineServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)


def once(server: EngineServer, path: str, body: Any = None) -> tuple[int, Any]:
    with contextlib.closing(connect(server)) as connection:
        return ask(connection, path, body)


def ask(connection: http.client.HTTPConnection, path: str, body: Any = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, data)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def completion(server: EngineServer, **body: Any) -> tuple[int, Any]:
    return once(server, "/v1/completions", {"prompt": [65], **body})


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_reply_holds_ids_logprobs_versions_and_what_was_cached(
    server: EngineServer, engine: Waiting
) -> None:
    status, data = completion(server, max_tokens=5)
    assert status == 200
    choice = data["choices"][0]
    assert choice["token_ids"] == [104, 258] and choice["text"] == "h<|im_end|>"
    assert choice["logprobs"]["tokens"] == ["token_id:104", "token_id:258"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5, -9999.0]
    assert choice["finish_reason"] == "stop" and choice["versions"] == [3, 4]
    assert data["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "total_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 7},
    }


def test_wishes_reach_the_engine(server: EngineServer, engine: Waiting) -> None:
    wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 11, "max_tokens": 6}
    more = {"stop": ["</a>"], "stop_token_ids": [257], "session_id": "episode"}
    completion(server, **wishes, **more, structured_outputs={"structural_tag": "{}"})
    prompt, sampling = engine.asked[0]
    assert prompt == [65]
    assert sampling == Sampling(
        **wishes, stop=("</a>",), stop_token_ids=(257,), session="episode", structure="{}"
    )


def test_one_connection_serves_one_request_after_another(server: EngineServer) -> None:
    connection = connect(server)
    assert ask(connection, "/health") == (200, {"status": "healthy"})
    (card,) = ask(connection, "/v1/models")[1]["data"]
    assert card["id"] == "policy" and card["max_model_len"] == 100
    assert ask(connection, "/v1/completions", {"prompt": [1]})[0] == 200
    assert ask(connection, "/nowhere")[0] == 404
    assert ask(connection, "//[")[0] == 404
    assert ask(connection, "/health")[0] == 200
    connection.close()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[", "Expecting"),
        (b"[]", "JSON object"),
        ({"prompt": "text"}, "list of token ids"),
        ({"prompt": [True]}, "list of token ids"),
        ({"prompt": [1], "model": "other"}, "'other' does not exist"),
        ({"prompt": [1], "n": 2}, "n=2 is not known"),
        ({"prompt": [1], "stream": True}, "stream=True is not known"),
        ({"prompt": [1], "top_p": 0}, "top_p must be"),
        ({"prompt": []}, "not empty"),
        ({"prompt": [-1]}, "list of token ids"),
        ({"prompt": [1], "temperature": "hot"}, "temperature must be a number, got 'hot'"),
        ({"prompt": [1], "max_tokens": 1.5}, "max_tokens must be a whole number, got 1.5"),
        ({"prompt": [1], "seed": True}, "seed must be a whole number, got True"),
        ({"prompt": [1], "stop": [5]}, "stop must be a text or a list of texts"),
        ({"prompt": [1], "stop_token_ids": ["a"]}, "stop_token_ids must be a list of token ids"),
        ({"prompt": [1], "structured_outputs": "a"}, "structured_outputs must be an object"),
        (
            {"prompt": [1], "structured_outputs": {"regex": "a"}},
            "only structural_tag is known here, got regex",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(server: EngineServer, body: Any, told: str) -> None:
    status, data = once(server, "/v1/completions", body)
    assert status == 400 and told in data["error"]["message"]


def test_what_is_no_http_is_refused(server: EngineServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"what is this\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_too_large_a_request_is_refused(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_r1_env.serve_engine.MAX_BYTES", 100)
    assert MAX_BYTES > 100
    assert completion(server, stop=["x" * 200])[0] == 413


def test_a_prompt_too_long_is_told_as_servers_do(server: EngineServer, engine: Waiting) -> None:
    def refuse() -> Generation:
        raise PromptTooLong("100 prompt tokens leave no room in a context of 100")

    engine.answer = refuse
    status, data = completion(server)
    assert status == 400 and "maximum context length is 100 tokens" in data["error"]["message"]


def test_an_engine_that_fails_is_told_of(server: EngineServer, engine: Waiting) -> None:
    def fail() -> Generation:
        raise RuntimeError("out of memory")

    engine.answer = fail
    assert completion(server)[1]["error"] == {"message": "RuntimeError: out of memory", "code": 500}
    assert server.running == 0


def test_what_an_engine_never_does_is_not_asked_for_again() -> None:
    with EngineServer(scripted("hi")) as server:
        status, said = completion(server, structured_outputs={"structural_tag": "{}"})
        assert status == 501 and "leave `structured` out" in said["error"]["message"]
        with (
            contextlib.closing(ServerEngine(server.url, tokenizer=ByteTokenizer())) as engine,
            pytest.raises(EngineError) as told,
        ):
            asyncio.run(engine.generate([65], Sampling(structure="{}")))
        assert "leave `structured` out" in str(told.value) and "times" not in str(told.value)


def test_a_client_that_leaves_cancels_its_request(engine: Waiting) -> None:
    with EngineServer(engine) as server:
        connection = connect(server)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1]}))
        until(lambda: server.running == 1)
        connection.close()
        assert engine.cancelled.wait(10)
        until(lambda: server.running == 0)


def test_closing_cancels_what_is_under_way_and_leaves_no_thread(engine: Waiting) -> None:
    server = EngineServer(engine)
    with server:
        connection = connect(server)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1]}))
        until(lambda: server.running == 1)
    connection.close()
    assert engine.cancelled.is_set() and server.running == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "agent-r1-serve"]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
    server.close()


def test_closing_leaves_no_connection_to_a_client_that_does_not_read(engine: Waiting) -> None:
    engine.answer = lambda: Generation([65] * 300_000, [-1.0] * 300_000, "stop")
    engine.go_on.set()
    with EngineServer(engine) as server:
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        body = b'{"prompt": [1]}'
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n" + body)
        assert raw.recv(1)  # the rest is more than the system holds
    with raw, contextlib.suppress(ConnectionError):
        while raw.recv(1 << 20):
            pass


def test_many_requests_wait_at_once(engine: Waiting) -> None:
    with EngineServer(engine) as server:
        connections = [connect(server) for _ in range(50)]
        for connection in connections:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": [1]}))
        until(lambda: server.running == 50)
        engine.go_on.set()
        assert all(connection.getresponse().status == 200 for connection in connections)
        for connection in connections:
            connection.close()


def test_a_taken_port_is_told_of(server: EngineServer) -> None:
    with pytest.raises(EngineError, match="cannot serve at .*choose another"):
        EngineServer(scripted("x"), port=server.port).__enter__()
