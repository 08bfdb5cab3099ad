"""The rows of the table about what comes before the first step."""

from __future__ import annotations

import statistics

from bench_line import GROWTH, Line, Settings, beside, growth, told
from contest import OURS, Contender

HOTPOTQA = "ours, AgentR1/HotpotQA-v0"


def _peer(name: str, package: str, module: str) -> Contender:
    return Contender(
        name, "start:begun", peers=True, options={"package": package, "module": module}, fresh=True
    )


ALL = [
    Contender(OURS, "start:begun", options={"package": "agent_r1_env", "module": "ours"}, fresh=True),
    Contender(HOTPOTQA, "start:catalogue", options={"env_id": "AgentR1/HotpotQA-v0"}, fresh=True),
    _peer("gem", "gem", "peer_gem"),
    _peer("skyrl-gym", "skyrl_gym", "peer_skyrl"),
    _peer("OpenEnv", "openenv.core.env_server.interfaces", "peer_openenv"),
    _peer("aviary", "aviary.core", "peer_aviary"),
]
OURS_IMPORTED = Contender(OURS, "start:imported", options={"package": "agent_r1_env"}, fresh=True)
TRL = Contender(
    "TRL's GRPOTrainer", "start:imported", options={"package": "trl.trainer.grpo_trainer"}, fresh=True
)


def imported(result: dict[str, float]) -> float:
    """Seconds."""
    return result["import"]


def first(result: dict[str, float]) -> float:
    """Milliseconds of an environment that is made and reset."""
    return (result["reset"] + result.get("make", 0.0)) * 1e3


def memory(result: dict[str, float]) -> float:
    """MB of all environments together."""
    return result["memory"]


def start(settings: Settings) -> list[Line]:
    """Imports, the first reset, and many environments at once, each in a process of its own."""
    base = 50 if settings.quick else 1000
    rounds = min(settings.rounds, 5)
    found = settings.contest(ALL, rounds, count=base)
    loaded = settings.contest([OURS_IMPORTED, *([] if settings.quick else [TRL])], rounds)
    runs = {1: found} | {
        times: settings.contest(ALL[:1], 1, count=base * times) for times in GROWTH if times > 1
    }
    imports = found[OURS].numbers(imported)
    resets = [each["reset"] * 1e3 for each in found[HOTPOTQA].rounds]
    most = max(statistics.median(found[name].numbers(memory)) for name in (OURS, HOTPOTQA))
    return [
        Line(
            "import, s",
            told(imports),
            beside({name: each for name, each in found.items() if name != HOTPOTQA}, imported)
            + beside(loaded, imported),
            target="at most 0.3 s",
            met=statistics.median(imports) <= 0.3,
        ),
        Line(
            "first reset of AgentR1/HotpotQA-v0, ms",
            told(resets),
            target="at most 50 ms",
            met=statistics.median(resets) <= 50,
        ),
        Line(
            "a first environment, made and reset, ms", told(found[OURS].numbers(first)), beside(found, first)
        ),
        Line(
            f"memory of {base:,} environments, MB",
            told(found[OURS].numbers(memory)),
            beside(found, memory),
            growth=growth(runs, memory),
            target="at most 200 MB",
            met=most <= 200,
        ),
    ]
