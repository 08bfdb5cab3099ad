"""What plays episodes in another process, as plain data: an environment and a policy by their names.

Nothing that is alive crosses a process, so whatever a worker needs is made there, of this.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

import agent_r1_env
from agent_r1_env.engines import Engine, TextEngine
from agent_r1_env.errors import AgentR1Error

_OURS = ("agent_r1_env.making:make_env", "agent_r1_env.making:make_tool_env")


@dataclass(frozen=True)
class EnvOrigin:
    """How an environment's id comes to be known in a new process.

    Attributes:
        folder: of a catalogue to register; None: the environment is none of a folder's.
        namespace: of that catalogue.
        imports: modules to import, which register it with Gymnasium.
        entry_point: ``module:name`` to register it by, with ``kwargs``; None: something else registers it.
    """

    env_id: str
    folder: str | None = None
    namespace: str = ""
    imports: tuple[str, ...] = ()
    entry_point: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, env_id: str, imports: Sequence[str] = ()) -> EnvOrigin:
        """Where an environment comes from that is registered here.

        Raises:
            AgentR1Error: it is of the running program alone, and another process could not make it.
            gymnasium.error.Error: there is no such id.
        """
        import_all(imports)
        if ":" in env_id:  # gym.make imports what stands before the colon
            return cls(env_id, imports=tuple(imports))
        spec = gym.spec(env_id)
        if spec.entry_point in _OURS:
            folder = spec.kwargs["folder"]
            namespace = str(spec.kwargs["entry"]).partition("/")[0]
            return cls(env_id, folder, namespace if folder else "", tuple(imports))
        if imports:
            return cls(env_id, imports=tuple(imports))
        if isinstance(spec.entry_point, str) and not spec.entry_point.startswith("__main__"):
            return cls(env_id, entry_point=spec.entry_point, kwargs=dict(spec.kwargs))
        raise AgentR1Error(
            f"{env_id} is registered with an object of this program, which no other process has; put it in a "
            "module that registers it and name that module (imports: [my_module], --import my_module), or "
            "register a folder of environments"
        )

    def register(self) -> None:
        """Make the id known in this process.

        Raises:
            AgentR1Error: a module or folder is not here, or does not register the id.
        """
        import_all(self.imports)
        if self.folder is not None:
            agent_r1_env.register(self.folder, self.namespace)
        if self.entry_point is not None and self.env_id not in gym.registry:
            gym.register(self.env_id, entry_point=self.entry_point, kwargs=dict(self.kwargs))
        if ":" not in self.env_id and self.env_id not in gym.registry:
            named = ", ".join(self.imports) or "nothing"
            raise AgentR1Error(f"{self.env_id} is not registered in the worker; it imported {named}")


@dataclass(frozen=True)
class PolicySpec:
    """Who answers, as data: exactly one of ``urls``, ``model``, ``policy`` and ``factory``.

    Attributes:
        urls: of vLLM servers, all of one model.
        model: a folder, or a name on the Hugging Face Hub: loaded in the process itself, by vLLM. With
            ``urls``, what the servers call it.
        tokenizer: of ``urls``: a name, a folder, or an object that can be pickled; by default what the
            servers name.
        policy: a scripted policy that the environment's YAML file names.
        factory: ``module:function`` that makes an engine of ``options``.
    """

    urls: tuple[str, ...] = ()
    model: str | None = None
    tokenizer: Any = None
    policy: str | None = None
    factory: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {"urls": self.urls, "policy": self.policy, "factory": self.factory}
        if not self.urls:
            named["model"] = self.model
        given = [name for name, value in named.items() if value]
        if len(given) != 1:
            raise ValueError(f"name exactly one of urls, model, policy and factory, got {given or 'none'}")

    def engine(self) -> Engine | TextEngine:
        """The engine, which is its owner's to close.

        Raises:
            AgentR1Error: it cannot be made, or a scripted policy is meant, which needs none.
        """
        if self.urls:
            from agent_r1_env.engines.server import ServerEngine

            return ServerEngine(self.urls, self.model, self.tokenizer, **self.options)
        if self.model is not None:
            from agent_r1_env.engines.loading import load

            return load(self.model, **self.options)
        if self.factory is None:
            raise AgentR1Error(f"the policy {self.policy!r} is a scripted one and needs no engine")
        from agent_r1_env.loading import load_target

        made: Engine | TextEngine = load_target(self.factory, Path.cwd())(**self.options)
        return made


def import_all(modules: Sequence[str]) -> None:
    """Import modules for what they register.

    Raises:
        AgentR1Error: one cannot be imported.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise AgentR1Error(
                f"cannot import {name!r}: {error}; it has to be installed, or lie on PYTHONPATH, wherever "
                "episodes are played"
            ) from error
