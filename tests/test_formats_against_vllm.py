"""Our parsers beside vLLM's: whatever is read differently has its reason."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


def test_each_reading_that_differs_from_vllm_is_explained(repository: Path, shared_data: Path) -> None:
    replies = shared_data.parent / "cases" / "tool_calls.jsonl"
    if not replies.is_file():
        pytest.skip(f"no published replies at {replies}")
    # A process of its own: vLLM's parsers bring much with them that other tests should not meet.
    command = [sys.executable, str(repository / "benchmarks" / "formats_against_vllm.py"), str(replies)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "NOT EXPLAINED" not in run.stdout
