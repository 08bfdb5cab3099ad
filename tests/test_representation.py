"""One episode in three representations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env import formats, representation
from agent_r1_env.engines import Sampling
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.episode import Episode, EpisodeFile, Step, read_episodes
from agent_r1_env.errors import UnknownName
from agent_r1_env.representation import conversations, encoded, rows
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.template import ChatTemplate
from agent_r1_env.testing import ByteTokenizer, answer, call, say
from agent_r1_env.trajectory import sampled_ids, trained_ids

ENV = "Test/RepresentedSum-v0"
REPLIES = (call("add", a=2, b=3), call("add", a=5, b=15), answer(20))

gym.register(ENV, "agent_r1_env.testing:sum_env", disable_env_checker=True, order_enforce=False)


def play(
    representation: str = "steps", replies: tuple[str, ...] = REPLIES, tokenizer: Any = None, **options: Any
) -> Episode:
    """One episode of a scripted policy."""
    engine = ScriptedEngine(say(*replies), tokenizer or ByteTokenizer())
    with Rollout(ENV, options, engine=engine, representation=representation) as rollout:
        (episode,) = rollout.run([EpisodeRequest(task=0, seed=0)])
    return episode


def credit(episode: Episode) -> list[float]:
    return [1.0] * len(episode.steps)


def template() -> ChatTemplate:
    return ChatTemplate(ByteTokenizer(), formats.get("hermes"))


def test_steps_and_tokens_agree_where_the_encoder_would_make_the_sampled_ids() -> None:
    steps, tokens = play("steps"), play("tokens")
    assert len(steps.steps) == len(tokens.steps) == 3
    assert [list(s.prompt_ids) for s in steps.steps] == [list(s.prompt_ids) for s in tokens.steps]
    assert rows(steps, credit(steps), 0) == rows(tokens, credit(tokens), 0, "tokens")
    assert tokens.metrics["prompts_rewritten"] == 0.0
    assert "prompts_rewritten" not in steps.metrics


class Odd(ByteTokenizer):
    """Its sampler writes an "a" with an id that its encoder never uses."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return super().encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Any, *, skip_special_tokens: bool | None = None) -> str:
        plain = [ord("a") if token == 300 else token for token in token_ids]
        return super().decode(plain, skip_special_tokens=skip_special_tokens)


class OddEngine(ScriptedEngine):
    async def generate(self, prompt_ids: Any, sampling: Sampling) -> Any:
        found = await super().generate(prompt_ids, sampling)
        return replace(found, ids=[300 if token == ord("a") else token for token in found.ids])


def test_tokens_make_one_row_where_encoding_again_would_change_what_was_sampled() -> None:
    made = {}
    for name in ("steps", "tokens"):
        engine = OddEngine(say(*REPLIES), Odd())
        with Rollout(ENV, engine=engine, representation=name) as rollout:
            (episode,) = rollout.run([EpisodeRequest(task=0, seed=0)])
        made[name] = rows(episode, credit(episode), 0, name)
        assert trained_ids(made[name]) == sampled_ids(episode)
        assert 300 in sampled_ids(episode)
    assert {name: len(found) for name, found in made.items()} == {"steps": 3, "tokens": 1}


def test_a_rewritten_context_is_several_rows_in_both() -> None:
    for name in ("steps", "tokens"):
        episode = play(name, context={"window": {"turns": 1}}, max_steps=3)
        found = rows(episode, credit(episode), 0, name)
        assert len(found) == 2
        assert trained_ids(found) == sampled_ids(episode)
    assert episode.metrics["prompts_rewritten"] == 2.0, "with the one that would have come next"


def test_an_unknown_representation_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no representation named 'token'; did you mean 'tokens'"):
        play("token")
    with pytest.raises(UnknownName, match="did you mean 'messages'"):
        rows(play(), [1.0] * 3, 0, "message")


def test_the_messages_of_every_step_are_kept() -> None:
    episode = play()
    shown = list(conversations(episode))
    assert [len(messages) for messages in shown] == [1, 3, 5]
    assert [message["role"] for message in shown[-1]][-4:] == ["assistant", "tool", "assistant", "tool"]
    assert [step.kept for step in episode.steps] == [0, 1, 3], "each message is held once"
    assert [tool["function"]["name"] for tool in episode.tools] == ["add"]


def test_the_messages_of_a_rewritten_context_are_those_that_were_shown() -> None:
    episode = play(context={"window": {"turns": 1}}, max_steps=3)
    found = template()
    for step, messages in zip(episode.steps, conversations(episode), strict=True):
        assert found.encode("", {"messages": messages, "tools": episode.tools}) == list(step.prompt_ids)


def test_messages_survive_the_file(tmp_path: Any) -> None:
    episode = play()
    with EpisodeFile(tmp_path / "e.jsonl", ids=False) as file:
        file.append(episode)
    (again,) = read_episodes(tmp_path / "e.jsonl")
    assert list(conversations(again)) == list(conversations(episode))
    assert encoded(again, template()).steps[0].prompt_ids == episode.steps[0].prompt_ids


def test_messages_are_encoded_afterwards_and_their_log_probs_are_unknown() -> None:
    episode = play()
    blind = replace(
        episode,
        steps=[replace(step, prompt_ids=[], response_ids=[], logprobs=[]) for step in episode.steps],
    )
    (row,) = rows(blind, credit(blind), 0, "messages", template())
    (known,) = rows(episode, credit(episode), 0)
    assert (row.prompt_ids, row.completion_ids) == (known.prompt_ids, known.completion_ids)
    assert row.loss_mask == known.loss_mask
    assert all(math.isnan(x) for x, mask in zip(row.logprobs, row.loss_mask, strict=True) if mask)


def test_a_reply_that_was_cut_gets_no_end_of_turn() -> None:
    found = template()
    cut = Step([], [], [], reply="and the", finish_reason="length")
    assert representation.reply_ids(cut, found) == list(b"and the")
    assert representation.reply_ids(replace(cut, finish_reason="stop"), found) == [*b"and the", 258]


def test_messages_need_a_template_and_text() -> None:
    with pytest.raises(ValueError, match="a template has to encode it"):
        rows(play(), [1.0] * 3, 0, "messages")
    bare = Episode("Test/E-v0", None, None, 0, [Step([1], [2], [0.0])])
    with pytest.raises(ValueError, match="step 0 of an episode of Test/E-v0 has no text"):
        rows(bare, [1.0], 0, "messages", template())


def test_a_prompt_without_messages_is_the_text_of_the_environment() -> None:
    step = Step([], [], [], prompt="You are in a cave.", reply="north")
    blind = Episode("Test/E-v0", None, None, 0, [step])
    (row,) = rows(blind, [1.0], 0, "messages", template())
    assert row.prompt_ids == template().encode("You are in a cave.", {})
