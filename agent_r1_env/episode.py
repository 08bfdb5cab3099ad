"""What happened: ``Step``, ``Episode``, and a file of episodes that survives a killed process."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from agent_r1_env.compact import Numbers, Tape
from agent_r1_env.errors import DataError


@dataclass(frozen=True, slots=True)
class Step:
    """One reply of the policy and what the environment made of it.

    Ids and log-probs may be lists, arrays, or `Numbers`, as rollouts and files give them.

    Attributes:
        prompt_ids: The whole prompt as the policy saw it.
        response_ids: Exactly the sampled ids, stop token included; empty when nothing was sampled.
        logprobs: One per sampled id, under the sampling distribution.
        reward: Of this step alone.
        prompt: The environment's own text of the prompt; None when it was not kept.
        reply: The text that was handed to the environment.
        prompt_tokens: Tokens of the prompt, also where no ids are known; None when nobody counted.
        reply_tokens: Tokens of the reply, likewise.
        calls: Name, success, error and seconds of each tool call of the reply.
        generate_seconds: From asking for the reply to having it, waiting in the engine's queue included.
        tool_seconds: Time in the environment's step.
        kept: How many messages of the prompt of the step before this prompt begins with.
        messages: The messages of the prompt behind those; none where the environment tells no messages.
        versions: For each sampled id the number of the weights that it was drawn under; empty: unknown.
        cached_tokens: Ids of the prompt that the engine found in its cache; None: unknown.
    """

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float]
    reward: float = 0.0
    prompt: str | None = None
    reply: str = ""
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    calls: Sequence[Mapping[str, Any]] = ()
    generate_seconds: float = 0.0
    tool_seconds: float = 0.0
    kept: int = 0
    messages: Sequence[Mapping[str, Any]] = ()
    versions: Sequence[int] = ()
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        if len(self.response_ids) != len(self.logprobs):
            sampled, logprobs = len(self.response_ids), len(self.logprobs)
            raise ValueError(f"a step has {sampled} sampled ids but {logprobs} log-probs")


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of the policy through an environment, as plain data.

    Attributes:
        group: Episodes of one group are compared with each other (several tries at one task).
        sample: Which of several tries at one task it is, from 0; only evaluation counts them.
        next_prompt_ids: The prompt that would have come next where the episode was truncated, for a critic
            that tells what it was worth; empty elsewhere, and where no ids are known.
        steps: Empty when the first prompt already overflowed or ``reset`` failed.
        stop_reason: Why it ended: "answer", "max_steps", "length", "prompt_overflow", "error", ...
        truncation_reward: Reward paid when the rollout itself ended the episode, so outside any step.
        outcome_reward: The part of the reward that was paid for the outcome; None where the environment does
            not tell that from what it paid for the steps.
        metrics: Numbers of the environment at the end.
        policy_version: Which weights sampled it; None when nobody counts them.
        temperature: At which the log-probs of the steps were taken.
        error: Type and text of the exception that ended it; None for an episode that ran as it should.
        tools: Schemas of the tools that the policy was shown.
    """

    env_id: str
    task_id: str | None
    seed: int | None
    group: int
    steps: Sequence[Step] = ()
    terminated: bool = False
    truncated: bool = False
    stop_reason: str | None = None
    answer: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    truncation_reward: float = 0.0
    policy_version: int | None = None
    temperature: float | None = None
    error: str | None = None
    sample: int = 0
    outcome_reward: float | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    next_prompt_ids: Sequence[int] = ()

    @property
    def reward(self) -> float:
        """Sum over the whole episode; no reward is lost, however it ended."""
        return math.fsum(float(step.reward) for step in self.steps) + float(self.truncation_reward)

    @property
    def failed(self) -> bool:
        """The environment broke, so the reward says nothing about the policy: learn nothing from it."""
        return self.error is not None

    def to_dict(self, ids: bool = True) -> dict[str, Any]:
        """Plain data for JSON, the summed ``reward`` included; ``ids=False`` leaves out ids and log-probs."""
        data: dict[str, Any] = _plain(dataclasses.asdict(self))
        data["reward"] = _plain(self.reward)
        if not ids or not data["next_prompt_ids"]:
            del data["next_prompt_ids"]
        if not ids:
            for step in data["steps"]:
                for key in ("prompt_ids", "response_ids", "logprobs", "versions"):
                    del step[key]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Episode:
        """The episode that ``to_dict`` wrote; null log-probs become NaN, absent ids empty lists.

        Raises:
            KeyError: ``env_id``, ``task_id``, ``seed`` or ``group`` is missing.
        """
        known = {f.name for f in dataclasses.fields(cls)} - {"steps"}
        tape = Tape()
        steps = tuple(_step(step, tape) for step in data.get("steps", ()))
        tape.pack()
        for name in ("env_id", "task_id", "seed", "group"):
            data[name]
        given = {k: v for k, v in data.items() if k in known} | {"tools": tuple(data.get("tools", ()))}
        return cls(steps=steps, **given)


def _step(data: Mapping[str, Any], tape: Tape) -> Step:
    """A step from plain data."""
    kept = {f.name: data[f.name] for f in dataclasses.fields(Step) if f.name in data}
    ids = tape.ids(data.get("prompt_ids", ()), data.get("response_ids", ()))
    kept["prompt_ids"], kept["response_ids"] = ids
    kept["logprobs"] = tape.logprobs([math.nan if x is None else x for x in data.get("logprobs", ())])
    if kept.get("versions"):
        kept["versions"] = tape.versions(kept["versions"])
    return Step(**kept)


def _plain(value: Any) -> Any:
    """``value`` with NumPy values as Python's and non-finite numbers as None, which JSON has no words for."""
    if isinstance(value, np.ndarray | np.generic | Numbers):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class EpisodeFile:
    """A growing file of episodes, one JSON object a line.

    A line is one write straight to the operating system, so a killed process loses at most the line it was
    writing. Opening an existing file goes on behind its last whole line.
    """

    def __init__(self, path: str | Path, ids: bool = True) -> None:
        """Open ``path``, making its folder; ``ids=False`` keeps it small, without ids and log-probs."""
        self.path = Path(path)
        self.ids = ids
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(self.path)
        self._file: BinaryIO = open(self.path, "ab", buffering=0)  # noqa: SIM115 (closed by ``close``)

    def append(self, episode: Episode) -> None:
        """Write one episode."""
        line = memoryview(json.dumps(episode.to_dict(self.ids), default=str).encode() + b"\n")
        while line:  # a full pipe or disk quota may take a part only
            line = line[self._file.write(line) :]

    def close(self) -> None:
        """Close the file; twice is harmless."""
        self._file.close()

    def __enter__(self) -> EpisodeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _drop_torn_line(path: Path) -> None:
    """Cut off what a killed writer left behind the last newline, so that new lines stay readable."""
    if not path.exists():
        return
    with open(path, "r+b") as file:
        whole = _end_of_last_line(file)
        torn = file.seek(0, 2) - whole
        if torn:
            warnings.warn(f"dropped a torn last line of {torn} bytes from {str(path)!r}", stacklevel=3)
            file.truncate(whole)


def _end_of_last_line(file: BinaryIO, block: int = 1 << 16) -> int:
    """Offset just behind the last newline, read from the end because these files grow large."""
    end = file.seek(0, 2)
    while end:
        start = max(0, end - block)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """Yield the episodes of a file; a torn last line is skipped with a warning.

    Raises:
        DataError: a line before the last is not an episode; the message names the line.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield Episode.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not line.endswith(b"\n"):
                    warnings.warn(f"skipped the torn last line {number} of {str(path)!r}", stacklevel=2)
                    return
                raise DataError(f"not an episode: {error}", file=path, row=number) from error
