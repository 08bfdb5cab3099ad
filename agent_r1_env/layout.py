"""How the messages of an environment are handed to a chat template so that nothing of them is lost.

An environment's assistant messages hold replies as the model wrote them. Some templates print such text as it
is, some want calls and reasoning as data, and some know nothing of tools at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent_r1_env.formats.format import Format

Turn = Mapping[str, Any]


REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Names under which templates look for the reasoning of a turn, the commonest first."""


class Mode(StrEnum):
    """Who writes tools, calls and results into the prompt."""

    VERBATIM = "verbatim"
    """The template writes tools and results, and prints replies as they are."""
    STRUCTURED = "structured"
    """The template writes all of it; it gets calls and reasoning as data."""
    FLATTENED = "flattened"
    """The wire format writes all of it; the template sees system, user and assistant turns alone."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to lay out a conversation for a template.

    Attributes:
        system: whether there is a system turn; else its text stands on top of the first user turn.
        silence: what stands for a reply without any text.
        as_text: structured: arguments are handed over as JSON text, not as an object.
        one_call: structured: a reply with several calls becomes a turn for each.
        reasoning_key: structured: where the reasoning of a turn goes; "" where the template takes none.
        joined: structured: text beside a call goes with the reasoning, because the template takes only one.
        apart: structured: text beside a call goes into a turn before it.
    """

    mode: Mode
    system: bool = True
    silence: str = ""
    as_text: bool = False
    one_call: bool = False
    reasoning_key: str = ""
    joined: bool = False
    apart: bool = False

    def lay_out(
        self,
        messages: Sequence[Turn],
        tools: Sequence[Mapping[str, Any]],
        format: Format,
        disarm: Callable[[str], str] = str,
    ) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]] | None]:
        """The turns and the tools to render.

        Args:
            disarm: breaks special tokens in what is rendered anew and not printed as it was sampled.
        """
        if self.mode is Mode.FLATTENED:
            turns: list[dict[str, Any]] = [dict(turn) for turn in format.flatten(messages, tools)]
        elif self.mode is Mode.STRUCTURED:
            turns = list(self._structured(format.structure(messages, tools), disarm))
        else:
            turns = [dict(message) for message in messages]
        if not self.system:
            turns = _without_system(turns)
        if self.silence:
            turns = [self._voiced(turn) for turn in turns]
        return turns, None if self.mode is Mode.FLATTENED or not tools else list(tools)

    def _voiced(self, turn: dict[str, Any]) -> dict[str, Any]:
        said = turn["role"] != "assistant" or turn.get("tool_calls") or turn["content"].strip()
        return turn if said else {**turn, "content": self.silence}

    def _structured(
        self, turns: Sequence[dict[str, Any]], disarm: Callable[[str], str]
    ) -> Iterator[dict[str, Any]]:
        place = 0
        while place < len(turns):
            turn, place = turns[place], place + 1
            if turn["role"] != "assistant":
                yield turn
                continue
            end = place
            while end < len(turns) and turns[end]["role"] == "tool":
                end += 1
            yield from self._round(turn, turns[place:end], disarm)
            place = end

    def _round(
        self, said: dict[str, Any], results: Sequence[dict[str, Any]], disarm: Callable[[str], str]
    ) -> Iterator[dict[str, Any]]:
        """One reply and its results; what failed to be a call has an answer, but no call to belong to."""
        pairs, left = _paired(said.get("tool_calls", ()), results)
        faults = "\n".join(str(result["content"]) for result in left)
        if pairs and faults:
            call, answers = pairs[-1]
            answers = answers or [{"role": "tool", "content": "", "tool_call_id": call["id"]}]
            content = f"{answers[-1]['content']}\n{faults}".strip()
            pairs[-1] = call, [*answers[:-1], {**answers[-1], "content": content}]
        words = self._own_words(said, disarm)
        if not pairs:
            yield words
            if faults:
                yield {"role": "user", "content": faults}
            return
        if self.apart and words["content"]:
            yield words
            words = _silent()
        for group in [[pair] for pair in pairs] if self.one_call else [pairs]:
            yield words | {"tool_calls": [self._call(call) for call, _ in group]}
            yield from (answer for _, answers in group for answer in answers)
            words = _silent()

    def _own_words(self, said: dict[str, Any], disarm: Callable[[str], str]) -> dict[str, Any]:
        """The reply without its calls."""
        thought = next((said[key] for key in REASONING_KEYS if said.get(key)), "")
        content, reasoning = disarm(said["content"].strip()), disarm(thought.strip())
        if self.joined and reasoning and content and "tool_calls" in said:
            content, reasoning = "", f"{reasoning}\n\n{content}"
        words = {"role": "assistant", "content": content}
        return words | ({self.reasoning_key: reasoning} if self.reasoning_key and reasoning else {})

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        if not self.as_text:
            return call
        function = call["function"]
        arguments = json.dumps(function["arguments"], ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}


def _silent() -> dict[str, Any]:
    return {"role": "assistant", "content": ""}


def _paired(
    calls: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]]
) -> tuple[list[tuple[dict[str, Any], list[dict[str, Any]]]], list[dict[str, Any]]]:
    """Each call with its result (none while it is not run), and the results that belong to no call."""
    left, pairs, seen = list(results), [], set()
    for place, call in enumerate(calls):
        own = next((result for result in left if result.get("tool_call_id") == call["id"]), None)
        answers = [] if own is None else [left.pop(left.index(own))]
        if call["id"] in seen:  # the model gave one id to two calls; nine digits suit every template
            call = {**call, "id": f"{place:09d}"}
            answers = [{**answer, "tool_call_id": call["id"]} for answer in answers]
        seen.add(call["id"])
        pairs.append((call, answers))
    return pairs, left


def _without_system(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with a leading system text moved to the top of the first user turn."""
    if not turns or turns[0]["role"] != "system":
        return list(turns)
    system, rest = turns[0]["content"], list(turns[1:])
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": system}, *rest]
