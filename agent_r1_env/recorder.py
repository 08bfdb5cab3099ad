"""What is done after each update: its metrics are written down, warnings passed on, the policy evaluated."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from agent_r1_env.health import Monitor
from agent_r1_env.heldout import HeldOut
from agent_r1_env.progress import Progress, brief
from agent_r1_env.results import Results


class Recorder(TrainerCallback):  # type: ignore[misc]  # not typed, see setup.cfg
    """Appends each update's metrics to the results, moves the bar and watches the run's health."""

    def __init__(self, results: Results, progress: Progress, monitor: Monitor) -> None:
        self._results, self._progress, self._monitor = results, progress, monitor

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer; brings the monitor to where an earlier part of the run left it."""
        if state.is_world_process_zero:
            self._monitor.replay(self._results.logged())

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Called by the trainer; its last log holds run times and no reward."""
        if state.is_world_process_zero and logs and "reward" in logs:
            self._results.log(state.global_step, logs)
            self._progress.at(state.global_step, state.max_steps, brief(logs))
            for alert in self._monitor.update(state.global_step, logs):
                self._results.warn(alert)
                self._progress.tell(str(alert))


class Evaluations(TrainerCallback):  # type: ignore[misc]  # not typed, see setup.cfg
    """Evaluates every few updates; the last one is left to the evaluation after training."""

    def __init__(self, held_out: HeldOut, every: int) -> None:
        self._held_out, self._every = held_out, every

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer on every process, with the weights after the update."""
        if state.global_step % self._every == 0 and state.global_step < state.max_steps:
            self._held_out.during(state.global_step)
