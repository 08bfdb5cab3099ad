"""The forms of an observation, all showing the same prompt."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agent_r1_env import UnknownName
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
