"""``Format``: what every wire format can do, and what formats share."""

from __future__ import annotations

import json
import marshal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.reading import ParsedReply
from agent_r1_env.messages import ToolCall

Turn = Mapping[str, Any]
ToolSchema = Mapping[str, Any]


class Format(ABC):
    """A wire format: stateless, so that one instance serves every environment. Nothing raises for model text.

    Attributes:
        name: what it is registered as.
        models: the families that write it, for people.
        stop: texts that end a reply, kept in it; for formats whose replies end before the model's turn does.
        end_of_turn: special tokens that end a reply; left out of what ``parse`` reads.
        reasoning: the tags around reasoning, for people; () if the family writes none.
        markers: what a reply with a call in this format holds, and ordinary text does not.
        versions: values of the option ``version``, for families whose form changed; all are read, one is
            written. ``version`` then says which.
        answer_form: how a final answer is written, in a format that has a form of its own for it.
    """

    name: str
    models: str = ""
    stop: tuple[str, ...] = ()
    end_of_turn: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ("<think>", "</think>")
    markers: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    version: str = ""
    answer_form: str = ""

    @abstractmethod
    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply.

        Args:
            tools: schemas as in ``Toolbox.schemas``; where arguments are bare text, they are typed by it.
            repair: mend mild mistakes that leave no doubt; each is named in ``ToolCall.repairs``.
        """

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The calls of one reply as a model of the family writes them."""

    @abstractmethod
    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools and how to call them, for a system prompt whose template does not say it."""

    @abstractmethod
    def render_results(self, results: Sequence[Turn]) -> str:
        """The results of one reply as the text of a user turn.

        Args:
            results: messages of the role "tool", in call order; their content is already neutralised.
        """

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """One call as a model of the family writes it."""
        return self.render_calls([ToolCall(name, dict(arguments), "call_0")])

    def flatten(self, messages: Sequence[Turn], tools: Sequence[ToolSchema]) -> list[dict[str, str]]:
        """The conversation in system, user and assistant turns alone, for templates that know no tools.

        A user's message right behind results or behind another one joins it, since many templates refuse two
        turns of one role in a row.
        """
        turns: list[dict[str, str]] = []
        results: list[Turn] = []
        if tools and (not messages or messages[0]["role"] != "system"):
            turns.append({"role": "system", "content": self.render_tools(tools)})
        for index, message in enumerate(messages):
            if message["role"] == "tool":
                results.append(message)
                if index + 1 < len(messages) and messages[index + 1]["role"] == "tool":
                    continue
                turns.append({"role": "user", "content": self.render_results(results)})
                results = []
                continue
            content = message["content"]
            if message["role"] == "system" and index == 0 and tools:
                content = f"{content}\n\n{self.render_tools(tools)}"
            if message["role"] == "user" and turns and turns[-1]["role"] == "user":
                turns[-1]["content"] += f"\n\n{content}"
                continue
            turns.append({"role": message["role"], "content": content})
        return turns

    def structure(self, messages: Sequence[Turn], tools: Sequence[ToolSchema] = ()) -> list[dict[str, Any]]:
        """The conversation with calls as data, for templates that print ``tool_calls`` themselves.

        Assistant turns get ``tool_calls`` (OpenAI form, arguments as an object) and, where the model
        reasoned, ``reasoning_content``; the results that follow get the ids of their calls.
        """
        turns: list[dict[str, Any]] = []
        ids: list[str] = []
        for message in messages:
            turn = dict(message)
            if message["role"] == "assistant":
                parsed = self.parse(str(message["content"]), tools)
                ids = [each.id for each in parsed.attempts]
                turn = _structured(turn, parsed)
            elif message["role"] == "tool" and ids:
                turn["tool_call_id"] = ids.pop(0)
            turns.append(turn)
        return turns

    def neutralise(self, text: str) -> str:
        """The text with everything in it broken by a space that could be taken for a turn or a call."""
        return defuse(text)


def in_tools_tags(tools: Sequence[ToolSchema]) -> str:
    """The tools as lines of JSON in ``<tools>``, as several families list them."""
    plain: Any = tools
    try:
        # To tell whether they are the same as before takes a tenth of the time of writing them, which is part
        # of every prompt. Unlike equality, it tells 1 from True, and one order of keys from another.
        key = marshal.dumps(plain, 2)
    except ValueError:  # something in them is not plain
        return _tagged(tools)
    if (text := _TAGGED.get(key)) is None:
        text = _tagged(tools)
        if len(_TAGGED) >= _MOST:
            _TAGGED.clear()
        _TAGGED[key] = text
    return text


_TAGGED: dict[bytes, str] = {}
_MOST = 64


def _tagged(tools: Sequence[ToolSchema]) -> str:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    heading = "# Tools\n\nEach line inside <tools></tools> describes one function as JSON Schema:"
    return f"{heading}\n<tools>\n{lines}\n</tools>"


def _structured(turn: dict[str, Any], parsed: ParsedReply) -> dict[str, Any]:
    turn["content"] = parsed.content
    if parsed.reasoning:
        turn["reasoning_content"] = parsed.reasoning
    if parsed.calls:
        turn["tool_calls"] = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in parsed.calls
        ]
    return turn
