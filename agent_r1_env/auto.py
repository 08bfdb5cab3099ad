"""``format="auto"``: the wire format is chosen from the model's tokenizer, before environments are made."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agent_r1_env import formats

_log = logging.getLogger(__name__)


def wanted(env_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether arguments of ``gymnasium.make`` leave the format open."""
    asked = (env_kwargs or {}).get("format")
    return (asked.get("name") if isinstance(asked, Mapping) else asked) == formats.AUTO


def resolve(env_kwargs: Mapping[str, Any] | None, tokenizer: Any) -> dict[str, Any]:
    """The arguments with the format that the tokenizer's chat template speaks in place of "auto"."""
    if not wanted(env_kwargs):
        return dict(env_kwargs or {})
    found = formats.detect(tokenizer)
    _log.info("format %r: %s", found.name, found.reason)
    return {**(env_kwargs or {}), "format": found.spec}


def ignored(env_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments without "auto", for what does not depend on the format, such as the tasks."""
    open_ = wanted(env_kwargs)
    return {key: value for key, value in (env_kwargs or {}).items() if not (open_ and key == "format")}
