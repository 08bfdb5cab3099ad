"""A transformers model as an engine: slower than vLLM, but it needs nothing else and runs anywhere.

Requests that wait at the same time become one left-padded batch. The next batch begins when the last row of
this one is done, so replies of very different lengths waste time; vLLM doesn't have that problem.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from agent_r1_env.engines import Generation, Sampling, Tokenizer, only_free
from agent_r1_env.engines.worker import Worker, WorkerEngine
from agent_r1_env.messages import FinishReason


class TransformersEngine(WorkerEngine):
    """Samples from a causal language model of transformers.

    The model is only touched while a request waits, in evaluation mode and without gradients, and is left in
    the mode in which it was found.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        max_model_len: int | None = None,
        max_batch: int = 64,
        seed: int = 0,
    ) -> None:
        """Use a model that is loaded already.

        Args:
            max_model_len: None is what the model's configuration says.
            max_batch: Rows computed at once.
            seed: Of everything that is sampled without a seed of its own; torch's global state is not used.
        """
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len or int(model.config.get_text_config().max_position_embeddings)
        self._worker = Worker(_Backend(model, tokenizer, max_batch, seed), "transformers")


@dataclass
class _Row:
    """One reply under way."""

    key: str
    prompt_ids: list[int]
    sampling: Sampling
    generator: torch.Generator
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    over: bool = False


class _Backend:
    """Turns waiting requests into batches and moves the batch on by one token at a time."""

    def __init__(self, model: Any, tokenizer: Tokenizer, max_batch: int, seed: int) -> None:
        self._model, self._tokenizer, self._max_batch = model, tokenizer, max_batch
        self._generator = torch.Generator(model.device).manual_seed(seed)
        self._stops = _end_ids(model, tokenizer)
        self._pending: list[_Row] = []
        self._batch: _Batch | None = None

    def admit(self, key: str, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        only_free(sampling, "a transformers model")
        generator = self._generator
        if sampling.seed is not None:
            generator = torch.Generator(self._model.device).manual_seed(sampling.seed)
        self._pending.append(_Row(key, list(prompt_ids), sampling, generator))

    def cancel(self, keys: Sequence[str]) -> None:
        self._pending = [row for row in self._pending if row.key not in keys]
        for row in self._batch.rows if self._batch else ():
            row.over = row.over or row.key in keys
        self._drop_finished_batch()

    def advance(self) -> list[tuple[str, Generation]]:
        if self._batch is None:
            rows, self._pending = self._pending[: self._max_batch], self._pending[self._max_batch :]
            self._batch = _Batch(self._model, rows)
        with _evaluating(self._model), torch.no_grad():
            running = self._batch.step()
        finished = []
        for row in running:
            reason = self._finish_reason(row)
            if reason is not None:
                row.over = True
                finished.append((row.key, Generation(row.ids, row.logprobs, reason)))
        self._drop_finished_batch()
        return finished

    def sampled(self, keys: Sequence[str]) -> Mapping[str, int]:
        counts = dict.fromkeys(keys, 0)
        return counts | {row.key: len(row.ids) for row in (self._batch.rows if self._batch else ())}

    def refresh(self) -> None:
        """Nothing: no batch reads what another computed."""

    def _drop_finished_batch(self) -> None:
        if self._batch and all(row.over for row in self._batch.rows):
            self._batch = None

    def _finish_reason(self, row: _Row) -> FinishReason | None:
        if row.ids[-1] in self._stops or row.ids[-1] in row.sampling.stop_token_ids:
            return "stop"
        if row.sampling.stop:
            text = self._tokenizer.decode(row.ids, skip_special_tokens=False)
            if any(stop in text for stop in row.sampling.stop):
                return "stop"
        return "length" if len(row.ids) >= row.sampling.max_tokens else None


class _Batch:
    """Rows that are computed together, with their key-value cache."""

    def __init__(self, model: Any, rows: list[_Row]) -> None:
        self.rows = rows
        self._model = model
        self._cache: Any = None
        width = max(len(row.prompt_ids) for row in rows)
        padded = [[0] * (width - len(row.prompt_ids)) + row.prompt_ids for row in rows]
        real = [[0] * (width - len(row.prompt_ids)) + [1] * len(row.prompt_ids) for row in rows]
        self._input = torch.tensor(padded, device=model.device)  # (B, T), left-padded
        self._mask = torch.tensor(real, device=model.device)
        # Padding must not move a prompt: positions count its own tokens.
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        only_last = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._options = {"logits_to_keep": 1} if only_last else {}

    def step(self) -> list[_Row]:
        """Sample one token for each row; returns the rows that were still running."""
        output = self._model(
            input_ids=self._input,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            **self._options,
        )
        self._cache = output.past_key_values
        logprobs = _processed(output.logits[:, -1].float(), [row.sampling for row in self.rows])  # (B, V)
        tokens = [_draw(logprobs[i], row) for i, row in enumerate(self.rows)]
        running = [row for row in self.rows if not row.over]
        for i, row in enumerate(self.rows):
            if not row.over:
                row.ids.append(tokens[i])
                row.logprobs.append(float(logprobs[i, tokens[i]]))
        self._input = torch.tensor(tokens, device=self._mask.device)[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        self._positions = self._positions[:, -1:] + 1
        return running


def _processed(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Log-probs of the distribution that is sampled from: after temperature, top-k and top-p."""
    temperatures = [sampling.temperature or 1.0 for sampling in samplings]
    logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    for i, sampling in enumerate(samplings):
        if sampling.top_k or sampling.top_p < 1:
            logits[i] = _cut(logits[i], sampling.top_k or logits.size(-1), sampling.top_p)
    return logits.log_softmax(-1)


def _cut(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Minus infinity outside the ``top_k`` best and outside the smallest set that holds ``top_p``."""
    ordered, order = logits.sort(descending=True)
    ordered[top_k:] = -torch.inf
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    ordered[before >= top_p] = -torch.inf
    return torch.empty_like(logits).scatter(-1, order, ordered)


def _draw(logprobs: torch.Tensor, row: _Row) -> int:
    if row.over:
        return 0  # computed because the batch is, read by nobody
    if row.sampling.temperature == 0:
        return int(logprobs.argmax())
    return int(torch.multinomial(logprobs.exp(), 1, generator=row.generator))


def _end_ids(model: Any, tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that always end a reply: the tokenizer's, and those of the model's own configuration."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in [*listed, tokenizer.eos_token_id] if token is not None)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
