"""What a context policy costs in one step of a long episode: ``python benchmarks/context.py``."""

from __future__ import annotations

import statistics
import time
from typing import Any

from agent_r1_env import context, formats, testing
from agent_r1_env.messages import Message

POLICIES: dict[str, Any] = {
    "append": "append",
    "window 4": {"window": 4},
    "window 4, notice": {"window": {"turns": 4, "notice": True}},
    "token_budget 8000": {"token_budget": 8000},
    "strip_reasoning": "strip_reasoning",
    "summarise": {"summarise": {"with": lambda messages: "what happened"}},
    "rewrite": {"rewrite": lambda messages: messages},
    "last_turn": "last_turn",
    "strip, window, last_turn": ["strip_reasoning", {"window": 4}, "last_turn"],
}


def episode(turns: int) -> list[Message]:
    """One question, and turns of 200 characters of thought, a call and 1,500 characters of result."""
    made = [Message("user", "What is it?")]
    for turn in range(turns):
        thought = f"<think>{turn} {'hm ' * 66}</think>"
        made.append(Message("assistant", thought + testing.call("search", query=f"what is {turn}")))
        made.append(Message("tool", f"{turn} {'word ' * 300}", f"call_{turn}", "search"))
    return made


def seconds(spec: Any, turns: int, last: int = 5) -> float:
    """Median time of the policy in the last steps of an episode that it saw from its beginning."""
    policy, memory, history = context.resolve(spec), dict[str, Any](), episode(turns)
    count, format = testing.ByteTokenizer().encode, formats.get("hermes")
    took = []
    for step in range(turns + 1):
        moment = context.Moment(step, turns + 1 - step, format, lambda text: len(count(text)) // 4, memory)
        seen = history[: 1 + 2 * step]
        start = time.perf_counter()
        policy(seen, moment)
        took.append(time.perf_counter() - start)
    return statistics.median(took[-last:])


def main() -> None:
    """Print one line a policy: microseconds of a step behind 10, 40 and 160 turns."""
    print(f"{'policy':26}{'10':>9}{'40':>9}{'160':>9}  us a step")
    for name, spec in POLICIES.items():
        columns = "".join(
            f"{min(seconds(spec, turns) for _ in range(5)) * 1e6:9.1f}" for turns in (10, 40, 160)
        )
        print(f"{name:26}{columns}")


if __name__ == "__main__":
    main()
