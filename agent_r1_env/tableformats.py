"""Tables written down: plain text, Markdown and LaTeX for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agent_r1_env.summary import Evaluation
from agent_r1_env.tables import Cell, Table, records, tables

_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".markdown": "markdown", ".tex": "latex"}
_NOTHING = "-"
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|#~&$]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    # After the end of a row these could be taken for its options.
    "[": "{[}",
    "*": "{*}",
}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_LATIN = 0x24F  # the last character that pdfLaTeX's fonts may have


def write(
    evaluations: Sequence[Evaluation], form: str, metrics: Sequence[str] = (), *, long: bool = False
) -> str:
    """Evaluations in one of `eval_results.FORMATS`.

    CSV and JSON have a record for each evaluation and measure; of all measures unless some are named.

    Args:
        metrics: as for `tables.tables`.
        long: as there.

    Raises:
        UnknownName: none of the evaluations has such a measure.
    """
    if form == "csv":
        return as_csv(evaluations, metrics)
    if form == "json":
        return as_json(evaluations, metrics)
    found = tables(evaluations, metrics, long=long)
    if form != "latex" and len({table.notes for table in found}) == 1:  # said once, below all of them
        found[:-1] = [replace(table, notes=()) for table in found[:-1]]
    return "\n\n".join(_WRITERS[form](table).rstrip() for table in found)


def by_suffix(file: str | Path | None) -> str:
    """The format that the ending of a file's name asks for; ``text`` where it asks for none."""
    return _SUFFIXES.get(Path(file).suffix.lower(), "text") if file is not None else "text"


def as_csv(evaluations: Sequence[Evaluation], metrics: Sequence[str] = ()) -> str:
    """Records with a head; numbers in full, what is not known is empty."""
    rows = records(evaluations, metrics)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().rstrip("\n")


def as_json(evaluations: Sequence[Evaluation], metrics: Sequence[str] = ()) -> str:
    """A list of records; numbers in full, what is not known is null."""
    return json.dumps(records(evaluations, metrics), indent=2)


def as_text(table: Table) -> str:
    """Columns as wide as they need to be."""
    rows = [[table.corner, *table.columns], *([name, *map(_plain, cells)] for name, cells in table.rows)]
    lines = [_padded([_line(text) for text in row], _widths(rows)) for row in rows]
    rule = "-" * max(map(_width, lines))
    return "\n".join([_line(table.title), "", lines[0], rule, *lines[1:], "", *map(_line, table.notes)])


def as_markdown(table: Table) -> str:
    """A table of GitHub's Markdown; the best of each column is bold."""

    def row(texts: Sequence[str]) -> str:
        return f"| {' | '.join(texts)} |"

    rule = ["---", *("---:" for _ in table.columns)]
    body = [
        row([_markdown(name), *(_marked(cell, "**{}**", " {}") for cell in cells)])
        for name, cells in table.rows
    ]
    head = row([_markdown(text) for text in (table.corner, *table.columns)])
    title, notes = f"**{_markdown(table.title)}**", " ".join(map(_markdown, table.notes))
    return "\n".join([title, "", head, row(rule), *body, "", notes])


def as_latex(table: Table) -> str:
    """A floating table for the package booktabs; the best of each column is bold."""

    def row(texts: Sequence[str]) -> str:
        return f"    {' & '.join(texts)} \\\\"

    body = [
        row([_latex(name), *(_marked(cell, r"\textbf{{{}}}", r" {{\footnotesize {}}}") for cell in cells)])
        for name, cells in table.rows
    ]
    caption = _latex(" ".join([f"{table.title}.", *table.notes]))
    needs = r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}"
    if any(ord(character) > _LATIN for character in caption + "".join([*table.columns, *body])):
        needs = r"% needs \usepackage{booktabs}, XeLaTeX or LuaLaTeX, and a font with all characters"
    return "\n".join(
        [
            needs,
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"    \toprule",
            row([_latex(text) for text in (table.corner, *table.columns)]),
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


_WRITERS: dict[str, Callable[[Table], str]] = {"text": as_text, "markdown": as_markdown, "latex": as_latex}


def _parts(cell: Cell) -> tuple[str, str] | None:
    """Mean and interval of a cell; None where there is nothing to show."""
    value = cell.value
    if value is None or value.mean != value.mean:
        return None
    mean, low, high = (f"{number:z.{cell.decimals}f}" for number in (value.mean, value.low, value.high))
    return mean, f"[{low}, {high}]"


def _plain(cell: Cell) -> str:
    parts = _parts(cell)
    return _NOTHING if parts is None else " ".join(parts)


def _marked(cell: Cell, best: str, interval: str) -> str:
    """A cell by two templates: of a mean that is best, and of an interval."""
    if (parts := _parts(cell)) is None:
        return _NOTHING
    mean, bounds = parts
    return (best.format(mean) if cell.best else mean) + interval.format(bounds)


def _line(text: str) -> str:
    """Text without line ends and control characters, which no table can hold."""
    return " ".join(
        "".join(" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in text).split()
    )


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", _line(text))


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in _line(text))
    return re.sub("-(?=-)", "-{}", escaped)  # or they are set as one long dash


def _width(text: str) -> int:
    """Columns of a terminal: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(_width(_line(row[column])) for row in rows) for column in range(len(rows[0]))]


def _padded(texts: Sequence[str], widths: Sequence[int]) -> str:
    """The first column to the left, numbers to the right."""
    spaces = [" " * (width - _width(text)) for text, width in zip(texts, widths, strict=True)]
    first, *others = zip(texts, spaces, strict=True)
    return "  ".join([first[0] + first[1], *(space + text for text, space in others)]).rstrip()
