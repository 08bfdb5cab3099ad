"""``agent-r1 export``: a file of episodes as a data set for another trainer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_r1_env.command import count, own_stdout
from agent_r1_env.episode import Episode
from agent_r1_env.errors import AgentR1Error, DataError

LAYOUTS = ("parquet", "verl", "sft")


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser("export", help="write episodes as a data set for another trainer")
    add = parser.add_argument
    add("episodes", metavar="EPISODES", help="a file of episodes, as --episodes and training write them")
    add(
        "--to",
        choices=LAYOUTS,
        required=True,
        help="parquet: masked rows with ids, log-probs, advantages; verl: a batch of its agent loop; "
        "sft: messages",
    )
    add("--out", metavar="FILE", required=True, help="*.parquet, *.jsonl, or a folder in Arrow's format")
    add("--algorithm", metavar="NAME", default="grpo", help="of the advantages in rows (default: grpo)")
    add("--max-tokens", type=count, metavar="N", help="cut longer rows behind the last reply that fits")
    add("--pad-token", type=int, default=0, metavar="ID", help="verl: id that fills rows up (default: 0)")
    add("--step-rewards", action="store_true", help="verl: each step's reward on its own last id")
    add("--min-reward", type=float, metavar="R", help="leave out episodes with less")
    parser.set_defaults(run=_run, register=None)


def _run(options: argparse.Namespace) -> int:
    with own_stdout():
        text = run(
            options.episodes,
            options.to,
            options.out,
            algorithm=options.algorithm,
            max_tokens=options.max_tokens,
            pad_token=options.pad_token,
            step_rewards=options.step_rewards,
            min_reward=options.min_reward,
        )
    print(text)
    return 0


def run(
    path: str,
    to: str,
    out: str,
    *,
    algorithm: str = "grpo",
    max_tokens: int | None = None,
    pad_token: int = 0,
    step_rewards: bool = False,
    min_reward: float | None = None,
) -> str:
    """Write the data set and say what is in it, and what was left out.

    Advantages are those of all episodes of the file, before any is left out for its reward.

    Raises:
        DataError: there is no such file, or nothing in it for this layout.
        UnknownName: no such algorithm.
        MissingExtra: the package ``datasets`` is not installed.
    """
    from agent_r1_env import export, overlong
    from agent_r1_env.episode import read_episodes

    if not Path(path).is_file():
        raise DataError(f"there is no file {path!r}; agent-r1 eval --episodes FILE writes one")
    every = list(read_episodes(path))
    kept = [
        place for place, episode in enumerate(every) if min_reward is None or episode.reward >= min_reward
    ]
    episodes = [every[place] for place in kept]
    notes = _left_out(every, episodes, to)
    if to == "sft":
        records = list(export.sft_records([episode for episode in episodes if not episode.failed]))
        what = "conversations"
    else:
        given = _advantages(every, algorithm) if to == "parquet" else None
        limit = overlong.Limit(max_tokens) if max_tokens is not None else None
        batch = export.rows(episodes, given and [given[place] for place in kept], limit)
        notes += [
            f"{name.replace('_', ' ')}: {number}" for name, number in overlong.counts(batch).items() if number
        ]
        if to == "verl":
            records = list(export.verl_records(batch, episodes, pad_token, step_rewards=step_rewards))
        else:
            records = list(export.row_records(batch, episodes))
        what = "rows"
    if not records:
        raise DataError(f"{path!r} has nothing to export: {'; '.join(notes) or 'it holds no episodes'}")
    export.write(records, out)
    return "\n".join([f"{len(records)} {what} of {len(episodes)} episodes: {out}", *notes])


def _advantages(episodes: Sequence[Episode], algorithm: str) -> list[list[float]]:
    from agent_r1_env import export

    try:
        return export.advantages(episodes, algorithm)
    except ValueError as error:
        raise error if isinstance(error, AgentR1Error) else AgentR1Error(f"--algorithm: {error}") from error


def _left_out(every: Sequence[Episode], episodes: Sequence[Episode], to: str) -> list[str]:
    """What is not in the data set, in words."""
    failed = sum(episode.failed for episode in episodes)
    part = "messages" if to == "sft" else "token ids"
    without = sum(
        not any(step.messages if to == "sft" else len(step.response_ids) for step in episode.steps)
        for episode in episodes
        if not episode.failed
    )
    counted = {
        "episodes with less reward": len(every) - len(episodes),
        "episodes in which the environment broke": failed,
        f"episodes without {part}": without,
    }
    return [f"left out: {number} {what}" for what, number in counted.items() if number]
