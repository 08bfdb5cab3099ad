"""Contenders that take turns: a round of one, a round of the next, so that a slow moment hits them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
OURS = "ours"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
"""One thread of arithmetic each, and nothing is fetched; what the caller has set stays."""


class BenchError(Exception):
    """Our own side could not be measured."""


@dataclass(frozen=True)
class Contender:
    """Who is measured, and where.

    Attributes:
        target: ``module:function`` of this folder.
        peers: whether it runs in the environment of the peers.
        options: arguments of its rounds, in place of those of the contest where both name one.
        fresh: whether each round has a new process, for what happens once in a process.
    """

    name: str
    target: str
    peers: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False


@dataclass
class Found:
    """What the rounds of one contender gave; ``absent`` says why there are none."""

    rounds: list[Any] = field(default_factory=list)
    absent: str = ""

    def numbers(self, read: Callable[[Any], float]) -> list[float]:
        """One number a round."""
        return [read(each) for each in self.rounds]


class Worker:
    """The process of a contender; started at its first round."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.absent = ""
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as long as the worker)

    def round(self, options: Mapping[str, Any]) -> Any:
        """The result of one round; None, and a reason in ``absent``, where there is none."""
        if self.absent:
            return None
        process = self._process = self._process or self._started()
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        try:
            print(json.dumps({**options, **self.contender.options}), file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        said = json.loads(line) if line else {"error": f"its process ended: {self._last_words()}"}
        if self.contender.fresh:
            self._end()
        if "result" in said:
            return said["result"]
        missing = said.get("missing")
        self.absent = f"not installed ({missing})" if missing else f"failed ({said['error']})"
        return None

    def close(self) -> None:
        """End the process; what it printed is forgotten."""
        self._end()
        self._log.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _started(self) -> subprocess.Popen[str] | None:
        python = PEERS if self.contender.peers else Path(sys.executable)
        if not python.exists():
            self.absent = "not installed"
            return None
        return subprocess.Popen(
            [python, HERE / "worker.py", self.contender.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**ENVIRONMENT, **os.environ},
        )

    def _last_words(self) -> str:
        self._log.seek(0)
        return (self._log.read().strip().splitlines() or ["without a word"])[-1]


def contest(
    contenders: Sequence[Contender], rounds: int, alone: bool = False, warm: bool = True, **options: Any
) -> dict[str, Found]:
    """Let the contenders take turns.

    Args:
        warm: begin with a round of each that is not counted.
        alone: leave those out that run in the environment of the peers.
        options: arguments of each round.

    Raises:
        BenchError: one named "ours" gave no result.
    """
    found = {each.name: Found() for each in contenders}
    with ExitStack() as stack:
        workers = [Worker(each) for each in contenders]
        for worker in workers:
            stack.callback(worker.close)
            if alone and worker.contender.peers:
                worker.absent = "left out"
        for number in range(0 if warm else 1, rounds + 1):
            start = number % len(workers)  # whoever comes first has no advantage by it
            for worker in workers[start:] + workers[:start]:
                result = worker.round(options)
                if worker.absent:
                    found[worker.contender.name].absent = worker.absent
                elif number:
                    found[worker.contender.name].rounds.append(result)
    for name, each in found.items():
        if each.absent:
            each.rounds.clear()
            if name.startswith(OURS):
                raise BenchError(f"{name}: {each.absent}")
    return found
