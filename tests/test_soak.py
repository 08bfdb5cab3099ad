"""The soak: a small one runs clean, and what it looks for would be seen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent_r1_env import interpreters
from agent_r1_env.episode import Episode


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", repository / "benchmarks" / "soak.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_lost_and_nothing_left_among_faults(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "LINGER", 0.2)
    options = {"episodes": 400, "every": 200, "warm-up": 0, "cancel-every": 2, "at-once": 16}
    given = [f"--{name}={value}" for name, value in options.items()]
    run, before, after = script.soak(tmp_path, script.arguments(given))
    assert run.problems(before, after) == []
    assert run.account.cancelled == 1
    assert {"error", "max_steps", "answer", "length", "prompt_overflow"} <= set(run.account.reasons)
    assert {"timeout", "tool_error", "malformed_call", "unknown_tool"} <= set(run.account.failures)
    assert set(run.account.asked) == set(range(len(script.PARTS)))


def test_a_lost_a_doubled_and_an_unwritten_episode_are_seen(script: ModuleType) -> None:
    account = script.Account()
    assert [account.ask(0) for _ in range(4)] == [0, 1, 2, 3]
    for number in (0, 1, 1, 2):
        account.note(Episode("E", "t", 0, number, stop_reason="answer"))
    assert account.problems([0, 1, 3]) == [
        "ended: 1 episodes lost, 1 too many",
        "in the file: 1 episodes lost, 0 too many",
    ]
    account.note(Episode("E", "t", 0, 3, stop_reason="answer"))
    assert "5 stop reasons of 4 episodes" in account.problems([])


def test_the_slope_is_that_of_the_points_and_a_step_at_the_end_does_not_bend_it(script: ModuleType) -> None:
    points = [(float(x), 3.0 * x + 0.1 * (-1) ** x) for x in range(20)]
    middle, low, high = script.slope([*points, (20.0, 1e6)])
    assert low <= 3.0 <= high
    assert middle == pytest.approx(3.0, abs=0.05) and high - low < 0.5


def test_two_points_tell_no_slope_for_sure(script: ModuleType) -> None:
    _, low, high = script.slope([(0.0, 0.0), (1.0, 5.0)])
    assert (low, high) == (-float("inf"), float("inf"))


def test_memory_threads_handles_and_processes_that_stay_are_problems(
    script: ModuleType, tmp_path: Path
) -> None:
    run = script.Soak(tmp_path, 1, 0, ())
    run.close()
    run.samples = [script.Sample(1000 * i, 0.0, 600.0 * i, 101 * i, 9, 9, 0, 0) for i in range(10)]
    before = script.Sample(0, 0.0, 0.0, 0, 1, 5, 0, 0)
    after = script.Sample(9000, 9.0, 0.0, 0, 3, 12, 1, 2)
    assert run.problems(before, after) == [
        "resident grew by 600 per 1,000 episodes or more; 512 are allowed",
        "blocks grew by 101 per 1,000 episodes or more; 100 are allowed",
        "1 handles are left open",
        "1 child processes are left",
    ]
