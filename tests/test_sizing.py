"""The sizing page: its arithmetic against numbers worked out by hand, and its tables against the script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizing", repository / "benchmarks" / "sizing.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def layout(script: ModuleType) -> Any:
    """Qwen2.5-7B on eight H100, the cell that is worked out by hand."""
    return script.chosen(script.MODELS[1], 8)


def test_the_models_have_as_many_weights_as_their_cards_say(script: ModuleType) -> None:
    counted = [model.weights for model in script.MODELS]
    assert counted == [1_543_714_304, 7_615_616_512, 32_763_876_352, 72_706_203_648]


def test_weights_are_those_of_the_architecture(script: ModuleType) -> None:
    """A small model of the same kind, counted by transformers."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    for tied in (True, False):
        small = script.Model("small", 48, 80, 3, 6, 2, 101, tied)
        config = transformers.Qwen2Config(
            vocab_size=small.vocabulary,
            hidden_size=small.hidden,
            intermediate_size=small.intermediate,
            num_hidden_layers=small.layers,
            num_attention_heads=small.heads,
            num_key_value_heads=small.kv_heads,
            tie_word_embeddings=tied,
        )
        with torch.device("meta"):
            made = transformers.Qwen2ForCausalLM(config)
        assert small.weights == sum(weight.numel() for weight in made.parameters())


def test_an_adapter_has_the_weights_that_peft_makes(script: ModuleType) -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    small = script.Model("small", 48, 80, 3, 6, 2, 101, True)
    config = transformers.Qwen2Config(
        vocab_size=101,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    with torch.device("meta"):
        made = transformers.Qwen2ForCausalLM(config)
        adapted = peft.get_peft_model(made, peft.LoraConfig(r=4, target_modules="all-linear"))
    trained = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert small.adapter(4) == trained


def test_memory_by_hand(layout: Any) -> None:
    assert layout.name == "colocated; FSDP2 or ZeRO-3"
    weights = 7_615_616_512
    assert layout.states == (weights / 2, weights / 2, weights)  # 4, 4 and 8 bytes on 8 GPUs
    one_layer = 25_690_112 + 3_670_016 + 4_608 + 203_685_888 + 7_168
    inputs, within, logits = 1_644_167_168, 1_728_053_248, 9_965_666_304
    assert layout.model.activations() == inputs + within + logits + 4 * one_layer
    assert layout.served == 15_231_233_024
    assert layout.cache == 64 * 4_096 * 57_344  # 28 layers x (key + value) x 4 heads x 128 x 2 bytes


def test_speed_by_hand(layout: Any) -> None:
    step = (15.231233024e9 + 15.032385536e9) / (3.35e12 * 0.6)  # memory bound: the arithmetic takes 2.5 ms
    prefill = 3 * 2 * 7.615616512e9 * 64 / (989e12 * 0.4)
    assert layout.rollout() == pytest.approx(8 * 64 / (step + prefill))
    assert layout.rollout() == pytest.approx(22_807, rel=1e-3)
    operations = 10 * (7.615616512e9 + 28 * 3584 * 8192)
    assert layout.trained() == pytest.approx(8 * 989e12 * 0.4 / operations)
    assert layout.trained() == pytest.approx(37_508, rel=1e-3)
    assert layout.share() == pytest.approx((1 / 22_807) / (1 / 22_807 + 4 / 37_508), rel=1e-3)
    assert layout.overall() == pytest.approx(1 / (1 / 22_807 + 4 / 37_508), rel=1e-3)


def test_what_is_chosen_fits_and_nothing_simpler_does(script: ModuleType) -> None:
    for model in script.MODELS:
        for gpus in (1, 8, 64):
            found = script.chosen(model, gpus)
            simpler = []
            for alike in script.layouts(model, gpus):
                if found in alike:
                    break
                simpler += alike
            assert not any(each.fits() for each in simpler)
            if found is not None:
                assert found.fits() and found.train + found.serve == gpus
                assert found.training <= 0.92 * 80e9 and found.serve % found.parallel == 0


def test_larger_memory_lets_a_model_be_trained_whole(script: ModuleType) -> None:
    model = script.MODELS[2]
    assert script.chosen(model, 8).lora
    assert not script.chosen(model, 8, script.H200).lora


def test_the_page_holds_the_tables_of_the_script(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert text.count(script.BEGIN) == text.count(script.END) == 1
    assert text == script.page(text), "run: python benchmarks/sizing.py --write"
