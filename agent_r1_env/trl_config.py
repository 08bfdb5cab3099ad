"""What of TRL's settings fits training on episodes, and what does not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from agent_r1_env.errors import MissingExtra, hint

LOSSES = ("bnpo", "cispo", "dapo", "dr_grpo", "grpo", "luspo", "sapo")
"""Losses that are sums over tokens, so that it does not matter how an episode is cut into rows."""

_UNSUPPORTED = {
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "chat_template_kwargs": None,
    "vllm_structured_outputs_regex": None,
    "vllm_enable_sleep_mode": False,
}


def check_version() -> None:
    """Refuse a TRL whose inner methods are not those that the adapter was made for.

    Raises:
        MissingExtra: another version is installed; the message ends in the pip command.
    """
    found = version("trl")
    if found.split(".")[:2] != ["1", "16"]:
        raise MissingExtra(
            f"trl {found} is installed, but training needs 1.16; run: pip install 'trl>=1.16,<1.17'"
        )


def adapted(args: Any, servers: Sequence[str] = (), weight_sync: str | None = None) -> Any:
    """A copy of a ``GRPOConfig`` with what TRL's defaults get wrong for episodes set right.

    - ``vllm_importance_sampling_mode``: TRL's default "sequence_mask" becomes "token_truncate", because a
      ratio over a whole sequence grows with the length of an episode. The other sequence mode is kept, with
      a warning.
    - ``bf16`` is TRL's default everywhere; without an accelerator it is turned off, because there vLLM and
      the trainer agree in float32 only.

    Raises:
        ValueError: a setting that would be ignored or would train on something else than whole episodes.
    """
    import torch

    args = copy.copy(args)
    if servers:
        args.vllm_mode = "server"
    _refuse(args)
    if (servers or weight_sync) and not (args.use_vllm and args.vllm_mode == "server"):
        asked = "servers" if servers else "weight_sync"
        need = "use_vllm: true" if servers else "use_vllm: true and vllm_mode: server"
        raise ValueError(f"{asked} means nothing without vLLM behind a URL; set {need}, or leave {asked} out")
    if args.vllm_importance_sampling_mode == "sequence_mask":
        args.vllm_importance_sampling_mode = "token_truncate"
    if args.bf16 and not torch.accelerator.is_available():
        args.bf16, args.mixed_precision = False, "no"
    _warn(args)
    return args


def _refuse(args: Any) -> None:
    if args.loss_type == "vespo":
        raise ValueError(
            "loss_type 'vespo' weighs a token by the ratios of its whole sequence, and an episode whose "
            "context was rewritten is several sequences, which need not be in one batch; use 'cispo', which "
            "weighs by token"
        )
    if args.loss_type not in LOSSES:
        raise ValueError(
            f"loss_type {args.loss_type!r} does not fit whole episodes{hint(args.loss_type, LOSSES)}"
        )
    if args.loss_type == "cispo" and args.epsilon_high is None:
        raise ValueError(
            "loss_type 'cispo' needs epsilon_high, for instance 5.0: TRL's default would clip every weight"
        )
    if (gpus := args.vllm_tensor_parallel_size) not in (None, 1):
        raise ValueError(
            f"vllm_tensor_parallel_size={gpus!r}: processes that share a vLLM have to ask it for the same in "
            "the same order, and episodes that end when they end do not; run `vllm serve MODEL "
            f"--tensor-parallel-size {gpus}` on GPUs of its own (--data-parallel-size for copies), name its "
            "URL under servers: and leave vllm_tensor_parallel_size out"
        )
    for name, default in _UNSUPPORTED.items():
        value = getattr(args, name)
        if value is not None and value != default and value != {}:
            raise ValueError(f"{name}={value!r} is not supported for episodes; leave it at {default!r}")


def _warn(args: Any) -> None:
    sequence = args.importance_sampling_level == "sequence" or (
        args.use_vllm and args.vllm_importance_sampling_mode.startswith("sequence")
    )
    if sequence:
        warnings.warn(
            "importance sampling over whole sequences weighs long episodes extremely, and one of several "
            "rows differently from one of a single row; prefer the token level",
            stacklevel=4,
        )
    if args.off_policy_mask_threshold is not None:
        warnings.warn(
            "off_policy_mask_threshold drops by the mean over a row, so an episode of several rows may lose "
            "some of them; vllm_importance_sampling_mode 'token_mask' drops by token",
            stacklevel=4,
        )
    if args.mask_truncated_completions:
        warnings.warn(
            "mask_truncated_completions looks at the last token of a row only, so it drops the episodes "
            "whose last reply was cut and no others; leave it to the reward to tell those apart",
            stacklevel=4,
        )
