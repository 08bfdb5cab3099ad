"""``agent-r1 eval table`` and ``agent-r1 eval compare``: what is in the folders of runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_r1_env.errors import AgentR1Error

if TYPE_CHECKING:
    from agent_r1_env.summary import Evaluation

FORMATS = ("text", "csv", "json", "markdown", "latex")


def add_parsers(commands: Any) -> None:
    """Add the commands to those of the command line."""
    table = commands.add_parser(
        "eval table",
        prog="agent-r1 eval table",
        description="Print the results of finished runs: methods by data sets, or all measures of one run.",
    )
    add = table.add_argument
    add("runs", metavar="RUN", nargs="+", help="what --output was for a run, for a shard or for several runs")
    add(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="a table for this measure, such as f1, official/joint_f1, pass@4 or steps; may be given again "
        "(default: exact_match, sub_exact_match and f1)",
    )
    add("--long", action="store_true", help="one table of all measures (the default for a single run)")
    add_format(table, "one record for each run and measure")
    table.set_defaults(run=_table, register=None)
    compare = commands.add_parser(
        "eval compare",
        prog="agent-r1 eval compare",
        description="Say whether run B differs from run A by more than chance, on the tasks that both have.",
    )
    add = compare.add_argument
    add("a", metavar="A", help="what --output was for the run that B is measured against")
    add("b", metavar="B", help="and for the other one")
    add(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="may be given again (default: exact_match, sub_exact_match and f1; else reward)",
    )
    add("--seed", type=int, default=0, metavar="S", help="of what is resampled (default: 0)")
    add("--json", action="store_true", help="print JSON alone")
    compare.set_defaults(run=_compare, register=None)


def add_format(parser: argparse.ArgumentParser | argparse._ArgumentGroup, in_json: str) -> None:
    """Add the options that say how results are shown."""
    add = parser.add_argument
    add(
        "--format",
        choices=FORMATS,
        help="of what is printed (default: what the ending of --out says, else text)",
    )
    add("--json", dest="format", action="store_const", const="json", help=f"as --format json: {in_json}")
    add("--out", metavar="FILE", help="write that to a file instead")


def chosen_format(options: argparse.Namespace) -> str:
    """The format that was asked for.

    Raises:
        AgentR1Error: ``--out`` is no file that can be written.
    """
    from agent_r1_env.tableformats import by_suffix

    if options.out is not None and Path(options.out).is_dir():
        raise AgentR1Error(f"--out {options.out}: a folder is there; --out takes a file for what is printed")
    if options.out is not None and not Path(options.out).parent.is_dir():
        raise AgentR1Error(f"--out {options.out}: there is no folder {str(Path(options.out).parent)!r}")
    return options.format or by_suffix(options.out)


def deliver(text: str, out: str | None) -> None:
    """Print a text, or write it to a file and say so."""
    if out is None:
        print(text)
        return
    Path(out).write_text(f"{text}\n", "utf-8")
    print(f"written to {out}")


def _table(options: argparse.Namespace) -> int:
    from agent_r1_env import runfolder, tableformats

    form = chosen_format(options)
    found = runfolder.load(*options.runs)
    deliver(tableformats.write(found, form, options.metric, long=options.long), options.out)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from agent_r1_env.compare import compare, report

    a, b = _only(options.a), _only(options.b)
    names = tuple(
        f"{', '.join(filter(None, (each.policy, each.method)))} ({folder})"
        for each, folder in ((a, options.a), (b, options.b))
    )
    found = compare(a, b, options.metric, names=(names[0], names[1]), seed=options.seed)
    print(json.dumps(found.to_dict(), indent=2) if options.json else report(found))
    return 0


def _only(path: str) -> Evaluation:
    from agent_r1_env import runfolder

    found = runfolder.load(path)
    if len(found) > 1:
        folders = ", ".join(map(str, runfolder.folders_in(path)))
        raise AgentR1Error(f"{path} holds {len(found)} runs; name one of them: {folders}")
    return found[0]
