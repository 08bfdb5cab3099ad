"""vLLM in this process: exact ids and log-probs, many episodes, nothing that hangs."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
from jsonschema import Draft202012Validator

from agent_r1_env import formats, metrics, structure
from agent_r1_env.batch import facts
from agent_r1_env.catalog import builtin_root
from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.errors import EngineError, MissingExtra, PromptTooLong
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.testing import tiny_llama
from agent_r1_env.trajectory import rows, sampled_ids, trained_ids

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
LENGTH = 2048
BLOCK = 128
"""Tokens of a cache entry, at most."""
SEQUENCES = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def engine(folder: str) -> Iterator[Any]:
    import bm25s  # noqa: F401  (a search before vLLM starts must not keep it from starting)

    from agent_r1_env.engines.vllm import VLLMEngine

    made = VLLMEngine.load(folder, max_model_len=LENGTH, max_num_seqs=SEQUENCES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def model(folder: str) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def policy() -> Iterator[Any]:
    """The quickstart policy, which writes calls."""
    from agent_r1_env.engines.vllm import VLLMEngine

    made = VLLMEngine.load(str(builtin_root() / "trainers" / "quickstart" / "policy"), max_model_len=LENGTH)
    yield made
    made.close()


def described(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def scored(model: Any, prompt: list[int], ids: list[int], temperature: float) -> list[float]:
    """Log-probs of the ids by one plain forward pass of transformers."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0].float() / temperature
    table = logits.log_softmax(-1)
    return [float(table[len(prompt) + i - 1, token]) for i, token in enumerate(ids)]


def requests(engine: Any) -> list[Any]:
    """What vLLM works on."""
    return list(engine.llm.llm_engine.engine_core.engine_core.scheduler.requests.values())


async def drawn(engine: Any, ids: int, count: int = 1) -> None:
    """Wait until some requests have drawn so many ids."""
    async with asyncio.timeout(30):
        while sum(request.num_output_tokens >= ids for request in requests(engine)) < count:
            await asyncio.sleep(0)


def busy(engine: Any) -> bool:
    return bool(engine.llm.llm_engine.has_unfinished_requests())


def load_weights(engine: Any, model: Any) -> None:
    """Give vLLM the weights of a model of transformers, as training does."""
    weights = ((name, weight.detach()) for name, weight in model.named_parameters())
    engine.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_logprobs_agree_with_transformers(engine: Any, model: Any, temperature: float) -> None:
    prompts = [list(b"tell me " * (1 + i % 3)) + [48 + i] for i in range(16)]
    sampling = Sampling(max_tokens=24, temperature=temperature)
    made = await asyncio.gather(*[engine.generate(prompt, sampling) for prompt in prompts])
    for prompt, generation in zip(prompts, made, strict=True):
        assert generation.logprobs == pytest.approx(
            scored(model, prompt, generation.ids, temperature), abs=1e-3
        )


async def test_the_stop_token_is_kept_with_its_logprob(engine: Any) -> None:
    stops = tuple(range(65, 91))
    made = await engine.generate([65], Sampling(max_tokens=1000, stop_token_ids=stops, seed=1))
    assert made.finish_reason == "stop"
    assert made.ids[-1] in (*stops, engine.tokenizer.eos_token_id)
    assert len(made.ids) == len(made.logprobs)


async def test_a_stop_text_ends_a_reply_and_is_kept(engine: Any) -> None:
    made = await engine.generate([65], Sampling(max_tokens=1000, stop=("a", "e", "t"), seed=1))
    assert made.finish_reason == "stop"
    assert engine.tokenizer.decode(made.ids)[-1] in "aet>", "the text, or the end of turn"


def test_stop_texts_are_looked_for_in_text_that_keeps_special_tokens() -> None:
    from agent_r1_env.engines.vllm import _params

    params = _params(Sampling(stop=("<|im_start|>",)))
    assert params.detokenize
    assert not params.skip_special_tokens
    assert not params.spaces_between_special_tokens


async def test_a_stop_text_that_is_a_special_token_ends_a_reply(engine: Any) -> None:
    special = engine.tokenizer.all_special_tokens
    made = await engine.generate([65], Sampling(max_tokens=1000, stop=tuple(special), seed=1))
    assert made.finish_reason == "stop"
    assert made.ids[-1] in engine.tokenizer.all_special_ids
    assert not set(made.ids[:-1]) & set(engine.tokenizer.all_special_ids)


async def test_the_limit_and_the_context_end_a_reply_by_length(engine: Any) -> None:
    greedy = Sampling(max_tokens=2, temperature=0)
    assert (await engine.generate([65] * 4, greedy)).finish_reason == "length"
    made = await engine.generate([65] * (LENGTH - 2), Sampling(max_tokens=100, temperature=0))
    assert (len(made.ids), made.finish_reason) == (2, "length")
    with pytest.raises(PromptTooLong):
        await engine.generate([65] * LENGTH, greedy)
    assert not busy(engine)


async def test_a_seed_fixes_a_reply_whatever_runs_beside_it(engine: Any) -> None:
    sampling = Sampling(max_tokens=16, seed=7)
    alone = await engine.generate([65], sampling)
    beside, *_ = await asyncio.gather(
        *[engine.generate([65], sampling)],
        *[engine.generate([66 + i], Sampling(max_tokens=16)) for i in range(5)],
    )
    assert beside.ids == alone.ids


async def test_each_id_of_a_reply_has_the_version_that_drew_it(engine: Any, model: Any) -> None:
    """The weights are turned upside down on the way: log-probs tell which ones drew an id."""
    prompt, sampling = list(b"tell me"), Sampling(max_tokens=1500, seed=3, stop_token_ids=())
    with engine.updating(7):
        pass
    asked = asyncio.ensure_future(engine.generate(prompt, sampling))
    await drawn(engine, 5)
    model.model.norm.weight.data.neg_()
    with engine.updating(8):
        load_weights(engine, model)
    made = await asked
    late = await engine.generate(prompt, Sampling(max_tokens=3))
    after = scored(model, prompt, made.ids, 1.0)
    model.model.norm.weight.data.neg_()
    with engine.updating(None):
        load_weights(engine, model)
    count = list(made.versions).count(7)
    assert list(made.versions) == [7] * count + [8] * (len(made.ids) - count)
    assert 0 < count < len(made.ids)
    before = scored(model, prompt, made.ids, 1.0)
    assert made.logprobs[:count] == pytest.approx(before[:count], abs=1e-3)
    assert made.logprobs[count:] == pytest.approx(after[count:], abs=1e-3)
    assert abs(before[count] - after[count]) > 0.01, "the two can be told apart"
    assert set(late.versions) == {8}
    assert list((await engine.generate(prompt, Sampling(max_tokens=3))).versions) == []


async def test_what_old_weights_computed_is_not_found_with_new_ones(engine: Any) -> None:
    prompt, sampling = list(b"one beginning for all of these prompts " * 8), Sampling(max_tokens=2)
    assert (await engine.generate(prompt, sampling)).cached_tokens == 0
    assert (await engine.generate(prompt, sampling)).cached_tokens > len(prompt) - 2 * BLOCK
    under_way = asyncio.ensure_future(engine.generate([65], Sampling(max_tokens=1000, temperature=0)))
    await drawn(engine, 1)
    with engine.updating(1):
        pass
    assert (await engine.generate(prompt, sampling)).cached_tokens == 0
    assert not under_way.done(), "vLLM would not have emptied its cache meanwhile"
    assert (await engine.generate(prompt, sampling)).cached_tokens > 0
    await under_way
    engine.version = None


async def test_requests_that_wait_for_room_begin_with_the_new_weights(engine: Any) -> None:
    prompt = list(b"one beginning for all of these prompts " * 8)
    await engine.generate(prompt, Sampling(max_tokens=2))  # so that the old weights would be found
    long = Sampling(max_tokens=150, temperature=0)
    first = [asyncio.ensure_future(engine.generate([65 + i], long)) for i in range(SEQUENCES)]
    waiting = asyncio.ensure_future(engine.generate(prompt, Sampling(max_tokens=2, seed=0)))
    await drawn(engine, 1, SEQUENCES)
    with engine.updating(3):
        assert len(requests(engine)) == SEQUENCES + 1
    made = await waiting
    assert (made.cached_tokens, list(made.versions)) == (0, [3] * len(made.ids))
    await asyncio.gather(*first)
    assert not busy(engine)
    engine.version = None


async def test_the_event_loop_goes_on_while_vllm_computes(engine: Any) -> None:
    asked = asyncio.ensure_future(engine.generate([65], Sampling(max_tokens=200, temperature=0)))
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > len(asked.result().ids)


async def test_a_cancelled_request_leaves_the_engine(engine: Any) -> None:
    long = Sampling(max_tokens=1900, temperature=0)
    asked = [asyncio.ensure_future(engine.generate([65], long)) for _ in range(4)]
    kept = asyncio.ensure_future(engine.generate([66], Sampling(max_tokens=5)))
    await asyncio.sleep(0.05)
    for task in asked:
        task.cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError | Generation) for error in found)
    assert len((await kept).ids) <= 5
    assert not busy(engine)


def test_many_episodes_run_through_with_the_ids_that_were_sampled(engine: Any) -> None:
    gym.register("VLLMTest/Sum-v0", entry_point="agent_r1_env.testing:sum_env", kwargs={"max_steps": 2})
    asked = [EpisodeRequest(task=i % 4, seed=i, group=i // 8) for i in range(32)]
    sampling = Sampling(max_tokens=16, seed=0)
    with Rollout("VLLMTest/Sum-v0", engine=engine, sampling=sampling) as rollout:
        first = rollout.run(asked)
        again = rollout.run(asked)
    assert [sampled_ids(e) for e in first] == [sampled_ids(e) for e in again], "the seed fixes all of it"
    assert len({tuple(sampled_ids(e)) for e in first}) > 24, "tries at one task differ"
    for place, episode in enumerate(first):
        made = rows(episode, [1.0] * len(episode.steps), place)
        assert trained_ids(made) == sampled_ids(episode)
        assert not episode.failed
    assert not busy(engine)
    del gym.registry["VLLMTest/Sum-v0"]


class Talk(gym.Env[str, str]):
    """A conversation that goes on for three replies, whatever they say."""

    observation_space = action_space = UnicodeText()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Any]:
        self.messages = [{"role": "user", "content": "Say something. " * 20}]
        return "", {"messages": list(self.messages)}

    def step(self, reply: str) -> tuple[str, float, bool, bool, Any]:
        self.messages += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": "Go on. " * 20},
        ]
        return "", 0.0, len(self.messages) > 6, False, {"messages": list(self.messages)}


def test_later_steps_of_an_episode_find_their_beginning_in_the_cache(engine: Any) -> None:
    gym.register("VLLMTest/Talk-v0", entry_point=Talk)
    with Rollout("VLLMTest/Talk-v0", engine=engine, sampling=Sampling(20, seed=0)) as rollout:
        episode = rollout.run([EpisodeRequest(task=None, seed=0)])[0]
        with engine.updating(9):
            pass
        later = rollout.run([EpisodeRequest(task=None, seed=0)])[0]
        engine.version = None
    del gym.registry["VLLMTest/Talk-v0"]
    for played in (episode, later):
        assert [step.cached_tokens == 0 for step in played.steps] == [True, False, False]
        for before, step in zip(played.steps, played.steps[1:], strict=False):
            assert step.cached_tokens is not None
            assert len(before.prompt_ids) - BLOCK <= step.cached_tokens < len(step.prompt_ids)
    assert set(later.steps[0].versions) == {9}
    assert 0.3 < metrics.of_batch([facts(episode)])["prefix_cache_hit_rate"] < 1


async def test_an_engine_that_breaks_reaches_every_waiter(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine.llm.llm_engine, "step", broken)
    asked = [engine.generate([65], Sampling(max_tokens=5)) for _ in range(4)]
    found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=30)
    assert [type(error) for error in found] == [EngineError] * 4
    monkeypatch.undo()
    assert not busy(engine)
    assert len((await engine.generate([65], Sampling(max_tokens=3))).ids) <= 3


async def test_one_request_that_vllm_refuses_harms_no_other(engine: Any) -> None:
    beyond = len(engine.tokenizer) + 10_000
    good, bad = await asyncio.gather(
        engine.generate([65], Sampling(max_tokens=3)),
        engine.generate([beyond], Sampling(max_tokens=3)),
        return_exceptions=True,
    )
    assert isinstance(good, Generation)
    assert "out of vocabulary" in str(bad)


async def test_a_call_once_begun_is_valid_under_a_grammar(policy: Any) -> None:
    """A policy that was taught one tool, sampled hot."""
    tools = [described("search", query={"type": "string"}, top={"enum": [1, 2, 3]})]
    held = structure.structured(formats.get("hermes"))(tools)
    ids = policy.tokenizer.encode("Find Tora Venn.", add_special_tokens=False)

    async def replies(grammar: str) -> list[tuple[str, Generation]]:
        asked = Sampling(64, temperature=2.0, structure=grammar)
        made = await asyncio.gather(*[policy.generate(ids, replace(asked, seed=i)) for i in range(64)])
        return [(policy.tokenizer.decode(each.ids, skip_special_tokens=True), each) for each in made]

    free, first, again = await replies(""), await replies(held), await replies(held)
    assert [each.ids for _, each in first] == [each.ids for _, each in again], "seeds hold"
    parse = formats.get("hermes").parse
    check = Draft202012Validator(tools[0]["function"]["parameters"])
    begun = [(parse(text, tools), each) for text, each in first if "<tool_call>" in text]
    assert len(begun) > 3
    for parsed, each in begun:
        assert not parsed.errors or each.finish_reason == "length"
        for call in parsed.calls:
            check.validate(call.arguments)
    wrong = [parse(text, tools) for text, _ in free if "<tool_call>" in text]
    assert any(p.errors or any(not check.is_valid(c.arguments) for c in p.calls) for p in wrong)
    assert any("<tool_call>" not in text for text, _ in first), "other text is free"


def test_ids_that_vllm_draws_ahead_count_as_of_the_old_weights() -> None:
    from agent_r1_env.engines.vllm import _drawn

    def request(ids: int, placeholders: int, in_flight: int, reads: bool = False) -> Any:
        return SimpleNamespace(
            num_output_tokens=ids,
            num_output_placeholders=placeholders,
            num_in_flight_tokens=in_flight,
            is_prefill_chunk=reads,
        )

    assert _drawn(request(5, 0, 0)) == 5
    assert _drawn(request(5, 1, 1)) == 6, "scheduled ahead"
    assert _drawn(request(5, 0, 1)) == 6, "in a stage of a pipeline"
    assert _drawn(request(0, 0, 512, reads=True)) == 0, "a part of a long prompt draws nothing"


def test_a_program_may_change_how_many_threads_torch_has(folder: str) -> None:
    code = f"""
import asyncio, torch
torch.set_num_threads(torch.get_num_threads() + 1)
from agent_r1_env.engines import Sampling
from agent_r1_env.engines.vllm import VLLMEngine
engine = VLLMEngine.load({folder!r}, max_model_len=128)
print(len(asyncio.run(engine.generate([5] * 40, Sampling(4, seed=0))).ids), "ids")
engine.close()
"""
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=settings)
    assert done.stdout.split() and done.stdout.split()[-1] == "ids", done.stderr[-2000:]


def test_weights_of_a_core_in_another_process_do_not_change_under_way() -> None:
    from agent_r1_env.engines.vllm import _Backend

    with pytest.raises(EngineError, match="VLLM_ENABLE_V1_MULTIPROCESSING=0"):
        _Backend(SimpleNamespace(engine_core=SimpleNamespace())).sampled([])


def test_raw_logprobs_are_refused(folder: str) -> None:
    from agent_r1_env.engines.vllm import VLLMEngine

    config = SimpleNamespace(logprobs_mode="raw_logprobs", max_model_len=10)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=SimpleNamespace(model_config=config)))
    with pytest.raises(ValueError, match="processed_logprobs"):
        VLLMEngine(llm, None)  # type: ignore[arg-type]


def test_a_missing_vllm_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_r1_env.engines.vllm import VLLMEngine

    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-r1-env\[train\]'"):
        VLLMEngine.load("anything")


def test_a_closed_engine_leaves_no_thread(engine: Any) -> None:
    before = sum(thread.name == "vllm" for thread in threading.enumerate())
    engine.close()
    assert sum(thread.name == "vllm" for thread in threading.enumerate()) == before - 1
