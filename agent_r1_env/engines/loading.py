"""A local model as an engine, by its path."""

from __future__ import annotations

from typing import Any

from agent_r1_env.engines import Engine
from agent_r1_env.errors import AgentR1Error, EngineError, missing_extra


def load(model: str, engine: str = "vllm", *, seed: int = 0) -> Engine:
    """The engine that samples from a model; it is its owner's to close.

    Args:
        model: a folder, or a name on the Hugging Face Hub.
        engine: "vllm" or "transformers".

    Raises:
        EngineError: the model cannot be loaded.
        MissingExtra: a package for it is not installed.
    """
    try:
        if engine == "transformers":
            return _transformers_engine(model, seed)
        from agent_r1_env.engines.vllm import VLLMEngine

        return VLLMEngine.load(model, seed=seed)
    except (OSError, ValueError) as error:
        if isinstance(error, AgentR1Error):
            raise
        reason = (str(error).strip().splitlines() or [""])[0]
        raise EngineError(f"cannot load the model {model!r}: {reason}") from error


def _transformers_engine(model: str, seed: int) -> Engine:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "transformers", "train") from error
    from agent_r1_env.engines.hf import TransformersEngine

    gpu = torch.cuda.is_available()
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype="auto" if gpu else torch.float32)
    return TransformersEngine(
        loaded.to("cuda" if gpu else "cpu"), AutoTokenizer.from_pretrained(model), seed=seed
    )
