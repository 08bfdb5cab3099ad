"""Ray, without its chatter: joined where it runs, or started on this machine and ended again."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from agent_r1_env import descendants
from agent_r1_env.errors import AgentR1Error, missing_extra

_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or a warning says that it will be
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
}
_STORE = 128 << 20  # bytes; an episode is in it from its end to when it is fetched
_PATIENCE = 5.0  # seconds that its processes have to end by themselves
_KNOCK = 10.0  # seconds until whoever does not answer is taken to be absent
_LONGEST = 40  # of the path of a session's folder: sockets lie in it, and their paths have 107 bytes
_LOCK = threading.Lock()


class Session:
    """A connection to Ray, shared by all that is open in this process; the last one to close ends it.

    What the caller began by ``ray.init`` is used and left alone.
    """

    _open = 0
    _started = False
    _folder: str | None = None

    def __init__(self, address: str | None, cpus: int) -> None:
        """Connect.

        Args:
            address: of a running cluster, such as "auto" or ``ray://host:10001``; None: ``RAY_ADDRESS``, and
                without that a new one on this machine alone.
            cpus: that the new one says it has.

        Raises:
            MissingExtra: Ray is not installed.
            AgentR1Error: there is no cluster at the address, or none can be started.
        """
        self._closed = False
        ray = load()
        with _LOCK:
            if not ray.is_initialized():
                _start(ray, address or os.environ.get("RAY_ADDRESS"), cpus)
                Session._started = True
            Session._open += 1

    @property
    def own(self) -> bool:
        """Whether Ray was started here, on this machine alone."""
        return Session._folder is not None

    def close(self) -> None:
        """Let go of it; twice is harmless."""
        with _LOCK:
            if self._closed:
                return
            self._closed = True
            Session._open -= 1
            if Session._open == 0 and Session._started:
                Session._started = False
                _stop()


def load() -> Any:
    """The package.

    Raises:
        MissingExtra: it is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise missing_extra("ray", "ray") from error
    return ray


def _start(ray: Any, address: str | None, cpus: int) -> None:
    settings: dict[str, Any] = {"address": address}
    if address is not None:
        _knock(address)
    if address is None:
        folder = tempfile.mkdtemp(prefix="ray-")
        if len(folder) > _LONGEST:
            shutil.rmtree(folder)
            folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        Session._folder = folder
        atexit.register(_stop)  # for who forgets to close
        settings = {
            "address": "local",
            "num_cpus": cpus,
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": _STORE,
            "_temp_dir": folder,
        }
    try:
        with _silence(), _own_sigterm():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    except BaseException as error:  # Ctrl-C too: some of its processes run already
        _stop()
        if not isinstance(error, Exception):
            raise
        where = f"at {address!r}" if address else "on this machine"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AgentR1Error(f"no Ray {where}: {reason}") from error


def _knock(address: str) -> None:
    """Make sure that something listens at ``[ray://]HOST:PORT``; Ray itself would wait for minutes.

    Raises:
        AgentR1Error: nothing does.
    """
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():  # "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK).close()
    except (OSError, OverflowError) as error:
        raise AgentR1Error(
            f"no Ray at {address!r}: {error}; start a cluster there with `ray start --head`, or name the "
            "address that it printed"
        ) from error


def _stop() -> None:
    """Disconnect; of a Ray that was started here, end the processes and remove the folder."""
    folder, Session._folder = Session._folder, None
    # Some of its processes notice only later that the others are gone, and by what stands in the folder.
    processes = set() if folder is None else descendants.descendants(folder)
    load().shutdown()
    descendants.end(processes, _PATIENCE)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Give SIGTERM back to the program: Ray takes it, and then it ends without any clean-up."""
    mine = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logger = logging.getLogger("ray")
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def node_address() -> str:
    """The address by which the other nodes of the cluster reach this one."""
    ray = load()
    return str(ray.util.get_node_ip_address())
