"""From a recipe to TRL's trainer; imports the heavy packages when it is asked to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_r1_env import lora
from agent_r1_env.errors import AgentR1Error, RecipeError
from agent_r1_env.health import Monitor
from agent_r1_env.progress import Progress
from agent_r1_env.recipe import Recipe
from agent_r1_env.results import Results

if TYPE_CHECKING:
    from agent_r1_env.engines import Sampling
    from agent_r1_env.grpo import AgentGRPOTrainer

_DEFAULTS = {"report_to": "none", "logging_steps": 1, "save_steps": 50, "save_total_limit": 2}


def trl_config(plan: Recipe) -> Any:
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


def trainer(plan: Recipe, args: Any, results: Results, progress: Progress) -> AgentGRPOTrainer:
    """The trainer, with its engine and its data, that writes what it logs to the results.

    Raises:
        RecipeError: the model cannot be loaded or a setting does not fit, with its place in the recipe.
    """
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar

    from agent_r1_env.recorder import Recorder

    if Path(plan.model).is_dir():
        disable_progress_bar()  # shown for a second; a download keeps its own
    elif plan.model.startswith((".", "/", "~")):
        raise plan.error(f"there is no folder {plan.model}", "model")
    try:
        made = _kind(plan)(
            plan.model,
            plan.env,
            args,
            env_kwargs=plan.env_kwargs,
            train_dataset=_training_tasks(plan),
            credit=plan.credit,
            loss_mask=plan.loss_mask,
            merge=plan.merge,
            representation=plan.representation,
            structured=plan.structured,
            overlong=plan.overlong,
            overlap=plan.overlap,
            weight_by=plan.weight_by,
            episodes_path=results.episodes,
            concurrency=plan.concurrency,
            executor=plan.executor,
            rows_at_once=plan.rows_at_once,
            servers=plan.servers,
            weight_sync=plan.weight_sync,
            callbacks=[Recorder(results, progress, Monitor(plan.health))],
            peft_config=None if plan.lora is None else plan.lora.config(),
        )
    except AgentR1Error:
        raise
    except OSError as error:
        raise plan.error(f"cannot load {plan.model}: {_first_line(error)}", "model") from error
    except ValueError as error:
        raise _setting_error(plan, str(error)) from error
    made.remove_callback(PrinterCallback)
    if plan.lora is not None and lora.ties(made.model):
        made.close()
        reason = "the adapter of a layer that is input and output cannot be merged; leave embed_tokens out"
        raise plan.error(reason, "lora", "target_modules")
    return made


def _kind(plan: Recipe) -> Callable[..., AgentGRPOTrainer]:
    """The trainer that knows the algorithm."""
    if plan.algorithm == "ppo":
        from agent_r1_env.ppo import AgentPPOTrainer

        return partial(AgentPPOTrainer, critic=plan.critic)
    from agent_r1_env.grpo import AgentGRPOTrainer

    return partial(AgentGRPOTrainer, algorithm=plan.algorithm)


def _training_tasks(plan: Recipe) -> Any:
    """The environment's tasks but for those that the evaluation draws."""
    from agent_r1_env import auto
    from agent_r1_env.evaluate import choose, make
    from agent_r1_env.grpo import task_dataset

    tasks = task_dataset(plan.env, plan.env_kwargs)
    if not plan.eval.episodes:
        return tasks
    env = make(plan.env, auto.ignored(plan.eval.env_kwargs))
    drawn = {env.tasks[number].id for number in choose(len(env.tasks), plan.eval.episodes, plan.eval.seed)}
    env.close()
    left = tasks.select([number for number, task in enumerate(tasks["task"]) if task not in drawn])
    if not len(left):
        raise plan.error(f"all {len(tasks)} tasks are held out for evaluation; lower it", "eval", "episodes")
    return left


def eval_sampling(trainer: AgentGRPOTrainer, plan: Recipe) -> Sampling:
    """How replies are sampled in evaluation: as in training, but for what the recipe says."""
    from agent_r1_env.engines import Sampling

    temperature = trainer.temperature if plan.eval.temperature is None else plan.eval.temperature
    return Sampling(
        max_tokens=trainer.max_completion_length,
        temperature=temperature,
        top_p=trainer.top_p,
        top_k=trainer.top_k,
        seed=plan.eval.seed,
    )


def _setting_error(plan: Recipe, reason: str) -> RecipeError:
    """The error for what TRL says, at the setting that it speaks of, or for what critic or overlap do."""
    for key in ("critic", "overlap"):
        if reason.startswith((f"{key}.", f"{key} ")):
            return plan.error(reason, key)
    spoken_of = [name for name in plan.trl if name in reason]
    return plan.error(reason.strip().rstrip("."), "trl", *spoken_of[:1])


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
