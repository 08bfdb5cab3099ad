"""What the representation and the limit of rows do to training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import GRPOConfig

from agent_r1_env import recipe
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import RecipeError, UnknownName
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.testing import tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model")))


def episode(number: int, extra: int = 0) -> Episode:
    """Two steps of one row: 4 ids of prompt, 3 sampled, 2 between, 2 sampled, and ``extra`` more."""
    prompt, first, second = [1, 2, 3, 4], [10, 11, 12 + number], [20, 21, *range(30, 30 + extra)]
    steps = [
        Step(prompt, first, [-1.0] * 3, prompt="why?", reply="ab"),
        Step([*prompt, *first, 5, 6], second, [-1.0] * len(second), float(number), prompt="how?", reply="c"),
    ]
    return Episode("Test/Canned-v0", "t", 0, 0, steps, True, stop_reason="answer")


EPISODES = [episode(0), episode(1), episode(2, extra=9), episode(3)]


def trainer(folder: Path, model: str, episodes: Sequence[Episode] = EPISODES, **options: Any) -> Any:
    args = GRPOConfig(
        str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=16,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    made = AgentGRPOTrainer(
        model,
        "Test/Canned-v0",
        args,
        train_dataset=Dataset.from_list([{"prompt": "question", "task": 0}] * 4),
        rollout=lambda requests: list(episodes),
        **options,
    )
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def batch(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = made._generate_and_score_completions([{"prompt": "question", "task": 0}] * 4)
    return found


def gradient(made: Any, inputs: dict[str, Any]) -> torch.Tensor:
    made.model.zero_grad()
    made._compute_loss(made.model, inputs).backward()
    return torch.cat([p.grad.flatten() for p in made.model.parameters() if p.grad is not None])


def logged(made: Any, name: str) -> float:
    return float(made._metrics["train"][f"agent/{name}"][-1])


def test_a_row_that_is_cut_is_no_drift_and_is_counted(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, overlong={"tokens": 12})
    found = batch(made)
    assert (found["completion_mask"] * found["tool_mask"]).sum(1).tolist() == [5, 5, 3, 5]
    assert logged(made, "drift") == 0
    assert logged(made, "overlong_cut_tokens") == 11
    assert logged(made, "overlong_rows") == 1


def test_a_limit_that_takes_nothing_counts_nothing(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, overlong={"tokens": 99})
    batch(made)
    assert (logged(made, "overlong_rows"), logged(made, "drift")) == (0, 0)


def test_the_reward_of_a_masked_row_stays_in_the_baseline(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, overlong={"tokens": 12, "way": "mask"})
    masked, plain = batch(made), batch(trainer(tmp_path, model))
    for number in (0, 1, 3):
        assert masked["advantages"][number, 0] == plain["advantages"][number, 0]
    assert not masked["advantages"][2].any()
    assert logged(made, "drift") == 0
    assert gradient(made, masked).isfinite().all()


def test_a_batch_of_masked_rows_has_no_gradient_and_no_nan(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, overlong={"tokens": 5, "way": "mask"})
    assert not gradient(made, batch(made)).any()


def test_a_penalty_moves_the_advantages_of_the_whole_group(tmp_path: Path, model: str) -> None:
    made = trainer(
        tmp_path, model, overlong={"tokens": 12, "way": "penalise", "penalty": -2.0}, algorithm="rloo"
    )
    found = batch(made)
    # Rewards 0, 1, 2 - 2, 3: each minus the mean of the three others.
    assert found["advantages"][:, 0].tolist() == pytest.approx([-4 / 3, 0, -4 / 3, 8 / 3])
    assert logged(made, "episode_reward") == 1.0


def test_messages_are_trained_on_as_encoded_and_their_drift_is_counted(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, representation="messages")
    found = batch(made)
    assert logged(made, "drift") > 0
    assert gradient(made, found).isfinite().all()


def test_the_settings_are_checked_before_the_model_is_loaded(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no-model")
    with pytest.raises(UnknownName, match="did you mean 'tokens'"):
        trainer(tmp_path, nowhere, representation="token")
    with pytest.raises(UnknownName, match="did you mean 'mask'"):
        trainer(tmp_path, nowhere, overlong={"tokens": 9, "way": "masked"})


RECIPE = "name: mine\nmodel: m\nenv: AgentR1/HotpotQA-v0\ntrl: {}\n"


def loaded(tmp_path: Path, more: str) -> recipe.Recipe:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE + more)
    return recipe.load(path)


def test_a_recipe_names_the_representation_and_the_limit(tmp_path: Path) -> None:
    plan = loaded(tmp_path, "representation: tokens\noverlong: {tokens: 4096, way: mask}\n")
    assert (plan.representation, plan.overlong) == ("tokens", {"tokens": 4096, "way": "mask"})
    assert (loaded(tmp_path, "").representation, loaded(tmp_path, "").overlong) == ("steps", None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("representation: token\n", "tokens"),
        ("overlong: {tokens: 9, way: penalise}\n", "'penalise' needs one"),
        ("overlong: {way: mask}\n", "tokens"),
    ],
)
def test_a_recipe_with_a_limit_that_cannot_work_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        loaded(tmp_path, more)
