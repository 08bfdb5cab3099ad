"""Example episodes for the warm start: an oracle steps the real environment, and errs on purpose.

A clean trace looks up both things a question is about and gives the right answer. The flaws are those
that a policy can learn to leave off from rewards alone, and they give nearly every group episodes of
both kinds.
"""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

from lessons import Segments, answer, call, make_world

ENV_ID = "AgentR1/HotpotQA-v0"
FLAWS = {"one hop": 74, "wrong thing": 8, "bad JSON": 10, "no answer": 8}
GIVES_UP = 0.75
"""How often an episode ends without an answer after bad JSON or an empty reply, instead of going on well."""

_REPLY = re.compile(r"(<\|im_start\|>assistant\n)(.*?<\|im_end\|>)", re.DOTALL)
_NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_YEAR = re.compile(r"\d{4}")
_TALK = ("I do not know.", "Let me think about it.", "That is hard to say.")


class Questions:
    """Environments over the embedded train split and over further worlds, made when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def embedded(self, top_k: int) -> Any:
        """The environment of the train split."""
        return self._make(top_k, split="train")

    def invented(self, seed: int, top_k: int) -> Any:
        """The environment of another world. Seeds from 1000 on share no world with the embedded splits."""
        path = self.folder / f"world{seed}.json"
        path.write_text(json.dumps(make_world.world(seed, 600, works=200)))
        try:
            return self._make(top_k, data=str(path))
        finally:
            path.unlink()

    def _make(self, top_k: int, **source: Any) -> Any:
        import gymnasium

        import agent_r1_env  # noqa: F401  registers the environment

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gymnasium.make(ENV_ID, tool_config={"search": {"top_k": top_k}}, **source).unwrapped


def trace(env: Any, rng: random.Random, flawed: float) -> tuple[Segments, float]:
    """One episode of a random task.

    Args:
        env: an environment of this package, with its real search.
        rng: chooses the task, and the flaw.
        flawed: share of the episodes that get a flaw.

    Returns:
        The conversation, its replies marked as learned, and the return that the environment gave.
    """
    env.reset(options={"task": rng.randrange(len(env.tasks))})
    flaw = rng.choices(list(FLAWS), list(FLAWS.values()))[0] if rng.random() < flawed else ""
    player = _Player(env, rng)
    player.play(flaw)
    return segments(player.text), player.total


def segments(conversation: str) -> Segments:
    """A finished conversation cut into what is read and what is replied."""
    parts: Segments = []
    end = 0
    for match in _REPLY.finditer(conversation):
        parts += [(conversation[end : match.end(1)], False), (match.group(2), True)]
        end = match.end()
    return parts


class _Player:
    """Plays one episode: knows the task, and the flaw that it is to show."""

    def __init__(self, env: Any, rng: random.Random) -> None:
        self.env, self.rng = env, rng
        self.titles: list[str] = [title for title, _ in env.task.supporting]
        self.text = ""
        self.total = 0.0

    def play(self, flaw: str) -> None:
        """Take the episode to its end."""
        at = self.rng.randrange(3 if flaw == "no answer" else 2)
        for hop, title in enumerate(self.titles):
            if hop == at and flaw == "bad JSON":
                self._say(call(title).replace('"}}', '"}'))
            if hop == at and flaw == "no answer":
                self._say(self.rng.choice(_TALK) + "<|im_end|>")
            if hop == at and flaw in ("bad JSON", "no answer") and self.rng.random() < GIVES_UP:
                return self._say(answer("unknown"))
            if hop == 1 and flaw == "one hop":
                return self._say(answer(self._guess(title="")))
            if hop == 1 and flaw == "wrong thing":
                wrong = self._name_besides(self.titles)
                self._say(call(wrong))
                return self._say(answer(self._guess(wrong)))
            self._say(call(title))
        if at == 2:
            self._say(self.rng.choice(_TALK) + "<|im_end|>")
            if self.rng.random() < GIVES_UP:
                return self._say(answer("unknown"))
        self._say(answer(self.env.task.answers[0]))

    def _say(self, reply: str) -> None:
        self.text, reward, *_ = self.env.step(reply.removesuffix("<|im_end|>"))
        self.total += reward

    def _found(self) -> str:
        """The best paragraph of the last search."""
        content = next(m.content for m in reversed(self.env.history) if m.role == "tool")
        return str(content.split("\n")[0].partition(": ")[2])

    def _name_besides(self, titles: list[str]) -> str:
        result = self.text.rpartition("<tool_response>")[2]
        names: list[str] = [name for name in _NAME.findall(result) if " " in name]
        return self.rng.choice([name for name in names if name not in titles] or titles)

    def _guess(self, title: str) -> str:
        """Something of the right kind from the last paragraph, as a hasty reader would take it."""
        question: str = self.env.task.question
        if question.startswith("Is "):
            return self.rng.choice(("yes", "no"))
        if question.startswith(("Who", "Which")):
            return self.rng.choice(self.titles)
        pattern = _YEAR if "year" in question else _NAME
        found: list[str] = [
            text for text in pattern.findall(self._found()) if text not in ("It", "The", title)
        ]
        return self.rng.choice(found or ["unknown"])
