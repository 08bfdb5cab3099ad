"""How a trainer of TRL plays episodes: with which engine, seeds and sampling, on every process alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import gather_object

from agent_r1_env.engines import Engine, Sampling
from agent_r1_env.episode import Episode, EpisodeFile
from agent_r1_env.errors import EngineError
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.weighed import WeighedGRPOTrainer

Play = Callable[[Sequence[EpisodeRequest]], Sequence[Episode]]


class PlayingGRPOTrainer(WeighedGRPOTrainer):
    """``trl.GRPOTrainer`` that plays episodes with the weights of now."""

    _env: str
    _env_kwargs: Mapping[str, Any] | None
    _concurrency: int
    _representation: str
    _custom_play: Play | None
    _episodes_path: str | Path | None
    _last_loaded_step: int  # TRL's: the step whose weights vLLM has
    _file: EpisodeFile | None = None
    _engine: Engine | None = None
    _rollout: Rollout | None = None

    def engine(self) -> Engine:
        """The engine that samples in training, with the weights of now; to be called on every process."""
        # TRL does this where it generates by itself, which is too late for episodes.
        if self.use_vllm and self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        if self._engine is None:
            self._engine = self._new_engine()
        return self._engine

    def close(self) -> None:
        """Let go of the environments, the engine and the episode file."""
        for part in (self._rollout, self._engine, self._file):
            if part is not None:
                part.close()

    def _new_engine(self) -> Engine:
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
        engine = self.engine()
        if self._rollout is None:
            self._rollout = Rollout(
                self._env,
                self._env_kwargs,
                engine=engine,
                concurrency=self._concurrency,
                representation=self._representation,
            )
        noted = training and not greedy
        self._rollout.on_episode = self._file.append if self._file is not None and noted else None
        self._rollout.sampling = Sampling(
            max_tokens=self.max_completion_length,
            temperature=0.0 if greedy else self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self._seed(training, self.accelerator.process_index),
        )
        self.model.eval()
        try:
            return self._rollout.run(requests, policy_version=self.state.global_step)
        finally:
            self.model.train(training)

    def _requests(self, inputs: Sequence[Mapping[str, Any]], training: bool) -> list[EpisodeRequest]:
        """One request an input; a group shares its task and the seed of its environments."""
        size = self.num_generations if training else self.num_generations_eval
        first = self.accelerator.process_index * len(inputs)
        groups = [(first + place) // size for place in range(len(inputs))]  # one may lie across processes
        return [
            EpisodeRequest(row["task"], self._seed(training, 1 << 16, group), group)
            for row, group in zip(inputs, groups, strict=True)
        ]

    def _seed(self, *numbers: int) -> int:
        """A seed that is the same after a restart, and another for each batch and each purpose."""
        batch = self._step % self.args.gradient_accumulation_steps
        sequence = np.random.SeedSequence((self.args.seed, self.state.global_step, batch, *numbers))
        return int(sequence.generate_state(1)[0])

    def _write_down(self, episodes: Sequence[Episode]) -> None:
        """Have the main process write what its own rollout did not: custom episodes, those of others."""
        if self._episodes_path is None:
            return
        everybody = gather_object(list(episodes)) if self.accelerator.num_processes > 1 else episodes
        for episode in everybody[len(episodes) if self._custom_play is None else 0 :]:
            if self._file is not None:
                self._file.append(episode)
