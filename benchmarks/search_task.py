"""One task for all environments: 500 generated documents, a search over them, and 200 questions.

Plain Python, so that the interpreter of the peers can run it as well.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_RANDOM = random.Random(0)
WORDS = [f"w{number}" for number in range(500)]
DOCUMENTS = [(f"T{number}", _RANDOM.choices(WORDS, k=80)) for number in range(500)]
_HOLDING: dict[str, list[int]] = {word: [] for word in WORDS}
for _number, (_, _text) in enumerate(DOCUMENTS):
    for _word in sorted(set(_text)):
        _HOLDING[_word].append(_number)


class Question(NamedTuple):
    """What is asked, what to search for, and the right answer."""

    text: str
    query: str
    answer: str


QUESTIONS = [
    Question(f"Which document is about {one} and {two}?", f"{one} {two}", DOCUMENTS[number][0])
    for number, (one, two) in enumerate(zip(WORDS[:200], WORDS[1:201], strict=True))
]


def search(query: str) -> str:
    """Search the documents.

    Args:
        query: Words that they should have.
    """
    found: dict[int, int] = {}
    for word in query.split():
        for number in _HOLDING.get(word, ()):
            found[number] = found.get(number, 0) + 1
    best = sorted(found, key=lambda number: (-found[number], number))[:3]
    return "\n".join(f"{DOCUMENTS[number][0]}: {' '.join(DOCUMENTS[number][1])}" for number in best)


_PAGE = search(QUESTIONS[0].query)


def constant(query: str) -> str:
    """Answer every search alike.

    Args:
        query: Words that are not looked at.
    """
    return _PAGE


TOOLS: dict[str, Callable[[str], str]] = {"search": search, "constant": constant}


class Costs(NamedTuple):
    """Microseconds of a whole reset, of a step, and of a call of the tool alone as a part of that step."""

    reset: float
    step: float
    tool: float


def costs(
    reset: Callable[[Question], Any],
    steps: Callable[[Question], float],
    tool: str,
    searches: int,
    episodes: int,
) -> dict[str, float]:
    """Times of episodes of ``searches`` searches and one answer; the tool alone is timed between them.

    Each is the median of the episodes, so that moments in which the process had no processor do not count.

    Args:
        reset: begins the episode of a question.
        steps: makes all its steps and returns the reward of the last.

    Raises:
        ValueError: an episode was not rewarded, so something else was measured.
    """
    gc.collect()
    gc.freeze()  # what was there before is no work of the episodes
    run, clock = TOOLS[tool], time.perf_counter
    resets, steppings, callings = [], [], []
    for number in range(episodes):
        question = QUESTIONS[number % len(QUESTIONS)]
        began = clock()
        reset(question)
        ready = clock()
        reward = steps(question)
        done = clock()
        for _ in range(searches):
            run(question.query)
        callings.append(clock() - done)
        steppings.append(done - ready)
        resets.append(ready - began)
        if reward != 1:
            raise ValueError(f"the right answer to {question.text!r} earned {reward!r}")
    each = searches + 1
    reset_took, stepped, called = map(statistics.median, (resets, steppings, callings))
    return Costs(reset_took * 1e6, stepped / each * 1e6, called / each * 1e6)._asdict()
