"""Training a low-rank adapter in place of all weights, with peft, which is imported when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_r1_env.errors import missing_extra

ADAPTER = "adapter"
"""Folder of the adapter beside merged weights."""


@dataclass(frozen=True)
class Lora:
    """The adapter of a recipe.

    Attributes:
        r: rank of the update of each weight matrix.
        alpha: the update is scaled by ``alpha / r``.
        dropout: of the adapter's input in training; log-probs then differ from those of the sampler.
        target_modules: names of layers, or "all-linear" for all but the output layer.
        save_merged: a saved policy is a whole model with the adapter in its folder ``adapter``, not the
            adapter alone, which only transformers can load.
    """

    r: int = 16
    alpha: float = 32
    dropout: float = 0.0
    target_modules: str | Sequence[str] = "all-linear"
    save_merged: bool = True

    def config(self) -> Any:
        """The ``peft.LoraConfig`` for TRL.

        Raises:
            MissingExtra: peft is not installed.
        """
        try:
            from peft import LoraConfig
        except ModuleNotFoundError as error:
            raise missing_extra(error.name or "peft", "lora") from error
        modules = self.target_modules if isinstance(self.target_modules, str) else list(self.target_modules)
        return LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,  # type: ignore[arg-type]  # peft divides by it, whole or not
            lora_dropout=self.dropout,
            target_modules=modules,
            task_type="CAUSAL_LM",
        )


def is_adapted(model: Any) -> bool:
    """Whether a model has an adapter."""
    from accelerate.utils import is_peft_model

    return bool(is_peft_model(model))


def ties(model: Any) -> bool:
    """Whether the adapter changes an input layer whose weights are also those of the output layer.

    The two are no longer the same then, so that no model without an adapter could stand for this one.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    tied = model.config.get_text_config().tie_word_embeddings
    return bool(tied) and isinstance(model.get_input_embeddings(), BaseTunerLayer)


def merges_by_itself(model: Any) -> bool:
    """Whether `merged_weights` knows how to merge a model: plain LoRA, whole in this process."""
    if not is_adapted(model):
        return False
    from peft import LoraConfig

    configs = [model.peft_config[name] for name in model.active_adapters]
    plain = all(
        type(config) is LoraConfig and not (config.use_dora or config.lora_bias or config.modules_to_save)
        for config in configs
    )
    return plain and all(
        weight.numel() and not hasattr(weight, "full_tensor") for weight in model.parameters()
    )


def merged_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights with the adapter merged in, by the names that they have without an adapter.

    Each is a new tensor, so that the frozen weights stay exactly what they are. Merging in place and taking
    out again, as peft and TRL do, rounds twice: done at every update, it lets the frozen weights drift.
    """
    import torch
    from peft.tuners.lora import LoraLayer

    base = model.get_base_model()
    layers: dict[str, Any] = {
        f"{name}.base_layer.weight": each
        for name, each in base.named_modules()
        if isinstance(each, LoraLayer)
    }
    for name, weight in base.named_parameters():
        if model.prefix in name:
            continue
        merged = weight.data
        if name in layers:
            layer = layers[name]
            with torch.no_grad():
                for adapter in layer.active_adapters:
                    merged = merged + layer.get_delta_weight(adapter).to(merged)
        yield plain(name), merged


def plain(name: str) -> str:
    """The name of a weight without the words that peft puts around it."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def save_merged(model: Any, folder: str | Path) -> None:
    """Write the model with its adapter merged in as an ordinary one; the model itself stays as it is."""
    model.get_base_model().save_pretrained(folder, state_dict=dict(merged_weights(model)))
