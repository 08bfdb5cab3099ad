"""A server's no: what it says, whether a conversation was too long for it, and when to come back."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agent_r1_env.errors import EngineError
from agent_r1_env.output import safe, veiled

if TYPE_CHECKING:
    import httpx

TOLD = 300
"""Characters of an answer that are shown."""

# How servers say that a conversation is too long; none of them agrees with another.
_OVERFLOW = re.compile(
    r"context[ _]?(?:length|size|window)|maximum (?:model|input|context|sequence) length|max_model_len"
    r"|prompt (?:is|was) too (?:long|large)|(?:prompt|input)[^.]{0,40}(?:longer than|too long)"
    r"|reduce the length|input token count|max_new_tokens`? must be|exceeds? the available context",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"(?:maximum )?(?:context|model)(?:'s)?[ _](?:context )?length[^\d]{0,12}(\d+)", re.I)
_PROMPT = re.compile(
    r"(\d+) (?:tokens )?(?:in|from) the (?:messages|prompt|input)"
    r"|has (\d+) input tokens|prompt contains (\d+)",
    re.I,
)


class Refused(EngineError):
    """The server said no.

    Attributes:
        said: status and reason, for people.
        reason: what the body of the answer says.
    """

    @classmethod
    def of(cls, answer: httpx.Response, url: str, secrets: Sequence[str], hint: str = "") -> Refused:
        """The refusal that an answer is, in one line, without the secrets."""
        said = f"{answer.status_code} {answer.reason_phrase}".rstrip()
        reason = veiled(_message(answer), secrets)
        return cls(url, (f"{said}: {reason}" if reason else said) + hint, answer.status_code, reason)

    def __init__(self, url: str, said: str, status: int, reason: str) -> None:
        super().__init__(f"{url} answered {said}")
        self.said, self.status, self.reason = said, status, reason

    @property
    def overflow(self) -> bool:
        """It said so because the conversation does not fit."""
        return self.status in (400, 413, 422, 500) and bool(_OVERFLOW.search(self.reason))

    def room(self, asked: int) -> int:
        """Tokens that fit behind the prompt, where the server told and they are fewer than asked; else 0."""
        context, prompt = _CONTEXT.search(self.reason), _PROMPT.search(self.reason)
        if not (self.overflow and context and prompt):
            return 0
        left = int(context[1]) - int(next(group for group in prompt.groups() if group))
        return left if 0 < left < asked else 0


class Passing(EngineError):
    """There was no answer, but there may be one to the same request later.

    Attributes:
        said: what happened, for people.
        after: seconds that the server asks to wait; None: it did not say.
        lost: the connection failed or fell silent, so that the server itself may be gone.
    """

    def __init__(self, url: str, said: str, after: float | None = None, *, lost: bool = False) -> None:
        super().__init__(f"{url}: {said}")
        self.said, self.after, self.lost = said, after, lost


def _message(answer: httpx.Response) -> str:
    """What the body of a refusal says, in one line."""
    try:
        data = answer.json()
    except ValueError:
        data = answer.text
    for key in ("error", "detail", "message"):
        if isinstance(data, Mapping) and key in data:
            data = data[key]
    if isinstance(data, Mapping):  # an error with a code but without a message
        data = json.dumps(data)
    return safe(" ".join(str(data).split()))[:TOLD]


def seconds_of(header: str | None) -> float | None:
    """What ``Retry-After`` says, in seconds or as a date."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
