"""Train on canned episodes in however many processes run this, and note what reached the policy.

Run by test_two_processes.py, once alone and once under torchrun: ``python spread.py MODEL FILE``.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig

from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import EngineError
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.rollout import EpisodeRequest
from agent_r1_env.trl_config import LOSSES

TOTAL, GROUP = 12, 4  # of 6 episodes in each of two processes, the second group lies across both


def episode(number: int) -> Episode:
    """Steps that each pay something; the first process has most of the contexts that were rewritten."""
    rng = np.random.default_rng([3, number])
    ids = lambda low, high: rng.integers(3, 250, rng.integers(low, high)).tolist()  # noqa: E731
    prompt, steps = ids(5, 12), []
    for place in range(1 + number % 4):
        if place and number in (1, 2, 3, 5, 10):
            prompt = ids(5, 12)
        reply = ids(3, 9)
        steps.append(Step(tuple(prompt), tuple(reply), (-5.0,) * len(reply), float(rng.random())))
        prompt = prompt + reply + ids(2, 6)
    return Episode("Test/Canned-v0", f"task-{number // GROUP}", 0, number // GROUP, tuple(steps), True)


EPISODES = [episode(number) for number in range(TOTAL)]
EPISODES[7] = dataclasses.replace(EPISODES[7], error="RuntimeError: the environment broke")


class Notes(TrainerCallback):
    """The gradient of each update."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        """Called by the trainer when gradients of all processes are in."""
        self.gradients.append(torch.cat([weight.grad.flatten().clone() for weight in model.parameters()]))


def trainer(model: str, processes: int, loss: str, algorithm: str, **options: Any) -> AgentGRPOTrainer:
    """A trainer that makes two updates in two micro-batches each, the second off policy."""
    args = GRPOConfig(
        "unused",
        per_device_train_batch_size=TOTAL // processes // 2,
        gradient_accumulation_steps=2,
        num_generations=GROUP,
        num_iterations=2,
        max_completion_length=16,
        loss_type=loss,
        epsilon_high=5.0 if loss == "cispo" else None,
        beta=0.1,
        optim="sgd",
        learning_rate=0.0001 if loss == "luspo" else 0.005,  # its gradient is one of sums
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        max_steps=2,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    data = Dataset.from_list([{"prompt": "question", "task": 0}] * TOTAL)
    chosen = {"rollout": share, "algorithm": algorithm, "rows_at_once": 2, **options}
    precise = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    return AgentGRPOTrainer(precise, "Test/Canned-v0", args, train_dataset=data, **chosen)


def share(requests: Sequence[EpisodeRequest]) -> list[Episode]:
    """This process's share of the canned episodes, which must be of the groups that were asked for."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    mine = EPISODES[rank * len(requests) :][: len(requests)]
    assert [request.group for request in requests] == [episode.group for episode in mine]
    return mine


def refuse(requests: Sequence[EpisodeRequest]) -> list[Episode]:
    """A rollout that fails in one of two processes."""
    if torch.distributed.get_rank() == 1:
        raise RuntimeError("the engine is gone")
    return share(requests)


def main(model: str, file: Path) -> None:
    """Note the gradients of each update, and what was logged, by loss and algorithm."""
    found: dict[str, Any] = {}
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    for loss, algorithm in [*((loss, "step_grpo") for loss in LOSSES), ("dapo", "grpo")]:
        notes = Notes()
        made = trainer(model, processes, loss, algorithm, callbacks=[notes])
        assert made.accelerator.num_processes == processes
        made.train()
        log = [entry for entry in made.state.log_history if "reward" in entry]
        found[f"{loss} {algorithm}"] = {"gradients": notes.gradients, "log": log}
    if processes > 1:
        try:
            trainer(model, processes, "dapo", "grpo", rollout=refuse).train()
        except (EngineError, RuntimeError) as error:
            texts: list[Any] = [None] * processes
            torch.distributed.all_gather_object(texts, f"{type(error).__name__}: {error}")
            found["errors"] = texts
    if processes == 1 or torch.distributed.get_rank() == 0:
        torch.save(found, file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
