"""The connection to Ray, where it can be told without starting it."""

from __future__ import annotations

import builtins
import socket
import sys
from typing import Any

import pytest

from agent_r1_env.errors import AgentR1Error, MissingExtra
from agent_r1_env.ray_session import Session


def test_where_ray_is_absent_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *more: Any) -> Any:
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *more)

    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-r1-env\[ray\]'"):
        Session(None, 1)


def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(AgentR1Error, match=f"no Ray at '{address}': .*ray start --head"):
            Session(address, 1)
