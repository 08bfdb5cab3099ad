"""``ToolEnv``: a Gymnasium environment that owns a conversation with a model.

One step is one whole reply of the model. The environment reads it, runs its tool calls and decides
the next prompt. Nothing that a model writes raises: it becomes an observation or ends the episode.
"""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from agent_r1_env import context as contexts
from agent_r1_env import formats, prompt, reward, traffic
from agent_r1_env.answering import AnswerTag
from agent_r1_env.arguments import copied
from agent_r1_env.errors import StateError, unknown_name
from agent_r1_env.intake import Intake, Reading
from agent_r1_env.messages import Message, ToolResult
from agent_r1_env.observing import Observer, tokenizer_of
from agent_r1_env.responding import Respond, Responder
from agent_r1_env.scorecard import Scorecard, Weight
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.state import EnvState, EpisodeState
from agent_r1_env.stopping import TRUNCATIONS, Budget, StopReason
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import MAX_CALLS, Session, Toolbox
from agent_r1_env.turns import whole

StepResult = tuple[Any, float, bool, bool, dict[str, Any]]


class ToolEnv(gym.Env[Any, str]):
    """Tasks done with tools, or without any, as text.

    Args:
        tasks: what is asked; ``reset(options={"task": index or id})`` chooses, else the seed does.
        tools: what the model may call. The environment closes them.
        system: the system prompt, without the section on tools, which the format adds.
        opening: makes the first user message of a task; by default it is the task's question.
        format: the wire format: a name, ``{"name": ..., option: value}``, or a ``Format``.
        repair: whether mild mistakes in calls are mended, and counted in ``metrics["repaired_calls"]``.
        answer_tag: a reply with ``<tag>...</tag>`` outside reasoning and calls ends the episode; with "" any
            reply without a call does, and is the answer.
        respond: answers every reply without a call, in place of the answer tag; see `responding.Respond`.
        max_steps: replies allowed in one episode, at least 1.
        max_calls: tool calls allowed; those beyond are refused, and the model may still answer.
        max_calls_per_step: calls of one reply that are run; 1 makes every call a step of its own.
        max_tokens: tokens that the replies together may have. Needs a tokenizer, or a ``Reply`` with its
            number of tokens, as rollouts give.
        max_seconds: since ``reset``, looked at after each reply.
        rewards: weight by term; a term is a name of ``reward.TERMS`` or of ``terms``, and one with options
            has ``{"weight": w, option: value}``. ``tools``, ``tools/NAME`` and ``respond`` weigh what these
            say that a reply earned.
        metrics: terms reported in ``info["metrics"]`` at the end, unweighted.
        terms: functions of an ``Outcome`` or, marked ``reward.per_step``, of a ``Turn``, by name.
        context: how the next prompt is built from the history: a policy of `agent_r1_env.context` by
            name, ``{name: options}``, a function, or a list of these.
        observation: "text": the rendered prompt; "messages": chat messages; "tokens": ids by the chat
            template of ``tokenizer``.
        chat_template: Jinja template of the text observation; ChatML by default.
        tokenizer: counts tokens and makes observations of them: a folder, a name on the Hugging Face Hub, or
            anything with ``encode``.
        tool_traffic: ``{"record": FILE}`` notes every call and its result, ``{"replay": FILE}`` takes them
            from there and runs no tool.

    Observations are whole prompts, ready for the model; after the end, the finished conversation.
    ``info`` holds ``messages`` and ``tools`` (what the prompt was rendered from), ``task_id``,
    ``calls`` (one record for each call of this step: arguments, result, failure, times, reward),
    ``reward_terms`` (which sum to this step's reward), ``stop_reason`` (None while the episode runs)
    and, once it is over, ``answer``, ``metrics`` and ``outcome_reward`` (the part of its reward that outcome
    terms paid). The right answer is in none of them.
    """

    # A turn has no natural pace; Gymnasium asks for a number all the same.
    metadata = {"render_modes": ["ansi", "human"], "render_fps": 1}
    _spec: EnvSpec | None = None
    _unmade: int | None = None
    _made: np.random.Generator | None = None

    def __init__(
        self,
        tasks: TaskSet,
        tools: Sequence[Tool] = (),
        *,
        system: str = "",
        opening: Callable[[Task], str] | None = None,
        format: str | Mapping[str, Any] | formats.Format = "hermes",
        repair: bool = False,
        answer_tag: str = "answer",
        respond: Respond | None = None,
        max_steps: int = 8,
        max_calls: int | None = None,
        max_calls_per_step: int = MAX_CALLS,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        rewards: Mapping[str, Weight] | None = None,
        metrics: Sequence[str] = ("exact_match",),
        terms: Mapping[str, Callable[..., Any]] | None = None,
        context: Any = "append",
        observation: str = "text",
        chat_template: str | None = None,
        tokenizer: Any = None,
        tool_traffic: Mapping[str, str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.budget = Budget(max_steps, max_calls, max_tokens, max_seconds)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self.tasks = tasks
        self.tokenizer = tokenizer_of(tokenizer)
        self.format = formats.get(format)
        self.system = system
        self.answer_tag = answer_tag
        self.max_steps = max_steps
        self.render_mode = render_mode
        self._opening = opening
        self._intake = Intake(
            self.format,
            repair,
            AnswerTag(answer_tag, self.format),
            None if respond is None else Responder.of(respond),
            self.tokenizer,
        )
        rewards = {"exact_match": 1.0} if rewards is None else rewards
        self._scorecard = Scorecard(rewards, metrics, terms, [tool.name for tool in tools])
        self.context = contexts.resolve(context)
        if self.context.needs_tokenizer and self.tokenizer is None:
            raise ValueError(
                f"the context policy {self.context.name!r} counts tokens; "
                "give the environment a tokenizer: tokenizer=FOLDER or NAME"
            )
        self.context.prepare()
        self._observe = Observer(observation, self.format, chat_template, self.tokenizer)
        self.observation_space = self._observe.space
        self.action_space = UnicodeText()
        self.toolbox = Toolbox(
            tools,
            max_calls=whole("max_calls_per_step", max_calls_per_step),
            tokenizer=self.tokenizer,
            traffic=traffic.opened(tool_traffic) if tool_traffic else None,
        )
        self.episode: EpisodeState | None = None
        self._running = False
        self._began = 0.0
        self._changed = False

    # -- the Gymnasium contract

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seed of the choice of tasks, as everywhere in Gymnasium.
            options: ``{"task": index or id}`` names the task instead.

        Raises:
            UnknownName: no such option, or no task of that id.
            IndexError: no task of that index.
        """
        self._seed(seed)
        task = self._choose(options or {})
        history = [Message("system", self.system)] if self.system else []
        history.append(Message("user", self._opening(task) if self._opening else task.question))
        # Drawn only where somebody asks for it, so that the choice of tasks does not depend on the tools.
        seed = int(self.np_random.integers(1 << 62)) if self._draws else 0
        self.episode = EpisodeState(task, Session(task, seed), history)
        self.toolbox.begin(self.episode.session)
        self._running = True
        self._began = time.monotonic()
        return self._view(self.episode, [], {})

    def step(self, action: str) -> StepResult:
        """Take one whole reply of the model.

        Args:
            action: the reply as decoded text; a ``Reply`` also says whether it was cut by length, and how
                many tokens it has.

        Returns:
            observation: the whole next prompt; the finished conversation once the episode is over.
            reward: of this step alone. The outcome is scored once, in the step that ends the episode.
            terminated: the task is over: the model gave its final answer, or a tool or ``respond`` said so.
            truncated: our patience is over; ``info["stop_reason"]`` says which part of it.
            info: see the class.

        Raises:
            ResetNeeded: the episode is over, or never began.
        """
        episode = self._under_way()
        reading = self._read(episode, action)
        return self._settle(episode, reading, self.toolbox.run(reading.calls, self._calls_left(episode)))

    async def reset_async(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The same as ``reset``, without blocking the event loop where tasks are read or a context thinks."""
        if self._blocking:
            return await asyncio.to_thread(self.reset, seed=seed, options=options)
        return self.reset(seed=seed, options=options)

    async def step_async(self, action: str) -> StepResult:
        """The same as ``step``, without blocking the event loop while tools run."""
        episode = self._under_way()
        reading = self._read(episode, action)
        results = await self.toolbox.run_async(reading.calls, self._calls_left(episode))
        if self.context.blocking:
            return await asyncio.to_thread(self._settle, episode, reading, results)
        return self._settle(episode, reading, results)

    def truncate(self, reason: str) -> StepResult:
        """End the episode from outside: a prompt too long for the model, or time that is up.

        The outcome is scored as at any other end.

        Raises:
            ResetNeeded: the episode is over, or never began.
            UnknownName: no such reason.
        """
        if reason not in TRUNCATIONS:
            raise unknown_name("reason to truncate", reason, TRUNCATIONS)
        return self._end(self._under_way(), StopReason(reason), [], {})

    async def truncate_async(self, reason: str) -> StepResult:
        """The same as ``truncate``, without blocking the event loop where a context thinks."""
        return await asyncio.to_thread(self.truncate, reason) if self._blocking else self.truncate(reason)

    def render(self) -> str | None:
        """The conversation: returned in mode "ansi", printed in mode "human"."""
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called on an environment made without a render mode; "
                "make it with gym.make(..., render_mode='ansi')"
            )
            return None
        text = prompt.ansi(self.history, self.episode.stop if self.episode else None)
        if self.render_mode == "ansi":
            return text
        print(text)
        return None

    def close(self) -> None:
        """Let go of the tools. Harmless when called again."""
        self.toolbox.close()

    @property
    def spec(self) -> EnvSpec | None:
        """What ``gymnasium.make`` made it from; arguments that the caller changed since are as they were."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        # Gymnasium keeps the caller's own lists and mappings in it.
        self._spec = None if spec is None else replace(spec, kwargs=copied(spec.kwargs))

    # -- where the episode stands

    @property
    def task(self) -> Task | None:
        """The task of the episode; None before the first ``reset``."""
        return self.episode.task if self.episode else None

    @property
    def history(self) -> list[Message]:
        """The whole conversation, whatever of it the model is shown."""
        return self.episode.history if self.episode else []

    @property
    def steps(self) -> int:
        """Replies of the episode so far."""
        return self.episode.steps if self.episode else 0

    @property
    def answer(self) -> str | None:
        """The final answer; None as long as there is none."""
        return self.episode.answer if self.episode else None

    def render_answer(self, answer: object) -> str:
        """A reply that gives a final answer in the form that is looked for."""
        return self._intake.answer.render(str(answer))

    def get_state(self) -> EnvState:
        """Where the episode stands, to go on from there later or elsewhere, as often as one likes.

        Equal futures follow equal states: the generator that chooses tasks, what the tools keep and draw, and
        the memory of the context are part of it. Not part of it are a recording that is replayed and what
        tools change outside this process. It can be pickled where what the tools keep can.

        Raises:
            StateError: a tool keeps something that cannot be copied.
        """
        episode = None if self.episode is None else self.episode.copied()
        if episode is not None:
            episode.seconds = time.monotonic() - self._began
        random = None if self._np_random is None else self.np_random.bit_generator.state
        return EnvState(episode, random, self.toolbox.get_state() if self._running else {})

    def set_state(self, state: EnvState) -> None:
        """Go on from a state that this environment, or one that was made like it, was in."""
        self.episode = None if state.episode is None else state.episode.copied()
        self._running = self.episode is not None and self.episode.stop is None
        if state.random is not None:
            self.np_random = np.random.default_rng()
            self.np_random.bit_generator.state = dict(state.random)
        if self.episode is not None:
            self._began = time.monotonic() - self.episode.seconds
            self.toolbox.set_state(self.episode.session, state.tools)

    def clone(self) -> ToolEnv:
        """An environment of its own that stands where this one does. Both share tasks and tools, which are
        closed with the last of them.

        Raises:
            StateError: a tool keeps something that cannot be copied.
        """
        state = self.get_state()
        twin = object.__new__(type(self))  # copy.copy would pickle
        twin.__dict__.update(self.__dict__)
        twin._np_random = None
        twin.observation_space = copy.deepcopy(self.observation_space)
        twin.action_space = copy.deepcopy(self.action_space)
        twin._observe = self._observe.another()
        twin.toolbox = self.toolbox.shared()
        twin.set_state(state)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolEnv:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.spec is None or self._changed:
            raise StateError(
                "only an environment of gymnasium.make with its own tools can be pickled; pickle "
                "get_state() instead and set_state() it in one that was made alike"
            )
        return _remade, (self.spec, self.get_state())

    def replace_tools(self, tools: Sequence[Tool]) -> None:
        """Give the model other tools; for wrappers. Before ``reset``, or between two episodes.

        The environment owns them from now on, and closes those of its tools that are not among them: a tool
        goes on as long as one of the new ones has its ``close``.

        Raises:
            ValueError: two of them have one name, or the tools are shared with a clone.
        """
        self.toolbox = self.toolbox.replaced(tools)
        self._running, self._changed = False, True

    # -- one step

    def _read(self, episode: EpisodeState, action: str) -> Reading:
        reading = self._intake.read(episode, action, self.toolbox.schemas)
        if reading.tokens is None and self.budget.tokens is not None:
            raise ValueError(
                "max_tokens needs the tokens of each reply: give the environment a tokenizer, or step with "
                "Reply(text, tokens=number)"
            )
        return reading

    def _settle(self, episode: EpisodeState, reading: Reading, results: Sequence[ToolResult]) -> StepResult:
        """Take in the results of the calls, pay for the reply, and decide what comes next."""
        self._intake.hear(episode, reading, results)
        seconds = time.monotonic() - self._began
        stop = reading.stop or self.budget.spent(episode.steps, episode.tokens, seconds)
        terms = self._scorecard.of_step(
            lambda: reward.Turn(
                episode.task,
                reading.reply,
                reading.tokens,
                reading.records,
                stop is StopReason.LENGTH,
                reading.unreadable,
            ),
            reading.earned,
            episode.sums,
        )
        if stop is not None:
            return self._end(episode, stop, reading.records, terms)
        observation, info = self._view(episode, reading.records, terms)
        return observation, math.fsum(terms.values()), False, False, info

    def _calls_left(self, episode: EpisodeState) -> int | None:
        return None if self.budget.calls is None else max(0, self.budget.calls - len(episode.records))

    def _end(
        self,
        episode: EpisodeState,
        stop: StopReason,
        records: list[dict[str, Any]],
        terms: Mapping[str, float],
    ) -> StepResult:
        self._running = False
        episode.stop = stop
        self.toolbox.end()
        at_the_end, metrics = self._scorecard.of_outcome(episode.outcome(), episode.sums)
        paid = {**at_the_end, **terms}
        observation, info = self._view(episode, records, paid)
        info["answer"] = episode.answer
        info["metrics"] = metrics | episode.counts()
        info["outcome_reward"] = math.fsum(at_the_end.values())
        return observation, math.fsum(paid.values()), stop.terminates, not stop.terminates, info

    # -- what the model and the developer see

    def _view(
        self, episode: EpisodeState, records: list[dict[str, Any]], terms: dict[str, float]
    ) -> tuple[Any, dict[str, Any]]:
        """The observation, and the info that goes with it."""
        moment = contexts.Moment(
            step=episode.steps,
            steps_left=self.max_steps - episode.steps,
            format=self.format,
            count=self._intake.length if self.tokenizer is not None else None,
            memory=episode.memory,
        )
        shown = list(self.context(episode.history, moment))
        messages = [message.as_dict() for message in shown]
        return self._observe(shown, messages, self.toolbox.schemas, self._running), {
            "messages": messages,
            "tools": self.toolbox.schemas,
            "task_id": episode.task.id,
            "calls": records,
            "reward_terms": terms,
            "stop_reason": str(episode.stop) if episode.stop else None,
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

    def _seed(self, seed: int | None) -> None:
        """What ``reset`` of Gymnasium does, but the generator is made where it is first asked for: an episode
        whose task is named mostly draws nothing."""
        if type(seed) is int and seed >= 0:
            self._unmade, self._np_random_seed = seed, seed
        else:
            super().reset(seed=seed)

    @property
    def _np_random(self) -> np.random.Generator | None:
        if self._unmade is not None:
            self._np_random, _ = seeding.np_random(self._unmade)
        return self._made

    @_np_random.setter
    def _np_random(self, made: np.random.Generator | None) -> None:
        self._unmade, self._made = None, made

    @property
    def _draws(self) -> bool:
        """Whether somebody asks for random numbers in an episode."""
        respond = self._intake.respond
        own = respond is not None and "rng" in respond.hidden
        return own or any("rng" in tool.hidden for tool in self.toolbox.tools.values())

    @property
    def _blocking(self) -> bool:
        """Whether an episode may take its time to begin: tasks come from a file, or the context blocks."""
        return self.context.blocking or type(self.tasks) is not TaskSet

    def _under_way(self) -> EpisodeState:
        if self.episode is None or not self._running:
            state = "is over" if self.episode else "has not begun"
            raise ResetNeeded(f"the episode {state}; call reset() before step()")
        return self.episode


def _remade(spec: Any, state: EnvState) -> ToolEnv:
    """The environment that was pickled."""
    made = gym.make(spec, disable_env_checker=True).unwrapped
    if not isinstance(made, ToolEnv):
        raise StateError(f"{spec.id} makes a {type(made).__name__}, not a ToolEnv")
    made.set_state(state)
    return made
