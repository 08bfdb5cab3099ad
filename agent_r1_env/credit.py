"""Credit assignment by name: from a batch of episodes to one advantage a step.

The equations are in `advantage` (one an episode) and `step_advantage` (one a step); this module gives each
of them the part of a batch that it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agent_r1_env import advantage, step_advantage
from agent_r1_env.advantage import Floats, Labels
from agent_r1_env.errors import UnknownName, hint, look_up

Estimate = Callable[["CreditBatch"], Floats]
"""From a batch to (S,) advantages."""


@dataclass(frozen=True)
class CreditBatch:
    """Rewards of N episodes with S steps in all, step by step.

    Attributes:
        rewards_S: of each step, in order, episode by episode.
        episode_S: number of each step's episode, not falling.
        groups_N: labels; episodes of one label are tries at the same task.
        outside_N: reward paid outside any step, as when a rollout ends an episode; part of the episode's
            reward, and of its last step's.
        outcomes_N: the part of the episode's reward that is paid for its outcome, for estimators that tell it
            from process rewards; it is in the last step's reward, too.
        values_S: a critic's estimate at each step's prompt.
        after_N: its estimate of what follows an episode that was truncated; 0 where the task was over.
        anchors_S: what identifies each step's state.
        greedy_N: reward of the greedy episode of each episode's task.
    """

    rewards_S: Floats
    episode_S: Labels
    groups_N: Sequence[Hashable]
    outside_N: Floats | None = None
    outcomes_N: Floats | None = None
    values_S: Floats | None = None
    after_N: Floats | None = None
    anchors_S: Sequence[Hashable] | None = None
    greedy_N: Floats | None = None

    @property
    def totals_N(self) -> Floats:
        """The reward of each episode; no reward is lost, and an episode without a step counts, too."""
        count = len(self.groups_N)
        totals = np.bincount(self.episode_S, self.rewards_S, minlength=count).astype(np.float64)
        return totals if self.outside_N is None else totals + self.outside_N

    @property
    def final_N(self) -> Floats:
        """The reward for the outcome; the whole reward where nobody tells which part of it that is."""
        return self.totals_N if self.outcomes_N is None else self.outcomes_N

    @property
    def paid_S(self) -> Floats:
        """The reward of each step, that of the last with what was paid outside."""
        return self._at_the_end(self.outside_N)

    @property
    def process_S(self) -> Floats:
        """The reward of each step without the outcome; 0 where nobody tells which part of it that is."""
        if self.outcomes_N is None:
            return np.zeros(len(self.rewards_S))
        outside = 0.0 if self.outside_N is None else self.outside_N
        return self._at_the_end(outside - self.outcomes_N)

    def _at_the_end(self, more_N: Floats | None) -> Floats:
        """The rewards with something added to the last step of each episode."""
        paid = np.asarray(self.rewards_S, dtype=np.float64).copy()
        if more_N is not None and paid.size:
            ends = np.append(np.flatnonzero(np.diff(self.episode_S)), paid.size - 1)
            paid[ends] += more_N[self.episode_S[ends]]
        return paid


@dataclass(frozen=True, slots=True)
class Estimator:
    """An equation, and where its arguments come from.

    Attributes:
        inputs: attribute of a ``CreditBatch`` by argument; all other arguments are options.
        per_episode: it gives one advantage an episode, which every step of it has.
    """

    function: Callable[..., Floats]
    inputs: Mapping[str, str]
    per_episode: bool = False

    @property
    def options(self) -> list[str]:
        """Names of what may be set."""
        return [name for name in inspect.signature(self.function).parameters if name not in self.inputs]

    @property
    def needs(self) -> list[str]:
        """Attributes that a batch has to have for it, and may lack."""
        required = inspect.signature(self.function).parameters
        return [
            source
            for name, source in self.inputs.items()
            if required[name].default is inspect.Parameter.empty
        ]

    def __call__(self, batch: CreditBatch, **options: Any) -> Floats:
        """(S,) advantages, one a step.

        Raises:
            ValueError: the batch lacks what the equation needs, or holds a reward that is not finite.
        """
        for source in self.needs:
            if getattr(batch, source) is None:
                raise ValueError(f"{self.function.__name__} needs {source} of the batch")
        found = self.function(
            **{name: getattr(batch, source) for name, source in self.inputs.items()}, **options
        )
        return found[batch.episode_S] if self.per_episode else found


_TOTALS = {"rewards": "totals_N", "groups": "groups_N"}
_STEPS = {"rewards": "paid_S", "episode": "episode_S"}
_GROUPED = {**_STEPS, "groups": "groups_N"}
_PROCESS = {**_GROUPED, "rewards": "process_S", "outcomes": "final_N"}
_CRITIC = {**_STEPS, "values": "values_S", "after": "after_N"}

ESTIMATORS: dict[str, Estimator] = {
    "dr_grpo": Estimator(advantage.dr_grpo, _TOTALS, per_episode=True),
    "gigpo": Estimator(step_advantage.gigpo, {**_GROUPED, "anchors": "anchors_S"}),
    "grpo": Estimator(advantage.grpo, _TOTALS, per_episode=True),
    "per_step_grpo": Estimator(step_advantage.per_step_grpo, _GROUPED),
    "ppo": Estimator(step_advantage.ppo, _CRITIC),
    "prime": Estimator(step_advantage.prime, _PROCESS),
    "reinforce_plus_plus": Estimator(advantage.reinforce_plus_plus, _TOTALS, per_episode=True),
    "reinforce_plus_plus_baseline": Estimator(
        advantage.reinforce_plus_plus_baseline, _TOTALS, per_episode=True
    ),
    "remax": Estimator(advantage.remax, {**_TOTALS, "greedy": "greedy_N"}, per_episode=True),
    "reward_to_go": Estimator(step_advantage.reward_to_go, {**_STEPS, "after": "after_N"}),
    "rloo": Estimator(advantage.rloo, _TOTALS, per_episode=True),
    "step_grpo": Estimator(step_advantage.step_grpo, _GROUPED),
    "turn_grpo": Estimator(step_advantage.turn_grpo, _PROCESS),
}


def takes(name: str, source: str) -> bool:
    """Whether an estimator looks at that attribute of a batch."""
    return source in ESTIMATORS[name].inputs.values()


def get(name: str, options: Mapping[str, Any] | None = None) -> Estimate:
    """The estimator of that name, with its options.

    Raises:
        UnknownName: there is none, or it takes no such option; the message has the nearest name.
    """
    estimator = look_up("algorithm", name, ESTIMATORS)
    for option in options or {}:
        if option not in estimator.options:
            raise UnknownName(f"{name} takes no option {option!r}{hint(option, estimator.options)}")
    return partial(estimator, **(options or {}))
