"""A rollout on Ray actors over an engine of this process, which they reach by URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agent_r1_env.elsewhere import PolicySpec
from agent_r1_env.engines import Engine
from agent_r1_env.ray_executor import RayRollout
from agent_r1_env.ray_session import Session, node_address
from agent_r1_env.serve_engine import EngineServer

LOOPBACK = "127.0.0.1"


class GatewayRollout(RayRollout):
    """``RayRollout`` with a server of its own for the engine; that ends with ``close``."""

    def __init__(
        self,
        env_id: str,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        engine: Engine,
        host: str | None = None,
        address: str | None = None,
        workers: int = 2,
        **options: Any,
    ) -> None:
        """Serve the engine, and set up the rest.

        Args:
            engine: stays its owner's.
            host: of this machine, as actors reach it; None: the loopback interface, unless a cluster is
                joined, then the address by which Ray knows this machine. Whoever reaches it may sample.
            options: of ``RayRollout``.
        """
        joined = address or os.environ.get("RAY_ADDRESS")
        session = Session(address, workers)
        self._gateway: EngineServer | None = None
        try:
            self._gateway = EngineServer(engine, host=host or (node_address() if joined else LOOPBACK))
            self._gateway.__enter__()
            policy = PolicySpec(urls=(self._gateway.url,), tokenizer=engine.tokenizer)
            super().__init__(env_id, env_kwargs, policy=policy, workers=workers, address=address, **options)
        except BaseException:
            if self._gateway is not None:
                self._gateway.close()
            session.close()
            raise
        self._actors.session = session

    def close(self) -> None:
        """End the actors, then the server; twice is harmless."""
        try:
            super().close()
        finally:
            if self._gateway is not None:
                self._gateway.close()
