"""vLLM behind URLs as TRL's server mode, with one or several replicas, and weights sent by NCCL or by files.

TRL speaks with a single server and sends weights by NCCL alone, which takes GPUs. Here each server has a
client of TRL's, and through files weights reach servers without a GPU, too.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from accelerate.utils import gather_object
from trl.generation.vllm_client import VLLMClient

from agent_r1_env.colocate import MergingVLLMGeneration
from agent_r1_env.errors import EngineError, unknown_name

WAYS = ("nccl", "disk")
"""How weights reach the servers."""
_MEMORY = Path("/dev/shm")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_SHARD = 4 << 30  # bytes of weights in one file
_START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"


def way_of(asked: str | None) -> str:
    """How weights are sent: as asked, or what this machine can do.

    Raises:
        UnknownName: no such way.
        ValueError: NCCL was asked for, and there is no GPU.
    """
    if asked is None:
        return "nccl" if torch.cuda.is_available() else "disk"
    if asked not in WAYS:
        raise unknown_name("weight_sync", asked, WAYS)
    if asked == "nccl" and not torch.cuda.is_available():
        raise ValueError("weight_sync 'nccl' takes an NVIDIA GPU in the trainer; use 'disk'")
    return asked


class ServedVLLMGeneration(MergingVLLMGeneration):
    """TRL's server mode for all replicas of a model; every process plays against them by itself."""

    _weight_metadata: list[tuple[str, str, list[int]]] | None  # TRL's

    def __init__(
        self, *args: Any, servers: Sequence[str], weight_sync: str, folder: Path, **options: Any
    ) -> None:
        """Connect to the servers.

        Args:
            servers: addresses, without the path of the API.
            weight_sync: one of `WAYS`.
            folder: where files of weights are written, unless all servers are on this machine, which has
                faster places; the servers must see it by the same path.
            args: and ``options``: as for TRL's class.

        Raises:
            EngineError: one does not answer, or was not started for training.
        """
        self.servers, self.weight_sync, self._folder = list(servers), weight_sync, folder
        self._clients: list[Any] = []
        super().__init__(*args, **options)

    def _init_vllm(self) -> None:
        failure = ""
        if self.accelerator.is_main_process:
            for number, url in enumerate(self.servers):
                try:
                    self._clients.append(self._client(url, self.group_port + number))
                except Exception as error:  # of TRL, requests or NCCL; told to the other processes
                    failure = f"cannot train with the server {url}: {error}; start it with {self._hint()}"
                    break
            else:
                self.vllm_client = self._clients[0]
        _raise_together(failure)

    def sync_weights(self) -> None:
        """Give all servers the trainer's weights, and drop what they cached under the old ones.

        Returns on every process when all servers have them.

        Raises:
            EngineError: a server did not take them; on every process.
        """
        _raise_together(self._by_files() if self.weight_sync == "disk" else self._by_nccl())

    def _client(self, url: str, port: int) -> Any:
        client = VLLMClient(base_url=url, group_port=port, connection_timeout=self.server_timeout)
        if self.weight_sync == "nccl":
            client.init_communicator(device=self.accelerator.device)
        else:
            client.get_server_info()  # says what is amiss where there are no development endpoints
        return client

    def _hint(self) -> str:
        more = """ --weight-transfer-config '{"backend": "nccl"}'""" if self.weight_sync == "nccl" else ""
        return _START + more

    def _by_nccl(self) -> str:
        """What went wrong; "" if nothing did. Weights are gathered once for each server."""
        if self._weight_metadata is None:
            self._weight_metadata = [
                (name, str(weight.dtype).removeprefix("torch."), list(weight.shape))
                for name, weight in self._iter_named_params()
            ]
        failure = ""
        for number in range(len(self.servers)):
            weights = self._iter_named_params()
            if self._clients and not failure:
                client = self._clients[number]
                try:
                    client.update_named_params(self._weight_metadata, weights)
                    client.reset_prefix_cache()
                except Exception as error:  # told to the other processes, which still gather
                    failure = f"{self.servers[number]} did not take the weights: {error}"
            for _ in weights:  # what nobody sent must be gathered all the same
                pass
        return failure

    def _by_files(self) -> str:
        """What went wrong; "" if nothing did."""
        from safetensors import SafetensorError

        weights = self._weights()
        failure = ""
        if self._clients:
            folder = self._new_folder()
            try:
                write_weights(weights, folder)
                failure = self._reload(folder)
            except (OSError, SafetensorError) as error:  # the second where the disk is full
                failure = f"cannot write weights to {folder}: {error}"
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        for _ in weights:
            pass
        return failure

    def _new_folder(self) -> Path:
        local = all(urlsplit(url).hostname in _LOCAL for url in self.servers)
        if local and _MEMORY.is_dir() and self._bytes() < shutil.disk_usage(_MEMORY).free:
            return Path(tempfile.mkdtemp(prefix="agent-r1-weights-", dir=_MEMORY))
        self._folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="weights-", dir=self._folder.resolve()))

    def _bytes(self) -> int:
        """Of all weights, those of other processes included: sharded ones tell their whole size."""
        weights = self.accelerator.unwrap_model(self.model).parameters()
        return sum(getattr(each, "ds_numel", each.numel()) * each.element_size() for each in weights)

    def _reload(self, folder: Path) -> str:
        def load(client: Any) -> None:
            body = {
                "method": "reload_weights",
                "kwargs": {"weights_path": str(folder), "is_checkpoint_format": True},
            }
            client._post(f"{client.base_url}/collective_rpc", json=body)
            client.reset_prefix_cache()

        return "; ".join(_all(load, self._clients, f"did not load {folder}, which it must see"))


def write_weights(weights: Iterator[tuple[str, torch.Tensor]], folder: Path) -> None:
    """Write weights as safetensors files of some gigabytes, so that no more is held in memory than one."""
    from safetensors.torch import save_file

    part: dict[str, torch.Tensor] = {}
    size = written = 0
    for name, weight in weights:
        part[name] = weight.detach().to("cpu", copy=True).contiguous()  # two names may share their memory
        size += part[name].nbytes
        if size >= _SHARD:
            save_file(part, folder / f"model-{written:05d}.safetensors")
            part, size, written = {}, 0, written + 1
    if part:
        save_file(part, folder / f"model-{written:05d}.safetensors")


def _all(work: Callable[[Any], None], clients: Sequence[Any], what: str) -> Iterator[str]:
    """Do it for all clients at once, and tell of those where it failed."""
    with ThreadPoolExecutor(len(clients)) as threads:
        begun = [threads.submit(work, client) for client in clients]
    for client, done in zip(clients, begun, strict=True):
        if (error := done.exception()) is not None:
            yield f"{client.base_url} {what}: {error}"


def _raise_together(failure: str) -> None:
    """Wait for all processes, and raise on all of them what one of them met."""
    for told in gather_object([failure]):
        if told:
            raise EngineError(told)
