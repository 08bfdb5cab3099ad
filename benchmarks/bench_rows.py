"""Rows of the table about environments and rollouts: what a step costs whose tool is instant, or waits."""

from __future__ import annotations

import statistics

from bench_line import GROWTH, Line, Settings, beside, fastest, growth, ratios, short, told
from contest import OURS, Contender

READERS = ("gem", "skyrl-gym")
"""Those that read the text of a reply, as we do, and check nothing in it."""
INLINE = "ours, inline tool"
STEPS = [
    Contender(OURS, "ours:steps"),
    Contender(INLINE, "ours:steps", options={"inline": True}),
    Contender("ours by gymnasium.make", "ours:steps", options={"made": True}),
    Contender("gem", "peer_gem:steps", peers=True),
    Contender("skyrl-gym", "peer_skyrl:steps", peers=True),
    Contender("OpenEnv", "peer_openenv:steps", peers=True),
    Contender("OpenEnv with MCP tools", "peer_openenv:mcp_steps", peers=True, options={"episodes": 4}),
    Contender("aviary", "peer_aviary:steps", peers=True, options={"episodes": 40}),
    Contender("TRL's loop", "peer_trl:steps"),
]


def steps(settings: Settings) -> list[Line]:
    """Episodes of two searches and an answer, with a search of 500 documents and with one that does none."""

    def over(costs: dict[str, float]) -> float:
        return costs["step"] - costs["tool"]

    def whole(costs: dict[str, float]) -> float:
        return costs["step"]

    lines = []
    for tool in ("constant", "search"):
        runs = {}
        for times in GROWTH:
            episodes = max(1, (20 if settings.quick else 400) // times)
            runs[times] = settings.contest(STEPS, tool=tool, searches=2 * times, episodes=episodes)
        found = runs[1]
        ours = found[OURS].numbers(over)
        lines.append(
            Line(
                f"a step over its tool ({tool}), us",
                told(ours),
                beside(found, over),
                growth=growth(runs, over),
                target="at most 40 us",
                met=statistics.median(ours) <= 40,
            )
        )
        inline = found[INLINE].numbers(over)
        lines.append(
            Line(
                f"the same of a tool declared inline ({tool}), us",
                told(inline),
                target="at most 40 us",
                met=statistics.median(inline) <= 40,
            )
        )
        first = fastest(found, READERS, whole)
        lines.append(
            Line(
                f"a step with its tool ({tool}), us",
                told(found[OURS].numbers(whole)),
                beside(found, whole),
                f"{told(first[1])} of {first[0]}" if first else "",
                target="at most 1.2 of the fastest that reads replies and checks nothing",
                met=statistics.median(first[1]) <= 1.2 if first else None,
            )
        )
    return lines


WAITING = [
    Contender(OURS, "ours:waiting"),
    Contender("gem, a thread each", "peer_gem:waiting", peers=True),
    Contender("skyrl-gym, a thread each", "peer_skyrl:waiting", peers=True),
    Contender("aviary", "peer_aviary:waiting", peers=True),
]
TRL_WAITING = Contender("TRL's loop", "peer_trl:waiting")


def seconds(result: dict[str, float]) -> float:
    """Of a round."""
    return result["seconds"]


def waiting(settings: Settings) -> list[Line]:
    """Whole rollouts of tools that take 50 ms."""
    base = 8 if settings.quick else 64
    runs = {
        times: settings.contest(WAITING + [TRL_WAITING] * (times == 1), episodes=base * times)
        for times in GROWTH
    }
    found = runs[1]
    share = [each["ideal"] / each["seconds"] for each in found[OURS].rounds]
    slower = ratios(found["TRL's loop"].numbers(seconds), found[OURS].numbers(seconds))
    return [
        Line(
            f"{base} episodes, 2 calls of 50 ms, s",
            told(found[OURS].numbers(seconds)),
            beside(found, seconds),
            f"{told(share)} of the rate of asyncio's sleeps alone",
            growth(runs, seconds),
            "at least 0.92 of the ideal rate",
            statistics.median(share) >= 0.92,
        ),
        Line(
            "the same as a rate, beside TRL's loop",
            "",
            ratio=f"{told(slower)} times TRL's",
            target="at least 50 times, for 64 episodes",
            met=None if settings.quick else statistics.median(slower) >= 50,
        ),
    ]


def heavy(settings: Settings) -> list[Line]:
    """Whole rollouts of tools whose times have a heavy tail, a few of which hang until their time-out."""
    base = 16 if settings.quick else 512
    short_tail = {"median": 0.01, "timeout": 0.2} if settings.quick else {}
    ours = [Contender(OURS, "ours:heavy", options=short_tail)]
    # Each takes many seconds and makes its environments before the clock runs: one round shows the growth.
    runs = {
        times: settings.contest(
            ours, min(settings.rounds, 3) if times == 1 else 1, warm=False, episodes=base * times
        )
        for times in GROWTH
    }
    rounds_of = runs[1][OURS].rounds
    above = [each["seconds"] / each["critical"] for each in rounds_of]
    grown = {
        "the critical path": [statistics.median(each[OURS].numbers(_critical)) for each in runs.values()]
    }
    return [
        Line(
            f"{base} episodes with heavy-tailed tools, s",
            told(runs[1][OURS].numbers(seconds)),
            [
                f"turns in lock-step {short(rounds_of[0]['lockstep'])} (computed)",
                f"calls one after another {short(rounds_of[0]['sequential'])} (computed)",
            ],
            f"{told(above)} of the critical path",
            growth(runs, seconds) | grown,
            "at most 1.10 of the critical path",
            statistics.median(above) <= 1.10,
        )
    ]


def _critical(result: dict[str, float]) -> float:
    return result["critical"]
