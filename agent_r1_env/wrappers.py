"""Gymnasium wrappers that make an environment's tools less reliable, to train and test robustness.

They change the tools alone, so that a step costs what it costs without them and rollouts await ``step_async``
as ever. The tools are replaced when the wrapper is made, which ends an episode under way. The same is plain
data in ``gym.make(..., perturb=...)``, see `agent_r1_env.perturb`, and can be pickled then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_r1_env import latency
from agent_r1_env.around import Perturbation
from agent_r1_env.distractors import Distractors
from agent_r1_env.env import ToolEnv
from agent_r1_env.faults import Faults
from agent_r1_env.paraphrase import Paraphrase

Environment = gym.Env[Any, str]


class _OtherTools(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """An environment whose tools were replaced."""

    def __init__(self, env: Environment, perturbation: Perturbation, **recorded: Any) -> None:
        RecordConstructorArgs.__init__(self, **recorded)
        gym.Wrapper.__init__(self, env)
        base = env.unwrapped
        if not isinstance(base, ToolEnv):
            raise TypeError(
                f"{type(self).__name__} changes the tools of a ToolEnv; got {type(base).__name__}"
            )
        base.replace_tools(perturbation(list(base.toolbox.tools.values()), base.tasks))


class FaultInjection(_OtherTools):
    """Lets a share of the calls meet a fault; arguments and errors as of `faults.Faults`."""

    def __init__(
        self,
        env: Environment,
        rate: float = 0.0,
        *,
        timeout: float | None = None,
        server_error: float | None = None,
        empty: float | None = None,
        cut: float | None = None,
        wrong_document: float | None = None,
        injection: float | None = None,
        tools: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        options = {
            "rate": rate,
            "timeout": timeout,
            "server_error": server_error,
            "empty": empty,
            "cut": cut,
            "wrong_document": wrong_document,
            "injection": injection,
            "tools": tools,
            "texts": texts,
            "seed": seed,
        }
        super().__init__(env, Faults(**options), **options)  # type: ignore[arg-type]


class Latency(_OtherTools):
    """Lets every call wait before it runs; arguments and errors as of `latency.Latency`."""

    def __init__(
        self,
        env: Environment,
        constant: float | None = None,
        *,
        uniform: Sequence[float] | None = None,
        lognormal: Sequence[float] | None = None,
        hang: float = 0.0,
        tools: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        options = {
            "constant": constant,
            "uniform": uniform,
            "lognormal": lognormal,
            "hang": hang,
            "tools": tools,
            "seed": seed,
        }
        super().__init__(env, latency.Latency(**options), **options)  # type: ignore[arg-type]


class DistractorTools(_OtherTools):
    """Puts tools that no task needs among the others; arguments as of `distractors.Distractors`."""

    def __init__(
        self,
        env: Environment,
        count: int | None = None,
        *,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        made = Distractors(count, names=names, seed=seed)
        super().__init__(env, made, count=count, names=names, seed=seed)


class ParaphrasedTools(_OtherTools):
    """Shows tools in other words; arguments and errors as of `paraphrase.Paraphrase`."""

    def __init__(
        self,
        env: Environment,
        seed: int = 0,
        *,
        texts: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]] | None = None,
        tools: Sequence[str] | None = None,
    ) -> None:
        made = Paraphrase(seed, texts=texts, tools=tools)
        super().__init__(env, made, seed=seed, texts=texts, tools=tools)
