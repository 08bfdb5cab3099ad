"""What an episode of crafting came to."""

from __future__ import annotations

from agent_r1_env.reward import Outcome


def goal_reached(outcome: Outcome) -> float:
    """1.0 if the goal was made."""
    return float("goal" in _reached(outcome))


def milestones(outcome: Outcome) -> float:
    """Share of what has to be learnt, gathered and made for the first time on the way, the goal included."""
    return len(_reached(outcome)) / len(outcome.task.data["credit"])


def path_ratio(outcome: Outcome) -> float:
    """Length of the shortest plan over the steps that were taken; 0.0 without the goal."""
    return goal_reached(outcome) * min(1.0, len(outcome.task.data["plan"]) / max(1, outcome.steps))


def _reached(outcome: Outcome) -> list[str]:
    reached: list[str] = outcome.state.get("crafting", {}).get("reached", [])
    return reached
