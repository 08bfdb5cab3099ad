"""What a training run leaves in its folder, readable at every moment, also after a kill.

=====================  ==================================================================
``run.json``           recipe, versions, seed, scores, timings; the state of the run
``metrics.jsonl``      one line an update, and one an evaluation; `metrics.TABLE` says what they hold
``health.jsonl``       one line a warning, once there is one
``episodes.jsonl``     one line a training episode, written when it ends
``eval_before.jsonl``  the episodes of the evaluation before training, ``eval_after`` and ``eval_N``
``reward.png``         the curves of ``metrics.jsonl``
``checkpoint-N``       all that ``--resume`` needs
``policy``             the trained model with its tokenizer
``best``               the same of the best evaluation, with ``best.json``; where there are any in training
=====================  ==================================================================
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_r1_env.errors import AgentR1Error
from agent_r1_env.health import Alert

_RUN = "run.json"
_BEST = "best.json"
_EVAL = "eval/"
_STATE = "trainer_state.json"  # the last file that the trainer writes into a checkpoint
_WEIGHTS = (
    "model*.safetensors",
    "pytorch_model*.bin",
    "adapter_model.*",
    "pytorch_model_fsdp*",
    "global_step*",
)


class RunExists(AgentR1Error, FileExistsError):
    """The folder holds another run already."""


class NothingToResume(AgentR1Error, FileNotFoundError):
    """The folder holds no run."""


class Results:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.episodes = folder / "episodes.jsonl"
        self.curve = folder / "reward.png"
        self.policy = folder / "policy"
        self.health = folder / "health.jsonl"
        self.best = folder / "best"
        self.new_best = folder / ".best.new"

    def evaluation(self, when: str) -> Path:
        """The episodes of the evaluation ``when``: "before" or "after" training, or an update's number."""
        return self.folder / f"eval_{when}.jsonl"

    def notes(self) -> dict[str, Any]:
        """What ``run.json`` says; nothing when there is none."""
        try:
            notes: dict[str, Any] = json.loads((self.folder / _RUN).read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return notes

    def note(self, **values: Any) -> None:
        """Add to ``run.json``, which is replaced as a whole, so that no reader finds half of it."""
        _replace(self.folder / _RUN, json.dumps(self.notes() | values, indent=2, default=str) + "\n")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one update's metrics; what is no finite number becomes null, as JSON wants it."""
        plain = {name: _finite(value) for name, value in metrics.items()}
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **plain}) + "\n")

    def log_evaluation(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Append the scores of an evaluation after an update, or after 0 updates."""
        self.log(step, {f"{_EVAL}{name}": value for name, value in numbers.items()})

    def logged(self) -> list[dict[str, Any]]:
        """The metrics of all updates so far; a torn last line is left out."""
        return [entry for entry in _lines(self.metrics) if not _of_evaluation(entry)]

    def evaluated(self) -> list[dict[str, Any]]:
        """The scores of all evaluations so far; of one update the last, which a resumed run may repeat."""
        found = (entry for entry in _lines(self.metrics) if _of_evaluation(entry))
        return list({entry["step"]: entry for entry in found}.values())

    def warn(self, alert: Alert) -> None:
        """Append a warning, and note the last one of its kind."""
        line = alert.to_dict()
        with self.health.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.note(health={**self.notes().get("health", {}), alert.kind: line})

    def warnings(self) -> list[dict[str, Any]]:
        """All warnings so far."""
        return _lines(self.health)

    def forget_after(self, step: int) -> None:
        """Drop the metrics and warnings of updates that a resumed run makes again."""
        for file in (self.metrics, self.health):
            if file.exists():
                kept = [json.dumps(entry) + "\n" for entry in _lines(file) if entry["step"] <= step]
                _replace(file, "".join(kept))
        self.note(health={entry["kind"]: entry for entry in self.warnings()})

    def place_best(self, record: Mapping[str, Any]) -> None:
        """Make what lies in ``new_best`` the best policy.

        Args:
            record: ``step``, ``metric`` and ``value``; it goes into the folder, so that the two never part.
        """
        (self.new_best / _BEST).write_text(json.dumps(record) + "\n", encoding="utf-8")
        old = self.best.with_name(".best.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.best.exists():
            self.best.rename(old)
        self.new_best.rename(self.best)
        shutil.rmtree(old, ignore_errors=True)

    def best_record(self) -> dict[str, Any] | None:
        """What `place_best` was told; None where there is no best policy yet."""
        old = self.best.with_name(".best.old")
        if old.exists() and not self.best.exists():  # killed between the two
            old.rename(self.best)
        try:
            record: dict[str, Any] = json.loads((self.best / _BEST).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return record

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written to its end."""
        found = [path for path in self.folder.glob("checkpoint-*") if _number(path) and _complete(path)]
        return max(found, key=_number, default=None)


def open_results(name: str, output: str | Path | None, resume: bool) -> Results:
    """The folder for a run: a new one, or with ``resume`` the one to go on in.

    Args:
        name: of the recipe; the folder is ``out/NAME``, or ``out/NAME-2`` and so on while that is taken.
        output: a folder to use instead.

    Raises:
        RunExists: ``output`` holds a run and ``resume`` is not set.
        NothingToResume: there is no run to go on with.
    """
    places = [Path(output)] if output is not None else [_numbered(name, number) for number in range(1, 1000)]
    taken = [place for place in places if (place / _RUN).exists()]
    if resume:
        if not taken:
            raise NothingToResume(f"there is no run in {places[0]} to resume; start one without --resume")
        return Results(taken[-1].absolute())
    free = [place for place in places if place not in taken]
    if not free:
        raise RunExists(f"{places[0]} holds a run; go on with --resume, or choose another --output")
    free[0].mkdir(parents=True, exist_ok=True)
    return Results(free[0].absolute())


def _numbered(name: str, number: int) -> Path:
    return Path("out", name if number == 1 else f"{name}-{number}")


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, if there is one; a torn last one is left out."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines()
    return [entry for line in lines if (entry := _parsed(line)) is not None]


def _of_evaluation(entry: Mapping[str, Any]) -> bool:
    return any(name.startswith(_EVAL) for name in entry)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry


def _number(path: Path) -> int:
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(found[1]) if found else 0


def _complete(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / _STATE).read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    weights = any(any(checkpoint.glob(pattern)) for pattern in _WEIGHTS)
    return weights and state.get("global_step") == _number(checkpoint)
