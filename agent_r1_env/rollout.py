"""Many episodes at once over one engine.

Each episode is a coroutine: while one waits for its tools, others generate, and nothing moves in lock-step.
The environments are known through ``reset`` and ``step`` alone.
"""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from agent_r1_env import auto, formats, looping, structure
from agent_r1_env.concatenation import Concatenated, Growing
from agent_r1_env.engines import Engine, Sampling, TextEngine, only_free
from agent_r1_env.episode import Episode
from agent_r1_env.errors import FormatWarning
from agent_r1_env.foreign import ForeignCalls
from agent_r1_env.hosted import HostedEnv, close_all, close_all_async, make_more
from agent_r1_env.lanes import Lanes
from agent_r1_env.play import EpisodeRequest, play, unplayed
from agent_r1_env.players import ChatPlayer, Player, TokenPlayer
from agent_r1_env.representation import check
from agent_r1_env.schedule import Schedule
from agent_r1_env.template import Template, template_for

__all__ = ["EpisodeRequest", "Rollout"]

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
        time_limit: float | None = None,
        enough: int | None = None,
        structured: bool = False,
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
            time_limit: Seconds of a whole run. What is not over then is truncated with the reason
                "time_limit" and handed out all the same, without steps where it had not begun. Environments
                are given `hosted.GRACE` seconds to end.
            enough: As soon as that many episodes of a group have ended without an error and in time, its
                others are cancelled and left out: a batch does not wait for its slowest. It favours short
                episodes, so what is learnt of the rest is biased.
            structured: Hold the model to valid calls once it begins one, see `structure`.

        Raises:
            UnknownName: no such representation.
            EngineError: ``structured`` with an engine of text.
            ValueError: a number is out of its range.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        if time_limit is not None and not (math.isfinite(time_limit) and time_limit > 0):
            raise ValueError(f"time_limit must be a finite number of seconds above 0, got {time_limit!r}")
        if enough is not None and enough < 1:
            raise ValueError(f"enough must be at least 1 episode of each group, got {enough}")
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
        self.time_limit = time_limit
        self.enough = enough
        self.structured = structured
        self._of_text = isinstance(engine, TextEngine)  # which takes its time
        if structured and self._of_text:
            only_free(Sampling(structure="asked for"), "a server of text")
        self._idle: list[HostedEnv] = []
        self._wanted = 0  # episodes that wait for an environment
        self._lanes = Lanes(f"env-{env_id}")
        self._foreign: ForeignCalls | None = None
        self._structured: structure.Structured | None = None
        self._warned = False

    def run(self, requests: Iterable[EpisodeRequest], policy_version: int | None = None) -> list[Episode]:
        """``run_async`` for plain code; works too where an event loop runs already, as in a notebook."""
        return looping.run(self.run_async(requests, policy_version), "rollout")

    async def run_async(
        self, requests: Iterable[EpisodeRequest], policy_version: int | None = None
    ) -> list[Episode]:
        """Run an episode for each request and return them in the order of the requests.

        When it raises or is cancelled, all its environments are closed and none of its tasks is left.
        """
        async with aclosing(self._ended(requests, policy_version)) as ended:
            episodes = {place: episode async for place, episode in ended}
        return [episodes[place] for place in sorted(episodes)]

    async def stream(
        self, requests: Iterable[EpisodeRequest], policy_version: int | None = None
    ) -> AsyncGenerator[Episode, None]:
        """Run an episode for each request and yield each when it ends.

        Requests are taken as there is room for them, so there may be any number, or no end of them. Whoever
        takes the episodes slowly holds them up: at most twice ``concurrency`` run or wait to be taken.

        Leaving the iteration, however it happens, cancels what runs and closes all environments. After a
        ``break`` the event loop does that when it next can; with ``async with contextlib.aclosing(...)`` it
        is done when the block is left.
        """
        async with aclosing(self._ended(requests, policy_version)) as ended:
            async for _, episode in ended:
                yield episode

    def close(self) -> None:
        """Close the environments that wait for the next run; twice is harmless."""
        close_all(self._idle, self._lanes)
        self._lanes.end()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _ended(
        self, requests: Iterable[EpisodeRequest], policy_version: int | None
    ) -> AsyncGenerator[tuple[int, Episode], None]:
        """The episodes as they end, each with the number of its request."""
        limit = None if self.time_limit is None else asyncio.get_running_loop().time() + self.time_limit
        making = asyncio.Lock()

        def begin(place: int, request: EpisodeRequest) -> Coroutine[Any, Any, Episode]:
            return self._play(place, request, policy_version, making, limit)

        schedule = Schedule(requests, begin, self._report, self.concurrency, self.enough)
        try:
            async with aclosing(schedule.episodes()) as episodes:
                async for each in episodes:
                    yield each
        except BaseException:
            await close_all_async(self._idle, self._lanes)
            self._lanes.end()
            raise
        self._warn()

    async def _play(
        self,
        place: int,
        request: EpisodeRequest,
        version: int | None,
        making: asyncio.Lock,
        deadline: float | None,
    ) -> Episode:
        """One episode, in an environment that is idle afterwards, or closed if it cannot be used again."""
        env = await self._environment(making, deadline)
        if env is None:
            return unplayed(self.env_id, request, version)
        sound = False
        try:
            salt = request.salt or f"{version}/{place}"
            episode = await play(env, request, self._player(env, request), salt, version, deadline)
            sound = not episode.failed
        except asyncio.CancelledError:
            sound = True
            raise
        finally:
            if sound and env.settled:
                self._idle.append(env)
            else:
                await close_all_async([env], self._lanes)
        return episode

    async def _environment(self, making: asyncio.Lock, deadline: float | None) -> HostedEnv | None:
        """An idle environment or a new one; None if the time was up before. One is made at a time, so that
        they share what they load."""
        if self._idle:
            return None if _past(deadline) else self._idle.pop()
        self._wanted += 1
        try:
            async with making:
                if _past(deadline):
                    return None
                if self._idle:
                    return self._idle.pop()
                env = HostedEnv(self.env_id, self.env_kwargs, self._lanes)
                try:
                    await env.make()
                    if self._wanted > 1 and not env.has_thread:
                        self._idle += await make_more(env, self._wanted - 1)
                except BaseException:
                    await close_all_async([env], self._lanes)
                    raise
                return env
        finally:
            self._wanted -= 1

    def _player(self, env: HostedEnv, request: EpisodeRequest) -> Player:
        sampling = replace(self.sampling, **request.sampling) if request.sampling else self.sampling
        format = getattr(env.env.unwrapped, "format", None)
        if self._foreign is None and isinstance(format, formats.Format):
            self._foreign = ForeignCalls(format)
        if self._of_text:
            return ChatPlayer(cast(TextEngine, self.engine), format or formats.get("hermes"), sampling)
        engine = cast(Engine, self.engine)
        if self.template is None:
            self.template = template_for(engine.tokenizer, format or formats.get("hermes"))
        template = self.template
        if self.representation == "tokens":
            template = Concatenated(cast(Growing, template))  # checked there
        structured = None
        if self.structured:
            self._structured = self._structured or structure.structured(format or formats.get("hermes"))
            structured = self._structured
        return TokenPlayer(engine, template, sampling, self.max_prompt_tokens, structured)

    def _report(self, episode: Episode) -> None:
        """Look out for calls in another form than the environment reads, and tell whoever asked for it."""
        if self._foreign is not None and not self._warned:
            self._foreign.add(episode)
            if self._foreign.replies >= _EARLY:
                self._warn()
        if self.on_episode is not None:
            self.on_episode(episode)

    def _warn(self) -> None:
        message = self._foreign.message() if self._foreign is not None and not self._warned else None
        if message is not None:
            self._warned = True
            warnings.warn(message, FormatWarning, stacklevel=2)


def _past(deadline: float | None) -> bool:
    return deadline is not None and asyncio.get_running_loop().time() >= deadline
