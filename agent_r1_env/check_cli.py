"""``agent-r1 check``: try the contract on an environment and print what holds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_r1_env.contract import Finding, check
from agent_r1_env.rules import RULES

Write = Callable[[str], object]
_SIGNS = {True: "ok", False: "BROKEN", None: "-"}


def run(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    *,
    rules: Sequence[str] = (),
    seed: int = 0,
    as_json: bool = False,
    write: Write = print,
) -> int:
    """Print a line for each rule as it is tried, or all of them as JSON.

    Returns:
        0 if every rule that applies holds, else 1.
    """
    found = check(
        env_id,
        env_kwargs,
        rules=rules,
        seed=seed,
        on_finding=None if as_json else lambda each: _tell(each, write),
    )
    broken = sum(each.holds is False for each in found)
    if as_json:
        write(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
    else:
        held, rest = sum(bool(each.holds) for each in found), sum(each.holds is None for each in found)
        write(f"{env_id}: {held} rules hold, {broken} broken" + (f", {rest} do not apply" if rest else ""))
    return 1 if broken else 0


def rules(write: Write = print) -> int:
    """Print every rule and what it says."""
    for name, rule in RULES.items():
        write(f"{name}\n    {rule.__doc__}")
    return 0


def _tell(finding: Finding, write: Write) -> None:
    sign = _SIGNS[finding.holds]
    write(f"{sign:6}  {finding.rule}" + (f"\n        {finding.detail}" if finding.detail else ""))
