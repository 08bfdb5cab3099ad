"""The engine seam: sampling options, the scripted engine, the worker thread and the transformers engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env.engines import Generation, Sampling, Updatable, room
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.engines.worker import Worker, _Hold
from agent_r1_env.errors import EngineError, PromptTooLong
from agent_r1_env.testing import ByteTokenizer, scripted, tiny_llama, tiny_tokenizer


@pytest.mark.parametrize(
    "bad",
    [{"max_tokens": 0}, {"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_k": -1}],
)
def test_impossible_sampling_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"sampling {next(iter(bad))} must be"):
        Sampling(**bad)


def test_a_generation_needs_a_logprob_for_each_id() -> None:
    with pytest.raises(ValueError, match="2 ids but 1 log-probs"):
        Generation([1, 2], [-1.0], "stop")


def test_a_generation_needs_a_version_for_each_id_or_none() -> None:
    assert Generation([1, 2], [-1.0, -1.0], "stop", versions=[3, 4]).versions == [3, 4]
    with pytest.raises(ValueError, match="2 ids but 1 versions"):
        Generation([1, 2], [-1.0, -1.0], "stop", versions=[3])


def test_room_is_what_the_context_still_holds() -> None:
    assert room(5, 10, 3) == 3
    assert room(5, 10, 30) == 5
    assert room(9, 10, 30) == 1
    with pytest.raises(PromptTooLong, match="10 prompt tokens"):
        room(10, 10, 30)


# -- scripted


async def test_a_scripted_reply_ends_with_the_stop_token() -> None:
    engine = scripted("hi")
    generation = await engine.generate([65], Sampling())
    assert generation == Generation([104, 105, 258], [-1.0] * 3, "stop")
    assert (await engine.generate([65], Sampling(stop_token_ids=(258, 257)))).ids[-1] == 257


async def test_a_scripted_reply_is_cut_at_its_limit() -> None:
    assert (await scripted("hello").generate([65], Sampling(max_tokens=2))).finish_reason == "length"
    cut = await scripted("hello", max_model_len=4).generate([65], Sampling())
    assert (cut.ids, cut.finish_reason) == ([104, 101, 108], "length")
    with pytest.raises(PromptTooLong):
        await scripted("hello", max_model_len=1).generate([65], Sampling())


async def test_a_script_may_be_async_and_may_sample_ids() -> None:
    async def policy(prompt: str) -> Sequence[int]:
        return [7, 8] if prompt == "A" else []

    engine = ScriptedEngine(policy, ByteTokenizer())
    assert (await engine.generate([65], Sampling())).ids == [7, 8]
    assert (await engine.generate([66], Sampling())).ids == []


async def test_a_scripted_reply_waits_for_an_update_and_has_the_version_it_began_under() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def policy(prompt: str) -> str:
        begun.set()
        await go_on.wait()
        return "hi"

    engine = ScriptedEngine(policy, ByteTokenizer())
    assert isinstance(engine, Updatable)
    engine.version = 1
    early = asyncio.ensure_future(engine.generate([65], Sampling()))
    await begun.wait()
    begun.clear()
    go_on.set()
    with engine.updating(2):
        late = asyncio.ensure_future(engine.generate([65], Sampling()))
        await asyncio.sleep(0.02)
        assert not early.done()
        assert not begun.is_set()
    assert list((await early).versions) == [1, 1, 1]
    assert list((await late).versions) == [2, 2, 2]


# -- the worker thread, over a backend that needs no model


class Fake:
    """Finishes a request after as many calls of ``advance`` as its prompt is long."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.admitted = self.cancelled = 0
        self.most = 0
        self.failure: BaseException | None = None
        self.threads: set[int] = set()

    def admit(self, key: str, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        if prompt_ids[0] < 0:
            raise ValueError("negative id")
        self.left[key] = len(prompt_ids)
        self.admitted += 1

    def cancel(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.cancelled += self.left.pop(key, None) is not None

    def sampled(self, keys: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 0)

    def refresh(self) -> None:
        pass

    def advance(self) -> list[tuple[str, Generation | Exception]]:
        self.threads.add(threading.get_ident())
        if self.failure is not None:
            raise self.failure
        self.most = max(self.most, len(self.left))
        time.sleep(0.001)
        self.left = {key: count - 1 for key, count in self.left.items()}
        over = [key for key, count in self.left.items() if count <= 0]
        for key in over:
            del self.left[key]
        return [(key, Generation([1], [-1.0], "stop")) for key in over]


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def worker(fake: Fake) -> Any:
    made = Worker(fake, "fake")
    yield made
    made.close()


async def test_requests_are_worked_on_together(fake: Fake, worker: Worker) -> None:
    await asyncio.gather(*[worker.ask([1] * 20, Sampling()) for _ in range(8)])
    assert fake.most == 8
    assert fake.left == {}


async def test_a_short_request_does_not_wait_for_a_long_one(worker: Worker) -> None:
    long = asyncio.ensure_future(worker.ask([1] * 1000, Sampling()))
    await worker.ask([1], Sampling())
    assert not long.done()
    long.cancel()


async def test_a_late_request_joins_those_under_way(fake: Fake, worker: Worker) -> None:
    long = asyncio.ensure_future(worker.ask([1] * 200, Sampling()))
    while fake.most == 0:
        await asyncio.sleep(0.001)
    await worker.ask([1], Sampling())
    assert fake.most == 2
    assert not long.done()
    await long


class Counting:
    """Draws an id a call for each request and notes with which weights, until the request has enough."""

    def __init__(self) -> None:
        self.weights = 0
        self.refreshed = 0
        self.asked: dict[str, int] = {}
        self.drawn: dict[str, list[int]] = {}

    def admit(self, key: str, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        self.asked[key], self.drawn[key] = sampling.max_tokens, []

    def cancel(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.asked.pop(key, None)

    def advance(self) -> list[tuple[str, Generation | Exception]]:
        time.sleep(0.001)
        for key in self.asked:
            self.drawn[key].append(self.weights)
        over = [key for key, count in self.asked.items() if len(self.drawn[key]) >= count]
        self.cancel(over)
        return [(key, Generation(self.drawn[key], [-1.0] * len(self.drawn[key]), "stop")) for key in over]

    def sampled(self, keys: Sequence[str]) -> dict[str, int]:
        return {key: len(self.drawn[key]) for key in keys}

    def refresh(self) -> None:
        self.refreshed += 1


async def test_each_id_has_the_version_of_the_weights_that_drew_it() -> None:
    backend = Counting()
    worker = Worker(backend, "counting")
    worker.version = 0
    asked = [asyncio.ensure_future(worker.ask([1], Sampling(max_tokens=60))) for _ in range(3)]
    for version in range(1, 4):
        await asyncio.sleep(0.015)
        with worker.updating(version):
            before = worker.version
            asked.append(asyncio.ensure_future(worker.ask([1], Sampling(max_tokens=5))))
            await asyncio.sleep(0.005)
            assert worker.version == before, "until the weights are there"
            backend.weights = version
    made = await asyncio.gather(*asked)
    worker.close()
    assert [list(generation.versions) for generation in made] == [generation.ids for generation in made]
    assert len(set(made[0].versions)) > 1, "it went on after an update"
    assert backend.refreshed == 3


async def test_ids_have_no_version_while_nobody_counts() -> None:
    backend = Counting()
    worker = Worker(backend, "counting")
    begun = asyncio.ensure_future(worker.ask([1], Sampling(max_tokens=200)))
    await asyncio.sleep(0.03)
    with worker.updating(1):
        pass
    assert list((await begun).versions) == [], "who drew the first ones is not known"
    assert list((await worker.ask([1], Sampling(max_tokens=2))).versions) == [1, 1]
    worker.close()


async def test_an_update_that_fails_keeps_the_version() -> None:
    worker = Worker(Counting(), "counting")
    worker.version = 1
    with pytest.raises(RuntimeError, match="half"), worker.updating(2):
        raise RuntimeError("half the weights")
    assert list((await worker.ask([1], Sampling(max_tokens=1))).versions) == [1]
    worker.close()
    with pytest.raises(EngineError, match="closed"), worker.updating(3):
        pass


async def test_the_event_loop_goes_on_while_the_model_computes(fake: Fake, worker: Worker) -> None:
    asked = asyncio.ensure_future(worker.ask([1] * 200, Sampling()))
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 200, "the loop turned more often than the model was advanced"
    assert fake.threads == fake.threads - {threading.get_ident()}


async def test_cancelling_a_request_drops_it_before_the_waiter_goes_on(fake: Fake, worker: Worker) -> None:
    dropped = asyncio.ensure_future(worker.ask([1] * 10_000, Sampling()))
    kept = asyncio.ensure_future(worker.ask([1] * 50, Sampling()))
    while fake.admitted < 2:
        await asyncio.sleep(0.001)
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    assert fake.cancelled == 1
    assert (await kept).ids == [1]
    assert fake.left == {}


async def test_a_request_that_is_refused_harms_no_other(worker: Worker) -> None:
    good, bad = await asyncio.gather(
        worker.ask([1] * 5, Sampling()), worker.ask([-1], Sampling()), return_exceptions=True
    )
    assert isinstance(good, Generation)
    assert isinstance(bad, ValueError)


class Panic(BaseException):
    """As code in Rust raises it, under a tokenizer or a grammar."""


@pytest.mark.parametrize("place", ["admit", "sampled", "refresh", "cancel"])
async def test_no_panic_of_a_backend_ends_the_thread(
    fake: Fake, worker: Worker, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: Any) -> None:
        raise Panic

    with monkeypatch.context() as patch:
        patch.setattr(fake, place, panic)
        asked = asyncio.ensure_future(worker.ask([1] * 100_000, Sampling()))
        await asyncio.sleep(0.02)
        with contextlib.suppress(EngineError), worker.updating(None):
            pass
        asked.cancel()
        await asyncio.wait([asked], timeout=5)
    assert (await asyncio.wait_for(worker.ask([1], Sampling()), 5)).ids == [1]


def test_a_thread_that_cannot_be_set_up_is_told_of(fake: Fake) -> None:
    def setup() -> None:
        raise RuntimeError("no such device")

    with pytest.raises(EngineError, match="'fake' cannot be used: RuntimeError: no such device"):
        Worker(fake, "fake", setup)


@pytest.mark.parametrize("failure", [RuntimeError("out of memory"), SystemExit(1)])
async def test_a_failing_model_reaches_everybody_who_waits(
    fake: Fake, worker: Worker, failure: BaseException
) -> None:
    fake.failure = failure
    asked = [worker.ask([1], Sampling()) for _ in range(4)]
    found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=10)
    assert [type(error) for error in found] == [EngineError] * 4
    assert len({id(error) for error in found}) == 4
    assert fake.left == {}, "the model forgets what it failed at"
    assert type(failure).__name__ in str(found[0])
    fake.failure = None
    assert (await worker.ask([1], Sampling())).ids == [1], "the next request is tried again"


async def test_closing_fails_those_who_wait_and_those_who_come(worker: Worker) -> None:
    waiting = asyncio.ensure_future(worker.ask([1] * 100_000, Sampling()))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(worker.close)
    with pytest.raises(EngineError, match="closed"):
        await waiting
    with pytest.raises(EngineError, match="closed"):
        await worker.ask([1], Sampling())


async def test_a_held_worker_computes_nothing_and_goes_on_where_it_was(fake: Fake, worker: Worker) -> None:
    asked = asyncio.create_task(worker.ask([1] * 50, Sampling()))
    await asyncio.sleep(0.02)
    with worker.updating(None):
        before = dict(fake.left)
        await asyncio.sleep(0.05)
        assert fake.left == before and not asked.done()
    assert (await asked).ids == [1] and fake.admitted == 1


async def test_closing_does_not_wait_for_an_update_that_hangs(fake: Fake, worker: Worker) -> None:
    asked = asyncio.ensure_future(worker.ask([1] * 100_000, Sampling()))
    await asyncio.sleep(0.02)
    with worker.updating(None):
        await asyncio.wait_for(asyncio.to_thread(worker.close), 5)
        with pytest.raises(EngineError, match="closed"):
            await asked
    assert fake.left == {}


def test_a_closed_worker_cannot_be_held(worker: Worker) -> None:
    worker.close()
    with pytest.raises(EngineError, match="is closed"), worker.updating(None):
        raise AssertionError("it was held")


async def test_whoever_is_cancelled_as_the_engine_closes_is_not_left_waiting(worker: Worker) -> None:
    asked = asyncio.ensure_future(worker.ask([1] * 100_000, Sampling()))
    await asyncio.sleep(0.01)
    asked.cancel()
    worker.close()
    done, _ = await asyncio.wait([asked], timeout=5)
    assert done and asked.cancelled()


def test_whoever_asks_while_another_thread_closes_the_engine_is_told(worker: Worker) -> None:
    def keys() -> Iterator[int]:
        worker.close()
        yield 0

    worker._keys = keys()
    with pytest.raises(EngineError, match="is closed"):
        asyncio.run(asyncio.wait_for(worker.ask([1], Sampling()), 5))


def test_an_update_that_is_interrupted_before_it_begins_lets_the_engine_go_on(
    fake: Fake, worker: Worker
) -> None:
    class Interrupted(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Hold, "__init__", lambda hold: _set(hold, Interrupted()))
        with pytest.raises(KeyboardInterrupt), worker.updating(None):
            pass
    assert asyncio.run(asyncio.wait_for(worker.ask([1], Sampling()), 5)).ids == [1]


def _set(hold: _Hold, still: Future[None]) -> None:
    object.__setattr__(hold, "still", still)
    object.__setattr__(hold, "go_on", threading.Event())


def test_one_worker_serves_one_event_loop_after_the_other(worker: Worker) -> None:
    for _ in range(3):
        assert asyncio.run(worker.ask([1], Sampling())).ids == [1]


# -- transformers


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder: Path = tiny_llama(tmp_path_factory.mktemp("llama"))
    return transformers.LlamaForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def engine(llama: Any) -> Any:
    from agent_r1_env.engines.hf import TransformersEngine

    made = TransformersEngine(llama, tiny_tokenizer())
    yield made
    made.close()


def scored(model: Any, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
    """Log-probs of the ids by one plain forward pass."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0].float() / temperature
    table = logits.log_softmax(-1)
    return [float(table[len(prompt) + i - 1, token]) for i, token in enumerate(ids)]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
async def test_batched_logprobs_are_those_of_the_model(llama: Any, engine: Any, temperature: float) -> None:
    prompts = [list(b"abc " * (1 + i % 4)) + [i] for i in range(12)]
    sampling = Sampling(max_tokens=12, temperature=temperature)
    made = await asyncio.gather(*[engine.generate(prompt, sampling) for prompt in prompts])
    for prompt, generation in zip(prompts, made, strict=True):
        wanted = scored(llama, prompt, generation.ids, temperature or 1.0)
        assert generation.logprobs == pytest.approx(wanted, abs=1e-4)


async def test_logprobs_are_of_the_distribution_that_was_cut_down(llama: Any, engine: Any) -> None:
    only_one = await engine.generate([65, 66], Sampling(max_tokens=5, top_k=1))
    assert only_one.logprobs == pytest.approx([0.0] * 5, abs=1e-6)
    few = await engine.generate([65, 66], Sampling(max_tokens=5, top_p=0.3, seed=1))
    plain = scored(llama, [65, 66], few.ids)
    assert all(cut > whole for cut, whole in zip(few.logprobs, plain, strict=True))


async def test_padding_changes_no_reply(engine: Any) -> None:
    greedy = Sampling(max_tokens=10, temperature=0)
    alone = await engine.generate([65], greedy)
    beside, _ = await asyncio.gather(engine.generate([65], greedy), engine.generate([66] * 50, greedy))
    assert beside.ids == alone.ids


async def test_padding_moves_no_absolute_position() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from agent_r1_env.engines.hf import TransformersEngine

    config = transformers.GPT2Config(
        vocab_size=259,
        n_positions=64,
        n_embd=32,
        n_layer=1,
        n_head=2,
        initializer_range=0.5,
        eos_token_id=258,
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    engine = TransformersEngine(model, tiny_tokenizer())
    short, _ = await asyncio.gather(
        engine.generate([65], Sampling(max_tokens=8)), engine.generate([66] * 30, Sampling(max_tokens=8))
    )
    assert short.logprobs == pytest.approx(scored(model, [65], short.ids), abs=1e-4)
    engine.close()


async def test_a_seed_fixes_a_reply_whatever_runs_beside_it(engine: Any) -> None:
    sampling = Sampling(max_tokens=10, seed=3)
    alone = await engine.generate([65], sampling)
    beside, other = await asyncio.gather(
        engine.generate([65], sampling), engine.generate([65], Sampling(max_tokens=10, seed=4))
    )
    assert beside.ids == alone.ids != other.ids


async def test_stop_tokens_are_kept_and_stop_texts_end_a_reply(engine: Any) -> None:
    stops = tuple(range(65, 91))
    made = await engine.generate([65], Sampling(max_tokens=400, stop_token_ids=stops))
    assert made.finish_reason == "stop"
    assert made.ids[-1] in (*stops, engine.tokenizer.eos_token_id)
    assert not set(made.ids[:-1]) & set(stops)
    made = await engine.generate([65], Sampling(max_tokens=400, stop=("a", "e", "t")))
    assert made.finish_reason == "stop"
    assert engine.tokenizer.decode(made.ids)[-1] in "aet>", "the text, or the end of turn"


async def test_the_context_bounds_a_reply(llama: Any) -> None:
    from agent_r1_env.engines.hf import TransformersEngine

    engine = TransformersEngine(llama, tiny_tokenizer(), max_model_len=10)
    made = await engine.generate([65] * 7, Sampling(max_tokens=100, temperature=0, stop_token_ids=()))
    assert (len(made.ids), made.finish_reason) == (3, "length")
    with pytest.raises(PromptTooLong):
        await engine.generate([65] * 10, Sampling())
    engine.close()


async def test_sampling_leaves_the_model_and_the_random_state_as_they_were(llama: Any, engine: Any) -> None:
    import torch

    llama.train()
    state = torch.get_rng_state()
    await engine.generate([65], Sampling(max_tokens=3))
    assert llama.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in llama.parameters())


async def test_a_batch_under_way_goes_on_after_an_update(llama: Any) -> None:
    from agent_r1_env.engines.hf import TransformersEngine

    engine = TransformersEngine(llama, tiny_tokenizer())
    assert isinstance(engine, Updatable)
    with engine.updating(4):
        pass
    asked = asyncio.ensure_future(engine.generate([65], Sampling(max_tokens=200, seed=1)))
    await asyncio.sleep(0.1)
    with engine.updating(5):
        late = asyncio.ensure_future(engine.generate([65], Sampling(max_tokens=2)))
    versions = list((await asked).versions)
    assert versions == sorted(versions)
    assert set(versions) == {4, 5}
    assert list((await late).versions) == [5, 5]
    engine.close()
