"""One episode: an environment and a policy take turns until one of them ends it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeVar

from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import PromptTooLong
from agent_r1_env.hosted import HostedEnv
from agent_r1_env.messages import Reply
from agent_r1_env.players import Player, Sampled

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
    """

    task: int | str | None
    seed: int | None
    group: int = 0
    sample: int = 0
    salt: str | None = None


class _Broken(Exception):
    """The environment raised; carries type and text of what."""


@dataclass
class _Record:
    """What is known of an episode under way."""

    steps: list[Step] = field(default_factory=list)
    task_id: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    truncation_reward: float = 0.0
    next_prompt_ids: Sequence[int] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    shown: Sequence[Mapping[str, Any]] = ()

    def outcome_reward(self) -> float | None:
        said = self.info.get("outcome_reward")
        return float(said) if isinstance(said, Real) else None

    def stop_reason(self) -> str | None:
        said = self.info.get("stop_reason")
        return (
            str(said)
            if said
            else "terminated"
            if self.terminated
            else "truncated"
            if self.truncated
            else None
        )


async def play(env: HostedEnv, request: EpisodeRequest, player: Player, salt: str = "") -> Episode:
    """Run one episode.

    What the environment raises ends the episode with the stop reason "error" and is logged; what the engine
    or the template raises is raised, because no other episode would fare better.
    """
    record = _Record()
    error = None
    try:
        await _turns(env, request, player, record, salt)
    except _Broken as broken:
        error = str(broken)
        _log.warning("an episode of %s ended in an error", env.env_id, exc_info=broken.__cause__)
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
        metrics={k: float(v) for k, v in record.info.get("metrics", {}).items() if isinstance(v, Real)},
        truncation_reward=record.truncation_reward,
        temperature=player.sampling.temperature,
        error=error,
        outcome_reward=record.outcome_reward(),
        tools=tuple(record.tools),
        next_prompt_ids=record.next_prompt_ids,
    )


async def _turns(env: HostedEnv, request: EpisodeRequest, player: Player, record: _Record, salt: str) -> None:
    options = {} if request.task is None else {"task": request.task}
    observation, record.info = await _guarded(env.reset(request.seed, options))
    task_id = record.info.get("task_id", request.task)
    record.task_id = None if task_id is None else str(task_id)
    record.tools = record.info.get("tools") or ()
    while not (record.terminated or record.truncated):
        start = time.perf_counter()
        try:
            sampled = await player.answer(observation, record.info, f"{salt}/{len(record.steps)}")
        except PromptTooLong:
            record.truncated = True
            record.next_prompt_ids = player.prompt_ids(observation, record.info)
            record.truncation_reward, record.info = await _guarded(env.truncate("prompt_overflow"))
            return
        seconds = time.perf_counter() - start
        observation = await _turn(env, record, str(observation), sampled, seconds)
    if record.truncated and not record.terminated:
        record.next_prompt_ids = player.prompt_ids(observation, record.info)


async def _turn(
    env: HostedEnv, record: _Record, prompt: str, sampled: Sampled, generate_seconds: float
) -> Any:
    """Hand one reply to the environment, note what it made of it, and return what it shows next."""
    reply = Reply(sampled.text, sampled.finish_reason, sampled.tokens)
    messages = record.info.get("messages") or ()
    kept = _in_common(record.shown, messages)
    record.shown = messages
    start = time.perf_counter()
    observation, reward, terminated, truncated, info = await _guarded(env.step(reply))
    record.info, record.terminated, record.truncated = info, bool(terminated), bool(truncated)
    step = Step(
        prompt_ids=sampled.prompt_ids,
        response_ids=sampled.ids,
        logprobs=sampled.logprobs,
        reward=float(reward),
        prompt=prompt,
        reply=str(reply),
        finish_reason=sampled.finish_reason,
        prompt_tokens=sampled.prompt_tokens,
        reply_tokens=sampled.tokens,
        reward_terms=dict(info.get("reward_terms", {})),
        calls=tuple(info.get("calls", ())),
        generate_seconds=generate_seconds,
        tool_seconds=time.perf_counter() - start,
        kept=kept,
        messages=tuple(messages[kept:]),
        versions=sampled.versions,
        cached_tokens=sampled.cached_tokens,
    )
    record.steps.append(step)
    return observation


def _in_common(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many messages both begin with."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(after)))


async def _guarded(act: Awaitable[_T]) -> _T:
    """Await something of the environment.

    Raises:
        _Broken: it raised anything but a cancellation.
    """
    try:
        return await act
    except (Exception, SystemExit) as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
