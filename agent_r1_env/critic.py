"""A critic: what a prompt is worth to the policy, learnt from the returns of its episodes.

A value is read behind the last token of a prompt, where the policy would begin its reply. With causal
attention one pass over a long prompt gives the values of all prompts that it begins with, so an episode whose
context only grew costs one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from agent_r1_env.errors import missing_extra

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
    from transformers import AutoConfig, AutoModelForTokenClassification, get_scheduler
    from transformers.utils import logging as hf_logging
except ImportError as error:
    raise missing_extra(error.name or "torch", "train") from error

from agent_r1_env.advantage import Floats
from agent_r1_env.critic_settings import CriticSettings
from agent_r1_env.valued import Reading, joined

_HEAD, _OPTIMISER = "head.safetensors", "optimizer.pt"


# -- what is learnt


def value_loss(
    values: torch.Tensor,
    old: torch.Tensor,
    returns: torch.Tensor,
    weights: torch.Tensor,
    clip_range: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's clipped loss of (S,) values, and the share of them that the clipping holds.

    L = 1/2 sum_s w_s max((V_s - R_s)^2, (clip(V_s, V_old - c, V_old + c) - R_s)^2), as in the first public
    implementation of PPO (openai/baselines). Where the clipped square is the greater one there is no
    gradient: the value has moved far enough already.

    Example, with V = [1, 0], V_old = [0, 0], R = [2, 1], w = [1/2, 1/2], c = 0.2: the first has moved by 1,
    its squares are 1 and 3.24; the second has 1 and 1: 1/4 (3.24 + 1) = 1.06, and half of them are held.
    """
    squares = (values - returns) ** 2
    if clip_range is None:
        return 0.5 * (weights * squares).sum(), torch.zeros((), device=values.device)
    clipped = (old + (values - old).clamp(-clip_range, clip_range) - returns) ** 2
    held = (weights * (clipped > squares)).sum()
    return 0.5 * (weights * torch.maximum(squares, clipped)).sum(), held


def explained_variance(values: Floats, returns: Floats, weights: Floats) -> float:
    """1 - Var(R - V) / Var(R): 1 for a critic that is always right, 0 for one that knows nothing but the
    mean. NaN where all returns are equal."""

    def variance(numbers: Floats) -> float:
        return float(weights @ (numbers - weights @ numbers) ** 2)

    spread = variance(returns)
    return 1.0 - variance(returns - values) / spread if spread > 0 else float("nan")


# -- the models


class ValueModel(nn.Module):
    """A language model with a number a token in place of its next token, in float32 and without dropout."""

    def __init__(self, source: str) -> None:
        """Load a folder or a name on the Hub; a value head that it does not have yet begins at 0.

        Raises:
            ValueError: it cannot be loaded, or transformers knows no such head for that kind of model.
        """
        super().__init__()
        try:
            config = _without_dropout(AutoConfig.from_pretrained(source, num_labels=1))
        except OSError as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise ValueError(f"critic.model: cannot load {source!r}: {reason}") from error
        level = hf_logging.get_verbosity()
        hf_logging.set_verbosity_error()  # a missing head is no news
        try:
            model, found = AutoModelForTokenClassification.from_pretrained(
                source, config=config, dtype=torch.float32, output_loading_info=True
            )
        except ValueError as error:
            raise ValueError(
                f"critic.model: there is no value model for {source!r} ({config.model_type}); choose "
                "critic.model: shared, or another model"
            ) from error
        finally:
            hf_logging.set_verbosity(level)
        self.model = _settled(model)
        for name in found["missing_keys"]:
            if not name.startswith(f"{model.base_model_prefix}."):
                nn.init.zeros_(model.get_parameter(name))

    @classmethod
    def copied(cls, policy: Any) -> ValueModel:
        """Begin with the weights of a model in memory."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        config = type(policy.config).from_dict({**policy.config.to_dict(), "num_labels": 1})
        config = _without_dropout(config)
        made.model = _settled(AutoModelForTokenClassification.from_config(config, dtype=torch.float32))
        own = dict(made.model.named_children())
        body = own.pop(made.model.base_model_prefix)
        body.load_state_dict(policy.base_model.state_dict())
        for head in own.values():
            for parameter in head.parameters():
                nn.init.zeros_(parameter)
        return made

    @property
    def longest(self) -> int | None:
        """Tokens that it can read at once; None where its configuration sets no limit."""
        return _longest(self.model.config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(B, T) values, each of what stands up to and with its token."""
        found = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        values: torch.Tensor = found[..., 0].float()
        return values

    def save(self, folder: Path) -> None:
        """Write it as transformers does."""
        self.model.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Take the weights that ``save`` wrote."""
        self.load_state_dict(ValueModel(str(folder)).state_dict())


class SharedValues(nn.Module):
    """A head on the features of the policy, which it reads and does not move."""

    def __init__(self, policy: Any) -> None:
        """Begin at 0; the policy stays the caller's."""
        super().__init__()
        self._policy = [policy]  # in a list, so that its weights are not among this module's
        self.head = nn.Linear(policy.config.get_text_config().hidden_size, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def longest(self) -> int | None:
        """Tokens that it can read at once; None where its configuration sets no limit."""
        return _longest(self._policy[0].config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(B, T) values, each of what stands up to and with its token."""
        policy = self._policy[0]
        bare = policy.get_base_model() if hasattr(policy, "peft_config") else policy
        training = policy.training
        policy.eval()
        try:
            with torch.no_grad():
                found = bare.base_model(input_ids=input_ids, attention_mask=attention_mask)
        finally:
            policy.train(training)
        values: torch.Tensor = self.head(found.last_hidden_state.float())[..., 0]
        return values

    def save(self, folder: Path) -> None:
        """Write the head."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.head.state_dict(), folder / _HEAD)

    def load(self, folder: Path) -> None:
        """Take the head that ``save`` wrote."""
        self.head.load_state_dict(load_file(folder / _HEAD))


def _without_dropout(config: Any) -> Any:
    for name, value in vars(config).items():
        if ("dropout" in name or "pdrop" in name) and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def _settled(model: Any) -> Any:
    """The model without the dropout that no configuration speaks of, so that it always gives one value.

    It is in training mode, without which it would not save memory by gradient checkpointing.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def _longest(config: Any) -> int | None:
    return getattr(config.get_text_config(), "max_position_embeddings", None)


# -- the critic


class Critic:
    """A value model with its optimiser.

    Every process keeps the whole of it. All make the same updates, each with the sum of the gradients of all.
    """

    def __init__(
        self, model: ValueModel | SharedValues, settings: CriticSettings, accelerator: Any, at_once: int
    ) -> None:
        """Take over a model.

        Args:
            accelerator: sums gradients over processes, and says on which device and in which float type.
            at_once: readings in one pass.
        """
        self.model: ValueModel | SharedValues = model.to(accelerator.device)
        self.settings = settings
        self._accelerator, self._at_once = accelerator, at_once
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings.learning_rate or 0.0, weight_decay=0.0
        )
        self.scheduler: Any = None

    @property
    def longest(self) -> int | None:
        """Tokens that it can read at once; None where nothing sets a limit."""
        return self.model.longest

    def schedule(self, kind: str, updates: int, warmup: float, options: Any = None) -> None:
        """Let the learning rate follow a schedule of transformers over so many updates.

        Args:
            warmup: share of the updates over which it rises.
        """
        self.scheduler = get_scheduler(
            kind, self.optimizer, round(warmup * updates), updates, scheduler_specific_kwargs=options
        )

    def values(self, readings: Sequence[Reading]) -> list[float]:
        """What is wanted of the readings, in their order; readings that continue each other share a pass."""
        found = torch.zeros(sum(len(reading.ends) for reading in readings))
        with torch.no_grad():
            for chosen, places in self._parts(readings):
                found[places] = self._read(chosen).cpu()
        return [float(value) for value in found]

    def learn(
        self, readings: Sequence[Reading], old: Floats, returns: Floats, weights: Floats
    ) -> dict[str, float]:
        """Update ``epochs`` times towards the returns; every process has to call it, also without readings.

        Args:
            readings: those of ``values``.
            old: what ``values`` gave.
            weights: of each value in the loss, those of all processes 1 in all.

        Returns:
            Means over the updates of ``loss``, ``clip_fraction`` and ``grad_norm``; the last
            ``learning_rate``.
        """
        device = self._accelerator.device
        goals = torch.tensor(np.stack([old, returns, weights]), dtype=torch.float32, device=device)
        parts = list(self._parts(readings))
        sums = torch.zeros(2, device=device)
        norm = torch.zeros((), device=device)
        rate = self.optimizer.param_groups[0]["lr"]
        for _ in range(self.settings.epochs):
            self.optimizer.zero_grad(set_to_none=True)
            for chosen, places in parts:
                before, target, weight = goals[:, places]
                loss, held = value_loss(self._read(chosen), before, target, weight, self.settings.clip_range)
                loss.backward()  # type: ignore[no-untyped-call]
                sums += torch.stack([loss.detach(), held])
            norm += self._step()
        loss_sum, held_sum = self._accelerator.reduce(sums, "sum").tolist()
        epochs = self.settings.epochs
        return {
            "loss": loss_sum / epochs,
            "clip_fraction": held_sum / epochs,
            "grad_norm": float(norm) / epochs,
            "learning_rate": float(rate),
        }

    def save(self, folder: Path) -> None:
        """Write the model; ``save_optimizer`` writes what training needs beside it."""
        self.model.save(folder)

    def save_optimizer(self, folder: Path) -> None:
        """Write optimiser and schedule."""
        schedule = None if self.scheduler is None else self.scheduler.state_dict()
        torch.save({"optimizer": self.optimizer.state_dict(), "scheduler": schedule}, folder / _OPTIMISER)

    def load(self, folder: Path) -> None:
        """Go on with what both wrote.

        Raises:
            FileNotFoundError: there is no critic in that folder.
        """
        if not (folder / _OPTIMISER).exists():
            raise FileNotFoundError(
                f"{folder.parent} has no critic to go on with: it was written by another algorithm than ppo, "
                "or with save_only_model"
            )
        self.model.load(folder)
        state = torch.load(folder / _OPTIMISER, map_location=self._accelerator.device, weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])

    def _step(self) -> torch.Tensor:
        """One update with the gradients of all processes; returns their norm."""
        for parameter in self.model.parameters():
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self._accelerator.reduce(mine, "sum")
        limit = self.settings.max_grad_norm or float("inf")
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        return norm

    def _parts(self, readings: Sequence[Reading]) -> Iterator[tuple[list[Reading], torch.Tensor]]:
        """Some readings of similar length at a time, and where their values belong."""
        shared = joined(readings)
        stops = np.cumsum([len(reading.ends) for reading in shared], dtype=np.intp)
        order = sorted(range(len(shared)), key=lambda number: len(shared[number].ids))
        for first in range(0, len(order), self._at_once):
            chosen = order[first : first + self._at_once]
            places = [np.arange(stops[i] - len(shared[i].ends), stops[i]) for i in chosen]
            yield [shared[i] for i in chosen], torch.from_numpy(np.concatenate(places))

    def _read(self, readings: Sequence[Reading]) -> torch.Tensor:
        """The values of readings in one pass."""
        ids = nn.utils.rnn.pad_sequence([torch.tensor(r.ids) for r in readings], batch_first=True)
        lengths = torch.tensor([len(reading.ids) for reading in readings])
        mask = (torch.arange(ids.size(1)) < lengths[:, None]).long()
        device = self._accelerator.device
        # float16 would need its loss scaled, which is bound to the policy's optimiser
        half = self._accelerator.mixed_precision == "fp16"
        with nullcontext() if half else self._accelerator.autocast():
            values = self.model(ids.to(device), mask.to(device))
        rows = [torch.full((len(r.ends),), row) for row, r in enumerate(readings)]
        columns = [torch.tensor(r.ends) - 1 for r in readings]
        wanted: torch.Tensor = values[torch.cat(rows).to(device), torch.cat(columns).to(device)]
        return wanted
