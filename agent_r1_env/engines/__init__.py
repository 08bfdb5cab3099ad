"""Generation back ends behind one small seam: token ids in, sampled token ids and their log-probs out.

One back end a file: ``vllm`` (in process), ``hf`` (a transformers model), ``scripted`` (a Python function,
for tests and baselines) and ``openai``, a model behind a URL, which takes messages and gives text. None of
them is imported here, so this module costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agent_r1_env.errors import PromptTooLong, Unsupported
from agent_r1_env.messages import FinishReason


@dataclass(frozen=True)
class Sampling:
    """How one reply is sampled.

    Attributes:
        max_tokens: Upper bound on the sampled ids; a reply that reaches it has finish reason "length".
        temperature: 0 is greedy.
        top_k: 0 keeps the whole vocabulary.
        seed: Fixes the draw of this one request; None leaves it to the engine.
        stop: A reply ends with the first of these texts, which is kept.
        stop_token_ids: A reply ends with the first of these ids, which is kept (and trained on). The
            tokenizer's own end of sequence always stops.
        session: Requests of one session, such as an episode, begin alike; an engine of several servers sends
            them to the same one, whose cache knows that beginning.
        structure: A grammar that the reply keeps to, see `agent_r1_env.structure`; "" is none.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    session: str = ""
    structure: str = ""

    def __post_init__(self) -> None:
        warm = math.isfinite(self.temperature) and self.temperature >= 0
        checks = {
            "max_tokens": (self.max_tokens >= 1, "at least 1"),
            "temperature": (warm, "a finite number >= 0"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "top_k": (self.top_k >= 0, "at least 0 (0: no limit)"),
        }
        for name, (good, wanted) in checks.items():
            if not good:
                raise ValueError(f"sampling {name} must be {wanted}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Generation:
    """One sampled reply.

    Attributes:
        ids: Exactly the sampled ids, the stop token included when one was sampled.
        logprobs: Of each sampled id under the distribution it was drawn from, so after temperature, top-k and
            top-p; a trainer has to divide its logits by the same temperature.
        finish_reason: "length" when the token budget or the model's context ended the reply.
        versions: For each sampled id the number of the weights that it was drawn under: several where they
            were changed meanwhile. Empty where the engine does not count them.
        cached_tokens: Ids of the prompt that were not computed again, as the engine found their prefix in its
            cache; None where it does not tell.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    versions: Sequence[int] = ()
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise ValueError(f"a generation has {len(self.ids)} ids but {len(self.logprobs)} log-probs")
        if self.versions and len(self.versions) != len(self.ids):
            raise ValueError(f"a generation has {len(self.ids)} ids but {len(self.versions)} versions")


@dataclass(frozen=True)
class TextGeneration:
    """One sampled reply of a model that shows no token ids.

    Attributes:
        finish_reason: "length" when the token budget or the model's context ended the reply.
        prompt_tokens: of the prompt, as the model counted; None when it did not say.
        tokens: of the reply, as the model counted; None when it did not say.
        stopped_by: the stop text that ended the reply, where the model said so; not in ``text``.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int | None = None
    tokens: int | None = None
    stopped_by: str = ""


class Tokenizer(Protocol):
    """What is asked of a tokenizer; every transformers tokenizer has it."""

    @property
    def eos_token_id(self) -> Any:
        """Id of the end of sequence, or None."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> Any:
        """Ids of ``text``."""

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = ...) -> Any:
        """Text of the ids."""


class Engine(Protocol):
    """A policy that samples.

    Any number of ``generate`` calls may wait at once; an engine batches them as it likes. Cancelling the
    awaiting task drops the request.
    """

    tokenizer: Tokenizer
    max_model_len: int

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one reply.

        Raises:
            PromptTooLong: nothing fits behind the prompt.
        """

    def close(self) -> None:
        """Give back what the engine itself made; twice is harmless."""


@runtime_checkable
class Updatable(Protocol):
    """An engine whose weights may change while requests wait."""

    version: int | None
    """The number of the weights of now; None: nobody counts."""

    def updating(self, version: int | None) -> AbstractContextManager[None]:
        """Hold the engine still while its weights are changed, then give them this number.

        Requests under way wait, and go on with the new weights where they were.
        """


@runtime_checkable
class TextEngine(Protocol):
    """A policy that samples text and shows no token ids: good for evaluation, not for training.

    Any number of ``chat`` calls may wait at once. Cancelling the awaiting task drops the request.
    """

    async def chat(self, messages: Sequence[Mapping[str, Any]], sampling: Sampling) -> TextGeneration:
        """Sample one reply to a conversation of system, user and assistant turns.

        ``sampling.stop_token_ids`` mean nothing here.

        Raises:
            PromptTooLong: nothing fits behind the conversation.
        """

    def close(self) -> None:
        """Give back what the engine itself made; twice is harmless."""


def only_free(sampling: Sampling, engine: str) -> None:
    """Make sure that no grammar is asked for, in an engine that samples under none.

    Raises:
        Unsupported: one is.
    """
    if sampling.structure:
        raise Unsupported(
            "structured calls need an engine that can sample under a grammar, which is vLLM (VLLMEngine, or "
            f"a server that takes token ids), not {engine}; leave `structured` out"
        )


def room(prompt_length: int, max_model_len: int, max_tokens: int) -> int:
    """Number of tokens that may follow a prompt: ``max_tokens``, or what the context still holds.

    Raises:
        PromptTooLong: not one token fits.
    """
    left = max_model_len - prompt_length
    if left < 1:
        raise PromptTooLong(f"{prompt_length} prompt tokens leave no room in a context of {max_model_len}")
    return min(left, max_tokens)
