"""The context policy ``summarise``: older turns are replaced by a summary that grows with the episode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent_r1_env import summarisers
from agent_r1_env.errors import ContextWarning, SummaryError
from agent_r1_env.loading import load_target
from agent_r1_env.messages import Message
from agent_r1_env.turns import ContextPolicy, Moment, head_length, left_out, nothing, told, turn_starts, whole

Summariser = Callable[[list[Message]], str]


def summarise(
    with_: Summariser | str | Mapping[str, Any], after: int = 8, keep: int = 2, *, folder: Path | None = None
) -> ContextPolicy:
    """Older turns are replaced by one summary behind the task.

    When more than ``after`` turns are shown, all but the last ``keep`` go into the summary, in one call that
    gets the task, the summary so far and those turns. In between the context only grows. Where the call
    fails, those turns are left out and the model is told so; they go into no later summary. The first time
    in an episode that gives a ``ContextWarning``, and the failures are counted in the memory of the episode.

    Args:
        with_: a function of messages that returns the summary as text, or its name as ``./file.py:name`` or
            ``package.module:name``; or ``{"url": ..., "model": ...}``, see ``summarisers.Endpoint``; or
            ``{"model": FOLDER}``, see ``summarisers.LocalModel``. A function fails with a ``SummaryError`` or
            an ``OSError``; anything else that it raises is raised.
        after: at least ``keep``.
        keep: at least 1.
        folder: what names of files are relative to; the working directory by default.

    Raises:
        TargetFault: the name leads to nothing.
        TypeError, ValueError, UnknownName: an option has no value that it can have.
    """
    keep = whole("keep", keep)
    after = whole("after", after, least=keep)
    write = _summariser(with_, folder or Path.cwd())
    function = partial(_summarise, write=write, after=after, keep=keep)
    prepare = write.prepare if isinstance(write, summarisers.Endpoint | summarisers.LocalModel) else nothing
    return ContextPolicy("summarise", function, blocking=True, prepare=prepare)


def _summariser(given: Any, folder: Path) -> Summariser:
    if isinstance(given, Mapping):
        return summarisers.made(given, folder)
    write: Any = load_target(given, folder) if isinstance(given, str) else given
    if not callable(write):
        raise TypeError(f"summarise with {given!r}: it is {type(write).__name__}, not a function of messages")
    made: Summariser = write
    return made


def _summarise(
    messages: Sequence[Message], moment: Moment, *, write: Summariser, after: int, keep: int
) -> Sequence[Message]:
    memory = moment.memory
    starts = turn_starts(messages)
    # Turns are numbered in the whole episode, since a policy before this one may have left out some.
    unseen = moment.step - len(starts)
    gone = max(memory.get("gone", 0) - unseen, 0)
    if len(starts) - gone > after and _read_by_a_model(messages, moment):
        end = len(starts) - keep
        turns = messages[starts[gone] : starts[end]]
        _extend(memory, [*_head(messages, memory), *turns], unseen + end, write, moment)
        gone = end
    return [*_head(messages, memory), *(messages[starts[gone] :] if gone < len(starts) else ())]


def _read_by_a_model(messages: Sequence[Message], moment: Moment) -> bool:
    """Whether a reply may follow; what is shown at the end of an episode is worth no call."""
    return moment.steps_left > 0 and messages[-1].role != "assistant"


def _extend(
    memory: dict[str, Any], messages: list[Message], turns: int, write: Summariser, moment: Moment
) -> None:
    """Take the turns up to that number out of view, into the summary if it can be had."""
    since = memory.get("gone", 0)
    memory["gone"] = turns
    try:
        text = write(messages)
    except (SummaryError, OSError) as failure:
        memory["failures"] = memory.get("failures", 0) + 1
        memory["lost"] = memory.get("lost", 0) + turns - since
        if memory["failures"] == 1:
            fault = f"a summary failed, so {turns - since} turns were left out ({failure})"
            warnings.warn(fault, ContextWarning, stacklevel=2)
        return
    if not isinstance(text, str):
        raise TypeError(f"a function that summarises must return text, not {type(text).__name__}")
    memory["summary"] = moment.format.neutralise(text.strip())


def _head(messages: Sequence[Message], memory: Mapping[str, Any]) -> list[Message]:
    """The head with the summary, and with the number of turns that no summary holds."""
    head = list(messages[: head_length(messages)])
    if summary := memory.get("summary"):
        head = told(head, f"Summary of earlier turns:\n{summary}")
    return told(head, left_out(memory["lost"])) if memory.get("lost") else head
