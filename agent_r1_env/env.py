"""``ToolEnv``: a Gymnasium environment that owns a conversation with a model.

One step is one whole reply of the model. The environment reads it, runs its tool calls and decides
the next prompt. Nothing that a model writes raises: it becomes an observation or ends the episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded

from agent_r1_env import context as contexts
from agent_r1_env import formats, prompt, reward, traffic
from agent_r1_env.errors import look_up, missing_extra, unknown_name
from agent_r1_env.messages import (
    INVALID_CALLS,
    CallError,
    FailureKind,
    Message,
    ToolCall,
    ToolResult,
    record_of,
)
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Session, Toolbox

StepResult = tuple[str, float, bool, bool, dict[str, Any]]

LONGEST_REPLY = 1 << 17
"""Characters of one reply. What is longer is cut there and counts as cut by length."""


class StopReason(StrEnum):
    """Why an episode ended. All but the first are truncations."""

    ANSWER = "answer"
    """The model gave its final answer."""
    MAX_STEPS = "max_steps"
    """The allowed number of replies is used up."""
    LENGTH = "length"
    """A reply was cut by its length limit; it counts as no answer."""
    PROMPT_OVERFLOW = "prompt_overflow"
    """The next prompt leaves no room for a reply."""
    TIME = "time"
    """The allowed time is used up."""
    ERROR = "error"
    """Something outside the model's doing failed."""


_EARNED = "tools"
"""The reward term that holds what the tools say their calls are worth."""

_TRUNCATIONS = [reason.value for reason in StopReason if reason is not StopReason.ANSWER]


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one reply asks for.

    Attributes:
        stop: the reason why the episode ends with it.
        unheard: it held an answer beside its calls, which does not count.
    """

    calls: Sequence[ToolCall | CallError] = ()
    stop: StopReason | None = None
    unheard: bool = False


class ToolEnv(gym.Env[str, str]):
    """Questions answered with tools, as text.

    Args:
        tasks: what is asked; ``reset(options={"task": index or id})`` chooses, else the seed does.
        tools: what the model may call. The environment closes them.
        system: the system prompt, without the section on tools, which the format adds.
        format: the wire format: a name, ``{"name": ..., option: value}``, or a ``Format``.
        repair: whether mild mistakes in calls are mended, and counted in ``metrics["repaired_calls"]``.
        answer_tag: a reply with ``<tag>...</tag>`` outside reasoning and calls ends the episode.
        max_steps: replies allowed in one episode, at least 1.
        rewards: weight by term; a term is a name of ``reward.TERMS`` or a function of an ``Outcome``.
        metrics: terms reported in ``info["metrics"]`` at the end, unweighted.
        context: name of the context policy.
        chat_template: Jinja template of the text observation; ChatML by default.
        tokenizer: counts the tokens of results, for tools with ``max_result_tokens``: a folder, a name on
            the Hugging Face Hub, or anything with ``encode``.
        tool_traffic: ``{"record": FILE}`` notes every call and its result, ``{"replay": FILE}`` takes them
            from there and runs no tool.

    Observations are whole prompts, ready for the model; after the end, the finished conversation.
    ``info`` holds ``messages`` and ``tools`` (what the prompt was rendered from), ``task_id``,
    ``calls`` (one record for each call of this step: arguments, result, failure, times, reward),
    ``reward_terms`` (which sum to this step's reward), ``stop_reason`` (None while the episode runs)
    and, once it is over, ``answer`` and ``metrics``. The right answer is in none of them.
    """

    # A turn has no natural pace; Gymnasium asks for a number all the same.
    metadata = {"render_modes": ["ansi", "human"], "render_fps": 1}

    def __init__(
        self,
        tasks: TaskSet,
        tools: Sequence[Tool],
        *,
        system: str = "",
        format: str | Mapping[str, Any] | formats.Format = "hermes",
        repair: bool = False,
        answer_tag: str = "answer",
        max_steps: int = 8,
        rewards: Mapping[str, float] | None = None,
        metrics: Sequence[str] = ("exact_match",),
        terms: Mapping[str, reward.Term] | None = None,
        context: str = "append",
        chat_template: str | None = None,
        tokenizer: Any = None,
        tool_traffic: Mapping[str, str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {max_steps}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self.tasks = tasks
        self.toolbox = Toolbox(
            tools,
            tokenizer=tokenizer_of(tokenizer),
            traffic=traffic.opened(tool_traffic) if tool_traffic else None,
        )
        self._draws = any("rng" in tool.hidden for tool in tools)
        self.format = formats.get(format)
        self.repair = repair
        self.system = system
        self.answer_tag = answer_tag
        self.max_steps = max_steps
        self.render_mode = render_mode
        self._weights = dict({"exact_match": 1.0} if rewards is None else rewards)
        known = {**reward.TERMS, **(terms or {})}
        self._terms = {name: look_up("reward term", name, known) for name in (*self._weights, *metrics)}
        self._metrics = tuple(metrics)
        self._policy = contexts.get(context)
        self._render_prompt = prompt.renderer(chat_template or formats.CHATML)
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()
        self.task: Task | None = None
        self.history: list[Message] = []
        self.steps = 0
        self._running = False
        self._stop_reason: StopReason | None = None

    # -- the Gymnasium contract

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seed of the choice of tasks, as everywhere in Gymnasium.
            options: ``{"task": index or id}`` names the task instead.

        Raises:
            UnknownName: no such option, or no task of that id.
            IndexError: no task of that index.
        """
        super().reset(seed=seed)
        self.task = self._choose(options or {})
        self.history = [Message("system", self.system)] if self.system else []
        self.history.append(Message("user", self.task.question))
        self.steps = self._calls = self._repaired_calls = 0
        self._failures: Counter[FailureKind] = Counter()
        # Drawn only where a tool asks for it, so that the choice of tasks does not depend on the tools.
        seed = int(self.np_random.integers(1 << 62)) if self._draws else 0
        self.toolbox.begin(Session(self.task, seed))
        self.answer: str | None = None
        self._running = True
        return self._view([], {}, None)

    def step(self, action: str) -> StepResult:
        """Take one whole reply of the model.

        Args:
            action: the reply as decoded text; a ``Reply`` also says whether it was cut by length.

        Returns:
            observation: the whole next prompt; the finished conversation once the episode is over.
            reward: of this step alone. The outcome is scored once, in the step that ends the episode.
            terminated: the model gave its final answer.
            truncated: our patience is over; ``info["stop_reason"]`` says which part of it.
            info: see the class.

        Raises:
            ResetNeeded: the episode is over, or never began.
        """
        reading = self._read(action)
        return self._settle(reading, self.toolbox.run(reading.calls))

    async def step_async(self, action: str) -> StepResult:
        """The same as ``step``, without blocking the event loop while tools run."""
        reading = self._read(action)
        return self._settle(reading, await self.toolbox.run_async(reading.calls))

    def truncate(self, reason: str) -> StepResult:
        """End the episode from outside: a prompt too long for the model, or time that is up.

        The outcome is scored as at any other end.

        Raises:
            ResetNeeded: the episode is over, or never began.
            UnknownName: no such reason.
        """
        if reason not in _TRUNCATIONS:
            raise unknown_name("reason to truncate", reason, _TRUNCATIONS)
        self._need_running()
        return self._end(StopReason(reason), [])

    def render(self) -> str | None:
        """The conversation: returned in mode "ansi", printed in mode "human"."""
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called on an environment made without a render mode; "
                "make it with gym.make(..., render_mode='ansi')"
            )
            return None
        text = prompt.ansi(self.history, self._stop_reason)
        if self.render_mode == "ansi":
            return text
        print(text)
        return None

    def close(self) -> None:
        """Let go of the tools. Harmless when called again."""
        self.toolbox.close()

    # -- one step

    def _read(self, action: str) -> _Reading:
        """Take in one reply."""
        self._need_running()
        if not isinstance(action, str):
            raise TypeError(f"an action is the model's reply as str, not {type(action).__name__}")
        cut = getattr(action, "finish_reason", "stop") == "length" or len(action) > LONGEST_REPLY
        reply = prompt.printable(str(action)[:LONGEST_REPLY])
        self.steps += 1
        self.history.append(Message("assistant", reply))
        if cut:
            return _Reading(stop=StopReason.LENGTH)
        parsed = self.format.parse(reply, self.toolbox.schemas, repair=self.repair)
        self._repaired_calls += sum(bool(call.repairs) for call in parsed.calls)
        answer, fault = self._answer(parsed)
        if parsed.attempts:
            return _Reading(parsed.attempts, unheard=answer is not None)
        if answer is not None:
            self.answer = answer
            return _Reading(stop=StopReason.ANSWER)
        self.history.append(Message("user", fault))
        return _Reading()

    def _settle(self, reading: _Reading, results: Sequence[ToolResult]) -> StepResult:
        """Take in the results of the calls and decide what comes next."""
        for position, result in enumerate(results):
            # The format's own words hold tags on purpose: they show the model how a call is written.
            content = (
                result.content
                if result.error == FailureKind.MALFORMED_CALL
                else self.format.neutralise(result.content)
            )
            if reading.unheard and position == len(results) - 1:
                content += (
                    "\n(the answer beside these calls was not taken: read the results, then answer again)"
                )
            self.history.append(Message("tool", content, result.call_id, result.name or None))
        self._calls += len(results)
        self._failures.update(result.error for result in results if result.error is not None)
        records = [record_of(result) for result in results]
        earned = sum(result.reward for result in results)
        stop = reading.stop
        if (given := next((each.answer for each in results if each.answer is not None), None)) is not None:
            self.answer, stop = given, StopReason.ANSWER
        if stop is None and self.steps >= self.max_steps:
            stop = StopReason.MAX_STEPS
        if stop is not None:
            return self._end(stop, records, earned)
        observation, info = self._view(records, {_EARNED: earned} if earned else {}, None)
        return observation, float(earned), False, False, info

    def _end(self, stop: StopReason, records: list[dict[str, Any]], earned: float = 0.0) -> StepResult:
        self._running = False
        self.toolbox.end()
        values = self._score()
        terms = {name: weight * values[name] for name, weight in self._weights.items()}
        if earned:
            terms[_EARNED] = earned
        observation, info = self._view(records, terms, stop)
        info["answer"] = self.answer
        info["metrics"] = {name: values[name] for name in self._metrics} | {
            "tool_calls": self._calls,
            "invalid_calls": self._invalid_calls,
            **{f"calls/{kind}": count for kind, count in self._failures.items()},
            "repaired_calls": self._repaired_calls,
            "steps": self.steps,
        }
        terminated = stop is StopReason.ANSWER
        return observation, float(sum(terms.values())), terminated, not terminated, info

    def _score(self) -> dict[str, float]:
        assert self.task is not None  # an episode is running, so it has a task
        outcome = reward.Outcome(self.answer, self.task, self._calls, self._invalid_calls, self.steps)
        return {name: float(term(outcome)) for name, term in self._terms.items()}

    def _answer(self, parsed: formats.ParsedReply) -> tuple[str | None, str]:
        """The answer in the format's own form, or else in the tag, or None and a hint for the model."""
        if parsed.answer is None:
            return self._find_answer(parsed.content)
        tagged, _ = self._find_answer(parsed.answer)  # a model that was told of both forms writes both
        answer = tagged or parsed.answer.strip()
        return (answer, "") if answer else (None, f"error: the answer is empty; {self._how_to_go_on()}")

    @property
    def _invalid_calls(self) -> int:
        return sum(count for kind, count in self._failures.items() if kind in INVALID_CALLS)

    def _find_answer(self, content: str) -> tuple[str | None, str]:
        """The last answer in the reply, or None and a hint for the model."""
        opening, closing = f"<{self.answer_tag}>", f"</{self.answer_tag}>"
        end = content.rfind(closing)
        start = content.rfind(opening, 0, end) if end >= 0 else -1
        if start >= 0:
            answer = content[start + len(opening) : end].strip()
            if answer:
                return answer, ""
            fault = "error: the answer is empty"
        elif opening in content:
            fault = f"error: the answer is not closed by {closing}"
        elif end >= 0:
            fault = f"error: {closing} stands without its {opening}"
        else:
            fault = "error: the reply holds neither a tool call nor an answer"
        return None, f"{fault}; {self._how_to_go_on()}"

    def _how_to_go_on(self) -> str:
        form = self.format.answer_form or f"<{self.answer_tag}>...</{self.answer_tag}>"
        answer = f"give the final answer as {form}"
        return f"call a tool, or {answer}" if self.toolbox.schemas else answer

    # -- what the model and the developer see

    def _view(
        self, records: list[dict[str, Any]], terms: dict[str, float], stop: StopReason | None
    ) -> tuple[str, dict[str, Any]]:
        """The observation, and the info that goes with it."""
        assert self.task is not None  # reset comes before every view
        self._stop_reason = stop
        messages = [message.as_dict() for message in self._policy(self.history)]
        turns = self.format.flatten(messages, self.toolbox.schemas)
        return self._render_prompt(turns, self._running), {
            "messages": messages,
            "tools": self.toolbox.schemas,
            "task_id": self.task.id,
            "calls": records,
            "reward_terms": terms,
            "stop_reason": str(stop) if stop else None,
            "metrics": {},
        }

    def _choose(self, options: Mapping[str, Any]) -> Task:
        if unknown := set(options) - {"task"}:
            raise unknown_name("reset option", sorted(unknown)[0], ["task"])
        chosen = options.get("task")
        if chosen is None:
            return self.tasks[int(self.np_random.integers(len(self.tasks)))]
        if isinstance(chosen, str):
            return self.tasks.by_id(chosen)
        if not 0 <= chosen < len(self.tasks):
            raise IndexError(f"task {chosen} asked for, but {self.tasks.name} has {len(self.tasks)}, from 0")
        return self.tasks[int(chosen)]

    def _need_running(self) -> None:
        if not self._running:
            state = "is over" if self.task else "has not begun"
            raise ResetNeeded(f"the episode {state}; call reset() before step()")


def tokenizer_of(given: Any) -> Any:
    """The tokenizer that a name stands for; anything else is one already."""
    if not isinstance(given, str):
        return given
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra("transformers", "train") from error
    return AutoTokenizer.from_pretrained(given)
