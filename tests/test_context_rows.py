"""Trajectories under context policies: what is trained on was sampled, in the prompts that were seen."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import context, testing
from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines.scripted import Said, ScriptedEngine
from agent_r1_env.episode import Episode
from agent_r1_env.messages import Message
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.testing import ByteTokenizer, answer, call
from agent_r1_env.trajectory import Row, drift, rows, sampled_ids, trained_ids

ENV = "ContextTest/Sum-v0"
STEPS = 6
DROPS_REASONING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1].lstrip() if m.role == 'assistant' else m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Takes results by their role, and drops the reasoning before the last word of the user.
FORGETS_AT_USER = (
    "{% set place = namespace(user=0, seen=0) %}"
    "{% for m in messages if m.role == 'user' %}{% set place.user = place.user + 1 %}{% endfor %}"
    '{% if tools %}<|im_start|>system\nCall <tool_call>{"name": ..., "arguments": ...}</tool_call>'
    "{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'user' %}{% set place.seen = place.seen + 1 %}{% endif %}"
    "{{ m.content.split('</think>')[-1] if place.seen < place.user else m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALTERNATES = (
    "{% for m in messages %}"
    "{% if m.role not in ('user', 'assistant') or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"chatml": None, "drops reasoning": DROPS_REASONING, "roles alternate": ALTERNATES}


class Watched(ScriptedEngine):
    """Says its script in each episode, whatever the prompt shows of it, and notes what it saw."""

    def __init__(self, script: Sequence[Said], template: str | None = None) -> None:
        super().__init__(self._next, ByteTokenizer(template) if template else ByteTokenizer())
        self._script = script
        self._said: Counter[str] = Counter()
        self.seen: dict[str, list[list[int]]] = {}

    def _next(self, prompt: str) -> Said:
        place = self._said[self._task(prompt)]
        self._said[self._task(prompt)] += 1
        return self._script[min(place, len(self._script) - 1)]

    def _task(self, prompt: str) -> str:
        found = re.search(r"What is (\d+) \+ 1\?", prompt)
        assert found is not None, f"the head is gone: {prompt}"
        return f"sum-{found[1]}"

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        task = self._task(self.tokenizer.decode(list(prompt_ids)))
        self.seen.setdefault(task, []).append(list(prompt_ids))
        return await super().generate(prompt_ids, sampling)


@pytest.fixture(autouse=True)
def sum_env() -> Iterator[None]:
    gym.register(ENV, entry_point="agent_r1_env.testing:sum_env")
    yield
    del gym.registry[ENV]


THINKING = [f"<think>step {n}, hm</think>{call('add', a=n, b=1)}" for n in range(STEPS - 1)] + [answer(1)]
PLAIN = [reply.rpartition("</think>")[2] for reply in THINKING]
# A hint, two calls at once, an unknown tool, and bytes that no tokenizer writes.
ODD: list[Said] = [
    "no call",
    call("add", a=1, b=1) + call("add", a=2, b=2),
    "late</think>" + call("ad", a=1),
    [*b"<think>\xff\xfe</think>", *call("add", a=1, b=1).encode(), 258],
    "<tool_call>{",
    answer(1),
]


def play(
    policy: Any, script: Sequence[Said], template: str | None = None, episodes: int = 1
) -> tuple[list[Episode], Watched]:
    engine = Watched(script, template)
    options = {"context": policy, "max_steps": STEPS, "system": "Be brief.", "tokenizer": ByteTokenizer()}
    with Rollout(ENV, options, engine=engine) as rollout:
        found = rollout.run([EpisodeRequest(task, 0) for task in range(episodes)])
    return found, engine


def checked(episode: Episode, prompts: Sequence[Sequence[int]]) -> list[Row]:
    """The rows of an episode, after checking every id in them."""
    assert (episode.error, len(episode.steps)) == (None, STEPS)
    made = rows(episode, [1.0] * STEPS, 0)
    assert trained_ids(made) == sampled_ids(episode)
    assert drift(sampled_ids(episode), trained_ids(made)) == 0
    steps = iter(zip(episode.steps, prompts, strict=True))
    for row in made:
        ids, place = row.prompt_ids + row.completion_ids, len(row.prompt_ids)
        mask = [0] * place + row.loss_mask
        while place < len(ids):
            place = mask.index(1, place)
            step, prompt = next(steps)
            assert ids[:place] == list(prompt), "the model saw another prompt than it is trained on"
            end = place + len(step.response_ids)
            assert ids[place:end] == list(step.response_ids) and all(mask[place:end])
            assert end == len(ids) or not mask[end]
            place = end
    assert next(steps, None) is None
    return made


def rows_needed(episode: Episode, prompts: Sequence[list[int]]) -> int:
    """One row more wherever a prompt does not go on from the one before and its reply."""
    held = [prompt + list(step.response_ids) for prompt, step in zip(prompts, episode.steps, strict=True)]
    return 1 + sum(after[: len(before)] != before for before, after in zip(held, prompts[1:], strict=False))


def counted(messages: list[Message]) -> str:
    return f"{len(messages)} messages"


POLICIES: dict[str, Any] = {
    "append": "append",
    "window": {"window": 2},
    "window with notice": {"window": {"turns": 2, "notice": True}},
    "token_budget": {"token_budget": 300},
    "strip_reasoning": "strip_reasoning",
    "keep_last": {"strip_reasoning": 1},
    "summarise": {"summarise": {"with": counted, "after": 3, "keep": 1}},
    "rewrite": {"rewrite": lambda messages: messages},
    "last_turn": "last_turn",
    "window, last_turn": [{"window": 2}, "last_turn"],
    "last_turn, window": ["last_turn", {"window": 2}],
    "strip_reasoning, summarise, last_turn": [
        "strip_reasoning",
        {"summarise": {"with": counted, "after": 3, "keep": 1}},
        "last_turn",
    ],
    "all": [
        {"strip_reasoning": 1},
        {"window": {"turns": 4, "notice": True}},
        {"summarise": {"with": counted, "after": 2, "keep": 1}},
        {"token_budget": 400},
        "last_turn",
    ],
}


@pytest.mark.parametrize("script", [PLAIN, THINKING, ODD], ids=["plain", "thinking", "odd"])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("name", POLICIES)
def test_every_sampled_id_is_trained_once_in_the_prompt_that_was_seen(
    name: str, template: str, script: Sequence[Said]
) -> None:
    episodes, engine = play(POLICIES[name], script, TEMPLATES[template], episodes=3)
    for episode in episodes:
        prompts = engine.seen[str(episode.task_id)]
        assert len(checked(episode, prompts)) == rows_needed(episode, prompts)


@pytest.mark.parametrize(
    ("name", "plain", "thinking"),
    [
        ("append", 1, 1),
        ("rewrite", 1, 1),
        ("last_turn", 1, 1),
        # The third prompt still shows all there is; each one after it lost a turn.
        ("window", 4, 4),
        ("window with notice", 4, 4),
        ("window, last_turn", 4, 4),
        ("last_turn, window", 4, 4),
        # Nothing to strip, nothing to split.
        ("strip_reasoning", 1, 6),
        ("keep_last", 1, 5),
        # Four turns are three too many, once.
        ("summarise", 2, 2),
        ("strip_reasoning, summarise, last_turn", 2, 6),
    ],
)
def test_a_context_that_only_grows_is_one_row_and_each_rewriting_begins_another(
    name: str, plain: int, thinking: int
) -> None:
    for script, expected in ((PLAIN, plain), (THINKING, thinking)):
        (episode,), engine = play(POLICIES[name], script)
        assert len(checked(episode, engine.seen["sum-0"])) == expected


def test_a_template_that_drops_old_reasoning_splits_rows_even_if_all_is_appended() -> None:
    (episode,), engine = play("append", THINKING, DROPS_REASONING)
    assert len(checked(episode, engine.seen["sum-0"])) == STEPS
    (episode,), engine = play("append", PLAIN, DROPS_REASONING)
    assert len(checked(episode, engine.seen["sum-0"])) == 1


def test_a_last_word_within_the_result_leaves_a_template_that_looks_for_the_user_in_one_row() -> None:
    (episode,), engine = play("last_turn", THINKING, FORGETS_AT_USER)
    assert len(checked(episode, engine.seen["sum-0"])) == 2
    (episode,), engine = play({"last_turn": {"in_result": True}}, THINKING, FORGETS_AT_USER)
    assert len(checked(episode, engine.seen["sum-0"])) == 1


def test_the_last_word_stands_in_the_last_prompt_alone() -> None:
    (episode,), engine = play({"last_turn": "Now!"}, PLAIN)
    prompts = [engine.tokenizer.decode(ids) for ids in engine.seen["sum-0"]]
    assert ["Now!" in prompt for prompt in prompts] == [False] * (STEPS - 1) + [True]
    assert len(checked(episode, engine.seen["sum-0"])) == 1


def test_a_token_budget_holds_in_the_messages_that_are_shown() -> None:
    tokenizer = ByteTokenizer()
    env = testing.sum_env(context={"token_budget": 150}, max_steps=STEPS, tokenizer=tokenizer)
    env.reset(seed=0)
    for reply in THINKING[:-1]:
        _, _, _, _, info = env.step(reply)
        assert sum(len(tokenizer.encode(message["content"])) for message in info["messages"]) <= 150
    assert "(4 earlier turns are left out)" in info["messages"][0]["content"]


def test_what_is_rewritten_is_never_trained_on() -> None:
    def forged(messages: list[Message]) -> list[Message]:
        return [Message("assistant", "I said nothing") if m.role == "assistant" else m for m in messages]

    (episode,), engine = play(forged, PLAIN)
    made = checked(episode, engine.seen["sum-0"])
    assert len(made) == STEPS
    assert b"I said nothing" not in bytes(token for token in trained_ids(made) if token < 256)
    assert all(b"I said nothing" in bytes(t for t in ids if t < 256) for ids in engine.seen["sum-0"][1:])


def test_episodes_that_wait_for_summaries_wait_together() -> None:
    together = threading.Barrier(3, timeout=20)

    def slow(messages: list[Message]) -> str:
        together.wait()
        return counted(messages)

    policy = context.summarise(slow, after=3, keep=1)
    episodes, engine = play(policy, PLAIN, episodes=3)
    for episode in episodes:
        assert len(checked(episode, engine.seen[str(episode.task_id)])) == 2


def test_each_episode_keeps_its_own_memory() -> None:
    def numbered(messages: list[Message], moment: context.Moment) -> list[Message]:
        moment.memory["views"] = moment.memory.get("views", 0) + 1
        return [*messages, Message("user", f"view {moment.memory['views']}")]

    episodes, engine = play(numbered, PLAIN, episodes=3)
    for episode in episodes:
        prompts = [engine.tokenizer.decode(ids) for ids in engine.seen[str(episode.task_id)]]
        assert [re.findall(r"view \d", prompt) for prompt in prompts] == [
            [f"view {n + 1}"] for n in range(STEPS)
        ]
        assert all(before != after for before, after in pairwise(prompts))


def test_what_a_policy_keeps_goes_back_with_the_state() -> None:
    env = testing.sum_env(context=[context.summarise(counted, after=2, keep=1), "last_turn"], max_steps=STEPS)
    env.reset(seed=0)
    for reply in PLAIN[:2]:
        env.step(reply)
    state = env.get_state()
    first = [env.step(reply)[4]["messages"] for reply in PLAIN[2:5]]
    env.set_state(state)
    assert [env.step(reply)[4]["messages"] for reply in PLAIN[2:5]] == first
    assert "Summary of earlier turns:\n" in first[-1][0]["content"]
