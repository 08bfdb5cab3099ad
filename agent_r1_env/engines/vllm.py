"""vLLM in this process: its own, or the one that TRL keeps beside the trainer.

Requests of many episodes are added to the running engine and each is answered when it is done, so that vLLM
batches them continuously and nothing moves in lock-step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_r1_env.engines import Generation, Sampling, Tokenizer
from agent_r1_env.engines.worker import Worker, WorkerEngine
from agent_r1_env.errors import EngineError, missing_extra

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; without it vLLM wants a share of the whole memory, used or not
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the model is in this process, where its weights can be changed
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables that ``VLLMEngine.load`` sets where they are not set."""


CPU_OPTIONS = {
    "enforce_eager": True,  # compiling takes a minute on a CPU and gives a tenth back
    # vLLM takes back the draw of a prompt that it read in part, which the generator of a CPU cannot do: with
    # seeded requests it dies when many prompts arrive at once.
    "enable_chunked_prefill": False,
}
"""Options of ``vllm.LLM`` on a CPU."""


def calm_llvmlite() -> None:
    """Let vLLM look through all loaded modules, as it does on a CPU whenever an ``LLM`` is made.

    llvmlite, which comes with the search index, answers for every attribute that it is asked for with a
    function of its library. Asked for ``__dict__``, that is no dict, and vLLM dies of it.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "_lib_wrapper", None)
    if library is None or getattr(library, "_calm", False):
        return
    answer = library.__getattr__

    def getattr_but_dunder(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(self, name)

    library.__getattr__, library._calm = getattr_but_dunder, True


class VLLMEngine(WorkerEngine):
    """Samples from a ``vllm.LLM``.

    The ``LLM`` is only touched while a request waits, so weights may be changed within ``updating`` at any
    time. Whoever changes them otherwise does it once all answers are there, and resets the prefix cache.
    """

    def __init__(self, llm: Any, tokenizer: Tokenizer) -> None:
        """Use an existing ``LLM``, for instance ``trainer.vllm_generation.llm``; it stays its owner's.

        Raises:
            ValueError: the ``LLM`` reports log-probs of another distribution than the one it samples from.
        """
        config = llm.llm_engine.vllm_config.model_config
        if str(config.logprobs_mode) != "processed_logprobs":
            raise ValueError(
                f"vLLM needs logprobs_mode='processed_logprobs', got {str(config.logprobs_mode)!r}"
            )
        self.llm = llm
        self.tokenizer = tokenizer
        self.max_model_len = int(config.max_model_len)
        self._owned = False
        self._worker = Worker(_Backend(llm.llm_engine), "vllm", _settled())

    @classmethod
    def load(cls, model: str, *, dtype: str | None = None, seed: int = 0, **options: Any) -> VLLMEngine:
        """Load a model and its tokenizer; ``close`` frees them.

        Args:
            model: Name or folder, as for ``vllm.LLM``.
            dtype: None is float32 on a CPU, where vLLM would silently turn float32 weights into bfloat16, and
                what vLLM prefers elsewhere.
            seed: Of everything that is sampled without a seed of its own.
            options: Further arguments of ``vllm.LLM``; they win over ours.

        Environment variables that this sets where they are not set stand in ``ENVIRONMENT``.

        Raises:
            MissingExtra: vLLM is not installed.
        """
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from transformers import AutoTokenizer
            from vllm import LLM
            from vllm.platforms import current_platform
        except ModuleNotFoundError as error:
            raise missing_extra(error.name or "vllm", "train") from error
        ours: dict[str, Any] = {
            "logprobs_mode": "processed_logprobs",
            "dtype": dtype or "auto",
            "enable_prefix_caching": True,  # each prompt of an episode begins with the one before
        }
        if current_platform.is_cpu():
            ours |= {"dtype": dtype or "float32", **CPU_OPTIONS}
        calm_llvmlite()
        llm = LLM(**{"model": model, "seed": seed, **ours, **options})
        # Not the one that vLLM uses: this one is called from event loops, that one from the engine's thread.
        trusted = options.get("trust_remote_code", False)
        tokenizer = AutoTokenizer.from_pretrained(options.get("tokenizer", model), trust_remote_code=trusted)
        engine = cls(llm, tokenizer)
        engine._owned = True
        return engine

    def close(self) -> None:
        """End the engine's thread, and free the model if ``load`` made it."""
        super().close()
        if self._owned:
            self._owned = False
            self.llm.llm_engine.engine_core.shutdown()


@dataclass(frozen=True)
class _Asked:
    """A request that vLLM works on.

    Attributes:
        name: What vLLM calls it inside.
    """

    name: str
    prompt_ids: Sequence[int]
    sampling: Sampling


class _Backend:
    """The calls of ``LLMEngine`` that matter, with answers as plain data."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._asked: dict[str, _Asked] = {}
        self._changes = 0

    def admit(self, key: str, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        # vLLM cannot empty its prefix cache while requests run. With a salt, no two versions share an entry,
        # and those of the old ones go as the space is needed.
        prompt = {"prompt_token_ids": list(prompt_ids), "cache_salt": f"agent-r1/{self._changes}"}
        name = self._engine.add_request(key, prompt, _params(sampling))
        self._asked[key] = _Asked(name, prompt_ids, sampling)

    def cancel(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._asked.pop(key, None)
        self._engine.abort_request(list(keys))

    def advance(self) -> Iterator[tuple[str, Generation | Exception]]:
        for output in self._engine.step():
            if output.finished:
                self._asked.pop(output.request_id, None)
                yield output.request_id, _outcome(output)

    def sampled(self, keys: Sequence[str]) -> Mapping[str, int]:
        """Exact, but with pipeline stages or speculation: there it may count ids that are yet to be drawn."""
        requests = self._requests()
        _synchronize()  # what vLLM has launched ahead reads the weights
        return {key: _drawn(requests[self._asked[key].name]) for key in keys}

    def refresh(self) -> None:
        self._changes += 1
        requests = self._requests()
        # Those that wait for their first step have the old salt: they would begin with what it finds.
        for key, asked in list(self._asked.items()):
            request = requests[asked.name]
            if not (_drawn(request) or request.num_computed_tokens or request.num_preemptions):
                self._engine.abort_request([key])
                self.admit(key, asked.prompt_ids, asked.sampling)

    def _requests(self) -> Mapping[str, Any]:
        """vLLM's own records of its requests, by its own names.

        Raises:
            EngineError: they are in another process.
        """
        core = getattr(self._engine.engine_core, "engine_core", None)
        if core is None:
            raise EngineError(
                "weights can only be changed under way while vLLM's core is in this process; set "
                "VLLM_ENABLE_V1_MULTIPROCESSING=0 before vLLM is imported, as VLLMEngine.load does"
            )
        requests: Mapping[str, Any] = core.scheduler.requests
        return requests


def _drawn(request: Any) -> int:
    """Ids that were drawn for a request of vLLM, those included that it computes ahead."""
    draws = request.num_in_flight_tokens and not request.is_prefill_chunk  # a part of a prompt draws nothing
    return int(request.num_output_tokens + (request.num_output_placeholders or bool(draws)))


def _params(sampling: Sampling) -> Any:
    """Our wishes as vLLM's."""
    from vllm import SamplingParams  # here, so that this module can be imported without vLLM
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    structure = StructuredOutputsParams(structural_tag=sampling.structure) if sampling.structure else None
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        stop_token_ids=list(sampling.stop_token_ids) or None,
        include_stop_str_in_output=True,
        detokenize=bool(sampling.stop),  # text is only needed to find stop strings
        skip_special_tokens=False,  # a stop string may hold one, or stand beside one
        spaces_between_special_tokens=False,
        logprobs=0,
        structured_outputs=structure,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _outcome(answer: Any) -> Generation | Exception:
    """vLLM's answer as ours, or an error when vLLM gave up on the request."""
    output = answer.outputs[0]
    if output.finish_reason not in ("stop", "length"):
        return EngineError(f"vLLM ended a request with finish reason {output.finish_reason!r}")
    ids = list(output.token_ids)
    logprobs = [float(entry[token].logprob) for entry, token in zip(output.logprobs, ids, strict=True)]
    return Generation(ids, logprobs, output.finish_reason, cached_tokens=answer.num_cached_tokens)


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _settled() -> Callable[[], Any]:
    """A function that lets another thread compute as this one does.

    Each thread has an accelerator of its own choice. On a CPU it has its own number of OpenMP threads, which
    torch corrects when it first looks; vLLM dies if that is between the two times that it asks for it.
    """
    import torch

    if not torch.cuda.is_available():
        return torch.get_num_threads
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)
