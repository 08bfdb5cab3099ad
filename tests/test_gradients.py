"""One gradient, however the episodes of a batch are cut into rows, padded, batched and spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig
from trl.trainer.utils import split_tensor_dict

from agent_r1_env.batch import facts
from agent_r1_env.episode import Episode, Step
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.microbatch import combine
from agent_r1_env.testing import tiny_llama
from agent_r1_env.trl_config import LOSSES
from agent_r1_env.weights import UNITS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TOLERANCE = 1e-5
CREDIT = [("grpo", 0.0), ("step_grpo", 0.3)]  # one advantage an episode, and another in each step of a row


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model")))


def episode(number: int, steps: int, broken: int | None = None) -> Episode:
    """Steps that each pay something, in a context that grows, but for step ``broken``, which begins anew."""
    rng = np.random.default_rng([7, number])
    ids = lambda low, high: rng.integers(3, 250, rng.integers(low, high)).tolist()  # noqa: E731
    prompt, done = ids(5, 12), []
    for place in range(steps):
        if place == broken:
            prompt = ids(5, 12)
        reply = ids(3, 9)
        logprobs = rng.normal(-5.5, 0.5, len(reply)).tolist()
        done.append(Step(tuple(prompt), tuple(reply), tuple(logprobs), float(rng.random())))
        prompt = prompt + reply + ids(2, 6)
    return Episode("Test/Canned-v0", f"task-{number // 4}", 0, number // 4, tuple(done), True)


EPISODES = [episode(n, 1 + n % 4, broken=2 if n == 3 else None) for n in range(8)]


def trainer(
    folder: Path, model: Any, *, loss: str = "dapo", settings: dict[str, Any] | None = None, **options: Any
) -> AgentGRPOTrainer:
    chosen: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 16,
        "num_iterations": 2,
        "loss_type": loss,
        "epsilon_high": 5.0 if loss == "cispo" else None,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        **(settings or {}),
    }
    episodes: Sequence[Episode] = options.pop("episodes", EPISODES)
    made = AgentGRPOTrainer(
        AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64),  # a difference is not rounding
        "Test/Canned-v0",
        GRPOConfig(str(folder), **chosen),
        train_dataset=Dataset.from_list([{"prompt": "question", "task": 0}] * 8),
        rollout=lambda requests: list(episodes)[: len(requests)],
        **options,
    )
    made.current_gradient_accumulation_steps = made.args.gradient_accumulation_steps
    made.model.train()
    return made


def moved(model: torch.nn.Module) -> None:
    """Move the weights, so that ratios differ from 1 and some are clipped."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator)


def prepared(made: AgentGRPOTrainer) -> dict[str, Any]:
    return made._generate_and_score_completions([{"prompt": "question", "task": 0}] * 8)


def gradient(made: AgentGRPOTrainer, *, batches: int = 1, move: bool = True) -> torch.Tensor:
    """The gradient over some micro-batches of the same rollout, after the weights have moved since it."""
    whole = prepared(made)
    if move:
        moved(made.model)
    made.model.zero_grad()
    for batch in split_tensor_dict(whole, batches):
        made.accelerator.backward(made._compute_loss(made.model, batch))
    return torch.cat([weight.grad.flatten() for weight in made.model.parameters()])


def by_hand(made: AgentGRPOTrainer) -> torch.Tensor:
    """The gradient of minus the sum over sampled tokens of weight, advantage and log-prob, step by step."""
    known = [facts(episode) | {"group": episode.group} for episode in EPISODES]
    tokens = [[len(step.response_ids) for step in episode.steps] for episode in EPISODES]
    loss = torch.zeros((), dtype=torch.float64)
    for number, (episode, advantages) in enumerate(zip(EPISODES, made._advantages(known), strict=True)):
        for place, (step, advantage) in enumerate(zip(episode.steps, advantages, strict=True)):
            ids = torch.tensor([[*step.prompt_ids, *step.response_ids]])
            logps = made.model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
            share = weight_by_hand(made, tokens, number, place)
            loss = loss - share * advantage * logps[-len(step.response_ids) :].sum()
    made.model.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in made.model.parameters()])


def weight_by_hand(made: AgentGRPOTrainer, tokens: list[list[int]], number: int, place: int) -> float:
    """What one token of a step weighs, from the definition of the losses and of the units."""
    steps = sum(map(len, tokens))
    if made.loss_type in ("luspo", "dr_grpo"):
        units = steps if made._weight_by == "step" else len(tokens)
        return 1 / units / (made.max_completion_length if made.loss_type == "dr_grpo" else 1)
    return {
        "episode": 1 / len(tokens) / sum(tokens[number]),
        "step": 1 / steps / tokens[number][place],
        "token": 1 / sum(map(sum, tokens)),
    }[made._weight_by]


def error(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize(("algorithm", "beta"), CREDIT)
@pytest.mark.parametrize("loss", LOSSES)
def test_cutting_and_padding_change_no_gradient(
    tmp_path: Path,
    model: str,
    loss: str,
    algorithm: str,
    beta: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(rows_at_once: int = 99, accumulated: int = 1, merge: bool = True) -> AgentGRPOTrainer:
        settings = {"beta": beta, "gradient_accumulation_steps": accumulated}
        settings["per_device_train_batch_size"] = 8 // accumulated
        options = {"rows_at_once": rows_at_once, "merge": merge, "algorithm": algorithm}
        return trainer(tmp_path, model, loss=loss, settings=settings, **options)

    merged = gradient(made())
    padded = made()
    monkeypatch.setattr(padded, "_padded", lambda count, training: 24)
    others = {
        "separate rows": gradient(made(merge=False)),
        "padding rows": gradient(padded),
        "parts": gradient(made(rows_at_once=3)),
        "micro-batches": gradient(made(rows_at_once=3, accumulated=4), batches=4),
    }
    errors = {name: error(other, merged) for name, other in others.items()}
    assert merged.norm() > 0
    assert max(errors.values()) < TOLERANCE, errors


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_the_one_by_hand(tmp_path: Path, model: str, loss: str, unit: str) -> None:
    """Where the weights have not moved, every loss has the gradient of REINFORCE with its own weights."""
    made = trainer(tmp_path, model, loss=loss, algorithm="step_grpo", weight_by=unit)
    assert error(gradient(made, move=False), by_hand(made)) < TOLERANCE


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask"])
def test_the_correction_for_the_sampler_is_by_token(tmp_path: Path, model: str, mode: str) -> None:
    def made(merge: bool, correct: bool = True) -> AgentGRPOTrainer:
        limits = {"clip_min": 0.6, "clip_max": 1.5, "mode": mode, "correction": correct}
        settings = {f"vllm_importance_sampling_{name}": value for name, value in limits.items()}
        built = trainer(tmp_path, model, settings=settings, merge=merge)
        built.use_vllm, built._last_loaded_step = True, 0  # as if vLLM had sampled the canned episodes
        return built

    merged = gradient(made(merge=True))
    assert error(gradient(made(merge=False)), merged) < TOLERANCE
    assert error(gradient(made(merge=True, correct=False)), merged) > 0.1


def test_metrics_are_means_over_the_tokens_of_the_model(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, rows_at_once=3)
    batch = prepared(made)
    made._compute_loss(made.model, batch)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad():
        logps = made.model(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
    entropy = -(logps.exp() * logps).sum(-1)[:, batch["prompt_ids"].size(1) - 1 : -1]
    trained = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert made._metrics["train"]["entropy"] == pytest.approx([float(entropy[trained].mean())], rel=1e-4)
    assert len(made._metrics["train"]["clip_ratio/region_mean"]) == 1


def test_a_part_of_padding_rows_says_nothing_about_entropy() -> None:
    metrics = {"entropy": [9.0, 2.0, 0.0, 4.0], "clip_ratio/low_min": [0.5, math.nan, 0.25], "other": [1.0]}
    combine(metrics, {"entropy": 1, "other": 1}, [3.0, 0.0, 1.0])
    assert metrics == {"entropy": [9.0, 2.5], "clip_ratio/low_min": [0.25], "other": [1.0]}
