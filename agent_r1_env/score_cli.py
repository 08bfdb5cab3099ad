"""``agent-r1 score``: the metrics of a file of predictions, as the data set's official script has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from agent_r1_env import official, official_files
from agent_r1_env.errors import AgentR1Error, DataError, look_up, nearest
from agent_r1_env.official import DATASETS, Gold, Prediction


def run(
    dataset: str,
    predictions: str,
    gold: str,
    *,
    aliases: str | None = None,
    write: Callable[[str], object] = print,
) -> int:
    """Write one JSON object: the metrics as the script prints them, then what it says besides.

    ``questions`` is how many there are, ``missing`` how many of them lack a part of the prediction and count
    0, ``without_gold`` how many predictions belong to none of them, ``unrounded`` the metrics as fractions.

    Raises:
        UnknownName: no such data set.
        DataError: a file is missing or of another form, or the two files do not belong together.
    """
    look_up("data set", dataset, dict.fromkeys(DATASETS))
    if aliases is not None and dataset != "2wiki":
        raise AgentR1Error(f"--aliases goes with the data set '2wiki'; {dataset!r} has no alias file")
    said = official_files.read_predictions(dataset, predictions)
    known = official_files.read_aliases(aliases) if aliases is not None else None
    golds = official_files.read_golds(dataset, gold, known)
    stray = _stray(golds, said, f"{predictions!r} and {gold!r}")
    unrounded = official.score(dataset, golds, said)
    found = {
        **official.as_printed(dataset, unrounded),
        "questions": len({each.id for each in golds}),
        "missing": official.missing(dataset, golds, said),
        "without_gold": len(stray),
        "unrounded": unrounded,
    }
    write(json.dumps(found, indent=2))
    return 0


def _stray(golds: Sequence[Gold], predictions: Sequence[Prediction], files: str) -> list[str]:
    """The ids of predictions without a gold; said on stderr, for they may be misspelt."""
    asked = {gold.id for gold in golds}
    stray = [prediction.id for prediction in predictions if prediction.id not in asked]
    if not stray:
        return []
    guess = nearest(stray[0], asked)
    meant = f"; the nearest id that has one is {guess!r}" if guess else ""
    if len(stray) == len(predictions):
        raise DataError(
            f"{files} have no id in common; there is, for example, no gold for {stray[0]!r}{meant}"
        )
    print(f"warning: predictions without a gold: {len(stray)}, such as {stray[0]!r}{meant}", file=sys.stderr)
    return stray
