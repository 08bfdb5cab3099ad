"""Calls of a web service, against a real server on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import placeholders
from agent_r1_env.catalog import Catalog
from agent_r1_env.entry import Entry
from agent_r1_env.errors import CatalogError
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.toolbox import Toolbox
from agent_r1_env.toolfile import check_tool, load_tool

pytest.importorskip("httpx", reason="needs httpx, from the extra http")

PARAMETERS = """
description: Ask the service.
parameters:
  type: object
  properties:
    query: {type: string}
    k: {type: integer}
    tags: {type: array, items: {type: string}}
    filters: {type: object, properties: {lang: {type: string}}}
    wide: {type: [boolean, "null"]}
  required: [query]
"""


class Service(ThreadingHTTPServer):
    """A web service: what it is asked and does is set by each test.

    Attributes:
        answers: (status, headers, body) to give in turn, the last one for ever; or a function that writes.
        asked: the requests, as (method, path, headers, body).
        left: set when a client went away from a request that was not yet answered.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Any] = [(200, {}, b"ok")]
        self.asked: list[tuple[str, str, Any, bytes]] = []
        self.arrived, self.left, self.open = threading.Event(), threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.server.left.set()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service = self.server
        service.asked.append((self.command, self.path, self.headers, body))
        service.arrived.set()
        answer = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
        if callable(answer):
            answer(self)
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield service
    service.open.set()
    service.shutdown()
    service.server_close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Entry]:
    (tmp_path / "tools").mkdir()

    def entry(text: str) -> Entry:
        (tmp_path / "tools" / "ask.yaml").write_text(f"name: ask\n{text}")
        return Catalog.open(tmp_path).tool("ask")

    return entry


Ask = Callable[..., ToolResult]


@pytest.fixture
def ask(service: Service, write: Callable[[str], Entry]) -> Iterator[Ask]:
    """Ask the service by a request, given as the lines under ``http``, with some arguments."""
    boxes = []

    def run(http: str, arguments: dict[str, Any] | None = None, more: str = "timeout: 10") -> ToolResult:
        lines = "\n".join(f"  {line}" for line in http.replace("{url}", service.url).splitlines())
        box = Toolbox([load_tool(write(f"{PARAMETERS}{more}\nhttp:\n{lines}\n"))])
        boxes.append(box)
        return box.run([ToolCall("ask", {"query": "x"} if arguments is None else arguments, "1")])[0]

    yield run
    for box in boxes:
        box.close()


def refused(entry: Entry) -> str:
    with pytest.raises(CatalogError) as caught:
        check_tool(entry)
    return str(caught.value)


# What is sent


def test_a_call_is_a_request_and_its_answer_the_result(ask: Ask, service: Service) -> None:
    service.answers = [(200, {"Content-Type": "text/plain; charset=utf-8"}, "søk: ✓".encode())]
    result = ask("url: '{url}/search'\nquery: {q: '{query}', k: '{k}'}", {"query": "a & b=ü", "k": 3})
    assert (result.ok, result.content) == (True, "søk: ✓")
    assert service.asked[0][:2] == ("GET", "/search?q=a+%26+b%3D%C3%BC&k=3")


def test_an_optional_argument_that_is_not_given_is_left_out(ask: Ask, service: Service) -> None:
    request = "url: '{url}'\nquery: {q: '{query}', k: '{k}', lang: '{filters.lang}'}\nheaders: {X-K: '{k}'}"
    ask(request)
    assert service.asked[0][1] == "/?q=x"
    assert "X-K" not in service.asked[0][2]


def test_null_in_a_query_is_left_out(ask: Ask, service: Service) -> None:
    ask("url: '{url}/a'\nquery: {wide: '{wide}'}", {"query": "x", "wide": None})
    assert service.asked[0][1] == "/a"


def test_a_list_repeats_its_name_in_the_query(ask: Ask, service: Service) -> None:
    ask("url: '{url}/a'\nquery: {tag: '{tags}'}", {"query": "x", "tags": ["a b", "c"]})
    assert service.asked[0][1] == "/a?tag=a+b&tag=c"


def test_a_query_in_the_address_is_kept(ask: Ask, service: Service) -> None:
    ask("url: '{url}/a?lang=en'\nquery: {q: '{query}'}")
    assert service.asked[0][1] == "/a?lang=en&q=x"


def test_values_in_a_json_body_keep_their_types(ask: Ask, service: Service) -> None:
    request = (
        "url: '{url}'\njson: {q: 'about {query}', k: '{k}', tags: '{tags}', f: '{filters}', w: '{wide}',"
        " fixed: [1, true], missing: '{filters.lang}', braces: '{{x}}'}"
    )
    arguments = {"query": "{k} \ud800", "k": 3, "tags": ["ä"], "filters": {}, "wide": None}
    assert ask(request, arguments).ok
    method, _, headers, body = service.asked[0]
    assert (method, headers["Content-Type"]) == ("POST", "application/json")
    assert json.loads(body) == {
        "q": "about {k} ?",
        "k": 3,
        "tags": ["ä"],
        "f": {},
        "w": None,
        "fixed": [1, True],
        "braces": "{x}",
    }


def test_a_text_body_is_sent_as_text(ask: Ask, service: Service) -> None:
    ask("url: '{url}'\nmethod: PUT\nbody: '{query}!'\nheaders: {content-type: text/markdown}", {"query": "ü"})
    method, _, headers, body = service.asked[0]
    assert (method, headers.get_all("Content-Type"), body) == ("PUT", ["text/markdown"], "ü!".encode())


def test_a_body_that_is_one_argument_is_left_out_with_it(ask: Ask, service: Service) -> None:
    for kind in ("json", "body"):
        assert ask(f"url: '{{url}}'\n{kind}: '{{filters}}'").ok
    assert [(method, body) for method, _, _, body in service.asked] == [("GET", b""), ("GET", b"")]


def test_an_argument_cannot_leave_its_place_in_the_address(ask: Ask, service: Service) -> None:
    request = "url: '{url}/users/{query}/items'"
    assert ask(request, {"query": "../admin?x#y"}).ok
    assert service.asked[0][1] == "/users/..%2Fadmin%3Fx%23y/items"
    result = ask(request, {"query": ".."})
    assert result.content == "error: argument query cannot be '..'"
    assert len(service.asked) == 1


def test_an_argument_cannot_add_a_header(ask: Ask, service: Service) -> None:
    request = "url: '{url}'\nheaders: {X-Query: '{query}'}"
    result = ask(request, {"query": "a\r\nX-Admin: yes"}, "retries: 2")
    assert (result.error, result.attempts, service.asked) == (FailureKind.TOOL_ERROR, 1, [])
    assert ask(request, {"query": "ü"}).ok
    assert service.asked[0][2]["X-Query"].encode("latin-1").decode() == "ü"


def test_config_fills_the_request_and_can_be_set_anew(
    service: Service, write: Callable[[str], Entry]
) -> None:
    entry = write(
        f"{PARAMETERS}config: {{server: 'http://nowhere.invalid'}}\nhttp: {{url: '{{config.server}}/s'}}\n"
    )
    box = Toolbox([load_tool(entry, None, {"config": {"server": service.url}})])
    assert box.run([ToolCall("ask", {"query": "x"}, "1")])[0].ok
    box.close()
    with pytest.raises(CatalogError, match=r"\{config.sever\} stands nowhere in http"):
        load_tool(entry, None, {"config": {"sever": service.url}})


# Secrets


def test_a_secret_is_sent_and_never_shown(
    ask: Ask, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ASK_KEY", "s3cr3t-key")
    service.answers = [(200, {}, b"you are s3cr3t-key"), (403, {}, b"bad key s3cr3t-key")]
    request = "url: '{url}/?key={secrets.ask_key}'\nheaders: {Authorization: 'Bearer {secrets.ask_key}'}"
    results = [ask(request, more="secrets: [ASK_KEY]") for _ in range(2)]
    assert service.asked[0][1] == "/?key=s3cr3t-key"
    assert service.asked[0][2]["Authorization"] == "Bearer s3cr3t-key"
    assert results[0].content == "you are ***"
    assert results[1].content == "error: the service answered 403 Forbidden: bad key ***"
    assert "s3cr3t" not in caplog.text + repr(results)


def test_user_and_password_in_the_address_are_sent_and_never_shown(
    ask: Ask, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = service.url.replace("http://", "http://me:pa%20ss@")
    service.answers = [(200, {}, b"ok"), lambda handler: handler.connection.shutdown(2)]
    assert ask(f"url: '{address}/'").ok
    assert service.asked[0][2]["Authorization"] == "Basic bWU6cGEgc3M="
    failed = ask(f"url: '{address}/'")
    assert failed.error is FailureKind.TOOL_ERROR
    assert "pa" not in failed.content.replace("127.0.0.1", "") and "pa%20ss" not in caplog.text


def test_a_service_sets_no_cookie_for_the_next_call(ask: Ask, service: Service) -> None:
    service.answers = [(200, {"Set-Cookie": "who=you; Path=/"}, b"ok")]
    ask("url: '{url}'")
    ask("url: '{url}'")
    assert [headers.get("Cookie") for _, _, headers, _ in service.asked] == [None, None]


# What comes back


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("items[1].text", "zwei"),
        ("items[0]", '{"text": "ein", "n": 1}'),
        ("count", "2"),
        ("items[7].text", "error: the answer of the service has no items[7].text"),
        ("count.text", "error: the answer of the service has no count.text"),
    ],
)
def test_the_result_is_the_part_of_the_answer_that_was_asked_for(
    ask: Ask, service: Service, path: str, expected: str
) -> None:
    body = json.dumps({"items": [{"text": "ein", "n": 1}, {"text": "zwei"}], "count": 2}).encode()
    service.answers = [(200, {"Content-Type": "application/json"}, b"\xef\xbb\xbf" + body)]
    assert ask(f"url: '{{url}}'\nresult: '{path}'").content == expected


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b""])
def test_an_answer_that_is_not_json_is_an_observation(ask: Ask, service: Service, body: bytes) -> None:
    service.answers = [(200, {}, body)]
    assert ask("url: '{url}'\nresult: items").content == "error: the answer of the service is not JSON"


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain; charset=latin-1", "süß".encode("latin-1"), "süß"),
        ("text/plain; charset=nonsense", "süß".encode(), "süß"),
        ("text/plain; charset=zlib", b"x", "x"),
        ("text/html", b"a\xff", "a\N{REPLACEMENT CHARACTER}"),
        ("image/png", b"\x89PNG\xff", "[image/png, 5 bytes]"),
        ("", b"\xff\xfe\xfd", "[binary data, 3 bytes]"),
    ],
)
def test_bytes_become_text_or_are_named(
    ask: Ask, service: Service, kind: str, body: bytes, expected: str
) -> None:
    service.answers = [(200, {"Content-Type": kind} if kind else {}, body)]
    assert ask("url: '{url}'").content == expected


def test_a_huge_answer_is_cut(ask: Ask, service: Service) -> None:
    service.answers = [(200, {"Content-Type": "text/plain"}, "ü".encode() * (3 << 20))]
    result = ask("url: '{url}'", more="max_result_chars: 10000000\ntimeout: 20")
    assert result.content.endswith("ü\n[... the answer is longer than 4194304 bytes]")
    assert len(result.content) < (3 << 20)
    assert ask("url: '{url}'").cut > 4_000_000 / 2 - 8000


def test_an_endless_answer_is_cut_and_left(ask: Ask, service: Service) -> None:
    def flood(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    service.answers = [flood]
    assert "longer than 4194304 bytes" in ask("url: '{url}'\nresult: a", more="timeout: 20").content
    assert service.left.wait(10)


def test_a_compression_that_can_grow_without_bound_is_refused(ask: Ask, service: Service) -> None:
    service.answers = [(200, {"Content-Encoding": "br"}, b"x")]
    assert "compressed as br" in ask("url: '{url}'").content
    assert service.asked[0][2]["Accept-Encoding"] == "gzip, deflate"


# Status


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b"", "error: no such page; try another title"),
        (400, b"", "error: the request was wrong"),
        (403, b"k is  too large", "error: the request was wrong"),
        (301, b"", "error: the service answered 301 Moved Permanently"),
        (410, b"", "gone but fine"),
    ],
)
def test_a_status_means_what_the_file_says(
    ask: Ask, service: Service, status: int, body: bytes, expected: str
) -> None:
    service.answers = [(status, {"Location": "/elsewhere"}, body or b"gone but fine" * (status == 410))]
    told = "404: no such page; try another title, 4xx: the request was wrong, 410: ok"
    quoted = ", ".join(f"'{key}': '{text}'" for key, text in (pair.split(": ") for pair in told.split(", ")))
    result = ask(f"url: '{{url}}'\nstatus: {{{quoted}}}")
    assert result.content == expected
    assert len(service.asked) == 1


def test_a_refusal_is_told_with_its_text(ask: Ask, service: Service) -> None:
    service.answers = [(422, {"Content-Type": "text/plain"}, ("k is too large " + "ü" * 500).encode())]
    result = ask("url: '{url}'")
    assert result.error is FailureKind.TOOL_ERROR
    assert result.content.startswith("error: the service answered 422 Unprocessable Entity: k is too large ü")
    assert len(result.content) < 300


def test_redirections_are_followed_on_demand(ask: Ask, service: Service) -> None:
    service.answers = [(302, {"Location": "/there"}, b""), (200, {}, b"found")]
    assert ask("url: '{url}/here'\nredirects: true").content == "found"
    service.answers = [(302, {"Location": "/there"}, b"")]
    assert "TooManyRedirects" in ask("url: '{url}/here'\nredirects: true").content


def test_too_many_requests_are_repeated_after_the_time_asked_for(ask: Ask, service: Service) -> None:
    service.answers = [(429, {"Retry-After": "0"}, b""), (200, {}, b"ok")]
    result = ask("url: '{url}'", more="retries: {times: 1, wait: 60}")
    assert (result.ok, result.attempts, len(service.asked)) == (True, 2, 2)


def test_a_date_is_a_time_asked_for_too(ask: Ask, service: Service) -> None:
    service.answers = [
        (503, {"Retry-After": formatdate(time.time() - 5, usegmt=True)}, b""),
        (200, {}, b"ok"),
    ]
    assert ask("url: '{url}'", more="retries: {times: 1, wait: 60}").attempts == 2


@pytest.mark.parametrize(("status", "kind"), [(503, FailureKind.TOOL_ERROR), (429, FailureKind.RATE_LIMITED)])
def test_what_does_not_pass_fails_after_the_retries(
    ask: Ask, service: Service, status: int, kind: FailureKind
) -> None:
    service.answers = [(status, {"Retry-After": "nonsense"}, b"")]
    result = ask("url: '{url}'", more="retries: {times: 2, wait: 0.01}")
    assert (result.error, result.attempts, len(service.asked)) == (kind, 3, 3)
    assert result.content.startswith(f"error: the service answered {status}")


def test_any_status_may_be_tried_again(ask: Ask, service: Service) -> None:
    service.answers = [(404, {}, b""), (200, {}, b"ok")]
    assert ask("url: '{url}'\nstatus: {4xx: retry}", more="retries: {times: 1, wait: 0.01}").ok


# Services that fail


def test_a_refused_connection_is_tried_again_and_told(
    service: Service, write: Callable[[str], Entry]
) -> None:
    gone = Service()
    gone.server_close()
    entry = write(
        f"{PARAMETERS}retries: {{times: 1, wait: 0.01}}\nhttp: {{url: 'http://u:p@{gone.url[7:]}/'}}\n"
    )
    box = Toolbox([load_tool(entry)])
    result = box.run([ToolCall("ask", {"query": "x"}, "1")])[0]
    assert (result.error, result.attempts) == (FailureKind.TOOL_ERROR, 2)
    assert result.content == f"error: the request to {gone.url[7:]} failed (ConnectError)"
    box.close()


def test_an_answer_that_is_not_http_is_told(ask: Ask, service: Service) -> None:
    service.answers = [lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH_9\r\n\r\n")]
    assert "failed (RemoteProtocolError)" in ask("url: '{url}'").content


def test_an_answer_that_breaks_off_is_told(ask: Ask, service: Service) -> None:
    def half(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    service.answers = [half]
    assert "failed (RemoteProtocolError)" in ask("url: '{url}'").content


def test_a_body_that_is_no_gzip_is_told(ask: Ask, service: Service) -> None:
    service.answers = [(200, {"Content-Encoding": "gzip"}, b"plain")]
    assert "gave no usable answer (DecodingError)" in ask("url: '{url}'").content


def _no_headers(handler: Any) -> None:
    handler.server.open.wait(30)


def _drips(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.open.wait(0.02):
        handler.wfile.write(b"x")


@pytest.mark.parametrize("slow", [_no_headers, _drips])
def test_a_slow_answer_ends_with_the_time_of_the_call(
    ask: Ask, service: Service, slow: Callable[[Any], None]
) -> None:
    service.answers = [slow]
    result = ask("url: '{url}'", more="timeout: 0.3")
    assert (result.error, result.content) == (FailureKind.TIMEOUT, "error: ask did not finish within 0.3 s")
    assert result.seconds < 5
    if slow is _drips:
        assert service.left.wait(10)


async def test_a_cancelled_call_closes_its_request(service: Service, write: Callable[[str], Entry]) -> None:
    service.answers = [_drips]
    box = Toolbox([load_tool(write(f"{PARAMETERS}http: {{url: '{service.url}'}}\n"))])
    running = asyncio.create_task(box.run_async([ToolCall("ask", {"query": "x"}, "1")]))
    assert await asyncio.to_thread(service.arrived.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(service.left.wait, 10)
    box.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query": 3}, "argument 'query' of ask must be a string, but an integer (3) was given"),
        ({}, "query"),
        ({"query": "x", "page": 1}, "page"),
        ({"query": "x", "filters": {"lang": 1}}, "filters.lang"),
    ],
)
def test_wrong_arguments_send_nothing(
    ask: Ask, service: Service, arguments: dict[str, Any], told: str
) -> None:
    result = ask("url: '{url}'", arguments)
    assert result.error is FailureKind.INVALID_ARGUMENTS
    assert told in result.content
    assert service.asked == []


def test_many_calls_run_at_once_over_few_connections(service: Service, write: Callable[[str], Entry]) -> None:
    everybody = threading.Barrier(32)

    def together(handler: Any) -> None:
        everybody.wait(20)
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    service.answers = [together]
    entry = write(f"{PARAMETERS}http: {{url: '{service.url}'}}\n")
    boxes = [Toolbox([load_tool(entry)], max_calls=64) for _ in range(2)]
    for box in boxes:  # the second batch finds the connections of the first
        assert all(each.ok for each in box.run([ToolCall("ask", {"query": "x"}, str(n)) for n in range(32)]))
    for box in boxes:
        box.close()


def test_nothing_is_left_open(service: Service, write: Callable[[str], Entry]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            box = Toolbox([load_tool(write(f"{PARAMETERS}http: {{url: '{service.url}'}}\n"))])
            assert box.run([ToolCall("ask", {"query": "x"}, "1")])[0].ok
            box.close()
            box.close()
        gc.collect()
    assert [str(each.message) for each in caught] == []


# The file


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "http: {url: 'example.com/search'}",
            "13:13: 'example.com/search' is none; write http://... or https://",
        ),
        ("http: {url: 'http://[::1'}", "is none"),
        ("http: {url: 'http://x:99999/'}", "is none"),
        ("http: {url: 'me:pass@/x'}", "the address is none"),
        ("http: {url: 'http://x/{qery}'}", "{qery} stands for nothing; did you mean 'query'?"),
        ("http: {url: 'http://x', json: {a: ['{secrets.key}']}}", "13:36: {secrets.key} stands for nothing"),
        ("http: {url: 'http://x'}\nconfig: {k: 3}", "14:10: {config.k} stands nowhere in http"),
        ("http: {url: 'http://x'}\ninstance: shared", "14:1: key 'instance' is for classes, not for http"),
        (
            "http: {url: 'http://x', json: 1, body: x}",
            "13:34: keys 'json' and 'body' stand together; keep one",
        ),
        ("http: {url: 'http://x', status: {4x4: ok}}", "4x4"),
        ("http: {url: 'http://x', result: 'a[b'}", "result"),
        ("http: {url: 'http://x', methd: GET}", "unknown key 'methd'; did you mean 'method'?"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    write: Callable[[str], Entry], lines: str, told: str
) -> None:
    with pytest.raises(CatalogError) as caught:
        check_tool(write(f"{PARAMETERS.strip()}\n\n{lines}\n"))
    assert told in str(caught.value)


def test_a_secret_that_is_not_set_is_told_when_the_tool_is_loaded(write: Callable[[str], Entry]) -> None:
    entry = write(f"{PARAMETERS}secrets: [ASK_NO_KEY]\nhttp: {{url: 'http://x/{{secrets.ask_no_key}}'}}\n")
    check_tool(entry)
    with pytest.raises(CatalogError, match="ASK_NO_KEY is not set; export it first"):
        load_tool(entry)


def test_short_secrets_are_not_sought_in_text() -> None:
    assert (
        placeholders.veiled("a key and a longer key", ["key", "longer key", "a longer"]) == "a key and a ***"
    )
