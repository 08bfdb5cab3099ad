"""Every notebook is valid, holds no outputs, and runs from a clean kernel."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SLOW = ("03_grpo_on_the_cpu",)


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["01_first_episode", "02_custom_tool_in_yaml", *SLOW]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_clear_of_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in SLOW), id=path.stem) for path in NOTEBOOKS],
)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is a process of its own: it must find this interpreter's packages and the fakes of no test.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    copy = shutil.copy(path, tmp_path)
    notebook = nbformat.read(copy, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
