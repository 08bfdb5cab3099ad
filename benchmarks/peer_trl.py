"""TRL's own tool loop, taken from the source of the installed package and run without torch or a model.

Its trainer is replaced by the few attributes that the loop reads. What samples and reads replies answers at
once, so that only the loop itself and its tools are timed: it parses nothing and renders no prompt.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import threading
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import search_task

NO_LIMIT = 10**9
PROMPT, REPLY, SUFFIX = [1] * 50, [2] * 20, [3] * 20


def _parsed(calls: list[dict[str, Any]], turn: int) -> dict[str, Any]:
    if turn < len(calls):
        call = {"type": "function", "function": calls[turn]}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"role": "assistant", "content": "done"}


@cache
def _source() -> Any:
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no package trl", name="trl")
    tree = ast.parse(Path(spec.origin).with_name("trainer").joinpath("grpo_trainer.py").read_text())
    loop = next(
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name == "_tool_call_loop"
    )
    return compile(ast.Module(body=[loop], type_ignores=[]), "_tool_call_loop of TRL", "exec")


def _played(tool: Any, calls: list[dict[str, Any]], episodes: int) -> float:
    """Seconds of the loop over a batch in which every episode makes the same calls."""

    def parse(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
        return _parsed(calls, ids[0])

    def generate(prompts: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        trainer.turn += 1
        return [[trainer.turn, *REPLY] for _ in prompts], None

    names: dict[str, Any] = {"asyncio": asyncio, "parse_response": parse}
    exec(_source(), names)
    waits = asyncio.iscoroutinefunction(tool)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    trainer: Any = SimpleNamespace(
        turn=0,
        max_tool_calling_iterations=len(calls) + 1,
        max_completion_length=NO_LIMIT,
        use_vllm=False,
        vllm_mode="",
        _is_vlm=False,
        _tokenizer=None,
        model=SimpleNamespace(config=SimpleNamespace(max_position_embeddings=NO_LIMIT)),
        async_loop=loop,
        environment_factories=None,
        tools=[],
        _get_tool_suffix_ids=lambda messages: SUFFIX,
        _generate_single_turn=generate,
        _sync_tool_dicts=[{} if waits else {"t": tool}] * episodes,
        _async_tool_dicts=[{"t": tool} if waits else {}] * episodes,
    )
    prompts: list[Any] = [[{"role": "user", "content": "?"}] for _ in range(episodes)]
    prompt_ids = [PROMPT.copy() for _ in prompts]
    completion_ids = [[0, *REPLY] for _ in prompts]
    completions = [[_parsed(calls, 0)] for _ in prompts]
    try:
        began = time.perf_counter()
        out = names["_tool_call_loop"](
            trainer, prompts, prompt_ids, completion_ids, completions, None, None, {}
        )
        took = time.perf_counter() - began
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    if (made := out[4], out[5]) != (episodes * len(calls), 0):
        raise ValueError(f"{made} calls and failures, expected {episodes * len(calls)} and none")
    return took


def steps(tool: str, searches: int, episodes: int) -> dict[str, float]:
    """A batch of all episodes at once; there is no reset to time."""
    calls = [{"name": "t", "arguments": {"query": search_task.QUESTIONS[0].query}}] * searches
    made = episodes * (searches + 1)
    took = _played(search_task.TOOLS[tool], calls, episodes)
    run = search_task.TOOLS[tool]
    began = time.perf_counter()
    for _ in range(episodes * searches):
        run(search_task.QUESTIONS[0].query)
    alone = time.perf_counter() - began
    return search_task.Costs(0.0, took / made * 1e6, alone / made * 1e6)._asdict()


def waiting(episodes: int, calls: int = 2, seconds: float = 0.05, threads: int = 0) -> dict[str, float]:
    """Tools that wait, as plain functions."""

    def wait() -> str:
        time.sleep(seconds)
        return "waited"

    return {"seconds": _played(wait, [{"name": "t", "arguments": {}}] * calls, episodes)}
