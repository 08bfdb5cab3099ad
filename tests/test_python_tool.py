"""The python tool: CPython in a sandbox, called as a model calls it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import agent_r1_env  # noqa: F401 - registers the environments
from agent_r1_env import interpreters, sandbox
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.errors import CatalogError, StateError
from agent_r1_env.messages import FailureKind, ToolCall, ToolResult
from agent_r1_env.toolbox import Session, Toolbox

LEVELS = [
    pytest.param(
        level, marks=pytest.mark.skipif(bool(sandbox.unavailable(level)), reason=sandbox.unavailable(level))
    )
    for level in sandbox.LEVELS
]
levels = pytest.mark.parametrize("level", LEVELS)
if reason := sandbox.unavailable("process"):
    pytestmark = pytest.mark.skip(reason=reason)


def box(timeout: float = 20, **config: Any) -> Toolbox:
    tool = load_tool(Catalog.open(None).tool("python"), None, {"config": config, "timeout": timeout})
    made = Toolbox([tool])
    made.begin(Session())
    return made


def call(code: str, name: str = "c") -> ToolCall:
    return ToolCall("python", {"code": code}, name)


def once(code: str, timeout: float = 20, **config: Any) -> ToolResult:
    toolbox = box(timeout, **config)
    try:
        return toolbox.run([call(code)])[0]
    finally:
        toolbox.close()


@pytest.fixture
def kept() -> Iterator[Toolbox]:
    """A toolbox whose interpreter keeps its state over an episode."""
    toolbox = box(persistent=True)
    yield toolbox
    toolbox.close()


def say(toolbox: Toolbox, code: str) -> str:
    return toolbox.run([call(code)])[0].content


def living(text: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def mark() -> str:
    return f"1000.{uuid.uuid4().int % 10**12}"


@levels
@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("print('hi')", "hi", id="printed"),
        pytest.param("1 + 1", "2", id="last-value"),
        pytest.param("'a'", "'a'", id="last-value-as-an-interpreter-shows-it"),
        pytest.param("x = 3\nx", "3", id="statements-and-value"),
        pytest.param("print(1)\nNone", "1", id="none-is-not-shown"),
        pytest.param("x = 1", "[no output]", id="nothing"),
        pytest.param("", "[no output]", id="no-code"),
        pytest.param("# only a comment", "[no output]", id="comment"),
        pytest.param("1; 2", "2", id="the-last-value-alone"),
        pytest.param("print('grüße \\u4e16')", "grüße \u4e16", id="unicode"),
        pytest.param("print('é')\r\nprint('f')", "é\nf", id="line-ends-of-windows"),
        pytest.param(
            "import sys; print('a'); sys.stderr.write('b\\n'); print('c')", "a\nb\nc", id="in-order"
        ),
        pytest.param("import sys; sys.exit()", "[no output]", id="exit"),
        pytest.param("import os; print('x', flush=True); os._exit(0)", "x", id="hard-exit"),
        pytest.param("print(__name__)", "__main__", id="name"),
        pytest.param("def f(): return g()\ndef g(): return 5\nf()", "5", id="functions-see-each-other"),
        pytest.param("print([i for i in range(3) if (lambda: i)() == i])", "[0, 1, 2]", id="scopes"),
    ],
)
def test_what_the_model_reads(level: str, code: str, text: str) -> None:
    result = once(code, level=level)
    assert (result.content, result.error) == (text, None)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param(
            "def f():\n    return 1 / 0\nf()",
            'error: Traceback (most recent call last):\n  File "<code>", line 3, in <module>\n    f()\n'
            '  File "<code>", line 2, in f\n    return 1 / 0\n           ~~^~~\n'
            "ZeroDivisionError: division by zero",
            id="traceback",
            marks=pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="wording of Python 3.11"),
        ),
        pytest.param("1 / 0", "\n    1 / 0\n    ~~^~~\n", id="marks-below-the-code"),
        pytest.param("import json\njson.loads('{')", "line 2, in <module>", id="frames-of-libraries-are-cut"),
        pytest.param("1 +", 'File "<code>", line 1\n    1 +\n       ^\nSyntaxError', id="syntax"),
        pytest.param("x = 'a\0b'", "null byte", id="null-byte"),
        pytest.param("print('\ud800')", "surrogates not allowed", id="surrogate"),
        pytest.param("input()", "EOFError", id="no-input"),
        pytest.param("import sys; sys.exit(3)", "error: [exit status 3]", id="exit-status"),
        pytest.param("import sys; sys.exit('gone')", "error: gone", id="exit-with-text"),
        pytest.param(
            "import os; os._exit(3)", "error: [the interpreter exited with status 3]", id="hard-exit"
        ),
        pytest.param("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL", id="killed"),
        pytest.param("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV", id="crash"),
        pytest.param("def f(): f()\nf()", "RecursionError", id="recursion"),
        pytest.param("raise BaseException('own')", "BaseException: own", id="base-exception"),
        pytest.param(
            "class E(Exception):\n  def __str__(self): 1/0\nraise E", "E: <exception str() failed>", id="str"
        ),
    ],
)
def test_what_fails_is_told(code: str, text: str) -> None:
    result = once(code)
    assert result.error == FailureKind.TOOL_ERROR and text in result.content
    assert "snippet.py" not in result.content and "/lib/" not in result.content


SNIPPETS = [
    "for i in range(2): pass\nelse: print('e')",
    "a=[1]; a+=range(2); print(a)",
    "print(max(c for w in ['ab','z'] for c in w))",
    "while False: pass\nelse: print('w')",
    "class A:\n  x = 1\n  def __getattr__(self, n): return n\nprint(A().x, A().y)",
    "def g():\n  try: yield 1\n  finally: print('f')\nfor x in g(): print(x); break",
    "match (1, [2, 3]):\n  case (a, [b, *c]): print(a, b, c)",
    "print(f'{3.14159:.2f} {\"x\"!r:>5}')",
    "from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n  a: int\nprint(P(1) < P(2))",
    "import asyncio\nasync def m(): print(await asyncio.sleep(0, 'a'))\nasyncio.run(m())",
    "import threading\nthreading.Thread(target=lambda: print('thread')).start()",
    "import atexit\natexit.register(print, 'bye')\nprint('hi')",
    "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))).__module__)",
    "x: int = 3\nprint(__annotations__)",
    "print((lambda *a, k=1, **kw: (a, k, kw))(1, 2, z=3))",
    "try:\n  raise ExceptionGroup('g', [ValueError(1)])\nexcept* ValueError as e: print(e.exceptions)",
    "import sys; print(sys.argv, sys.flags.utf8_mode)",
    "print(2**200, 7//-2, -7%3, round(2.5), 0.1+0.2)",
    "del print\nprint('back')" if False else "print(sorted({'b': 1, 'a': 2}.items()))",
    "import os\nif os.fork() == 0: print('child', flush=True); os._exit(0)\nos.wait()\nprint('parent')",
    "import os\npid = os.fork()\nif pid: os.wait()\nprint('both')",
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_code_means_what_it_means_to_python(code: str) -> None:
    command = [sys.executable, "-I", "-X", "utf8", "-"]
    script = subprocess.run(command, input=code, capture_output=True, text=True, timeout=60)
    expected = script.stdout.replace("['-']", "['']").rstrip("\n")
    assert once(code).content == expected


@levels
def test_state_lasts_over_an_episode(level: str) -> None:
    toolbox = box(level=level, persistent=True)
    say(toolbox, "x = 1\nimport math\nopen('f', 'w').write('text')")
    assert say(toolbox, "print(x, math.pi > 3, open('f').read())") == "1 True text"
    toolbox.close()


def test_state_never_lasts_longer_than_an_episode(kept: Toolbox) -> None:
    other = box(persistent=True)
    assert say(kept, "x = 1") == "[no output]"
    assert say(other, "'x' in globals()") == "False"
    kept.begin(Session())
    assert say(kept, "'x' in globals()") == "False"
    other.close()


def test_without_persistence_each_call_begins_anew() -> None:
    toolbox = box()
    say(toolbox, "x = 1; open('f', 'w')")
    assert say(toolbox, "import os; print('x' in globals(), os.listdir())") == "False []"
    toolbox.close()


def test_an_error_keeps_the_state(kept: Toolbox) -> None:
    say(kept, "x = 1")
    assert "ZeroDivisionError" in say(kept, "x = 2; 1/0")
    assert say(kept, "x") == "2"


def test_the_model_is_told_when_the_state_is_lost(kept: Toolbox) -> None:
    say(kept, "x = 1")
    say(kept, "import os; os._exit(1)")
    assert "restarted: what earlier calls defined is gone]\nTraceback" in say(kept, "x")
    assert say(kept, "1") == "1"


def test_calls_of_one_reply_share_the_state_in_order(kept: Toolbox) -> None:
    calls = [call(f"{'x = 0' if i == 0 else 'x += 1'}\nx", str(i)) for i in range(8)]
    assert [result.content for result in kept.run(calls)] == [str(i) for i in range(8)]


def test_children_are_dead_between_the_calls_of_an_episode(kept: Toolbox) -> None:
    n = mark()
    say(kept, f"import os; x = 1; os.system('setsid sleep {n} & sleep {n} &')")
    assert not living(n)
    assert say(kept, "x") == "1"


def test_a_traceback_shows_the_code_of_its_call(kept: Toolbox) -> None:
    say(kept, "def f():\n    raise ValueError('here')")
    told = say(kept, "# another\nf()")
    assert 'File "<code 2>", line 2' in told and "raise ValueError('here')" in told


@levels
@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)"])
def test_code_that_hangs_gives_control_back(level: str, code: str) -> None:
    toolbox, began = box(1, level=level), time.monotonic()
    n = mark()
    (result,) = toolbox.run([call(f"import os; os.system('setsid sleep {n} &')\n{code}")])
    assert result.error == FailureKind.TIMEOUT and time.monotonic() - began < 10
    assert not living(n)
    assert say(toolbox, "1 + 1") == "2"
    toolbox.close()


async def test_cancelling_kills_what_runs() -> None:
    toolbox, n = box(60), mark()
    task = asyncio.create_task(
        toolbox.run_async([call(f"import os; os.system('setsid sleep {n} & sleep {n}')")])
    )
    while not living(n):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not living(n)
    toolbox.close()


@levels
def test_a_flood_is_cut_with_a_notice(level: str) -> None:
    result = once("while True: print('x' * 1000)", level=level, max_output_chars=3000)
    assert result.error == FailureKind.TOOL_ERROR and len(result.content) < 3200
    assert result.content.endswith("[stopped: the output is longer than 3000 characters]")


def test_output_that_is_a_little_too_long_is_cut_as_well() -> None:
    result = once("print('x' * 1500)", max_output_chars=1000)
    assert result.content == f"{'x' * 1000}\n[output cut here]"


@levels
@pytest.mark.parametrize(
    ("code", "config", "told"),
    [
        ("b = bytearray(1 << 30)", {"memory_mb": 256}, "MemoryError"),
        (
            "import os, time\nfor i in range(50):\n  if os.fork() == 0: time.sleep(60)",
            {"max_processes": 5},
            "more than 5 proc",
        ),
        ("open('f', 'wb').write(b'x' * (100 << 20))", {"file_mb": 1}, "File too large"),
        ("while True: pass", {"cpu_seconds": 1}, "CPU time"),
    ],
    ids=["memory", "processes", "files", "cpu"],
)
def test_each_limit_is_felt(level: str, code: str, config: dict[str, Any], told: str) -> None:
    result = once(code, level=level, **config)
    assert result.error == FailureKind.TOOL_ERROR and told in result.content


@levels
def test_secrets_of_the_parent_are_not_in_sight(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("API_TOKEN", "secret-value")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("secret-value")
    code = """
import os
print(os.environ, open('/proc/self/environ').read(), os.listdir(os.path.expanduser('~')))
try: print(open(os.path.expanduser('~/.netrc')).read())
except OSError: pass
"""
    result = once(code, level=level)
    assert result.ok and "secret-value" not in result.content and "[]" in result.content


def test_a_wrong_config_is_told_with_its_place() -> None:
    for config, told in (
        ({"level": "bwarp"}, "did you mean 'bwrap'"),
        ({"memory_mb": 3}, "memory_mb must be a whole number of at least 64"),
        ({"persistent": "yes"}, "persistent must be true or false"),
        ({"max_output_chars": 0}, "max_output_chars must be a whole number above 0"),
        ({"memory": 3}, "did you mean 'memory_mb'"),
    ):
        with pytest.raises(CatalogError, match=told) as caught:
            box(**config)
        assert str(caught.value.file).endswith("python.yaml") and caught.value.line


def test_it_is_an_environment() -> None:
    env = gym.make("AgentR1/PythonTool-v0")
    check_env(env.unwrapped)
    env.reset(seed=0)
    assert env.step("print(6 * 7)")[0] == "42"
    env.close()


def test_it_works_off_the_main_thread() -> None:
    found: list[ToolResult] = []
    thread = threading.Thread(target=lambda: found.append(once("1 + 1")))
    thread.start()
    thread.join(30)
    assert found[0].content == "2"


def test_many_calls_leave_nothing_open() -> None:
    toolbox = box()
    for _ in range(3):
        toolbox.run([call("1", str(i)) for i in range(8)])
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        toolbox.run([call("1", str(i)) for i in range(8)])
    # Interpreters that wait for the next call hold a few.
    assert len(os.listdir("/proc/self/fd")) <= count + 40
    toolbox.close()


def test_long_code_arrives_whole() -> None:
    code = "\n".join(f"x{i} = '{'y' * 80}'" for i in range(20_000)) + "\nlen(x19999)"
    assert once(code).content == "80"


def test_a_fork_of_the_parent_uses_interpreters_of_its_own() -> None:
    code = (
        "import os, sys, agent_r1_env, gymnasium as gym\n"
        "env = gym.make('AgentR1/PythonTool-v0'); env.reset(); print(env.step('1')[0], flush=True)\n"
        "if os.fork() == 0:\n"
        "    env = gym.make('AgentR1/PythonTool-v0'); env.reset()\n"
        "    print(env.step('2')[0], flush=True); os._exit(0)\n"
        "os.wait(); env.reset(); print(env.step('3')[0]); env.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["1", "2", "3"], "")


def test_output_near_the_limit_never_spills_into_the_next_call() -> None:
    toolbox = box(persistent=True, max_output_chars=2000)
    for size in (7_990, 8_000, 8_010, 20_000, 60_000):
        toolbox.begin(Session())
        first = toolbox.run([call(f"import os; os.write(1, b'x' * {size}); None")])[0]
        assert first.content.count("x" * 2000) == 1, size
        assert say(toolbox, "'next'").endswith("'next'") and "x" not in say(toolbox, "'again'")
    toolbox.close()


def test_an_interpreter_that_died_while_it_waited_is_not_used() -> None:
    others = {key: each.users for key, each in interpreters._POOLS.items()}
    toolbox = box()
    say(toolbox, "1")
    (pool,) = [each for key, each in interpreters._POOLS.items() if each.users > others.get(key, 0)]
    pool.fill()
    for child in pool._ready:
        child._supervisor.kill()
        child._supervisor.wait()
    assert say(toolbox, "2") == "2"
    toolbox.close()


def test_a_copy_of_an_episode_goes_on_where_nothing_is_kept() -> None:
    first, second = box(), box()
    try:
        assert say(first, "x = 1") == "[no output]"
        second.set_state(Session(), first.get_state())
        assert "NameError" in say(second, "print(x)")
    finally:
        first.close()
        second.close()


def test_what_a_persistent_interpreter_keeps_has_no_copy(kept: Toolbox) -> None:
    kept.get_state()  # nothing has run yet
    assert say(kept, "x = 1") == "[no output]"
    with pytest.raises(StateError, match="it is persistent, and a running interpreter has no copy"):
        kept.get_state()
