"""Many episodes at once over one engine.

Each episode is a coroutine: while one waits for its tools, others generate, and nothing moves in lock-step.
The environments are known through ``reset`` and ``step`` alone.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from agent_r1_env import auto, formats
from agent_r1_env.concatenation import Concatenated, Growing
from agent_r1_env.engines import Engine, Sampling, TextEngine
from agent_r1_env.episode import Episode
from agent_r1_env.errors import FormatWarning
from agent_r1_env.foreign import ForeignCalls
from agent_r1_env.hosted import HostedEnv, close_all, close_all_async
from agent_r1_env.play import EpisodeRequest, play
from agent_r1_env.players import ChatPlayer, Player, TokenPlayer
from agent_r1_env.representation import check
from agent_r1_env.template import Template, template_for

__all__ = ["EpisodeRequest", "Rollout"]

_T = TypeVar("_T")
_EARLY = 32  # replies after which a run that reads no call is not waited for to its end


class Rollout:
    """Runs episodes of one environment with one engine.

    Environments are made when first needed, at most ``concurrency``, and reused by ``reset`` until ``close``.
    An environment whose ``reset`` or ``step`` raises gives an episode with the stop reason "error" and is
    replaced. An error of ``gym.make``, the engine or ``on_episode`` ends the whole rollout. Replies that show
    the marks of another wire format give a ``FormatWarning``, once.
    """

    def __init__(
        self,
        env_id: str,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        engine: Engine | TextEngine,
        template: Template | None = None,
        sampling: Sampling | None = None,
        concurrency: int = 64,
        max_prompt_tokens: int | None = None,
        on_episode: Callable[[Episode], Any] | None = None,
        representation: str = "steps",
    ) -> None:
        """Set up a rollout; nothing is made yet.

        Args:
            env_kwargs: Of ``gymnasium.make``; ``format="auto"`` is the format that the chat template of the
                engine's tokenizer speaks.
            engine: With a ``TextEngine`` episodes hold no token ids.
            template: None is the chat template of the engine's tokenizer with the environment's wire format,
                or plain text where the tokenizer has no chat template.
            sampling: Its stop ids and texts are added to those of the template. With a seed every reply is
                drawn from a seed of its own, made of it, the policy version and the places of the episode and
                the step; without one the engine draws.
            max_prompt_tokens: A longer prompt ends its episode with "prompt_overflow", as does one that
                leaves the engine no room.
            on_episode: Called with each episode when it ends, in order of completion, on the event loop.
            representation: "tokens" builds each prompt of the ids of the one before, see `representation`;
                how often that was not possible is in the metrics of the episode.

        Raises:
            UnknownName: no such representation.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        self.env_id = env_id
        if isinstance(engine, TextEngine):
            self.env_kwargs = dict(env_kwargs or {})
        else:
            self.env_kwargs = auto.resolve(env_kwargs, engine.tokenizer)
        self.engine = engine
        self.template = template
        self.sampling = sampling or Sampling()
        self.concurrency = concurrency
        self.max_prompt_tokens = max_prompt_tokens
        self.on_episode = on_episode
        self.representation = check(representation)
        self._idle: list[HostedEnv] = []
        self._foreign: ForeignCalls | None = None
        self._warned = False

    def run(self, requests: Sequence[EpisodeRequest], policy_version: int | None = None) -> list[Episode]:
        """``run_async`` for plain code; works too where an event loop runs already, as in a notebook."""
        return _run(self.run_async(requests, policy_version))

    async def run_async(
        self, requests: Sequence[EpisodeRequest], policy_version: int | None = None
    ) -> list[Episode]:
        """Run an episode for each request and return them in the order of the requests.

        When it raises or is cancelled, all its environments are closed and none of its tasks is left.
        """
        batch = _Batch(enumerate(requests), {}, policy_version, asyncio.Lock())
        count = min(self.concurrency, len(requests))
        tasks = [asyncio.create_task(self._work(batch)) for _ in range(count)]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await close_all_async(self._idle)
            raise
        self._warn()
        return [batch.episodes[place] for place in range(len(requests))]

    def close(self) -> None:
        """Close the environments that wait for the next run; twice is harmless."""
        close_all(self._idle)

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _work(self, batch: _Batch) -> None:
        """Run one episode after the other in one environment, until no request is left."""
        env: HostedEnv | None = None
        try:
            for place, request in batch.requests:
                env = env or await self._environment(batch.making)
                salt = request.salt or f"{batch.policy_version}/{place}"
                player = self._player(env)
                episode = await play(env, request, player, salt)
                grown = getattr(player, "template", None)
                metrics = grown.metrics if isinstance(grown, Concatenated) else {}
                episode = replace(
                    episode, policy_version=batch.policy_version, metrics={**episode.metrics, **metrics}
                )
                if episode.failed:
                    broken, env = [env], None
                    await close_all_async(broken)
                batch.episodes[place] = episode
                self._watch(episode)
                if self.on_episode is not None:
                    self.on_episode(episode)
        finally:
            if env is not None:
                self._idle.append(env)

    async def _environment(self, making: asyncio.Lock) -> HostedEnv:
        """An idle environment or a new one; one is made at a time, so that they share what they load."""
        async with making:
            if self._idle:
                return self._idle.pop()
            env = HostedEnv(self.env_id, self.env_kwargs)
            try:
                await env.make()
            except BaseException:
                await close_all_async([env])
                raise
            return env

    def _player(self, env: HostedEnv) -> Player:
        format = getattr(env.env.unwrapped, "format", None)
        if self._foreign is None and isinstance(format, formats.Format):
            self._foreign = ForeignCalls(format)
        if isinstance(self.engine, TextEngine):
            return ChatPlayer(self.engine, format or formats.get("hermes"), self.sampling)
        if self.template is None:
            self.template = template_for(self.engine.tokenizer, format or formats.get("hermes"))
        template = self.template
        if self.representation == "tokens":
            template = Concatenated(cast(Growing, template))  # checked there
        return TokenPlayer(self.engine, template, self.sampling, self.max_prompt_tokens)

    def _watch(self, episode: Episode) -> None:
        """Look out for calls in another form than the environment reads."""
        if self._foreign is not None and not self._warned:
            self._foreign.add(episode)
            if self._foreign.replies >= _EARLY:
                self._warn()

    def _warn(self) -> None:
        message = self._foreign.message() if self._foreign is not None and not self._warned else None
        if message is not None:
            self._warned = True
            warnings.warn(message, FormatWarning, stacklevel=2)


@dataclass(frozen=True)
class _Batch:
    """What the workers of one run share."""

    requests: Iterator[tuple[int, EpisodeRequest]]
    episodes: dict[int, Episode]
    policy_version: int | None
    making: asyncio.Lock


def _run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, on a loop in another thread where this one has a loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _run_aside(coroutine)


def _run_aside(coroutine: Coroutine[Any, Any, _T]) -> _T:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    answer: Future[_T] = Future()

    async def main() -> _T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await coroutine

    def target() -> None:
        try:
            answer.set_result(asyncio.run(main()))
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=target, name="rollout")
    thread.start()
    try:
        return answer.result()
    except KeyboardInterrupt:
        loop, task = started.result()
        if task is not None and not answer.done():
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
