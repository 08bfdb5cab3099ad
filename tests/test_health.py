"""When a run is said to go wrong, and when it is left in peace."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_r1_env import health, reward
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import UnknownName
from agent_r1_env.health import LIMITS, Alert, Monitor
from agent_r1_env.symptoms import _WINDOWS

GAP = "sampling/sampling_logp_difference/mean"
CALLS = "agent/tool_call_rate"

# The curves of a run of the quickstart recipe, which goes as it should.
QUICKSTART = {
    "reward": """
        .234 .422 .203 .375 .406 .406 .516 .359 .547 .484 .625 .547 .672 .656 .828 .750 .672 .766
        .719 .859 .766 .734 .766 .750 .859 .844 .875 .938 .797 .828 .844 .812 .859 .875 .844 .891
        .938 .859 .859 .688 .891 .859 .953 .797 .844 .812 .844 .812 .797 .844 .844 .875 .609 .750
        .875 .812 .719 .672 .844 .875
    """,
    "entropy": """
        .202 .175 .264 .222 .161 .213 .175 .193 .131 .172 .167 .157 .125 .099 .113 .087 .131 .081
        .139 .084 .095 .131 .098 .129 .063 .092 .072 .050 .107 .082 .096 .077 .054 .075 .063 .040
        .044 .060 .040 .075 .048 .048 .031 .079 .069 .038 .059 .063 .033 .043 .057 .029 .092 .097
        .031 .056 .126 .064 .020 .055
    """,
    CALLS: """
        .549 .570 .586 .585 .579 .582 .598 .594 .613 .612 .640 .633 .629 .639 .656 .645 .656 .656
        .656 .651 .672 .646 .646 .654 .665 .665 .670 .670 .667 .663 .678 .656 .663 .661 .667 .665
        .663 .663 .658 .667 .667 .661 .656 .665 .665 .661 .660 .663 .654 .665 .667 .667 .665 .665
        .668 .663 .663 .663 .665 .661
    """,
    "frac_reward_zero_std": """
        .250 .125 .375 .125 .000 .000 .000 .125 .250 .125 .000 .125 .125 .000 .375 .000 .000 .125
        .125 .250 .375 .250 .250 .500 .375 .500 .750 .500 .375 .375 .500 .375 .375 .375 .500 .625
        .625 .625 .625 .750 .625 .500 .750 .375 .875 .500 .500 .500 .375 .625 .500 1.00 .750 .375
        .500 .500 .500 .750 .750 .625
    """,
    "grad_norm": """
        .289 .284 .237 .516 .520 .478 .509 .368 .443 .480 .437 .399 .493 .418 .313 .422 .366 .402
        .350 .353 .298 .367 .251 .243 .219 .315 .127 .316 .556 .195 .451 .333 .201 .304 .261 .145
        .213 .092 .181 .148 .193 .280 .172 .260 .108 .308 .200 .235 .235 .274 .356 .000 .473 .224
        .569 .251 .269 .130 .096 .267
    """,
}


def quickstart() -> list[dict[str, float]]:
    curves = {name: [float(value) for value in text.split()] for name, text in QUICKSTART.items()}
    steps = range(60)
    return [
        {"agent/exact_match": curves["reward"][n], GAP: 6e-7, "agent/drift": 0.0, "loss": 0.0}
        | {name: values[n] for name, values in curves.items()}
        for n in steps
    ]


def healthy(updates: int, **changes: float) -> list[dict[str, float]]:
    """Updates that are like the quickstart's 30th."""
    names = {"calls": CALLS, "invalid": "agent/invalid_call_rate", "tokens": "agent/tokens_per_reply"}
    given = {names.get(name, name): value for name, value in changes.items()}
    usual = quickstart()[29] | {"agent/tokens_per_reply": 20.0, "agent/invalid_call_rate": 0.02}
    return [usual | {"agent/repeat_call_rate": 0.1, "agent/truncated_fraction": 0.1} | given] * updates


def fed(updates: Iterable[Mapping[str, Any]], monitor: Monitor | None = None, begin: int = 1) -> list[Alert]:
    monitor = monitor or Monitor()
    return [alert for n, metrics in enumerate(updates, begin) for alert in monitor.update(n, metrics)]


def kinds(alerts: Iterable[Alert]) -> list[str]:
    return [alert.kind for alert in alerts]


def test_a_run_that_goes_as_it_should_is_left_in_peace() -> None:
    assert fed(quickstart()) == []


def test_a_bad_batch_alone_says_nothing() -> None:
    bad = healthy(1, calls=0.0, invalid=1.0, tokens=1.0, entropy=0.0)
    assert fed(healthy(20) + bad + healthy(20)) == []


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("drift", {"agent/drift": 3.0}),
        ("not_finite", {"grad_norm": math.nan}),
        ("not_finite", {"loss": None}),
        ("gradient", {"grad_norm": 80.0}),
        ("entropy_low", {"entropy": 0.0005}),
        ("entropy_high", {"entropy": 4.0}),
        ("short_replies", {"agent/tokens_per_reply": 2.0}),
        ("long_replies", {"agent/stop/length": 0.9}),
        ("no_calls", {CALLS: 0.0}),
        ("invalid_calls", {"agent/invalid_call_rate": 0.6}),
        ("repeated_calls", {"agent/repeat_call_rate": 0.8}),
        ("truncation", {"agent/truncated_fraction": 0.9}),
        ("no_variance", {"frac_reward_zero_std": 1.0}),
        ("logp_gap", {GAP: 0.3}),
        ("reward_fell", {"reward": 0.2, "agent/exact_match": 0.2}),
        ("reward_hacking", {"reward": 2.0, "agent/exact_match": 0.3}),
    ],
)
def test_each_collapse_is_told_once_by_its_name(kind: str, after: dict[str, Any]) -> None:
    before = [u | {"agent/exact_match": 0.3} for u in healthy(12, reward=0.3)] + healthy(12)
    alerts = fed(before + [update | after for update in healthy(30)])
    assert kinds(alerts) == [kind]
    assert 24 < alerts[0].step <= 34
    assert alerts[0].first <= alerts[0].step


def test_a_warning_says_what_was_seen_when_and_what_to_try() -> None:
    (alert,) = fed(healthy(20) + healthy(5, calls=0.0))
    assert str(alert).startswith("warning: no_calls, updates 21 to 23: 0.0% of the replies call a tool;")
    assert "it was 66% before\n  try: " in str(alert)
    assert max(map(len, str(alert).splitlines())) <= 100


def test_a_policy_that_never_used_tools_is_not_said_to_have_stopped() -> None:
    assert fed(healthy(30, calls=0.0)) == []


def test_replies_that_are_cut_are_not_told_twice() -> None:
    assert kinds(
        fed(u | {"agent/stop/length": 0.9, "agent/truncated_fraction": 0.95} for u in healthy(9))
    ) == ["long_replies"]


def test_invalid_calls_that_become_fewer_are_no_alarm() -> None:
    falling = [update for share in (0.9, 0.7, 0.5, 0.3) for update in healthy(6, invalid=share)]
    assert fed(falling) == []


def test_stale_weights_show_as_a_gap_that_grows() -> None:
    assert kinds(fed([u | {GAP: 1e-5} for u in healthy(10)] + [u | {GAP: 0.02} for u in healthy(5)])) == [
        "logp_gap"
    ]
    assert fed([u | {GAP: 0.02} for u in healthy(15)]) == []


def test_a_gap_that_overlap_explains_is_told_when_it_is_large_only() -> None:
    overlapped = {"agent/staleness/max": 1.0}
    assert (
        fed([u | overlapped for u in healthy(15)] + [u | overlapped | {GAP: 0.02} for u in healthy(15)]) == []
    )
    alerts = fed([u | overlapped | {GAP: 0.2} for u in healthy(15)])
    assert kinds(alerts) == ["logp_gap"]


def test_what_gets_much_worse_is_told_again() -> None:
    gaps = [0.15] * 5 + [0.16] * 20 + [0.9] * 5
    alerts = fed([u | {GAP: gap} for u, gap in zip(healthy(30), gaps, strict=True)])
    assert kinds(alerts) == ["logp_gap"] * 2
    assert (alerts[0].step, alerts[1].step >= 26) == (3, True)


def test_what_grows_fast_is_not_told_at_every_step() -> None:
    alerts = fed(u | {GAP: 0.11 * 1.6**n} for n, u in enumerate(healthy(12)))
    assert kinds(alerts) == ["logp_gap"]


def test_what_comes_and_goes_is_told_once_and_anew_after_a_calm_time() -> None:
    blinking = (healthy(4, entropy=0.001) + healthy(4)) * 5
    assert kinds(fed(blinking)) == ["entropy_low"]
    monitor = Monitor()
    fed(blinking + healthy(12), monitor)
    assert kinds(fed(healthy(4, entropy=0.001), monitor, begin=53)) == ["entropy_low"]


def test_limits_are_set_by_name() -> None:
    assert kinds(fed(healthy(5), Monitor({"entropy_low": 0.2}))) == ["entropy_low"]
    with pytest.raises(UnknownName, match="did you mean 'entropy_low'"):
        Monitor({"entropy_lo": 1.0})
    with pytest.raises(ValueError, match="'entropy_low' must be a positive number, not 0"):
        Monitor({"entropy_low": 0})


def test_a_resumed_run_knows_what_it_has_told() -> None:
    updates = healthy(20) + healthy(6, calls=0.0)
    logged = [json.loads(json.dumps({"step": n, **u})) for n, u in enumerate(updates, 1)]
    monitor = Monitor()
    monitor.replay(logged)
    assert kinds(monitor.alerts) == ["no_calls"]
    assert fed(healthy(6, calls=0.0), monitor, begin=27) == []


def test_a_warning_is_plain_data() -> None:
    (alert,) = fed(healthy(1) + [u | {"agent/drift": 2.0} for u in healthy(1)])
    assert Alert(**json.loads(json.dumps(alert.to_dict()))) == alert
    assert (alert.first, alert.step, alert.severity) == (2, 2, 2.0)


anything = st.one_of(
    st.floats(),
    st.integers(-(10**30), 10**30),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.sampled_from([0.0, 1.0, 0.5]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(_WINDOWS)), anything), max_size=40))
def test_no_metrics_whatever_raise(updates: list[dict[str, Any]]) -> None:
    for alert in fed(updates):
        assert json.dumps(alert.to_dict(), allow_nan=False)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(_WINDOWS)), st.floats(0, 1)), max_size=60))
def test_the_same_metrics_give_the_same_warnings(updates: list[dict[str, Any]]) -> None:
    assert fed(updates) == fed(updates)


def test_advice_names_reward_terms_and_arguments_that_exist() -> None:
    arguments = inspect.signature(ToolEnv.__init__).parameters
    words = "support_recall|invalid_call_rate|calls|f1|overlong|tokens"
    for _, advice in health._RULES.values():
        assert set(re.findall(r"env_kwargs\.(\w+)", advice)) <= set(arguments)
        assert set(re.findall(rf"\b(?:{words})\b", advice)) <= set(reward.TERMS)


def test_every_kind_is_in_the_table_and_every_limit_has_its_reason() -> None:
    assert health.__doc__ is not None
    table = re.findall(r"^(\w+)  +\w", health.__doc__, re.MULTILINE)
    assert table == list(health._RULES)
    assert all(limit.reason and limit.value > 0 for limit in LIMITS.values())
