"""Where an environment stands: one episode under way, and what it takes to go on from there elsewhere."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent_r1_env.messages import INVALID_CALLS, FailureKind, Message
from agent_r1_env.reward import Outcome
from agent_r1_env.stopping import StopReason
from agent_r1_env.task import Task
from agent_r1_env.toolbox import Session


@dataclass
class EpisodeState:
    """One episode, from ``reset`` to its end and beyond.

    Attributes:
        session: what the tools share, their hidden ``state`` included.
        history: the whole conversation, whatever of it the model is shown.
        records: of all calls, in order.
        tokens: of the replies so far; None as soon as one was not counted.
        sums: of the step terms so far, unweighted.
        memory: what the context policies keep.
        seconds: that had passed when the state was taken.
    """

    task: Task
    session: Session
    history: list[Message]
    records: list[dict[str, Any]] = field(default_factory=list)
    failures: Counter[FailureKind] = field(default_factory=Counter)
    steps: int = 0
    tokens: int | None = 0
    repaired_calls: int = 0
    unreadable: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    answer: str | None = None
    stop: StopReason | None = None
    seconds: float = 0.0

    @property
    def invalid_calls(self) -> int:
        """Calls that could not be run."""
        return sum(count for kind, count in self.failures.items() if kind in INVALID_CALLS)

    def outcome(self) -> Outcome:
        """How it ended, for the terms that judge the whole."""
        return Outcome(
            answer=self.answer,
            task=self.task,
            calls=len(self.records),
            invalid_calls=self.invalid_calls,
            steps=self.steps,
            stop=self.stop,
            tokens=self.tokens,
            unreadable=self.unreadable,
            failures=self.failures,
            records=self.records,
            state=self.session.state,
        )

    def counts(self) -> dict[str, float]:
        """What every environment counts, for the metrics."""
        return {
            "tool_calls": len(self.records),
            "invalid_calls": self.invalid_calls,
            **{f"calls/{kind}": count for kind, count in self.failures.items()},
            **{f"simulated/{kind}": count for kind, count in self._simulated().items()},
            "repaired_calls": self.repaired_calls,
            "steps": self.steps,
        }

    def _simulated(self) -> Counter[str]:
        return Counter(record["simulated"] for record in self.records if record["simulated"] is not None)

    def copied(self) -> EpisodeState:
        """A copy that shares nothing that changes: the messages and records are final, all else is copied."""
        return replace(
            self,
            session=replace(self.session, state=copy.deepcopy(self.session.state)),
            history=list(self.history),
            records=list(self.records),
            failures=Counter(self.failures),
            sums=dict(self.sums),
            memory=copy.deepcopy(self.memory),
        )


@dataclass(frozen=True)
class EnvState:
    """What ``ToolEnv.get_state`` gives: plain data as far as the tools keep plain data.

    Attributes:
        episode: None before the first ``reset``.
        random: the state of the generator that chooses tasks; None before it was used.
        tools: what the tools keep for this episode, by name; see ``Toolbox.get_state``.
    """

    episode: EpisodeState | None
    random: Mapping[str, Any] | None
    tools: Mapping[str, Any]
