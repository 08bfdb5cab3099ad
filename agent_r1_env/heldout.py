"""The evaluation of a training run on tasks that it never trains on, and the best policy by it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_r1_env import assembly, lora
from agent_r1_env.errors import hint
from agent_r1_env.evaluate import evaluate
from agent_r1_env.progress import Progress
from agent_r1_env.recipe import Recipe
from agent_r1_env.results import Results
from agent_r1_env.summary import is_count

if TYPE_CHECKING:
    from agent_r1_env.grpo import AgentGRPOTrainer

EXACT_MATCH, REWARD = "exact_match", "reward"
_LOGGED = ("tool_call_rate", "invalid_call_rate", "answer_rate", "truncation_rate")


class HeldOut:
    """Evaluates the policy of now, on every process: the main one plays, the others hand over their weights.

    The tasks and all seeds are the same each time, and nothing that training draws from is touched.

    Attributes:
        seconds: spent while training was under way.
    """

    def __init__(self, plan: Recipe, trainer: AgentGRPOTrainer, results: Results, progress: Progress) -> None:
        self._plan, self._trainer, self._results, self._progress = plan, trainer, results, progress
        self._main = trainer.accelerator.is_main_process
        self.seconds = 0.0

    def __call__(self, when: str, told: Callable[[int, int], None]) -> dict[str, Any] | None:
        """Scores of the policy, on the main process alone; ``when`` names the file of the episodes."""
        wanted = self._plan.eval
        engine = self._trainer.engine()
        scores = None
        if self._main:
            file = self._results.evaluation(when)
            file.unlink(missing_ok=True)
            scores = evaluate(
                self._plan.env,
                engine=engine,
                n=wanted.episodes,
                env_kwargs=wanted.env_kwargs,
                seed=wanted.seed,
                sampling=assembly.eval_sampling(self._trainer, self._plan),
                structured=self._plan.structured,
                concurrency=self._plan.concurrency,
                name=self._plan.model if when == "before" else f"{self._results.folder.name} {when}",
                episodes=file,
                progress=told,
            ).to_dict()
            self._results.log_evaluation(int(self._trainer.state.global_step), _numbers(scores))
        self._trainer.accelerator.wait_for_everyone()
        return scores

    def during(self, step: int) -> None:
        """Evaluate after an update, tell the score and keep the policy if it is the best so far."""
        begun = time.perf_counter()
        scores = self(str(step), lambda done, tasks: self._progress.busy(f"evaluating {done}/{tasks}"))
        better = self.keep(step, scores)
        if scores is not None:
            name = self.measure(scores)
            value = _mean(scores, name)
            text = "no score" if value is None else f"{value:.3f}{', the best so far' if better else ''}"
            self._progress.tell(f"held-out tasks after update {step}: {name} {text}")
        self.seconds += time.perf_counter() - begun

    def keep(self, step: int, scores: Mapping[str, Any] | None) -> bool:
        """Save the policy as the best one if no earlier evaluation scored as high; on every process.

        Args:
            scores: of the main process.
        """
        better = False
        record: dict[str, Any] = {}
        if self._main and scores is not None:
            name = self.measure(scores)
            value, best = _mean(scores, name), self._results.best_record()
            better = value is not None and (best is None or value > best["value"])
            shutil.rmtree(self._results.new_best, ignore_errors=True)  # of a run that was killed
            record = {"step": step, "metric": name, "value": value}
        better = bool(of_main(better))
        if better:
            save_policy(self._trainer, self._plan, self._results.new_best)
            if self._main:
                self._results.place_best(record)
        return better

    def measure(self, scores: Mapping[str, Any]) -> str:
        """What the best policy is chosen by.

        Raises:
            RecipeError: the environment reports no such metric.
        """
        known = [*scores["metrics"], REWARD]
        name = self._plan.eval.best
        if name is None:
            return EXACT_MATCH if EXACT_MATCH in known else REWARD
        if name not in known:
            raise self._plan.error(f"the evaluation has no {name!r}{hint(name, known)}", "eval", "best")
        return name


def save_policy(trainer: AgentGRPOTrainer, plan: Recipe, folder: Path) -> None:
    """Write the policy of now with its tokenizer; to be called on every process.

    With an adapter it is the whole model, and the adapter lies in a folder in it; or the adapter alone, as
    the recipe says.
    """
    merged = plan.lora is not None and plan.lora.save_merged
    trainer.save_model(str(folder / lora.ADAPTER if merged else folder))
    if merged and trainer.accelerator.is_main_process:
        lora.save_merged(trainer.accelerator.unwrap_model(trainer.model), folder)
        trainer.processing_class.save_pretrained(folder)


def of_main(value: Any) -> Any:
    """What the main process has, on every process."""
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value])[0]


def _mean(scores: Mapping[str, Any], name: str) -> float | None:
    found = scores[REWARD] if name == REWARD else scores["metrics"][name]
    mean: float | None = found["mean"]
    return mean


def _numbers(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """What is logged of an evaluation: means, and the ends of the intervals of scores."""
    numbers: dict[str, float | None] = {"episodes": scores["n"]}
    for name, found in {REWARD: scores[REWARD], **scores["metrics"]}.items():
        numbers[name] = found["mean"]
        if not is_count(name):
            numbers |= {f"{name}/low": found["low"], f"{name}/high": found["high"]}
    return numbers | {name: scores[name] for name in _LOGGED}
