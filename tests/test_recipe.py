"""Recipes: what a file says, what may be changed, and which mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_r1_env import recipe
from agent_r1_env.catalog import Catalog
from agent_r1_env.errors import AgentR1Error, RecipeError, UnknownName

TEXT = """\
name: mine
model: ./policy
env: AgentR1/HotpotQA-v0
env_kwargs: {split: train, max_steps: 4}
eval:
  episodes: 20
  env_kwargs: {split: validation}
trl:
  max_steps: 3
  learning_rate: 1e-4
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_a_recipe_is_read_with_its_defaults(tmp_path: Path) -> None:
    plan = recipe.load(write(tmp_path))
    assert (plan.name, plan.seed, plan.loss_mask, plan.algorithm) == ("mine", 0, True, "grpo")
    assert plan.trl == {"max_steps": 3, "learning_rate": 1e-4}


def test_a_model_beside_the_file_is_found_from_anywhere(tmp_path: Path) -> None:
    assert recipe.load(write(tmp_path)).model == str(tmp_path / "policy")


def test_a_model_named_by_the_caller_is_left_as_it_is(tmp_path: Path) -> None:
    assert recipe.load(write(tmp_path), {"model": "./other"}).model == "./other"


def test_the_evaluation_inherits_the_environment_of_training(tmp_path: Path) -> None:
    assert recipe.load(write(tmp_path)).eval.env_kwargs == {"split": "validation", "max_steps": 4}


@pytest.mark.parametrize("name", Catalog.open().names("recipe"))
def test_every_built_in_recipe_is_valid(name: str) -> None:
    plan = recipe.load(name)
    assert plan.description


def test_values_are_overridden_by_dotted_keys_and_by_names_of_trl(tmp_path: Path) -> None:
    changes = {"eval.episodes": 7, "max_steps": 9, "trl.beta": 0.1, "env_kwargs.data": "x.json", "seed": 4}
    plan = recipe.load(write(tmp_path), changes)
    assert (plan.eval.episodes, plan.trl["max_steps"], plan.trl["beta"], plan.seed) == (7, 9, 0.1, 4)
    assert plan.eval.env_kwargs["data"] == "x.json"
    assert (
        recipe.load(tmp_path / "mine.yaml").trl["max_steps"] == 3
    )  # the entry itself is shared and unchanged


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("env_kwargs:", "env_kwarg:", "mine.yaml:4:1: unknown key 'env_kwarg'; did you mean 'env_kwargs'?"),
        ("  episodes: 20", "  episodes: -1", "mine.yaml:6:13: key 'eval.episodes' must be"),
        ("  episodes: 20", "  episode: 20", "mine.yaml:6:3: unknown key 'episode'; did you mean 'episodes'?"),
        (
            "trl:\n",
            "algorithm: grop\ntrl:\n",
            "mine.yaml:8:12: no algorithm named 'grop'; did you mean",
        ),
        ("  max_steps: 3", "  output_dir: x", "mine.yaml:9:3: output_dir is not set under trl; use --output"),
        ("name: mine", "name: yours", "the name is 'yours', but the file is called mine.yaml"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_nearest_name(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe.load(write(tmp_path, TEXT.replace(old, new)))
    assert told in str(caught.value)


def test_a_setting_that_trl_does_not_have_is_told_with_its_line(tmp_path: Path) -> None:
    plan = recipe.load(write(tmp_path, TEXT.replace("learning_rate", "learning_rat")))
    with pytest.raises(RecipeError) as caught:
        plan.check_trl({"learning_rate", "max_steps", "beta"})
    assert str(caught.value).endswith(
        "mine.yaml:10:3: trl.GRPOConfig has no 'learning_rat'; did you mean 'learning_rate'?"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evil.episodes": 3}, "did you mean 'eval'"),
        ({"eval.episodes": -3}, "eval.episodes"),
        ({"eval.episode": 3}, "eval.episode, set from outside: .* did you mean 'episodes'"),
        ({"overlap.stalenes": 1}, "overlap.stalenes, set from outside: .* did you mean 'staleness'"),
        ({"seed": "four"}, "seed"),
        ({"seed.x": 4}, "seed"),
    ],
    ids=str,
)
def test_a_wrong_override_is_refused(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    with pytest.raises(AgentR1Error, match=told):
        recipe.load(write(tmp_path), changes)


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'quickstart'"):
        recipe.load("quickstar")


def test_a_missing_file_is_told() -> None:
    with pytest.raises(RecipeError, match="no such file"):
        recipe.load("nowhere/mine.yaml")
