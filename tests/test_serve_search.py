"""Tests of ``agent-r1 serve-search``, with a real server on loopback."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.bm25 import Index
from agent_r1_env.cli import main
from agent_r1_env.serve_search import MAX_BYTES, MAX_QUERIES, SearchServer
from agent_r1_env.task import Paragraph

PAGES = (
    Paragraph("Oslo", "Oslo is the capital of Norway.\nIt lies on a fjord."),
    Paragraph("Norway", "Norway is a country. Its capital is Oslo."),
    Paragraph("Bergen", "A city on the coast."),
)


@pytest.fixture(scope="module")
def server() -> Iterator[SearchServer]:
    with SearchServer(Index(PAGES), port=0, top_k=1) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: SearchServer, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and answer of one request; a body that is no bytes is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data)
    answer = connection.getresponse()
    value = json.loads(answer.read())
    connection.close()
    return answer.status, value


def test_search_r1_is_answered_with_documents_and_scores(server: SearchServer) -> None:
    body = {"queries": ["capital", "zebra"], "topk": 2, "return_scores": True}
    status, answer = ask(server, "POST", "/retrieve", body)
    assert status == 200
    assert [hit["document"]["id"] for hit in answer["result"][0]] == ["1", "0"]
    assert answer["result"][0][1]["document"]["contents"] == f'"Oslo"\n{PAGES[0].text}'
    assert answer["result"][0][0]["score"] >= answer["result"][0][1]["score"] > 0
    assert answer["result"][1] == []


def test_search_r1_without_scores_is_answered_with_bare_documents(server: SearchServer) -> None:
    _, answer = ask(server, "POST", "/retrieve", {"queries": ["bergen"]})
    assert answer == {"result": [[{"id": "2", "contents": f'"Bergen"\n{PAGES[2].text}'}]]}


def test_agent_r1_is_answered_by_post(server: SearchServer) -> None:
    _, answer = ask(server, "POST", "/search", {"queries": ["bergen", "fjord"], "top_k": 3})
    assert [each["query"] for each in answer["query_results"]] == ["bergen", "fjord"]
    (hit,) = answer["query_results"][0]["results"]
    assert hit["document"] == {"id": "2", "title": "Bergen", "contents": PAGES[2].text}
    assert hit["score"] > 0
    assert answer["total_time"] >= 0 <= answer["search_time"]


def test_agent_r1_is_answered_by_get(server: SearchServer) -> None:
    _, answer = ask(server, "GET", "/search?query=Norway%20country&top_k=1")
    assert [hit["document"]["title"] for hit in answer["query_results"][0]["results"]] == ["Norway"]


def test_who_asks_for_no_number_gets_the_servers(server: SearchServer) -> None:
    assert len(ask(server, "POST", "/retrieve", {"queries": ["capital"]})[1]["result"][0]) == 1
    assert len(ask(server, "GET", "/search?query=capital")[1]["query_results"][0]["results"]) == 1


def test_health_tells_how_much_there_is_to_search(server: SearchServer) -> None:
    assert ask(server, "GET", "/health") == (200, {"status": "healthy", "paragraphs": 3})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        pytest.param("POST", "/retrieve", b"{", 400, "the body is not JSON", id="no-json"),
        pytest.param("POST", "/retrieve", b"\xff", 400, "the body is not JSON", id="no-utf-8"),
        pytest.param("POST", "/retrieve", b"[" * 9999, 400, "the body is not JSON", id="deep"),
        pytest.param("POST", "/retrieve", [1], 400, "must be a JSON object", id="no-object"),
        pytest.param("POST", "/retrieve", {}, 400, '"queries" must be a list of texts', id="no-queries"),
        pytest.param("POST", "/search", {"queries": "x"}, 400, "a list of texts", id="one-text"),
        pytest.param("POST", "/search", {"queries": [1]}, 400, "a list of texts", id="numbers"),
        pytest.param("POST", "/retrieve", {"queries": [], "topk": 0}, 400, "topk must be", id="topk-0"),
        pytest.param("POST", "/search", {"queries": [], "top_k": True}, 400, "not True", id="top-k-true"),
        pytest.param("POST", "/search", {"queries": [], "top_k": 10**9}, 400, "1 to 1000", id="top-k-big"),
        pytest.param("POST", "/search", {"queries": ["x"] * (MAX_QUERIES + 1)}, 400, "at most", id="many"),
        pytest.param("POST", "/search", b" " * (MAX_BYTES + 1), 413, "at most 4194304 bytes", id="large"),
        pytest.param("GET", "/search", None, 400, "write one query", id="no-query"),
        pytest.param("GET", "/search?query=a&query=b", None, 400, "write one query", id="two-queries"),
        pytest.param("GET", "/search?query=a&top_k=-1", None, 400, "not '-1'", id="negative"),
        pytest.param("GET", "/serach", None, 404, "known: /search", id="unknown-path"),
        pytest.param("POST", "/health", {}, 404, "known: /retrieve, /search", id="wrong-method"),
        pytest.param("PUT", "/search", {}, 501, "PUT", id="unknown-method"),
    ],
)
def test_a_bad_request_is_told_in_json(
    server: SearchServer, method: str, path: str, body: Any, status: int, error: str
) -> None:
    found, answer = ask(server, method, path, body)
    assert found == status
    assert error in answer["error"]
    assert ask(server, "GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "length", [b"", b"Content-Length: -1\r\n", b"Content-Length: " + b"9" * 5000 + b"\r\n"]
)
def test_a_body_of_unknown_or_absurd_length_is_refused(server: SearchServer, length: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n")
        answer = connection.makefile("rb").read()
    assert answer.startswith((b"HTTP/1.1 411 ", b"HTTP/1.1 413 "))
    assert b'{"error": ' in answer


def test_odd_queries_find_nothing_and_break_nothing(server: SearchServer) -> None:
    queries = ["", "   ", "\ud800", "zebra " * 9999, "\U0001f642"]
    assert ask(server, "POST", "/retrieve", {"queries": queries})[1]["result"] == [[]] * 5


def test_one_connection_serves_many_requests(server: SearchServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        assert connection.sock is not None
    connection.close()


def test_a_client_that_goes_away_is_not_worth_a_traceback(
    server: SearchServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for failure, told in ((ConnectionResetError(), False), (BrokenPipeError(), False), (KeyError("x"), True)):
        try:
            raise failure
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
        assert bool(capsys.readouterr().err) is told


def test_the_command_serves_a_file_until_ctrl_c(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "0", "contents": "\\"Rome\\"\\nThe capital of Italy."}\n')
    # Where Ctrl-C is ignored, as in the background of a script, children ignore it too.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from agent_r1_env.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "serve-search", str(corpus), "--port", "0"]
    command += ["--index", str(tmp_path / "kept")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            ready = process.stdout.readline()  # type: ignore[union-attr]
            assert ready.startswith("serving 1 paragraphs of corpus.jsonl at http://127.0.0.1:")
            port = int(ready.partition("127.0.0.1:")[2].split()[0])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/search?query=rome")
            assert b"The capital of Italy." in connection.getresponse().read()
            connection.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "stopped\n")
    assert any((tmp_path / "kept").iterdir())


def test_what_cannot_be_served_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: SearchServer
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    assert main(["serve-search", str(corpus)]) == 2
    assert "no such file" in capsys.readouterr().err
    corpus.write_text('{"text": "x"}\n')
    for port in (str(server.server_port), "70000"):
        assert main(["serve-search", str(corpus), "--port", port]) == 2
        assert f"cannot serve at 127.0.0.1:{port}: " in capsys.readouterr().err
