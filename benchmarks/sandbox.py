"""Short calls of the python tool, a second, at each level, against a bare ``subprocess.run([python, "-c"])``.

    python benchmarks/sandbox.py [--calls 200] [--at-once 1 2 4]

The python tool gives each call an interpreter of its own that was started before, in namespaces and with
limits, and kills it with all that it started; what that costs is the ratio. The CPU time of this process and
of all children that ended is shown as well, because it depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from agent_r1_env import sandbox
from agent_r1_env.catalog import Catalog, load_tool
from agent_r1_env.messages import ToolCall
from agent_r1_env.toolbox import Session, Toolbox

CODE = "print(2 ** 10)"


def main() -> None:
    parser = argparse.ArgumentParser(description="Short calls of the python tool a second.")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}\n")
    print("| what runs `print(2 ** 10)` | at once | calls a second | ratio | CPU ms a call |")
    print("| --- | --- | --- | --- | --- |")
    for at_once in options.at_once:
        bare, cpu = measure(partial(bare_calls, at_once=at_once), options.calls)
        print(f"| `subprocess.run` | {at_once} | {bare:.0f} | 1 | {cpu:.0f} |")
        for level in sandbox.LEVELS:
            if reason := sandbox.unavailable(level):
                print(f"| level {level}: {reason} |")
                continue
            for persistent in (False, True):
                rate, cpu = tool_calls(level, persistent, at_once, options.calls)
                name = f"level `{level}`" + (", `persistent`" if persistent else "")
                print(f"| {name} | {at_once} | {rate:.0f} | {rate / bare:.2f} | {cpu:.0f} |", flush=True)


def measure(run: Callable[[int], None], calls: int) -> tuple[float, float]:
    """Calls a second, and milliseconds of CPU time that this process and its children took for each."""
    began, before = time.perf_counter(), _cpu()
    run(calls)
    seconds = time.perf_counter() - began
    return calls / seconds, (_cpu() - before) / calls * 1000


def bare_calls(calls: int, at_once: int) -> None:
    command = [sys.executable, "-c", CODE]
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda _: subprocess.run(command, capture_output=True, check=True), range(calls)))


def tool_calls(level: str, persistent: bool, at_once: int, calls: int) -> tuple[float, float]:
    """The same through toolboxes, one for each that runs at once, as episodes have them."""
    config = {"level": level, "persistent": persistent}
    boxes = [
        Toolbox([load_tool(Catalog.open(None).tool("python"), None, {"config": config})])
        for _ in range(at_once)
    ]
    for box in boxes:
        box.begin(Session())
        box.run([ToolCall("python", {"code": "1"}, "c")])

    def episode(box: Toolbox, calls: int) -> None:
        for _ in range(calls):
            (result,) = box.run([ToolCall("python", {"code": CODE}, "c")])
            if result.content != "1024":
                raise RuntimeError(result.content)

    def all_episodes(calls: int) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda box: episode(box, calls // at_once), boxes))

    measured = measure(all_episodes, calls)
    for box in boxes:
        box.close()
    return measured


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
