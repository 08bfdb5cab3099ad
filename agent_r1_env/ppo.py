"""PPO: the trainer of `grpo` with a critic that says what each prompt is worth.

The clipped surrogate is that of TRL's loss; what is new are the advantages, GAE over steps, and the critic
that learns from the same episodes. A batch is valued before the critic has seen its returns; then the critic
learns from it, and after that the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from agent_r1_env.errors import missing_extra

try:
    import numpy as np
    import torch
except ImportError as error:
    raise missing_extra(error.name or "torch", "train") from error

from agent_r1_env import credit as assignment
from agent_r1_env.advantage import Floats, Labels
from agent_r1_env.batch import credit_batch
from agent_r1_env.critic import Critic, SharedValues, ValueModel, explained_variance
from agent_r1_env.critic_settings import POLICY, SHARED, CriticSettings
from agent_r1_env.episode import Episode
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.valued import States, by_token, step_states, token_states

_FOLDER = "critic"
_LEAST_RATE = 1e-5


@dataclass(frozen=True)
class _Judged:
    """What a batch says about the states of this process's episodes, one number each.

    Attributes:
        advantages: for each episode, those of its states.
    """

    old: Floats
    returns: Floats
    weights: Floats
    advantages: Sequence[Sequence[float]]


class AgentPPOTrainer(AgentGRPOTrainer):
    """``AgentGRPOTrainer`` with advantages from a critic.

    ``gamma``, ``lam`` and ``whiten`` are options of ``credit``; ``num_iterations``, the number of times that
    the policy is updated on a batch, and ``epsilon``, its clip range, are of ``args``. Checkpoints hold the
    critic in their folder ``critic``, and so does the folder that ``save_model`` writes.

    Logged under ``critic/``: ``loss``, ``clip_fraction``, ``grad_norm`` and ``learning_rate`` of its updates;
    ``value``, ``return`` and ``explained_variance`` of the batch before them.
    """

    _name = "Agent PPO"
    _has_critic = True

    def __init__(
        self,
        model: Any,
        env: str,
        args: Any = None,
        *,
        critic: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Build the trainer and its critic.

        Args:
            critic: fields of `agent_r1_env.critic_settings.CriticSettings`, such as ``{"epochs": 2}``.
            options: those of ``AgentGRPOTrainer`` but for ``algorithm``, which is "ppo".

        Raises:
            ValueError: also for a policy whose weights are sharded.
            UnknownName: the critic has no such setting.
        """
        settings = CriticSettings.of(critic or {})
        super().__init__(model, env, args, algorithm="ppo", **options)
        if settings.learning_rate is None:
            settings = replace(settings, learning_rate=max(self.args.learning_rate, _LEAST_RATE))
        try:
            value_model = self._value_model(model, settings)
        except ValueError:
            self.close()
            raise
        self.critic = Critic(value_model, settings, self.accelerator, self._rows_at_once)
        self._played: Sequence[Episode] = []
        self._states: list[States] = []
        self._judged: _Judged | None = None

    def _value_model(self, start: Any, settings: CriticSettings) -> ValueModel | SharedValues:
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                "ppo keeps the whole critic on each process and sums its gradients itself, which FSDP and "
                "DeepSpeed do not allow for; use plain data parallelism, or an algorithm without a critic"
            )
        if settings.model == SHARED:
            return SharedValues(self.accelerator.unwrap_model(self.model))
        if settings.model != POLICY:
            made = ValueModel(settings.model)
        elif isinstance(start, str):
            made = ValueModel(start)
        elif hasattr(start, "peft_config"):
            raise ValueError(
                "the critic cannot begin as a copy of a model that holds adapters already; give it a model "
                "of its own by name or folder, or 'shared'"
            )
        else:
            made = ValueModel.copied(start)
        if self.args.gradient_checkpointing:
            made.model.gradient_checkpointing_enable()
        return made

    # -- credit

    def _facts(self, episodes: Sequence[Episode]) -> list[dict[str, Any]]:
        """With the values of this process's episodes."""
        self._played = episodes
        self._states = [self._states_of(episode) for episode in episodes]
        values = iter(self.critic.values([reading for states in self._states for reading in states.all]))
        known = super()._facts(episodes)
        for fact, states in zip(known, self._states, strict=True):
            fact["step_rewards"], fact["parts"] = list(states.rewards), list(states.parts)
            fact["values"] = list(islice(values, len(states.rewards)))
            fact["after"] = 0.0 if states.after is None else next(values)
        return known

    def _states_of(self, episode: Episode) -> States:
        settings, longest = self.critic.settings, self.critic.longest
        if settings.level == "step":
            return step_states(episode, settings.bootstrap, longest)
        return token_states(episode, settings.bootstrap, longest, settings.tool_tokens)

    def _advantages(self, known: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """GAE over the states of all processes; this process keeps in mind what its critic is to learn."""
        sound = np.flatnonzero([not episode["failed"] for episode in known])
        batch = credit_batch([known[number] for number in sound])
        gae = assignment.get(self._algorithm, {**self._credit, "whiten": False})(batch)
        values = np.asarray(batch.values_S, dtype=np.float64)
        weights = state_weights(batch.episode_S, self._weight_by)
        self._note_critic(
            {
                "value": float(weights @ values),
                "return": float(weights @ (gae + values)),
                "explained_variance": explained_variance(values, gae + values, weights),
            }
        )
        own = len(known) // self.accelerator.num_processes
        mine = sound[batch.episode_S] // own == self.accelerator.process_index
        found = super()._advantages(known)
        first = self.accelerator.process_index * own
        self._judged = _Judged(values[mine], (gae + values)[mine], weights[mine], found[first : first + own])
        return [
            _of_steps(advantages, episode["parts"]) for advantages, episode in zip(found, known, strict=True)
        ]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Let the critic learn from a training batch as soon as the policy's part of it is made."""
        output = super()._generate_and_score_completions(inputs)
        judged, self._judged = self._judged, None
        if judged is not None and self.critic.settings.level == "token":
            self._give_to_tokens(output["advantages"], judged)
        if judged is not None and self.model.training:
            readings = [reading for states in self._states for reading in states.readings]
            self._note_critic(self.critic.learn(readings, judged.old, judged.returns, judged.weights))
        self._played, self._states = [], []
        return output

    def _give_to_tokens(self, advantages: torch.Tensor, judged: _Judged) -> None:
        """Replace the advantages of steps in (R, T) with those of each token."""
        nothing = [[0.0] * len(episode.steps) for episode in self._played]
        for number, row in enumerate(self._rows(self._played, nothing)):
            of_episode, parts = judged.advantages[row.episode], self._states[row.episode].parts
            found = torch.tensor(by_token(row, of_episode, parts))
            advantages[number, : len(found)] = found.to(advantages.device)

    def _note_critic(self, numbers: Mapping[str, float]) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in numbers.items():
            metrics[f"critic/{name}"].append(value)

    # -- training

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        """TRL's; without gradients, and so without an update, while only the critic is to learn."""
        loss = super().training_step(*arguments, **options)
        if self.state.global_step < self.critic.settings.warmup:
            self.model.zero_grad(set_to_none=True)
        return loss

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The policy's, and one of the same kind over the updates of the critic."""
        args = self.args
        batches = num_training_steps * args.gradient_accumulation_steps
        batches = -(-batches // (args.steps_per_generation * self.num_iterations))
        self.critic.schedule(
            args.lr_scheduler_type,
            batches * self.critic.settings.epochs,
            args.get_warmup_steps(num_training_steps) / max(1, num_training_steps),
            args.lr_scheduler_kwargs,
        )
        return super().create_scheduler(num_training_steps, optimizer)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The policy, and the critic in a folder in it."""
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            self.critic.save(Path(output_dir or self.args.output_dir, _FOLDER))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            self.critic.save_optimizer(Path(output_dir, _FOLDER))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.critic.load(Path(checkpoint, _FOLDER))


def state_weights(episode: Labels, weight_by: str) -> Floats:
    """(S,) what the states weigh in the loss of the critic, 1 in all: alike, or with ``weight_by`` "episode"
    so that all of an episode weigh what those of any other do."""
    if weight_by != "episode":
        return np.full(len(episode), 1.0 / max(1, len(episode)))
    counts = np.bincount(episode)
    weights: Floats = 1.0 / (np.count_nonzero(counts) * counts[episode])
    return weights


def _of_steps(advantages: Sequence[float], parts: Sequence[tuple[int, int]]) -> list[float]:
    """For each step the advantage of the state that its reply begins in; 0 where there is no reply."""
    starts = [0, *accumulate(map(sum, parts))]
    return [
        advantages[start + before] if reply else 0.0
        for start, (before, reply) in zip(starts, parts, strict=False)
    ]
