"""Tells whether an answer is right, and nothing else about the right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_r1_env.errors import ToolError, unknown_name
from agent_r1_env.scoring import exact_match
from agent_r1_env.signature import Hidden
from agent_r1_env.task import Task, TaskSet

_USED = "check_answer.tries"


class CheckAnswer:
    """Compares as answers are scored, a limited number of times an episode.

    Args:
        tasks: of the environment; their answers are the right ones.
        answers: those of every episode, where no environment brings tasks.
        tries: how often an answer may be checked in one episode.
        compare: "exact_match", or "math_equal" for numbers and formulas by their value.
    """

    def __init__(
        self,
        tasks: TaskSet | None = None,
        answers: Sequence[str] | None = None,
        tries: int = 2,
        compare: str = "exact_match",
    ) -> None:
        if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
            raise ValueError(f"tries must be a whole number above 0, got {tries!r}")
        if answers is not None and (isinstance(answers, str) or not answers):
            raise ValueError("answers must be a list of one or more right answers")
        if answers is None and tasks is None:
            raise ValueError("there is nothing to check against: use it in an environment, or give answers")
        self._answers, self._tries, self._score = answers, tries, _comparison(compare)

    async def __call__(self, answer: str, state: Hidden[dict[str, Any]], task: Hidden[Task | None]) -> str:
        """Answer with a verdict and the number of tries that are left."""
        if not answer.strip():
            raise ToolError("the answer is empty; this counted as no try")
        used = state.get(_USED, 0)
        if used >= self._tries:
            raise ToolError(f"no try is left; only {self._tries} are allowed")
        answers = self._answers if self._answers is not None else task.answers if task is not None else None
        if answers is None:
            raise ToolError("there is no task to check against")
        state[_USED] = used + 1
        left = self._tries - used - 1
        verdict = "right" if self._score(answer, answers) else "wrong"
        return f"The answer is {verdict}. {left or 'No'} {'try is' if left < 2 else 'tries are'} left."


def _comparison(name: str) -> Callable[[str, Sequence[str]], float]:
    if name == "exact_match":
        return exact_match
    if name == "math_equal":
        from agent_r1_env.mathequal import math_equal

        return math_equal
    raise unknown_name("comparison", name, ("exact_match", "math_equal"))
