"""skyrl-gym: its search environment, whose request to a server is answered here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import search_task
import skyrl_gym
import skyrl_gym.tools.search as requests
from search_task import Question
from skyrl_gym.envs.search.env import SearchEnvConfig

ANSWER, SEARCH = "<answer>{}</answer>", "<think>x</think><search>{}</search>"


def _answers(run: Callable[[str], str]) -> None:
    """Have every search of the process answered by a function."""

    def answer(retrieval_service_url: str, query: str, **_: Any) -> tuple[dict[str, Any], None]:
        return {"result": [[{"document": {"contents": run(query)}}]]}, None

    requests.call_search_api = answer


def begun(question: Question, searches: int = 2) -> Any:
    """An environment of one episode, which is what skyrl-gym makes them for."""
    extras = {
        "reward_spec": {"ground_truth": {"target": [question.answer]}},
        "max_turns": searches + 1,
    }
    env = skyrl_gym.make("search", env_config=SearchEnvConfig(), extras=extras)
    env.init([{"role": "user", "content": question.text}])
    return env


def steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """An environment for each episode; making it counts as the reset."""
    _answers(search_task.TOOLS[tool])
    env: Any = None

    def reset(question: Question) -> None:
        nonlocal env
        env = begun(question, searches)

    def play(question: Question) -> float:
        for _ in range(searches):
            env.step(SEARCH.format(question.query))
        return float(env.step(ANSWER.format(question.answer))["reward"])

    return search_task.costs(reset, play, tool, searches, episodes)


def waiting(episodes: int, calls: int = 2, seconds: float = 0.05) -> dict[str, float]:
    """Steps on as many threads as episodes, awaited as its generator awaits them."""

    def wait(query: str) -> str:
        time.sleep(seconds)
        return "waited"

    _answers(wait)
    question = search_task.QUESTIONS[0]
    said = [SEARCH.format("w")] * calls + [ANSWER.format(question.answer)]

    async def play(env: Any, pool: ThreadPoolExecutor) -> float:
        loop = asyncio.get_running_loop()
        for reply in said:
            result = await loop.run_in_executor(pool, env.step, reply)
        return float(result["reward"])

    async def batch() -> tuple[float, float]:
        envs = [begun(question, calls) for _ in range(episodes)]
        with ThreadPoolExecutor(episodes) as pool:
            began = time.perf_counter()
            rewards = await asyncio.gather(*(play(env, pool) for env in envs))
            return time.perf_counter() - began, sum(rewards)

    took, rewarded = asyncio.run(batch())
    if rewarded != episodes:
        raise ValueError(f"{rewarded} of {episodes} episodes were rewarded")
    return {"seconds": took}
