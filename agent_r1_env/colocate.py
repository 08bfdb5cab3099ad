"""vLLM beside the trainer in one process, on a machine without an accelerator; and the choice of any vLLM.

TRL's colocated mode is written for GPUs. Three things must differ on a CPU, all of them measured:

- vLLM picks bfloat16 for a float32 checkpoint by itself, so the sampler and the trainer would disagree
  about every log-probability; the float type is given explicitly.
- TRL pushes parameters one by one, which fails on the packed weights of the CPU kernels; ``reload_weights``
  repacks.
- A tied ``lm_head`` is packed a second time and no parameter carries its name, so it would silently keep
  the old weights; it is sent by name.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trl.generation.vllm_generation as vllm_generation
import trl.trainer.grpo_trainer as grpo_trainer

from agent_r1_env import lora
from agent_r1_env.engines.vllm import CPU_OPTIONS, ENVIRONMENT, calm_llvmlite

_HEAD = "lm_head.weight"


class MergingVLLMGeneration(vllm_generation.VLLMGeneration):  # type: ignore[misc]  # TRL ships no types
    """TRL's colocated vLLM, which gets merged weights without the frozen ones being touched."""

    def _iter_named_params(self) -> Iterator[tuple[str, torch.Tensor]]:
        model = self.accelerator.unwrap_model(self.model)
        merged = lora.merges_by_itself(model)
        yield from lora.merged_weights(model) if merged else super()._iter_named_params()

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights with a tied ``lm_head`` by its own name, which CPU kernels need to repack it."""
        model = self.accelerator.unwrap_model(self.model)
        head = getattr(model.get_output_embeddings(), "weight", None)
        output = next((lora.plain(name) for name, weight in model.named_parameters() if weight is head), None)
        for name, weight in self._iter_named_params():
            yield name, weight
            if name == output != _HEAD:
                yield _HEAD, weight


class CPUVLLMGeneration(MergingVLLMGeneration):
    """The same with weights that reach the CPU kernels."""

    def _init_vllm(self) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # TRL tries the same few ports in every process, so that two runs begun together meet at one.
        os.environ.setdefault("MASTER_PORT", str(_free_port()))
        original = vllm_generation.LLM
        model = self.accelerator.unwrap_model(self.model)
        dtype = str(model.dtype).removeprefix("torch.")
        ours = {"dtype": dtype, "use_tqdm_on_load": False, **CPU_OPTIONS}

        def llm(**options: Any) -> Any:
            longest = options.get("max_model_len") or model.config.get_text_config().max_position_embeddings
            batched = max(options["max_num_batched_tokens"], longest)  # a prompt is read in one piece
            return original(**{**options, **ours, "max_num_batched_tokens": batched})

        vllm_generation.LLM = llm
        calm_llvmlite()
        try:
            super()._init_vllm()
        finally:
            vllm_generation.LLM = original

    def sync_weights(self) -> None:
        """Give vLLM the trainer's weights, and drop what it cached under the old ones."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._weights()})
        self.llm.reset_prefix_cache()


def _free_port() -> int:
    """A port of the system's choice."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def generating(args: Any, servers: Sequence[str] = (), weight_sync: str | None = None) -> Iterator[None]:
    """Context in which a ``GRPOTrainer`` is built with the vLLM that fits its settings and this machine.

    Args:
        args: TRL's settings.
        servers: addresses of vLLM servers, beside the one that ``args`` names.
        weight_sync: how their weights are sent, see `agent_r1_env.served.way_of`.

    Raises:
        ValueError: weights cannot be sent like this from here.
    """
    original = grpo_trainer.VLLMGeneration
    if urls := _urls(args, servers):
        from agent_r1_env.served import ServedVLLMGeneration, way_of

        way, folder = way_of(weight_sync), Path(args.output_dir) / "weights"
        chosen: Any = partial(ServedVLLMGeneration, servers=urls, weight_sync=way, folder=folder)
    else:
        chosen = MergingVLLMGeneration if torch.accelerator.is_available() else CPUVLLMGeneration
    grpo_trainer.VLLMGeneration = chosen
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = original


def _urls(args: Any, servers: Sequence[str]) -> list[str]:
    """The servers that settings of TRL and a list name, without the path of the API."""
    if not args.use_vllm or args.vllm_mode != "server":
        return []
    named = list(servers)
    if args.vllm_server_base_url is not None:
        named.insert(0, args.vllm_server_base_url)
    if not named:
        named = [f"http://{args.vllm_server_host}:{args.vllm_server_port}"]
    return list(dict.fromkeys(url.rstrip("/").removesuffix("/v1") for url in named))
