"""One valid call of a tool: how it is begun, and what the model reads of how it ended."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_r1_env import workers
from agent_r1_env.arguments import copied
from agent_r1_env.errors import RateLimited, TimedOut, ToolError
from agent_r1_env.messages import FailureKind, ToolResult
from agent_r1_env.output import Cut, as_text, safe, shortened, veiled
from agent_r1_env.threads import Handed, Outcome, hand, outcome_here
from agent_r1_env.tool import Tool, ToolOutput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a tool returned, as the model will read it; made where the tool ran, and so within its time."""

    text: str
    reward: float = 0.0
    answer: str | None = None
    done: bool = False
    simulated: str | None = None


def _show(value: Any) -> _Shown:
    if isinstance(value, ToolOutput):
        answer = None if value.answer is None else as_text(value.answer)
        if not math.isfinite(worth := float(value.reward)):
            raise ValueError(f"the reward of a call must be finite, got {worth}")
        return _Shown(as_text(value.content), worth, answer, bool(value.done), value.simulated)
    return _Shown(as_text(value))


@dataclass(frozen=True, slots=True)
class Call:
    """A valid call, ready to run."""

    tool: Tool
    id: str
    run: Callable[..., Any]
    arguments: dict[str, Any]
    filled: dict[str, Any]
    tokenizer: Any

    def start(self) -> workers.Started:
        return workers.start(self.run, self._given(), _show)

    def hand(self, then: Callable[[Any], None]) -> workers.Started | Handed:
        """Begin it where it costs least; ``then`` is called when nothing of it runs any more."""
        if not self.tool.awaited:
            return hand(self.run, self._given(), _show, then)
        return workers.start(self.run, self._given(), _show, then)

    def here(self) -> Outcome:
        """Make it on the caller's thread."""
        return outcome_here(self.run, self._given(), _show)

    def _given(self) -> dict[str, Any]:
        # A copy, for what a tool changes in it must change neither the record nor the next attempt.
        return {**copied(self.arguments), **self.filled}

    def hung(self) -> ToolResult | None:
        """A refusal, if too many earlier calls of this tool hang."""
        if (count := workers.hanging(self.run)) < workers.MAX_HANGING:
            return None
        return self.refuse(
            FailureKind.TIMEOUT, f"{self.tool.name} does not answer; {count} earlier calls of it still run"
        )

    def refuse(self, kind: FailureKind, reason: str) -> ToolResult:
        return replace(refused(self.id, self.tool.name, kind, reason), arguments=self.arguments)

    def late(self) -> ToolResult:
        tool = self.tool
        text = f"error: {tool.name} did not finish within {tool.timeout:g} s"
        return self._rewarded(
            ToolResult(
                self.id, tool.name, text, False, FailureKind.TIMEOUT, tool.timeout, 0, self.arguments, 1
            )
        )

    def result(self, outcome: Outcome) -> ToolResult:
        """What one attempt gave."""
        failure = outcome.failure
        if failure is None:
            shown: _Shown = outcome.value
            cut = self._cut(shown.text)
            return self._rewarded(
                ToolResult(
                    *(self.id, self.tool.name, cut.text, True, None, outcome.seconds, cut.characters),
                    *(self.arguments, 1),
                    reward=shown.reward,
                    answer=None if shown.answer is None else self._veiled(shown.answer),
                    done=shown.done,
                    simulated=shown.simulated,
                )
            )
        simulated = failure.simulated if isinstance(failure, ToolError) else None
        if isinstance(failure, TimedOut):
            return replace(self.late(), simulated=simulated)
        if not isinstance(failure, ToolError):
            logger.debug("tool %r raised", self.tool.name, exc_info=failure)
        reason = (
            told(failure) if isinstance(failure, ToolError) else f"{self.tool.name} raised {told(failure)}"
        )
        cut = self._cut(f"error: {reason}")
        kind = FailureKind.RATE_LIMITED if isinstance(failure, RateLimited) else FailureKind.TOOL_ERROR
        return self._rewarded(
            ToolResult(
                *(self.id, self.tool.name, cut.text, False, kind, outcome.seconds, cut.characters),
                *(self.arguments, 1),
                simulated=simulated,
            )
        )

    def _veiled(self, text: str) -> str:
        tool = self.tool
        return veiled(text, (*tool.secrets.values(), *tool.veiled)) if tool.secrets or tool.veiled else text

    def _cut(self, text: str) -> Cut:
        text = self._veiled(text)
        return shortened(text, self.tool.max_result_chars, self.tool.max_result_tokens, self.tokenizer)

    def _rewarded(self, result: ToolResult) -> ToolResult:
        rule = self.tool.reward
        if rule is None:
            return result
        if callable(rule):
            worth = float(rule(result))
        elif isinstance(rule, Mapping):
            worth = float(rule.get(result.error or "ok", 0.0))
        else:
            worth = float(rule) if result.ok else 0.0
        return replace(result, reward=result.reward + worth)


def refused(call_id: str, name: str, kind: FailureKind, reason: str) -> ToolResult:
    """The result of a call that was not run."""
    return ToolResult(call_id, name, f"error: {safe(reason)}", False, kind)


def told(failure: BaseException) -> str:
    """Type and text of what a tool raised; the text alone where the tool wrote it for the model."""
    try:
        text = str(failure)
    except Exception as unprintable:
        text = f"a message that cannot be shown ({type(unprintable).__name__})"
    if isinstance(failure, ToolError):
        return text or "the call failed"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__
