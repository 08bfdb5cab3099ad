"""The folder of an evaluation: what it is, and its episodes as they end, so that a killed run can go on.

``run.json`` holds all that identifies the run and a few facts about it, ``episodes.jsonl`` an episode a line.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from agent_r1_env.episode import Episode, EpisodeFile, read_episodes
from agent_r1_env.errors import AgentR1Error, DataError
from agent_r1_env.summary import Evaluation, row_of, summarise

RUN, EPISODES, OFFICIAL = "run.json", "episodes.jsonl", "official.json"
_TOLD = 80
Key = tuple[str | None, int]
"""Task id and sample."""


class RunFolder:
    """A folder open for writing, by one process at a time.

    Attributes:
        kept: the episodes that need not run again, by task id and sample; those that failed are not in it.
    """

    def __init__(self, path: str | Path, identity: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Begin a run in an empty folder, or go on with the one that is there.

        Args:
            identity: what must be equal for a run to go on, as plain data.
            facts: what else readers want to know of the run.

        Raises:
            AgentR1Error: the folder holds another run, or another process writes to it.
        """
        self.path = Path(path)
        identity = json.loads(json.dumps(identity, default=_named))
        if (self.path / RUN).exists():
            _check_same(self.path, read_run(self.path)["identity"], identity)
        elif (self.path / EPISODES).exists() or any(self.path.glob(f"*/{RUN}")):
            raise AgentR1Error(f"{self.path} holds something other than this run; choose another folder")
        else:
            write_json(self.path / RUN, {"identity": identity, **facts})
        self._lock = self._locked()
        self._file = EpisodeFile(self.path / EPISODES, ids=False)
        done = latest(read_episodes(self.path / EPISODES))
        self.kept = {key: episode for key, episode in done.items() if not episode.failed}

    def append(self, episode: Episode) -> None:
        """Write one episode down."""
        self._file.append(episode)

    def close(self) -> None:
        """Let go of the folder; twice is harmless."""
        self._file.close()
        self._lock.close()

    def _locked(self) -> BinaryIO:
        # The lock belongs to the open file, so that it ends with the process, however that ends.
        lock = open(self.path / RUN, "rb")  # noqa: SIM115 (closed by ``close``)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise AgentR1Error(f"another process is writing to {self.path}; let it end first") from None
        return lock


def latest(episodes: Iterable[Episode]) -> dict[Key, Episode]:
    """The episode that counts of each task and sample: the last, but none that failed after a good one."""
    found: dict[Key, Episode] = {}
    for episode in episodes:
        key = episode.task_id, episode.sample
        if key not in found or found[key].failed or not episode.failed:
            found[key] = episode
    return found


def read_run(path: str | Path) -> dict[str, Any]:
    """What ``run.json`` of a folder says.

    Raises:
        DataError: there is none, or it is of another form.
    """
    file = Path(path) / RUN
    try:
        data = json.loads(file.read_text("utf-8"))
        data["identity"]["env_id"], data["episodes"]
    except FileNotFoundError:
        raise DataError(f"no evaluation there: it holds no {RUN}", file=path) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not what an evaluation writes: {error!r}", file=file) from None
    return dict(data)


def folders_in(path: str | Path) -> list[Path]:
    """The folder itself if it holds a run, else those in it that do, by name.

    Raises:
        DataError: there is none.
    """
    place = Path(path)
    found = [place] if (place / RUN).is_file() else sorted(file.parent for file in place.glob(f"*/{RUN}"))
    if not found:
        raise DataError(f"no evaluation there: neither it nor a folder in it holds {RUN}", file=path)
    return found


def load(*paths: str | Path) -> list[Evaluation]:
    """The evaluations of folders, each as ``evaluate`` returned it; shards of one run are put together.

    Of two folders with the same shard each belongs to a run of its own. A run that is not complete is loaded
    as far as it is, with a warning.

    Raises:
        DataError: a folder holds none.
    """
    runs: dict[tuple[str, int], list[Path]] = {}
    seen = Counter[tuple[str, str]]()
    for folder in (folder for path in paths for folder in folders_in(path)):
        identity = read_run(folder)["identity"]
        run, shard = json.dumps(_unsharded(identity)), identity["shard"]
        runs.setdefault((run, seen[run, shard]), []).append(folder)
        seen[run, shard] += 1
    return [_loaded(folders) for folders in runs.values()]


def merge(paths: Sequence[str | Path], output: str | Path) -> Evaluation:
    """Put the shards of one run together in one folder, as if it had never been split.

    Raises:
        AgentR1Error: they are not the complete shards of one run; says what is wrong or missing.
        DataError: a folder holds no run.
    """
    runs = {Path(path): read_run(path) for path in paths}
    first, *others = runs
    identity = _unsharded(runs[first]["identity"])
    for path in others:
        _check_same(first, identity, _unsharded(runs[path]["identity"]), "merge shards of one run alone")
    _check_complete(runs)
    data = {**runs[first], "identity": {**identity, "shard": "1/1"}}
    data["episodes"] = sum(run["episodes"] for run in runs.values())
    output = Path(output)
    if (output / RUN).exists() or (output / EPISODES).exists():
        raise AgentR1Error(f"{output} holds an evaluation already; choose another folder")
    write_json(output / RUN, data)
    if all((path / OFFICIAL).exists() for path in runs):
        parts = [json.loads((path / OFFICIAL).read_text("utf-8")) for path in runs]
        write_json(output / OFFICIAL, {each: row for part in parts for each, row in part.items()})
    with EpisodeFile(output / EPISODES, ids=False) as file:
        for path in runs:
            for episode in latest(read_episodes(path / EPISODES)).values():
                file.append(episode)
    return _loaded([output])


def write_json(path: Path, data: Any) -> None:
    """Write a file that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps(data, indent=2, default=_named) + "\n", "utf-8")
    os.replace(partial, path)


def _loaded(folders: Sequence[Path]) -> Evaluation:
    runs = [read_run(folder) for folder in folders]
    episodes: dict[Key, Episode] = {}
    official: dict[str, dict[str, float]] = {}
    for folder in folders:
        if (folder / EPISODES).exists():
            episodes |= latest(read_episodes(folder / EPISODES))
        if (folder / OFFICIAL).exists():
            official |= json.loads((folder / OFFICIAL).read_text("utf-8"))
    wanted = sum(run["episodes"] for run in runs)
    if len(episodes) < wanted:
        what = f"{len(episodes)} of {wanted} episodes"
        warnings.warn(f"{folders[0]} is not complete: {what}; the same command goes on", stacklevel=3)
    identity = runs[0]["identity"]
    return summarise(
        [row_of(episode) for episode in episodes.values()],
        **{name: identity[name] for name in ("env_id", "policy", "method", "data", "samples", "seed")},
        synthetic=runs[0]["synthetic"],
        official=official,
    )


def _check_same(
    path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], advice: str = "choose another folder"
) -> None:
    flat_theirs, flat_ours = _flat(theirs), _flat(ours)
    differing = [
        f"{name} is {_shown(flat_theirs.get(name))} there and {_shown(flat_ours.get(name))} here"
        for name in dict.fromkeys([*flat_ours, *flat_theirs])
        if flat_theirs.get(name) != flat_ours.get(name)
    ]
    if differing:
        raise AgentR1Error(f"{path} holds another run: {'; '.join(differing)}; {advice}")


def _check_complete(runs: Mapping[Path, Mapping[str, Any]]) -> None:
    shards = {path: run["identity"]["shard"] for path, run in runs.items()}
    places = [shard.partition("/") for shard in shards.values()]
    counts = {int(count) for _, _, count in places}
    if len(counts) > 1:
        raise AgentR1Error(f"shards of different splits: {', '.join(sorted(shards.values()))}")
    (count,) = counts
    numbers = [int(number) for number, _, _ in places]
    if twice := next((number for number in numbers if numbers.count(number) > 1), None):
        raise AgentR1Error(f"shard {twice}/{count} is given twice")
    if lacking := sorted(set(range(1, count + 1)) - set(numbers)):
        listed = ", ".join(f"{number}/{count}" for number in lacking)
        raise AgentR1Error(f"shards are missing: {listed}")
    for path, run in runs.items():
        done = len(latest(read_episodes(path / EPISODES))) if (path / EPISODES).exists() else 0
        if done < run["episodes"]:
            raise AgentR1Error(
                f"{path} is not complete: {done} of {run['episodes']} episodes; run its command again first"
            )


def _unsharded(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != "shard"}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}..."


def _named(value: Any) -> str:
    """What has no form in JSON, by a name that is the same in every process."""
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    return str(getattr(value, "__qualname__", None) or getattr(value, "name", None) or type(value).__name__)
