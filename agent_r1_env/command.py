"""What the commands of the command line share: values of options, and an stdout of their own."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from agent_r1_env import yamlfile
from agent_r1_env.errors import AgentR1Error


def add_data(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options that name the files of a data set."""
    add = parser.add_argument
    add("--data", metavar="FILE", help="questions, in the data set's official form")
    add("--corpus", metavar="FILE", help="paragraphs to search: title and text as JSON lines")


def settings(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """``KEY=VALUE`` arguments; values are read as YAML, so that numbers are numbers."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not all(part.isidentifier() for part in key.split(".")):
            raise AgentR1Error(f"{option} takes KEY=VALUE, got {pair!r}")
        found[key] = yamlfile.value(text, f"{option} {key}")
    return found


def count(text: str) -> int:
    """A whole number above 0."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def not_negative(text: str) -> float:
    """A finite number from 0 upwards."""
    if not 0.0 <= (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number >= 0, got {text}")
    return number


def positive(text: str) -> float:
    """A finite number above 0."""
    if not 0.0 < (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number > 0, got {text}")
    return number


def share(text: str) -> float:
    """A number above 0 and up to 1."""
    if not 0.0 < (number := float(text)) <= 1.0:
        raise argparse.ArgumentTypeError(f"must be > 0 and <= 1, got {text}")
    return number


@contextlib.contextmanager
def blaming(option: str) -> Iterator[None]:
    """Errors about values that came from one option, as errors that end in one line."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, AgentR1Error) else AgentR1Error(f"{option}: {error}") from error


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Send to stderr whatever a library, or a process it starts, writes to stdout meanwhile."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
