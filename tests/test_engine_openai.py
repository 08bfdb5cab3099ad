"""Tests of a model behind a URL, against a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import formats
from agent_r1_env.engines import Sampling, TextEngine
from agent_r1_env.engines.openai import OpenAIEngine
from agent_r1_env.errors import EngineError, PromptTooLong
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.players import ChatPlayer
from agent_r1_env.rollout import Rollout
from agent_r1_env.testing import add, answer, call, sum_env
from agent_r1_env.tool import tool

pytest.importorskip("httpx")
ENV = "Testing/OpenAISums-v0"
KEY = "sk-a-secret-of-ours"
Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


def completion(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "choices": [{"message": message, "finish_reason": finish, **more}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


class Server:
    """Answers each request with what ``respond`` makes of it, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.respond: Callable[[dict[str, Any]], Answer] = lambda body: (200, completion("hello"))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                self.reply(outer.respond(body))

            def do_GET(self) -> None:
                self.reply(outer.respond({}))

            def reply(self, said: Answer) -> None:
                outer.paths.append(self.path)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, body, headers = (*said, {})[:3]
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        class Quick(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass  # a client that went away is what some tests are about

        self._server = Quick(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("AGENT_R1_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()


@pytest.fixture
def engine(server: Server) -> Iterator[OpenAIEngine]:
    made = OpenAIEngine(server.url, "m", backoff=0.001)
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    gym.register(ENV, entry_point=sum_env)
    yield
    del gym.registry[ENV]


def ask(engine: OpenAIEngine, **sampling: Any) -> Any:
    return asyncio.run(engine.chat([{"role": "user", "content": "é?"}], Sampling(**sampling)))


def test_what_was_asked_for_is_sent_and_what_came_is_read(server: Server, engine: OpenAIEngine) -> None:
    found = ask(engine, max_tokens=9, temperature=0.5, top_p=0.9, top_k=4, seed=11, stop=("x",))
    assert isinstance(engine, TextEngine)
    assert (found.text, found.finish_reason, found.prompt_tokens, found.tokens) == ("hello", "stop", 7, 3)
    assert server.asked == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "é?"}],
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 4,
            "seed": 11,
            "stop": ["x"],
        }
    ]
    assert "authorization" not in server.headers[0]


def test_what_has_its_default_is_not_sent(server: Server, engine: OpenAIEngine) -> None:
    ask(engine)
    assert set(server.asked[0]) == {"model", "messages", "max_tokens", "temperature"}


@pytest.mark.parametrize(("said", "text"), [(None, ""), ("", ""), ("ü\n", "ü\n")])
def test_a_reply_without_text_is_empty(
    server: Server, engine: OpenAIEngine, said: str | None, text: str
) -> None:
    server.respond = lambda body: (200, {"choices": [{"message": {"content": said}}]})
    found = ask(engine)
    assert (found.text, found.finish_reason, found.tokens) == (text, "stop", None)


def test_a_reply_cut_by_its_length_is_told(server: Server, engine: OpenAIEngine) -> None:
    server.respond = lambda body: (200, completion("<answer>1</ans", "length"))
    assert ask(engine).finish_reason == "length"


@pytest.mark.parametrize("ending", ["", "/v1", "/v1/", "/v1/chat/completions"])
def test_an_address_may_be_written_in_several_ways(server: Server, ending: str) -> None:
    engine = OpenAIEngine(server.url.removesuffix("/v1") + ending, "m")
    ask(engine)
    engine.close()
    assert server.paths == ["/v1/chat/completions"]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:0", "http://[", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(EngineError, match="is no address of a server; write http://host:port/v1"):
        OpenAIEngine(url, "m")


def test_the_only_model_of_a_server_needs_no_name(server: Server) -> None:
    server.respond = lambda body: (200, {"data": [{"id": "the-one"}]})
    engine = OpenAIEngine(server.url)
    engine.close()
    assert engine.model == "the-one"
    assert server.paths == ["/v1/models"]
    server.respond = lambda body: (200, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(EngineError, match="needs the name of a model; it has a, b"):
        OpenAIEngine(server.url)


def test_the_key_comes_from_the_environment_and_is_never_told(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENT_R1_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    server.respond = lambda body: (401, {"error": {"message": f"Incorrect API key: {KEY}"}})
    engine = OpenAIEngine(server.url, "m")
    with pytest.raises(EngineError) as caught:
        ask(engine)
    engine.close()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "401 Unauthorized: Incorrect API key: ***" in str(caught.value)
    assert "environment variable AGENT_R1_API_KEY" in str(caught.value)
    assert KEY not in str(caught.value) + repr(vars(caught.value)) + caplog.text


def test_the_key_of_openai_is_sent_to_nobody_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    engine = OpenAIEngine(server.url, "m")
    ask(engine)
    engine.close()
    assert "authorization" not in server.headers[0]
    assert OpenAIEngine("https://api.openai.com/v1", "m").key_variable == "OPENAI_API_KEY"


def test_a_variable_without_a_key_is_refused(server: Server) -> None:
    with pytest.raises(EngineError, match="the environment variable ABSENT_KEY holds no API key"):
        OpenAIEngine(server.url, "m", key_variable="ABSENT_KEY")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_asked_again(server: Server, engine: OpenAIEngine, status: int) -> None:
    said = iter([(status, b"busy"), (status, b"busy"), (200, completion("at last"))])
    server.respond = lambda body: next(said)
    assert ask(engine).text == "at last"
    assert len(server.asked) == 3


def test_the_wait_that_a_server_asks_for_is_kept(server: Server) -> None:
    engine = OpenAIEngine(server.url, "m", backoff=1000)
    said = iter(
        [(429, b"", {"Retry-After": "0"}), (429, b"", {"Retry-After": "0.01"}), (200, completion("x"))]
    )
    server.respond = lambda body: next(said)
    assert ask(engine).text == "x"
    engine.close()


def test_a_server_that_stays_busy_is_told_in_one_line(server: Server) -> None:
    engine = OpenAIEngine(server.url, "m", retries=2, backoff=0.001)
    server.respond = lambda body: (503, {"message": "no\nworker"})
    with pytest.raises(EngineError, match=r"asked 3 times: .*503 Service Unavailable: no worker$"):
        ask(engine)
    engine.close()


def test_a_connection_that_breaks_is_made_again(server: Server, engine: OpenAIEngine) -> None:
    def broken(body: dict[str, Any]) -> Answer:
        if len(server.asked) == 1:
            raise ConnectionResetError
        return 200, completion("again")

    server.respond = broken
    assert ask(engine).text == "again"


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    server = Server()
    server.close()
    engine = OpenAIEngine(server.url, "m", backoff=1000)
    with pytest.raises(EngineError, match=r"no server answers at http://127.* is it running\?"):
        ask(engine)
    engine.close()


def test_a_reply_that_takes_too_long_is_given_up(server: Server) -> None:
    stuck = threading.Event()
    engine = OpenAIEngine(server.url, "m", timeout=0.05, retries=1, backoff=0.001)
    server.respond = lambda body: (stuck.wait(30), (200, completion("late")))[1]  # type: ignore[return-value]
    with pytest.raises(EngineError, match=r"asked 2 times: no reply within 0.05 s"):
        ask(engine)
    stuck.set()
    engine.close()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"error": {"message": "The model `m` does\nnot exist", "code": "x"}},
            "The model `m` does not exist",
        ),
        ({"object": "error", "message": "no such model"}, "no such model"),
        ({"detail": [{"loc": ["body", "seed"]}]}, "seed"),
        ({"detail": "Not Found"}, "Not Found"),
        (b"<html>nothing here</html>", "nothing here"),
        (b"", "the address usually ends in /v1"),
    ],
)
def test_a_refusal_is_one_line_and_not_repeated(
    server: Server, engine: OpenAIEngine, body: Any, told: str
) -> None:
    server.respond = lambda _: (404, body)
    with pytest.raises(EngineError) as caught:
        ask(engine)
    assert "answered 404 Not Found" in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", [], {"choices": []}, {"choices": [{"message": None}]}, {}])
def test_an_answer_that_is_no_completion_is_shown(server: Server, engine: OpenAIEngine, body: Any) -> None:
    server.respond = lambda _: (200, body)
    with pytest.raises(EngineError, match="answered with no"):
        ask(engine)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "This model's maximum context length is 128 tokens. Your messages resulted in 900 tokens.",
        ),
        (400, "The decoder prompt (length 900) is longer than the maximum model length of 128."),
        (400, "The input (900 tokens) is longer than the model's context length (128 tokens)."),
        (400, "Requested token count exceeds the model's maximum context length of 128 tokens."),
        (400, "the request exceeds the available context size, try increasing it"),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 128"),
        (400, "Prompt is too long: 900 tokens > 128 maximum"),
        (400, "Please reduce the length of the messages or completion."),
        (413, "Prompt too large for model with 128 maximum context length"),
        (500, "the request exceeds the available context size"),
        (400, "The input token count (900) exceeds the maximum number of tokens allowed (128)."),
    ],
)
def test_a_conversation_that_does_not_fit_is_told_apart(
    server: Server, engine: OpenAIEngine, status: int, message: str
) -> None:
    server.respond = lambda _: (status, {"error": {"message": message}})
    with pytest.raises(PromptTooLong):
        ask(engine)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 128 tokens. However, you requested 400 tokens (100 in the "
        "messages, 300 in the completion). Please reduce the length of the messages or completion.",
        "'max_tokens' or 'max_completion_tokens' is too large: 300. This model's maximum context length is "
        "128 tokens and your request has 100 input tokens (300 > 128 - 100).",
    ],
)
def test_a_reply_gets_the_room_that_is_left(server: Server, engine: OpenAIEngine, message: str) -> None:
    server.respond = lambda body: (
        (400, {"error": {"message": message}}) if body["max_tokens"] > 28 else (200, completion("fits"))
    )
    assert ask(engine, max_tokens=300).text == "fits"
    assert [body["max_tokens"] for body in server.asked] == [300, 28]


def test_models_that_know_another_name_of_the_limit_are_served(server: Server, engine: OpenAIEngine) -> None:
    refusal = {
        "error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}
    }
    server.respond = lambda body: (400, refusal) if "max_tokens" in body else (200, completion("x"))
    assert [ask(engine).text, ask(engine).text] == ["x", "x"]
    assert ["max_tokens" in body for body in server.asked] == [True, False, False]


def test_an_engine_outlives_the_event_loops_that_use_it(server: Server, engine: OpenAIEngine) -> None:
    async def several() -> list[str]:
        return [
            found.text for found in await asyncio.gather(*(engine.chat([], Sampling()) for _ in range(9)))
        ]

    assert asyncio.run(several()) == asyncio.run(several()) == ["hello"] * 9
    engine.close()
    assert ask(engine).text == "hello"


async def test_a_request_that_nobody_waits_for_is_dropped(server: Server, engine: OpenAIEngine) -> None:
    stuck, began = threading.Event(), threading.Event()

    def respond(_: Any) -> Answer:
        began.set()
        stuck.wait(30)
        return 200, completion("late")

    server.respond = respond
    waiting = asyncio.ensure_future(engine.chat([], Sampling()))
    while not began.is_set():
        await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    engine.close()  # does not wait for the reply
    stuck.set()


# -- a rollout


def adds(body: dict[str, Any]) -> Answer:
    """A model that calls the tool once and then answers."""
    turns = [message["role"] for message in body["messages"]]
    assert set(turns) <= {"system", "user", "assistant"}
    first = "assistant" not in turns
    return 200, completion(call("add", a=1, b=0) if first else answer(1))


def test_a_rollout_needs_no_tokenizer(server: Server, engine: OpenAIEngine) -> None:
    server.respond = adds
    with Rollout(ENV, engine=engine, sampling=Sampling(seed=3), concurrency=4) as rollout:
        episodes = rollout.run([EpisodeRequest(task, seed=0, sample=1) for task in range(4)])
    assert [episode.reward for episode in episodes] == [1.0, 0.0, 0.0, 0.0]
    assert [episode.sample for episode in episodes] == [1] * 4
    step = episodes[0].steps[0]
    assert (step.prompt_ids, step.response_ids, step.logprobs) == ((), (), ())
    assert (step.prompt_tokens, step.reply_tokens, step.calls[0]["name"]) == (7, 3, "add")
    assert '"name": "add"' in server.asked[0]["messages"][0]["content"]
    assert len({body["seed"] for body in server.asked}) == 8


def test_a_salt_makes_an_episode_the_same_wherever_it_runs(server: Server, engine: OpenAIEngine) -> None:
    server.respond = lambda body: (200, completion(answer(body["seed"])))
    said = []
    for before in (0, 2):
        with Rollout(ENV, engine=engine, sampling=Sampling(seed=3), concurrency=1) as rollout:
            asked = [EpisodeRequest(0, seed=0)] * before + [EpisodeRequest(0, seed=0, salt="mine")]
            said.append(rollout.run(asked)[-1].answer)
    assert said[0] == said[1]


def test_a_prompt_that_outgrows_the_model_ends_its_episode_alone(
    server: Server, engine: OpenAIEngine
) -> None:
    def respond(body: dict[str, Any]) -> Answer:
        if "What is 2 + 1" in str(body["messages"]) and len(body["messages"]) > 2:
            return 400, {"error": {"message": "the request exceeds the available context size"}}
        return adds(body)

    server.respond = respond
    with Rollout(ENV, engine=engine) as rollout:
        episodes = rollout.run([EpisodeRequest(task, seed=0) for task in range(4)])
    assert [episode.stop_reason for episode in episodes] == ["answer", "answer", "prompt_overflow", "answer"]
    assert len(episodes[2].steps) == 1


def test_a_refusal_ends_the_rollout(server: Server, engine: OpenAIEngine) -> None:
    server.respond = lambda _: (400, {"error": {"message": "no chat template"}})
    with Rollout(ENV, engine=engine) as rollout, pytest.raises(EngineError, match="no chat template"):
        rollout.run([EpisodeRequest(0, seed=0)])


class Fenced(formats.get("hermes").__class__):  # type: ignore[misc]
    """Hermes, but the reply ends with the call."""

    stop = ("</tool_call>",)


@pytest.mark.parametrize("named", [{}, {"stop_reason": "</tool_call>"}, {"matched_stop": "</tool_call>"}])
async def test_the_stop_that_a_server_leaves_out_is_put_back(
    server: Server, engine: OpenAIEngine, named: dict[str, Any]
) -> None:
    whole = call("add", a=1, b=2)
    server.respond = lambda _: (200, completion(whole.removesuffix("</tool_call>"), **named))
    player = ChatPlayer(engine, Fenced(), Sampling())
    info = {"messages": [{"role": "user", "content": "?"}], "tools": [tool(add).schema()]}
    assert (await player.answer("", info, "")).text == whole
    assert server.asked[0]["stop"] == ["</tool_call>"]


async def test_a_reply_that_ended_by_itself_gets_no_stop(server: Server, engine: OpenAIEngine) -> None:
    for said in ("no call", answer(3), call("add", a=1)):
        server.respond = lambda _, said=said: (200, completion(said))  # type: ignore[misc]
        assert (await ChatPlayer(engine, Fenced(), Sampling()).answer("?", {}, "")).text == said
