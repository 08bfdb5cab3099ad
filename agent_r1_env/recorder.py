"""Writes down what a trainer logs, update by update."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from agent_r1_env.progress import Progress, brief
from agent_r1_env.results import Results


class Recorder(TrainerCallback):  # type: ignore[misc]  # not typed, see setup.cfg
    """Appends each update's metrics to the results and moves the bar."""

    def __init__(self, results: Results, progress: Progress) -> None:
        self._results, self._progress = results, progress

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Called by the trainer; its last log holds run times and no reward."""
        if state.is_world_process_zero and logs and "reward" in logs:
            self._results.log(state.global_step, logs)
            self._progress.at(state.global_step, state.max_steps, brief(logs))
