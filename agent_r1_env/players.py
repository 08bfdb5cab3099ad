"""The policy's side of an episode: what an environment shows goes in, one reply comes out.

``TokenPlayer`` speaks token ids with an engine, which is what training needs. ``ChatPlayer`` speaks messages
and text, for models behind a URL, and knows no ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent_r1_env.concatenation import Concatenated
from agent_r1_env.engines import Engine, Sampling, TextEngine, TextGeneration
from agent_r1_env.errors import PromptTooLong
from agent_r1_env.formats import Format
from agent_r1_env.messages import FinishReason
from agent_r1_env.structure import Structured
from agent_r1_env.template import Template


@dataclass(frozen=True)
class Sampled:
    """One reply, and what is known of how it was sampled.

    Attributes:
        text: as the environment reads it.
        prompt_ids: the whole prompt; empty, as ``ids`` and ``logprobs``, where the policy shows no ids.
        prompt_tokens: tokens of the prompt; None when nobody counted.
        tokens: tokens of the reply; None when nobody counted.
        versions: for each sampled id the number of the weights that it was drawn under; empty: unknown.
        cached_tokens: ids of the prompt that the engine found in its cache; None: unknown.
    """

    text: str
    finish_reason: FinishReason
    prompt_ids: Sequence[int] = ()
    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    prompt_tokens: int | None = None
    tokens: int | None = None
    versions: Sequence[int] = ()
    cached_tokens: int | None = None


class Player(Protocol):
    """What an episode asks of a policy."""

    @property
    def sampling(self) -> Sampling:
        """How replies are sampled."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Numbers of the episode so far."""

    def prompt_ids(self, observation: Any, info: Mapping[str, Any]) -> Sequence[int]:
        """The ids that ``answer`` would show the policy; empty where no ids are known."""

    async def answer(self, observation: Any, info: Mapping[str, Any], salt: str) -> Sampled:
        """Sample one reply to what ``reset`` or ``step`` returned.

        Args:
            salt: makes the seed of this reply differ from that of every other; ends in "/" and its number in
                the episode.

        Raises:
            PromptTooLong: the prompt leaves no room for a reply.
        """


@dataclass
class TokenPlayer:
    """A template to read with and an engine to answer with, for one episode."""

    engine: Engine
    template: Template
    sampling: Sampling
    max_prompt_tokens: int | None = None
    structured: Structured | None = None
    _asked: Sampling | None = field(default=None, init=False, repr=False)

    @property
    def metrics(self) -> Mapping[str, float]:
        """How its prompts grew, where they grow by ids."""
        return self.template.metrics if isinstance(self.template, Concatenated) else {}

    def prompt_ids(self, observation: Any, info: Mapping[str, Any]) -> Sequence[int]:
        """The whole prompt by the template."""
        return self.template.encode(observation, info)

    async def answer(self, observation: Any, info: Mapping[str, Any], salt: str) -> Sampled:
        """Sample one reply.

        Raises:
            PromptTooLong: the prompt is longer than allowed, or leaves the engine no room.
        """
        prompt_ids = self.prompt_ids(observation, info)
        if self.max_prompt_tokens is not None and len(prompt_ids) > self.max_prompt_tokens:
            raise PromptTooLong(
                f"{len(prompt_ids)} prompt tokens are more than the {self.max_prompt_tokens} allowed"
            )
        sampling = self._sampling(salt)
        if self.structured is not None:
            sampling = replace(sampling, structure=self.structured(info.get("tools") or ()))
        found = await self.engine.generate(prompt_ids, sampling)
        return Sampled(
            self.template.reply_text(found.ids),
            found.finish_reason,
            prompt_ids,
            found.ids,
            found.logprobs,
            len(prompt_ids),
            len(found.ids),
            found.versions,
            found.cached_tokens,
        )

    def _sampling(self, salt: str) -> Sampling:
        """How the reply of that salt is sampled; what its episode has in common is put together once."""
        session = salt.rpartition("/")[0]
        if self._asked is None or self._asked.session != session:
            self._asked = replace(
                self.sampling,
                stop=_union(self.sampling.stop, self.template.stop),
                stop_token_ids=_union(self.sampling.stop_token_ids, self.template.stop_token_ids),
                session=session,
            )
        if self.sampling.seed is None:
            return self._asked
        return replace(self._asked, seed=derived_seed(self.sampling.seed, salt))


@dataclass(frozen=True)
class ChatPlayer:
    """A model that takes messages and gives text.

    Tools, calls and results are written into the turns by the wire format of the environment, so that any
    server of any model serves it and none has to read calls.
    """

    engine: TextEngine
    format: Format
    sampling: Sampling

    @property
    def metrics(self) -> Mapping[str, float]:
        """None."""
        return {}

    def prompt_ids(self, observation: Any, info: Mapping[str, Any]) -> Sequence[int]:
        """Nothing: the server does not show them."""
        return ()

    async def answer(self, observation: Any, info: Mapping[str, Any], salt: str) -> Sampled:
        """Sample one reply.

        Raises:
            PromptTooLong: nothing fits behind the conversation.
        """
        tools = info.get("tools") or []
        messages = info.get("messages") or [{"role": "user", "content": str(observation)}]
        sampling = replace(
            self.sampling,
            seed=derived_seed(self.sampling.seed, salt),
            stop=_union(self.sampling.stop, self.format.stop),
        )
        found = await self.engine.chat(self.format.flatten(messages, tools), sampling)
        return Sampled(
            self._whole(found, sampling.stop, tools),
            found.finish_reason,
            prompt_tokens=found.prompt_tokens,
            tokens=found.tokens,
        )

    def _whole(self, found: TextGeneration, stops: Sequence[str], tools: Sequence[Any]) -> str:
        """The text with the stop that ended it, which servers leave out and few of them name."""
        if found.stopped_by:
            return found.text + found.stopped_by
        for stop in stops if found.finish_reason == "stop" else ():
            parsed = self.format.parse(found.text + stop, tools)
            if parsed.calls and not parsed.errors:
                return found.text + stop
        return found.text


def derived_seed(seed: int | None, salt: str) -> int | None:
    """A seed for one reply or episode: with the same one for all, the tries at a task would all be alike."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.blake2b(f"{seed}/{salt}".encode(), digest_size=4).digest(), "big")


def _union(first: Sequence[Any], second: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys([*first, *second]))
