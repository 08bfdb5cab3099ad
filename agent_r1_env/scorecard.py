"""What an environment pays, term by term: for each reply, and once for the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from agent_r1_env import reward
from agent_r1_env.errors import look_up, unknown_name

RESPOND = "respond"
TOOLS = "tools"
Weight = float | Mapping[str, Any]


class Scorecard:
    """The terms of one environment and their weights.

    What the tools and ``respond`` say that a reply earned is paid, too: as ``tools/<name>`` and ``respond``,
    weighed by the weights of these names, else by that of ``tools``, else by 1.

    Args:
        rewards: weight by term; ``{"weight": w, option: value}`` for a term with options.
        metrics: terms that are reported unweighted at the end, beside the counts of the environment.
        terms: terms by name beside the built-in ones.
        tools: names of the tools, for the weights of what they earn.

    Raises on construction:
        UnknownName: a term, or a tool, that does not exist.
        ValueError: options that a term does not take, or a weight that is none.
    """

    def __init__(
        self,
        rewards: Mapping[str, Weight],
        metrics: Sequence[str] = (),
        terms: Mapping[str, Callable[..., Any]] | None = None,
        tools: Sequence[str] = (),
    ) -> None:
        known = {**reward.TERMS, **(terms or {})}
        options = {name: _options(weight) for name, weight in rewards.items()}
        self._weights = {name: _number(name, weight) for name, weight in rewards.items()}
        self._earned = {name: self._weights.pop(name) for name in list(self._weights) if _is_earned(name)}
        for name in self._earned:
            _check_tool(name, tools)
        self._metrics = tuple(metrics)
        found = {
            name: reward.made(name, look_up("reward term", name, known), options.get(name, {}))
            for name in (*self._weights, *metrics)
        }
        self._steps = {name: term for name, term in found.items() if reward.is_per_step(term)}
        self._outcomes = {name: term for name, term in found.items() if name not in self._steps}
        self._rewarded = [name for name in self._weights if name in self._steps]

    def of_step(
        self, turn: Callable[[], reward.Turn], earned: Mapping[str, float], sums: MutableMapping[str, float]
    ) -> dict[str, float]:
        """What one reply is paid, weighed, by term.

        Args:
            turn: makes the ``Turn``; called only where there is a step term.
            earned: by ``tools/<name>`` and ``respond``.
            sums: of the step terms over the episode, unweighted; added to.
        """
        terms = {}
        if self._steps:
            view: Any = turn()
            values = {name: float(term(view)) for name, term in self._steps.items()}
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value
            terms = {name: self._weights[name] * values[name] for name in self._rewarded}
        for name, value in earned.items():
            general = self._earned.get(TOOLS, 1.0) if name.startswith(f"{TOOLS}/") else 1.0
            terms[name] = self._earned.get(name, general) * value
        return terms

    def of_outcome(
        self, outcome: reward.Outcome, sums: Mapping[str, float]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """What the outcome is paid, weighed, by term; and the metrics of the episode."""
        view: Any = outcome
        values = {name: float(term(view)) for name, term in self._outcomes.items()}
        terms = {name: weight * values[name] for name, weight in self._weights.items() if name in values}
        values |= {name: sums.get(name, 0.0) for name in self._steps}
        return terms, {name: values[name] for name in self._metrics}


def _is_earned(name: str) -> bool:
    return name in (TOOLS, RESPOND) or name.startswith(f"{TOOLS}/")


def _check_tool(name: str, tools: Sequence[str]) -> None:
    tool = name.partition("/")[2]
    if tool and tool not in tools:
        raise unknown_name("tool", tool, tools, f"the reward {name!r}")


def _options(weight: Weight) -> dict[str, Any]:
    return (
        {key: value for key, value in weight.items() if key != "weight"}
        if isinstance(weight, Mapping)
        else {}
    )


def _number(name: str, weight: Weight) -> float:
    value = weight.get("weight", 1.0) if isinstance(weight, Mapping) else weight
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the weight of the reward term {name!r} must be a number, not {value!r}")
    return float(value)
