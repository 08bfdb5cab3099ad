"""What a person sees of an evaluation: how far it is, and what came out."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_r1_env.evaluate import Progress
    from agent_r1_env.summary import Evaluation

_PAUSE = 10.0  # seconds between two lines of progress where there is no terminal


def report(found: Evaluation) -> str:
    """One evaluation for a person."""
    width = max(len(name) for name in ("prefix-cache hits", *found.metrics, *found.official))
    rows = {"reward": str(found.reward)} | {name: str(value) for name, value in found.metrics.items()}
    if not math.isnan(found.reply_tokens.mean):
        rows["reply tokens"] = str(found.reply_tokens)
    rows |= {
        "tool-call rate": f"{found.tool_call_rate:.3f}",
        "invalid-call rate": f"{found.invalid_call_rate:.3f}",
        "answer rate": f"{found.answer_rate:.3f}",
        "truncation rate": f"{found.truncation_rate:.3f}",
    }
    if not math.isnan(found.prefix_cache_hit_rate):
        rows["prefix-cache hits"] = f"{found.prefix_cache_hit_rate:.3f}"
    stops = ", ".join(f"{reason} {number}" for reason, number in found.stop_reasons.items())
    lines = [
        f"{found.env_id}, {found.policy}, {found.method}: {found.n} episodes in {found.seconds:.1f} s",
        f"questions from {found.data}",
        "",
        *(f"  {name:{width}}  {value}" for name, value in rows.items()),
        "",
    ]
    if found.best:
        lines += [
            f"best of {found.samples}:",
            *(f"  {name:{width}}  {value}" for name, value in found.best.items()),
            "",
        ]
    if found.official:
        lines += [
            "by the data set's own scorer (supporting facts: what the searches showed):",
            *(f"  {name:{width}}  {value:.3f}" for name, value in found.official.items()),
            "",
        ]
    lines.append(f"ended by: {stops or 'nothing'}")
    if found.failed:
        lines.append(
            f"{found.failed} episodes failed because the environment broke; they count nowhere above"
        )
    return "\n".join(lines)


@contextlib.contextmanager
def progress_of(title: str) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield _lines(title)
        return
    with tqdm(desc=title, unit="episode", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            if bar.total is None:
                bar.reset(total)
                bar.initial = done  # an earlier run's episodes say nothing of our speed
            bar.update(done - bar.n)

        yield show


def _lines(title: str) -> Progress:
    began = told = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _PAUSE:
            told = now
            print(f"{title}: {done} of {total} episodes, {now - began:.0f} s", file=sys.stderr, flush=True)

    return show
