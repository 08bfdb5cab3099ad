"""Many episodes at once of a scripted policy, which looks at the environment itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_r1_env.engines import Sampling, TextGeneration
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import AgentR1Error
from agent_r1_env.hosted import HostedEnv
from agent_r1_env.players import Player, Sampled, derived_seed
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.scripted_play import Policy


class NoEngine:
    """What a rollout has where its episodes are answered otherwise."""

    async def chat(self, messages: Sequence[Mapping[str, Any]], sampling: Sampling) -> TextGeneration:
        """Nothing asks it."""
        raise AgentR1Error("this rollout has no engine")

    def close(self) -> None:
        """Nothing to give back."""


@dataclass
class PolicyPlayer:
    """A scripted policy in one episode; its random numbers depend on the seed and the episode's salt."""

    policy: Policy
    env: ToolEnv
    sampling: Sampling
    rng: np.random.Generator | None = field(default=None, init=False)

    @property
    def metrics(self) -> Mapping[str, float]:
        """None of its own."""
        return {}

    def prompt_ids(self, observation: Any, info: Mapping[str, Any]) -> Sequence[int]:
        """None: it reads no prompt."""
        return ()

    async def answer(self, observation: Any, info: Mapping[str, Any], salt: str) -> Sampled:
        """What the policy says now; what it raises is raised."""
        if self.rng is None:
            self.rng = np.random.default_rng(derived_seed(self.sampling.seed, salt.rpartition("/")[0]))
        return Sampled(self.policy(self.env, self.rng), "stop")


class PolicyRollout(Rollout):
    """A ``Rollout`` in which a function answers; ``sampling.seed`` is that of its random numbers."""

    def __init__(
        self, env_id: str, env_kwargs: Mapping[str, Any] | None = None, *, policy: str, **options: Any
    ) -> None:
        """Set up a rollout.

        Args:
            policy: one that the environment's YAML file names.
            options: of ``Rollout``.
        """
        super().__init__(env_id, env_kwargs, engine=NoEngine(), **options)
        self.policy = policy
        self._act: Policy | None = None

    def _player(self, env: HostedEnv, request: EpisodeRequest) -> Player:
        from agent_r1_env.evaluate import find_policy

        bare = env.env.unwrapped
        if not isinstance(bare, ToolEnv):
            raise AgentR1Error(f"{self.env_id} is a {type(bare).__name__}; only a ToolEnv has policies")
        if self._act is None:
            self._act = find_policy(bare, self.policy)
        return PolicyPlayer(self._act, bare, self.sampling)
