"""The contract: it holds for a sound environment, and each way to break it is found by its rule."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import fuzz
import gymnasium as gym
import numpy as np
import pytest

from agent_r1_env import Hidden, Task, TaskSet, Tool, ToolEnv, UnicodeText, UnknownName, cli, tool
from agent_r1_env.catalog import BUILTIN_NAMESPACE, Catalog
from agent_r1_env.contract import check
from agent_r1_env.rules import RULES
from agent_r1_env.testing import EnvContract, add, sums

IDS = [
    f"{BUILTIN_NAMESPACE}/{entry.name}-v{entry.data['version']}"
    for entry in map(Catalog.open().env, Catalog.open().names("env"))
]


@pytest.fixture
def found(request) -> Any:
    """Registers a class and tells which rules it breaks, and why."""
    registered = []

    def broken(kind: type[gym.Env], *rules: str) -> dict[str, str]:
        env_id = f"Contract/{kind.__name__}-v0"
        gym.register(env_id, entry_point=f"{__name__}:{kind.__name__}")
        registered.append(env_id)
        return {each.rule: each.detail for each in check(env_id, rules=rules) if each.holds is False}

    yield broken
    for env_id in registered:
        gym.registry.pop(env_id)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("rule", RULES)
def test_every_entry_of_the_catalogue_keeps_the_contract(env_id: str, rule: str) -> None:
    (finding,) = check(env_id, rules=[rule])
    if finding.holds is None:
        pytest.skip(finding.detail)
    assert finding.holds, finding.detail


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_a_thousand_arbitrary_replies_neither_raise_nor_bring_out_an_answer(env_id: str) -> None:
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    assert isinstance(env, ToolEnv)
    # Each program would take a process; the tests of this environment run some.
    env.replace_tools(
        [
            dataclasses.replace(each, run=lambda code: code[:99], begin=None)
            if each.name == "python"
            else each
            for each in env.toolbox.tools.values()
        ]
    )
    secret = "zqxjkvb-wgmpf"
    marked = [dataclasses.replace(task, answers=(secret,) * len(task.answers)) for task in env.tasks]
    env.tasks = TaskSet(marked, name="marked", origin="a test", corpus=env.tasks.corpus)
    try:
        for shown in fuzz.seen(env, 5, 1000):
            assert secret not in shown
    finally:
        env.close()


class Changed(ToolEnv):
    """An environment over sums of which a subclass breaks one thing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(sums(), [tool(add)], **options)


class Drawing(ToolEnv):
    """A tool that draws, and keeps what it drew."""

    def __init__(self, **options: Any) -> None:
        @tool
        def draw(rng: Hidden[np.random.Generator], state: Hidden[dict]) -> str:
            """Draw a number and add it up."""
            state["sum"] = state.get("sum", 0) + int(rng.integers(10))
            return str(state["sum"])

        rows = [Task(str(number), "Draw.", ("x",)) for number in range(3)]
        super().__init__(TaskSet(rows, name="d", origin="a test"), [draw], **options)


class Locked(ToolEnv):
    """A tool that cannot be copied once it was called."""

    def __init__(self, **options: Any) -> None:
        parameters = {"type": "object", "properties": {}}
        locked = Tool(
            "lock",
            "Lock.",
            parameters,
            lambda: "",
            begin=lambda: functools.partial(_locked, (letter for letter in "abc")),
        )
        super().__init__(sums(), [locked], **options)


def _locked(letters: Iterator[str]) -> str:
    return next(letters, "none")


class Odd(Changed):
    metadata = {"render_modes": ["ansi", "human"]}


class Echo(gym.Env[str, str]):
    """Not one of ours."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = self.action_space = UnicodeText()
        self.left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return "say", {}

    def step(self, action: str):
        if not self.left:
            raise gym.error.ResetNeeded("over")
        self.left -= 1
        return action, 0.0, not self.left, False, {}

    def render(self) -> str:
        return "echo"


class Raises(Changed):
    def step(self, action: str):
        if "\ud800" in action:
            action.encode()
        return super().step(action)


class Unspaced(Changed):
    def step(self, action: str):
        return None, *super().step(action)[1:]


class Infinite(Changed):
    def step(self, action: str):
        observation, _, *rest = super().step(action)
        return observation, float("inf"), *rest


class Endless(Changed):
    def __init__(self, **options: Any) -> None:
        super().__init__(max_steps=1 << 40, **options)


class Deaf(Changed):
    def step(self, action: str):
        if self.episode is not None and self.episode.stop:
            return "", 0.0, True, False, {}
        return super().step(action)


class Generous(Changed):
    def step(self, action: str):
        observation, reward, *rest = super().step(action)
        return observation, reward + 1, *rest


class Telltale(Changed):
    def step(self, action: str):
        *step, info = super().step(action)
        return *step, {**info, "gold": self.task.answers}


class Forgetful(Changed):
    def step(self, action: str):
        *step, info = super().step(action)
        return *step, {**info, "messages": info["messages"][1:]}


class Global(Changed):
    def reset(self, **options: Any):
        random.seed(options.get("seed"))
        return super().reset(**options)


class OneTask(Changed):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={"task": 0})


class Moody(Changed):
    counter = itertools.count()

    def reset(self, **options: Any):
        observation, info = super().reset(**options)
        return f"{observation}{next(self.counter)}", info


class Silent(Changed):
    def step(self, action: str):
        step = super().step(action)
        for message in step[4]["messages"]:
            if message["role"] == "tool":
                message["content"] = ""
        return step


class Unsettled(Changed):
    def set_state(self, state):
        super().set_state(state)
        if self.episode is not None:
            self.episode.history = self.episode.history[:1]


class Shaky(ToolEnv):
    """Its tool draws from outside."""

    def __init__(self, **options: Any) -> None:
        @tool
        def draw() -> float:
            """Draw a number."""
            return time.perf_counter()

        super().__init__(sums(), [draw], **options)


class Patient(Changed):
    """It does not give up on tools that hang."""

    def replace_tools(self, tools):
        super().replace_tools([Tool(t.name, t.description, t.parameters, t.run) for t in tools])


class Mismatched(ToolEnv):
    def __init__(self, **options: Any) -> None:
        parameters = {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]}
        super().__init__(sums(), [Tool("add", "Add.", parameters, add)], **options)


class Unspecified(Changed):
    def __init__(self, secret: Any = None, **options: Any) -> None:
        super().__init__(**options)

    def reset(self, **options: Any):
        observation, info = super().reset(**options)
        return f"{observation}{id(self.spec)}", info


BREAKAGES = [
    (Raises, "nothing-that-a-model-writes-raises", "UnicodeEncodeError"),
    (Unspaced, "nothing-that-a-model-writes-raises", "not in the observation space"),
    (Infinite, "nothing-that-a-model-writes-raises", "is inf"),
    (Endless, "every-episode-ends-once", "set max_steps"),
    (Deaf, "every-episode-ends-once", "ResetNeeded"),
    (Generous, "rewards-are-sums-of-their-terms", "its terms sum to"),
    (Telltale, "the-right-answer-is-never-shown", "the right answer is in"),
    (Forgetful, "the-conversation-only-grows", "does not begin with"),
    (Global, "reset-uses-its-own-random-numbers", "self.np_random"),
    (OneTask, "reset-uses-its-own-random-numbers", "same task every time"),
    (Moody, "equal-seeds-and-replies-give-equal-episodes", "differs"),
    (Moody, "vectors-show-what-single-environments-show", "differs"),
    (Shaky, "equal-seeds-and-replies-give-equal-episodes", "differs"),
    (Shaky, "equal-futures-follow-equal-states", "differs"),
    (Silent, "mistakes-in-calls-are-told", "nothing was said"),
    (Unsettled, "equal-futures-follow-equal-states", "differs"),
    (Patient, "tools-that-hang-are-given-up", "not a time-out"),
    (Mismatched, "schemas-agree-with-signatures", "takes no argument 'c'"),
    (Unspecified, "its-spec-is-plain-data", "differs"),
]


@pytest.mark.parametrize(("kind", "rule", "detail"), BREAKAGES)
def test_a_breakage_is_found_by_its_rule(found, kind: type[ToolEnv], rule: str, detail: str) -> None:
    broken = found(kind, rule)
    assert detail in broken[rule]


@pytest.mark.parametrize("kind", [Changed, Drawing, Echo])
def test_a_sound_environment_keeps_every_rule(found, kind: type[gym.Env]) -> None:
    assert found(kind) == {}


def test_what_gymnasium_warns_about_is_a_finding(found) -> None:
    assert "warns" in found(Odd, "gymnasium-accepts-it")["gymnasium-accepts-it"]


def test_another_kind_of_environment_is_held_to_gymnasiums_part_alone(found) -> None:
    found(Echo)
    holds = {each.rule: each.holds for each in check("Contract/Echo-v0")}
    assert holds["equal-seeds-and-replies-give-equal-episodes"] is True
    assert holds["the-right-answer-is-never-shown"] is None


def test_a_state_that_cannot_be_copied_is_no_breakage(found) -> None:
    assert found(Locked) == {}
    (finding,) = check("Contract/Locked-v0", rules=["equal-futures-follow-equal-states"])
    assert finding.holds is None and "cannot be copied" in finding.detail


def test_unknown_rules_and_environments_are_mistakes_of_the_developer() -> None:
    with pytest.raises(UnknownName, match="did you mean 'every-episode-ends-once'"):
        check(IDS[0], rules=["every-episode-end-once"])
    with pytest.raises(gym.error.Error):
        check("AgentR1/Nothing-v0")


# -- from the command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["check", *arguments])
    return status, capsys.readouterr().out


def test_the_command_prints_a_line_for_each_rule(capsys) -> None:
    status, out = run(capsys, "AgentR1/HotpotQA-v0")
    assert status == 0
    assert out.count("\n") == len(RULES) + 1
    assert f"AgentR1/HotpotQA-v0: {len(RULES)} rules hold, 0 broken" in out


def test_the_command_fails_and_says_why_where_a_rule_is_broken(capsys, found) -> None:
    found(Generous, "every-episode-ends-once")
    status, out = run(capsys, "Contract/Generous-v0", "--rule", "rewards-are-sums-of-their-terms")
    assert status == 1
    assert out.startswith(
        "BROKEN  rewards-are-sums-of-their-terms\n        a reward is 1.0, its terms sum to 0"
    )


def test_the_command_prints_json_and_the_rules(capsys) -> None:
    status, out = run(capsys, "AgentR1/HotpotQA-v0", "--json", "--rule", "every-episode-ends-once")
    assert status == 0
    assert [each["holds"] for each in json.loads(out)] == [True]
    status, out = run(capsys, "--rules")
    assert all(f"{name}\n    " in out for name in RULES)


def test_the_command_asks_for_an_environment(capsys) -> None:
    assert cli.main(["check"]) == 2
    assert "which environment?" in capsys.readouterr().err


# -- as a class to inherit


class TestHotpotQA(EnvContract):
    env_id = "AgentR1/HotpotQA-v0"
    env_kwargs = {"max_steps": 3}


def test_the_class_fails_where_a_rule_is_broken_and_skips_what_is_so_on_purpose() -> None:
    class Suite(EnvContract):
        env_id = "Contract/Suite-v0"
        broken_on_purpose = {"every-episode-ends-once": "it goes on"}

    gym.register("Contract/Suite-v0", entry_point=Generous)
    try:
        suite: Any = Suite()
        with pytest.raises(AssertionError, match="its terms sum to"):
            suite.test_rewards_are_sums_of_their_terms()
        with pytest.raises(pytest.skip.Exception, match="it goes on"):
            suite.test_every_episode_ends_once()
        suite.test_calls_survive_the_wire_format()
    finally:
        gym.registry.pop("Contract/Suite-v0")
    assert len([name for name in dir(Suite) if name.startswith("test_")]) == len(RULES)
