"""The environment that a rule of the contract is tried on, and how a rule says what it found."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from agent_r1_env.env import ToolEnv
from agent_r1_env.task import SyntheticDataWarning


class Broken(AssertionError):
    """A rule does not hold."""


class NotApplicable(Exception):
    """An environment has nothing that a rule is about."""


@dataclass
class Subject:
    """The environment in question, to be made as often as a rule needs.

    Attributes:
        env_kwargs: of ``gymnasium.make``.
        seed: of everything that is drawn.
    """

    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    _made: list[Any] = field(default_factory=list)

    def make(self, **more: Any) -> gym.Env[Any, Any]:
        """One more of it, without Gymnasium's own checker; closed at the end of the rule."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntheticDataWarning)
            kwargs = {**copy.deepcopy(dict(self.env_kwargs)), **more}
            env: gym.Env[Any, Any] = gym.make(self.env_id, disable_env_checker=True, **kwargs)
        self.keep(env)
        return env

    def keep(self, env: Any) -> Any:
        """Close ``env`` at the end of the rule, too."""
        self._made.append(env)
        return env

    def tool_env(self, **more: Any) -> ToolEnv:
        """One more of it, without wrappers.

        Raises:
            NotApplicable: it is no ``ToolEnv``.
        """
        env = self.make(**more).unwrapped
        if not isinstance(env, ToolEnv):
            raise NotApplicable(f"{type(env).__name__} is no ToolEnv")
        return env

    def with_tools(self) -> ToolEnv:
        """The same, for rules on tools.

        Raises:
            NotApplicable: it is no ``ToolEnv``, or has no tools.
        """
        env = self.tool_env()
        if not env.toolbox.tools:
            raise NotApplicable("there are no tools")
        return env

    def rng(self) -> np.random.Generator:
        """A generator that draws the same for each rule."""
        return np.random.default_rng(self.seed)

    def close(self) -> None:
        """Close all that were made."""
        while self._made:
            self._made.pop().close()
