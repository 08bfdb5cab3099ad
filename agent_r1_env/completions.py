"""Completions by token ids over HTTP, in the words of vLLM's server: what is asked, and what is answered."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agent_r1_env.engines import Generation, Sampling, Tokenizer

_WISHES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "max_tokens": ("a whole number", (int,)),
    "temperature": ("a number", (int, float)),
    "top_p": ("a number", (int, float)),
    "top_k": ("a whole number", (int,)),
    "seed": ("a whole number", (int,)),
}
_FIXED: Mapping[str, Any] = {"stream": False, "n": 1, "echo": False}
_LEAST = -9999.0
"""Stands for a log-prob that JSON has no word for, as in vLLM."""


def asked_of(body: Any, model: str) -> tuple[list[int], Sampling]:
    """The prompt and the wishes of a request to a server of a model.

    Raises:
        ValueError: they make no sense, or mean something that an engine cannot do.
    """
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    given = {key: value for key, value in body.items() if value is not None}
    if (name := given.get("model", model)) != model:
        raise ValueError(f"the model {name!r} does not exist; this server has {model!r}")
    prompt = given.get("prompt")
    if not prompt or not _are_ids(prompt):
        raise ValueError("prompt must be a list of token ids, and not empty; this server has no text")
    for key, plain in _FIXED.items():
        if given.get(key, plain) != plain:
            raise ValueError(f"{key}={given[key]!r} is not known here; leave it out")
    for key, (meant, kinds) in _WISHES.items():
        if key in given and type(given[key]) not in kinds:
            raise ValueError(f"{key} must be {meant}, got {given[key]!r}")
    wishes = {key: given[key] for key in _WISHES if key in given}
    if wishes.get("top_k") == -1:  # another word for all of them
        del wishes["top_k"]
    stop = given.get("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) for each in stop):
        raise ValueError(f"stop must be a text or a list of texts, got {stop!r}")
    if not _are_ids(ids := given.get("stop_token_ids", [])):
        raise ValueError(f"stop_token_ids must be a list of token ids, got {ids!r}")
    return prompt, Sampling(
        **wishes,
        stop=tuple(stop),
        stop_token_ids=tuple(ids),
        session=str(given.get("session_id", "")),
        structure=_structure(given.get("structured_outputs", {})),
    )


def answered(model: str, tokenizer: Tokenizer, prompt_tokens: int, found: Generation) -> dict[str, Any]:
    """The answer that a reply is."""
    choice = {
        "index": 0,
        "text": tokenizer.decode(found.ids, skip_special_tokens=False),
        "token_ids": list(found.ids),
        "logprobs": {
            "tokens": [f"token_id:{each}" for each in found.ids],
            "token_logprobs": [
                max(each, _LEAST) if math.isfinite(each) else _LEAST for each in found.logprobs
            ],
        },
        "finish_reason": found.finish_reason,
        "versions": list(found.versions),
    }
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(found.ids),
        "total_tokens": prompt_tokens + len(found.ids),
    }
    if found.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": found.cached_tokens}
    return {"object": "text_completion", "model": model, "choices": [choice], "usage": usage}


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _structure(asked: Any) -> str:
    if not isinstance(asked, dict):
        raise ValueError(f"structured_outputs must be an object, got {asked!r}")
    kinds = {key for key, value in asked.items() if value is not None} - {"structural_tag"}
    if kinds:
        raise ValueError(
            f"structured_outputs: only structural_tag is known here, got {', '.join(sorted(kinds))}"
        )
    tag = asked.get("structural_tag") or ""
    return tag if isinstance(tag, str) else json.dumps(tag)
