"""A policy that is a Python function, for tests, baselines and demonstrations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent_r1_env.engines import Generation, Sampling, Tokenizer, only_free, room
from agent_r1_env.messages import FinishReason

Said = str | Sequence[int]
Policy = Callable[[str], Said | Awaitable[Said]]


class ScriptedEngine:
    """Answers each prompt with what a function makes of its text.

    Texts are encoded and end with a stop token, as if a model had sampled them: the last of the request's, or
    the tokenizer's end of sequence. Ids are taken as they are, so a test can sample what no tokenizer writes.

    Attributes:
        version: The number of the policy of now; all ids of a reply are of the version it was begun under.
            None: nobody counts.
    """

    def __init__(
        self, policy: Policy, tokenizer: Tokenizer, max_model_len: int = 1 << 20, logprob: float = -1.0
    ) -> None:
        """Ask ``policy`` (plain or async) for every reply; each sampled id gets the log-prob ``logprob``."""
        self.policy = policy
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        self.logprob = logprob
        self.version: int | None = None
        self._holds = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """The scripted reply, cut at ``sampling.max_tokens``.

        Raises:
            PromptTooLong: nothing fits behind the prompt.
            EngineError: a grammar is asked for.
        """
        limit = room(len(prompt_ids), self.max_model_len, sampling.max_tokens)
        only_free(sampling, "a script")
        await self._go_on()
        version = self.version
        said: Any = self.policy(str(self.tokenizer.decode(list(prompt_ids), skip_special_tokens=False)))
        if inspect.isawaitable(said):
            said = await said
        ids = self._encode(said, sampling) if isinstance(said, str) else list(said)
        await self._go_on()
        kept = ids[:limit]
        versions = () if version is None else [version] * len(kept)
        reason: FinishReason = "stop" if len(kept) == len(ids) else "length"
        return Generation(kept, [self.logprob] * len(kept), reason, versions)

    @contextmanager
    def updating(self, version: int | None) -> Iterator[None]:
        """Answer nobody meanwhile, and give the policy this number after it."""
        self._holds += 1
        try:
            yield
            self.version = version
        finally:
            self._holds -= 1

    def close(self) -> None:
        """Nothing to give back."""

    async def _go_on(self) -> None:
        while self._holds:
            await asyncio.sleep(_PAUSE)

    def _encode(self, text: str, sampling: Sampling) -> list[int]:
        eos = self.tokenizer.eos_token_id
        ends = sampling.stop_token_ids or (() if eos is None else (int(eos),))
        return [*self.tokenizer.encode(text, add_special_tokens=False), *ends[-1:]]


_PAUSE = 0.001
"""Seconds between two looks whether the policy is held still."""
