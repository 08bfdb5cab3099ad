"""What a training run leaves in its folder, readable at every moment, also after a kill.

=====================  ==================================================================
``run.json``           recipe, versions, seed, scores, timings; the state of the run
``metrics.jsonl``      one line an update
``episodes.jsonl``     one line a training episode, written when it ends
``eval_before.jsonl``  the episodes of the evaluation before training, and ``eval_after``
``reward.png``         the curves of ``metrics.jsonl``
``checkpoint-N``       all that ``--resume`` needs
``policy``             the trained model with its tokenizer
=====================  ==================================================================
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_r1_env.errors import AgentR1Error

_RUN = "run.json"
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

    def evaluation(self, when: str) -> Path:
        """The episodes of the evaluation ``when``: "before" or "after" training."""
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

    def logged(self) -> list[dict[str, Any]]:
        """The metrics of all updates so far; a torn last line is left out."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text("utf-8").splitlines()
        return [entry for line in lines if (entry := _parsed(line)) is not None]

    def forget_after(self, step: int) -> None:
        """Drop the metrics of updates that a resumed run makes again."""
        kept = [json.dumps(entry) + "\n" for entry in self.logged() if entry["step"] <= step]
        _replace(self.metrics, "".join(kept))

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
