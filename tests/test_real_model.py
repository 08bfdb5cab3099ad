"""A real pretrained model, where it is at hand: trained on real questions, and how its calls are read."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import CallError, formats
from agent_r1_env.engines import Sampling
from agent_r1_env.episode import read_episodes
from agent_r1_env.output import safe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
ENV = "AgentR1/HotpotQA-v0"
REPLIES = 200
TAUGHT = (
    *("hermes", "qwen3_coder", "llama3_json", "pythonic", "mistral"),
    *("react", "xml_tags", "deepseek", "glm4", "kimi_k2"),
)
"""Formats whose instructions the model is given, in turn."""


@pytest.fixture(scope="session")
def smollm2(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M, unpacked."""
    script = repository / "benchmarks" / "smollm2.py"
    spec = importlib.util.spec_from_file_location("smollm2", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = module.unpack(tmp_path_factory.mktemp("smollm2"))
    return folder


def test_a_real_model_makes_an_update_on_real_questions(
    smollm2: Path, shared_data: Path, tmp_path: Path
) -> None:
    questions = shared_data / "hotpotqa"
    command = [sys.executable, "-m", "agent_r1_env.cli", "train", "hotpotqa_cpu", "--set", "max_steps=1"]
    command += ["--model", str(smollm2), "--output", str(tmp_path), "--set", "per_device_train_batch_size=4"]
    command += [
        "--data",
        str(questions / "hotpot_train_sample.json"),
        "--corpus",
        str(questions / "corpus.jsonl"),
    ]
    subprocess.run(command, check=True, timeout=850)
    (update,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert update["agent/drift"] == 0
    assert update["sampling/sampling_logp_difference/max"] < 1e-2
    assert {"agent/episode_reward", "agent/tool_call_rate", "agent/invalid_call_rate", "entropy"} <= set(
        update
    )
    assert len(list(read_episodes(tmp_path / "episodes.jsonl"))) == 4


@dataclass(frozen=True)
class Prompt:
    """What one reply was sampled from.

    Attributes:
        begun: the first characters of the reply, which the model did not choose.
    """

    format: str
    text: str
    begun: str


def prompt(number: int, tokenizer: Any) -> Prompt:
    """A question with a tool, and one answered before it as an example.

    Left alone a model of this size hardly ever calls a tool, so every other reply is begun with what stands
    before the name of the tool in a call.
    """
    format = formats.get(TAUGHT[number % len(TAUGHT)])
    env = gym.make(ENV, format=format.name)
    _, info = env.reset(seed=number // len(TAUGHT))
    name = info["tools"][0]["function"]["name"]
    call = format.render_call(name, {"query": "height of Mount Fuji"})
    system, *question = info["messages"]
    example = [
        {"role": "user", "content": "How high is Mount Fuji?"},
        {"role": "assistant", "content": call},
        {"role": "tool", "content": "Mount Fuji is 3,776 metres high."},
        {"role": "assistant", "content": "<answer>3,776 metres</answer>"},
    ]
    turns = format.flatten([system, *example, *question], info["tools"])
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return Prompt(format.name, text, call.partition(name)[0] if number // len(TAUGHT) % 2 else "")


@pytest.fixture(scope="module")
def written(smollm2: Path) -> list[tuple[str, str]]:
    """Replies of the model at temperature 1, each with the name of the format that it was taught."""
    from agent_r1_env.engines.vllm import VLLMEngine

    engine = VLLMEngine.load(str(smollm2), max_model_len=1024, max_num_seqs=128)
    tokenizer = engine.tokenizer
    prompts = [prompt(number, tokenizer) for number in range(REPLIES)]

    async def sample() -> Sequence[Any]:
        return await asyncio.gather(
            *[
                engine.generate(
                    tokenizer.encode(each.text + each.begun, add_special_tokens=False),
                    Sampling(max_tokens=96, seed=seed, stop=formats.get(each.format).stop),
                )
                for seed, each in enumerate(prompts)
            ]
        )

    made = asyncio.run(sample())
    engine.close()
    texts = [str(tokenizer.decode(one.ids, skip_special_tokens=False)) for one in made]
    ended = tokenizer.eos_token
    return [
        (each.format, each.begun + text.removesuffix(ended))
        for each, text in zip(prompts, texts, strict=True)
    ]


@pytest.mark.parametrize("repair", [False, True])
def test_every_format_reads_whatever_a_real_model_writes(
    written: list[tuple[str, str]], repair: bool
) -> None:
    _, info = gym.make(ENV).reset(seed=0)
    for _, reply in written:
        for name in formats.names():
            parsed = formats.get(name).parse(reply, info["tools"], repair=repair)
            assert all(error.raw == reply[error.start : error.end] for error in parsed.errors)


def test_each_malformed_call_of_a_real_model_is_answered_in_its_place(written: list[tuple[str, str]]) -> None:
    envs = {name: gym.make(ENV, format=name) for name in TAUGHT}
    calls = malformed = 0
    for name, reply in written:
        _, info = envs[name].reset(seed=0)
        read = formats.get(name).parse(reply, info["tools"]).attempts
        observation, _, terminated, _, info = envs[name].step(reply)
        told = [message["content"] for message in info["messages"] if message["role"] == "tool"]
        assert len(told) == len(read) and not (read and terminated)
        position = 0
        for attempt, content in zip(read, told, strict=True):
            if isinstance(attempt, CallError):
                assert content.startswith(f"error: {safe(attempt.message)}")
                malformed += 1
            else:
                calls += 1
            # Some formats give results as JSON.
            shown = (content, json.dumps(content, ensure_ascii=False)[1:-1])
            position = max(observation.find(text, position) for text in shown)
            assert position >= 0, (name, reply, content)
            position += len(content)
    assert malformed >= 20 and calls >= 5, "too few attempts at a call to tell"
