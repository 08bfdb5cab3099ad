"""One tool as a Gymnasium environment: an action is the arguments of a call, an observation its result."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded

from agent_r1_env import prompt
from agent_r1_env.errors import StateError, unknown_name
from agent_r1_env.formats.jsontext import json_fault, read_json
from agent_r1_env.messages import CallError, CallFault, Message, ToolCall, ToolResult, record_of
from agent_r1_env.observing import tokenizer_of
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.tool import Tool
from agent_r1_env.toolbox import Session, Toolbox

# What differs between two runs that are alike in everything; ``SingleToolEnv.result`` holds it.
_BY_CHANCE = ("seconds", "queued", "cached")
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class SingleToolEnv(gym.Env[str, str]):
    """Calls one tool, once or several times an episode.

    An action is a JSON object of arguments; where the tool has one argument and it is a string, any text
    that is no such object is taken for it. What cannot be read, or does not fit, is told in the observation
    and counts as a call. ``reset`` shows what the tool is and takes; ``reward`` is what the tool says that
    the call is worth.

    Args:
        tool: owned by the environment, which closes it.
        max_calls: calls in one episode, at least 1.
        task: what tools that ask for the task are given.
        tokenizer: counts the tokens of results, for a tool with ``max_result_tokens``; see ``ToolEnv``.

    Attributes:
        result: what the last call gave, with its times; they are not in ``info``, so that equal calls give
            equal infos.
    """

    metadata = {"render_modes": ["ansi", "human"], "render_fps": 1}

    def __init__(
        self,
        tool: Tool,
        *,
        max_calls: int = 1,
        task: Any = None,
        tokenizer: Any = None,
        render_mode: str | None = None,
    ) -> None:
        if max_calls < 1:
            raise ValueError(f"max_calls must be at least 1, not {max_calls}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self.tool = tool
        self.toolbox = Toolbox([tool], tokenizer=tokenizer_of(tokenizer))
        self.max_calls = max_calls
        self.task = task
        self.render_mode = render_mode
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()
        self.history: list[Message] = []
        self.result: ToolResult | None = None
        self._plain = _only_string(tool.parameters)
        self._left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            options: there are none.

        Raises:
            UnknownName: one was given all the same.
        """
        super().reset(seed=seed)
        if options:
            raise unknown_name("reset option", sorted(options)[0], [])
        self.toolbox.begin(Session(self.task, int(self.np_random.integers(1 << 62))))
        self._left = self.max_calls
        self.history = [Message("system", self._manual())]
        return self.history[0].content, self._info([], None)

    def step(self, action: str) -> StepResult:
        """Call the tool.

        Returns:
            observation: the result, or what was wrong with the call.
            reward: what the tool says that the call is worth.
            terminated: the calls are used up, or the tool took an answer.
            truncated: never.
            info: ``calls`` (the record of this call), ``tools``, ``answer`` and ``stop_reason``.

        Raises:
            ResetNeeded: the episode is over, or never began.
        """
        if self._left < 1:
            raise ResetNeeded("the episode is over or has not begun; call reset() before step()")
        if not isinstance(action, str):
            raise TypeError(f"an action is the arguments as JSON text, not {type(action).__name__}")
        self._left -= 1
        (result,) = self.toolbox.run([self._call(prompt.printable(str(action)))])
        self.result = result
        self.history += [Message("user", str(action)), Message("tool", result.content)]
        if result.answer is not None:
            self._left = 0
        stop = None if self._left else "answer" if result.answer is not None else "max_calls"
        if stop:
            self.toolbox.end()
        record = {key: value for key, value in record_of(result).items() if key not in _BY_CHANCE}
        info = self._info([record], stop) | ({"answer": result.answer} if stop else {})
        return result.content, float(result.reward), stop is not None, False, info

    def render(self) -> str | None:
        """The calls and results so far: returned in mode "ansi", printed in mode "human"."""
        text = prompt.ansi(self.history, None)
        if self.render_mode == "human":
            print(text)
            return None
        return text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Let go of the tool. Harmless when called again."""
        self.toolbox.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.spec is None:
            raise StateError(
                "only a tool environment of gymnasium.make can be pickled or copied; make another one"
            )
        session = self.toolbox.session
        episode = {
            "_np_random": self._np_random,
            "_np_random_seed": self._np_random_seed,
            "_left": self._left,
            "history": self.history,
            "result": self.result,
        }
        kept = replace(session, state=deepcopy(session.state)), self.toolbox.get_state()
        return _remade, (self.spec, episode, kept)

    def _call(self, action: str) -> ToolCall | CallError:
        at = len(action) - len(action.lstrip())
        try:
            value, end = read_json(action, at)
            whole = isinstance(value, dict) and not action[end:].strip()
            optional = self._plain not in self.tool.parameters.get("required", ())
            if whole and (self._plain is None or self._plain in value or (optional and not value)):
                return ToolCall(self.tool.name, value, "call_0")
            fault = f"the arguments must be one JSON object, not {action[:60].strip()!r}"
        except ValueError as error:
            fault = f"the arguments are not valid JSON: {json_fault(error, at)}"
        if self._plain is not None:
            return ToolCall(self.tool.name, {self._plain: action}, "call_0")
        hint = f"write an object with {', '.join(map(repr, self.tool.parameters.get('properties', {})))}"
        return CallError(CallFault.SYNTAX, fault, hint, action, "call_0", 0, len(action))

    def _manual(self) -> str:
        schema = json.dumps(self.tool.parameters, ensure_ascii=False)
        plain = f"\nThe text of {self._plain!r} alone will do." if self._plain is not None else ""
        return f"{self.tool.name}: {self.tool.description}\nArguments, as a JSON object: {schema}{plain}"

    def _info(self, calls: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
        return {"tools": self.toolbox.schemas, "calls": calls, "stop_reason": stop}


def _only_string(parameters: dict[str, Any]) -> str | None:
    """The name of the argument, where there is one and it is a string."""
    properties = parameters.get("properties", {})
    if len(properties) != 1:
        return None
    name, schema = next(iter(properties.items()))
    return str(name) if isinstance(schema, dict) and schema.get("type") == "string" else None


def _remade(spec: Any, episode: dict[str, Any], kept: tuple[Session, Any]) -> gym.Env[Any, Any]:
    """The environment that was pickled, where its episode stood."""
    made = gym.make(spec, disable_env_checker=True).unwrapped
    if not isinstance(made, SingleToolEnv):
        raise StateError(f"{spec.id} makes a {type(made).__name__}, not a SingleToolEnv")
    vars(made).update(episode)
    made.toolbox.set_state(*kept)
    return made
