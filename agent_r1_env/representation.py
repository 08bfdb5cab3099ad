"""One episode, three representations, and the rows of each behind one call.

===========  =========================================================  =====================================
name         how the ids of a prompt come about                         when
===========  =========================================================  =====================================
`steps`      the whole conversation is rendered and encoded each time   always right: what is trained on is
             and rows are merged where ids allow it                     what a server would show the model
`tokens`     by concatenation: prompt before, sampled ids, ids of what  contexts that only grow; n turns cost
             the environment added; where the conversation was          O(n) tokens to encode
             rewritten, as in `steps`
`messages`   text is all that is known, and prompts and replies are     data of a black box without ids;
             encoded afterwards                                         what drifts is counted
===========  =========================================================  =====================================

``steps`` and ``tokens`` differ while episodes are played, and their rows are made by the same exact merging.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_r1_env import trajectory
from agent_r1_env.concatenation import Growing
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import look_up
from agent_r1_env.trajectory import Row

REPRESENTATIONS = ("steps", "tokens", "messages")

Turn = Mapping[str, Any]


def check(representation: str) -> str:
    """The name itself.

    Raises:
        UnknownName: there is no such representation.
    """
    look_up("representation", representation, dict.fromkeys(REPRESENTATIONS))
    return representation


def rows(
    episode: Episode,
    advantage_per_step: Sequence[float],
    index: int,
    representation: str = "steps",
    template: Growing | None = None,
    *,
    merge: bool = True,
    loss_mask: bool = True,
) -> list[Row]:
    """The rows of an episode in one of the `REPRESENTATIONS`; see `trajectory.rows` for the rest.

    Args:
        template: encodes the text of the episode; only "messages" needs it.

    Raises:
        UnknownName: no such representation.
        ValueError: "messages" without a template or for an episode without text.
    """
    if check(representation) == "messages":
        if template is None:
            raise ValueError("the representation 'messages' is text: a template has to encode it")
        episode = encoded(episode, template)
    return trajectory.rows(episode, advantage_per_step, index, merge, loss_mask)


def conversations(episode: Episode) -> Iterator[list[Turn]]:
    """The messages that the policy saw at each step; an empty list where the environment told none."""
    shown: list[Turn] = []
    for step in episode.steps:
        shown = [*shown[: step.kept], *step.messages]
        yield list(shown)


def encoded(episode: Episode, template: Growing) -> Episode:
    """The episode with ids made from its text, whatever ids it had.

    A prompt is rendered from the messages of the step, or is the text of the environment where there are
    none. A reply that was not cut gets the token that ends a turn. The log-probs are NaN: nobody knows them.

    Raises:
        ValueError: a step has neither messages nor the text of its prompt.
    """
    steps = []
    for number, (step, messages) in enumerate(zip(episode.steps, conversations(episode), strict=True)):
        if not messages and step.prompt is None:
            raise ValueError(f"step {number} of an episode of {episode.env_id} has no text to encode")
        info = {"messages": messages, "tools": episode.tools} if messages else {}
        prompt = template.encode_text(template.text(step.prompt or "", info))
        reply = reply_ids(step, template)
        unknown = [math.nan] * len(reply)
        steps.append(replace(step, prompt_ids=prompt, response_ids=reply, logprobs=unknown))
    return replace(episode, steps=tuple(steps))


def reply_ids(step: Step, template: Growing) -> list[int]:
    """Ids of a reply's text, as an encoder makes them and not as they were sampled."""
    ids = [int(token) for token in template.tokenizer.encode(step.reply, add_special_tokens=False)]
    ends = template.stop_token_ids
    ended = bool(ids) and (ids[-1] in ends or step.reply.endswith(tuple(template.stop or ("\0",))))
    return ids if step.finish_reason == "length" or ended or not ends else [*ids, ends[-1]]
