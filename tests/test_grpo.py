"""The adapter to TRL: what reaches the loss, and with which gradient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from agent_r1_env.credit import ESTIMATORS, takes
from agent_r1_env.episode import Episode, EpisodeFile, Step, read_episodes
from agent_r1_env.errors import EngineError, UnknownName
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.rollout import EpisodeRequest
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.testing import tiny_llama
from agent_r1_env.trl_config import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
Token = list[int]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model")))


def config(folder: Path, **changes: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 16,
        "beta": 0.0,
        "max_steps": 1,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **changes,
    }
    return GRPOConfig(str(folder), **settings)


def growing(steps: int, number: int, reward: float, broken: int | None = None) -> Episode:
    """An episode whose prompts only grow, except that step ``broken`` begins anew."""
    rng = np.random.default_rng([number, steps])
    ids = lambda low, high: rng.integers(3, 250, rng.integers(low, high)).tolist()  # noqa: E731
    prompt, done = ids(5, 12), []
    for place in range(steps):
        if place == broken:
            prompt = ids(5, 12)
        response = ids(3, 9)
        last = place == steps - 1
        done.append(Step(tuple(prompt), tuple(response), (-1.0,) * len(response), reward if last else 0.0))
        prompt = prompt + response + ids(2, 6)
    return Episode(
        "Test/Canned-v0", f"task-{number}", 0, number // 4, tuple(done), True, stop_reason="answer"
    )


MIXED = [growing(1 + n % 4, n, float(n % 3 == 0), broken=2 if n == 3 else None) for n in range(8)]


def trainer(
    folder: Path, model: str, episodes: Sequence[Episode], *, args: Any = None, **options: Any
) -> AgentGRPOTrainer:
    made = AgentGRPOTrainer(
        model,
        "Test/Canned-v0",
        args or config(folder),
        train_dataset=Dataset.from_list([{"prompt": "question", "task": 0}] * 8),
        rollout=lambda requests: list(episodes)[: len(requests)],
        **options,
    )
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def batch(made: AgentGRPOTrainer, episodes: int = 8) -> dict[str, Any]:
    return made._generate_and_score_completions([{"prompt": "question", "task": 0}] * episodes)


def gradient(made: AgentGRPOTrainer, inputs: dict[str, Any]) -> torch.Tensor:
    made.model.zero_grad()
    made._compute_loss(made.model, inputs).backward()
    return torch.cat([p.grad.flatten() for p in made.model.parameters() if p.grad is not None])


def losses(folder: Path, loss: str, **changes: Any) -> GRPOConfig:
    if loss == "cispo":
        changes["epsilon_high"] = 5.0
    return config(folder, loss_type=loss, num_iterations=2, **changes)


def test_log_probs_of_a_batch_do_not_depend_on_its_padding(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, MIXED, args=losses(tmp_path, "dapo"), rows_at_once=2)
    inputs = batch(made)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        plain = GRPOTrainer._get_per_token_logps_and_entropies(
            made, made.model, ids, mask, inputs["completion_ids"].size(1)
        )[0]
    assert torch.allclose(inputs["old_per_token_logps"], plain * inputs["completion_mask"], atol=1e-5)


def test_the_trainer_evaluates_on_episodes(tmp_path: Path, model: str) -> None:
    made = trainer(
        tmp_path,
        model,
        MIXED,
        args=config(tmp_path, per_device_eval_batch_size=8),
        eval_dataset=Dataset.from_list([{"prompt": "question", "task": 0}] * 2),
    )
    metrics = made.evaluate()
    assert metrics["eval_agent/episode_reward"] == pytest.approx(3 / 8)
    assert math.isfinite(metrics["eval_loss"])


def weights(made: AgentGRPOTrainer, episodes: Sequence[Episode]) -> list[float]:
    """What the tokens of each episode weigh together."""
    per_row = iter(batch(made)["token_weights"].sum(1).tolist())
    counts = [len(made._rows([episode], [[0.0] * len(episode.steps)])) for episode in episodes]
    return [sum(next(per_row) for _ in range(count)) for count in counts]


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_an_episode_weighs_the_same_however_long_it_is(
    tmp_path: Path, model: str, loss: str, merge: bool
) -> None:
    made = trainer(tmp_path, model, MIXED, args=losses(tmp_path, loss), merge=merge)
    assert weights(made, MIXED) == pytest.approx([1 / 8] * 8)


@pytest.mark.parametrize("merge", [True, False])
def test_a_step_or_a_token_weighs_the_same_by_choice(tmp_path: Path, model: str, merge: bool) -> None:
    steps = [len(episode.steps) for episode in MIXED]
    tokens = [sum(len(step.response_ids) for step in episode.steps) for episode in MIXED]
    for unit, counts in (("step", steps), ("token", tokens)):
        made = trainer(tmp_path, model, MIXED, weight_by=unit, merge=merge)
        assert weights(made, MIXED) == pytest.approx([count / sum(counts) for count in counts])


def test_a_loss_with_a_constant_divisor_counts_tokens(tmp_path: Path, model: str) -> None:
    tokens = [sum(len(step.response_ids) for step in episode.steps) for episode in MIXED]
    for loss, divisor in (("dr_grpo", 8 * 16), ("luspo", 8)):
        made = trainer(tmp_path, model, MIXED, args=losses(tmp_path, loss))
        assert weights(made, MIXED) == pytest.approx([count / divisor for count in tokens])


def test_an_unknown_weight_is_refused(tmp_path: Path, model: str) -> None:
    with pytest.raises(LookupError, match="did you mean 'token'"):
        trainer(tmp_path, model, MIXED, weight_by="tokens")


def test_the_ids_in_the_loss_are_the_sampled_ids(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, MIXED)
    inputs = batch(made)
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    trained = sorted(inputs["completion_ids"][mask].tolist())
    sampled = sorted(token for episode in MIXED for step in episode.steps for token in step.response_ids)
    assert trained == sampled
    assert made._metrics["train"]["agent/drift"] == [0.0]


def test_drift_counts_an_id_that_changed_on_the_way_to_the_loss(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, MIXED)
    rows = made._rows
    made._rows = lambda *arguments: _with_wrong_id(rows(*arguments))  # type: ignore[method-assign]
    batch(made)
    assert made._metrics["train"]["agent/drift"] == [1.0]


def _with_wrong_id(rows: list[Any]) -> list[Any]:
    first, *others = rows[2].completion_ids
    return [*rows[:2], dataclasses.replace(rows[2], completion_ids=[first + 1, *others]), *rows[3:]]


def test_advantages_stand_on_sampled_tokens_only(tmp_path: Path, model: str) -> None:
    inputs = batch(trainer(tmp_path, model, MIXED))
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    assert inputs["advantages"].shape == inputs["completion_ids"].shape
    assert not (inputs["advantages"] * (1 - mask)).any()
    assert inputs["advantages"].any()


def test_without_the_loss_mask_tool_tokens_are_trained(tmp_path: Path, model: str) -> None:
    masked, unmasked = (
        batch(made := trainer(tmp_path, model, MIXED, loss_mask=flag)) | {"made": made}
        for flag in (True, False)
    )
    counts = [int((x["completion_mask"] * x["tool_mask"]).sum()) for x in (masked, unmasked)]
    between = sum(
        len(after.prompt_ids) - len(before.prompt_ids) - len(before.response_ids)
        for episode in MIXED
        for before, after in zip(episode.steps, episode.steps[1:], strict=False)
        if after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    )
    assert between > 0
    assert counts[1] - counts[0] == between
    assert unmasked["made"]._metrics["train"]["agent/drift"] == [0.0]
    assert math.isfinite(gradient(unmasked["made"], unmasked).norm())


def test_groups_of_equal_rewards_give_no_gradient(tmp_path: Path, model: str) -> None:
    equal = [growing(2, n, 1.0) for n in range(8)]
    made = trainer(tmp_path, model, equal)
    assert gradient(made, batch(made)).abs().max() == 0
    assert made._metrics["train"]["frac_reward_zero_std"] == [1.0]
    assert made._metrics["train"]["reward"] == [1.0]


@pytest.mark.parametrize("loss", LOSSES)
def test_episodes_without_a_reply_make_a_legal_batch(tmp_path: Path, model: str, loss: str) -> None:
    empty = [
        Episode(
            "Test/Canned-v0",
            "t",
            0,
            n // 4,
            (),
            False,
            True,
            "prompt_overflow",
            truncation_reward=float(n % 2),
        )
        for n in range(8)
    ]
    made = trainer(tmp_path, model, empty, args=losses(tmp_path, loss))
    inputs = batch(made)
    loss_value = made._compute_loss(made.model, inputs)
    assert loss_value.item() == 0
    assert gradient(made, inputs).abs().max() == 0
    assert made._metrics["train"]["agent/rows_real"] == [0.0]


def test_an_empty_reply_between_others_does_no_harm(tmp_path: Path, model: str) -> None:
    first, *rest = MIXED
    silent = Episode(
        "Test/Canned-v0",
        "t",
        0,
        0,
        (Step((5, 6), (), ()), *growing(2, 50, 1.0).steps),
        True,
        stop_reason="answer",
    )
    made = trainer(tmp_path, model, [silent, *rest])
    assert math.isfinite(gradient(made, batch(made)).norm())
    assert made._metrics["train"]["agent/drift"] == [0.0]


def test_a_broken_environment_moves_neither_the_baseline_nor_the_policy(tmp_path: Path, model: str) -> None:
    broken = growing(2, 90, 0.0)
    broken = Episode(
        **{**{f: getattr(broken, f) for f in Episode.__slots__}, "stop_reason": "error", "error": "boom"}
    )
    episodes = [
        broken,
        *[growing(2, n, 1.0) for n in range(1, 4)],
        *[growing(2, n, n % 2) for n in range(4, 8)],
    ]
    made = trainer(tmp_path, model, episodes)
    inputs = batch(made)
    trained = (inputs["completion_mask"] * inputs["tool_mask"]).sum(1)
    assert trained[7:].tolist() == [0]  # seven sound episodes, one row each, and a row of padding
    assert not inputs["advantages"][:3].any()
    assert inputs["advantages"][3:7].any()
    assert made._metrics["train"]["agent/drift"] == [0.0]


def test_a_batch_of_broken_environments_alone_is_legal(tmp_path: Path, model: str) -> None:
    sound = growing(2, 0, 0.0)
    fields = {f: getattr(sound, f) for f in Episode.__slots__}
    made = trainer(tmp_path, model, [Episode(**{**fields, "error": "boom"})] * 8)
    inputs = batch(made)
    assert not (inputs["completion_mask"] * inputs["tool_mask"]).any()
    assert float(gradient(made, inputs).abs().sum()) == 0.0


def test_a_training_step_changes_the_weights_and_logs_the_episodes(tmp_path: Path, model: str) -> None:
    args = config(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-2)
    made = trainer(tmp_path, model, MIXED, args=args, episodes_path=tmp_path / "episodes.jsonl")
    before = made.model.get_input_embeddings().weight.clone()
    made.train()
    made.close()
    assert not torch.equal(before, made.model.get_input_embeddings().weight)
    log = next(entry for entry in made.state.log_history if "reward" in entry)
    assert log["reward"] == log["agent/episode_reward"] == pytest.approx(3 / 8)
    assert log["agent/drift"] == 0
    assert log["agent/rows_real"] == 9  # eight episodes, one of them in two rows
    assert log["agent/steps_per_episode"] == pytest.approx(2.5)
    assert log["agent/stop/answer"] == 1
    assert log["agent/merged_fraction"] == pytest.approx(11 / 12)
    assert "entropy" in log
    assert [episode.task_id for episode in read_episodes(tmp_path / "episodes.jsonl")] == [
        e.task_id for e in MIXED
    ]


def test_members_of_a_group_share_task_and_seed(tmp_path: Path, model: str) -> None:
    seen: list[EpisodeRequest] = []

    def play(requests: Sequence[EpisodeRequest]) -> list[Episode]:
        seen.extend(requests)
        return MIXED

    made = AgentGRPOTrainer(
        model,
        "Test/Canned-v0",
        config(tmp_path),
        train_dataset=Dataset.from_list([{"prompt": "q", "task": n} for n in range(8)]),
        rollout=play,
    )
    made.train()
    groups = [seen[:4], seen[4:]]
    assert [len({(r.task, r.seed, r.group) for r in group}) for group in groups] == [1, 1]
    assert groups[0][0].task != groups[1][0].task
    assert groups[0][0].seed != groups[1][0].seed


def test_an_error_of_the_rollout_is_raised(tmp_path: Path, model: str) -> None:
    with pytest.raises(EngineError, match="8 episodes were asked for and 3 came back"):
        batch(trainer(tmp_path, model, MIXED[:3]))


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path, model: str) -> None:
    with pytest.raises(UnknownName, match="did you mean 'grpo'"):
        trainer(tmp_path, model, MIXED, algorithm="grop")
    with pytest.raises(ValueError, match="did you mean 'dapo'"):
        trainer(tmp_path, model, MIXED, args=config(tmp_path, loss_type="dap0"))


@pytest.mark.parametrize("name", ["tools", "environment_factory", "rollout_func", "reward_funcs"])
def test_what_belongs_to_the_environment_is_refused(tmp_path: Path, model: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be used:"):
        trainer(tmp_path, model, MIXED, **{name: [len]})


@pytest.mark.parametrize(
    "setting",
    [
        {"min_p": 0.1},
        {"repetition_penalty": 1.1},
        {"vllm_enable_sleep_mode": True},
        {"loss_type": "cispo"},
        {"loss_type": "vespo"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_that_would_be_ignored_are_refused(
    tmp_path: Path, model: str, setting: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=str(next(iter(setting.values())))):
        trainer(tmp_path, model, MIXED, args=config(tmp_path, **setting))


def test_importance_sampling_is_by_token_unless_chosen_otherwise(tmp_path: Path, model: str) -> None:
    assert trainer(tmp_path, model, MIXED).args.vllm_importance_sampling_mode == "token_truncate"
    with pytest.warns(UserWarning, match="prefer the token level"):
        trainer(tmp_path, model, MIXED, args=config(tmp_path, importance_sampling_level="sequence"))


def test_what_drops_whole_rows_is_warned_of(tmp_path: Path, model: str) -> None:
    with pytest.warns(UserWarning, match="an episode of several rows may lose some"):
        trainer(tmp_path, model, MIXED, args=config(tmp_path, off_policy_mask_threshold=0.5))


class Letters(gym.Env[str, str]):
    """Two replies an episode; each is paid by its share of plain letters, the last one for the outcome."""

    observation_space, action_space = UnicodeText(), UnicodeText()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn = 0
        return "letters?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        reward = sum(letter.isascii() and letter.isalpha() for letter in action) / max(1, len(action))
        info = {"metrics": {"turns": self.turn}, "outcome_reward": reward}
        return f"more letters? {self.turn}", reward, self.turn == 2, False, info


gym.register("Test/Letters-v0", Letters)


def on_letters(folder: Path, model: str, steps: int, algorithm: str = "grpo") -> AgentGRPOTrainer:
    args = config(
        folder,
        per_device_train_batch_size=32,
        num_generations=16,
        max_completion_length=4,
        max_steps=steps,
        learning_rate=2e-2,
        lr_scheduler_type="constant",
    )
    data = Dataset.from_list([{"prompt": "letters", "task": None}] * 8)
    return AgentGRPOTrainer(model, "Test/Letters-v0", args, train_dataset=data, algorithm=algorithm)


def test_training_on_an_environment_raises_its_reward(tmp_path: Path, model: str) -> None:
    made = on_letters(tmp_path, model, steps=12)
    made.train()
    made.close()
    log = [entry for entry in made.state.log_history if "reward" in entry]
    assert [entry["agent/drift"] for entry in log] == [0] * 12
    assert log[0]["agent/steps_per_episode"] == 2
    assert log[-1]["reward"] > log[0]["reward"] + 0.5


@pytest.mark.parametrize("algorithm", sorted(name for name in ESTIMATORS if not takes(name, "values_S")))
def test_every_algorithm_without_a_critic_trains(tmp_path: Path, model: str, algorithm: str) -> None:
    made = on_letters(tmp_path, model, steps=2, algorithm=algorithm)
    made.train()
    made.close()
    log = [entry for entry in made.state.log_history if "reward" in entry]
    assert [entry["agent/drift"] for entry in log] == [0, 0]
    assert all(entry["grad_norm"] > 0 for entry in log)


def test_a_greedy_episode_of_each_task_is_played_but_not_trained_on(tmp_path: Path, model: str) -> None:
    made = on_letters(tmp_path, model, steps=1, algorithm="remax")
    made._file = file = EpisodeFile(tmp_path / "episodes.jsonl")
    known: list[Any] = []
    advantages = made._advantages
    made._advantages = lambda facts: known.extend(facts) or advantages(facts)  # type: ignore[func-returns-value]
    made.train()
    made.close()
    file.close()
    assert len(list(read_episodes(tmp_path / "episodes.jsonl"))) == len(known) == 32
    by_group = [{fact["greedy"] for fact in known if fact["group"] == group} for group in (0, 1)]
    assert [len(each) for each in by_group] == [1, 1]
    assert by_group[0] == by_group[1]  # greedy replies to the same prompt are the same


def test_a_rollout_of_ones_own_has_no_greedy_episode(tmp_path: Path, model: str) -> None:
    with pytest.raises(ValueError, match="remax compares with a greedy episode .* use 'rloo'"):
        trainer(tmp_path, model, MIXED, algorithm="remax")


def test_an_algorithm_with_a_critic_names_its_trainer(tmp_path: Path, model: str) -> None:
    with pytest.raises(ValueError, match="ppo needs a critic; use .*AgentPPOTrainer"):
        trainer(tmp_path, model, MIXED, algorithm="ppo")


@pytest.mark.parametrize("algorithm", ["prime", "turn_grpo"])
def test_process_rewards_need_to_be_told_from_the_outcome(tmp_path: Path, model: str, algorithm: str) -> None:
    with pytest.raises(ValueError, match=r"Test/Canned-v0 does not; .*info\['outcome_reward'\]"):
        batch(trainer(tmp_path, model, MIXED, algorithm=algorithm))
    told = [dataclasses.replace(episode, outcome_reward=episode.reward) for episode in MIXED]
    assert batch(trainer(tmp_path, model, told, algorithm=algorithm))["advantages"].any()


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_names_its_episode(tmp_path: Path, model: str, reward: float) -> None:
    episodes = [*MIXED[:5], dataclasses.replace(growing(3, 5, reward), seed=17), *MIXED[6:]]
    text = f"the reward of step 2 of the episode of task 'task-5' with seed 17 is {reward}; it must be finite"
    with pytest.raises(ValueError, match=text):
        batch(trainer(tmp_path, model, episodes))
