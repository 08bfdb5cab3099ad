"""Where a reply gives its final answer, and what to tell a model whose reply holds none."""

from __future__ import annotations

from agent_r1_env import formats


class AnswerTag:
    """The answer between ``<tag>`` and ``</tag>``, or in the wire format's own form where it has one.

    Where the tag is "", a reply without a call is the answer, all of it but its reasoning.
    """

    def __init__(self, tag: str, format: formats.Format) -> None:
        self.tag = tag
        self._opening, self._closing = f"<{tag}>", f"</{tag}>"
        self._form = format.answer_form or self.render("...")

    def render(self, answer: str) -> str:
        """An answer as it is looked for."""
        return f"{self._opening}{answer}{self._closing}" if self.tag else answer

    def find(self, parsed: formats.ParsedReply) -> tuple[str | None, str]:
        """The answer; or None and what is wrong, for the model."""
        if not self.tag:
            answer = (parsed.content if parsed.answer is None else parsed.answer).strip()
            return (answer, "") if answer else (None, "the reply is empty")
        if parsed.answer is None:
            return self._tagged(parsed.content)
        tagged, _ = self._tagged(parsed.answer)  # a model that was told of both forms writes both
        answer = tagged or parsed.answer.strip()
        return (answer, "") if answer else (None, "the answer is empty")

    def how_to_go_on(self, tools: bool) -> str:
        """What the model may do next, ``tools`` being whether it may call any."""
        answer = f"give the final answer as {self._form}" if self.tag else "give the final answer"
        return f"call a tool, or {answer}" if tools else answer

    def _tagged(self, content: str) -> tuple[str | None, str]:
        """The last answer in the text."""
        end = content.rfind(self._closing)
        start = content.rfind(self._opening, 0, end) if end >= 0 else -1
        if start >= 0:
            answer = content[start + len(self._opening) : end].strip()
            return (answer, "") if answer else (None, "the answer is empty")
        if self._opening in content:
            return None, f"the answer is not closed by {self._closing}"
        if end >= 0:
            return None, f"{self._closing} stands without its {self._opening}"
        return None, "the reply holds neither a tool call nor an answer"
