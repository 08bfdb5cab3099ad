"""Weights that are sharded over processes, and the configurations that shard them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

import torch

from agent_r1_env.catalog import builtin_root
from agent_r1_env.colocate import CPUVLLMGeneration
from agent_r1_env.testing import tiny_llama
from agent_r1_env.trl_config import adapted

CONFIGS = sorted((builtin_root() / "trainers" / "accelerate").glob("*.yaml"))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def launched(config: Path, *more: str) -> Any:
    """The arguments that ``accelerate launch`` makes of a configuration and of flags."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    args = launch_command_parser().parse_args(
        ["--config_file", str(config), *(more or ("--main_process_port", "0")), "train.py"]
    )
    return _validate_launch_command(args)[0]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_accelerate_takes_the_configuration(config: Path) -> None:
    args = launched(config)
    assert args.num_processes == (2 if config.stem == "cpu" else 8)
    assert (args.use_deepspeed, args.use_fsdp) == (config.stem.startswith("zero"), config.stem == "fsdp2")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_flags_spread_a_configuration_over_nodes(config: Path) -> None:
    """What torchrun is told on the second of four machines: no file is needed for several."""
    from accelerate.utils.launch import _filter_args, prepare_deepspeed_cmd_env, prepare_multi_gpu_env
    from torch.distributed.run import config_from_args, get_args_parser

    flags = ["--num_machines=4", "--num_processes=32", "--machine_rank=1"]
    args = launched(config, *flags, "--main_process_ip=10.0.0.1", "--main_process_port=29499")
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ""  # set on the way from the file to here
        command, _ = prepare_deepspeed_cmd_env(args)
        assert command is None  # torchrun on each machine, and no ssh between them
    else:
        prepare_multi_gpu_env(args)
    told, *_ = config_from_args(_filter_args(args, get_args_parser(), ["train.py"]))
    assert (told.min_nodes, told.max_nodes, told.nproc_per_node) == (4, 4, 8)
    assert (told.rdzv_backend, told.rdzv_endpoint) == ("static", "10.0.0.1:29499")
    assert told.rdzv_configs["rank"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_machines_of_one_process_each_find_each_other(tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(
        "import torch\n"
        "from accelerate import PartialState\n"
        "from accelerate.utils import gather_object\n"
        "state = PartialState(cpu=True)\n"
        "print('MET', gather_object([state.process_index]))\n"
        "state.destroy_process_group()\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = builtin_root() / "trainers" / "accelerate" / "cpu.yaml"
    common = ("--config_file", str(config), "--num_machines=2", "--num_processes=2")
    place = ("--main_process_ip=127.0.0.1", f"--main_process_port={port}")
    command = [sys.executable, "-m", "accelerate.commands.launch", *common, *place]
    machines = [
        subprocess.Popen(
            [*command, f"--machine_rank={rank}", str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    told = [machine.communicate()[0] for machine in machines]
    assert all("MET [0, 1]" in each for each in told), told


def test_a_vllm_of_several_gpus_beside_the_trainer_is_sent_to_a_server(tmp_path: Path) -> None:
    from trl import GRPOConfig

    args = GRPOConfig(str(tmp_path), use_vllm=True, vllm_tensor_parallel_size=2, bf16=False)
    with pytest.raises(ValueError, match=r"vllm serve MODEL --tensor-parallel-size 2.* under servers:"):
        adapted(args)


def test_fsdp_is_version_2_and_saves_whole_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    args = launched(builtin_root() / "trainers" / "accelerate" / "fsdp2.yaml")
    for name, value in prepare_multi_gpu_env(args).items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert str(plugin.state_dict_type) == "StateDictType.FULL_STATE_DICT"


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_shards_what_the_stage_says(stage: int) -> None:
    args = launched(builtin_root() / "trainers" / "accelerate" / f"zero{stage}.yaml")
    assert int(args.zero_stage) == stage
    if find_spec("deepspeed") is None:
        pytest.skip("the rest needs the package deepspeed")
    from accelerate import DeepSpeedPlugin

    assert DeepSpeedPlugin(zero_stage=stage).zero_stage == stage


def generation(model: torch.nn.Module, fsdp: bool) -> CPUVLLMGeneration:
    """What gathers weights for vLLM, without a vLLM."""
    made = CPUVLLMGeneration.__new__(CPUVLLMGeneration)
    made.model = model
    made.accelerator = SimpleNamespace(unwrap_model=lambda model: model, device=torch.device("cpu"))
    made._dist = SimpleNamespace(is_fsdp=fsdp, fsdp_version=2, gather_params=lambda parameters: nullcontext())
    return made


def check_gathering(folder: str) -> None:
    """Run in each of two processes: sharded weights must reach vLLM as the whole ones do."""
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    torch.distributed.init_process_group("gloo")
    whole, sharded = (AutoModelForCausalLM.from_pretrained(folder) for _ in range(2))
    for layer in sharded.model.layers:
        fully_shard(layer)
    fully_shard(sharded)
    with torch.no_grad():
        for model in (whole, sharded):
            for weight in model.parameters():
                weight.mul_(2.0)  # as an update would: what is gathered must be of now
    expected = dict(generation(whole, fsdp=False)._weights())
    local = next(sharded.parameters()).to_local()
    assert local.numel() < next(whole.parameters()).numel()
    found = dict(generation(sharded, fsdp=True)._weights())
    assert list(found) == list(expected)
    assert "lm_head.weight" in found
    for name, weight in found.items():
        assert type(weight) is torch.Tensor, name
        assert torch.equal(weight, expected[name]), name
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sharded_weights_reach_vllm_whole(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    done = subprocess.run(
        [*(sys.executable, "-m", "torch.distributed.run", "--standalone"), "--nproc_per_node=2"]
        + [__file__, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]


if __name__ == "__main__":
    check_gathering(sys.argv[1])
