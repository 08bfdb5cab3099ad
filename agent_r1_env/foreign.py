"""Replies that show the marks of another wire format than the environment reads.

Every parser fails in silence on calls in a form that is not its own: they are prose to it. The run goes on,
each episode without a call, and looks like a model that will not use its tools.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from agent_r1_env import formats
from agent_r1_env.episode import Episode
from agent_r1_env.formats.detection import every_format
from agent_r1_env.formats.format import Format
from agent_r1_env.messages import FailureKind

FEWEST = 4
"""Replies below which nothing is said."""
_PER_CALL = 10  # replies with a foreign mark that one reply with a call of our own outweighs
_SAMPLES = 16


class ForeignCalls:
    """Counts over the replies of a run."""

    def __init__(self, format: Format) -> None:
        """Watch an environment that reads ``format``."""
        self.format = format
        self.replies = self.calls = 0  # those that were read, of replies with one at least
        self._owners: defaultdict[str, set[str]] = defaultdict(set)
        for other in every_format():
            for mark in other.markers:
                self._owners[mark].add(other.name)
        self._marks = [mark for mark, owners in self._owners.items() if format.name not in owners]
        self._seen: Counter[str] = Counter()
        self._samples: list[str] = []

    def add(self, episode: Episode) -> None:
        """Count the replies of one episode."""
        for step in episode.steps:
            self.replies += 1
            self.calls += any(call.get("error") != FailureKind.MALFORMED_CALL for call in step.calls)
            found = [mark for mark in self._marks if mark in step.reply]
            self._seen.update(found)
            if found and len(self._samples) < _SAMPLES:
                self._samples.append(step.reply)

    def message(self) -> str | None:
        """What to tell the user, if most replies show a foreign mark and hardly any a call that was read."""
        if self.replies < FEWEST or not self._seen:
            return None
        mark, count = max(self._seen.items(), key=lambda each: (each[1], each[0]))
        if 2 * count <= self.replies or _PER_CALL * self.calls > count:
            return None
        names = self._speakers(mark)
        return (
            f"{self.calls} calls parsed by {self.format.name!r}, {count} of {self.replies} replies hold "
            f"`{mark}`; the model may speak {' or '.join(map(repr, names))}: give the environment "
            f"format={names[0]!r} (--set format={names[0]}), or 'auto'"
        )

    def _speakers(self, mark: str) -> list[str]:
        """The formats that read the most of the replies kept; of equals, those with that mark."""
        read = {
            name: sum(bool(formats.get(name).parse(reply).calls) for reply in self._samples)
            for name in formats.names()
            if name != self.format.name
        }
        best = [name for name in read if read[name] == max(read.values())]
        return [name for name in best if name in self._owners[mark]] or best
