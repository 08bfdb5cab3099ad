"""Tests of search through a server: ours, and one that answers whatever a test says, both on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env.bm25 import Index
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError, TransientError
from agent_r1_env.hits import NO_WORDS, shown, words
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.retrieval import PROTOCOLS
from agent_r1_env.serve_search import SearchServer
from agent_r1_env.task import Paragraph
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Toolbox

pytest.importorskip("httpx", reason="needs httpx, from the extra http")

PAGES = (
    Paragraph("Oslo", "Oslo is the capital of Norway.\nIt lies on a fjord."),
    Paragraph('The "Norway"', "Norway is a country. Its capital is Oslo."),
    Paragraph("", "A capital without a title."),
    Paragraph("Capital", ""),
)
ROME = {"id": "7", "title": "Rome", "contents": "The capital of Italy."}
Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class Scripted(ThreadingHTTPServer):
    """Answers as a test says, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Answer = lambda body: (200, {"result": [[] for _ in body["queries"]]})
        self.asked: list[tuple[str, dict[str, Any]]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        status, value = self.server.answer(body)
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def running(server: ThreadingHTTPServer) -> Iterator[Any]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(PAGES)


@pytest.fixture(scope="module")
def server(index: Index) -> Iterator[SearchServer]:
    yield from running(SearchServer(index, port=0))


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    yield from running(Scripted())


def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def tool() -> Iterator[Callable[..., Tool]]:
    """Makes the built-in tool with other values under ``config``, and without waits between attempts."""
    made: list[Tool] = []

    def make(server: ThreadingHTTPServer, **config: Any) -> Tool:
        retries = {"times": 2, "wait": 0}
        overrides = {"config": {"url": url(server), **config}, "retries": retries}
        made.append(load_tool(Catalog.open().tool("http_search"), None, overrides))
        return made[-1]

    yield make
    for each in made:
        assert each.close is not None
        each.close()


def found(tool: Tool, *queries: str) -> list[ToolResult]:
    return Toolbox([tool]).run(
        [ToolCall(tool.name, {"query": query}, str(n)) for n, query in enumerate(queries)]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("query", ["Oslo", "capital", "Norway fjord", "zebra", "", "\U0001f642"])
def test_results_are_shown_as_those_of_search(
    tool: Callable[..., Tool], server: SearchServer, index: Index, protocol: str, query: str
) -> None:
    (result,) = found(tool(server, protocol=protocol, top_k=4), query)
    assert result.error is None
    expected = shown(query, index.search(query, 4)) if words(query) else NO_WORDS
    assert result.content == expected


def test_a_long_query_is_clamped_and_says_so(tool: Callable[..., Tool], scripted: Scripted) -> None:
    scripted.answer = lambda body: (200, {"result": [[{"document": ROME, "score": 1}]]})
    (result,) = found(tool(scripted), "word " * 20_000)
    assert result.content.endswith("Only the first 256 words of the query were used.")
    assert len(scripted.asked[0][1]["queries"][0].split()) == 256


@pytest.mark.parametrize(
    ("protocol", "path", "body"),
    [
        ("search_r1", "/retrieve", {"queries": ["rome"], "topk": 3, "return_scores": True}),
        ("agent_r1_wiki", "/search", {"queries": ["rome"], "top_k": 3}),
        ("agent_r1_kilt", "/search", {"queries": ["rome"], "top_k": 3}),
    ],
)
def test_each_protocol_has_its_path_and_body(
    tool: Callable[..., Tool], scripted: Scripted, protocol: str, path: str, body: dict[str, Any]
) -> None:
    found(tool(scripted, protocol=protocol, batch_size=1), "rome")
    assert scripted.asked[0] == (path, body)


def test_an_address_with_a_path_is_taken_as_it_is(tool: Callable[..., Tool], scripted: Scripted) -> None:
    found(tool(scripted, url=f"{url(scripted)}/my/search?corpus={{x}}"), "rome")
    assert scripted.asked[0][0] == "/my/search?corpus={x}"


R1_TEXT = '"Rome"\nThe capital of Italy.'


@pytest.mark.parametrize(
    ("protocol", "hit"),
    [
        pytest.param("search_r1", {"document": {"contents": R1_TEXT}, "score": 1.5}, id="scored"),
        pytest.param("search_r1", {"id": "7", "contents": R1_TEXT}, id="bare"),
        pytest.param("search_r1", {"document": R1_TEXT, "score": None}, id="text-alone"),
        pytest.param(
            "search_r1", {"document": {"title": "Rome", "text": "The capital of Italy."}}, id="text"
        ),
        pytest.param("agent_r1_wiki", {"score": 0.5, "document": ROME}, id="wiki"),
        pytest.param(
            "agent_r1_kilt",
            {"score": 0.5, "document": {**ROME, "contents": "Rome\nThe capital of Italy."}},
            id="kilt",
        ),
    ],
)
def test_documents_are_read_in_every_form(
    tool: Callable[..., Tool], scripted: Scripted, protocol: str, hit: Any
) -> None:
    r1 = {"result": [[hit]]}
    original = {"query_results": [{"query": "rome", "results": [hit]}], "total_time": 0.1, "search_time": 0.1}
    scripted.answer = lambda body: (200, r1 if protocol == "search_r1" else original)
    (result,) = found(tool(scripted, protocol=protocol), "rome")
    assert result.content == "[1] Rome: The capital of Italy."


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"<html>", id="html"),
        pytest.param([], id="list"),
        pytest.param({"results": []}, id="other-key"),
        pytest.param({"result": []}, id="too-few"),
        pytest.param({"result": [[{"document": {"id": 3}}]]}, id="no-text"),
        pytest.param({"result": [[{"document": {"contents": 3}}]]}, id="number"),
        pytest.param({"result": [3]}, id="no-hits"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_an_answer_of_another_protocol_is_an_error_for_the_model(
    tool: Callable[..., Tool], scripted: Scripted, answer: Any
) -> None:
    scripted.answer = lambda body: (200, answer)
    (result,) = found(tool(scripted), "rome")
    assert result.error is FailureKind.TOOL_ERROR
    assert "is not that of the protocol search_r1" in result.content


def test_a_failure_that_passes_is_tried_again(tool: Callable[..., Tool], scripted: Scripted) -> None:
    answers = iter([(503, b""), (500, b""), (200, {"result": [[{"document": ROME}]]})])
    scripted.answer = lambda body: next(answers)
    (result,) = found(tool(scripted), "rome")
    assert (result.content, result.attempts) == ("[1] Rome: The capital of Italy.", 3)


def test_a_server_that_is_not_there_is_told_after_the_retries(tool: Callable[..., Tool]) -> None:
    closed = Scripted()
    closed.server_close()
    (result,) = found(tool(closed), "rome")
    assert result.error is FailureKind.TOOL_ERROR
    assert result.attempts == 3
    assert "failed" in result.content


def test_a_refusal_is_not_tried_again(tool: Callable[..., Tool], scripted: Scripted) -> None:
    scripted.answer = lambda body: (400, {"error": "no such corpus"})
    (result,) = found(tool(scripted), "rome")
    assert result.error is FailureKind.TOOL_ERROR
    assert "no such corpus" in result.content
    assert len(scripted.asked) == 1


def echo(body: dict[str, Any]) -> tuple[int, Any]:
    return 200, {"result": [[{"document": {"contents": f'"Q"\n{query}'}}] for query in body["queries"]]}


def test_queries_of_one_moment_go_in_one_request(tool: Callable[..., Tool], scripted: Scripted) -> None:
    scripted.answer = echo
    # The wait ends with the test's patience, not with the machine's: all calls are made by then.
    results = found(tool(scripted, batch_size=4, batch_wait=0.5), *(f"query {n}" for n in range(10)))
    assert [result.content for result in results] == [f"[1] Q: query {n}" for n in range(10)]
    assert sorted(len(body["queries"]) for _, body in scripted.asked) == [2, 4, 4]


def test_a_query_that_spoils_the_request_spoils_no_other(
    tool: Callable[..., Tool], scripted: Scripted
) -> None:
    scripted.answer = lambda body: (422, b"bad") if "poison" in body["queries"] else echo(body)
    results = found(tool(scripted, batch_wait=0.5), "a", "poison", "b")
    assert [result.error for result in results] == [None, FailureKind.TOOL_ERROR, None]
    assert [results[0].content, results[2].content] == ["[1] Q: a", "[1] Q: b"]


async def test_a_cancelled_query_takes_no_other_with_it(
    tool: Callable[..., Tool], scripted: Scripted
) -> None:
    scripted.answer = echo
    search = tool(scripted, batch_wait=0.2).run
    lost, kept = asyncio.create_task(search(query="lost")), asyncio.create_task(search(query="kept"))
    await asyncio.sleep(0)
    lost.cancel()
    assert await kept == "[1] Q: kept"
    assert scripted.asked[0][1]["queries"] == ["kept"]


async def test_several_queries_are_answered_in_their_order(
    tool: Callable[..., Tool], scripted: Scripted
) -> None:
    scripted.answer = echo
    search: Any = tool(scripted).run
    assert await search.batch(["a", "", "b"]) == ["[1] Q: a", await search(""), "[1] Q: b"]


async def test_the_error_of_a_lost_server_is_transient(tool: Callable[..., Tool], scripted: Scripted) -> None:
    scripted.answer = lambda body: (503, b"")
    with pytest.raises(TransientError):
        await tool(scripted).run(query="rome")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"url": "localhost:8000"}, "url must be an address such as http://localhost:8000"),
        ({"url": "ftp://x"}, "url must be an address"),
        ({"protocol": "searchr1"}, "did you mean 'search_r1'"),
        ({"top_k": 0}, "top_k must be a whole number above 0"),
        ({"batch_size": 0}, "batch_size must be a whole number above 0"),
        ({"batch_wait": float("nan")}, "batch_wait must be a number of seconds"),
        ({"topk": 3}, "did you mean 'top_k'"),
    ],
)
def test_a_mistake_in_config_is_told_when_the_tool_is_made(config: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        load_tool(Catalog.open().tool("http_search"), None, {"config": config})


def test_the_tool_is_an_environment(server: SearchServer, index: Index) -> None:
    env = gym.make("AgentR1/HttpSearchTool-v0", url=url(server))
    env.reset(seed=0)
    assert env.step("Norway fjord")[0] == shown("Norway fjord", index.search("Norway fjord", 3))
    env.close()
