"""A vector environment on threads, where the waiting tools of different sub-environments overlap.

``SyncVectorEnv`` waits for one tool after another; ``AsyncVectorEnv`` needs a process, and the data in it,
for each sub-environment. Tools mostly wait, and what waits needs a thread alone. Seeds, autoreset and infos
are those of ``SyncVectorEnv``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from queue import Empty, SimpleQueue
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.spaces import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    iterate,
)
from numpy.typing import NDArray

from agent_r1_env.catalog import Catalog, tool_env_id
from agent_r1_env.errors import unknown_name
from agent_r1_env.subenv import Outcome, SubEnv, values

VectorStep = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
ObservationMode = str | tuple[Space[Any], Space[Any]]


class ThreadVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """Runs each sub-environment on a thread of its own, from its making to its end.

    They are made one after the other, and step at the same time. When one raises, the others finish their
    step first; the error then says which one it was, and ``step`` may be called again.

    Args:
        env_fns: functions that make the sub-environments.
        copy: whether observations are copied before they are returned.
        observation_mode: "same" where all observation spaces are equal, "different" where their options
            differ, or the spaces (batched, single) themselves.
        autoreset_mode: when a sub-environment that ended is reset: with the next step, in the same step,
            or by ``reset(options={"reset_mask": ...})`` alone.

    Raises:
        RuntimeError: the spaces of the sub-environments differ.
        UnknownName: no such mode.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self._subs: list[SubEnv] = []
        self._closings: SimpleQueue[Outcome] = SimpleQueue()
        self._ends: dict[int, Outcome] = {}
        self.copy = copy
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        if not env_fns:
            raise ValueError("a vector environment needs at least one function that makes an environment")
        self.num_envs = len(env_fns)
        try:
            for index, make in enumerate(env_fns):
                self._subs.append(SubEnv(index))
                self._all(lambda sub, make=make: sub.make(make), [index])  # type: ignore[misc]
            self._describe(observation_mode)
        except BaseException as error:
            self._give_up(error)
            raise
        self._single_observations: list[Any] = [None] * self.num_envs
        self._observations: Any = create_empty_array(self.single_observation_space, self.num_envs, np.zeros)

    @property
    def envs(self) -> list[gym.Env[Any, Any]]:
        """The sub-environments. Use them through ``call`` and ``set_attr``, which run on their threads."""
        return [sub.env for sub in self._subs]

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each sub-environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each sub-environment."""
        return self.get_attr("np_random_seed")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each sub-environment, or in some.

        Args:
            seed: one for each sub-environment; a number n stands for n, n + 1, ...
            options: given to each sub-environment; of them, ``reset_mask``, an array of booleans, says which
                are reset. The observations of the others stay what they were.
        """
        seeds = self._seeds(seed)
        chosen, options = self._chosen(options)
        done = self._all(lambda sub: sub.reset(seeds[sub.index], options), chosen)
        infos: dict[str, Any] = {}
        for index, (observation, info) in zip(chosen, done, strict=True):
            self._single_observations[index] = observation
            infos = self._add_info(infos, info, index)
        return self._joined(), infos

    def step(self, actions: Any) -> VectorStep:
        """Take one action in each sub-environment, all at the same time.

        Returns:
            Observations, rewards, terminations, truncations and infos. In mode "SameStep", ``final_obs``
            and ``final_info`` hold what the episodes that ended came to.

        Raises:
            ValueError: not one action for each sub-environment.
            ResetNeeded: in mode "Disabled", an episode is over; no sub-environment has taken its action.
        """
        taken = self._actions(actions)
        done = self._all(lambda sub: sub.step(taken[sub.index], self.autoreset_mode))
        infos: dict[str, Any] = {}
        for index, result in enumerate(done):
            self._single_observations[index] = result.observation
            if result.final is not None:
                infos = self._add_info(infos, result.final, index)
            infos = self._add_info(infos, result.info, index)
        return (
            self._joined(),
            np.array([result.reward for result in done], dtype=np.float64),
            np.array([result.terminated for result in done], dtype=np.bool_),
            np.array([result.truncated for result in done], dtype=np.bool_),
            infos,
        )

    def render(self) -> tuple[Any, ...]:
        """What each sub-environment renders."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a method of each sub-environment returns, called at the same time; or an attribute."""

        def called(sub: SubEnv) -> Any:
            found = sub.env.get_wrapper_attr(name)
            return found(*args, **kwargs) if callable(found) else found

        return tuple(self._all(called))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each sub-environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each sub-environment.

        Args:
            values: a list or tuple with one value for each, or one value for all.

        Raises:
            ValueError: the list has another length.
        """
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        self._count("value", each)
        self._all(lambda sub: sub.env.set_wrapper_attr(name, each[sub.index]))

    def close_extras(self, timeout: float = 10.0) -> None:
        """Close the sub-environments and end their threads.

        Args:
            timeout: seconds that steps under way have to end. A sub-environment that needs longer is
                closed when its step ends, and is warned of.
        """
        for sub in self._subs:
            sub.close(self._closings)
        late = self._await_closings(time.monotonic() + timeout)
        self.closed = True
        for sub in self._subs:
            if sub.index in self._ends:
                sub.join()
        if late:
            gym.logger.warn(
                f"sub-environments still busy after {timeout:g} s: {', '.join(map(str, late))}; "
                "each is closed when what it does ends"
            )
        values(self._ends.values())

    def _await_closings(self, end: float) -> list[int]:
        """Wait until then; returns who is not closed yet."""
        while len(self._ends) < len(self._subs):
            try:
                outcome = self._closings.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                break
            self._ends[outcome.place] = outcome
        return [sub.index for sub in self._subs if sub.index not in self._ends]

    def __del__(self) -> None:
        if not self.closed:
            for sub in getattr(self, "_subs", []):
                sub.close(self._closings)

    def _give_up(self, reason: BaseException) -> None:
        """Close what was made, without hiding why the rest could not be."""
        try:
            self.close()
        except Exception as failure:
            reason.add_note(f"closing a sub-environment failed too: {failure!r}")

    def _describe(self, mode: ObservationMode) -> None:
        """Take over what the sub-environments say of themselves."""
        first, *others = self.envs
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_action_space = first.action_space
        self.action_space = batch_space(first.action_space, self.num_envs)
        self.single_observation_space = first.observation_space
        if isinstance(mode, tuple):
            self.observation_space, self.single_observation_space = mode
        elif mode == "same":
            self.observation_space = batch_space(first.observation_space, self.num_envs)
        elif mode == "different":
            self.observation_space = batch_differing_spaces([env.observation_space for env in self.envs])
        else:
            raise unknown_name("observation mode", mode, ["same", "different"])
        for index, env in enumerate(others, 1):
            self._check_spaces(index, env, mode)

    def _check_spaces(self, index: int, env: gym.Env[Any, Any], mode: ObservationMode) -> None:
        mine, theirs = self.single_observation_space, env.observation_space
        if not (mine == theirs if mode == "same" else is_space_dtype_shape_equiv(mine, theirs)):
            way_out = "; observation_mode='different' allows for other options" if mode == "same" else ""
            raise RuntimeError(f"sub-environment {index} observes {theirs}, but the first {mine}{way_out}")
        if env.action_space != self.single_action_space:
            raise RuntimeError(
                f"sub-environment {index} takes actions of {env.action_space}, "
                f"but the first of {self.single_action_space}"
            )

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return [seed + index for index in range(self.num_envs)]
        self._count("seed", seed)
        return seed

    def _chosen(self, options: dict[str, Any] | None) -> tuple[list[int], dict[str, Any] | None]:
        """Which sub-environments to reset, and the options for them."""
        if options is None or "reset_mask" not in options:
            return list(range(self.num_envs)), options
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be a numpy array of {self.num_envs} booleans, not {mask!r}")
        if not mask.any():
            raise ValueError("reset_mask must choose at least one sub-environment")
        rest = {name: value for name, value in options.items() if name != "reset_mask"}
        return np.flatnonzero(mask).tolist(), rest

    def _actions(self, actions: Any) -> list[Any]:
        if isinstance(actions, str):
            raise TypeError("step takes a sequence of actions, one for each sub-environment, not one str")
        taken = list(iterate(self.action_space, actions))
        self._count("action", taken)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            for sub in self._subs:
                if sub.ended:
                    raise ResetNeeded(
                        f"the episode of sub-environment {sub.index} is over; "
                        "call reset(options={'reset_mask': ...}) before step()"
                    )
        return taken

    def _count(self, what: str, given: Sequence[Any]) -> None:
        if len(given) != self.num_envs:
            raise ValueError(f"one {what} for each of {self.num_envs} sub-environments, not {len(given)}")

    def _joined(self) -> Any:
        self._observations = concatenate(
            self.single_observation_space, self._single_observations, self._observations
        )
        return deepcopy(self._observations) if self.copy else self._observations

    def _all(self, act: Callable[[SubEnv], Any], chosen: Iterable[int] | None = None) -> list[Any]:
        """Do something with each sub-environment, or each chosen one, at the same time."""
        if self.closed:
            raise ClosedEnvironmentError(f"{self} is closed; make a new one")
        subs = self._subs if chosen is None else [self._subs[index] for index in chosen]
        # A queue, not futures: an interrupt while these are waited for may leave them locked for ever.
        done: SimpleQueue[Outcome] = SimpleQueue()
        for sub in subs:
            sub.begin(done, act)
        return values([done.get() for _ in subs])


def _autoreset_mode(given: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(given)
    except ValueError:
        known = [mode.value for mode in AutoresetMode]
        raise unknown_name("autoreset mode", str(given), known) from None


def make_vec_env(
    num_envs: int,
    entry: str,
    folder: str | None = None,
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    **options: Any,
) -> ThreadVectorEnv:
    """Make a vector of an environment of a catalogue: what ``gymnasium.make_vec`` calls.

    Args:
        entry: ``namespace/name``.
        folder: of the catalogue; the built-in one by default.
        autoreset_mode: see ``ThreadVectorEnv``.
        options: as ``gymnasium.make`` takes them.

    Raises:
        CatalogError: the entry is wrong; names file, line and key.
    """
    version = Catalog.open(folder).env(entry.rpartition("/")[2]).data["version"]
    spec = EnvSpec(f"{entry}-v{version}", "agent_r1_env.making:make_env")
    return _vector(spec, num_envs, autoreset_mode, {"entry": entry, "folder": folder, **options})


def make_vec_tool_env(
    num_envs: int,
    entry: str,
    folder: str | None = None,
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    **options: Any,
) -> ThreadVectorEnv:
    """Make a vector of the environment of one tool; arguments and errors as of ``make_vec_env``."""
    namespace, _, name = entry.rpartition("/")
    version = Catalog.open(folder).tool(name).data["version"]
    spec = EnvSpec(tool_env_id(namespace, name, version), "agent_r1_env.making:make_tool_env")
    return _vector(spec, num_envs, autoreset_mode, {"entry": entry, "folder": folder, **options})


def _vector(
    spec: EnvSpec, num_envs: int, autoreset_mode: str | AutoresetMode, options: dict[str, Any]
) -> ThreadVectorEnv:
    def make() -> gym.Env[Any, Any]:
        return gym.make(spec, **options)

    return ThreadVectorEnv([make] * num_envs, autoreset_mode=autoreset_mode)
