"""ReAct: labels at the beginnings of lines, for any model that a prompt teaches them to.

A reply goes ``Thought:``, ``Action:``, ``Action Input:`` and ends there, since ``Observation:`` comes from a
tool; or it ends with ``Final Answer:``. A label may be numbered (``Action 2:``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agent_r1_env.formats.coercion import parameters_of, text_argument
from agent_r1_env.formats.defusing import defuse
from agent_r1_env.formats.format import Format, ToolSchema, Turn
from agent_r1_env.formats.jsontext import is_cut, json_fault
from agent_r1_env.formats.reading import ParsedReply, Scanner
from agent_r1_env.messages import CallFault, ToolCall

_LABEL = re.compile(
    r"^[ \t]*(?P<label>Thought|Action Input|Action|Observation|Final Answer)(?: [0-9]{1,3})?:", re.MULTILINE
)
_TEXT_END = re.compile(rf"{_LABEL.pattern}|</?think>", re.MULTILINE)
_BEFORE_LABEL = re.compile(rf"\s*(?=\Z|{_LABEL.pattern})", re.MULTILINE)
_INPUT = re.compile(r"\s*^[ \t]*Action Input(?: [0-9]{1,3})?:", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORM = (
    "Thought: what to do next\nAction: the name of one tool\nAction Input: its arguments as a JSON object\n"
)


class React(Format):
    """Reads and writes ReAct. A thought that an action or an answer follows is reasoning."""

    name = "react"
    models = "any model, taught by its prompt"
    stop = ("\nObservation:",)
    end_of_turn = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")
    markers = ("Action Input:",)
    answer_form = "a line that begins with Final Answer:"

    def parse(self, reply: str, tools: Sequence[ToolSchema] = (), *, repair: bool = False) -> ParsedReply:
        """Read one whole reply. An input that is no JSON is the one text argument of a tool in ``tools``."""
        return _Scanner(reply, tools, repair=repair, end_of_turn=self.end_of_turn).run()

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Each call as two lines; the input is JSON, which holds no line break."""
        return "\n".join(
            f"Action: {call.name}\nAction Input: {json.dumps(call.arguments, ensure_ascii=False)}"
            for call in calls
        )

    def render_tools(self, tools: Sequence[ToolSchema]) -> str:
        """The tools as lines of JSON, and the labels in their order."""
        lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
        return (
            f"You can use these tools, each described as JSON Schema:\n{lines}\n\n"
            f"To use one, write these lines and end there:\n{_FORM}"
            "You are then given its result in a line that begins with Observation:\n\n"
            "Once you know the answer, write:\nThought: why you know it\nFinal Answer: the answer"
        )

    def render_results(self, results: Sequence[Turn]) -> str:
        """Each result behind ``Observation:``."""
        return "\n".join(f"Observation: {result['content']}" for result in results)

    def neutralise(self, text: str) -> str:
        """Besides tags, labels at the beginnings of lines are broken, by a space before the colon."""
        return _LABEL.sub(lambda match: f"{match.group()[:-1]} :", defuse(text))


class _Scanner(Scanner):
    openers = _LABEL
    mend = 'write "Action: " and the name of a tool, and in the next line "Action Input: " and a JSON object'

    def read(self, opener: re.Match[str]) -> None:
        label, start = opener["label"], opener.start()
        if label == "Thought":
            self._read_thought(start)
        elif label == "Action":
            self._read_action(start)
        elif label == "Action Input":
            self.fail(CallFault.STRAY, "an Action Input stands without its Action", start, self._text_end())
        elif label == "Final Answer":
            end = self._text_end()
            self.answer = self.text[self.position : end].strip()
            self.content.append(self.text[start:end])
            self.position = end
        else:
            known = self.attempts or self.answer is not None
            fault = "" if known else "an Observation comes from a tool, and no Action stands before it"
            self.invented(start, self.position, fault)

    def _text_end(self) -> int:
        """Where the bare text behind the label that was just read ends."""
        following = _TEXT_END.search(self.text, self.position)
        return following.start() if following else len(self.text)

    def _read_thought(self, start: int) -> None:
        end = self._text_end()
        if end < len(self.text):
            self._reasoning.append(self.text[self.position : end])
        else:  # nothing follows it, so it is all that the model says
            self.content.append(self.text[start:end])
        self.position = end

    def _read_action(self, start: int) -> None:
        line_end = self.text.find("\n", self.position)
        line_end = len(self.text) if line_end < 0 else line_end
        name = self.text[self.position : line_end].strip()
        given = _INPUT.match(self.text, line_end)
        if given is None:
            self._read_bare_action(name, start)
            return
        self.position = given.end()
        at, end = self.skip(self.position), self._text_end()
        if not name:
            self.fail(CallFault.NO_NAME, "the Action names no tool", start, end)
        elif at >= end:
            kind = CallFault.INCOMPLETE if end == len(self.text) else CallFault.NO_ARGUMENTS
            self.fail(kind, "the Action Input is empty; where there is nothing to say it is {}", start, end)
        else:
            self._read_input(name, start, at, end)

    def _read_bare_action(self, said: str, start: int) -> None:
        """An action without input: an attempt at a call where it names a tool, else a word in a text."""
        tools = {tool.get("function", tool).get("name") for tool in self.tools}
        match = _NAME.match(said)
        name = match.group() if match else ""
        goes_on = said[len(name) : len(name) + 1]
        if not (name in tools and goes_on in ("", *"([{:") if tools else name and not goes_on):
            self.content.append(self.text[start : self.position])
            return
        end = self._text_end()
        kind, fault = CallFault.NO_ARGUMENTS, "the Action is followed by no Action Input"
        if goes_on:
            kind, fault = CallFault.SYNTAX, "the Action must be the name of a tool and nothing else"
        elif end == len(self.text):
            behind = self.text[self.position :].strip().removeprefix(name).lstrip()
            kind = CallFault.INCOMPLETE if "Action Input:".startswith(behind) else kind
        self.fail(kind, fault, start, end)

    def _read_input(self, name: str, start: int, at: int, end: int) -> None:
        """Read the input that begins at ``at`` and, if it is bare text, ends at ``end``."""
        argument = text_argument(parameters_of(self.tools, name))
        try:
            value, behind, repairs = self._json(at)
        except ValueError as error:
            if argument is None or self.text[at] == "{":
                self._fail_input(error, start, at, end)
            else:
                self.accept(name, {argument: self.text[at:end].strip()})
                self.position = end
            return
        end = max(behind, end)
        if isinstance(value, dict):
            self._take_objects(name, value, behind, repairs)
        elif argument is None:
            found = defuse(" ".join(self.text[at : min(end, at + 60)].split()))
            fault = f"the Action Input must be a JSON object, not {found}"
            self.fail(CallFault.ARGUMENTS, fault, start, end)
        else:
            quoted = isinstance(value, str) and not repairs and self.skip(behind) >= end
            self.accept(name, {argument: value if quoted else self.text[at:end].strip()})
            self.position = end

    def _json(self, at: int) -> tuple[Any, int, tuple[str, ...]]:
        value, behind, repairs = self.value(at)
        if repairs and _LABEL.search(self.text, at, behind):
            raise ValueError("a string in it goes on over the next label")
        return value, behind, repairs

    def _take_objects(self, name: str, value: Any, behind: int, repairs: tuple[str, ...]) -> None:
        """Record a call, and more of the same tool where further objects follow."""
        self.accept(name, value, repairs=repairs)
        self.position = behind
        while self.text.startswith("{", at := self.skip(self.position)) and not self.full:
            try:
                value, self.position, repairs = self._json(at)
            except ValueError as error:
                self._fail_input(error, at, at, self._text_end())
                return
            self.accept(name, value, repairs=repairs)
        if blank := _BEFORE_LABEL.match(self.text, self.position):
            self.position = blank.end()

    def _fail_input(self, error: ValueError, start: int, at: int, end: int) -> None:
        kind = CallFault.INCOMPLETE if is_cut(error, self.text) else CallFault.SYNTAX
        self.fail(kind, f"the Action Input is not valid JSON: {json_fault(error, at)}", start, end)
