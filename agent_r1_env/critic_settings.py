"""How a critic is made and trained, as plain data that can be checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agent_r1_env.errors import unknown_name

POLICY, SHARED = "policy", "shared"
LEVELS = ("step", "token")


@dataclass(frozen=True)
class CriticSettings:
    """Settings of the critic of PPO.

    Attributes:
        model: "policy" begins with a copy of the weights that the policy begins with; "shared" is a head on
            the policy's own features, which it reads and does not move; all else is a folder or a name on the
            Hugging Face Hub, whose value head is kept if it has one.
        learning_rate: by default that of the policy, but at least 1e-5.
        epochs: updates on each batch of episodes.
        warmup: updates of the policy for which only the critic learns.
        clip_range: how far a value may move from that at the time of the rollout; None is without limit.
        max_grad_norm: of one update; 0 is without limit.
        level: "step" values prompts, where a whole reply is one action; "token" values what stands before
            each sampled token, where each of those is one, as is usual for PPO on language models. Then
            ``gamma`` and ``lam`` count tokens.
        tool_tokens: at the level of tokens, those of the environment are taken for actions, too: the ablation
            of an advantage mask. Over steps they never enter.
        bootstrap: a truncated episode ends in the value of the prompt that would have come next; False lets
            it end in 0.

    Raises:
        ValueError: on construction, when a number is out of its range or two settings do not fit.
        UnknownName: on construction, when there is no such level.
    """

    model: str = POLICY
    learning_rate: float | None = None
    epochs: int = 4
    warmup: int = 0
    clip_range: float | None = 0.2
    max_grad_norm: float = 1.0
    level: str = "step"
    tool_tokens: bool = False
    bootstrap: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CriticSettings:
        """The settings with these names.

        Raises:
            UnknownName: there is none of that name.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_name("setting of the critic", name, known)
        return cls(**given)

    def __post_init__(self) -> None:
        rules = {
            "learning_rate": self.learning_rate is None or self.learning_rate >= 0,
            "epochs": self.epochs >= 1,
            "warmup": self.warmup >= 0,
            "clip_range": self.clip_range is None or self.clip_range > 0,
            "max_grad_norm": self.max_grad_norm >= 0,
        }
        for name, holds in rules.items():
            if not holds:
                raise ValueError(f"critic.{name} cannot be {getattr(self, name)!r}")
        if self.level not in LEVELS:
            raise unknown_name("level of the critic", self.level, LEVELS)
        if self.tool_tokens and self.level != "token":
            raise ValueError("critic.tool_tokens needs critic.level: token; over steps they never enter")
