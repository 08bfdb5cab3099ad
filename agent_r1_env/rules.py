"""The rules of the contract, Gymnasium's part first.

A rule is a function of a ``Subject`` whose docstring says what holds. It raises ``Broken`` where that does
not hold, and ``NotApplicable`` where there is nothing to look at.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import StateError
from agent_r1_env.intake import LONGEST_REPLY
from agent_r1_env.messages import FailureKind
from agent_r1_env.prompt import printable
from agent_r1_env.provoking import arguments_for, good_calls, mistakes, replies, sampled
from agent_r1_env.signature import SignatureFault, compare, signature_of
from agent_r1_env.subject import Broken, NotApplicable, Subject
from agent_r1_env.task import SyntheticDataWarning, TaskSet
from agent_r1_env.tool import Tool

STEPS = 60
"""Replies of the rule that throws all kinds of text at an environment."""
Rule = Callable[[Subject], None]
_CANARY = "zqxjkvb-{}-wgmpf"
_PATIENCE = 1000
_BY_CHANCE = ("seconds", "queued", "cached")


def gymnasium_accepts_it(subject: Subject) -> None:
    """`gymnasium.utils.env_checker.check_env` passes without a warning."""
    env = subject.make()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped)
        except Exception as error:  # it asserts and raises whatever fits
            raise Broken(f"{type(error).__name__}: {error}") from error
    told = [each for each in caught if not issubclass(each.category, SyntheticDataWarning)]
    if told:
        raise Broken(f"it warns: {told[0].message}")


def its_spec_is_plain_data(subject: Subject) -> None:
    """The spec survives JSON and makes the same environment again."""
    env = subject.make()
    if env.spec is None:
        raise Broken("it has no spec; make it with gymnasium.make")
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec, disable_env_checker=True)
    subject.keep(again)
    _same(env.reset(seed=1)[0], again.reset(seed=1)[0], "the first observation of an environment made again")


def equal_seeds_and_replies_give_equal_episodes(subject: Subject) -> None:
    """Two environments with one seed and the same replies show, pay and end alike."""
    one, two = subject.make(), subject.make()
    for episode in range(3):
        seed = subject.seed + episode
        _same(one.reset(seed=seed), two.reset(seed=seed), f"the beginning with seed {seed}")
        for number, reply in enumerate(replies(one, subject.rng(), 8), 1):
            step: Any = one.step(reply)
            _same(step, two.step(reply), f"step {number} of an episode with seed {seed}")
            if step[2] or step[3]:
                break


def reset_uses_its_own_random_numbers(subject: Subject) -> None:
    """`reset` follows its seed and leaves the global generators alone."""
    env = subject.make()
    before = _global_randomness()
    first = env.reset(seed=subject.seed)[0]
    env.reset()
    _same(first, env.reset(seed=subject.seed)[0], "the first observation of the same seed")
    if _global_randomness() != before:
        raise Broken("reset changes the global random state; use self.np_random")
    tasks = getattr(env.unwrapped, "tasks", None)
    if tasks is not None and len(tasks) > 1:
        ids = {env.reset(seed=seed)[1].get("task_id") for seed in range(40)}
        if len(ids) == 1:
            raise Broken("40 seeds choose the same task every time")


def nothing_that_a_model_writes_raises(subject: Subject) -> None:
    """Arbitrary replies give observations of the space, finite rewards and an end of every episode."""
    env = subject.make()
    env.reset(seed=subject.seed)
    for reply in replies(env, subject.rng(), STEPS):
        observation, reward, terminated, truncated, _ = _step(env, reply)
        if not env.observation_space.contains(observation):
            raise Broken(f"the observation after {reply[:60]!r} is not in the observation space")
        if not math.isfinite(reward):
            raise Broken(f"the reward after {reply[:60]!r} is {reward}")
        if terminated or truncated:
            env.reset()


def every_episode_ends_once(subject: Subject) -> None:
    """Silence is truncated in the end; then `step` raises ResetNeeded, `reset` works and so does `close`."""
    env = subject.make()
    env.reset(seed=subject.seed)
    for _ in range(_PATIENCE):
        if any(_step(env, sampled(""))[2:4]):
            break
    else:
        raise Broken(f"{_PATIENCE} empty replies do not end an episode; set max_steps")
    try:
        env.unwrapped.step("")
    except ResetNeeded:
        pass
    else:
        raise Broken("step after the end does not raise gymnasium.error.ResetNeeded")
    env.reset()
    env.close()
    env.close()


def vectors_show_what_single_environments_show(subject: Subject) -> None:
    """In a vector environment each sub-environment shows and pays what it does alone."""
    alone: Any = subject.make()
    vector = subject.keep(gym.vector.SyncVectorEnv([subject.make, subject.make]))
    seen, _ = vector.reset(seed=[subject.seed + 1, subject.seed])
    _same(seen[1], alone.reset(seed=subject.seed)[0], "the first observation in a vector")
    for reply in replies(alone, subject.rng(), 6):
        observation, reward, terminated, truncated, _ = alone.step(reply)
        many: Any = vector.step((sampled(""), reply))
        _same((many[0][1], float(many[1][1])), (observation, float(reward)), "a step in a vector")
        if terminated or truncated:
            break


# -- the environment's own part


def rewards_are_sums_of_their_terms(subject: Subject) -> None:
    """Each reward is the sum of `info["reward_terms"]`, and metrics are numbers, there at the end alone."""
    env = subject.tool_env()
    for episode in range(4):
        env.reset(seed=subject.seed + episode)
        for reply in replies(env, subject.rng(), 12):
            _, reward, terminated, truncated, info = env.step(reply)
            total = math.fsum(info["reward_terms"].values())
            if not math.isclose(reward, total, abs_tol=1e-9):
                raise Broken(f"a reward is {reward}, its terms sum to {total}: {info['reward_terms']}")
            if bool(info["metrics"]) != (terminated or truncated):
                raise Broken(f"metrics belong to the end of an episode; got {info['metrics']}")
            if terminated or truncated:
                break


def schemas_agree_with_signatures(subject: Subject) -> None:
    """Each tool can be called with every set of arguments that its JSON Schema lets through."""
    for tool in subject.with_tools().toolbox.tools.values():
        try:
            # What is begun anew in each episode is known by its class alone, not yet bound to an object.
            unbound = tool.begin is not None and next(iter(signature_of(tool.run)), "") == "self"
            compare(tool.run, tool.parameters, method=unbound, given=[*tool.secrets, *tool.hidden])
        except SignatureFault as fault:
            raise Broken(f"tool {tool.name}: {fault}") from fault


def calls_survive_the_wire_format(subject: Subject) -> None:
    """A call that the format renders is read back as the same call."""
    env, rng = subject.with_tools(), subject.rng()
    for tool, _ in itertools.product(env.toolbox.tools.values(), range(5)):
        arguments = arguments_for(tool, rng)
        if arguments is None:
            continue
        reply = env.format.render_call(tool.name, arguments)
        parsed = env.format.parse(reply, env.toolbox.schemas)
        found = [(call.name, call.arguments) for call in parsed.calls]
        if found != [(tool.name, arguments)] or parsed.errors:
            raise Broken(
                f"{tool.name}{arguments} was written as {reply!r} and read as {found or parsed.errors}"
            )


def mistakes_in_calls_are_told(subject: Subject) -> None:
    """Malformed, unknown and invalid calls become results that say so, and end nothing."""
    env, rng = subject.with_tools(), subject.rng()
    for kind, reply in mistakes(env, rng):
        env.reset(seed=subject.seed)
        if env.budget.calls == 0 or env.max_steps < 2:
            raise NotApplicable("there is no room for a call and a step after it")
        _, _, terminated, truncated, info = env.step(sampled(reply))
        kinds = [record["error"] for record in info["calls"]]
        if kind is not None and kind not in kinds:
            raise Broken(f"{reply[:100]!r} is a call of the kind {kind}, but was taken for {kinds or 'none'}")
        if terminated or truncated:
            raise Broken(f"the bad call {reply[:100]!r} ended the episode ({info['stop_reason']})")
        if not info["messages"][-1]["content"].strip():
            raise Broken(f"nothing was said about the bad call {reply[:100]!r}")


def tools_that_hang_are_given_up(subject: Subject) -> None:
    """A call that outlasts its tool's time becomes a result that says so; the episode goes on."""
    env, rng = subject.with_tools(), subject.rng()
    tools = list(env.toolbox.tools.values())
    tool, arguments = next(
        ((each, made) for each in tools if (made := arguments_for(each, rng)) is not None), (tools[0], None)
    )
    if arguments is None:
        raise NotApplicable("no arguments could be made up for any tool")

    def hang(**_: Any) -> str:
        time.sleep(0.4)
        return "too late"

    slow = Tool(
        tool.name,
        tool.description,
        tool.parameters,
        hang,
        timeout=0.05,
        close=tool.close,
        accepts=tool.accepts,
    )
    env.replace_tools([slow if each is tool else each for each in tools])
    env.reset(seed=subject.seed)
    *_, info = env.step(sampled(env.format.render_call(tool.name, arguments)))
    kinds = [record["error"] for record in info["calls"]]
    if kinds != [FailureKind.TIMEOUT]:
        raise Broken(f"a call of {tool.name} that hangs gave {kinds}, not a time-out")


def the_right_answer_is_never_shown(subject: Subject) -> None:
    """With unique words in place of the answers, no prompt, info or rendering ever holds one of them."""
    env = subject.tool_env(render_mode="ansi")
    tasks = [env.tasks[number] for number in range(min(5, len(env.tasks)))]
    if not any(task.answers for task in tasks):
        raise NotApplicable("the tasks have no answers")
    secrets = {task.id: _CANARY.format(number) for number, task in enumerate(tasks)}
    marked = [replace(task, answers=(secrets[task.id],) * len(task.answers)) for task in tasks]
    env.tasks = TaskSet(marked, name=env.tasks.name, origin=env.tasks.origin, corpus=env.tasks.corpus)
    for number, task in enumerate(marked):
        shown = env.reset(seed=subject.seed, options={"task": number})
        _unseen(secrets[task.id], shown, "reset")
        for reply in replies(env, subject.rng(), 20):
            step = env.step(reply)
            _unseen(secrets[task.id], (*step, env.render()), f"the step after {reply[:60]!r}")
            if step[2] or step[3]:
                break


def the_conversation_only_grows(subject: Subject) -> None:
    """Where the context appends, each prompt begins with the one before and the reply to it."""
    env = subject.tool_env()
    if env.context.name != "append":
        raise NotApplicable(f"the context is {env.context.name!r}, which rewrites")
    for episode in range(3):
        _, info = env.reset(seed=subject.seed + episode)
        for reply in replies(env, subject.rng(), 12):
            held = [*info["messages"], {"role": "assistant", "content": _readable(reply)}]
            _, _, terminated, truncated, info = env.step(reply)
            if info["messages"][: len(held)] != held:
                raise Broken(
                    f"the prompt after {reply[:60]!r} does not begin with the one before and the reply"
                )
            if terminated or truncated:
                break


def equal_futures_follow_equal_states(subject: Subject) -> None:
    """A clone, and the environment set back to a state, go on as it would have."""
    env = subject.tool_env()
    env.reset(seed=subject.seed)
    calls = itertools.islice(good_calls(env, subject.rng()), max(1, env.max_steps - 1))
    said = list(replies(env, subject.rng(), 8))
    for reply in [*calls, said[0]]:
        if any(env.step(reply)[2:4]):
            env.reset()
    try:
        state, twin = env.get_state(), env.clone()
    except StateError as fault:
        raise NotApplicable(str(fault)) from fault
    subject.keep(twin)
    first = _future(env, said[1:])
    _same(first, _future(twin, said[1:]), "the future of a clone")
    env.set_state(state)
    _same(first, _future(env, said[1:]), "the future after a state was set")


# -- what they are made with


def _global_randomness() -> str:
    return str((random.getstate(), np.random.get_state(legacy=False)))


def _step(env: gym.Env[Any, Any], reply: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    try:
        observation, reward, terminated, truncated, info = env.step(reply)
    except Exception as error:  # any at all breaks the rule
        raise Broken(f"the reply {reply[:60]!r} raised {type(error).__name__}: {error}") from error
    return observation, float(reward), terminated, truncated, info


def _future(env: ToolEnv, said: Sequence[str]) -> list[Any]:
    seen: list[Any] = []
    for reply in said:
        step = env.step(reply)
        seen.append(_steady(step))
        if step[2] or step[3]:
            seen.append(_steady(env.reset()))
    return seen


def _steady(value: Any) -> Any:
    """What was returned, as plain data without what differs by chance, such as times."""
    if isinstance(value, Mapping):
        return {key: _steady(part) for key, part in value.items() if key not in _BY_CHANCE}
    if isinstance(value, list | tuple):
        return [_steady(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def _same(one: Any, two: Any, what: str) -> None:
    if _steady(one) != _steady(two):
        raise Broken(f"{what} differs: {_difference(_steady(one), _steady(two))}")


def _difference(one: Any, two: Any) -> str:
    left, right = str(one), str(two)
    at = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    start = max(0, at - 40)
    return f"...{left[start : at + 60]!r} against ...{right[start : at + 60]!r}"


def _unseen(secret: str, shown: Any, where: str) -> None:
    if secret in str(_steady(shown)):
        raise Broken(f"the right answer is in what {where} gives")


def _readable(reply: str) -> str:
    return printable(reply[:LONGEST_REPLY])


RULES: dict[str, Rule] = {
    each.__name__.replace("_", "-"): each
    for each in (
        gymnasium_accepts_it,
        its_spec_is_plain_data,
        equal_seeds_and_replies_give_equal_episodes,
        reset_uses_its_own_random_numbers,
        nothing_that_a_model_writes_raises,
        every_episode_ends_once,
        vectors_show_what_single_environments_show,
        rewards_are_sums_of_their_terms,
        schemas_agree_with_signatures,
        calls_survive_the_wire_format,
        mistakes_in_calls_are_told,
        tools_that_hang_are_given_up,
        the_right_answer_is_never_shown,
        the_conversation_only_grows,
        equal_futures_follow_equal_states,
    )
}
