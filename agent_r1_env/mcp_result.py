"""What a tool of an MCP server returned, as the model reads it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mcp_types


def as_shown(result: mcp_types.CallToolResult) -> str:
    """The parts of a result one below the other: text as it is, data as JSON, what is binary by its size."""
    shown = [_part(part) for part in result.content]
    data = result.structured_content
    if data is not None and not _told(data, [part.text for part in result.content if part.type == "text"]):
        shown.append(json.dumps(data, ensure_ascii=False))
    return "\n".join(shown)


def _part(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource":
        resource = part.resource
        return resource.text if hasattr(resource, "text") else _size(resource.mime_type, resource.blob)
    if part.type == "resource_link":
        return f"[{part.title or part.name}: {part.uri}]"
    return _size(part.mime_type, part.data)


def _size(kind: str | None, data: str) -> str:
    try:
        size = f"{len(base64.b64decode(data))} bytes"
    except ValueError:
        size = "damaged"
    return f"[{kind or 'binary data'}, {size}]"


def _told(data: Any, texts: list[str]) -> bool:
    """Whether the texts say what the data says, as servers repeat it for clients that know only text."""
    if not texts:
        return False
    # The SDK's server wraps what is no object, and gives a list as one text an item.
    inner = data["result"] if isinstance(data, dict) and set(data) == {"result"} else data
    read = [_read(text) for text in texts]
    if any(each in (*texts, *read) for each in (data, inner)):
        return True
    if not isinstance(inner, list) or len(inner) != len(texts):
        return False
    return all(item in (text, value) for item, text, value in zip(inner, texts, read, strict=True))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
