"""Commands are bounded while they run and wholly gone when they end."""

from __future__ import annotations

import asyncio
import functools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from agent_r1_env import sandbox
from agent_r1_env.bounds import FREE, Bounds, Confinement, Finished
from agent_r1_env.processes import Child, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
APART = Confinement(confined=True, namespaces=True, network=False, readonly=True)
BOUND = Confinement(confined=True)
ENV = {"PATH": os.environ["PATH"]}
kinds = pytest.mark.parametrize(
    "confinement",
    [
        pytest.param(FREE, id="free"),
        pytest.param(BOUND, id="without-namespaces"),
        pytest.param(
            APART,
            id="namespaces",
            marks=pytest.mark.skipif(bool(sandbox.no_namespaces()), reason="no namespaces here"),
        ),
    ],
)
# Each leaves a process behind that sleeps with a mark in its command line.
LEAVING = {
    "background": "sleep {n} &",
    "nohup": "nohup sleep {n} >/dev/null 2>&1 &",
    "session": "setsid sleep {n} &",
    "orphan": "(setsid sh -c 'sleep {n} & exit' &);",
    "deep": "sh -c 'sh -c \"sleep {n} & sleep {n}\" & exit';",
}


def make(folder: Path, confinement: Confinement = FREE, **bounds: int) -> functools.partial[Child]:
    return functools.partial(Child, folder=str(folder), bounds=Bounds(**bounds), confinement=confinement)


async def shell(
    script: str,
    folder: Path,
    confinement: Confinement = FREE,
    seconds: float = 20,
    given: bytes = b"",
    **bounds: int,
) -> Finished:
    child = make(folder, confinement, **bounds)
    return await run(child, ["sh", "-c", script], seconds=seconds, env=ENV, given=given)


def mark() -> str:
    """Seconds to sleep that no other process sleeps."""
    return f"1000.{uuid.uuid4().int % 10**12}"


def living(text: str) -> list[str]:
    """The states of the processes that have this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (path / "cmdline").read_bytes() and int(path.name) != os.getpid():
                found.append((path / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


async def until_living(text: str) -> None:
    while not living(text):
        await asyncio.sleep(0.01)


def zombies() -> list[str]:
    """Dead children of this process that nobody waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(path.parent.name)
    return found


@kinds
async def test_output_error_and_status_come_back(tmp_path: Path, confinement: Confinement) -> None:
    found = await shell("cat; echo oops >&2; exit 3", tmp_path, confinement, given="grüße".encode())
    assert (found.ended, found.status, found.out.decode(), found.err) == ("ended", 3, "grüße", b"oops\n")


@kinds
async def test_a_signal_is_a_negative_status(tmp_path: Path, confinement: Confinement) -> None:
    assert (await shell("kill -9 $$", tmp_path, confinement)).status == -signal.SIGKILL


async def test_a_program_that_is_not_there_is_status_127(tmp_path: Path) -> None:
    found = await run(make(tmp_path), ["no-such-program"], seconds=10, env=ENV)
    assert found.status == 127 and b"no-such-program: No such file" in found.err


@kinds
async def test_it_sees_the_given_environment_alone(tmp_path: Path, confinement: Confinement) -> None:
    found = await run(make(tmp_path, confinement), ["env"], seconds=10, env={"PATH": ENV["PATH"], "A": "ü"})
    assert set(found.out.decode().split()) == {f"PATH={ENV['PATH']}", "A=ü"}


@kinds
async def test_it_inherits_no_descriptor(tmp_path: Path, confinement: Confinement) -> None:
    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)
        found = await shell("ls /proc/$$/fd", tmp_path, confinement)
    assert found.out.split() == [b"0", b"1", b"2"]


@kinds
@pytest.mark.parametrize("way", LEAVING)
async def test_what_it_leaves_behind_is_dead_when_it_ends(
    tmp_path: Path, confinement: Confinement, way: str
) -> None:
    n = mark()
    found = await shell(f"{LEAVING[way].format(n=n)} sleep 0.05; echo done", tmp_path, confinement)
    assert (found.out, living(n)) == (b"done\n", [])


@kinds
@pytest.mark.parametrize("way", ["session", "orphan"])
async def test_all_is_dead_when_time_is_up(tmp_path: Path, confinement: Confinement, way: str) -> None:
    n = mark()
    found = await shell(
        f"{LEAVING[way].format(n=n)} echo begun; sleep {n}", tmp_path, confinement, seconds=0.3
    )
    assert (found.ended, found.out, living(n)) == ("time", b"begun\n", [])


@kinds
async def test_all_is_dead_when_it_is_cancelled(tmp_path: Path, confinement: Confinement) -> None:
    n = mark()
    task = asyncio.create_task(shell(f"setsid sleep {n} & sleep {n}", tmp_path, confinement))
    await until_living(n)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living(n) == [] and zombies() == []


@kinds
async def test_a_flood_is_cut_and_ends_it(tmp_path: Path, confinement: Confinement) -> None:
    found = await shell("yes", tmp_path, confinement, output_bytes=1000)
    assert (found.ended, len(found.out)) == ("output", 1000)


async def test_a_flood_of_errors_counts_as_well(tmp_path: Path) -> None:
    found = await shell("yes >&2", tmp_path, output_bytes=1000)
    assert (found.ended, len(found.err)) == ("output", 1000)


async def test_output_of_exactly_the_limit_is_no_flood(tmp_path: Path) -> None:
    found = await shell("printf 12345", tmp_path, output_bytes=5)
    assert (found.ended, found.out) == ("ended", b"12345")


async def test_memory_stays_flat_under_a_flood(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    await shell("yes", tmp_path, output_bytes=1 << 20)
    before = resident()
    await shell("yes & yes & yes", tmp_path, output_bytes=1 << 20)
    assert resident() - before < 16 << 20


@kinds
async def test_more_processes_than_allowed_end_it(tmp_path: Path, confinement: Confinement) -> None:
    n = mark()
    script = f"for i in 1 2 3 4 5 6 7 8; do sleep {n} & done; sleep {n}"
    found = await shell(script, tmp_path, confinement, processes=5)
    assert (found.ended, living(n)) == ("processes", [])


@kinds
async def test_as_many_processes_as_allowed_do_not(tmp_path: Path, confinement: Confinement) -> None:
    script = "for i in 1 2 3; do sleep 0.3 & done; wait; echo fine"
    assert (await shell(script, tmp_path, confinement, processes=5)).out == b"fine\n"


@pytest.mark.skipif(bool(sandbox.no_namespaces()), reason="no namespaces here")
async def test_a_fork_bomb_is_ended(tmp_path: Path) -> None:
    n = mark()
    found = await shell(f"b() {{ b | b & }}; b; sleep {n}", tmp_path, APART, processes=20, seconds=60)
    assert (found.ended, living(n)) == ("processes", [])


async def test_limits_are_felt(tmp_path: Path) -> None:
    names = "r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE"
    code = f"import resource as r; print([r.getrlimit(each)[0] for each in ({names})])"
    child = make(tmp_path, memory_mb=300, cpu_seconds=7, file_mb=2)
    found = await run(child, [sys.executable, "-c", code], seconds=20, env=ENV)
    assert found.out.decode().strip() == str([300 << 20, 7, 2 << 20])


async def test_cpu_time_ends_it(tmp_path: Path) -> None:
    found = await shell("while :; do :; done", tmp_path, cpu_seconds=1)
    assert found.status == -signal.SIGXCPU


@pytest.mark.slow
async def test_fifty_that_hang_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    await shell("true", tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        await shell("sleep 60", tmp_path, seconds=0.05)
    assert len(os.listdir("/proc/self/fd")) == before and zombies() == []


async def test_many_run_at_once(tmp_path: Path) -> None:
    found = await asyncio.gather(*(shell(f"echo {i}", tmp_path) for i in range(20)))
    assert [int(each.out) for each in found] == list(range(20))


def test_it_works_off_the_main_thread(tmp_path: Path) -> None:
    found: list[Finished] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(shell("echo hi", tmp_path))))
    thread.start()
    thread.join(20)
    assert found[0].out == b"hi\n"


@kinds
def test_all_is_dead_when_the_parent_is_killed(tmp_path: Path, confinement: Confinement) -> None:
    n = mark()
    code = (
        "import asyncio\n"
        "from agent_r1_env.bounds import Confinement\nfrom agent_r1_env.processes import Child, run\n"
        f"options = dict(folder={str(tmp_path)!r}, confinement={confinement!r})\n"
        "make = lambda command, **more: Child(command, **options, **more)\n"
        f"command = ['sh', '-c', 'setsid sleep {n} & echo; sleep {n}']\n"
        f"asyncio.run(run(make, command, seconds=60, env={ENV!r}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    asyncio.run(asyncio.wait_for(until_living(f"sleep\0{n}"), 20))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while living(f"sleep\0{n}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert living(f"sleep\0{n}") == []


async def test_destroying_twice_is_harmless(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], folder=str(tmp_path), env=ENV)
    child.destroy()
    child.destroy()
    assert child.finished().ended == "stopped"


async def test_what_cannot_be_confined_is_refused_with_the_reason(tmp_path: Path) -> None:
    confinement = Confinement(confined=True, namespaces=True, readonly=True)
    child = functools.partial(Child, folder=str(tmp_path / "missing"), confinement=confinement)
    found = await run(child, ["true"], seconds=10, env=ENV)
    assert found.ended == "refused" and found.detail


def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sorted(os.listdir("/proc/self/fd"))
    gone: list[int] = []
    for spare in range(1, 9):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + spare, hard))
        try:
            Child(["true"], folder=str(tmp_path), env=ENV, after=lambda: gone.append(1)).destroy()
        except OSError:
            continue
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(os.listdir("/proc/self/fd")) == before and len(gone) == 8


async def test_what_was_written_last_is_read_when_it_is_killed(tmp_path: Path) -> None:
    found = await shell("printf last; kill -9 $$", tmp_path)
    assert (found.status, found.out) == (-9, b"last")
