"""Adapters in place of all weights: what is trained, what the sampler gets, what is saved and resumed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_r1_env import lora, recipe, reward, train
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import MissingExtra, RecipeError
from agent_r1_env.lora import Lora
from agent_r1_env.results import Results
from agent_r1_env.testing import sum_env, tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

RECIPE = """\
name: noise
model: ./model
env: Test/Noise-v0
env_kwargs: {count: 8, max_steps: 1}
eval: {episodes: 0}
lora: {r: 2, alpha: 8}
trl:
  max_steps: 2
  num_generations: 4
  per_device_train_batch_size: 8
  max_completion_length: 6
  learning_rate: 1e-2
  lr_scheduler_type: constant
  gradient_checkpointing: false
  save_steps: 1
"""
PROMPT = torch.tensor([[5, 6, 7, 8, 9, 10]])


@reward.per_step
def noise(turn: reward.Turn) -> float:
    """A reward that a random policy is paid, too."""
    return zlib.crc32(turn.reply.encode()) % 7 / 7


def noise_env(**options: Any) -> ToolEnv:
    return sum_env(terms={"noise": noise}, rewards={"noise": 1.0}, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of two updates."""
    gym.register("Test/Noise-v0", noise_env)
    folder = tmp_path_factory.mktemp("lora")
    tiny_llama(folder / "model", layers=1)
    (folder / "noise.yaml").write_text(RECIPE)
    train.run(folder / "noise.yaml", output=folder / "out", quiet=True)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(PROMPT).logits
    return found


def adapted(folder: Path, **options: Any) -> Any:
    """A model whose adapter does something."""
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    made = get_peft_model(model, LoraConfig(r=2, task_type="CAUSAL_LM", init_lora_weights=False, **options))
    return made.eval()


def test_the_policy_is_a_whole_model_that_answers_as_the_adapter_does(folder: Path) -> None:
    policy = folder / "out" / "policy"
    merged = AutoModelForCausalLM.from_pretrained(policy)
    beside = AutoPeftModelForCausalLM.from_pretrained(policy / "adapter")
    start = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert AutoTokenizer.from_pretrained(policy).chat_template
    torch.testing.assert_close(logits(merged), logits(beside))
    assert (logits(merged) - logits(start)).abs().max() > 1e-3


def test_a_checkpoint_holds_the_adapter_alone(folder: Path) -> None:
    checkpoint = folder / "out" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").exists()
    assert not (checkpoint / "model.safetensors").exists()
    assert Results(folder / "out").last_checkpoint() == checkpoint


def test_a_resumed_run_goes_on_with_its_adapter(folder: Path) -> None:
    """Two updates, stopped and gone on with for a third, are three in one go."""
    run = folder / "noise.yaml"
    train.run(run, output=folder / "out", resume=True, overrides={"max_steps": 3}, quiet=True)
    changes = {"max_steps": 3, "lora.save_merged": False}
    train.run(run, output=folder / "whole", overrides=changes, quiet=True)
    assert [entry["step"] for entry in Results(folder / "out").logged()] == [1, 2, 3]
    resumed = AutoModelForCausalLM.from_pretrained(folder / "out" / "policy")
    assert not (folder / "whole" / "policy" / "model.safetensors").exists()
    alone = AutoPeftModelForCausalLM.from_pretrained(folder / "whole" / "policy")
    torch.testing.assert_close(logits(resumed), logits(alone))


def test_merging_leaves_the_frozen_weights_alone(folder: Path) -> None:
    model = adapted(folder, target_modules="all-linear")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    assert lora.merges_by_itself(model)
    merged = dict(lora.merged_weights(model))
    assert all(weight.equal(before[name]) for name, weight in model.named_parameters())
    plain = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert set(merged) == {name for name, _ in plain.named_parameters()}
    plain.load_state_dict(merged, strict=False)
    torch.testing.assert_close(logits(plain), logits(model))


def test_an_adapter_of_another_kind_is_left_to_peft(folder: Path) -> None:
    assert not lora.merges_by_itself(adapted(folder, target_modules=["q_proj"], use_dora=True))
    assert not lora.merges_by_itself(AutoModelForCausalLM.from_pretrained(folder / "model"))


def test_an_adapter_of_a_tied_layer_is_refused(folder: Path) -> None:
    changes = {"lora.target_modules": ["embed_tokens"]}
    with pytest.raises(RecipeError, match=r"noise.yaml:6:\d+: .*cannot be merged"):
        train.run(folder / "noise.yaml", output=folder / "tied", overrides=changes, quiet=True)


def test_settings_of_the_adapter_reach_peft() -> None:
    made = Lora(r=4, alpha=8, dropout=0.1, target_modules=["q_proj"]).config()
    assert (made.r, made.lora_alpha, made.lora_dropout, made.target_modules) == (4, 8, 0.1, {"q_proj"})


def test_a_wrong_setting_of_the_adapter_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "noise.yaml").write_text(RECIPE.replace("r: 2", "rank: 2"))
    with pytest.raises(RecipeError, match=r"noise.yaml:6:\d+: .*rank"):
        recipe.load(tmp_path / "noise.yaml")


def test_without_peft_the_pip_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"peft is not installed; run: pip install 'agent-r1-env\[lora\]'"):
        Lora().config()


def test_a_recipe_writes_its_adapter_down(folder: Path) -> None:
    notes = json.loads((folder / "out" / "run.json").read_text())
    assert notes["recipe"]["lora"]["r"] == 2
