"""The forms of an observation, all showing the same prompt."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agent_r1_env import UnknownName, formats, prompt
from agent_r1_env.messages import Message
from agent_r1_env.testing import ByteTokenizer, answer, call, sum_env


def test_messages_are_those_of_the_info():
    env = sum_env(observation="messages")
    observation, info = env.reset(seed=0)
    assert list(observation) == info["messages"]
    observation, *_, info = env.step(call("add", a=1, b=2))
    assert list(observation) == info["messages"]
    assert [message["role"] for message in observation] == ["user", "assistant", "tool"]
    assert env.observation_space.contains(observation)


def test_tokens_are_the_prompt_by_the_tokenizers_template():
    tokenizer = ByteTokenizer()
    text, ids = sum_env(system="Add."), sum_env(system="Add.", observation="tokens", tokenizer=tokenizer)
    for observation, wanted in (
        (ids.reset(seed=0)[0], text.reset(seed=0)[0]),
        (ids.step(call("add", a=1, b=2))[0], text.step(call("add", a=1, b=2))[0]),
        (ids.step(answer(1))[0], text.step(answer(1))[0]),
    ):
        assert observation.dtype == np.int64 and ids.observation_space.contains(observation)
        assert tokenizer.decode(observation.tolist()) == wanted


def test_tokens_need_a_tokenizer():
    with pytest.raises(ValueError, match="need a tokenizer"):
        sum_env(observation="tokens")


def test_another_form_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'messages'"):
        sum_env(observation="message")


@pytest.mark.parametrize("form", ["text", "messages", "tokens"])
def test_gymnasium_accepts_every_form(form):
    env = sum_env(observation=form, tokenizer=ByteTokenizer())
    env.spec = gym.spec("AgentR1/HotpotQA-v0")
    check_env(env, skip_render_check=True)


BY_JINJA = "{# not ChatML to the letter, so Jinja writes it #}"
TURNS = [
    [],
    [
        {"role": "system", "content": "Be brief.\r\n"},
        {"role": "user", "content": "\ud800 <b>&amp; {{ x }}\u2028"},
    ],
    [{"role": "tool", "content": "3", "name": "add", "tool_call_id": "1"}],
    [{"role": "assistant", "content": None}, {"role": "user"}],
    [{"role": "user", "content": ["a", 1]}],
    [{"content": "nobody"}],
    [Message("user", "an object")],
]


@pytest.mark.parametrize("open_", [True, False])
@pytest.mark.parametrize("turns", TURNS)
def test_chatml_without_jinja_is_chatml(turns, open_):
    quick, jinja = prompt.renderer(formats.CHATML), prompt.renderer(formats.CHATML + BY_JINJA)
    assert quick(turns, open_, tools=None) == jinja(turns, open_, tools=None)


GO_ON = Message("user", "Go on.")
CONTEXTS = [
    "append",
    {"window": {"turns": 2, "notice": True}},
    ["strip_reasoning", "last_turn"],
    lambda messages: [dataclasses.replace(each) for each in messages],
    lambda messages: [Message("assistant", "So far."), *messages[1:]],
    lambda messages: [*messages[:2], GO_ON, *messages[2:]] if len(messages) > 4 else messages,
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("format", formats.names())
def test_a_prompt_is_the_template_over_all_that_is_shown(format, context):
    render = prompt.renderer(formats.CHATML + BY_JINJA)
    env = sum_env(format=format, context=context, max_steps=9, system="Add.")
    twin = None
    one, two = (env.format.render_call("add", {"a": 1, "b": number}) for number in (2, 3))
    for episode in range(2):
        observation, info = env.reset(seed=episode)
        for reply in ("<think>hm</think>", one, two, "prose", one, "", "prose", two, one):
            assert observation == render(env.format.flatten(info["messages"], info["tools"]), env._running)
            if twin is not None:  # its own conversation, from the same beginning on
                seen, _, _, _, said = twin.step(two)
                assert seen == render(env.format.flatten(said["messages"], said["tools"]), twin._running)
            twin = env.clone()
            observation, _, _, _, info = env.step(reply)
        assert observation == render(env.format.flatten(info["messages"], info["tools"]), False)
        twin = None


def test_a_step_writes_no_more_than_what_is_new():
    written = []

    class Counting(type(formats.get("hermes"))):
        def render_results(self, results):
            written.append(len(results))
            return super().render_results(results)

        def render_tools(self, tools):
            written.append("tools")
            return super().render_tools(tools)

    env = sum_env(format=Counting(), max_steps=100)
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(50):
            env.step(call("add", a=1, b=2))
    assert written == ["tools", *[1] * 50] * 2


def test_a_format_that_flattens_in_its_own_way_is_asked_each_time():
    class Numbered(type(formats.get("hermes"))):
        def flatten(self, messages, tools):
            return [{"role": "user", "content": f"{len(messages)} messages"}]

    env = sum_env(format=Numbered())
    env.reset(seed=0)
    assert "3 messages" in env.step(call("add", a=1, b=2))[0]
