"""``agent-r1 audit``: what decoding and encoding again would do to the ids in a file of episodes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from agent_r1_env.audit import Audit, LogProbs, audit, model_log_probs
from agent_r1_env.command import count, own_stdout
from agent_r1_env.errors import DataError, EngineError, missing_extra

_MOST_PLACES = 3


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser("audit", help="say what encoding the text of episodes again would change")
    add = parser.add_argument
    add("episodes", metavar="EPISODES", help="a file of episodes with token ids, as --episodes writes them")
    add("--model", metavar="PATH", required=True, help="whose tokenizer made the ids: a folder or a name")
    add("--log-probs", action="store_true", help="load the model, too, and say what the changes are worth")
    add("--worst", type=count, default=10, metavar="N", help="replies to show (default: 10)")
    add("--json", action="store_true", help="print JSON alone")
    parser.set_defaults(run=_run, register=None)


def _run(options: argparse.Namespace) -> int:
    with own_stdout():
        text = report(options.episodes, options.model, options.log_probs, options.worst, options.json)
    print(text)
    return 0


def report(path: str, model: str, log_probs: bool = False, worst: int = 10, as_json: bool = False) -> str:
    """The audit of a file.

    Raises:
        DataError: there is no such file, or it holds no episode with token ids.
        EngineError: the model or its tokenizer cannot be loaded.
    """
    from agent_r1_env.episode import read_episodes
    from agent_r1_env.model_check import load_tokenizer

    if not Path(path).is_file():
        raise DataError(f"there is no file {path!r}; agent-r1 eval --episodes FILE writes one")
    tokenizer = load_tokenizer(model)
    found = audit(read_episodes(path), tokenizer, _loaded(model) if log_probs else None)
    if not found.tokens:
        raise DataError(
            f"{path!r} holds {found.episodes} episodes and none with token ids: those of a server have none, "
            "and files of results leave them out; agent-r1 eval --episodes FILE keeps them"
        )
    return json.dumps(found.to_dict(worst), indent=2, ensure_ascii=False) if as_json else render(found, worst)


def render(found: Audit, worst: int = 10) -> str:
    """The audit for a person."""
    share = found.changed_tokens / found.tokens if found.tokens else 0.0
    lines = [
        f"looked at:  {found.tokens:,} sampled tokens in {found.replies:,} replies "
        f"of {found.episodes:,} episodes",
        f"changed:    {found.changed_tokens:,} tokens ({share:.3%}) in {len(found.found):,} replies",
    ]
    if found.without_ids:
        lines.append(f"left out:   {found.without_ids:,} episodes without token ids")
    if found.moved is not None:
        lines.append(f"log-prob:   a changed reply moves by {found.moved:.3f} on average")
    if not found.found:
        return "\n".join([*lines, "", "encoding the text again would give the very ids that were sampled"])
    lines += ["", "worst replies:"]
    for reply in found.worst(worst):
        moved = "" if reply.moved is None else f", log-prob {reply.before:.3f} -> {reply.after:.3f}"
        lines.append(f"  episode {reply.episode}, step {reply.step}: {reply.changed} tokens{moved}")
        for place in reply.places[:_MOST_PLACES]:
            shown = [
                " | ".join(map(repr, texts)) or "nothing"
                for texts in (place.sampled_texts, place.encoded_texts)
            ]
            lines.append(f"    at {place.position}: {shown[0]}  ->  {shown[1]}")
        if len(reply.places) > _MOST_PLACES:
            lines.append(f"    and {len(reply.places) - _MOST_PLACES} more places")
    return "\n".join(lines)


def _loaded(model: str) -> LogProbs:
    try:
        from transformers import AutoModelForCausalLM
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "transformers", "train") from error
    try:
        return model_log_probs(AutoModelForCausalLM.from_pretrained(str(Path(model).expanduser())).eval())
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise EngineError(f"cannot load the model {model!r}: {reason}") from error
