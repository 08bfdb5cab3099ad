"""How far a long run is: bars on a terminal, a plain line for each step elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

_SHOWN = {
    "reward": "reward",
    "agent/exact_match": "em",
    "agent/tool_call_rate": "calls",
    "agent/invalid_call_rate": "invalid",
}


class Progress:
    """One phase after the other, each counted to its end."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._bar: Any = None
        self._title = ""
        self._started = time.perf_counter()

    def begin(self, title: str, total: int = 0, done: int = 0) -> None:
        """Begin a phase of ``total`` steps, of which ``done`` lie in an earlier run; 0 is not counted."""
        self.end()
        self._title, self._started = title, time.perf_counter()
        if self._quiet:
            return
        if self._stream.isatty() and total:
            from tqdm import tqdm

            # tqdm's own guess is 0 by 0 where a terminal tells no size, and then it shows nothing.
            size = shutil.get_terminal_size()
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=title,
                file=self._stream,
                ncols=size.columns - 1,
                nrows=size.lines,
            )
        else:
            print(f"{title} ...", file=self._stream, flush=True)

    def at(self, done: int, total: int, note: str = "", every: int = 1) -> None:
        """Show how far the phase is; without a terminal only each ``every``-th step and the last."""
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
        elif not self._quiet and not self._stream.isatty() and (done % every == 0 or done == total):
            text = f"{self._title} {done}/{total}"
            print(f"{text}  {note}" if note else text, file=self._stream, flush=True)

    def busy(self, note: str) -> None:
        """Show on the bar what is done between two steps."""
        if self._bar is not None:
            self._bar.set_postfix_str(note)

    def tell(self, text: str) -> None:
        """Print something for a person to read, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif not self._quiet:
            print(text, file=self._stream, flush=True)

    def end(self) -> float:
        """End the phase; returns its seconds."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        return time.perf_counter() - self._started


def brief(metrics: Mapping[str, Any]) -> str:
    """The few numbers of an update that a person follows."""
    numbers = [
        f"{label} {metrics[name]:.3f}" for name, label in _SHOWN.items() if metrics.get(name) is not None
    ]
    seconds = metrics.get("step_time")
    return "  ".join([*numbers, f"{seconds:.1f} s"] if seconds else numbers)
