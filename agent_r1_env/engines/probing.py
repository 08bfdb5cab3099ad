"""What a server must be for training on its samples: it shows ids, and log-probs of what it samples from."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent_r1_env.engines.refusal import Refused
from agent_r1_env.errors import EngineError

PROCESSED = "processed_logprobs"
_FLAG = f"start it with --logprobs-mode {PROCESSED}"
_COLD = 0.5
_TOLERANCE = 0.02
_PROMPTS = ([1], [2], [3], [5, 8], [1, 2, 3, 5, 8])
Ask = Callable[[str, str, Any], Awaitable[Mapping[str, Any]]]


async def check_logprobs(ask: Ask, url: str, root: str, model: str) -> None:
    """Make sure that log-probs are those after temperature, top-k and top-p.

    A vLLM with development endpoints says so. Any other server is asked for the first token of a reply at
    two temperatures, which tells apart what it shows.

    Raises:
        EngineError: they are of another distribution, or there are no ids; with the flag to set.
    """
    try:
        info = await ask("GET", f"{root}/server_info?config_format=json", None)
        mode = str(info["vllm_config"]["model_config"]["logprobs_mode"])
    except (Refused, KeyError, TypeError):
        mode = await _probed(ask, url, model)
    if mode != PROCESSED:
        raise EngineError(
            f"{url} shows {mode} and not the log-probs of what it samples from, so that nothing can be "
            f"trained on its replies; {_FLAG}"
        )


async def _probed(ask: Ask, url: str, model: str) -> str:
    """The mode that two temperatures give away, in vLLM's words."""
    for prompt in _PROMPTS:
        body = {"model": model, "prompt": prompt, "max_tokens": 1, "logprobs": 5, "return_token_ids": True}
        body |= {"return_tokens_as_token_ids": True, "add_special_tokens": False, "top_k": 0, "top_p": 1.0}
        body |= {"repetition_penalty": 1.0, "min_p": 0.0, "seed": 0}
        plain, cold = [
            _top(await ask("POST", f"{url}/completions", {**body, "temperature": temperature}), url)
            for temperature in (1.0, _COLD)
        ]
        if found := mode(plain, cold):
            return found
    raise EngineError(
        f"cannot tell whether {url} shows the log-probs of what it samples from; {_FLAG} and "
        "VLLM_SERVER_DEV_MODE=1 in its environment, which lets it say so"
    )


def mode(plain: Mapping[str, float], cold: Mapping[str, float]) -> str:
    """What the numbers of one position are, given those at temperatures 1 and `_COLD`; "" if it is open.

    With raw numbers l, those after the temperature T are l / T for logits and l / T - log Z(T) for log-probs,
    so that differences between tokens tell the first from the rest and the values the second.
    """
    both = sorted(set(plain) & set(cold), key=lambda token: -plain[token])
    if len(both) < 2:
        return ""
    first, last = both[0], both[-1]
    spread, cold_spread = plain[first] - plain[last], cold[first] - cold[last]
    logits = max(plain.values()) > 0 or sum(map(math.exp, plain.values())) > 1 + _TOLERANCE
    sure = not logits and math.exp(plain[first]) > 1 - _TOLERANCE  # nearly 0 at every temperature
    if spread < 10 * _TOLERANCE or sure:
        return ""
    if abs(cold_spread - spread) < _TOLERANCE * spread:
        return "raw_logits" if logits else "raw_logprobs"
    if abs(cold_spread * _COLD - spread) < _TOLERANCE * spread:
        same = abs(cold[first] * _COLD - plain[first]) < _TOLERANCE * abs(plain[first])
        return "processed_logits" if logits or same else PROCESSED
    return ""


def _top(data: Mapping[str, Any], url: str) -> Mapping[str, float]:
    """Numbers of the likeliest tokens at the first position."""
    try:
        choice = data["choices"][0]
        ids, top = choice["token_ids"], choice["logprobs"]["top_logprobs"][0]
        if len(ids) != 1 or not all(str(token).startswith("token_id:") for token in top):
            raise KeyError("token_ids")
        return {str(token): float(number) for token, number in top.items()}
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise EngineError(
            f"{url} shows no token ids; it takes vLLM from 0.10.2 on, or another server that answers "
            "return_token_ids"
        ) from None
