"""Takes a reply into an episode, and then what its calls gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_r1_env import formats, prompt
from agent_r1_env.answering import AnswerTag
from agent_r1_env.messages import CallError, FailureKind, Message, ToolCall, ToolResult, record_of
from agent_r1_env.responding import Responder
from agent_r1_env.scorecard import RESPOND, TOOLS
from agent_r1_env.state import EpisodeState
from agent_r1_env.stopping import StopReason

LONGEST_REPLY = 1 << 17
"""Characters of one reply. What is longer is cut there and counts as cut by length."""

_UNHEARD = "\n(the answer beside these calls was not taken: read the results, then answer again)"


@dataclass
class Reading:
    """What one reply asks for, and what it has earned so far.

    Attributes:
        tokens: None where nobody counted them.
        stop: the reason why the episode ends with it.
        unheard: it held an answer beside its calls, which does not count.
        unreadable: it held neither a call nor an answer.
        earned: by the names that ``Scorecard`` knows.
        records: of its calls, once they have run.
    """

    reply: str
    tokens: int | None
    calls: Sequence[ToolCall | CallError] = ()
    stop: StopReason | None = None
    unheard: bool = False
    unreadable: bool = False
    earned: dict[str, float] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Intake:
    """How an environment reads.

    Attributes:
        repair: mild mistakes in calls are mended and counted.
        respond: answers replies without a call, in place of looking for an answer in them.
        tokenizer: counts the tokens of replies whose sampler does not say; None: they are not counted.
    """

    format: formats.Format
    repair: bool
    answer: AnswerTag
    respond: Responder | None = None
    tokenizer: Any = None

    def read(self, episode: EpisodeState, action: str, tools: Sequence[dict[str, Any]]) -> Reading:
        """Take in one reply: everything about it but the results of its calls."""
        if not isinstance(action, str):
            raise TypeError(f"an action is the model's reply as str, not {type(action).__name__}")
        cut = getattr(action, "finish_reason", "stop") == "length" or len(action) > LONGEST_REPLY
        reply = prompt.printable(str(action)[:LONGEST_REPLY])
        tokens = self._count(action, reply)
        reading = Reading(reply, tokens)
        episode.tokens = None if tokens is None or episode.tokens is None else episode.tokens + tokens
        episode.steps += 1
        episode.history.append(Message("assistant", reply))
        if cut:
            reading.stop = StopReason.LENGTH
            return reading
        parsed = self.format.parse(reply, tools, repair=self.repair)
        episode.repaired_calls += sum(bool(call.repairs) for call in parsed.calls)
        reading.calls = parsed.attempts
        if self.respond is None:
            self._look_for_answer(episode, reading, parsed, bool(tools))
        elif not parsed.attempts:
            self._answer_it(episode, reading, self.respond, parsed.content)
        return reading

    def hear(self, episode: EpisodeState, reading: Reading, results: Sequence[ToolResult]) -> None:
        """Take in what the calls gave."""
        for result in results:
            # The format's own words hold tags on purpose: they show the model how a call is written.
            own = result.error == FailureKind.MALFORMED_CALL
            content = result.content if own else self.format.neutralise(result.content)
            if reading.unheard and result is results[-1]:
                content += _UNHEARD
            episode.history.append(Message("tool", content, result.call_id, result.name or None))
            if result.error is not None:
                episode.failures[result.error] += 1
            if result.reward:
                earned = f"{TOOLS}/{result.name}"
                reading.earned[earned] = reading.earned.get(earned, 0.0) + result.reward
        reading.records = [record_of(result) for result in results]
        episode.records += reading.records
        if reading.stop is None:
            given = next((each.answer for each in results if each.answer is not None), None)
            if given is not None:
                episode.answer, reading.stop = given, StopReason.ANSWER
            elif any(each.done for each in results):
                reading.stop = StopReason.DONE

    def length(self, text: str) -> int:
        """The number of tokens in a text, where there is a tokenizer."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def _look_for_answer(
        self, episode: EpisodeState, reading: Reading, parsed: formats.ParsedReply, tools: bool
    ) -> None:
        answer, fault = self.answer.find(parsed)
        if parsed.attempts:
            reading.unheard = answer is not None
        elif answer is not None:
            episode.answer, reading.stop = answer, StopReason.ANSWER
        else:
            how = self.answer.how_to_go_on(tools)
            episode.history.append(Message("user", f"error: {fault}; {how}"))
            episode.unreadable += 1
            reading.unreadable = True

    def _answer_it(self, episode: EpisodeState, reading: Reading, respond: Responder, content: str) -> None:
        """Let the environment make its own move."""
        output = respond(content, episode.session)
        episode.history.append(Message("user", self.format.neutralise(output.content)))
        if output.reward:
            reading.earned[RESPOND] = output.reward
        if output.answer is not None:
            episode.answer, reading.stop = output.answer, StopReason.ANSWER
        elif output.done:
            reading.stop = StopReason.DONE

    def _count(self, action: str, reply: str) -> int | None:
        """The tokens of a reply, as the sampler or the tokenizer counts them."""
        tokens: int | None = getattr(action, "tokens", None)
        return self.length(reply) if tokens is None and self.tokenizer is not None else tokens
