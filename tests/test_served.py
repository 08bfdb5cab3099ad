"""Training against vLLM servers: how weights are written, and a whole run against a server on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("vllm")

import torch
from trl import GRPOConfig

from agent_r1_env import colocate, served, train
from agent_r1_env.catalog import builtin_root
from agent_r1_env.errors import EngineError, RecipeError, UnknownName
from agent_r1_env.recipe import load
from agent_r1_env.trl_config import adapted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
POLICY = builtin_root() / "trainers" / "quickstart" / "policy"


def config(**settings: Any) -> Any:
    return GRPOConfig("unused", use_cpu=True, bf16=False, use_vllm=True, report_to="none", **settings)


@pytest.mark.parametrize(
    ("settings", "servers", "urls"),
    [
        ({}, [], []),
        ({"vllm_mode": "server"}, [], ["http://0.0.0.0:8000"]),
        ({"vllm_mode": "server", "vllm_server_base_url": "http://a:1/"}, [], ["http://a:1"]),
        ({}, ["http://a:1/v1", "http://b:2"], ["http://a:1", "http://b:2"]),
        ({"vllm_server_base_url": "http://a:1"}, ["http://b:2", "http://a:1"], ["http://a:1", "http://b:2"]),
    ],
)
def test_servers_are_those_of_the_list_and_of_trl(
    settings: dict[str, Any], servers: list[str], urls: list[str]
) -> None:
    args = adapted(config(**settings), servers)
    assert colocate._urls(args, servers) == urls
    assert (args.vllm_mode == "server") == bool(urls)


def test_servers_without_vllm_are_refused() -> None:
    args = GRPOConfig("unused", use_cpu=True, bf16=False, report_to="none")
    with pytest.raises(ValueError, match="servers means nothing .* set use_vllm: true"):
        adapted(args, ["http://a:1"])
    with pytest.raises(ValueError, match="weight_sync means nothing .* vllm_mode: server"):
        adapted(config(), (), "disk")


def test_a_recipe_names_servers_and_how_weights_reach_them() -> None:
    plan = load("quickstart", {"servers": ["http://a:1"], "weight_sync": "disk"})
    assert (plan.servers, plan.weight_sync) == (["http://a:1"], "disk")
    assert load("quickstart").servers == ()
    for wrong in ({"servers": "http://a:1"}, {"servers": ["a:1"]}, {"weight_sync": "pigeon"}):
        with pytest.raises(RecipeError):
            load("quickstart", wrong)


def test_the_way_of_weights_is_what_the_machine_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert served.way_of(None) == "disk"
    with pytest.raises(ValueError, match="takes an NVIDIA GPU"):
        served.way_of("nccl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert served.way_of(None) == "nccl" and served.way_of("disk") == "disk"
    with pytest.raises(UnknownName, match="disc"):
        served.way_of("disc")


def test_weights_are_written_in_parts_that_together_are_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    monkeypatch.setattr(served, "_SHARD", 100)
    tied = torch.arange(12.0).reshape(3, 4)
    given = {"embed": tied, "turned": tied.T, "lm_head": tied, "last": torch.ones(2, dtype=torch.bfloat16)}
    served.write_weights(iter(given.items()), tmp_path)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["model-00000.safetensors", "model-00001.safetensors"]
    found = load_file(files[0]) | load_file(files[1])
    assert found.keys() == given.keys()
    assert all(torch.equal(found[name], weight) for name, weight in given.items())


class Client:
    """One of TRL's, that fails or takes weights."""

    def __init__(self, url: str, fails: bool = False) -> None:
        self.base_url, self.fails = url, fails
        self.taken: list[list[str]] = []
        self.files: list[Path] = []
        self.reset = 0

    def update_named_params(self, metadata: Any, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        assert [name for name, *_ in metadata] == ["a", "b"]
        if self.fails:
            next(weights)
            raise RuntimeError("no room")
        self.taken.append([name for name, _ in weights])

    def _post(self, url: str, json: dict[str, Any]) -> None:
        assert url == f"{self.base_url}/collective_rpc" and json["method"] == "reload_weights"
        folder = Path(json["kwargs"]["weights_path"])
        self.files += folder.iterdir()
        if self.fails:
            raise RuntimeError("no room")

    def reset_prefix_cache(self) -> None:
        self.reset += 1


def generation(way: str, folder: Path, *clients: Client) -> tuple[Any, list[str]]:
    """What sends weights to servers, without servers; and the names of what was gathered."""
    made = served.ServedVLLMGeneration.__new__(served.ServedVLLMGeneration)
    made.servers, made.weight_sync, made._folder = [client.base_url for client in clients], way, folder
    made._clients, made._weight_metadata = list(clients), None
    gathered: list[str] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in ("a", "b"):
            gathered.append(name)
            yield name, torch.ones(2)

    made._iter_named_params = made._weights = weights
    made.accelerator = SimpleNamespace(is_main_process=True, unwrap_model=lambda model: model)
    made.model = torch.nn.Linear(2, 2)
    return made, gathered


def test_each_replica_gets_the_weights(tmp_path: Path) -> None:
    for way in served.WAYS:
        clients = Client("http://a:1"), Client("http://b:2")
        made, gathered = generation(way, tmp_path, *clients)
        made.sync_weights()
        assert [client.reset for client in clients] == [1, 1]
        if way == "nccl":
            assert [client.taken for client in clients] == [[["a", "b"]]] * 2
        else:
            assert gathered == ["a", "b"]  # once for all
            assert clients[0].files == clients[1].files and len(clients[0].files) == 1
            assert clients[0].files[0].is_relative_to(tmp_path)  # which hosts elsewhere may see, too
    assert list(tmp_path.iterdir()) == []


def test_a_replica_that_takes_no_weights_ends_the_run_on_all_processes(tmp_path: Path) -> None:
    for way in served.WAYS:
        clients = Client("http://a:1", fails=True), Client("http://b:2")
        made, gathered = generation(way, tmp_path, *clients)
        with pytest.raises(EngineError, match="http://a:1 did not .*: no room"):
            made.sync_weights()
        # The other processes gather as often as if all had gone well.
        assert gathered == ["a", "b"] * (3 if way == "nccl" else 1)
        assert list(tmp_path.iterdir()) == []


def test_weights_that_cannot_be_written_end_the_run_on_all_processes(tmp_path: Path) -> None:
    made, gathered = generation("disk", tmp_path, Client("http://a:1"))
    made._new_folder = lambda: tmp_path / "gone"
    with pytest.raises(EngineError, match="cannot write weights to .*gone"):
        made.sync_weights()
    assert gathered == ["a", "b"], "the other processes gather all"


def test_weights_that_memory_has_no_room_for_go_to_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_MEMORY", tmp_path)
    made, _ = generation("disk", tmp_path / "out", Client("http://localhost:1"))
    free = shutil.disk_usage(tmp_path).free
    made.model = SimpleNamespace(parameters=lambda: [torch.empty(free // 4 + 1, device="meta")])
    assert made._new_folder().is_relative_to(tmp_path / "out")
    made.model = SimpleNamespace(parameters=lambda: [torch.empty(5, device="meta")])
    assert not made._new_folder().is_relative_to(tmp_path / "out")


def test_weights_for_servers_of_this_machine_stay_in_memory(tmp_path: Path) -> None:
    made, _ = generation("disk", tmp_path, Client("http://127.0.0.1:1"))
    folder = made._new_folder()
    try:
        assert folder.is_relative_to("/dev/shm" if Path("/dev/shm").is_dir() else tmp_path)
    finally:
        folder.rmdir()


def test_no_server_is_told_of_with_the_line_that_starts_one(tmp_path: Path) -> None:
    changes = {"servers": ["http://127.0.0.1:9"], "eval.episodes": 0, "vllm_server_timeout": 0.0}
    with pytest.raises(EngineError, match="cannot train with the server http://127.0.0.1:9.*vllm serve"):
        train.run("quickstart", output=tmp_path / "out", overrides=changes, quiet=True)


# -- a whole run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server of the quickstart's policy on the CPU, which leaves no process behind."""
    if not POLICY.is_dir():
        pytest.skip(f"no quickstart policy at {POLICY}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(POLICY)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--no-enable-chunked-prefill", "--max-model-len", "2048", "--max-num-batched-tokens", "2048"]
    command += ["--logprobs-mode", "processed_logprobs", "--enable-prompt-tokens-details"]
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("w") as file:
        server = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True, cwd=log.parent
        )
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 240
        while not healthy(address):
            assert server.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        finally:
            end = time.monotonic() + 30
            while (left := members(server.pid)) and time.monotonic() < end:  # its children end a little later
                time.sleep(0.1)
            if left:
                os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)
    assert not left


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def members(group: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_training_against_a_server_is_exact_before_and_after_an_update(url: str, tmp_path: Path) -> None:
    """The second batch is sampled with weights that moved far, so that a stale weight shows."""
    changes = {
        "servers": [url],
        "weight_sync": "disk",
        "max_steps": 2,
        "eval.episodes": 0,
        "per_device_train_batch_size": 32,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "threads": 1,
    }
    folder = tmp_path / "out"
    train.run("quickstart", output=folder, overrides=changes, quiet=True)
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    log = [entry for entry in log if "reward" in entry]
    assert len(log) == 2 and log[0]["grad_norm"] > 0
    for entry in log:
        assert entry["agent/drift"] == 0
        assert entry["sampling/sampling_logp_difference/mean"] < 1e-4
        assert entry["sampling/sampling_logp_difference/max"] < 1e-2
    with urllib.request.urlopen(f"{url}/weight_info") as answer:
        assert json.load(answer) == {"weight_version": "1"}
    episodes = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    versions = {number for episode in episodes for step in episode["steps"] for number in step["versions"]}
    assert versions == {0, 1}
    assert not list(Path("/dev/shm").glob("agent-r1-weights-*"))
