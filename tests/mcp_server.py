"""A server of the Model Context Protocol for the tests: the SDK's own, over stdio or streamable HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer, Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import BaseModel, Field

server = MCPServer("test server", log_level="ERROR")


class Place(BaseModel):
    """Where."""

    city: str
    at: list[float] = []


class Trip(BaseModel):
    """From where to where."""

    start: Place
    stops: list[Place] = []
    mode: Annotated[str, Field(pattern="^(walk|ride)$")] = "walk"


@server.tool()
def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool()
def plan(trip: Trip, note: str | None = None) -> dict[str, Any]:
    """Plan a trip.

    Args:
        trip: All of it.
    """
    return {"cities": [trip.start.city, *(stop.city for stop in trip.stops)], "mode": trip.mode, "note": note}


@server.tool()
def numbers(n: int) -> list[int]:
    """Count."""
    return list(range(n))


@server.tool(name="odd.name/with spaces")
def odd() -> str:
    """Has an odd name."""
    return "odd"


@server.tool()
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@server.tool()
async def wait(mark: str, seconds: float = 60.0) -> str:
    """Wait, and leave a mark: begun, then cancelled or done."""
    Path(mark).write_text("begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        Path(mark).write_text("cancelled")
        raise
    Path(mark).write_text("done")
    return "done"


_waiting = 0
_all_there = asyncio.Event()


@server.tool()
async def meet(count: int) -> str:
    """Wait until so many calls are here."""
    global _waiting
    _waiting += 1
    if _waiting == count:
        _all_there.set()
    await _all_there.wait()
    return f"{_waiting}"


@server.tool()
def die() -> str:
    """End the server at once."""
    print("about to die of s3cr3t-key", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def who() -> dict[str, Any]:
    """Tell process and environment."""
    return {"pid": os.getpid(), "env": dict(os.environ), "arguments": sys.argv[1:]}


@server.tool()
def long(characters: int) -> str:
    """Give a long text."""
    return "x" * characters


@server.tool(structured_output=False)
def media() -> CallToolResult:
    """Give one part of each kind."""
    data = base64.b64encode(b"12345").decode()
    blob = BlobResourceContents(uri="file:///b", blob=data, mime_type="application/pdf")
    return CallToolResult(
        content=[
            TextContent(text="look: ✓"),
            ImageContent(data=data, mime_type="image/png"),
            AudioContent(data=data, mime_type="audio/wav"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///t", text="embedded")),
            EmbeddedResource(resource=blob),
            ResourceLink(uri="file:///l", name="link"),
        ],
        structured_content={"more": [1, None]},
    )


UNSOUND = {
    "a.b": {
        "type": "object",
        "properties": {"x": {"type": "string", "default": None, "x-mark": 1, "nullable": True}},
    },
    "a_b": {"type": "object"},
    "draft4": {
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
    },
}
"""Schemas that are unsound, or that say little; each tool gives its arguments back."""


def unsound() -> Server[Any]:
    async def listed(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[Tool(name=name, input_schema=schema) for name, schema in UNSOUND.items()]
        )

    async def called(context: Any, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(
            content=[], structured_content={"name": params.name, "arguments": params.arguments}
        )

    return Server("unsound", on_list_tools=listed, on_call_tool=called)


async def serve_unsound() -> None:
    chosen = unsound()
    async with stdio_server() as (read, write):
        await chosen.run(read, write, chosen.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    elif sys.argv[1:2] == ["unsound"]:
        asyncio.run(serve_unsound())
    else:
        server.run("stdio")
