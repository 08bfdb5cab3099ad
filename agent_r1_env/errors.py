"""The errors a developer can catch.

AgentR1Error
├── UnknownName (LookupError)        a name that nobody registered
├── CatalogError (ValueError)        a YAML entry is wrong; carries file, line, column and key
│   └── RecipeError                  the entry is a training recipe
├── SchemaFault (ValueError)         a tool's JSON Schema is unsound; carries the path (schematree)
├── SignatureFault (TypeError)       a function doesn't fit its tool (signature)
├── TargetFault (ImportError)        ./file.py:name or package:name leads to nothing (loading)
├── DataError (ValueError)           a data file is missing or wrong; carries file, row and key
├── MissingExtra (ImportError)       an optional package is not installed
├── SandboxUnavailable (RuntimeError)  this machine cannot isolate code as asked (sandbox)
├── StateError (RuntimeError)        what a tool keeps for an episode cannot be copied
├── EngineError (RuntimeError)       a generation backend failed
│   ├── PromptTooLong (ValueError)   the prompt leaves no room for a reply
│   └── Unsupported (ValueError)     a request asks for what this engine never does
├── WorkerLost (RuntimeError)        processes that play episodes die again and again (dispatch)
├── SummaryError (RuntimeError)      a context policy got no summary
├── DriftError (RuntimeError)        what would be trained on is not what was sampled
└── ToolError (RuntimeError)         raised by a tool; its text becomes the model's observation
    ├── ArgumentError (ValueError)   the arguments do not fit the tool's schema
    ├── TransientError               it may go better the next time; the call is tried again
    │   └── RateLimited              a service asks to be called less often
    └── TimedOut (TimeoutError)      the call ends as one whose time is up

AgentR1Warning (UserWarning)
├── ContextWarning                   a context policy had to cut what it was to summarise
├── FormatWarning                    replies show the marks of another wire format
└── TemplateWarning                  a chat template refused a conversation, which was written another way

What a model writes raises none of these from ``ToolEnv.step``: there, it becomes an observation.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


class AgentR1Error(Exception):
    """Root of every error of this package."""


class UnknownName(AgentR1Error, LookupError):
    """A tool, format, estimator, environment or key that does not exist."""


class CatalogError(AgentR1Error, ValueError):
    """A catalogue entry cannot be used.

    Attributes:
        file: the YAML file, or the code file it names.
        line: line in ``file``, counted from 1; None when no line is to blame.
        column: column in that line, counted from 1.
        key: the key to blame, dotted from the top of the file.
    """

    def __init__(
        self,
        message: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        column: int | None = None,
        key: str | None = None,
    ) -> None:
        self.file, self.line, self.column, self.key = file, line, column, key
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class RecipeError(CatalogError):
    """A training recipe cannot be used."""


class DataError(AgentR1Error, ValueError):
    """A data file is missing, empty, or not of the form asked for.

    Attributes:
        file: the file to blame.
        row: the row in it, counted from 1; None when the whole file is to blame.
        key: the key of that row to blame.
    """

    def __init__(
        self, message: str, *, file: Path | str | None = None, row: int | None = None, key: str | None = None
    ) -> None:
        self.file, self.row, self.key = file, row, key
        place = ", ".join(
            part
            for part in (
                str(file) if file is not None else "",
                f"row {row}" if row is not None else "",
                f"key {key!r}" if key is not None else "",
            )
            if part
        )
        super().__init__(f"{place}: {message}" if place else message)


class MissingExtra(AgentR1Error, ImportError):
    """An optional package is needed and not installed."""


class StateError(AgentR1Error, RuntimeError):
    """An environment cannot be copied in the middle of an episode."""


class EngineError(AgentR1Error, RuntimeError):
    """A generation backend failed."""


class PromptTooLong(EngineError, ValueError):
    """A prompt leaves no room for a reply within the engine's context length."""


class Unsupported(EngineError, ValueError):
    """A request asks for what this engine never does, so that asking again is of no use."""


class WorkerLost(AgentR1Error, RuntimeError):
    """Processes that play episodes die again and again, or cannot be started."""


class SummaryError(AgentR1Error, RuntimeError):
    """Raise this in a function that summarises a conversation when it has no summary to give."""


class DriftError(AgentR1Error, RuntimeError):
    """Token ids that would be trained on are not the ids that were sampled."""


class ToolError(AgentR1Error, RuntimeError):
    """Raise this in a tool to tell the model, in one sentence, why the call failed.

    Attributes:
        simulated: the kind of fault, where there is none but in the exercise; the model is not told.
    """

    simulated: str | None = None


class ArgumentError(ToolError, ValueError):
    """The arguments of a call do not fit the tool's schema; the text is for the model."""


class AgentR1Warning(UserWarning):
    """Root of every warning of this package."""


class ContextWarning(AgentR1Warning):
    """A context policy had to leave out what it was to summarise."""


class FormatWarning(AgentR1Warning):
    """The model seems to write calls in another wire format than the environment reads."""


class TemplateWarning(AgentR1Warning):
    """A chat template refused a conversation."""


class TransientError(ToolError):
    """Raise this in a tool for a failure that may pass: the call is tried again as its ``retries`` say.

    Attributes:
        after: seconds to wait first, where whoever failed said so.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class RateLimited(TransientError):
    """A service asks to be called less often."""


class TimedOut(ToolError, TimeoutError):
    """Raise this in a tool to end the call as one whose time is up; the model reads what it then reads."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be, or None."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = {known_name.lower(): known_name for known_name in names}
    return folded.get(name.lower())


def hint(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'? known: ...``: the tail of a message about an unknown name."""
    names = sorted(known)
    guess = nearest(name, names)
    meant = f"; did you mean {guess!r}?" if guess else ""
    listed = ", ".join(names) if names else "none"
    return f"{meant or ';'} known: {listed}"


def unknown_name(kind: str, name: str, known: Iterable[str], where: str | None = None) -> UnknownName:
    """The error for a name that is not there: what was asked, the nearest one, and all of them."""
    place = f" in {where}" if where else ""
    return UnknownName(f"no {kind} named {name!r}{place}{hint(name, known)}")


def look_up(kind: str, name: str, table: Mapping[str, _T]) -> _T:
    """The entry of a table of named things.

    Raises:
        UnknownName: it has none of that name.
    """
    try:
        return table[name]
    except KeyError:
        raise unknown_name(kind, name, table) from None


def missing_extra(package: str, extra: str) -> MissingExtra:
    """The error for an optional package: one line with the pip command."""
    line = f"{package} is not installed; run: pip install 'agent-r1-env[{extra}]'"
    if package.partition(".")[0] == "vllm":
        line += " (on a machine without a GPU run the lines that agent-r1 doctor prints)"
    return MissingExtra(line, name=package)
