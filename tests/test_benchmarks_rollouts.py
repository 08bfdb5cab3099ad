"""The measurements of rollouts and trajectories, in small: their numbers are there and make sense."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def benchmark(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(repository / "benchmarks")
    return importlib.import_module


def test_rollouts_are_measured_against_the_sleeps_alone(benchmark: Any) -> None:
    found = benchmark("rollouts").waiting(episodes=4, calls=2, seconds=0.05, repeats=1)
    assert (found["episodes"], found["steps"]) == (4, 12)
    assert found["critical"] == pytest.approx(0.1)
    assert found["sequential"] == pytest.approx(0.4)
    assert min(found["ideal"], found["seconds"]) >= 0.1


def test_a_call_that_hangs_counts_as_long_as_its_time_out(benchmark: Any) -> None:
    rollouts = benchmark("rollouts")
    found = rollouts.measure([[rollouts.HANGS, 0.1], [0.2, 0.0]], timeout=0.3, repeats=1)
    assert found["critical"] == pytest.approx(0.4)
    assert found["lockstep"] == pytest.approx(0.4)
    assert 0.4 <= found["seconds"] < 0.4 + 3


def test_the_tables_are_printed_and_written(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--episodes", "2", "--heavy", "1", "--growth", "1", "--repeats", "1", "--environments", "3"]
    benchmark("rollouts").main([*options, "--json", str(tmp_path / "r.json")])
    written = json.loads((tmp_path / "r.json").read_text())
    assert [len(written[name]) for name in ("waiting", "heavy")] == [1, 1]
    assert written["environments"]["threads"] <= 2
    assert "| 2 | " in capsys.readouterr().out
    benchmark("trajectory").main(["--episodes", "2", "--growth", "1", "--json", str(tmp_path / "t.json")])
    (row,) = json.loads((tmp_path / "t.json").read_text())["building"]
    assert row["trained"] == 1.0, "an episode that only grew trains on each token once"
    assert row["unmerged"] == pytest.approx(4.5)
    assert row["memory"] < 2
