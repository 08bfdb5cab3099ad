"""What an environment pays: for each reply and for the outcome, weighed, and listed by term."""

from __future__ import annotations

import math

import pytest

from agent_r1_env import Outcome, Reply, Task, TaskSet, ToolEnv, ToolOutput, Turn, UnknownName, reward, tool
from agent_r1_env.messages import FailureKind
from agent_r1_env.reward import per_step, with_options
from agent_r1_env.scorecard import Scorecard
from agent_r1_env.testing import ByteTokenizer, answer, call, sum_env


@tool
def dig(depth: int = 1) -> ToolOutput:
    """Dig.

    Args:
        depth: How deep.
    """
    return ToolOutput("dug", reward=float(depth))


def env_of(**options) -> ToolEnv:
    tasks = TaskSet([Task("t", "Dig?", ("yes",), (("Oslo", 0), ("New: York", 1)))], name="d", origin="a test")
    return ToolEnv(tasks, [dig], **options)


def pay(env: ToolEnv, *replies: str) -> list[dict[str, float]]:
    env.reset(seed=0)
    terms = []
    for reply in replies:
        _, paid, _, _, info = env.step(reply)
        assert paid == pytest.approx(math.fsum(info["reward_terms"].values()))
        terms.append(info["reward_terms"])
    return terms


def test_what_calls_earn_is_listed_by_tool():
    assert pay(env_of(), call("dig", depth=2) + call("dig"), answer("yes")) == [
        {"tools/dig": 3.0},
        {"exact_match": 1.0},
    ]


@pytest.mark.parametrize(
    ("rewards", "earned"),
    [
        pytest.param({"tools": 0.5}, 0.5, id="all-tools"),
        pytest.param({"tools/dig": 0.25}, 0.25, id="one-tool"),
        pytest.param({"tools": 0.5, "tools/dig": 2}, 2.0, id="one-tool-overrides-all"),
        pytest.param({"tools": 0}, 0.0, id="outcome-only"),
    ],
)
def test_weights_of_tools_weigh_what_they_earn(rewards, earned):
    assert pay(env_of(rewards=rewards), call("dig")) == [{"tools/dig": earned}]


def test_a_tool_that_is_not_there_cannot_be_weighed():
    with pytest.raises(
        UnknownName, match="no tool named 'dgi' in the reward 'tools/dgi'; did you mean 'dig'"
    ):
        env_of(rewards={"tools/dgi": 1})


def test_step_terms_are_paid_with_the_reply_that_they_judge_and_summed_as_metrics():
    env = env_of(
        rewards={"exact_match": 1, "invalid_calls": -0.5, "calls": -0.1, "unreadable": -1},
        metrics=["calls", "unreadable", "exact_match"],
    )
    first, second, third = pay(env, call("dig") + call("dgi"), "hm", answer("yes"))
    assert first == {"invalid_calls": -0.5, "calls": -0.2, "unreadable": 0.0, "tools/dig": 1.0}
    assert second == {"invalid_calls": 0.0, "calls": 0.0, "unreadable": -1.0}
    assert third == {"exact_match": 1.0, "invalid_calls": 0.0, "calls": 0.0, "unreadable": 0.0}
    env.reset(seed=0)
    env.step("hm")
    metrics = env.step(answer("no"))[4]["metrics"]
    assert (metrics["calls"], metrics["unreadable"], metrics["exact_match"]) == (0.0, 1.0, 0.0)


def test_the_outcome_is_paid_once_even_when_an_episode_is_ended_from_outside():
    env = env_of(rewards={"answered": 1.0, "calls": -1.0})
    env.reset(seed=0)
    env.step(call("dig"))
    _, paid, terminated, truncated, info = env.truncate("time")
    assert (paid, terminated, truncated) == (0.0, False, True)
    assert info["reward_terms"] == {"answered": 0.0}


def test_a_term_with_options_is_weighed_beside_them():
    rewards = {"overlong": {"weight": -1.0, "soft": 10, "hard": 20}}
    env = env_of(rewards=rewards, tokenizer=ByteTokenizer())
    assert [terms["overlong"] for terms in pay(env, "x" * 10, "x" * 15, "x" * 30)] == [0.0, -0.5, -1.0]
    env.reset(seed=0)
    assert env.step(Reply("x", "length"))[1] == -1.0


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        pytest.param({"soft": 1}, "needs hard", id="missing"),
        pytest.param({"soft": 1, "hrad": 2}, "no option 'hrad'; did you mean 'hard'", id="misspelt"),
        pytest.param({"soft": 3, "hard": 2}, "0 <= soft < hard", id="senseless"),
        pytest.param({"soft": 1, "hard": 2, "weight": "much"}, "must be a number, not 'much'", id="weight"),
        pytest.param(True, "must be a number, not True", id="truth"),
    ],
)
def test_options_that_a_term_cannot_use_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        Scorecard({"overlong": weight})


def test_an_option_for_a_term_without_any_is_refused():
    with pytest.raises(ValueError, match="'f1' takes no option 'beta'"):
        Scorecard({"f1": {"weight": 1, "beta": 2}})


def test_tokens_are_those_of_the_sampler_and_else_of_the_tokenizer():
    assert pay(env_of(rewards={"tokens": 1.0}), Reply("four", tokens=3)) == [{"tokens": 3.0}]
    assert pay(env_of(rewards={"tokens": 1.0}, tokenizer=ByteTokenizer()), "four") == [{"tokens": 4.0}]
    env = env_of(rewards={"tokens": 1.0})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="give the environment a tokenizer"):
        env.step("four")


def test_functions_of_ones_own_are_paid_by_step_or_at_the_end():
    @per_step
    def shouting(turn: Turn) -> float:
        return float(turn.reply.isupper())

    @with_options
    def at_most(steps: int):
        return lambda outcome: float(outcome.steps <= steps)

    env = env_of(
        rewards={"shouting": -1, "at_most": {"weight": 2, "steps": 2}},
        terms={"shouting": shouting, "at_most": at_most},
    )
    assert pay(env, "HM", answer("yes")) == [{"shouting": -1.0}, {"at_most": 2.0, "shouting": 0.0}]


def test_the_outcome_tells_terms_all_about_the_episode():
    seen: list[Outcome] = []

    def look(outcome: Outcome) -> float:
        seen.append(outcome)
        return 0.0

    env = env_of(rewards={"look": 1.0}, terms={"look": look})
    pay(env, call("dig"), "hm", call("dgi"), Reply(answer("no"), tokens=7))
    (outcome,) = seen
    assert (outcome.answer, outcome.calls, outcome.invalid_calls, outcome.steps) == ("no", 2, 1, 4)
    assert (outcome.stop, outcome.tokens, outcome.unreadable) == ("answer", None, 1)
    assert outcome.failures == {FailureKind.UNKNOWN_TOOL: 1}
    assert [record["name"] for record in outcome.records] == ["dig", "dgi"]


def outcome(given: str | None, invalid: int = 0, **more) -> Outcome:
    return Outcome(given, Task("t", "?", ("Oslo",), (("Oslo", 0), ("New: York", 1))), 2, invalid, 1, **more)


@pytest.mark.parametrize(
    ("given", "invalid", "form", "combined"),
    [
        pytest.param("Oslo", 0, 1.0, 1.0, id="right-and-well-formed"),
        pytest.param("Rome", 0, 1.0, 0.0, id="wrong-but-well-formed"),
        pytest.param("Oslo", 1, 0.5, -0.5, id="right-after-an-invalid-call"),
        pytest.param(None, 0, 0.5, -0.5, id="no-answer"),
        pytest.param(None, 2, 0.0, -1.0, id="nothing-well-formed"),
    ],
)
def test_the_combined_reward_is_the_match_only_where_the_form_is_right(given, invalid, form, combined):
    assert reward.get("format")(outcome(given, invalid)) == form
    assert reward.get("agent_r1")(outcome(given, invalid)) == combined


def test_recall_counts_supporting_titles_that_results_begin_with():
    result = "[1] New: York: a city\n[2] Bergen: not far from Oslo: by air"
    recall = reward.get("support_recall")
    assert recall(outcome("x", records=[{"result": result}])) == 0.5
    assert recall(outcome("x", records=[{"result": result}, {"result": "[1] Oslo: a city"}])) == 1.0
    assert recall(outcome("x", records=[{"result": "Oslo: said by nobody"}])) == 0.0
    assert recall(Outcome("x", Task("t", "?"))) == 1.0


def test_a_metric_of_a_step_term_is_there_even_without_a_reply():
    env = sum_env(metrics=["calls"])
    env.reset(seed=0)
    assert env.truncate("prompt_overflow")[4]["metrics"]["calls"] == 0.0
