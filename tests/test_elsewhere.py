"""What a worker is made of, as plain data: environments and policies by name."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

from agent_r1_env.elsewhere import EnvOrigin, PolicySpec
from agent_r1_env.episode_worker import Failure
from agent_r1_env.errors import AgentR1Error, CatalogError
from agent_r1_env.ray_executor import RayRollout


class Mine(gym.Env[str, str]):
    """An environment of this program."""


@pytest.fixture
def mine() -> Iterator[str]:
    gym.register("ElsewhereTest/Mine-v0", entry_point=Mine)
    yield "ElsewhereTest/Mine-v0"
    del gym.registry["ElsewhereTest/Mine-v0"]


def test_an_environment_of_this_program_alone_is_refused_before_anything_starts(mine: str) -> None:
    with pytest.raises(AgentR1Error, match="in a module that registers it and name that module"):
        RayRollout(mine, policy=PolicySpec(policy="x"))


def test_an_environment_by_the_name_of_its_class_is_registered_elsewhere_too() -> None:
    gym.register("ElsewhereTest/Named-v0", entry_point="agent_r1_env.testing:sum_env", kwargs={"count": 2})
    origin = EnvOrigin.of("ElsewhereTest/Named-v0")
    del gym.registry["ElsewhereTest/Named-v0"]
    origin.register()
    env = gym.make("ElsewhereTest/Named-v0", disable_env_checker=True)
    assert len(env.unwrapped.tasks) == 2  # type: ignore[attr-defined]
    env.close()
    del gym.registry["ElsewhereTest/Named-v0"]


def test_a_module_to_import_has_to_register_the_id() -> None:
    with pytest.raises(AgentR1Error, match="ElsewhereTest/No-v0 is not registered .* it imported json"):
        EnvOrigin("ElsewhereTest/No-v0", imports=("json",)).register()


def test_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(AgentR1Error, match="cannot import 'no_such_module'"):
        EnvOrigin.of("AgentR1/HotpotQA-v0", ["no_such_module"])


@pytest.mark.parametrize("given", [{}, {"policy": "x", "urls": ("http://a",)}, {"model": "m", "policy": "x"}])
def test_a_policy_is_named_in_one_way(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of urls, model, policy and factory"):
        PolicySpec(**given)


class Awkward(Exception):
    """An error that pickles and does not come back."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(CatalogError("wrong", file="x.yaml", line=3), CatalogError, id="ours"),
        pytest.param(OSError(28, "No space left"), OSError, id="Python's"),
        pytest.param(Awkward(1, 2), AgentR1Error, id="awkward"),
    ],
)
def test_an_error_travels_as_itself_or_as_its_text(error: Exception, kind: type[Exception]) -> None:
    arrived = pickle.loads(pickle.dumps(Failure.of(error))).raised("worker 3 on a")
    assert isinstance(arrived, kind)
    assert str(error) in str(arrived)
    assert "worker 3 on a" in str(arrived) + "".join(getattr(arrived, "__notes__", []))


def test_a_catalogue_of_ones_own_is_named_by_its_folder(tmp_path: Any) -> None:
    spec = gym.spec("AgentR1/TextGame-v0")
    own = {**spec.kwargs, "entry": "Mine/textgame", "folder": str(tmp_path)}
    gym.register("Mine/TextGame-v0", entry_point=spec.entry_point, kwargs=own)
    origin = EnvOrigin.of("Mine/TextGame-v0")
    del gym.registry["Mine/TextGame-v0"]
    assert (origin.folder, origin.namespace) == (str(tmp_path), "Mine")
    assert EnvOrigin.of("AgentR1/TextGame-v0").folder is None


def test_workers_have_to_be_some() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        RayRollout("AgentR1/TextGame-v0", policy=PolicySpec(policy="x"), workers=0)
