"""Where the environments of a training run are played: in its own processes, or on Ray actors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.errors import look_up, unknown_name
from agent_r1_env.rollout import Rollout

if TYPE_CHECKING:
    from agent_r1_env.engines import Engine

KINDS = ("local", "ray")


@dataclass(frozen=True)
class Executor:
    """What a recipe says under ``executor``.

    Attributes:
        kind: "local" plays in the trainer's process, "ray" on actors, which reach the trainer's engine by
            URL, or ask the servers where it uses some.
        workers: actors of each training process.
        address: of a running Ray cluster; None: ``RAY_ADDRESS``, or else a new one on this machine.
        cpus: that a cluster sets aside for an actor.
        imports: modules that an actor imports first, such as one that registers the environment.
        host: the name or address of this machine by which actors reach the trainer's engine; None: this
            machine alone, or with an address the one that Ray knows it by.

    Raises:
        UnknownName: no such kind.
        ValueError: a number is out of its range.
    """

    kind: str = "local"
    workers: int = 2
    address: str | None = None
    cpus: float = 1.0
    imports: tuple[str, ...] = ()
    host: str | None = None

    def __post_init__(self) -> None:
        look_up("executor", self.kind, dict.fromkeys(KINDS))
        if self.workers < 1:
            raise ValueError(f"executor.workers must be at least 1, got {self.workers}")
        if self.cpus < 0:
            raise ValueError(f"executor.cpus must be at least 0, got {self.cpus}")

    @classmethod
    def of(cls, said: Mapping[str, Any] | None) -> Executor:
        """From plain data.

        Raises:
            UnknownName: it takes no such key, or there is no such kind.
        """
        given = dict(said or {})
        for name in given:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("key", name, cls.__dataclass_fields__, "executor")
        if "imports" in given:
            given["imports"] = tuple(given["imports"])
        return cls(**given)

    def check(self, env_id: str) -> None:
        """Make sure that the environment can be made elsewhere, before anything is loaded.

        Raises:
            AgentR1Error: it is of this program alone.
            MissingExtra: Ray is not installed.
        """
        if self.kind == "ray":
            from agent_r1_env.ray_session import load

            load()
            EnvOrigin.of(env_id, self.imports)

    def rollout(
        self, env_id: str, env_kwargs: Mapping[str, Any] | None, *, engine: Engine, **options: Any
    ) -> Rollout:
        """A rollout over an engine of this process.

        Args:
            engine: stays its owner's.
            options: of ``Rollout``.
        """
        if self.kind == "local":
            return Rollout(env_id, env_kwargs, engine=engine, **options)
        from agent_r1_env.engines.server import ServerEngine
        from agent_r1_env.ray_executor import RayRollout
        from agent_r1_env.ray_gateway import GatewayRollout

        ray: dict[str, Any] = {
            "workers": self.workers,
            "address": self.address,
            "cpus": self.cpus,
            "imports": self.imports,
        }
        if isinstance(engine, ServerEngine):
            policy = PolicySpec(
                urls=tuple(engine.urls),
                model=engine.model,
                tokenizer=engine.tokenizer,
                options={"leads": False},
            )
            return RayRollout(env_id, env_kwargs, policy=policy, **ray, **options)
        return GatewayRollout(env_id, env_kwargs, engine=engine, host=self.host, **ray, **options)
