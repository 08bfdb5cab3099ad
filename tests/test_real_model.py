"""Training a real pretrained model on real questions, where both are at hand."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_r1_env.episode import read_episodes


@pytest.fixture(scope="session")
def smollm2(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M, unpacked."""
    script = repository / "benchmarks" / "smollm2.py"
    spec = importlib.util.spec_from_file_location("smollm2", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = module.unpack(tmp_path_factory.mktemp("smollm2"))
    return folder


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(900)
def test_a_real_model_makes_an_update_on_real_questions(
    smollm2: Path, shared_data: Path, tmp_path: Path
) -> None:
    questions = shared_data / "hotpotqa"
    command = [sys.executable, "-m", "agent_r1_env.cli", "train", "hotpotqa_cpu", "--set", "max_steps=1"]
    command += ["--model", str(smollm2), "--output", str(tmp_path), "--set", "per_device_train_batch_size=4"]
    command += [
        "--data",
        str(questions / "hotpot_train_sample.json"),
        "--corpus",
        str(questions / "corpus.jsonl"),
    ]
    subprocess.run(command, check=True, timeout=850)
    (update,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert update["agent/drift"] == 0
    assert update["sampling/sampling_logp_difference/max"] < 1e-2
    assert {"agent/episode_reward", "agent/tool_call_rate", "agent/invalid_call_rate", "entropy"} <= set(
        update
    )
    assert len(list(read_episodes(tmp_path / "episodes.jsonl"))) == 4
