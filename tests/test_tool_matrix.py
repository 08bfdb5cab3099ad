"""One tool, behind every backend, in every situation: each cell of the table must do the same."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.catalog import Catalog
from agent_r1_env.messages import ToolCall, ToolResult
from agent_r1_env.toolbox import Toolbox
from agent_r1_env.toolfile import load_tools

CODE = '''
"""What every backend runs, in the ways that they run it."""
import asyncio
import json
import os
import sys
import time
from typing import Any, Literal

from typing_extensions import TypedDict  # what pydantic asks for

HERE = os.path.dirname(os.path.abspath(__file__))
Mode = Literal["ok", "length", "raise", "flood", "hang"]


class Place(TypedDict, total=False):
    city: str
    at: list[float]


def mark(name):
    open(os.path.join(HERE, name), "w").close()


def gone_on():
    return os.path.exists(os.path.join(HERE, "go"))


def work(text, count, place, mode):
    if mode == "length":
        return str(len(text))
    if mode == "raise":
        raise ValueError("broken " + text)
    if mode == "flood":
        return text * 500_000
    return json.dumps([text, count, place], ensure_ascii=False)


def act(text: str, count: int = 1, place: Place | None = None, mode: Mode = "ok") -> str:
    """Act."""
    if mode == "hang":
        mark("started")
        while not gone_on():
            time.sleep(0.01)
        return "late"
    return work(text, count, place, mode)


async def act_async(text: str, count: int = 1, place: Place | None = None, mode: Mode = "ok") -> str:
    """Act."""
    if mode == "hang":
        mark("started")
        try:
            await asyncio.sleep(600)
        finally:
            mark("cancelled")
    await asyncio.sleep(0)
    return work(text, count, place, mode)


class Act:
    """Act."""

    def setup(self):
        self.ready = True

    def __call__(self, text: str, count: int = 1, place: Place | None = None, mode: Mode = "ok") -> str:
        assert self.ready
        return act(text, count, place, mode)


def main():
    given = json.load(sys.stdin)
    try:
        print(act(**given), end="")
    except ValueError as error:
        sys.exit(str(error))


def serve():
    from mcp.server import MCPServer

    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("matrix", log_level="ERROR")

    @server.tool(name="act")
    async def told(text: str, count: int = 1, place: Place | None = None, mode: Mode = "ok") -> str:
        """Act."""
        try:
            return await act_async(text, count, place, mode)
        except ValueError as error:
            raise ToolError(str(error)) from error  # of others, the SDK tells a client nothing

    server.run("stdio")


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    serve() if "serve" in sys.argv else main()
'''

PARAMETERS = """
  description: Act.
  parameters:
    type: object
    properties:
      text: {type: string}
      count: {type: integer, default: 1}
      place:
        type: [object, "null"]
        properties: {city: {type: string}, at: {type: array, items: {type: number}}}
        default: null
      mode: {enum: [ok, length, raise, flood, hang], default: ok}
    required: [text]
"""

TOOLS = """
- name: python
  run: ./act.py:act
- name: async
  run: ./act.py:act_async
- name: class
  run: ./act.py:Act
- name: http
  http:
    url: "URL"
    json: {text: "{text}", count: "{count}", place: "{place}", mode: "{mode}"}
  PARAMETERS
- name: mcp
  mcp: {command: ["PYTHON", ./act.py, serve]}
- name: process
  process: {command: ["PYTHON", ./act.py]}
  PARAMETERS
"""

NEEDS = {"http": "httpx", "mcp": "mcp"}
BACKENDS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(NEEDS.get(name, "json")) is None, reason=f"needs the extra {name}"
        ),
    )
    for name in ("python", "async", "class", "http", "mcp", "process")
]


class _Handler(BaseHTTPRequestHandler):
    act: Callable[..., str]

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, body = 200, type(self).act(**given)
        except ValueError as error:
            status, body = 422, str(error)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            mark = Path(type(self).act.__globals__["HERE"]) / "cancelled"  # type: ignore[attr-defined]
            mark.touch()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalogue with the tool behind every backend, and the web service that one of them asks."""
    root = tmp_path_factory.mktemp("matrix")
    (root / "tools").mkdir()
    (root / "tools" / "act.py").write_text(CODE)
    spec = importlib.util.spec_from_file_location("matrix_service", root / "tools" / "act.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler = type("Handler", (_Handler,), {"act": staticmethod(module.act)})
    service = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    service.daemon_threads = True
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    lines = TOOLS.replace("URL", f"http://127.0.0.1:{service.server_address[1]}/act")
    lines = lines.replace("PYTHON", sys.executable).replace("  PARAMETERS", PARAMETERS.strip("\n"))
    (root / "tools" / "all.yaml").write_text(lines)
    yield root
    (root / "tools" / "go").touch()
    service.shutdown()
    thread.join()
    service.server_close()


class Bench:
    """The tool behind one backend."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.backend = folder / "tools", backend
        self._entry = Catalog.open(folder).tool(backend)
        self._boxes: list[Toolbox] = []
        for mark in ("started", "cancelled", "go"):
            (self.folder / mark).unlink(missing_ok=True)

    def box(self, **overrides: Any) -> Toolbox:
        self._boxes.append(Toolbox(load_tools(self._entry, None, {"timeout": 30, **overrides})))
        return self._boxes[-1]

    def call(self, **arguments: Any) -> ToolCall:
        return ToolCall("act" if self.backend == "mcp" else self.backend, arguments, "c1")

    def run(self, **arguments: Any) -> ToolResult:
        return self.box().run([self.call(**arguments)])[0]

    def marked(self, name: str) -> bool:
        deadline = time.monotonic() + 10
        while not (self.folder / name).exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        (self.folder / "go").touch()
        for box in self._boxes:
            box.close()


@pytest.fixture(scope="module")
def kept(folder: Path) -> Iterator[list[Toolbox]]:
    """Toolboxes that hold a server open from one cell to the next."""
    boxes: list[Toolbox] = []
    yield boxes
    for box in boxes:
        box.close()


@pytest.fixture
def bench(folder: Path, kept: list[Toolbox], backend: str) -> Iterator[Bench]:
    made = Bench(folder, backend)
    if backend == "mcp" and not kept:
        kept.append(Toolbox(load_tools(Catalog.open(folder).tool("mcp"), None, {"timeout": 30})))
    yield made
    made.close()


def ok(bench: Bench) -> None:
    result = bench.run(text="hello", count=3)
    assert (result.ok, result.error, result.call_id, result.attempts) == (True, None, "c1", 1)
    assert json.loads(result.content) == ["hello", 3, None]
    assert result.arguments is not None and result.arguments["mode"] == "ok"
    assert result.seconds > 0 and result.cut == 0


def wrong_type(bench: Bench) -> None:
    for wrong in ("3", 1.5, [3], True, None):
        result = bench.run(text="x", count=wrong)
        assert (result.error, result.attempts, result.arguments) == ("invalid_arguments", 0, None)
        assert "argument 'count' of " in result.content and "must be an integer" in result.content


def missing(bench: Bench) -> None:
    result = bench.run(count=3)
    assert (result.error, result.attempts) == ("invalid_arguments", 0)
    assert "'text'" in result.content and len(result.content) < 300


def extra(bench: Bench) -> None:
    result = bench.run(text="x", cuont=3)
    assert (result.error, result.attempts) == ("invalid_arguments", 0)
    assert "takes no argument 'cuont'; did you mean 'count'?" in result.content


def nested(bench: Bench) -> None:
    result = bench.run(text="x", place={"city": "Oslo", "at": [59.9, 10.75]})
    assert json.loads(result.content)[2] == {"city": "Oslo", "at": [59.9, 10.75]}
    result = bench.run(text="x", place={"city": "Oslo", "at": [59.9, "east"]})
    assert (result.error, result.attempts) == ("invalid_arguments", 0)
    assert "place" in result.content


def unicode(bench: Bench) -> None:
    text = "æ\N{GRINNING FACE}\u2028\u202e{text} \"\\n' \t\n é 漢字"
    assert json.loads(bench.run(text=text).content)[0] == text
    result = bench.run(text="a\ud800b")
    assert result.error in (None, "tool_error")
    assert "\ud800" not in result.content


def huge(bench: Bench) -> None:
    assert bench.run(text="æ" * 1_000_000, mode="length").content == "1000000"


def timeout(bench: Bench) -> None:
    box = bench.box(timeout=1.0)
    began = time.monotonic()
    hanging, good = box.run([bench.call(text="x", mode="hang"), bench.call(text="y")])
    assert time.monotonic() - began < 10
    assert (hanging.error, hanging.ok) == ("timeout", False)
    assert "did not finish within 1 s" in hanging.content
    assert json.loads(good.content)[0] == "y"
    assert bench.run(text="after").ok


def raises(bench: Bench) -> None:
    bad, good = bench.box().run([bench.call(text="wheel", mode="raise"), bench.call(text="y")])
    assert (bad.error, bad.ok, bad.attempts) == ("tool_error", False, 1)
    assert bad.content.startswith("error: ") and "broken wheel" in bad.content
    assert "Traceback" not in bad.content and len(bad.content) < 500
    assert good.ok


def flood(bench: Bench) -> None:
    (result,) = bench.box(max_result_chars=1000).run([bench.call(text="xy", mode="flood")])
    assert result.ok
    assert result.content == "xy" * 500 + "\n[... 999000 more characters cut]"
    assert result.cut == 999_000


def cancel(bench: Bench) -> None:
    async def cancelled() -> float:
        running = asyncio.create_task(bench.box().run_async([bench.call(text="x", mode="hang")]))
        assert await asyncio.to_thread(bench.marked, "started")
        began = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return time.monotonic() - began

    assert asyncio.run(cancelled()) < 5
    if bench.backend in ("async", "mcp"):
        assert bench.marked("cancelled")
    assert bench.run(text="after").ok


CELLS = [ok, wrong_type, missing, extra, nested, unicode, huge, timeout, raises, flood, cancel]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_does_in_every_situation_what_the_others_do(
    bench: Bench, cell: Callable[[Bench], None]
) -> None:
    cell(bench)
