"""What each level of isolation promises, tried by attacks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_r1_env import sandbox
from agent_r1_env.bounds import Bounds, Finished
from agent_r1_env.errors import UnknownName
from agent_r1_env.sandbox import LEVELS, Sandbox, SandboxUnavailable

levels = pytest.mark.parametrize(
    "level",
    [
        pytest.param(
            level,
            marks=pytest.mark.skipif(bool(sandbox.unavailable(level)), reason=sandbox.unavailable(level)),
        )
        for level in LEVELS
    ],
)


def attack(level: str, code: str, seconds: float = 20, **limits: object) -> Finished:
    """What Python code does in a sandbox."""
    box = Sandbox(level=level, **limits)  # type: ignore[arg-type]
    return asyncio.run(box.run([sys.executable, "-I", "-c", code], seconds=seconds))


def living(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def mark() -> str:
    return f"1000.{uuid.uuid4().int % 10**12}"


@levels
def test_the_environment_is_a_clean_one(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret-value")
    found = attack(level, "import os; print(dict(os.environ)); print(open('/proc/self/environ').read())")
    assert found.status == 0 and b"secret-value" not in found.out and b"HOME" in found.out


@levels
def test_the_home_folder_is_empty_and_private(level: str) -> None:
    code = "import os; print(os.listdir(os.path.expanduser('~')), os.getcwd() == os.environ['HOME'])"
    assert attack(level, code).out == b"[] True\n"


@levels
def test_the_environment_of_the_parent_cannot_be_read(level: str) -> None:
    code = f"""
import glob, os
print(os.path.exists('/proc/{os.getpid()}/environ'))
for path in glob.glob('/proc/[0-9]*/environ'):
    try: text = open(path).read()
    except OSError: continue
    print('PYTEST' in text)
"""
    found = attack(level, code)
    assert found.status == 0 and b"True" not in found.out


@levels
def test_other_processes_are_neither_seen_nor_signalled(level: str) -> None:
    code = f"""
import os
print(sum(name.isdigit() for name in os.listdir('/proc')) < 6)
try: os.kill({os.getpid()}, 0)
except ProcessLookupError: print('none')
"""
    assert attack(level, code).out == b"True\nnone\n"


@levels
def test_the_supervisor_cannot_be_killed(level: str) -> None:
    code = "import os, time; os.kill(1, 9); os.kill(os.getppid(), 9); time.sleep(.1); print(1)"
    found = attack(level, code)
    assert (found.ended, found.out) == ("ended", b"1\n")


@levels
def test_there_are_no_privileges_to_be_had(level: str) -> None:
    code = "print([l for l in open('/proc/self/status') if l[:6] in ('CapEff', 'CapPrm', 'NoNewP')])"
    text = attack(level, code).out.decode()
    assert text.count("0000000000000000") == 2 and r"NoNewPrivs:\t1" in text


@levels
def test_memory_is_bounded(level: str) -> None:
    found = attack(level, "b = bytearray(1 << 30)", memory_mb=256)
    assert found.status == 1 and b"MemoryError" in found.err


@levels
def test_memory_of_all_processes_is_bounded(level: str) -> None:
    code = """
import os, time
for i in range(8):
    if os.fork() == 0: break
held = bytearray(os.urandom(1 << 20) * 60)
time.sleep(60)
"""
    assert attack(level, code, memory_mb=200).ended == "memory"


@levels
def test_memory_that_processes_share_counts_once(level: str) -> None:
    code = """
import os, time
held = bytearray(os.urandom(1 << 20) * 80)
for i in range(8):
    if os.fork() == 0: time.sleep(0.3); os._exit(0)
for i in range(8): os.wait()
print('done')
"""
    assert attack(level, code, memory_mb=250).out == b"done\n"


@levels
def test_cpu_time_is_bounded(level: str) -> None:
    found = attack(level, "while True: pass", cpu_seconds=1)
    assert found.ended == "ended" and found.status == -signal.SIGXCPU


@levels
def test_processes_are_bounded(level: str) -> None:
    n = mark()
    code = f"import subprocess, time\nfor i in range(50): subprocess.Popen(['sleep', '{n}'])\ntime.sleep(60)"
    assert attack(level, code, max_processes=5).ended == "processes"
    assert living(n) == []


@levels
def test_a_fork_bomb_is_ended(level: str) -> None:
    found = attack(level, "import os\nwhile True: os.fork()", max_processes=20)
    assert found.ended == "processes"


@levels
def test_threads_count_as_processes(level: str) -> None:
    code = (
        "import threading, time\nfor i in range(30): threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    assert attack(level, code, max_processes=10).ended == "processes"


@levels
def test_a_file_is_bounded(level: str) -> None:
    found = attack(level, "f = open('f', 'wb'); f.write(b'x' * (100 << 20)); f.close()", file_mb=1)
    assert found.status == 1 and b"File too large" in found.err


@levels
def test_many_files_cannot_fill_a_disk(level: str) -> None:
    code = """
import os
written, made = 0, []
for folder in ('.', '/tmp', '/dev/shm', '/dev', '/var/tmp', '/run', '/'):
    for i in range(20):
        try:
            with open(os.path.join(folder, f'f{i}'), 'wb', buffering=0) as f:
                made.append(f.name)
                written += f.write(b'x' * (1 << 19))
        except OSError: break
for name in filter(os.path.exists, made): os.unlink(name)
print(written >> 20)
"""
    found = attack(level, code, file_mb=1)
    assert int(found.out) <= 3


@levels
def test_output_is_bounded(level: str) -> None:
    found = attack(level, "while True: print('x' * 1000)", max_output_bytes=5000)
    assert (found.ended, len(found.out)) == ("output", 5000)


@levels
def test_nothing_outside_can_be_written(level: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("before")
    code = f"""
import os, sys
for path in ({str(tmp_path / "new")!r}, {str(tmp_path / "mine")!r}, '/etc/x', '/usr/x', sys.prefix + '/x'):
    try: open(path, 'w').write('after'); print('wrote', path)
    except OSError: pass
try: os.unlink({str(tmp_path / "mine")!r}); print('deleted')
except OSError: pass
"""
    found = attack(level, code)
    assert (found.status, found.out) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "before"


@levels
def test_a_file_system_cannot_be_made_writable_again(level: str, tmp_path: Path) -> None:
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None)
print(libc.unshare(0x10000000 | 0x00020000))
libc.mount(None, b'/', None, 32 | 4096, None)
libc.mount(b'tmpfs', b'/etc', b'tmpfs', 0, None)
open({str(tmp_path / "x")!r}, 'w')
"""
    found = attack(level, code)
    assert found.status == 1 and list(tmp_path.iterdir()) == []


def test_level_process_lets_the_users_files_be_read(tmp_path: Path) -> None:
    if sandbox.unavailable("process", network=True):
        pytest.skip("no level process here")
    (tmp_path / "note").write_text("readable")
    network = bool(sandbox.no_namespaces())
    assert (
        attack("process", f"print(open({str(tmp_path / 'note')!r}).read())", network=network).out
        == b"readable\n"
    )


@pytest.mark.skipif(bool(sandbox.unavailable("bwrap")), reason=sandbox.unavailable("bwrap"))
def test_level_bwrap_hides_the_users_files(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("hidden")
    code = f"""
import os
for path in ({str(tmp_path / "note")!r}, '/etc/passwd', '/etc/shadow', '/root/.bashrc'):
    print(os.path.exists(path))
print(os.listdir('/home') if os.path.exists('/home') else [])
"""
    assert attack("bwrap", code).out.split() == [b"False"] * 4 + [b"[]"]


@pytest.fixture
def service() -> Iterator[tuple[int, threading.Event]]:
    """A server on loopback: its port, and whether somebody came."""
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def wait() -> None:
            try:
                server.accept()[0].close()
            except OSError:
                return
            came.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('in')"


@levels
def test_the_network_cannot_be_reached(level: str, service: tuple[int, threading.Event]) -> None:
    port, came = service
    found = attack(level, CONNECT.format(port=port))
    assert found.status == 1 and not came.is_set()


@levels
def test_the_network_can_be_allowed(level: str, service: tuple[int, threading.Event]) -> None:
    port, came = service
    assert attack(level, CONNECT.format(port=port), network=True).out == b"in\n"
    assert came.wait(10)


@levels
def test_sockets_without_a_file_cannot_be_reached(level: str) -> None:
    name = f"\0{mark()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert b"ConnectionRefusedError" in attack(level, code).err


@levels
@pytest.mark.parametrize(
    "way", ["setsid sleep {n} &", "nohup sleep {n} &", "(setsid sh -c 'sleep {n} & exit' &)"]
)
def test_no_child_outlives_the_call(level: str, way: str) -> None:
    n = mark()
    code = f"import os, time; os.system({way.format(n=n)!r}); time.sleep(.05); print('done')"
    assert attack(level, code).out == b"done\n"
    assert living(n) == []


@levels
def test_names_that_no_filter_would_find_reach_nothing_more(level: str) -> None:
    code = """
import importlib
def f():
    import os as o
    return o
for o in (f(), __import__('o' + 's'), importlib.import_module('os'), ().__class__.__base__.__subclasses__()
          and [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]
          .__init__.__globals__['sys'].modules['os']):
    try: o.mkdir('/etc/x'); print('wrote')
    except OSError: pass
"""
    found = attack(level, code)
    assert (found.status, found.out) == (0, b"")


@levels
def test_subprocesses_pools_and_locks_work(level: str) -> None:
    code = "import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))"
    assert attack(level, code).out == b"[1, 2]\n"


@levels
def test_numpy_works(level: str) -> None:
    assert attack(level, "import numpy as np; print(np.arange(3).sum())").out == b"3\n"


@levels
def test_packages_apart_from_the_interpreter_can_be_read(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "far.py").write_text("x = 1")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path / "site-packages")])
    code = f"print(open({str(tmp_path / 'site-packages' / 'far.py')!r}).read())"
    assert attack(level, code).out == b"x = 1\n"


def test_an_unknown_level_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no sandbox level named 'bwarp'; did you mean 'bwrap'"):
        Sandbox(level="bwarp")


def test_running_in_this_process_is_no_level() -> None:
    for name in ("none", "exec", "in_process", "restricted"):
        with pytest.raises(UnknownName):
            Sandbox(level=name)


@pytest.mark.parametrize(
    ("name", "value"),
    [("memory_mb", 5), ("memory_mb", None), ("cpu_seconds", 0), ("max_processes", True), ("file_mb", 1.5)],
)
def test_a_limit_that_is_none_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least"):
        Sandbox(**{name: value})  # type: ignore[arg-type]


def test_what_the_machine_cannot_give_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "no_namespaces", lambda: "unshare: Operation not permitted")
    with pytest.raises(
        SandboxUnavailable, match=r"\(unshare: Operation not permitted\); allow it with network: true"
    ):
        Sandbox(level="process")
    assert "limits and a clean environment alone" in sandbox.promises("process")


def test_without_namespaces_limits_and_environment_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "no_namespaces", lambda: "unshare: Operation not permitted")
    monkeypatch.setenv("API_TOKEN", "secret-value")
    found = attack("process", "import os; print(os.environ, os.listdir()); bytearray(1 << 30)", network=True)
    assert b"secret-value" not in found.out and b"[]" in found.out and b"MemoryError" in found.err
    folder = found.out.decode().split("'HOME': '")[1].split("'")[0]
    assert not os.path.exists(folder)


def test_bubblewrap_that_is_missing_is_told_with_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bwrap", lambda: None)
    sandbox._no_bwrap.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match=r"pip install 'agent-r1-env\[sandbox\]'"):
            Sandbox(level="bwrap")
    finally:
        sandbox._no_bwrap.cache_clear()


def test_bounds_name_every_limit() -> None:
    names = {name for name, _ in Bounds(memory_mb=1, cpu_seconds=1, file_mb=1).limits()}
    assert names == {"RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE"}
