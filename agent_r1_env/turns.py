"""What context policies work with: the moment of the episode, and a history in its head and turns.

The head is what stands before the first reply: the system prompt and the task. A turn is a reply and what
came back for it: results of tools, or words of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_r1_env.formats import Format
from agent_r1_env.messages import Message

PolicyFunction = Callable[[Sequence[Message], "Moment"], Sequence[Message]]


@dataclass(frozen=True, slots=True)
class Moment:
    """Where the episode stands when a prompt is built.

    Attributes:
        step: replies so far.
        steps_left: replies still allowed.
        format: the wire format that replies are written in.
        count: the number of tokens in a text; None without a tokenizer.
        memory: plain data that a policy keeps during the episode; it is copied with the environment's state.
            Each policy of a list has its own.
    """

    step: int
    steps_left: int
    format: Format
    count: Callable[[str], int] | None = None
    memory: dict[str, Any] = field(default_factory=dict)


def nothing() -> None:
    """Nothing is to be prepared."""


@dataclass(frozen=True, slots=True, repr=False)
class ContextPolicy:
    """A function from the history to the messages that the model sees next, and what it needs for that.

    Attributes:
        function: never changes the messages it gets.
        needs_tokenizer: it counts tokens.
        blocking: it may take long, as a request to a model does.
        prepare: called when an environment is made with it; raises where this machine lacks what it needs.
    """

    name: str
    function: PolicyFunction
    needs_tokenizer: bool = False
    blocking: bool = False
    prepare: Callable[[], None] = nothing

    def __call__(self, messages: Sequence[Message], moment: Moment) -> Sequence[Message]:
        """What the model sees next."""
        return self.function(messages, moment)

    def __repr__(self) -> str:
        return f"ContextPolicy({self.name!r})"


def head_length(messages: Sequence[Message]) -> int:
    """How many messages stand before the first reply."""
    return next((place for place, each in enumerate(messages) if each.role == "assistant"), len(messages))


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """The place of each reply."""
    return [place for place, each in enumerate(messages) if each.role == "assistant"]


def last_turns_start(messages: Sequence[Message], turns: int) -> int:
    """Where the last ``turns`` turns begin; the first reply where there are fewer, 0 where there is none.

    It looks at no more than those turns and the head.
    """
    start = 0
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            start, turns = place, turns - 1
            if not turns:
                break
    return start


def told(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with one more word to the model.

    It goes into a last message of the user's, since many chat templates refuse two user turns in a row.
    """
    if messages and messages[-1].role == "user":
        last = messages[-1]
        return [*messages[:-1], replace(last, content=f"{last.content}\n\n{text}")]
    return [*messages, Message("user", text)]


def left_out(turns: int) -> str:
    """Tells the model that turns are missing."""
    return f"({turns} earlier turn{'s are' if turns > 1 else ' is'} left out)"


def whole(name: str, number: int, least: int = 1) -> int:
    """An option that is a whole number.

    Raises:
        TypeError: it is none.
        ValueError: it is less than ``least``.
    """
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a whole number, not {number!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number
