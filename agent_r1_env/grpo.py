"""The adapter to TRL: GRPO whose samples are episodes of an environment.

``_generate_and_score_completions`` of TRL's trainer is replaced: it plays episodes, turns them into masked
rows and hands those to TRL's own code, which does everything else with however many rows there are. What
those rows weigh in the loss is the matter of `weighed`, how episodes are played that of `playing`. Nothing
else of TRL is touched.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from agent_r1_env.errors import missing_extra, unknown_name

try:
    import torch
    from accelerate.utils import gather_object
    from datasets import Dataset
    from trl import GRPOConfig
except ImportError as error:
    raise missing_extra(error.name or "trl", "train") from error

from agent_r1_env import auto, formats
from agent_r1_env import credit as assignment
from agent_r1_env.batch import (
    add_greedy,
    columns,
    count_drift,
    credit_batch,
    facts,
    reward_spread,
    summary,
)
from agent_r1_env.colocate import generating
from agent_r1_env.episode import Episode, EpisodeFile
from agent_r1_env.evaluate import make
from agent_r1_env.executors import Executor
from agent_r1_env.metrics import coverage, covered, of_advantages
from agent_r1_env.overlap import Ahead, Overlap
from agent_r1_env.overlong import Limit
from agent_r1_env.overlong import counts as limited
from agent_r1_env.playing import Play, PlayingGRPOTrainer
from agent_r1_env.representation import check, rows
from agent_r1_env.rollout import EpisodeRequest
from agent_r1_env.structure import warn_of_training
from agent_r1_env.template import template_for
from agent_r1_env.trajectory import Row
from agent_r1_env.trl_config import adapted, check_version
from agent_r1_env.weights import UNITS, token_weights

check_version()
_OURS = ("tools", "environment_factory", "rollout_func", "reward_funcs")


class AgentGRPOTrainer(PlayingGRPOTrainer):
    """``trl.GRPOTrainer`` on episodes.

    ``args`` keep TRL's meaning, except that ``max_completion_length`` bounds one reply and not the episode,
    and that `trl_config.adapted` sets right what TRL's defaults get wrong for episodes. With
    ``use_vllm=True`` vLLM runs in this process, or behind URLs if ``vllm_mode="server"``; without it the
    training model itself samples, which is slow and meant for tiny models.

    `metrics.TABLE` says what is logged; TRL's ``reward``, ``reward_std`` and ``frac_reward_zero_std`` are
    those of the episodes.
    """

    _name = "Agent GRPO"
    _has_critic = False

    def __init__(
        self,
        model: Any,
        env: str,
        args: GRPOConfig | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        train_dataset: Any = None,
        rollout: Play | None = None,
        algorithm: str = "grpo",
        credit: Mapping[str, Any] | None = None,
        loss_mask: bool = True,
        merge: bool = True,
        weight_by: str = "episode",
        episodes_path: str | Path | None = None,
        concurrency: int = 64,
        executor: Mapping[str, Any] | None = None,
        rows_at_once: int | None = None,
        representation: str = "steps",
        structured: bool = False,
        overlong: Mapping[str, Any] | None = None,
        overlap: Mapping[str, Any] | None = None,
        servers: Sequence[str] = (),
        weight_sync: str | None = None,
        **trl: Any,
    ) -> None:
        """Build the trainer, and vLLM with it when ``args.use_vllm``.

        Args:
            model: a name, a folder or a model, as for TRL.
            env: id of a registered environment; ``env_kwargs`` are plain data for ``gymnasium.make``, where
                ``format="auto"`` is the wire format that the chat template of the model speaks.
            train_dataset: rows with ``prompt`` (for TRL's tables) and ``task`` (index or id, for the
                environment's ``reset``). By default all tasks of the environment.
            rollout: plays the requested episodes in place of the built-in rollout, in their order.
            algorithm: how credit is assigned: a name of `agent_r1_env.credit.ESTIMATORS`.
            credit: its options, such as ``{"gamma": 0.95}``; ``scale`` of "grpo" is ``args.scale_rewards``.
            loss_mask: False is the ablation that trains on tool results as well.
            merge: False keeps each step as a row of its own: the same gradient for more work.
            weight_by: what weighs the same in the loss: each "episode", however many steps and tokens it
                has, each "step", or each "token"; see `weights` for the loss types that sum over tokens.
            episodes_path: a file to which each episode is appended when it ends, by the main process.
            concurrency: episodes that run at the same time in each process.
            executor: where environments and tools are: arguments of `executors.Executor`, such as
                ``{"kind": "ray", "workers": 4}``. By default they are in this process.
            rows_at_once: rows in one forward and backward pass; a batch takes as many passes as it needs.
                By default ``per_device_train_batch_size``.
            representation: "steps", "tokens" or "messages", see `agent_r1_env.representation`.
            structured: hold the policy to valid calls once it begins one, see `agent_r1_env.structure`; needs
                vLLM.
            overlong: what becomes of rows that are too long: arguments of `overlong.Limit`, such as
                ``{"tokens": 4096, "way": "mask"}``. By default there is no limit.
            overlap: plays the next batches while the trainer steps: arguments of `overlap.Overlap`, such as
                ``{"staleness": 1}``. By default each batch is played when it is asked for.
            servers: addresses of vLLM servers that sample in place of a vLLM in this process; replicas of
                one model. ``args`` may name the only one, or the first, as TRL does.
            weight_sync: how they get weights: "nccl", as by default where there is a GPU, or "disk".
            trl: whatever else ``GRPOTrainer`` takes: ``processing_class``, ``callbacks``, ...

        Raises:
            ValueError: a setting that episodes cannot honour; the message says which.
            UnknownName: no such algorithm or representation, or an option that it does not take.
        """
        for name in _OURS:
            if trl.pop(name, None) is not None:
                raise ValueError(f"{name} cannot be used: tools, turns and rewards belong to the environment")
        self._algorithm, self._credit = algorithm, dict(credit or {})
        assignment.get(algorithm, self._credit)  # a wrong name shows before the model is loaded
        if "values_S" in assignment.ESTIMATORS[algorithm].needs and not self._has_critic:
            raise ValueError(f"{algorithm} needs a critic; use agent_r1_env.ppo.AgentPPOTrainer")
        if assignment.takes(algorithm, "greedy_N") and rollout is not None:
            raise ValueError(
                f"{algorithm} compares with a greedy episode of each task, which a rollout of your own does "
                "not play; leave rollout out, or use 'rloo'"
            )
        self._executor = Executor.of(executor)
        self._executor.check(env)
        if rollout is not None and self._executor.kind != "local":
            raise ValueError("executor says where the built-in rollout plays; leave out it or rollout")
        self._representation, self._structured = check(representation), structured
        self._overlong = None if overlong is None else Limit(**overlong)
        if weight_by not in UNITS:
            raise unknown_name("weight", weight_by, UNITS)
        args = adapted(args if args is not None else GRPOConfig("agent-grpo"), servers, weight_sync)
        if overlap is not None:
            self._overlap = Overlap.of(overlap)
            self._overlap.check(args, custom=rollout is not None)
        if structured:
            if not args.use_vllm:
                raise ValueError(
                    "structured calls need vLLM, which can sample under a grammar; set use_vllm=True"
                )
            warn_of_training(args.vllm_importance_sampling_correction)
        if args.use_vllm and find_spec("vllm") is None:
            raise missing_extra("vllm", "train")
        if train_dataset is None:
            train_dataset = task_dataset(env, env_kwargs)
        with generating(args, servers, weight_sync):
            super().__init__(
                model=model, reward_funcs=episode_reward, args=args, train_dataset=train_dataset, **trl
            )
        if not self.use_vllm and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise ValueError("a sharded model can only be sampled through vLLM; set use_vllm=True")
        self.rollout_func = _replay  # set here and not passed, because TRL warns about the argument
        self._env, self._env_kwargs, self._concurrency = env, env_kwargs, concurrency
        self._custom_play, self._episodes_path = rollout, episodes_path
        self._loss_mask, self._merge, self._weight_by = loss_mask, merge, weight_by
        self._rows_at_once = rows_at_once or args.per_device_train_batch_size
        if overlap is not None:
            crews = None if self._executor.kind == "local" else 1  # of actors, who are there once
            self._ahead, self._fetched = Ahead(self._new_rollout, crews), []
        if episodes_path is not None and self.accelerator.is_main_process:
            self._file = EpisodeFile(episodes_path)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Play an episode for each input and hand the rows to TRL, which goes on as it always does."""
        started, training = time.perf_counter(), self.model.training
        requests = self._requests(inputs, training)
        episodes = self._episodes(requests, training)
        seconds = time.perf_counter() - started
        if training:
            self._write_down(episodes)
        if self._overlong is not None:
            episodes = [self._overlong.penalised(episode, self._merge) for episode in episodes]
        own = zip(self._facts(episodes), requests, strict=True)
        known = gather_object([fact | {"group": request.group} for fact, request in own])
        if self._plays_greedy():
            self._add_greedy(known, requests, training)
        advantages = self._advantages(known)
        first = self.accelerator.process_index * len(episodes)
        batch = self._rows(episodes, advantages[first:])
        counts = gather_object([len(batch)])
        size = self._padded(max(counts), training)
        owners = [row.episode for row in batch] + [0] * (size - len(batch))
        self._columns = columns(batch, size, self._tokenizer.eos_token_id)
        self._columns["episode_reward"] = [episodes[owner].reward for owner in owners]
        output: dict[str, Any] = super()._generate_and_score_completions(
            [dict(inputs[owner]) for owner in owners]
        )
        output["advantages"] = _by_token([row.advantages for row in batch], output["completion_ids"])
        output["token_weights"] = _by_token(self._weights(episodes, batch), output["completion_ids"])
        wrong = gather_object([self._drift(output, batch, episodes)])
        told = {"drift": sum(wrong), "rows_padded": size, "rollout_seconds": seconds}
        if self._ahead is not None and training:
            told |= self._overlapped(episodes)
        for counted in gather_object([dict(limited(batch))]) if self._overlong is not None else ():
            told |= {name: told.get(name, 0) + number for name, number in counted.items()}
        told["mask_coverage"] = coverage(gather_object([covered(batch)]))
        self._log_batch(known, sum(counts), **told, **of_advantages(advantages))
        return output

    def _plays_greedy(self) -> bool:
        return assignment.takes(self._algorithm, "greedy_N")

    def _facts(self, episodes: Sequence[Episode]) -> list[dict[str, Any]]:
        """What all processes are to know of this process's episodes: plain data."""
        return [facts(episode) for episode in episodes]

    def _add_greedy(
        self, known: Sequence[dict[str, Any]], requests: Sequence[EpisodeRequest], training: bool
    ) -> None:
        """Add the reward of a greedy episode of its task to each episode's facts.

        It is played by the process that has the first member of the group; where the environment broke in it,
        the mean of the group stands in.
        """
        chosen = self._leaders(requests, training)
        played = zip(chosen, self._episodes(chosen, training, greedy=True), strict=True)
        add_greedy(known, dict(gather_object([(r.group, e.reward) for r, e in played if not e.failed])))

    def _advantages(self, known: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """For each episode of all processes one a step; none where the environment broke, which then moves
        no baseline."""
        sound = [number for number, episode in enumerate(known) if not episode["failed"]]
        batch = credit_batch([known[number] for number in sound])
        if assignment.takes(self._algorithm, "process_S") and batch.outcomes_N is None:
            raise ValueError(
                f"{self._algorithm} tells the reward for the outcome from that for the process, but "
                f"{self._env} does not; let it give info['outcome_reward'] at the end of an episode, or use "
                "'step_grpo'"
            )
        options = {"scale": self.scale_rewards} if self._algorithm == "grpo" else {}
        flat = assignment.get(self._algorithm, {**options, **self._credit})(batch)
        advantages: list[list[float]] = [[] for _ in known]
        for step, number in enumerate(batch.episode_S):
            advantages[sound[number]].append(float(flat[step]))
        return advantages

    def _rows(self, episodes: Sequence[Episode], numbers: Sequence[Sequence[float]]) -> list[Row]:
        """The rows of this process's episodes; one in which the environment broke has none.

        Args:
            numbers: for each episode one a step, for the tokens of that step.
        """
        batch: list[Row] = []
        for index, episode in enumerate(episodes):
            if not episode.failed:
                batch += rows(
                    episode,
                    numbers[index],
                    index,
                    self._representation,
                    self._template() if self._representation == "messages" else None,
                    merge=self._merge,
                    loss_mask=self._loss_mask,
                )
        return batch if self._overlong is None else self._overlong.applied(batch)

    def _template(self) -> Any:
        """What encodes text: the template that episodes were played with, or would have been."""
        rollouts = [self._rollout, *(self._ahead.rollouts if self._ahead is not None else ())]
        played = next((each.template for each in rollouts if each is not None and each.template), None)
        return played or template_for(self._tokenizer, formats.get("hermes"))

    def _weights(self, episodes: Sequence[Episode], batch: Sequence[Row]) -> list[Any]:
        """For each row what its tokens weigh; 1 in all over the tokens of all processes, unless the loss
        type sums over tokens."""
        numbers = [range(len(episode.steps)) for episode in episodes]
        steps = [row.advantages for row in self._rows(episodes, numbers)]
        weights, units = token_weights(batch, steps, self._weight_by, self.loss_type)
        every = sum(gather_object([units])) * (
            self.max_completion_length if self.loss_type == "dr_grpo" else 1
        )
        return [weight / max(1, every) for weight in weights]  # a limit may leave nothing to train on

    def _padded(self, count: int, training: bool) -> int:
        """Rows that each process must bring: equally many, in whole micro-batches and whole groups."""
        size = self.num_generations if training else self.num_generations_eval
        multiple = math.lcm(self.args.steps_per_generation if training else 1, size)
        return max(1, -(-count // multiple)) * multiple

    def _drift(self, output: Mapping[str, Any], batch: Sequence[Row], episodes: Sequence[Episode]) -> int:
        """Tokens of the batch that goes to the loss which are not those that the engine sampled."""
        mask = (output["completion_mask"] * output["tool_mask"]).bool()
        if not self._loss_mask:  # the ablation means to train on other tokens too; those have no log-prob
            for number, row in enumerate(batch):
                sampled = [not math.isnan(logprob) for logprob in row.logprobs]
                mask[number, : len(sampled)] &= torch.tensor(sampled, device=mask.device)
        trained = [ids[kept].tolist() for ids, kept in zip(output["completion_ids"], mask, strict=True)]
        padding = sum(len(ids) for ids in trained[len(batch) :])
        return padding + count_drift(trained[: len(batch)], batch, episodes)

    def _log_batch(self, known: Sequence[dict[str, Any]], count: int, **numbers: float) -> None:
        """Log the metrics of the episodes, and put them in the place of TRL's, which are those of rows."""
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in (summary(known, count) | numbers).items():
            metrics[f"agent/{name}"].append(float(value))
        deviation, constant = reward_spread(known)
        mean = metrics["agent/episode_reward"][-1]
        for name, value in (("reward", mean), ("reward_std", deviation), ("frac_reward_zero_std", constant)):
            metrics[name][-1] = value
        for name in [name for name in metrics if name.startswith("rewards/")]:
            del metrics[name]


def episode_reward(completions: Sequence[Any], episode_reward: Sequence[float], **_: Any) -> Sequence[float]:
    """TRL's reward function: the rewards that the environment paid, row by row."""
    return episode_reward


def task_dataset(env: str, env_kwargs: Mapping[str, Any] | None = None) -> Dataset:
    """All tasks of an environment as TRL's data set: ids for ``reset``, questions for TRL's tables."""
    opened = make(env, auto.ignored(env_kwargs))
    try:
        tasks = [(task.id, task.question) for task in opened.tasks]
    finally:
        opened.close()
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": question}], "task": task} for task, question in tasks]
    )


def _replay(prompts: Sequence[Any], trainer: AgentGRPOTrainer) -> dict[str, list[Any]]:
    """TRL's ``rollout_func``: the rows that were made just before."""
    return trainer._columns


def _by_token(values: Sequence[Sequence[float]], completion_ids: torch.Tensor) -> torch.Tensor:
    """(R, T) values of the tokens of some rows; 0 behind the end of a row and in padding rows."""
    result = torch.zeros(completion_ids.shape)
    for number, row in enumerate(values):
        result[number, : len(row)] = torch.from_numpy(np.array(row))  # torch reads a sequence one by one
    return result.to(completion_ids.device)
