"""The contract of an environment as rules that can be tried: ``agent-r1 check``, ``testing.EnvContract``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_r1_env.errors import look_up
from agent_r1_env.rules import RULES, Rule
from agent_r1_env.subject import Broken, NotApplicable, Subject


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one rule.

    Attributes:
        holds: None where it does not apply.
        detail: why it does not hold or apply.
    """

    rule: str
    holds: bool | None
    detail: str = ""
    seconds: float = 0.0


def check(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    rules: Sequence[str] = (),
    seed: int = 0,
    on_finding: Callable[[Finding], Any] | None = None,
) -> list[Finding]:
    """Try every rule on an environment.

    Args:
        env_kwargs: of ``gymnasium.make``.
        rules: names of ``RULES``; all of them by default.
        on_finding: called with each as it comes.

    Raises:
        UnknownName: no such rule.
        Exception: whatever ``gymnasium.make`` raises.
    """
    chosen = {name: look_up("rule", name, RULES) for name in rules} or RULES
    subject = Subject(env_id, env_kwargs or {}, seed)
    subject.make()  # a mistake in the arguments is no finding
    subject.close()
    findings = []
    for name, rule in chosen.items():
        findings.append(_finding(name, rule, subject))
        if on_finding is not None:
            on_finding(findings[-1])
    return findings


def _finding(name: str, rule: Rule, subject: Subject) -> Finding:
    start = time.perf_counter()
    holds: bool | None = True
    detail = ""
    try:
        rule(subject)
    except NotApplicable as reason:
        holds, detail = None, str(reason)
    except Broken as broken:
        holds, detail = False, str(broken)
    except Exception as error:  # whatever an environment of somebody else's raises is a finding
        holds, detail = False, f"raised {type(error).__name__}: {error}"
    finally:
        subject.close()
    return Finding(name, holds, detail, time.perf_counter() - start)
