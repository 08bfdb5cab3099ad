"""Watches a run by its metrics and says when it goes wrong: what was seen, over which updates, what to try.

Nothing here knows a trainer: a `Monitor` is fed what `results.Results.log` writes, update by update, and the
same metrics always give the same warnings, so that a resumed run reads its own file to know where it was.

========================  =============================================================================
drift                     trained tokens are not the sampled ones
not_finite                loss or gradient is NaN or infinite
gradient                  the gradient is far longer than usual
entropy_low               the policy hardly chooses any more
entropy_high              the policy turns to noise
short_replies             replies shrink to a fraction of what they were
long_replies              replies run into their length limit
no_calls                  a policy that used tools has stopped to
invalid_calls             more and more calls are invalid
repeated_calls            calls repeat earlier ones of their episode
truncation                limits end the episodes
no_variance               no group has differing rewards, so nothing is learnt
logp_gap                  engine and trainer disagree about probabilities
reward_fell               the reward lost most of what it had gained
reward_hacking            the reward rises while exact match falls
========================  =============================================================================
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_r1_env import symptoms
from agent_r1_env.errors import unknown_name
from agent_r1_env.symptoms import History, Rule, Sighting


@dataclass(frozen=True)
class Limit:
    """From where on something is told.

    Attributes:
        value: by default; a recipe sets another under ``health``.
        reason: why not more and not less.
    """

    value: float
    reason: str


LIMITS: Mapping[str, Limit] = {
    "gradient": Limit(10, "times the median: gradients of small batches vary threefold by chance"),
    "gradient_least": Limit(1, "shorter ones do no harm: TRL clips at max_grad_norm 1 by default"),
    "entropy_low": Limit(0.005, "nats: one token in a thousand is a choice; a solved task ends near 0.03"),
    "entropy_rise": Limit(2, "nats above the start: every token has about seven equal rivals more"),
    "short_replies": Limit(0.25, "of the first replies: learning to be brief halves them, seldom more"),
    "short_least": Limit(8, "tokens: below it replies have nothing to lose"),
    "long_replies": Limit(0.3, "of the episodes: a cut reply is no answer, so their reward says little"),
    "calls_used": Limit(0.1, "of the replies: below it tools were never in use"),
    "calls_gone": Limit(0.01, "of the replies: rarer calls are too few to learn from"),
    "invalid_rise": Limit(0.2, "above the lowest share: five updates of eight tasks vary by less"),
    "repeated_calls": Limit(0.5, "of the calls: every second one brings nothing new"),
    "truncation": Limit(0.5, "of the episodes: the limits and not the policy decide the reward"),
    "logp_gap": Limit(0.1, "nats: bfloat16 engines differ by 0.06 at most, float32 by 0.0001"),
    "logp_growth": Limit(20, "times the start: rounding does not grow, stale weights do"),
    "logp_least": Limit(0.005, "nats: growth below it moves no gradient"),
    "gain_least": Limit(0.1, "of reward: less is not told from chance"),
    "reward_fell": Limit(0.6, "of what was gained: ten updates together swing by a third of it"),
    "hacking": Limit(
        0.1, "of reward won and of exact match lost, each twice what chance does in ten updates"
    ),
    "worse": Limit(3, "times as far beyond a limit as when it was told last: then it is told again"),
    "calm": Limit(10, "updates without a sign until the same thing is news again"),
}
"""All thresholds; the only place where they stand."""

_RULES: Mapping[str, tuple[Rule, str]] = {
    "drift": (
        symptoms.drift,
        "stop: this is a fault of the program and of no setting. A rollout of your own must keep the ids "
        "that the engine sampled; if you have none, report it",
    ),
    "not_finite": (
        symptoms.not_finite,
        "lower trl.learning_rate, set trl.max_grad_norm to 1.0 or less, train in bf16 or float32 and not in "
        "fp16; go on from a checkpoint before this with --model",
    ),
    "gradient": (
        symptoms.gradient,
        "lower trl.learning_rate or trl.max_grad_norm, give trl.warmup_steps, or make batches larger with "
        "trl.gradient_accumulation_steps",
    ),
    "entropy_low": (
        symptoms.entropy_low,
        "if the reward is as high as it can be, stop here. Else lower trl.learning_rate, raise "
        "trl.epsilon_high to 0.28 or trl.temperature, add trl.beta 0.001, and start from an "
        "earlier checkpoint",
    ),
    "entropy_high": (
        symptoms.entropy_high,
        "lower trl.learning_rate, add trl.beta 0.001 or lower trl.epsilon_high, and start from an earlier "
        "checkpoint",
    ),
    "short_replies": (
        symptoms.short_replies,
        "read episodes.jsonl: a reward that pays for brevity or for any answer is taken at its word. Change "
        "env_kwargs.rewards, or add trl.beta 0.001",
    ),
    "long_replies": (
        symptoms.long_replies,
        "raise trl.max_completion_length, or pay for brevity with the term overlong or tokens in "
        "env_kwargs.rewards; lower trl.learning_rate if replies turned to noise",
    ),
    "no_calls": (
        symptoms.no_calls,
        "read episodes.jsonl: if the tasks are answered as well without tools, choose others. Else pay for "
        "what tools find (support_recall in env_kwargs.rewards), lower trl.learning_rate, add trl.beta 0.001",
    ),
    "invalid_calls": (
        symptoms.invalid_calls,
        "charge them (invalid_call_rate with a weight of -0.2 in env_kwargs.rewards), lower "
        "trl.learning_rate or trl.temperature; agent-r1 doctor --model "
        "shows whether env_kwargs.format suits the model",
    ),
    "repeated_calls": (
        symptoms.repeated_calls,
        "charge for calls (the term calls with a negative weight in env_kwargs.rewards) or bound them with "
        "env_kwargs.max_calls; read episodes.jsonl: perhaps the results say too little",
    ),
    "truncation": (
        symptoms.truncation,
        "look which limit under agent/stop/ and raise it: env_kwargs.max_steps, trl.max_completion_length, "
        "trl.vllm_max_model_length, or shorten prompts with env_kwargs.context",
    ),
    "no_variance": (
        symptoms.no_variance,
        "where the reward is as high as it can be, take harder tasks or stop. Else take easier ones, raise "
        "trl.num_generations or trl.temperature, or add a graded term such as f1 to env_kwargs.rewards",
    ),
    "logp_gap": (
        symptoms.logp_gap,
        "lower trl.num_iterations and trl.steps_per_generation, keep "
        "trl.vllm_importance_sampling_correction, and give engine and trainer the same float type; a gap "
        "that only grows means that weights do not reach the engine",
    ),
    "reward_fell": (
        symptoms.reward_fell,
        "go back to best or to an earlier checkpoint with --model, lower trl.learning_rate, or add trl.beta "
        "0.001",
    ),
    "reward_hacking": (
        symptoms.reward_hacking,
        "read episodes.jsonl: some term of env_kwargs.rewards is earned in a way that was not meant; "
        "agent/reward/ shows which one rose. Lower its weight or drop it",
    ),
}


@dataclass(frozen=True)
class Alert:
    """A warning.

    Attributes:
        first: the first of the updates that it was seen in.
        step: the last of them, at which it was told.
        kind: what goes wrong, see this module's table.
        seen: the numbers, in words.
        advice: what to try, with the names of settings.
        severity: how far beyond the limit, as a ratio.
    """

    first: int
    step: int
    kind: str
    seen: str
    advice: str
    severity: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a line of JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        when = f"update {self.step}" if self.first == self.step else f"updates {self.first} to {self.step}"
        lines = (f"warning: {self.kind}, {when}: {self.seen}", f"  try: {self.advice}")
        return "\n".join(textwrap.fill(line, 100, subsequent_indent="    ") for line in lines)


class Monitor:
    """Gives each warning once, again when it gets much worse, and anew when it had been gone for a while."""

    def __init__(self, limits: Mapping[str, float] | None = None) -> None:
        """Set limits in place of the default ones.

        Raises:
            UnknownName: there is no such limit.
            ValueError: a limit is not a positive number.
        """
        check(limits or {})
        self._limits = {name: limit.value for name, limit in LIMITS.items()} | dict(limits or {})
        self._history = History()
        self._told: dict[str, Alert] = {}
        self._seen: dict[str, int] = {}
        self._worst: dict[str, float] = {}
        self.alerts: list[Alert] = []

    def update(self, step: int, metrics: Mapping[str, Any]) -> list[Alert]:
        """Take in the metrics of one update and return the new warnings; never raises on what they hold."""
        self._history.add(step, metrics)
        new = []
        for kind, (rule, advice) in _RULES.items():
            found = rule(self._history, self._limits)
            if found is not None and self._news(kind, step, found):
                severity = self._worst[kind] = round(found.severity, 3)
                self._told[kind] = Alert(found.first, step, kind, found.seen, advice, severity)
                new.append(self._told[kind])
        self.alerts += new
        return new

    def replay(self, logged: Iterable[Mapping[str, Any]]) -> None:
        """Take in the lines of a file of metrics, as ``Results.logged`` gives them."""
        for entry in logged:
            self.update(int(entry["step"]), entry)

    def _news(self, kind: str, step: int, found: Sighting) -> bool:
        before, calm = self._told.get(kind), self._limits["calm"]
        gone = step - self._seen.get(kind, step) > calm
        self._seen[kind] = step
        if before is None or gone:
            return True
        if step - before.step <= calm:  # the updates that are read together may just be filling with it
            self._worst[kind] = max(self._worst[kind], found.severity)
            return False
        return found.severity >= self._limits["worse"] * self._worst[kind]


def check(limits: Mapping[str, float]) -> None:
    """Make sure that there are such limits.

    Raises:
        UnknownName: there is none of a name.
        ValueError: one is not a positive number.
    """
    for name, value in limits.items():
        if name not in LIMITS:
            raise unknown_name("limit", name, LIMITS, where="health")
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"the limit {name!r} must be a positive number, not {value!r}")
