"""What a docstring says of a function and of each argument, in the styles of Google, NumPy and Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ABOUT_ARGUMENTS = ("args", "arguments", "parameters", "keyword args", "keyword arguments", "params")
_SECTIONS = (
    *("returns", "return", "raises", "yields", "yield", "example", "examples", "note", "notes", "attributes"),
    *("warning", "warnings", "warns", "see also", "references", "todo", "other parameters", "methods"),
)
_FIELDS_OF_ARGUMENTS = ("param", "parameter", "arg", "argument", "key", "keyword")
_OTHER_FIELDS = ("type", "returns?", "rtype", "raises?", "except", "yields?", "ytype", "var", "ivar", "cvar")
_FIELD = re.compile(rf"\s*[:@]({'|'.join((*_FIELDS_OF_ARGUMENTS, *_OTHER_FIELDS))})(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"\s*(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the sections on one line, and what is said of each argument.

    Args:
        text: without the indentation of the source, as ``inspect.getdoc`` gives it.
    """
    head: list[str] = []
    told: dict[str, str] = {}
    for title, underlined, lines in _parts(text.splitlines()):
        if not title:
            head += _without_fields(lines, told)
        elif title in _ABOUT_ARGUMENTS or title == "attributes":
            told |= _numpy(lines) if underlined else _google(lines)
    return " ".join(" ".join(head).split()), told


def _parts(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """The sections: title in lower case ("" for what comes first), whether it is underlined, and lines."""
    title, underlined, found = "", False, list[str]()
    index = 0
    while index < len(lines):
        line = lines[index]
        below = lines[index + 1] if index + 1 < len(lines) else ""
        name = line.strip().removesuffix(":").lower()
        known = line[:1].strip() != "" and name in (*_ABOUT_ARGUMENTS, *_SECTIONS)
        ruled = re.fullmatch(r"\s*-{3,}\s*", below) is not None
        if known and (ruled or line.rstrip().endswith(":")):
            yield title, underlined, found
            title, underlined, found = name, ruled, []
            index += 2 if ruled else 1
            continue
        if title and not underlined and line[:1].strip():  # text that is not indented ends a section
            yield title, underlined, found
            title, found = "rest", []
        found.append(line)
        index += 1
    yield title, underlined, found


def _google(lines: list[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    name, indent = "", None
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        if depth == indent and (entry := _GOOGLE.match(line)):
            name = entry[1]
            told[name] = entry[2].strip()
        elif name:
            told[name] = f"{told[name]} {line.strip()}".strip()
    return told


def _numpy(lines: list[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        if line[:1].strip():
            entry = _NUMPY.match(line)
            names = [name.strip(" *") for name in entry[1].split(",")] if entry else []
            told |= dict.fromkeys(names, "")
        else:
            told |= {name: f"{told[name]} {line.strip()}".strip() for name in names}
    return told


def _without_fields(lines: list[str], told: dict[str, str]) -> Iterator[str]:
    """The lines before the first ``:param name:``; what such fields say goes into ``told``."""
    name, begun = "", False
    for line in lines:
        if field := _FIELD.fullmatch(line):
            begun = True
            words = (field[2] or "").split()
            name = words[-1].lstrip("*") if field[1] in _FIELDS_OF_ARGUMENTS and words else ""
            if name:
                told[name] = field[3].strip()
        elif begun and name and line.strip():
            told[name] = f"{told[name]} {line.strip()}".strip()
        elif not begun:
            yield line
