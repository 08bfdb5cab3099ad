"""Two processes on the CPU train as one does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("trl")

import spread
import torch

from agent_r1_env.catalog import builtin_root
from agent_r1_env.testing import tiny_llama

CONFIG = builtin_root() / "trainers" / "accelerate" / "cpu.yaml"
TWO = ("-m", "accelerate.commands.launch", "--config_file", str(CONFIG))
SAME = ("loss", "kl", "reward", "reward_std", "agent/episode_reward", "agent/rows_real", "agent/drift")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # three imports of torch, for a machine that has other things to do
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("spread")
    model, file = tiny_llama(folder / "model"), folder / "two.pt"
    done = subprocess.run(
        [sys.executable, *TWO, spread.__file__, str(model), str(file)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    spread.main(str(model), folder / "one.pt")
    return torch.load(folder / "one.pt", weights_only=False), torch.load(file, weights_only=False)


def test_two_processes_have_the_gradients_of_one(runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """A group lies across both, one has more rows than the other, and an episode of the second broke."""
    one, two = runs
    errors = {
        name: [
            float((left - right).norm() / left.norm())
            for left, right in zip(one[name]["gradients"], two[name]["gradients"], strict=True)
        ]
        for name in one
    }
    assert len(errors) == 8
    assert all(len(each) == 2 and max(each) < 1e-5 for each in errors.values()), errors


def test_two_processes_log_what_one_does(runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, two = runs
    for name in one:
        for left, right in zip(one[name]["log"], two[name]["log"], strict=True):
            assert {key: right[key] for key in SAME} == pytest.approx(
                {key: left[key] for key in SAME}, rel=1e-4, abs=1e-6
            )
        assert two[name]["log"][0]["agent/drift"] == 0


def test_an_error_of_one_process_ends_both(runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = runs[1]["errors"]
    assert first == "EngineError: the rollout of process 1 failed: RuntimeError: the engine is gone"
    assert second == "RuntimeError: the engine is gone"
