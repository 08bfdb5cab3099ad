"""A vector environment on threads: the same as Gymnasium's own, but nobody waits for another."""

from __future__ import annotations

import contextvars
import functools
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from agent_r1_env import ToolEnv, UnknownName
from agent_r1_env.spaces import ChatMessages, TokenIds, UnicodeText
from agent_r1_env.testing import ByteTokenizer, answer, call, sum_env
from agent_r1_env.tool import Tool
from agent_r1_env.vector import ThreadVectorEnv

PATIENCE = 30
"""Seconds after which something hangs that should not."""

MODES = [pytest.param(mode, id=mode.value) for mode in AutoresetMode]
VECTORS = {
    "sync": SyncVectorEnv,
    "thread": ThreadVectorEnv,
    "async, shared memory": AsyncVectorEnv,
    "async, pipes": functools.partial(AsyncVectorEnv, shared_memory=False),
}
REPLIES = [
    [call("add", a=1, b=1), answer("2"), "hm \ud800🙂", call("add", a="x"), answer("3")],
    ["nothing", call("nil"), answer("1"), answer("2"), call("add", a=2, b=2)],
    [answer("4"), "", call("add", a=5, b=5), answer("3"), answer("9")],
]


class Echo(gym.Env[Any, str]):
    """Shows what it was told in one of our spaces; ends with the third step."""

    action_space = UnicodeText()

    def __init__(self, space: gym.Space[Any]) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(f"{options} {self.np_random.integers(1000)}"), {"drawn": self.np_random.random()}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(action), float(len(action)), self.steps == 3, False, {"said": action}

    def _seen(self, text: str) -> Any:
        if isinstance(self.observation_space, UnicodeText):
            return text
        if isinstance(self.observation_space, ChatMessages):
            return [{"role": "user", "content": text}]
        return np.array([ord(letter) for letter in text], dtype=np.int64)


MAKERS = {
    "a tool environment": functools.partial(sum_env, max_steps=3),
    "its messages": functools.partial(sum_env, max_steps=3, observation="messages"),
    "its tokens": functools.partial(sum_env, max_steps=3, observation="tokens", tokenizer=ByteTokenizer()),
    "text": functools.partial(Echo, UnicodeText()),
    "messages": functools.partial(Echo, ChatMessages()),
    "tokens": functools.partial(Echo, TokenIds()),
}


def without_times(value: Any) -> Any:
    """Infos without what differs between equal runs."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in ("seconds", "queued")}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [without_times(each) for each in value]
    return value


def played(envs: VectorEnv, mode: AutoresetMode) -> list[Any]:
    """Everything a vector shows over several episodes."""
    seen: list[Any] = [envs.reset(seed=7)]
    for round_ in range(3):
        for actions in zip(*REPLIES, strict=True):
            seen.append(envs.step(actions))
            ended = seen[-1][2] | seen[-1][3]
            if mode is AutoresetMode.DISABLED and ended.any():
                seen.append(envs.reset(seed=[round_, None, 5], options={"reset_mask": ended}))
    seen.append(envs.np_random_seed)
    return without_times(seen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("maker", MAKERS)
def test_every_vector_shows_the_same(maker: str, mode: AutoresetMode) -> None:
    runs = {}
    for name, vector in VECTORS.items():
        envs = vector([MAKERS[maker]] * 3, autoreset_mode=mode)
        try:
            assert envs.metadata["autoreset_mode"] is mode
            runs[name] = played(envs, mode)
        finally:
            envs.close()
    for name, run in runs.items():
        np.testing.assert_equal(run, runs["sync"], err_msg=name)


# -- waiting together


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("agent-r1-env-")]


def tools_of(run: Any) -> list[Tool]:
    return [Tool("meet", "Meet.", {"type": "object", "properties": {}}, run)]


def test_tools_of_all_sub_environments_wait_at_the_same_time() -> None:
    barrier = threading.Barrier(5)

    def meet() -> str:
        barrier.wait(PATIENCE)  # breaks, were one to wait for another
        return "met"

    envs = ThreadVectorEnv([lambda: sum_env(tools_of(meet))] * 5)
    envs.reset(seed=0)
    _, _, _, _, infos = envs.step([call("meet")] * 5)
    assert [calls[0]["result"] for calls in infos["calls"]] == ["met"] * 5
    envs.close()


def test_each_sub_environment_stays_on_its_thread() -> None:
    seen: dict[int, set[str]] = {}

    class Watched(Echo):
        def __init__(self, index: int) -> None:
            super().__init__(UnicodeText())
            self.index = index
            self.note()

        def note(self) -> None:
            seen.setdefault(self.index, set()).add(threading.current_thread().name)

        def reset(self, **options: Any) -> Any:
            self.note()
            return super().reset(**options)

        def step(self, action: str) -> Any:
            self.note()
            return super().step(action)

        def set_wrapper_attr(self, *args: Any, **kwargs: Any) -> bool:
            self.note()
            return super().set_wrapper_attr(*args, **kwargs)

        def close(self) -> None:
            self.note()

    envs = ThreadVectorEnv([functools.partial(Watched, index) for index in range(3)])
    envs.reset(seed=0)
    for _ in range(5):
        envs.step(["a", "b", "c"])
    envs.call("note")
    envs.set_attr("level", 3)
    envs.close()
    assert seen == {index: {f"agent-r1-env-{index}"} for index in range(3)}
    assert alive() == []


def test_the_callers_context_holds_in_every_sub_environment() -> None:
    told: contextvars.ContextVar[str] = contextvars.ContextVar("told", default="nothing")

    class Listening(Echo):
        def step(self, action: str) -> Any:
            return super().step(told.get())

    envs = ThreadVectorEnv([lambda: Listening(UnicodeText())] * 2)
    envs.reset(seed=0)
    told.set("something")
    assert envs.step(["a", "b"])[0] == ("something", "something")
    envs.close()


# -- seeds, attributes, arguments


def test_seeds_count_up_or_stand_in_a_list() -> None:
    envs = ThreadVectorEnv([sum_env] * 3)
    envs.reset(seed=4)
    assert envs.np_random_seed == (4, 5, 6)
    assert len(envs.np_random) == 3
    envs.reset(seed=[9, None, 8])
    assert envs.np_random_seed == (9, 5, 8)
    envs.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(lambda envs: envs.reset(seed=[1]), "one seed for each of 2", id="seeds"),
        pytest.param(lambda envs: envs.step(["a"] * 3), "one action for each of 2 .* not 3", id="actions"),
        pytest.param(lambda envs: envs.set_attr("x", [1]), "one value for each of 2", id="values"),
        pytest.param(
            lambda envs: envs.reset(options={"reset_mask": [True, False]}), "2 booleans", id="a list"
        ),
        pytest.param(
            lambda envs: envs.reset(options={"reset_mask": np.zeros(2, bool)}), "at least one", id="nobody"
        ),
    ],
)
def test_arguments_of_another_length_are_refused(wrong: Any, message: str) -> None:
    envs = ThreadVectorEnv([sum_env] * 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        wrong(envs)
    envs.close()


def test_one_text_is_no_vector_of_actions() -> None:
    envs = ThreadVectorEnv([sum_env] * 2)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="a sequence of actions"):
        envs.step("ab")
    envs.close()


def test_options_reach_every_sub_environment_and_stay_the_callers() -> None:
    envs = ThreadVectorEnv([sum_env] * 2)
    options = {"task": 3, "reset_mask": np.array([True, True])}
    _, infos = envs.reset(options=options)
    assert infos["task_id"].tolist() == ["sum-3", "sum-3"]
    assert set(options) == {"task", "reset_mask"}
    envs.close()


def test_an_ended_episode_waits_for_its_reset_where_autoreset_is_off() -> None:
    envs = ThreadVectorEnv([sum_env] * 2, autoreset_mode="Disabled")
    envs.reset(seed=0)
    envs.step([answer("x"), "hm"])
    with pytest.raises(ResetNeeded, match="sub-environment 0 is over.*reset_mask"):
        envs.step(["hm", "hm"])
    assert envs.get_attr("steps") == (1, 1)  # nobody took the step
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert envs.get_attr("steps") == (0, 1)
    envs.step(["hm", "hm"])
    envs.close()


def test_attributes_and_methods_of_all_are_reached() -> None:
    envs = ThreadVectorEnv([functools.partial(sum_env, render_mode="ansi")] * 2)
    envs.reset(options={"task": 1})
    assert envs.render_mode == "ansi"
    assert all("What is 1 + 1?" in text for text in envs.render())
    assert [result[3] for result in envs.call("truncate", "time")] == [True, True]
    envs.set_attr("max_steps", [3, 4])
    assert envs.get_attr("max_steps") == (3, 4)
    envs.set_attr("max_steps", 5)
    assert [env.max_steps for env in envs.envs if isinstance(env, ToolEnv)] == [5, 5]
    envs.close()


def test_observations_are_copied_unless_told_not_to() -> None:
    for copy in (True, False):
        envs = ThreadVectorEnv([functools.partial(Echo, TokenIds())] * 2, copy=copy)
        envs.reset(seed=0)
        observations = envs.step(["a", "b"])[0]
        assert (observations is envs._observations) is not copy
        envs.close()


def test_spaces_that_differ_are_refused_or_batched_as_asked() -> None:
    makers = [functools.partial(Echo, TokenIds(size)) for size in (200, 300)]
    with pytest.raises(RuntimeError, match=r"1 observes TokenIds\(300\), but the first TokenIds\(200\)"):
        ThreadVectorEnv(makers)
    assert alive() == []
    envs = ThreadVectorEnv(makers, observation_mode="different")
    assert envs.reset(seed=0)[0] in envs.observation_space
    envs.close()
    spaces = envs.observation_space, TokenIds(300)
    envs = ThreadVectorEnv(makers, observation_mode=spaces)
    assert (envs.observation_space, envs.single_observation_space) == spaces
    envs.close()
    with pytest.raises(UnknownName, match="did you mean 'same'"):
        ThreadVectorEnv(makers, observation_mode="some")


def test_actions_that_differ_are_refused() -> None:
    class Other(Echo):
        action_space = TokenIds()

    with pytest.raises(RuntimeError, match=r"1 takes actions of TokenIds\(\), but the first of UnicodeText"):
        ThreadVectorEnv([lambda: Echo(UnicodeText()), lambda: Other(UnicodeText())])


def test_a_vector_of_none_and_an_unknown_mode_are_refused() -> None:
    with pytest.raises(ValueError, match="needs at least one"):
        ThreadVectorEnv([])
    with pytest.raises(UnknownName, match="'samestep'; did you mean 'SameStep'"):
        ThreadVectorEnv([sum_env], autoreset_mode="samestep")


# -- failures and the end


class Failing(Echo):
    """Raises when told to, and counts those that are open."""

    open = 0

    def __init__(self, fails: bool = False) -> None:
        if fails:
            raise LookupError("no data")
        super().__init__(UnicodeText())
        Failing.open += 1

    def step(self, action: str) -> Any:
        if action == "fail":
            raise RuntimeError("broken")
        return super().step(action)

    def close(self) -> None:
        Failing.open -= 1


class Stuck(Failing):
    """Fails to close."""

    def close(self) -> None:
        super().close()
        raise OSError("gone")


@pytest.fixture(autouse=True)
def nothing_is_left():
    Failing.open = 0
    yield
    assert Failing.open == 0
    assert alive() == []


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def test_those_made_are_closed_when_one_cannot_be() -> None:
    makers = [Failing, Failing, functools.partial(Failing, True), Failing]
    with pytest.raises(LookupError, match="no data") as raised:
        ThreadVectorEnv(makers)
    assert "raised in sub-environment 2" in notes(raised.value)


def test_what_fails_to_close_does_not_hide_why_another_could_not_be_made() -> None:
    with pytest.raises(LookupError, match="no data") as raised:
        ThreadVectorEnv([Stuck, functools.partial(Failing, True)])
    assert "closing a sub-environment failed too: OSError('gone')" in notes(raised.value)


def test_an_error_names_its_sub_environment_and_the_vector_goes_on() -> None:
    envs = ThreadVectorEnv([Failing] * 3)
    envs.reset(seed=0)
    with pytest.raises(RuntimeError, match="broken") as raised:
        envs.step(["a", "fail", "fail"])
    assert "sub-environment 1" in notes(raised.value)
    assert "failed too: RuntimeError('broken')" in notes(raised.value)
    assert envs.get_attr("steps") == (1, 0, 0)
    assert envs.step(["a", "b", "c"])[0] == ("a", "b", "c")
    envs.close()


def test_close_is_idempotent_and_final() -> None:
    envs = ThreadVectorEnv([Failing] * 2)
    envs.reset(seed=0)
    envs.close()
    envs.close()
    with pytest.raises(ClosedEnvironmentError, match="is closed"):
        envs.step(["a", "b"])


def test_one_that_fails_to_close_hinders_no_other() -> None:
    envs = ThreadVectorEnv([Stuck, Failing])
    with pytest.raises(OSError, match="gone"):
        envs.close()
    envs.close()


def test_a_vector_that_is_forgotten_closes_itself() -> None:
    envs = ThreadVectorEnv([Failing] * 2)
    envs.reset(seed=0)
    envs.step(["a", "b"])
    gone, threads = weakref.ref(envs), [sub._thread for sub in envs._subs]
    del envs
    gc.collect()
    assert gone() is None
    for thread in threads:
        thread.join(PATIENCE)


def test_close_does_not_wait_for_ever_on_a_step_that_hangs() -> None:
    release, inside = threading.Event(), threading.Event()

    class Hanging(Failing):
        def step(self, action: str) -> Any:
            inside.set()
            release.wait(PATIENCE)
            return super().step(action)

    envs = ThreadVectorEnv([Hanging, Failing])
    envs.reset(seed=0)
    stepping = threading.Thread(target=envs.step, args=(["a", "b"],))
    stepping.start()
    assert inside.wait(PATIENCE)
    with pytest.warns(UserWarning, match=r"still busy after 0.01 s: 0; each is closed when"):
        envs.close(timeout=0.01)
    assert Failing.open == 1
    threads = [sub._thread for sub in envs._subs]
    release.set()
    for thread in (*threads, stepping):
        thread.join(PATIENCE)


@pytest.fixture
def interrupt(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Interrupts the main thread once, however often it is called; a signal may come before it waits."""
    interrupted: list[int] = []

    def once(number: int, _: Any) -> None:
        if not interrupted:
            interrupted.append(number)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, once)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    return lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_an_interrupt_ends_the_waiting_and_leaves_no_thread(interrupt: Callable[[], None]) -> None:
    barrier, release = threading.Barrier(2), threading.Event()

    class Interrupting(Failing):
        def step(self, action: str) -> Any:
            if action == "wait":
                barrier.wait(PATIENCE)
                while not release.wait(0.01):
                    interrupt()
            return super().step(action)

    envs = ThreadVectorEnv([Interrupting] * 2)
    envs.reset(seed=0)
    with pytest.raises(KeyboardInterrupt):
        envs.step(["wait", "wait"])
    release.set()
    # The steps that nobody waited for were taken all the same: the second after them ends the episodes.
    assert [envs.step(["a", "b"])[2].all() for _ in range(3)] == [False, True, False]
    envs.close()


def test_a_step_that_hangs_does_not_keep_the_interpreter_alive() -> None:
    code = """
        import signal, threading
        from agent_r1_env.testing import call, sum_env
        from agent_r1_env.tool import Tool
        from agent_r1_env.vector import ThreadVectorEnv

        interrupted = threading.Event()

        def once(number, frame):
            if not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt

        def hang():
            while not interrupted.wait(0.01):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            threading.Event().wait()

        signal.signal(signal.SIGINT, once)
        tool = Tool("hang", "Hang.", {"type": "object", "properties": {}}, hang, timeout=1e6)
        envs = ThreadVectorEnv([lambda: sum_env([tool])] * 2)
        envs.reset(seed=0)
        try:
            envs.step([call("hang"), "hm"])
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == "interrupted\n"


# -- made by Gymnasium


@pytest.mark.parametrize("mode", ["vector_entry_point", None])
def test_make_vec_makes_it(mode: str | None) -> None:
    envs = gym.make_vec("AgentR1/CalculatorTool-v0", num_envs=2, vectorization_mode=mode)
    assert isinstance(envs, ThreadVectorEnv)
    envs.reset(seed=0)
    assert envs.step(["1 + 1", "2 * 3"])[0] == ("2", "6")
    again = gym.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert (again.num_envs, again.spec) == (2, envs.spec)
    envs.close()
    again.close()


def test_make_vec_takes_what_make_takes_and_the_autoreset_mode() -> None:
    envs = gym.make_vec(
        "AgentR1/CalculatorTool-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        autoreset_mode="SameStep",
        max_episode_steps=2,
        max_calls=9,
        render_mode="ansi",
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset(seed=0)
    envs.step(["1", "2"])
    _, _, terminated, truncated, infos = envs.step(["1", "2"])
    assert (terminated.tolist(), truncated.tolist()) == ([False] * 2, [True] * 2)
    assert infos["final_obs"].tolist() == ["1", "2"]
    assert [env.spec.id for env in envs.envs if env.spec] == ["AgentR1/CalculatorTool-v0"] * 2
    envs.close()


def test_wrappers_of_vectors_fit() -> None:
    envs = gym.wrappers.vector.RecordEpisodeStatistics(ThreadVectorEnv([sum_env] * 2))
    _, infos = envs.reset(options={"task": 0})
    _, _, _, _, infos = envs.step([answer("1"), "hm"])
    assert infos["episode"]["r"].tolist() == [1.0, 0.0]
    assert infos["_episode"].tolist() == [True, False]
    envs.close()
