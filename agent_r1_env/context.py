"""Context policies: how the next prompt is built from the history.

A policy is a function of the whole history and the ``Moment`` of the episode that returns the messages which
the model sees next. It never changes the history. Policies are named in YAML and made by the functions here
in Python, and a list of them is applied in order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_r1_env.budget import token_budget
from agent_r1_env.errors import look_up, unknown_name
from agent_r1_env.loading import load_target
from agent_r1_env.messages import Message
from agent_r1_env.reasoning import strip_reasoning
from agent_r1_env.summaries import summarise
from agent_r1_env.turns import (
    ContextPolicy,
    Moment,
    head_length,
    last_turns_start,
    left_out,
    told,
    whole,
)

__all__ = [
    "ContextPolicy",
    "Moment",
    "append",
    "last_turn",
    "resolve",
    "rewrite",
    "strip_reasoning",
    "summarise",
    "token_budget",
    "window",
]


def append() -> ContextPolicy:
    """Everything so far, in order: the context only grows."""
    return ContextPolicy("append", _append)


def window(turns: int, notice: bool = False) -> ContextPolicy:
    """The head and the last turns.

    Args:
        turns: how many, at least 1.
        notice: tell the model behind the task how many turns were left out; counting them takes time in
            proportion to the episode, if little, where the rest of the policy looks at what it shows alone.

    Raises:
        ValueError: less than 1 turn.
    """
    return ContextPolicy("window", partial(_window, turns=whole("turns", turns), notice=notice))


def last_turn(
    text: str = "This is your last turn: give the final answer now.", in_result: bool = False
) -> ContextPolicy:
    """A last word to the model when one reply is left; it stands in that one prompt alone.

    Args:
        text: said as the user, in the user's last message where the prompt ends with one.
        in_result: where the prompt ends with the result of a tool, say it at the end of that. Some chat
            templates write earlier turns another way, or without their reasoning, once the user speaks again
            (Qwen 3, Mistral): then the last step is a training row of its own, and this keeps it in the
            row of the others.
    """
    return ContextPolicy("last_turn", partial(_last_turn, text=text, in_result=in_result))


def rewrite(
    function: Callable[..., Any] | str, *, folder: Path | None = None, **options: Any
) -> ContextPolicy:
    """A function of your own that returns the messages to show.

    Args:
        function: takes the messages, as a list of its own, and the ``Moment`` if it has a second
            positional parameter; or its name as ``./file.py:name`` or ``package.module:name``. It returns
            ``Message``s, or mappings with ``role`` and ``content``.
        folder: what the name is relative to; the working directory by default.
        options: further arguments of the function.

    Raises:
        TargetFault: the name leads to nothing.
        TypeError: it cannot be called so.
    """
    name = function if isinstance(function, str) else getattr(function, "__name__", repr(function))
    called = load_target(function, folder or Path.cwd()) if isinstance(function, str) else function
    if isinstance(called, ContextPolicy):
        return called
    with_moment = _takes_moment(name, called, options)
    return ContextPolicy(name, _Rewrite(name, called, with_moment, options))


_POLICIES: dict[str, Callable[..., ContextPolicy]] = {
    each.__name__: each
    for each in (append, last_turn, rewrite, strip_reasoning, summarise, token_budget, window)
}


def resolve(spec: Any, base_folder: Path | str | None = None) -> ContextPolicy:
    """The context policy that ``spec`` stands for.

    Args:
        spec: a name; ``{name: options}`` with a mapping of options, or the value of the first one; a
            function, or its name as ``./file.py:name`` or ``package.module:name``; or a list of those, which
            are applied in order.
        base_folder: what files are relative to; the working directory by default.

    Raises:
        UnknownName: there is no such policy, or it has no such option.
        TargetFault: the name of a function leads to nothing.
        TypeError, ValueError: it is none of those, or an option has no value that it can have.
    """
    folder = Path(base_folder) if base_folder is not None else Path.cwd()
    if not isinstance(spec, list | tuple):
        return _resolved(spec, folder)
    policies = [_resolved(each, folder) for each in spec]
    if len(policies) == 1:
        return policies[0]
    chain = _Chain(tuple(policies))
    return ContextPolicy(
        " + ".join(each.name for each in policies) or "append",
        chain,
        needs_tokenizer=any(each.needs_tokenizer for each in policies),
        blocking=any(each.blocking for each in policies),
        prepare=chain.prepare,
    )


# -- what the policies do


def _append(messages: Sequence[Message], moment: Moment) -> Sequence[Message]:
    return messages


def _window(messages: Sequence[Message], moment: Moment, *, turns: int, notice: bool) -> Sequence[Message]:
    head, start = head_length(messages), last_turns_start(messages, turns)
    if start <= head:
        return messages
    shown = list(messages[:head])
    if notice:
        shown = told(shown, left_out(sum(each.role == "assistant" for each in messages[head:start])))
    return [*shown, *messages[start:]]


def _last_turn(
    messages: Sequence[Message], moment: Moment, *, text: str, in_result: bool
) -> Sequence[Message]:
    if moment.steps_left != 1 or not messages or messages[-1].content.endswith(text):
        return messages
    last = messages[-1]
    if in_result and last.role == "tool":
        return [*messages[:-1], replace(last, content=f"{last.content}\n\n{text}")]
    return told(messages, text)


@dataclass(frozen=True)
class _Chain:
    """Policies applied in order, each with a memory of its own."""

    policies: tuple[ContextPolicy, ...]

    def __call__(self, messages: Sequence[Message], moment: Moment) -> Sequence[Message]:
        for place, policy in enumerate(self.policies):
            own = moment.memory.setdefault(f"{place} {policy.name}", {})
            messages = policy(messages, replace(moment, memory=own))
        return messages

    def prepare(self) -> None:
        for policy in self.policies:
            policy.prepare()


@dataclass(frozen=True)
class _Rewrite:
    """A user's function as a policy."""

    name: str
    function: Callable[..., Any]
    with_moment: bool
    options: Mapping[str, Any]

    def __call__(self, messages: Sequence[Message], moment: Moment) -> Sequence[Message]:
        own = list(messages)  # the function may change what it gets
        made = self.function(own, *[moment] * self.with_moment, **self.options)
        if isinstance(made, str) or not isinstance(made, Sequence) or not made:
            raise TypeError(
                f"the context policy {self.name} returned {_shown(made)}; it must return a list of messages"
            )
        return [each if isinstance(each, Message) else self._message(each) for each in made]

    def _message(self, given: Any) -> Message:
        try:
            return Message(given["role"], str(given["content"]), given.get("tool_call_id"), given.get("name"))
        except (TypeError, KeyError, AttributeError):
            raise TypeError(
                f"the context policy {self.name} returned {_shown(given)} among its messages; "
                "a message is a Message, or a mapping with role and content"
            ) from None


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) < 60 else type(value).__name__


# -- from a spec to a policy


def _resolved(spec: Any, folder: Path) -> ContextPolicy:
    if isinstance(spec, ContextPolicy):
        return spec
    if isinstance(spec, str):
        return _named(spec, None, folder)
    if isinstance(spec, Mapping):
        if len(spec) != 1:
            keys = ", ".join(map(repr, spec)) or "none"
            raise ValueError(
                "a context policy with options is one key and its options, such as {window: {turns: 4}}; "
                f"found the keys {keys}"
            )
        ((name, options),) = spec.items()
        return _named(str(name), options, folder)
    if spec in _POLICIES.values():
        return _made(spec.__name__, spec, None, folder)
    if callable(spec):
        return rewrite(spec)
    raise TypeError(
        f"a context policy is a name, a mapping name: options, a function or a list of those, not {spec!r}"
    )


def _named(name: str, options: Any, folder: Path) -> ContextPolicy:
    if ":" not in name:
        return _made(name, look_up("context policy", name, _POLICIES), options, folder)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"the options of {name} must be a mapping, not {options!r}")
    return rewrite(name, folder=folder, **(options or {}))


def _made(name: str, make: Callable[..., ContextPolicy], options: Any, folder: Path) -> ContextPolicy:
    """A policy of ours with its options; their names in YAML have no underscore at the end."""
    parameters = inspect.signature(make).parameters
    known = {
        each.name.removesuffix("_"): each
        for each in parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    }
    if options is not None and not isinstance(options, Mapping):
        if not known:
            raise TypeError(f"the context policy {name!r} has no options, got {options!r}")
        options = {next(iter(known)): options}
    given = dict(options or {})
    for option in given:
        if option not in known:
            raise unknown_name("option", str(option), known, f"the context policy {name!r}")
    for option, parameter in known.items():
        if option not in given and parameter.default is parameter.empty:
            raise ValueError(f"the context policy {name!r} needs the option {option!r}")
    arguments = {known[option].name: value for option, value in given.items()}
    return make(**arguments, **({"folder": folder} if "folder" in parameters else {}))


def _takes_moment(name: str, function: Any, options: Mapping[str, Any]) -> bool:
    """Whether a function takes messages and moment, and not the messages alone.

    Raises:
        TypeError: it takes neither, or not these options.
    """
    if not callable(function):
        raise TypeError(f"{name} is {type(function).__name__}, not a function of messages")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions tell nothing of their parameters
        return False
    for arguments in ((), ()), ((),):
        try:
            signature.bind(*arguments, **options)
        except TypeError:
            continue
        return len(arguments) == 2
    raise TypeError(
        f"the context policy {name}{signature} cannot be called with messages, or messages and moment"
        + (f", and the options {', '.join(options)}" if options else "")
    )
