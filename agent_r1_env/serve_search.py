"""``agent-r1 serve-search``: BM25 search over HTTP, for whoever speaks a protocol of ``retrieval``.

Nothing but the standard library is needed. Each connection has a thread; they share one index.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_r1_env.bm25 import Index
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.hits import clamped
from agent_r1_env.retrieval import Found, write_agent_r1, write_search_r1

MAX_BYTES = 4 << 20
"""Bytes of a request that are read."""
MAX_QUERIES = 1024
MAX_TOP_K = 1000
_LARGE = 16 << 20
_PASSED_OVER = 64 << 20
_PATIENCE = 60
"""Seconds that a silent connection is kept."""


class _Refused(Exception):
    """A request that is not answered; the text says what to change."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SearchServer(ThreadingHTTPServer):
    """Answers searches until it is shut down.

    Args:
        top_k: hits for those who don't say how many.

    Raises:
        OSError: the address is not free, or is none of this machine.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 8000, top_k: int = 3) -> None:
        self.index, self.top_k = index, top_k
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking the network for this machine's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of what went wrong, unless a client only went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def find(self, queries: list[str], top_k: int) -> Found:
        """The hits for each query."""
        return [self.index.search(clamped(query)[0], top_k) for query in queries]


def run(corpus: str, *, index: str | None, host: str, port: int, top_k: int) -> int:
    """Serve a corpus until Ctrl-C, which raises KeyboardInterrupt here.

    Raises:
        DataError: the corpus cannot be read.
        AgentR1Error: the address cannot be used.
    """
    if (file := Path(corpus)).is_file() and file.stat().st_size > _LARGE:
        print(f"opening {corpus}, which may take minutes the first time", file=sys.stderr)
    opened = Index.open(corpus, index)
    try:
        server = SearchServer(opened, host, port, top_k)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AgentR1Error(
            f"cannot serve at {host}:{port}: {reason}; choose another --host or --port"
        ) from error
    with server:
        print(
            f"serving {len(opened)} paragraphs of {Path(corpus).name} at {server.url} "
            "(POST /retrieve, POST or GET /search); Ctrl-C stops it",
            flush=True,
        )
        server.serve_forever()
    return 0


class _Handler(BaseHTTPRequestHandler):
    server: SearchServer
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE
    # An answer leaves in one piece; in two, each would wait for the other's receipt.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer({"/search": self._search_by_address, "/health": self._health, "/": self._health})

    def do_POST(self) -> None:
        self._answer({"/retrieve": self._retrieve, "/search": self._search})

    def _retrieve(self) -> dict[str, Any]:
        body = self._body()
        top_k = self._top_k(body.get("topk"), "topk")
        return write_search_r1(self.server.find(_queries(body), top_k), body.get("return_scores") is True)

    def _search(self) -> dict[str, Any]:
        body = self._body()
        return self._found(_queries(body), self._top_k(body.get("top_k"), "top_k"))

    def _search_by_address(self) -> dict[str, Any]:
        asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if len(asked.get("query", [])) != 1:
            raise _Refused(HTTPStatus.BAD_REQUEST, "write one query: /search?query=...&top_k=3")
        said = asked.get("top_k", [""])[-1]
        top_k = int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else said or None
        return self._found(asked["query"], self._top_k(top_k, "top_k"))

    def _health(self) -> dict[str, Any]:
        return {"status": "healthy", "paragraphs": len(self.server.index)}

    def _found(self, queries: list[str], top_k: int) -> dict[str, Any]:
        began = time.perf_counter()
        found = self.server.find(queries, top_k)
        return write_agent_r1(queries, found, time.perf_counter() - began)

    def _answer(self, known: dict[str, Callable[[], dict[str, Any]]]) -> None:
        path = urlsplit(self.path).path
        try:
            if path not in known:
                raise _Refused(HTTPStatus.NOT_FOUND, f"no {self.command} {path}; known: {', '.join(known)}")
            self._write(HTTPStatus.OK, known[path]())
        except _Refused as refusal:
            self.close_connection = True  # its body may be unread
            self._write(refusal.status, {"error": str(refusal)})

    def _write(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length")
        if len(length) > 12 or int(length) > MAX_BYTES:
            self._pass_over(length)
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_BYTES} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return body

    def _pass_over(self, length: str) -> None:
        """Read what is too long, within reason: who still writes would never see why it is refused."""
        left = int(length) if len(length) <= 12 else 0
        left = left if left <= _PASSED_OVER else 0
        while left > 0 and (part := self.rfile.read(min(left, 1 << 16))):
            left -= len(part)

    def _top_k(self, said: Any, name: str) -> int:
        if said is None:
            return self.server.top_k
        if isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= MAX_TOP_K:
            raise _Refused(
                HTTPStatus.BAD_REQUEST,
                f"{name} must be a whole number from 1 to {MAX_TOP_K}, not {said!r:.40}",
            )
        return said

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request, in JSON as well."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._write(status, {"error": message or status.phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Thousands of searches a minute are nothing to tell a person of."""


def _queries(body: dict[str, Any]) -> list[str]:
    queries = body.get("queries")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Refused(HTTPStatus.BAD_REQUEST, '"queries" must be a list of texts')
    if len(queries) > MAX_QUERIES:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"a request has at most {MAX_QUERIES} queries")
    return queries
