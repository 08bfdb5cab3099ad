"""Context policies: how the next prompt is built from the history.

A policy maps the whole history to the messages that the model sees next. It never changes the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_r1_env.errors import look_up
from agent_r1_env.messages import Message

ContextPolicy = Callable[[Sequence[Message]], Sequence[Message]]


def append(history: Sequence[Message]) -> Sequence[Message]:
    """Everything so far, in order: the context only grows."""
    return history


_POLICIES: dict[str, ContextPolicy] = {"append": append}


def get(name: str) -> ContextPolicy:
    """The context policy of that name.

    Raises:
        UnknownName: there is none.
    """
    return look_up("context policy", name, _POLICIES)
