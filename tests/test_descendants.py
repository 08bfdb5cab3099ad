"""Processes of processes: they are found, and none outlives its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_r1_env.descendants import descendants, end

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
TREE = """
import subprocess, sys, time
code = "import time; print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
time.sleep(600)
"""


def test_children_by_their_mark_and_all_that_came_of_them_are_ended() -> None:
    mark = f"mark-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", TREE, mark], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = descendants(mark)
        assert len(found) == 2 and child.pid in {pid for pid, _ in found}
        assert descendants("no such mark") == set()
        end(found, 0.1)
        assert child.wait(30) == -9
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid, _ in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descendants(mark) == set()


def test_whoever_ends_by_itself_is_not_waited_for_longer() -> None:
    mark = f"mark-{os.getpid()}-2"
    with subprocess.Popen([sys.executable, "-c", "input()", mark], stdin=subprocess.PIPE) as child:
        found = descendants(mark)
        child.communicate(b"\n")
        began = time.monotonic()
        end(found, 60)
        assert time.monotonic() - began < 10


def test_another_process_with_the_same_id_is_left_alone() -> None:
    end({(os.getpid(), "0")}, 0.0)
