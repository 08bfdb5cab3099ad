"""How a trainer of TRL plays episodes: with which engine, seeds and sampling, on every process alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from agent_r1_env.engines import Engine, Sampling, Updatable
from agent_r1_env.episode import Episode, EpisodeFile
from agent_r1_env.errors import EngineError
from agent_r1_env.executors import Executor
from agent_r1_env.overlap import Ages, Ahead, Batch, Fetched, Lookahead, Overlap
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.weighed import WeighedGRPOTrainer

Play = Callable[[Sequence[EpisodeRequest]], Sequence[Episode]]
When = tuple[int, int]
"""An update, and the number of one of the micro-batches that it is made of."""


class PlayingGRPOTrainer(WeighedGRPOTrainer):
    """``trl.GRPOTrainer`` that plays episodes with the weights of now."""

    _env: str
    _env_kwargs: Mapping[str, Any] | None
    _concurrency: int
    _executor: Executor = Executor()
    _representation: str
    _structured: bool
    _custom_play: Play | None
    _episodes_path: str | Path | None
    _last_loaded_step: int  # TRL's: the step whose weights vLLM has
    _file: EpisodeFile | None = None
    _engine: Engine | None = None
    _rollout: Rollout | None = None
    _overlap: Overlap = Overlap()
    _ahead: Ahead | None = None  # None: each batch is played when it is asked for
    _batches: Lookahead[Sequence[Mapping[str, Any]]] | None = None
    _opened: int = 0  # TRL's number of the micro-batch with which this update began
    _fetched: list[Fetched]

    def engine(self) -> Engine:
        """The engine that samples in training, with the weights of now; to be called on every process."""
        if self._engine is None:
            self._engine = self._new_engine()
        # TRL does this where it generates by itself, which is too late for episodes.
        if self.use_vllm and self.state.global_step != self._last_loaded_step:
            with _updating(self._engine, self.state.global_step):
                self.vllm_generation.sync_weights()
                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()  # the engine's thread does not wait for this one's copies
            self._last_loaded_step = self.state.global_step
        return self._engine

    def close(self) -> None:
        """Let go of the environments, the engine and the episode file."""
        for part in (self._ahead, self._rollout, self._engine, self._file):
            if part is not None:
                part.close()

    def _new_engine(self) -> Engine:
        if self.use_vllm and self.vllm_mode == "server":
            from agent_r1_env.engines.server import ServerEngine

            main = self.accelerator.is_main_process
            return ServerEngine(self.vllm_generation.servers, tokenizer=self._tokenizer, leads=main)
        if self.use_vllm:
            from agent_r1_env.engines.vllm import VLLMEngine

            return VLLMEngine(self.vllm_generation.llm, self._tokenizer)
        from agent_r1_env.engines.hf import TransformersEngine

        return TransformersEngine(self.accelerator.unwrap_model(self.model), self._tokenizer)

    def _episodes(
        self, requests: Sequence[EpisodeRequest], training: bool, greedy: bool = False
    ) -> Sequence[Episode]:
        """The episodes asked for; an error of one process is raised in all, so that none waits forever."""
        episodes: Sequence[Episode] = []
        failure: Exception | None = None
        try:
            episodes = self._play(requests, training, greedy)
            if len(episodes) != len(requests):
                raise EngineError(f"{len(requests)} episodes were asked for and {len(episodes)} came back")
        except Exception as error:  # told to the other processes, then raised
            failure = error
        failures = gather_object([f"{type(failure).__name__}: {failure}" if failure else None])
        if failure is not None:
            raise failure
        for process, text in enumerate(failures):
            if text is not None:
                raise EngineError(f"the rollout of process {process} failed: {text}")
        return episodes

    def _play(self, requests: Sequence[EpisodeRequest], training: bool, greedy: bool) -> Sequence[Episode]:
        """Play with the weights of now; each process draws from seeds of its own."""
        if self._custom_play is not None:
            return self._custom_play(requests)
        if self._ahead is not None and training:
            self._fetched.append(self._ahead.fetch((self._step, greedy), requests))
            return self._fetched[-1].episodes
        self.engine()
        if self._rollout is None:
            self._rollout = self._new_rollout()
        noted = training and not greedy
        self._rollout.on_episode = self._file.append if self._file is not None and noted else None
        self._rollout.sampling = self._sampling(self._now(), training, greedy)
        self.model.eval()
        try:
            return self._rollout.run(requests, policy_version=self.state.global_step)
        finally:
            self.model.train(training)

    def _new_rollout(self) -> Rollout:
        assert self._engine is not None  # whoever plays gave it the weights of now
        return self._executor.rollout(
            self._env,
            self._env_kwargs,
            engine=self._engine,
            concurrency=self._concurrency,
            representation=self._representation,
            structured=self._structured,
        )

    def _sampling(self, when: When, training: bool, greedy: bool) -> Sampling:
        return Sampling(
            max_tokens=self.max_completion_length,
            temperature=0.0 if greedy else self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self._seed(when, training, self.accelerator.process_index),
        )

    def _requests(
        self, inputs: Sequence[Mapping[str, Any]], training: bool, when: When | None = None
    ) -> list[EpisodeRequest]:
        """One request an input; a group shares its task and the seed of its environments.

        Args:
            when: the batch is trained on; None is now.
        """
        when = when or self._now()
        size = self.num_generations if training else self.num_generations_eval
        first = self.accelerator.process_index * len(inputs)
        groups = [(first + place) // size for place in range(len(inputs))]  # one may lie across processes
        return [
            EpisodeRequest(row["task"], self._seed(when, training, 1 << 16, group), group)
            for row, group in zip(inputs, groups, strict=True)
        ]

    def _leaders(self, requests: Sequence[EpisodeRequest], training: bool) -> list[EpisodeRequest]:
        """The first of each group, on the process that has it."""
        size = self.num_generations if training else self.num_generations_eval
        first = self.accelerator.process_index * len(requests)
        return [request for place, request in enumerate(requests, first) if place % size == 0]

    def _now(self) -> When:
        return self.state.global_step, self._step % self.args.gradient_accumulation_steps

    def _seed(self, when: When, *numbers: int) -> int:
        """A seed that is the same after a restart, and another for each batch and each purpose."""
        sequence = np.random.SeedSequence((self.args.seed, *when, *numbers))
        return int(sequence.generate_state(1)[0])

    def _write_down(self, episodes: Sequence[Episode]) -> None:
        """Have the main process write what its own rollout did not: custom episodes, those of others.

        Of those that were played ahead, only what is trained on is written, in that order.
        """
        if self._episodes_path is None:
            return
        everybody = gather_object(list(episodes)) if self.accelerator.num_processes > 1 else episodes
        written = self._custom_play is None and self._ahead is None
        for episode in everybody[len(episodes) if written else 0 :]:
            if self._file is not None:
                self._file.append(episode)

    # -- overlap

    def train(self, *arguments: Any, **options: Any) -> Any:
        """TRL's; nothing plays on when it ends, however it does."""
        try:
            return super().train(*arguments, **options)
        finally:
            if self._ahead is not None:
                self._ahead.drop()

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """TRL's, called at the beginning of each update; with overlap, it is where batches are begun."""
        if self._ahead is not None:
            if self._batches is None or self._batches.source is not epoch_iterator:
                self._ahead.drop()  # what an epoch that was broken off leaves
                self._batches = Lookahead(epoch_iterator)
            self.engine()
            self._begin_batches(self._ahead, self._batches)
            epoch_iterator = self._batches
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def _begin_batches(self, ahead: Ahead, batches: Lookahead[Sequence[Mapping[str, Any]]]) -> None:
        """Begin all batches of this epoch for which the weights of now are fresh enough."""
        every = self.args.steps_per_generation * self.num_iterations
        parts = self.args.gradient_accumulation_steps
        now, self._opened = self.state.global_step, self._step
        for place in range((self._overlap.staleness + 1) * parts - every + 1):
            step, when = self._step + place, (now + place // parts, (self._step + place) % parts)
            if step % every or when[0] >= self.state.max_steps or (step, False) in ahead:
                continue
            inputs = batches.peek(place)
            if inputs is None:
                return
            requests = self._requests(inputs, True, when)
            ahead.begin((step, False), Batch(requests, self._sampling(when, True, False), when[0], now))
            if self._plays_greedy():
                leaders, sampling = self._leaders(requests, True), self._sampling(when, True, True)
                ahead.begin((step, True), Batch(leaders, sampling, when[0], now))

    def _plays_greedy(self) -> bool:
        """Whether training needs a greedy episode of each task."""
        return False

    def _overlapped(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """What overlap did to a batch, as metrics of all processes.

        Raises:
            EngineError: a token is older than allowed, which is a fault of this program.
        """
        fetched, self._fetched = self._fetched, []
        every = self.args.steps_per_generation * self.num_iterations
        updates = (self._step - self._opened + every - 1) // self.args.gradient_accumulation_steps
        own = Ages.of(episodes, self.state.global_step + updates)
        known = gather_object([(own, sum(part.waited for part in fetched), fetched[0].seconds)])
        ages = sum((part for part, _, _ in known), Ages())
        if ages.highest > self._overlap.staleness:
            raise EngineError(
                f"a token is {ages.highest} updates old, with overlap.staleness {self._overlap.staleness}"
            )
        waited, seconds = max(part[1] for part in known), max(part[2] for part in known)
        return {
            "staleness/mean": ages.mean,
            "staleness/max": ages.highest,
            "rollout_seconds": seconds,
            "overlap_wait_seconds": waited,
            "overlap_hidden": max(0.0, 1 - waited / max(seconds, 1e-9)),
        }


def _updating(engine: Engine, version: int) -> AbstractContextManager[None]:
    """Hold an engine still, if it works on requests while its weights are changed."""
    return engine.updating(version) if isinstance(engine, Updatable) else nullcontext()
