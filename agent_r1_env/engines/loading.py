"""A model as an engine, by its path or its address."""

from __future__ import annotations

from typing import Any

from agent_r1_env.engines import Engine
from agent_r1_env.errors import AgentR1Error, EngineError, missing_extra, unknown_name

ENGINES = ("vllm", "transformers", "server")


def load(
    model: str, engine: str | None = None, *, seed: int = 0, tokenizer: str | None = None, **options: Any
) -> Engine:
    """The engine that samples from a model; it is its owner's to close.

    Args:
        model: a folder, or a name on the Hugging Face Hub; or the address of a vLLM server, such as
            ``http://localhost:8000``, and with commas several of one model.
        engine: one of `ENGINES`; by default "server" for addresses and "vllm" for all else.
        seed: of what is sampled without a seed of its own; a server has its own.
        tokenizer: folder or name; by default that of the model. For servers alone.
        options: of `engines.server.ServerEngine`, for servers alone.

    Raises:
        EngineError: the model cannot be loaded, or no server answers there.
        MissingExtra: a package for it is not installed.
        UnknownName: there is no such engine.
    """
    addresses = servers(model)
    engine = engine or ("server" if addresses else "vllm")
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if engine == "server":
        if not addresses:
            raise EngineError(f"{model!r} is no address of a server; write http://host:port")
        from agent_r1_env.engines.server import ServerEngine

        return ServerEngine(addresses, tokenizer=tokenizer, **options)
    if addresses:
        raise EngineError(f"the engine {engine!r} loads a folder or a name, not {model!r}; use 'server'")
    if options or tokenizer is not None:
        names = [*options, *(["tokenizer"] if tokenizer is not None else [])]
        raise TypeError(f"only the engine 'server' takes {', '.join(names)}")
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


def servers(model: str) -> list[str]:
    """The addresses that a model's name is a list of; none where it is a name or a folder."""
    parts = [part.strip() for part in model.split(",") if part.strip()]
    return parts if parts and all(part.startswith(("http://", "https://")) for part in parts) else []


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
