"""One episode: an environment and a policy take turns until one of them ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeVar

from agent_r1_env import hosted
from agent_r1_env.compact import Tape
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import PromptTooLong
from agent_r1_env.hosted import HostedEnv
from agent_r1_env.messages import Reply
from agent_r1_env.players import Player, Sampled
from agent_r1_env.stopping import StopReason

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class EpisodeRequest:
    """One episode to run.

    Attributes:
        task: Passed to ``reset`` as ``options={"task": task}``; None lets the environment choose by its seed.
        seed: Of the environment's ``reset``.
        group: Label of the episodes that are compared with each other.
        sample: Which of several tries at one task it is, from 0.
        salt: Makes its replies differ from those of all other episodes; None: its place in the run does.
        sampling: Fields of `engines.Sampling` in place of those of the run, such as the temperature.
    """

    task: int | str | None
    seed: int | None
    group: int = 0
    sample: int = 0
    salt: str | None = None
    sampling: Mapping[str, Any] | None = None


class _Broken(Exception):
    """The environment raised; carries type and text of what."""


@dataclass
class _Asked:
    """A reply that the environment has not answered yet."""

    prompt: str
    sampled: Sampled
    kept: int
    messages: Sequence[Mapping[str, Any]]
    generate_seconds: float
    began: float

    def step(self, reward: float, info: Mapping[str, Any], tape: Tape) -> Step:
        sampled = self.sampled
        prompt_ids, response_ids = tape.ids(sampled.prompt_ids, sampled.ids)
        return Step(
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            logprobs=tape.logprobs(sampled.logprobs),
            reward=reward,
            prompt=self.prompt,
            reply=sampled.text,
            finish_reason=sampled.finish_reason,
            prompt_tokens=sampled.prompt_tokens,
            reply_tokens=sampled.tokens,
            reward_terms=dict(info.get("reward_terms", {})),
            calls=tuple(info.get("calls", ())),
            generate_seconds=self.generate_seconds,
            tool_seconds=time.perf_counter() - self.began,
            kept=self.kept,
            messages=tuple(self.messages[self.kept :]),
            versions=tape.versions(sampled.versions) if sampled.versions else (),
            cached_tokens=sampled.cached_tokens,
        )


@dataclass
class _Record:
    """What is known of an episode under way.

    Attributes:
        shown: the messages of the prompt that was answered last.
        asked: the reply that the environment works on.
        observation: what the environment shows now; None before the first and while it works.
        tape: holds the ids of the steps.
    """

    steps: list[Step] = field(default_factory=list)
    task_id: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    truncation_reward: float = 0.0
    next_prompt_ids: Sequence[int] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    shown: Sequence[Mapping[str, Any]] = ()
    asked: _Asked | None = None
    observation: Any = None
    tape: Tape = field(default_factory=Tape)

    def answered(self, reward: float, info: Mapping[str, Any]) -> None:
        """Note a step of the reply that the environment worked on, if there is one."""
        if self.asked is not None:
            self.steps.append(self.asked.step(reward, info, self.tape))
            self.asked = None

    def outcome_reward(self) -> float | None:
        said = self.info.get("outcome_reward")
        return float(said) if isinstance(said, Real) else None

    def stop_reason(self) -> str | None:
        said = self.info.get("stop_reason")
        if said:
            return str(said)
        return "terminated" if self.terminated else "truncated" if self.truncated else None


async def play(
    env: HostedEnv,
    request: EpisodeRequest,
    player: Player,
    salt: str = "",
    policy_version: int | None = None,
    deadline: float | None = None,
) -> Episode:
    """Run one episode.

    What the environment raises ends the episode with the stop reason "error" and is logged; what the engine
    or the template raises is raised, because no other episode would fare better.

    Args:
        salt: makes the seeds of its replies differ from those of other episodes.
        deadline: by the clock of the event loop. What is not over then is truncated with the reason
            "time_limit"; a reply that the environment has not answered yet becomes a step without reward.
    """
    record = _Record()
    error = None
    try:
        if deadline is None:
            await _turns(env, request, player, record, salt)
        else:
            await _turns_until(deadline, env, request, player, record, salt)
    except _Broken as broken:
        error = str(broken)
        _log.warning("an episode of %s ended in an error", env.env_id, exc_info=broken.__cause__)
    metrics = {k: float(v) for k, v in record.info.get("metrics", {}).items() if _is_number(v)}
    next_prompt_ids = record.tape.ids(record.next_prompt_ids, ())[0] if record.next_prompt_ids else ()
    record.tape.pack()
    return Episode(
        env_id=env.env_id,
        task_id=record.task_id,
        seed=request.seed,
        group=request.group,
        sample=request.sample,
        steps=tuple(record.steps),
        terminated=record.terminated,
        truncated=record.truncated or error is not None,
        stop_reason=record.stop_reason() if error is None else "error",
        answer=record.info.get("answer"),
        metrics={**metrics, **player.metrics},
        truncation_reward=record.truncation_reward,
        policy_version=policy_version,
        temperature=player.sampling.temperature,
        error=error,
        outcome_reward=record.outcome_reward(),
        tools=tuple(record.tools),
        next_prompt_ids=next_prompt_ids,
    )


def unplayed(env_id: str, request: EpisodeRequest, policy_version: int | None = None) -> Episode:
    """The episode of a request whose turn did not come before the time was up."""
    return Episode(
        env_id=env_id,
        task_id=None if request.task is None else str(request.task),
        seed=request.seed,
        group=request.group,
        sample=request.sample,
        truncated=True,
        stop_reason=StopReason.TIME_LIMIT.value,
        policy_version=policy_version,
    )


async def _turns_until(
    deadline: float, env: HostedEnv, request: EpisodeRequest, player: Player, record: _Record, salt: str
) -> None:
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            await _turns(env, request, player, record, salt)
    except TimeoutError:
        if not limit.expired():  # of the engine
            raise
        await _cut(env, player, record)


async def _cut(env: HostedEnv, player: Player, record: _Record) -> None:
    """End an episode whose time is up, whatever it was about to do."""
    if record.terminated or record.truncated:
        return
    record.truncated = True
    begun = record.asked is not None or record.observation is not None
    if record.observation is not None:
        record.next_prompt_ids = player.prompt_ids(record.observation, record.info)
    record.answered(0.0, {})
    reason = StopReason.TIME_LIMIT.value
    record.info = {"stop_reason": reason}
    if begun:
        try:
            said = await asyncio.wait_for(_guarded(env.truncate(reason)), hosted.GRACE)
            record.truncation_reward, record.info = said
        except TimeoutError:
            _log.warning("an environment %r did not end its episode in time", env.env_id)
        except _Broken as broken:
            _log.warning("an environment %r could not be truncated: %s", env.env_id, broken)


async def _turns(env: HostedEnv, request: EpisodeRequest, player: Player, record: _Record, salt: str) -> None:
    options = {} if request.task is None else {"task": request.task}
    record.observation, record.info = await _guarded(env.reset(request.seed, options))
    task_id = record.info.get("task_id", request.task)
    record.task_id = None if task_id is None else str(task_id)
    record.tools = record.info.get("tools") or ()
    while not (record.terminated or record.truncated):
        start = time.perf_counter()
        try:
            sampled = await player.answer(record.observation, record.info, f"{salt}/{len(record.steps)}")
        except PromptTooLong:
            record.next_prompt_ids = player.prompt_ids(record.observation, record.info)
            said = await _guarded(env.truncate(StopReason.PROMPT_OVERFLOW.value))
            record.truncated = True
            record.truncation_reward, record.info = said
            return
        await _turn(env, record, sampled, time.perf_counter() - start)
    if record.truncated and not record.terminated:
        record.next_prompt_ids = player.prompt_ids(record.observation, record.info)


async def _turn(env: HostedEnv, record: _Record, sampled: Sampled, generate_seconds: float) -> None:
    """Hand one reply to the environment and note what it made of it."""
    messages = record.info.get("messages") or ()
    kept = _in_common(record.shown, messages)
    record.shown = messages
    prompt, began = str(record.observation), time.perf_counter()
    record.asked = _Asked(prompt, sampled, kept, messages, generate_seconds, began)
    record.observation = None
    reply = Reply(sampled.text, sampled.finish_reason, sampled.tokens)
    observation, reward, terminated, truncated, info = await _guarded(env.step(reply))
    record.observation, record.info = observation, info
    record.terminated, record.truncated = bool(terminated), bool(truncated)
    record.answered(float(reward), info)


def _is_number(value: object) -> bool:
    return type(value) is float or isinstance(value, Real)  # the first is quick, and mostly so


def _in_common(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many messages both begin with."""
    for place, (a, b) in enumerate(zip(before, after, strict=False)):
        if a is not b and a != b:
            return place
    return min(len(before), len(after))


async def _guarded(act: Awaitable[_T]) -> _T:
    """Await something of the environment.

    Raises:
        _Broken: it raised anything, a cancellation too if nobody asked for that.
    """
    try:
        return await act
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _Broken(f"CancelledError: {error}") from error
    except (Exception, SystemExit) as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
