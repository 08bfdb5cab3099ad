"""Tests of the engine of vLLM servers, against servers of our own on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium as gym
import pytest

pytest.importorskip("httpx")

from agent_r1_env.engines import Generation, Sampling, Updatable
from agent_r1_env.engines.loading import load
from agent_r1_env.engines.probing import PROCESSED, mode
from agent_r1_env.engines.server import ServerEngine
from agent_r1_env.errors import EngineError, PromptTooLong, UnknownName
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.rollout import Rollout
from agent_r1_env.serve_engine import EngineServer
from agent_r1_env.testing import ByteTokenizer, answer, call, scripted, sum_env

TOKENIZER = ByteTokenizer()
ENV = "Testing/ServerSums-v0"
QUICK: dict[str, Any] = {"backoff": 0.001, "check_every": 0.02, "patience": 5.0}


def completion(ids: Sequence[int] = (104, 258), **more: Any) -> dict[str, Any]:
    tokens = [f"token_id:{each}" for each in ids]
    shown = {"tokens": tokens, "token_logprobs": [-0.5] * len(ids)}
    choice = {"token_ids": list(ids), "logprobs": shown, "finish_reason": "stop", **more}
    return {"choices": [choice], "usage": {"prompt_tokens_details": None}}


SHOWN = completion()["choices"][0]["logprobs"]


class Fake:
    """A server in the manner of vLLM, with development endpoints, that keeps what it was asked."""

    def __init__(self, port: int = 0) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.respond: Callable[[dict[str, Any]], tuple[int, Any]] = lambda body: (200, completion())
        self.headers: dict[str, str] = {}
        self.healthy, self.mode, self.weights = True, PROCESSED, "default"
        self.dev = True
        self.models = [{"id": "m", "root": "here/m", "max_model_len": 100}]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                config = {"vllm_config": {"model_config": {"logprobs_mode": outer.mode}}}
                known = {"/v1/models": {"data": outer.models}}
                if outer.dev:
                    known |= {"/server_info": config, "/weight_info": {"weight_version": outer.weights}}
                if path == "/health":
                    self.reply(200 if outer.healthy else 503, None)
                else:
                    self.reply(200 if path in known else 404, known.get(path, {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.paths.append(self.path)
                if self.path == "/v1/completions":
                    outer.asked.append(body)
                    self.reply(*outer.respond(body))
                elif outer.dev:
                    outer.weights = body.get("new_version", outer.weights)
                    self.reply(200, {})
                else:
                    self.reply(404, {"detail": "Not Found"})

            def reply(self, status: int, body: Any) -> None:
                data = b"" if body is None else json.dumps(body).encode()
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in {**outer.headers, "Content-Length": str(len(data))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        class Quick(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def get_request(self) -> tuple[socket.socket, Any]:
                outer.connections.append(super().get_request())
                return outer.connections[-1]

            def handle_error(self, *_: Any) -> None:
                pass  # a client that went away is what some tests are about

        self.connections: list[tuple[socket.socket, Any]] = []
        self._server = Quick(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection, _ in self.connections:  # as the end of a process does
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def servers() -> Iterator[list[Fake]]:
    made = [Fake(), Fake()]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def server(servers: list[Fake]) -> Fake:
    return servers[0]


@contextlib.contextmanager
def engine_of(*servers: Fake, **options: Any) -> Iterator[ServerEngine]:
    with contextlib.closing(
        ServerEngine([each.url for each in servers], tokenizer=TOKENIZER, **{**QUICK, **options})
    ) as made:
        yield made


def ask(engine: ServerEngine, prompt: Sequence[int] = (65,), **sampling: Any) -> Generation:
    return asyncio.run(engine.generate(prompt, Sampling(**sampling)))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# -- what is asked and answered


def test_ids_and_logprobs_are_those_of_the_server(server: Fake) -> None:
    usage = {"prompt_tokens_details": {"cached_tokens": 48}}
    server.respond = lambda _: (200, {**completion([104, 105, 258]), "usage": usage})
    with engine_of(server) as engine:
        assert ask(engine) == Generation([104, 105, 258], [-0.5] * 3, "stop", [], 48)
        assert (engine.model, engine.max_model_len, engine.tokenizer) == ("m", 100, TOKENIZER)


def test_every_wish_is_sent_and_nothing_left_to_defaults(server: Fake) -> None:
    with engine_of(server) as engine:
        wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 11}
        ask(engine, [1, 2], **wishes, stop=("</a>",), stop_token_ids=(7,), session="e", structure='{"a": 1}')
        ask(engine, max_tokens=500)
    first, second = server.asked
    assert first | wishes == first and first["prompt"] == [1, 2] and first["session_id"] == "e"
    assert first["stop"] == ["</a>"] and first["stop_token_ids"] == [7]
    assert first["structured_outputs"] == {"structural_tag": '{"a": 1}'}
    for key in ("include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids"):
        assert first[key] is True
    assert first["skip_special_tokens"] is first["add_special_tokens"] is False
    assert second["max_tokens"] == 99  # what the context still holds
    assert second["repetition_penalty"] == 1.0 and second["top_k"] == 0
    assert {"seed", "stop", "session_id", "structured_outputs"}.isdisjoint(second)


def test_a_prompt_that_fills_the_context_is_not_sent(server: Fake) -> None:
    with engine_of(server) as engine:
        with pytest.raises(PromptTooLong, match="leave no room"):
            ask(engine, [1] * 100)
        assert server.asked == []
        server.respond = lambda _: (400, {"error": {"message": "maximum context length is 8 tokens"}})
        with pytest.raises(PromptTooLong, match="context length"):
            ask(engine)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (completion(token_ids=None), "no completion by ids"),
        ({"choices": []}, "no completion by ids"),
        (completion(token_ids=[104, 9]), "log-probs of other ids than it sampled"),
        (completion(logprobs={**SHOWN, "token_logprobs": [-0.5]}), "2 ids but 1 log-probs"),
        (completion(versions=[3]), "2 ids but 1 versions"),
    ],
)
def test_an_answer_that_could_mislead_a_trainer_is_refused(server: Fake, data: Any, told: str) -> None:
    with engine_of(server) as engine:
        server.respond = lambda _: (200, data)
        with pytest.raises(EngineError, match=told):
            ask(engine)


# -- what is asked again


def test_what_may_pass_is_asked_again(server: Fake) -> None:
    replies = [(500, {}), (429, {}), (200, completion(finish_reason="abort")), (200, completion())]
    server.respond = lambda _: replies.pop(0)
    with engine_of(server) as engine:
        assert ask(engine, seed=3).ids == [104, 258]
    assert len(server.asked) == 4 and len({json.dumps(body) for body in server.asked}) == 1


def test_a_server_says_when_to_come_back(server: Fake) -> None:
    replies = [(503, {}), (200, completion())]
    server.respond, server.headers = lambda _: replies.pop(0), {"Retry-After": "0"}
    with engine_of(server, backoff=100.0) as engine:
        assert ask(engine).ids == [104, 258]


def test_patience_ends(server: Fake) -> None:
    with engine_of(server, retries=2) as engine:
        server.respond = lambda _: (500, {"error": {"message": "out of order"}})
        with pytest.raises(EngineError, match="asked 3 times .* out of order"):
            ask(engine)
        assert len(server.asked) == 3
        server.respond = lambda _: (400, {"error": {"message": "no such thing"}})
        with pytest.raises(EngineError, match="no such thing"):
            ask(engine)
        assert len(server.asked) == 4


# -- several servers


async def many(engine: ServerEngine, count: int, session: Callable[[int], str]) -> list[Generation]:
    asks = [engine.generate([65], Sampling(session=session(number))) for number in range(count)]
    return await asyncio.gather(*asks)


def test_a_session_stays_at_its_server_and_sessions_spread(servers: list[Fake]) -> None:
    for each in servers:
        each.respond = lambda _: time.sleep(0.05) or (200, completion())
    with engine_of(*servers) as engine:
        asyncio.run(many(engine, 20, lambda number: f"e{number}"))
        first = [{body["session_id"] for body in each.asked} for each in servers]
        assert [len(sessions) for sessions in first] == [10, 10]
        asyncio.run(many(engine, 60, lambda number: f"e{number % 20}"))
    assert [{body["session_id"] for body in each.asked} for each in servers] == first


def test_only_so_many_sessions_are_remembered(server: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_r1_env.engines.fleet.SESSIONS", 5)
    with engine_of(server) as engine:
        asyncio.run(many(engine, 20, lambda number: f"e{number}"))
        assert len(engine._fleet._homes) == 5


def test_a_server_that_dies_is_left_and_comes_back(servers: list[Fake]) -> None:
    dying, other = servers
    with engine_of(*servers) as engine:
        asyncio.run(many(engine, 30, lambda number: f"e{number}"))
        assert dying.asked and other.asked
        before = len(other.asked)
        dying.healthy = False
        dying.respond = lambda _: (503, {})
        dying.close()
        asyncio.run(many(engine, 30, lambda number: f"e{number}"))
        assert len(other.asked) >= before + 30
        servers[0] = Fake(int(dying.url.rpartition(":")[2]))
        until(lambda: len(engine._fleet.up) == 2)
        asyncio.run(many(engine, 30, lambda number: f"f{number}"))
        assert servers[0].asked


def test_a_server_that_hangs_loses_its_requests_to_another(servers: list[Fake]) -> None:
    hanging, other = servers
    begun, over = threading.Event(), threading.Event()

    def hang(_: Any) -> tuple[int, Any]:
        begun.set()
        hanging.healthy = False
        over.wait(10)
        return 200, completion([1])

    hanging.respond = hang
    with engine_of(*servers) as engine:
        found = asyncio.run(many(engine, 8, lambda number: f"e{number}"))
        assert begun.is_set() and {tuple(each.ids) for each in found} == {(104, 258)}
        assert [each.client.url for each in engine._fleet.up] == [other.url + "/v1"]
        over.set()


def test_when_none_is_up_requests_wait_for_a_while(server: Fake) -> None:
    with engine_of(server, patience=0.1, retries=1) as engine:
        server.healthy = False
        engine._fleet.servers[0].take_out("it is being tested")
        with pytest.raises(EngineError, match=r"for 0.1 s no server has been up \(.*tested|503"):
            ask(engine)
    with engine_of(servers_up(server)) as engine:
        engine._fleet.servers[0].take_out("it is being tested")
        assert ask(engine).ids == [104, 258]


def servers_up(server: Fake) -> Fake:
    server.healthy = True
    return server


def test_one_started_anew_waits_for_the_weights_of_now(server: Fake) -> None:
    with engine_of(server, patience=0.3, retries=0) as engine:
        with engine.updating(3):
            pass
        server.weights = "default"  # as after a restart
        engine._fleet.servers[0].take_out("it was killed")
        with pytest.raises(EngineError, match="it has the weights 'default' and not 3"):
            ask(engine)
        server.weights = "3"
        until(lambda: engine._fleet.up != [])
        assert ask(engine).versions == [3, 3]


def test_replicas_must_have_one_model(servers: list[Fake]) -> None:
    servers[1].models = [{"id": "other", "max_model_len": 50}]
    with pytest.raises(EngineError, match="different models .*m, .*other"):
        ServerEngine([each.url for each in servers], tokenizer=TOKENIZER)
    servers[1].models = [{"id": "m", "max_model_len": 50}]
    with engine_of(*servers) as engine:
        assert engine.max_model_len == 50


def test_a_model_must_be_named_where_there_are_several(server: Fake) -> None:
    server.models = [{"id": name, "max_model_len": 9} for name in ("a", "b")]
    with pytest.raises(EngineError, match="needs the name of a model; it has a, b"):
        ServerEngine(server.url, tokenizer=TOKENIZER)
    with pytest.raises(EngineError, match="has no model 'c'; it has a, b"):
        ServerEngine(server.url, "c", TOKENIZER)
    with contextlib.closing(ServerEngine(server.url, "b", TOKENIZER)) as engine:
        assert engine.model == "b"
    server.models = [{"id": "a", "max_model_len": 9}, {"id": "adapter", "parent": "a", "max_model_len": 9}]
    with engine_of(server) as engine:
        assert engine.model == "a"


def test_a_server_that_is_named_twice_is_one(server: Fake) -> None:
    with contextlib.closing(ServerEngine([server.url, f"{server.url}/v1/"], tokenizer=TOKENIZER)) as engine:
        assert engine.urls == [f"{server.url}/v1"]


def test_a_password_in_what_is_no_address_is_not_shown() -> None:
    with pytest.raises(EngineError, match="the address is no address of a server") as caught:
        ServerEngine("http://me:secret@", tokenizer=TOKENIZER)
    assert "secret" not in str(caught.value)


def test_nobody_at_an_address_is_told_of_at_once(server: Fake) -> None:
    with pytest.raises(EngineError, match="no server answers at .* is it running"):
        ServerEngine("http://127.0.0.1:9", tokenizer=TOKENIZER)
    with pytest.raises(EngineError, match="no server was named"):
        ServerEngine([])
    with pytest.raises(EngineError, match="cannot load the tokenizer of 'here/m'.*--tokenizer FOLDER"):
        ServerEngine(server.url)


# -- cancelling, draining, closing


def held(server: Fake) -> threading.Event:
    """Let the server answer completions only when the event is set."""
    go_on = threading.Event()
    server.respond = lambda _: (go_on.wait(10), (200, completion()))[1]  # type: ignore[return-value]
    return go_on


async def test_cancelling_closes_the_connection() -> None:
    class Waiting:
        tokenizer, max_model_len, cancelled = TOKENIZER, 100, threading.Event()

        async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            raise AssertionError

        def close(self) -> None:
            pass

    waiting = Waiting()
    with EngineServer(waiting) as server:
        engine = await asyncio.to_thread(ServerEngine, server.url, tokenizer=TOKENIZER, **QUICK)
        task = asyncio.create_task(engine.generate([1], Sampling()))
        while not server.running:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(waiting.cancelled.wait, 10)
        await engine.drain()


async def test_draining_ends_what_is_under_way_and_takes_nothing_new(server: Fake) -> None:
    engine = await asyncio.to_thread(ServerEngine, server.url, tokenizer=TOKENIZER, **QUICK)
    go_on = held(server)
    task = asyncio.create_task(engine.generate([1], Sampling()))
    while not server.asked:
        await asyncio.sleep(0.005)
    draining = asyncio.create_task(engine.drain())
    await asyncio.sleep(0.01)
    with pytest.raises(EngineError, match="closed"):
        await engine.generate([1], Sampling())
    assert not draining.done()
    go_on.set()
    assert (await task).ids == [104, 258]
    await draining
    engine.close()


async def test_draining_ends_in_time_and_closing_at_once(server: Fake) -> None:
    go_on = held(server)
    for end in ("drain", "close"):
        engine = await asyncio.to_thread(ServerEngine, server.url, tokenizer=TOKENIZER, **QUICK)
        count = len(server.asked)
        task = asyncio.create_task(engine.generate([1], Sampling()))
        while len(server.asked) == count:
            await asyncio.sleep(0.005)
        await (engine.drain(0.01) if end == "drain" else asyncio.to_thread(engine.close))
        with pytest.raises(EngineError, match="closed"):
            await task
    go_on.set()


# -- new weights


def test_servers_are_paused_while_weights_change(servers: list[Fake]) -> None:
    with engine_of(*servers) as engine:
        assert isinstance(engine, Updatable) and engine.version is None
        with engine.updating(4):
            assert [each.paths for each in servers] == [["/pause?mode=keep"]] * 2
        for each in servers:
            assert each.paths[1:] == [
                "/reset_prefix_cache?reset_running_requests=true",
                "/update_weight_version",
                "/resume",
            ]
            assert each.weights == "4"
        assert ask(engine).versions == [4, 4]


def test_a_reply_across_an_update_has_the_older_version(server: Fake) -> None:
    with engine_of(server) as engine, engine.updating(1):
        pass
    with engine_of(server) as engine:
        engine.version = 1
        go_on, found = held(server), []
        thread = threading.Thread(target=lambda: found.append(ask(engine)))
        thread.start()
        until(lambda: bool(server.asked))
        with engine.updating(2):
            go_on.set()
        thread.join()
        assert found[0].versions == [1, 1] and ask(engine).versions == [2, 2]


def test_a_server_that_cannot_pause_is_waited_for(server: Fake) -> None:
    server.dev = False
    server.respond = probing
    with engine_of(server) as engine:
        go_on, found = held(server), []
        asked = len(server.asked)
        thread = threading.Thread(target=lambda: found.append(ask(engine)))
        thread.start()
        until(lambda: len(server.asked) > asked)
        threading.Timer(0.1, go_on.set).start()
        with engine.updating(2):
            assert engine._fleet.servers[0].running == 0
        thread.join()
        assert found[0].ids == [104, 258]


def test_who_waited_for_a_server_waits_for_the_weights_too(server: Fake) -> None:
    server.dev, server.respond = False, probing
    with engine_of(server) as engine:
        server.healthy = False
        engine._fleet.servers[0].take_out("it is being tested")
        asked, found = len(server.asked), []
        thread = threading.Thread(target=lambda: found.append(ask(engine)))
        thread.start()
        until(lambda: not engine._fleet._some_up.is_set())
        with engine.updating(2):
            server.healthy = True
            until(lambda: engine._fleet.up != [])
            time.sleep(0.1)
            assert len(server.asked) == asked
        thread.join()
        assert found[0].versions == [2]


def test_one_that_does_not_lead_pauses_nothing(server: Fake) -> None:
    with engine_of(server, leads=False) as engine:
        with engine.updating(5):
            pass
        assert server.paths == [] and engine.version == 5


def test_a_failed_update_lets_requests_go_on(server: Fake) -> None:
    with engine_of(server) as engine:
        with pytest.raises(RuntimeError), engine.updating(2):
            raise RuntimeError
        assert engine.version is None and server.paths[-1] == "/resume"
        assert ask(engine).ids == [104, 258]


def test_a_server_that_was_out_while_weights_changed_comes_back_with_them(servers: list[Fake]) -> None:
    out = servers[0]
    with engine_of(*servers) as engine:
        with engine.updating(1):
            pass
        out.healthy = False
        engine._fleet.servers[0].take_out("it is being tested")
        with engine.updating(2):
            pass  # a trainer gives them to all, or raises
        assert out.weights == "2" and "/pause?mode=keep" not in out.paths[3:]
        with pytest.raises(RuntimeError), engine.updating(3):
            raise RuntimeError
        assert [each.weights for each in servers] == ["2", "2"]
        out.healthy = True
        ask(engine)
        until(lambda: len(engine._fleet.up) == 2)


def test_an_interrupted_update_pauses_no_server_later(servers: list[Fake]) -> None:
    plain, other = servers
    plain.dev, plain.respond = False, probing
    with engine_of(*servers) as engine:
        asked, go_on = len(plain.asked), held(plain)
        engine._fleet._homes["e"] = engine._fleet.servers[0]
        thread = threading.Thread(target=lambda: ask(engine, session="e"))
        thread.start()
        until(lambda: len(plain.asked) > asked)
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), engine.updating(2):
            raise AssertionError("it waits for the request")
        go_on.set()
        thread.join()
        ask(engine, session="e")
        assert other.paths == [] and engine.version is None


def test_a_closed_engine_cannot_be_updated_and_opens_no_connection(server: Fake) -> None:
    with engine_of(server) as engine:
        pass
    with pytest.raises(EngineError, match="closed"), engine.updating(2):
        raise AssertionError("it was held")
    assert server.paths == [] and engine._fleet.servers[0].client._client is None


# -- which log-probs a server shows


LOGITS = {"token_id:1": 2.0, "token_id:2": 1.0, "token_id:3": -0.5}


def shown(kind: str, temperature: float) -> dict[str, float]:
    """What a server of that mode shows of `LOGITS`."""
    scale = temperature if kind.startswith("processed") else 1.0
    scaled = {token: logit / scale for token, logit in LOGITS.items()}
    total = math.log(sum(map(math.exp, scaled.values()))) if kind.endswith("logprobs") else 0.0
    return {token: number - total for token, number in scaled.items()}


def probing(body: dict[str, Any], kind: str = PROCESSED) -> tuple[int, Any]:
    top = shown(kind, body["temperature"])
    data = completion([1])
    data["choices"][0]["logprobs"]["top_logprobs"] = [top]
    return 200, data


@pytest.mark.parametrize("kind", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"])
@pytest.mark.parametrize("shift", [0.0, -9.0])
def test_two_temperatures_tell_what_is_shown(
    kind: str, shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "LOGITS", {token: logit + shift for token, logit in LOGITS.items()})
    found = mode(shown(kind, 1.0), shown(kind, 0.5))
    assert found == kind or (kind, shift, found) == ("raw_logits", -9.0, "raw_logprobs")


def test_numbers_that_tell_nothing_are_not_judged() -> None:
    flat = dict.fromkeys(LOGITS, -1.1)
    sure = {"token_id:1": -0.0001, "token_id:2": -9.0}
    assert mode(flat, flat) == mode(sure, sure) == mode({"token_id:1": -1.0}, {"token_id:2": -1.0}) == ""


@pytest.mark.parametrize("dev", [True, False])
def test_raw_logprobs_are_refused_with_the_flag_to_set(server: Fake, dev: bool) -> None:
    server.dev, server.mode = dev, "raw_logprobs"
    server.respond = lambda body: probing(body, "raw_logprobs")
    with pytest.raises(EngineError, match="shows raw_logprobs .* --logprobs-mode processed_logprobs"):
        ServerEngine(server.url, tokenizer=TOKENIZER)
    server.mode, server.respond = PROCESSED, probing
    with engine_of(server):
        assert bool(server.asked) is not dev


def test_a_server_that_shows_no_ids_is_refused(server: Fake) -> None:
    server.dev, server.respond = False, lambda _: (200, {"choices": [{"text": "hi", "logprobs": None}]})
    with pytest.raises(EngineError, match="shows no token ids"):
        ServerEngine(server.url, tokenizer=TOKENIZER)


# -- with the rest


def test_episodes_over_a_gateway_are_those_of_its_engine() -> None:
    gym.register(ENV, entry_point=sum_env)
    try:
        policy = scripted(call("add", a=1, b=1), answer(2))
        requests = [EpisodeRequest(number % 4, number) for number in range(8)]
        with Rollout(ENV, engine=policy) as rollout:
            wanted = rollout.run(requests)
        with (
            EngineServer(policy) as server,
            contextlib.closing(ServerEngine(server.url, tokenizer=TOKENIZER)) as engine,
            Rollout(ENV, engine=engine) as rollout,
        ):
            found = rollout.run(requests)
        for one, other in zip(wanted, found, strict=True):
            assert [step.response_ids for step in one.steps] == [step.response_ids for step in other.steps]
            assert one.reward == other.reward
    finally:
        del gym.registry[ENV]


def test_a_model_is_loaded_by_its_kind_of_name(server: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "agent_r1_env.engines.server.ServerEngine", lambda *args, **kw: made.append((args, kw))
    )
    load("http://a:1, http://b:2", tokenizer="t")
    load("http://a:1", "server", retries=1)
    assert made == [
        ((["http://a:1", "http://b:2"],), {"tokenizer": "t"}),
        ((["http://a:1"],), {"tokenizer": None, "retries": 1}),
    ]
    with pytest.raises(EngineError, match="use 'server'"):
        load("http://a:1", "transformers")
    with pytest.raises(EngineError, match="'folder' is no address"):
        load("folder", "server")
    with pytest.raises(UnknownName, match="sever"):
        load("folder", "sever")
    with pytest.raises(TypeError, match="only the engine 'server' takes retries"):
        load("folder", "vllm", retries=1)


def test_an_idle_fleet_is_not_watched(server: Fake) -> None:
    with engine_of(server) as engine:
        ask(engine)
        until(lambda: engine._fleet._watch is not None and engine._fleet._watch.done())
