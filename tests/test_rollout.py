"""Rollouts: many episodes at once, none lost, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import formats
from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.episode import Episode, EpisodeFile, read_episodes
from agent_r1_env.errors import EngineError, FormatWarning
from agent_r1_env.foreign import ForeignCalls
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.testing import ByteTokenizer, answer, call, say, scripted, sum_env
from agent_r1_env.tool import tool
from agent_r1_env.trajectory import rows, sampled_ids, trained_ids

SUM, ECHO = "RolloutTest/Sum-v0", "RolloutTest/Echo-v0"


class Watch:
    """What the environments of a test did."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.closed: list[Any] = []
        self.resets: list[Any] = []
        self.threads: dict[int, set[int]] = {}
        self.running = self.most = 0
        self.broken: set[str] = set()
        self.release = threading.Event()


WATCH = Watch()


@tool
async def slow_add(a: int, b: int) -> int:
    """Add two numbers, not before 128 calls wait for each other."""
    WATCH.running += 1
    WATCH.most = max(WATCH.most, WATCH.running)
    for _ in range(200):
        if WATCH.most >= 128:
            break
        await asyncio.sleep(0.05)
    return a + b


class Echo(gym.Env[str, str]):
    """A plain text environment with nothing but ``reset`` and ``step``: it ends after three steps."""

    observation_space = UnicodeText()
    action_space = UnicodeText()

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._note()
        WATCH.made.append(self)

    def _note(self) -> None:
        WATCH.threads.setdefault(id(self), set()).add(threading.get_ident())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._note()
        WATCH.resets.append((seed, options))
        self.task = str((options or {}).get("task"))
        if self.task == "bad reset":
            raise KeyError("no such thing")
        self.steps = 0
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._note()
        self.steps += 1
        if self.task == "bad step" and self.steps == 2:
            raise OSError("the disk is gone")
        if self.task == "exit":
            raise SystemExit(3)
        if self.task == "slow":
            time.sleep(0.3)
        if self.task == "stuck":
            WATCH.release.wait(30)
        return f"you said {action}", 1.0, self.steps >= 3, False, {}

    def close(self) -> None:
        self._note()
        WATCH.closed.append(self)


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    WATCH.__init__()  # type: ignore[misc]
    gym.register(SUM, entry_point="agent_r1_env.testing:sum_env")
    gym.register(ECHO, entry_point=Echo)
    yield
    for name in (SUM, ECHO):
        del gym.registry[name]
    WATCH.release.set()
    for _ in range(100):
        if not env_threads():
            break
        time.sleep(0.01)
    assert env_threads() == []


def env_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("env-")]


def requests(count: int, task: Any = 0) -> list[EpisodeRequest]:
    return [EpisodeRequest(task=task, seed=i, group=i // 4) for i in range(count)]


def play(env_id: str, asked: list[EpisodeRequest], engine: Any, **options: Any) -> list[Episode]:
    with Rollout(env_id, engine=engine, **options) as rollout:
        return rollout.run(asked)


# -- what an episode holds


def test_episodes_come_in_the_order_of_the_requests() -> None:
    asked = [EpisodeRequest(task=f"sum-{i % 4}", seed=i, group=i % 4) for i in range(10)]
    found = play(SUM, asked, scripted(call("add", a=1, b=1), answer(2)), concurrency=3)
    assert [(e.task_id, e.seed, e.group) for e in found] == [(r.task, r.seed, r.group) for r in asked]
    assert [e.reward for e in found] == [float(r.task == "sum-1") for r in asked]
    assert {(e.stop_reason, e.answer, e.metrics["tool_calls"]) for e in found} == {("answer", "2", 1.0)}


def test_a_step_keeps_everything_that_is_known_of_it() -> None:
    (episode,) = play(SUM, requests(1), scripted(call("add", a=0, b=1), answer(1)))
    first, last = episode.steps
    assert first.prompt_ids == ByteTokenizer().encode(str(first.prompt))
    assert first.reply == call("add", a=0, b=1)
    assert list(first.response_ids) == [*ByteTokenizer().encode(first.reply), 258]
    assert [(c["name"], c["ok"]) for c in first.calls] == [("add", True)]
    assert (first.reward, last.reward, last.reward_terms) == (0.0, 1.0, {"exact_match": 1.0})
    assert 0 <= first.generate_seconds < 1
    assert episode.temperature == 1.0
    assert episode.env_id == SUM


def test_sampled_ids_are_kept_even_where_no_tokenizer_would_write_them() -> None:
    odd = [255, 104, 195, 258]  # bytes that are no UTF-8, so decoding and encoding gives others
    (episode,) = play(SUM, requests(1), ScriptedEngine(lambda prompt: odd, ByteTokenizer()))
    assert all(list(step.response_ids) == odd for step in episode.steps)
    made = rows(episode, [1.0] * len(episode.steps), 0)
    assert trained_ids(made) == sampled_ids(episode) == odd * len(episode.steps)
    assert len(made) == len(episode.steps), "what reads differently is not merged"


def test_an_episode_whose_context_only_grew_is_one_row() -> None:
    (episode,) = play(SUM, requests(1), scripted(call("add", a=0, b=1), call("nothing"), answer(1)))
    (row,) = rows(episode, [1.0] * 3, 0)
    assert row.prompt_ids + row.completion_ids == [
        *episode.steps[-1].prompt_ids,
        *episode.steps[-1].response_ids,
    ]


def test_a_reply_cut_by_length_is_not_an_answer() -> None:
    (episode,) = play(SUM, requests(1), scripted(answer(1)), sampling=Sampling(max_tokens=17))
    assert (episode.truncated, episode.terminated, episode.stop_reason) == (True, False, "length")
    assert episode.answer is None
    assert episode.steps[0].finish_reason == "length"


def test_an_empty_reply_is_legal() -> None:
    (episode,) = play(SUM, requests(1), ScriptedEngine(lambda prompt: [], ByteTokenizer()))
    assert episode.stop_reason == "max_steps"
    assert rows(episode, [1.0] * len(episode.steps), 0) == []


@pytest.mark.parametrize(("steps", "more"), [(0, -1), (1, 90)])
def test_a_prompt_that_is_too_long_ends_the_episode_and_loses_nothing(steps: int, more: int) -> None:
    gym.register("RolloutTest/Paid-v0", entry_point=paid_env)
    limit = len(ByteTokenizer().encode(paid_env().reset(options={"task": 0})[0])) + more
    for options in (
        {"max_prompt_tokens": limit},
        {"engine": scripted(call("add", a=1, b=1), max_model_len=limit)},
    ):
        engine = options.pop("engine", scripted(call("add", a=1, b=1)))
        (episode,) = play("RolloutTest/Paid-v0", requests(1), engine, **options)
        assert (episode.truncated, episode.stop_reason) == (True, "prompt_overflow")
        assert len(episode.steps) == steps
        assert episode.reward == 0.25, "the outcome is scored all the same"
        assert episode.metrics["steps"] == steps
        assert len(rows(episode, [1.0] * steps, 0)) == steps
    del gym.registry["RolloutTest/Paid-v0"]


def test_a_truncated_episode_keeps_the_prompt_that_would_have_come_next() -> None:
    (cut,) = play(SUM, requests(1), scripted(call("add", a=1, b=1)))
    last = cut.steps[-1]
    held = [*last.prompt_ids, *last.response_ids]
    assert (cut.stop_reason, list(cut.next_prompt_ids[: len(held)])) == ("max_steps", held)
    assert ByteTokenizer().decode(cut.next_prompt_ids).endswith("<|im_start|>assistant\n")
    (crowded,) = play(SUM, requests(1), scripted(call("add", a=1, b=1)), max_prompt_tokens=10)
    assert (crowded.steps, list(crowded.next_prompt_ids)) == ((), list(cut.steps[0].prompt_ids))
    (answered,) = play(SUM, requests(1), scripted(answer(1)))
    assert answered.next_prompt_ids == ()


def paid_env() -> gym.Env[str, str]:
    return sum_env(rewards={"consolation": 1.0}, terms={"consolation": lambda outcome: 0.25})


def test_a_plain_environment_is_cut_off_as_well() -> None:
    (episode,) = play(ECHO, requests(1), scripted("x" * 40), max_prompt_tokens=60)
    assert (episode.truncated, episode.stop_reason, episode.reward) == (True, "prompt_overflow", 1.0)


# -- other environments


def test_any_text_environment_of_gymnasium_can_be_rolled_out() -> None:
    found = play(ECHO, requests(5, task=None), scripted("hello"), env_kwargs={"colour": "red"})
    assert [(e.reward, e.terminated, e.stop_reason, e.task_id) for e in found] == [
        (3.0, True, "terminated", None)
    ] * 5
    assert found[0].steps[1].prompt == "you said hello"
    assert WATCH.made[0].options == {"colour": "red"}
    assert sorted(WATCH.resets) == [(i, {}) for i in range(5)]


def test_an_environment_lives_on_one_thread_from_beginning_to_end() -> None:
    play(ECHO, requests(8), scripted("hello"), concurrency=4)
    assert 1 <= len(WATCH.made) <= 4
    assert {len(threads) for threads in WATCH.threads.values()} == {1}
    assert set(WATCH.closed) == set(WATCH.made)


def test_a_slow_environment_holds_up_nobody() -> None:
    asked = [EpisodeRequest("slow", 0), *requests(8, task="fast")]
    order: list[int | None] = []
    play(ECHO, asked, scripted("x"), on_episode=lambda episode: order.append(episode.task_id == "slow"))
    assert order == [False] * 8 + [True]


class Awaited(Echo):
    """Can be awaited; its plain ``step`` must not be used then."""

    async def step_async(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(0)
        return super().step(action)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        raise AssertionError("stepped on a thread")


def test_an_environment_that_can_be_awaited_is() -> None:
    gym.register("RolloutTest/Awaited-v0", entry_point=Awaited)
    (episode,) = play("RolloutTest/Awaited-v0", requests(1), scripted("x"))
    assert (episode.error, episode.reward) == (None, 3.0)
    del gym.registry["RolloutTest/Awaited-v0"]


def test_an_environment_is_awaited_through_wrappers_without_a_step_of_their_own() -> None:
    gym.register("RolloutTest/Wrapped-v0", entry_point=lambda: gym.Wrapper(Awaited()))
    (episode,) = play("RolloutTest/Wrapped-v0", requests(1), scripted("x"))
    assert (episode.error, episode.reward) == (None, 3.0)
    del gym.registry["RolloutTest/Wrapped-v0"]


def test_a_wrapper_that_must_see_each_step_is_not_passed_by() -> None:
    gym.register("RolloutTest/Limited-v0", entry_point="agent_r1_env.testing:sum_env", max_episode_steps=2)
    (episode,) = play("RolloutTest/Limited-v0", requests(1), scripted("no answer"))
    assert (len(episode.steps), episode.truncated, episode.stop_reason) == (2, True, "truncated")
    del gym.registry["RolloutTest/Limited-v0"]


# -- concurrency


def test_tools_of_all_episodes_run_at_the_same_time() -> None:
    gym.register("RolloutTest/Slow-v0", entry_point=lambda: sum_env([slow_add], count=1))
    two = call("slow_add", a=0, b=1) + call("slow_add", a=1, b=1)
    found = play("RolloutTest/Slow-v0", requests(64), scripted(two, answer(1)))
    assert [e.metrics["tool_calls"] for e in found] == [2] * 64
    assert WATCH.most == 128, "one after the other, none would ever meet another"
    del gym.registry["RolloutTest/Slow-v0"]


def test_no_more_than_the_asked_episodes_run_at_once() -> None:
    running = most = 0

    async def policy(prompt: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return answer(1)

    play(SUM, requests(20), ScriptedEngine(policy, ByteTokenizer()), concurrency=5)
    assert most == 5
    with pytest.raises(ValueError, match="concurrency must be at least 1"):
        Rollout(SUM, engine=scripted("x"), concurrency=0)


def test_an_episode_does_not_wait_for_the_others_to_finish_a_turn() -> None:
    turns: list[str] = []

    async def policy(prompt: str) -> str:
        slow = "What is 3 + 1?" in prompt
        await asyncio.sleep(0.2 if slow else 0)
        turns.append("slow" if slow else "fast")
        return call("add", a=1, b=1) if prompt.count("<|im_start|>assistant") < 3 else answer(1)

    asked = [EpisodeRequest(3, 0), EpisodeRequest(0, 0)]
    play(SUM, asked, ScriptedEngine(policy, ByteTokenizer()))
    assert turns[:3] == ["fast"] * 3


def test_environments_are_reused_between_runs_until_they_are_closed() -> None:
    with Rollout(ECHO, engine=scripted("x"), concurrency=3) as rollout:
        for _ in range(3):
            rollout.run(requests(6))
        assert 1 <= len(WATCH.made) <= 3
        assert WATCH.closed == []
    assert len(WATCH.closed) == len(WATCH.made)
    rollout.close()
    assert len(WATCH.closed) == len(WATCH.made)


def test_each_episode_is_reported_when_it_ends(tmp_path: Path) -> None:
    with EpisodeFile(tmp_path / "e.jsonl") as file:
        found = play(SUM, requests(5), scripted(answer(1)), on_episode=file.append)
    assert sorted(e.seed or 0 for e in read_episodes(tmp_path / "e.jsonl")) == [e.seed for e in found]


def test_no_requests_are_no_work() -> None:
    assert play(SUM, [], scripted("x")) == []


def test_the_version_of_the_policy_is_written_down() -> None:
    with Rollout(SUM, engine=scripted(answer(1))) as rollout:
        (episode,) = rollout.run(requests(1), policy_version=12)
    assert episode.policy_version == 12


# -- sampling


class Recording(ScriptedEngine):
    """Remembers how it was asked to sample."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: "x", ByteTokenizer())
        self.asked: list[Sampling] = []

    async def generate(self, prompt_ids: Any, sampling: Sampling) -> Generation:
        self.asked.append(sampling)
        return await super().generate(prompt_ids, sampling)


def seeds(sampling: Sampling | None, version: int | None = None) -> list[int | None]:
    engine = Recording()
    with Rollout(SUM, engine=engine, sampling=sampling) as rollout:
        rollout.run(requests(4), policy_version=version)
    return [asked.seed for asked in engine.asked]


def test_every_reply_is_drawn_from_a_seed_of_its_own() -> None:
    found = seeds(Sampling(seed=1))
    assert len(set(found)) == len(found) == 4 * 8
    assert sorted(map(str, found)) == sorted(map(str, seeds(Sampling(seed=1))))
    assert not set(found) & set(seeds(Sampling(seed=2)))
    assert not set(found) & set(seeds(Sampling(seed=1), version=1))
    assert set(seeds(None)) == {None}


def test_stop_tokens_come_from_the_template() -> None:
    engine = Recording()
    play(SUM, requests(1), engine, sampling=Sampling(stop_token_ids=(5,), stop=("x",)))
    assert engine.asked[0].stop_token_ids == (5, 256, 258)
    assert engine.asked[0].stop == ("x",)


# -- failures


@pytest.mark.parametrize(
    ("task", "error", "steps"),
    [
        pytest.param("bad reset", "KeyError: 'no such thing'", 0, id="reset"),
        pytest.param("bad step", "OSError: the disk is gone", 1, id="step"),
        pytest.param("exit", "SystemExit: 3", 0, id="exit"),
    ],
)
def test_a_broken_environment_is_an_episode_and_harms_no_other(
    caplog: pytest.LogCaptureFixture, task: str, error: str, steps: int
) -> None:
    asked = [*requests(3), EpisodeRequest(task, 9, group=5), *requests(3)]
    with caplog.at_level(logging.WARNING, logger="agent_r1_env.play"):
        found = play(ECHO, asked, scripted("x"))
    assert [e.failed for e in found] == [False] * 3 + [True] + [False] * 3
    broken = found[3]
    assert (broken.stop_reason, broken.truncated, broken.error) == ("error", True, error)
    assert (len(broken.steps), broken.seed, broken.group) == (steps, 9, 5)
    assert "ended in an error" in caplog.text


def test_a_broken_environment_is_not_used_again() -> None:
    with Rollout(ECHO, engine=scripted("x"), concurrency=1) as rollout:
        rollout.run([EpisodeRequest("bad step", 0), EpisodeRequest(0, 1)])
    assert len(WATCH.made) == 2
    assert len(set(WATCH.closed)) == 2


def test_an_environment_that_cannot_be_made_raises() -> None:
    with pytest.raises(gym.error.NameNotFound):
        play("RolloutTest/Nothing-v0", requests(2), scripted("x"))


def test_an_engine_that_fails_ends_the_rollout_and_closes_everything() -> None:
    asked = 0

    async def policy(prompt: str) -> str:
        nonlocal asked
        asked += 1
        if asked == 4:
            raise EngineError("out of memory")
        await asyncio.sleep(60)
        return "x"

    rollout = Rollout(ECHO, engine=ScriptedEngine(policy, ByteTokenizer()))
    began = time.monotonic()
    with pytest.raises(EngineError, match="out of memory"):
        rollout.run(requests(4))
    assert time.monotonic() - began < 30, "the others are not waited for"
    assert set(WATCH.closed) == set(WATCH.made)


def test_a_callback_that_fails_is_not_swallowed() -> None:
    def full(episode: Episode) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        play(SUM, requests(3), scripted(answer(1)), on_episode=full)


async def test_cancelling_closes_everything_and_leaves_no_task() -> None:
    async def policy(prompt: str) -> str:
        await asyncio.sleep(60)
        return "x"

    rollout = Rollout(ECHO, engine=ScriptedEngine(policy, ByteTokenizer()))
    running = asyncio.ensure_future(rollout.run_async(requests(8)))
    while len(WATCH.resets) < 8:
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(WATCH.closed) == len(WATCH.made) == 8


async def test_cancelling_does_not_wait_for_a_step_that_never_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_r1_env.hosted.GRACE", 0.05)
    rollout = Rollout(ECHO, engine=scripted("x"))
    running = asyncio.ensure_future(rollout.run_async([EpisodeRequest("stuck", 0)]))
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, timeout=5)
    assert "did not close" in caplog.text


# -- event loops


async def test_a_rollout_runs_where_an_event_loop_runs_already() -> None:
    found = play(SUM, requests(3), scripted(answer(1)))
    assert [e.stop_reason for e in found] == ["answer"] * 3


async def test_errors_pass_from_the_other_loop() -> None:
    with pytest.raises(gym.error.NameNotFound):
        play("RolloutTest/Nothing-v0", requests(1), scripted("x"))


INTERRUPTED = """
import asyncio, sys
import gymnasium as gym
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.testing import ByteTokenizer

async def policy(prompt):
    print("asked", flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

gym.register("T/Sum-v0", entry_point="agent_r1_env.testing:sum_env")
rollout = Rollout("T/Sum-v0", engine=ScriptedEngine(policy, ByteTokenizer()))

def plain():
    rollout.run([EpisodeRequest(0, 0)])

async def inside():
    plain()

try:
    # Like a notebook's kernel, which doesn't catch the signal as asyncio.run does.
    plain() if sys.argv[1] == "plain" else asyncio.new_event_loop().run_until_complete(inside())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("where", ["plain", "notebook"])
def test_control_c_ends_a_rollout(where: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        os.kill(process.pid, signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert out == "cancelled\ninterrupted\n", err
    assert process.returncode == 0


def test_nothing_holds_on_to_a_closed_rollout() -> None:
    play(ECHO, requests(2), scripted("x"))
    WATCH.made.clear()
    WATCH.closed.clear()
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is Echo]


# -- wire formats


MISTRAL = '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 1}, "id": "abcdefghi"}]'
MISTRAL_TURNS = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% for c in m.tool_calls or [] %}{% set f = c.function %}"
    "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def speaking_mistral(*replies: str) -> ScriptedEngine:
    """An engine whose tokenizer drops Mistral's marks unless it is told not to."""
    tokenizer = ByteTokenizer(MISTRAL_TURNS, ["[TOOL_CALLS]", "[ARGS]"], drops_special=True)
    return ScriptedEngine(say(*replies), tokenizer)


def test_calls_that_are_written_in_special_tokens_are_read() -> None:
    engine = speaking_mistral(MISTRAL, answer(1))
    (episode,) = play(SUM, requests(1), engine, env_kwargs={"format": "mistral"})
    assert engine.tokenizer.decode(episode.steps[0].response_ids).startswith(" [{"), "dropped by default"
    assert [call["name"] for call in episode.steps[0].calls] == ["add"]
    assert episode.stop_reason == "answer"


def test_the_format_is_found_out_from_the_tokenizer() -> None:
    with Rollout(SUM, {"format": "auto"}, engine=speaking_mistral(MISTRAL, answer(1))) as rollout:
        (episode,) = rollout.run(requests(1))
    assert rollout.env_kwargs == {"format": "mistral"}
    assert [call["ok"] for call in episode.steps[0].calls] == [True]


def test_replies_in_another_format_are_warned_about_once() -> None:
    with Rollout(SUM, engine=scripted(MISTRAL)) as rollout:
        with pytest.warns(FormatWarning) as caught:
            rollout.run(requests(8))
        assert len(caught) == 1
        text = str(caught[0].message)
        assert "0 calls parsed by 'hermes', " in text
        assert re.search(r"\d+ of \d+ replies hold `\[TOOL_CALLS\]`; the model may speak 'mistral'", text)
        assert "--set format=mistral" in text
        rollout.run(requests(8))


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param((call("add", a=1, b=1), answer(1)), id="own-calls"),
        pytest.param(("I see.",), id="prose"),
        pytest.param((MISTRAL, "I see.", "I see."), id="a-minority"),
        pytest.param((f"{MISTRAL}{call('add', a=1, b=1)}",), id="beside-own-calls"),
        pytest.param(("<tool_call>{oops</tool_call>",), id="own-mistakes"),
    ],
)
def test_nothing_is_warned_about_where_another_format_is_not_the_rule(replies: tuple[str, ...]) -> None:
    play(SUM, requests(8), scripted(*replies))


QWEN3_CODER = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("ours", "reply", "theirs"),
    [
        pytest.param("qwen3_coder", call("add", a=1, b=1), "hermes", id="one-owner"),
        pytest.param("hermes", '<function=add>{"a": 1, "b": 1}</function>', "functionary", id="two-owners"),
        pytest.param("hermes", QWEN3_CODER, "qwen3_coder", id="two-owners-other"),
        pytest.param("functionary", QWEN3_CODER, "qwen3_coder", id="our-own-mark"),
    ],
)
def test_the_formats_that_share_a_mark_are_told_apart_by_reading(ours: str, reply: str, theirs: str) -> None:
    with pytest.warns(FormatWarning, match=f"speak '{theirs}': give"):
        play(SUM, requests(4), scripted(reply), env_kwargs={"format": ours})


def test_a_mark_that_both_formats_have_says_nothing() -> None:
    watch = ForeignCalls(formats.get("functionary"))
    (episode,) = play(SUM, requests(1), scripted("prose"))
    step = replace(episode.steps[0], reply="<function=add>{oops</function>")
    watch.add(replace(episode, steps=(step,) * 8))
    assert watch.message() is None
