"""A policy that is a Python function, for tests, baselines and demonstrations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent_r1_env.engines import Generation, Sampling, Tokenizer, room

Said = str | Sequence[int]
Policy = Callable[[str], Said | Awaitable[Said]]


class ScriptedEngine:
    """Answers each prompt with what a function makes of its text.

    Texts are encoded and end with a stop token, as if a model had sampled them: the last of the request's, or
    the tokenizer's end of sequence. Ids are taken as they are, so a test can sample what no tokenizer writes.
    """

    def __init__(
        self, policy: Policy, tokenizer: Tokenizer, max_model_len: int = 1 << 20, logprob: float = -1.0
    ) -> None:
        """Ask ``policy`` (plain or async) for every reply; each sampled id gets the log-prob ``logprob``."""
        self.policy = policy
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        self.logprob = logprob

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """The scripted reply, cut at ``sampling.max_tokens``.

        Raises:
            PromptTooLong: nothing fits behind the prompt.
        """
        limit = room(len(prompt_ids), self.max_model_len, sampling.max_tokens)
        said: Any = self.policy(str(self.tokenizer.decode(list(prompt_ids), skip_special_tokens=False)))
        if inspect.isawaitable(said):
            said = await said
        ids = self._encode(said, sampling) if isinstance(said, str) else list(said)
        kept = ids[:limit]
        return Generation(kept, [self.logprob] * len(kept), "stop" if len(kept) == len(ids) else "length")

    def close(self) -> None:
        """Nothing to give back."""

    def _encode(self, text: str, sampling: Sampling) -> list[int]:
        eos = self.tokenizer.eos_token_id
        ends = sampling.stop_token_ids or (() if eos is None else (int(eos),))
        return [*self.tokenizer.encode(text, add_special_tokens=False), *ends[-1:]]
