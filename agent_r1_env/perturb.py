"""Simulated trouble as plain data: ``perturb:`` in an environment's file, and ``gym.make(..., perturb=...)``.

A perturbation makes other tools of an environment's. They are named with their options and applied in order::

    perturb:
      - faults: {timeout: 0.05, injection: 0.02, tools: [search]}
      - latency: {lognormal: [0.3, 0.5], hang: 0.01}
      - distractors: 5
      - paraphrase: {seed: 1}

What was simulated stands under ``simulated`` in the records of calls and is counted in the metrics. Faulty
and slow tools have no cache, and a recording that is replayed gives what was recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_r1_env.around import Perturbation
from agent_r1_env.distractors import Distractors
from agent_r1_env.errors import look_up, unknown_name
from agent_r1_env.faults import Faults
from agent_r1_env.latency import Latency
from agent_r1_env.paraphrase import Paraphrase
from agent_r1_env.task import TaskSet
from agent_r1_env.tool import Tool

PERTURBATIONS: dict[str, Callable[..., Perturbation]] = {
    "faults": Faults,
    "latency": Latency,
    "distractors": Distractors,
    "paraphrase": Paraphrase,
}


def resolve(spec: Any) -> list[Perturbation]:
    """The perturbations that ``spec`` stands for.

    Args:
        spec: a name; ``{name: options}`` with a mapping of options, or the value of the first one; or a list
            of those, which are applied in order. None and an empty list stand for none.

    Raises:
        UnknownName: there is no such perturbation, or it has no such option.
        ValueError: it is none of those, or an option has no value that it can have.
    """
    if spec is None:
        return []
    return [_resolved(each) for each in (spec if isinstance(spec, list | tuple) else [spec])]


def perturbed(tools: Sequence[Tool], perturbations: Sequence[Perturbation], tasks: TaskSet) -> list[Tool]:
    """The tools after all perturbations.

    Raises:
        UnknownName, ValueError: a perturbation does not fit these tools.
    """
    made = list(tools)
    for perturbation in perturbations:
        made = perturbation(made, tasks)
    return made


def _resolved(spec: Any) -> Perturbation:
    if isinstance(spec, str):
        spec = {spec: {}}
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise ValueError(
            "a perturbation is one key and its options, such as {faults: {timeout: 0.1}}; "
            f"write several as a list; got {spec!r}"
        )
    ((name, options),) = spec.items()
    make = look_up("perturbation", str(name), PERTURBATIONS)
    known = list(inspect.signature(make).parameters)
    given = options if isinstance(options, Mapping) else {} if options is None else {known[0]: options}
    for option in given:
        if option not in known:
            raise unknown_name("option", str(option), known, f"the perturbation {name!r}")
    return make(**given)
