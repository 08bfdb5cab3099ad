"""PPO: advantages and returns from a critic, and a critic that goes with the policy through a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import GRPOConfig

from agent_r1_env import train
from agent_r1_env.critic_settings import CriticSettings
from agent_r1_env.episode import Episode, Step
from agent_r1_env.errors import RecipeError, UnknownName
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.ppo import AgentPPOTrainer, state_weights
from agent_r1_env.testing import sum_env, tiny_llama
from agent_r1_env.valued import Reading

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("model"), layers=1))


def config(folder: Path, **changes: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "max_completion_length": 16,
        "max_steps": 4,
        "learning_rate": 1e-3,
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


def trainer(
    folder: Path, model: Any, episodes: Sequence[Episode], *, args: Any = None, **options: Any
) -> AgentPPOTrainer:
    made = AgentPPOTrainer(
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


def batch(made: AgentPPOTrainer, count: int = 2) -> dict[str, Any]:
    return made._generate_and_score_completions([{"prompt": "question", "task": 0}] * count)


def step(prompt: Sequence[int], response: Sequence[int], reward: float = 0.0) -> Step:
    return Step(tuple(prompt), tuple(response), (-1.0,) * len(response), reward)


def episode(*steps: Step, **changes: Any) -> Episode:
    return Episode("Test/Canned-v0", "task", 0, 0, steps, **{"terminated": True, **changes})


# Two replies of which the second is paid, and one that was cut off, whose next prompt is worth 0.8.
ANSWERED = episode(step([5, 6], [7, 8]), step([5, 6, 7, 8, 9], [10, 11, 12], 1.0))
CUT = episode(step([5, 6], [20]), terminated=False, truncated=True, next_prompt_ids=(5, 6, 20, 21))
WORTH = {(5, 6): 0.5, (5, 6, 7, 8, 9): 0.3, (5, 6, 20, 21): 0.8}


class Told:
    """A critic that is told what prompts are worth, and writes down what it shall learn."""

    longest = None

    def __init__(self, worth: dict[tuple[int, ...], float], **settings: Any) -> None:
        self.worth, self.settings = worth, CriticSettings(**settings)
        self.asked: list[tuple[int, ...]] = []
        self.lessons: list[tuple[Any, ...]] = []

    def values(self, readings: Sequence[Reading]) -> list[float]:
        prompts = [tuple(reading.ids[:end]) for reading in readings for end in reading.ends]
        self.asked += prompts
        return [self.worth[prompt] for prompt in prompts]

    def learn(self, *lesson: Any) -> dict[str, float]:
        self.lessons.append(lesson)
        return {"loss": 0.0}


def told(made: AgentPPOTrainer, worth: dict[tuple[int, ...], float] = WORTH, **settings: Any) -> Told:
    made.critic = Told(worth, **settings)  # type: ignore[assignment]
    return made.critic  # type: ignore[return-value]


EXACT: dict[str, Any] = {"credit": {"gamma": 0.9, "lam": 0.5, "whiten": False}}
SECOND = 1.0 - 0.3
FIRST = 0.9 * 0.3 - 0.5 + 0.9 * 0.5 * SECOND
LAST = 0.9 * 0.8 - 0.5


@pytest.mark.parametrize("merge", [True, False])
def test_advantages_are_gae_over_steps_by_hand(tmp_path: Path, model: str, merge: bool) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], merge=merge, **EXACT)
    told(made)
    output = batch(made)
    mask = (output["completion_mask"] * output["tool_mask"]).bool()
    found = output["advantages"][mask].tolist()
    assert found == pytest.approx([FIRST] * 2 + [SECOND] * 3 + [LAST])
    assert not output["advantages"][~mask].any()


def test_the_critic_learns_returns_in_which_episodes_weigh_the_same(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], **EXACT)
    critic = told(made)
    batch(made)
    ((readings, old, returns, weights),) = critic.lessons
    assert [tuple(reading.ids) for reading in readings] == [(5, 6), (5, 6, 7, 8, 9), (5, 6)]
    assert old.tolist() == [0.5, 0.3, 0.5]
    assert returns.tolist() == pytest.approx([FIRST + 0.5, 1.0, LAST + 0.5])
    assert weights.tolist() == [0.25, 0.25, 0.5]
    logged = made._metrics["train"]
    assert logged["critic/value"] == [pytest.approx(0.25 * 0.5 + 0.25 * 0.3 + 0.5 * 0.5)]
    assert logged["critic/return"] == [pytest.approx(float(weights @ returns))]


def test_a_truncated_episode_may_end_in_nothing(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], **EXACT)
    critic = told(made, bootstrap=False)
    output = batch(made)
    assert output["advantages"][1, 0] == pytest.approx(-0.5)
    assert (5, 6, 20, 21) not in critic.asked


def test_a_terminated_episode_ends_in_nothing(tmp_path: Path, model: str) -> None:
    over = episode(step([5, 6], [20]), terminated=True, truncated=True, next_prompt_ids=(5, 6, 20, 21))
    made = trainer(tmp_path, model, [ANSWERED, over], **EXACT)
    told(made)
    assert batch(made)["advantages"][1, 0] == pytest.approx(-0.5)


def test_reward_outside_a_step_belongs_to_the_last(tmp_path: Path, model: str) -> None:
    paid = episode(
        step([5, 6], [20]),
        terminated=False,
        truncated=True,
        next_prompt_ids=(5, 6, 20, 21),
        truncation_reward=0.4,
    )
    made = trainer(tmp_path, model, [ANSWERED, paid], **EXACT)
    told(made)
    assert batch(made)["advantages"][1, 0] == pytest.approx(LAST + 0.4)


def test_advantages_are_whitened_over_the_steps_of_the_batch(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], credit={"gamma": 0.9, "lam": 0.5})
    critic = told(made)
    output = batch(made)
    raw = np.array([FIRST, SECOND, LAST])
    white = (raw - raw.mean()) / raw.std(ddof=1)
    found = [output["advantages"][0, 0], output["advantages"][0, 3], output["advantages"][1, 0]]
    assert [float(value) for value in found] == pytest.approx(white.tolist(), rel=1e-3)
    assert critic.lessons[0][2].tolist() == pytest.approx([FIRST + 0.5, 1.0, LAST + 0.5])


def test_values_of_two_steps_cannot_be_swapped_unseen(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], **EXACT)
    told(made, {**WORTH, (5, 6): WORTH[5, 6, 7, 8, 9], (5, 6, 7, 8, 9): WORTH[5, 6]})
    output = batch(made)
    assert abs(float(output["advantages"][0, 0]) - FIRST) > 0.1
    assert abs(float(output["advantages"][0, 3]) - SECOND) > 0.1


def test_a_broken_environment_teaches_the_critic_nothing(tmp_path: Path, model: str) -> None:
    broken = episode(step([5, 6], [30]), terminated=False, truncated=True, error="boom")
    made = trainer(tmp_path, model, [broken, ANSWERED], **EXACT)
    critic = told(made)
    output = batch(made)
    assert critic.asked == [(5, 6), (5, 6, 7, 8, 9)]
    assert critic.lessons[0][3].tolist() == [0.5, 0.5]
    assert output["advantages"][0, :2].tolist() == pytest.approx([FIRST] * 2)


def test_a_batch_without_a_step_is_legal(tmp_path: Path, model: str) -> None:
    nothing = episode(terminated=False, truncated=True, next_prompt_ids=(5, 6))
    made = trainer(tmp_path, model, [nothing, nothing])
    output = batch(made)
    assert not output["advantages"].any()
    assert made._metrics["train"]["critic/loss"] == [0.0]


def test_evaluation_teaches_the_critic_nothing(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], **EXACT)
    critic = told(made)
    made.model.eval()
    batch(made)
    assert critic.lessons == []
    assert "critic/value" in made._metrics["eval"]


def test_weights_of_states() -> None:
    owners = np.array([0, 0, 2])
    assert state_weights(owners, "episode").tolist() == [0.25, 0.25, 0.5]
    assert state_weights(owners, "step").tolist() == [1 / 3] * 3
    assert state_weights(owners[:0], "episode").tolist() == state_weights(owners[:0], "step").tolist() == []


# -- tokens as actions

TOKENS_WORTH = {
    (5, 6): 0.5,
    (5, 6, 7): 0.4,
    (5, 6, 7, 8): 0.2,
    (5, 6, 7, 8, 9): 0.3,
    (5, 6, 7, 8, 9, 10): 0.6,
    (5, 6, 7, 8, 9, 10, 11): 0.9,
    (5, 6, 20, 21): 0.8,
}
TD = {"credit": {"gamma": 0.9, "lam": 0.0, "whiten": False}}
INTO_OBSERVATION = 0.9 * 0.2 - 0.4
OBSERVATION = 0.9 * 0.3 - 0.2
MASKED = [0.9 * 0.4 - 0.5, 0.9 * 0.3 - 0.4, 0.0, 0.9 * 0.6 - 0.3, 0.9 * 0.9 - 0.6, 1 - 0.9]


def replaced(values: list[float], place: int, *new: float) -> list[float]:
    return [*values[:place], *new, *values[place + len(new) :]]


@pytest.mark.parametrize(
    ("tool_tokens", "loss_mask", "expected"),
    [
        (False, True, MASKED),
        (False, False, replaced(MASKED, 2, MASKED[1])),
        (True, True, replaced(MASKED, 1, INTO_OBSERVATION)),
        (True, False, replaced(MASKED, 1, INTO_OBSERVATION, OBSERVATION)),
    ],
)
def test_gae_over_tokens_with_and_without_those_of_tools(
    tmp_path: Path, model: str, tool_tokens: bool, loss_mask: bool, expected: list[float]
) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], loss_mask=loss_mask, **TD)
    critic = told(made, TOKENS_WORTH, level="token", tool_tokens=tool_tokens)
    output = batch(made)
    assert output["advantages"][0].tolist() == pytest.approx(expected)
    assert output["advantages"][1].tolist() == pytest.approx([LAST] + [0.0] * 5)
    assert ((5, 6, 7, 8) in critic.asked) == tool_tokens
    count = 6 if tool_tokens else 5
    assert critic.lessons[0][3].tolist() == pytest.approx([0.5 / count] * count + [0.5])
    assert made._metrics["train"]["agent/drift"] == [0.0]


def test_replies_of_one_token_make_both_levels_one(tmp_path: Path, model: str) -> None:
    short = episode(step([5, 6], [7]), step([5, 6, 7, 8], [10], 1.0))
    worth = {(5, 6): 0.5, (5, 6, 7, 8): 0.3}
    found = []
    for level in ("step", "token"):
        made = trainer(tmp_path, model, [short, short], **EXACT)
        told(made, worth, level=level)
        found.append(batch(made)["advantages"])
    assert found[0].abs().min(1).values.tolist() == [0, 0]
    assert torch.equal(*found)


def test_rows_of_a_rewritten_context_get_the_advantages_of_their_own_tokens(
    tmp_path: Path, model: str
) -> None:
    rewritten = episode(step([5, 6], [7]), step([40, 41], []), step([50], [10, 11], 1.0))
    worth = {(5, 6): 0.5, (50,): 0.3, (50, 10): 0.6}
    made = trainer(tmp_path, model, [rewritten, CUT], **TD)
    told(made, {**worth, (5, 6, 20, 21): 0.8}, level="token", tool_tokens=True)
    output = batch(made)["advantages"]
    assert [row[:2].tolist() for row in output[:3]] == [
        pytest.approx([0.9 * 0.3 - 0.5, 0]),
        pytest.approx([0.9 * 0.6 - 0.3, 1 - 0.6]),
        pytest.approx([LAST, 0]),
    ]


def test_a_run_may_take_tokens_for_actions(tmp_path: Path, model: str) -> None:
    made = trainer(tmp_path, model, [ANSWERED, CUT], critic={"level": "token", "tool_tokens": True})
    made.train()
    log = [entry for entry in made.state.log_history if "critic/loss" in entry]
    assert log[-1]["critic/loss"] < log[0]["critic/loss"]


# -- a run


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in module.parameters()]).clone()


def test_while_the_critic_warms_up_the_policy_waits(tmp_path: Path, model: str) -> None:
    args = config(tmp_path, max_steps=2, weight_decay=0.1)
    made = trainer(tmp_path, model, [ANSWERED, CUT], args=args, critic={"warmup": 2})
    policy, critic = weights(made.model), weights(made.critic.model)
    made.train()
    assert torch.equal(weights(made.model), policy)
    assert not torch.equal(weights(made.critic.model), critic)
    after = trainer(tmp_path, model, [ANSWERED, CUT], args=args, critic={"warmup": 1})
    after.train()
    assert not torch.equal(weights(after.model), policy)


def test_both_learning_rates_end_with_the_run(tmp_path: Path, model: str) -> None:
    args = config(tmp_path, num_iterations=2, gradient_accumulation_steps=2, lr_scheduler_type="linear")
    made = trainer(
        tmp_path, model, [ANSWERED, CUT] * 2, args=args, critic={"learning_rate": 0.5, "epochs": 3}
    )
    policy = weights(made.model)
    made.train()
    log = [entry for entry in made.state.log_history if "critic/loss" in entry]
    assert [entry["critic/learning_rate"] for entry in log] == [0.5, 0.25]  # two batches in four updates
    assert made.critic.optimizer.param_groups[0]["lr"] == 0
    assert not torch.equal(weights(made.model), policy)
    assert all(entry["agent/drift"] == 0 for entry in log)


def test_the_critic_learns_at_the_rate_of_the_policy_or_faster(tmp_path: Path, model: str) -> None:
    assert trainer(tmp_path, model, [CUT]).critic.settings.learning_rate == 1e-3
    slow = trainer(tmp_path, model, [CUT], args=config(tmp_path, learning_rate=1e-6))
    assert slow.critic.settings.learning_rate == 1e-5


@pytest.mark.parametrize("shared", [False, True])
def test_a_resumed_run_gives_the_numbers_of_one_without_a_break(
    tmp_path: Path, model: str, shared: bool
) -> None:
    options: dict[str, Any] = {"critic": {"model": "shared"} if shared else {}}
    args = config(tmp_path, save_strategy="steps", save_steps=2)
    whole = trainer(tmp_path, model, [ANSWERED, CUT], args=args, **options)
    whole.train()
    resumed = trainer(tmp_path, model, [ANSWERED, CUT], args=args, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(weights(resumed.critic.model), weights(whole.critic.model))
    assert torch.equal(weights(resumed.model), weights(whole.model))
    names = ("critic/loss", "critic/value", "critic/explained_variance", "critic/learning_rate")
    pairs = zip(whole.state.log_history, resumed.state.log_history, strict=True)
    assert [[one.get(name) for name in names] for one, _ in pairs][2:4] == [
        [entry.get(name) for name in names] for entry in resumed.state.log_history[2:4]
    ]


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path, model: str) -> None:
    args = config(tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    data = Dataset.from_list([{"prompt": "question", "task": 0}] * 8)
    AgentGRPOTrainer(
        model, "Test/Canned-v0", args, train_dataset=data, rollout=lambda requests: [ANSWERED, CUT]
    ).train()
    made = trainer(tmp_path, model, [ANSWERED, CUT], args=config(tmp_path))
    with pytest.raises(FileNotFoundError, match="has no critic to go on with"):
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.mark.parametrize("kind", ["policy", "shared"])
def test_a_policy_of_adapters_has_a_critic(tmp_path: Path, model: str, kind: str) -> None:
    peft = pytest.importorskip("peft")
    made = trainer(
        tmp_path,
        model,
        [ANSWERED, CUT],
        peft_config=peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]),
        critic={"model": kind},
    )
    made.train()
    values = [entry["critic/value"] for entry in made.state.log_history if "critic/value" in entry]
    assert values[0] == 0 and values[-1] > 0


def test_a_critic_cannot_be_a_copy_of_adapters(tmp_path: Path, model: str) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    adapted = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(model), peft.LoraConfig(target_modules=["q_proj"])
    )
    with pytest.raises(ValueError, match="holds adapters already"):
        trainer(tmp_path, adapted, [CUT])


def test_a_model_in_memory_is_copied_for_the_critic(tmp_path: Path, model: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    made = trainer(tmp_path, policy, [ANSWERED, CUT], processing_class=tokenizer)
    other = trainer(tmp_path, model, [ANSWERED, CUT])
    assert torch.equal(weights(made.critic.model), weights(other.critic.model))


def test_settings_are_checked_before_the_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no setting of the critic named 'epoch'.*did you mean 'epochs'"):
        AgentPPOTrainer("nowhere", "Test/Canned-v0", critic={"epoch": 2})
    with pytest.raises(ValueError, match="ppo needs a critic; use agent_r1_env.ppo.AgentPPOTrainer"):
        AgentGRPOTrainer("nowhere", "Test/Canned-v0", algorithm="ppo")


TWO_SIDES = """
import json, os, sys
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
from test_ppo import PLAYED, config, trainer

folder, side = Path(sys.argv[3]), int(os.environ["RANK"])
args = config(folder, per_device_train_batch_size=2, num_generations=4, learning_rate=1e-4, max_steps=3)
made = trainer(folder, sys.argv[2], PLAYED[2 * side : 2 * side + 2], args=args)
made.train()
if side == 0:
    (folder / "log.json").write_text(json.dumps(made.state.log_history))
torch.save([made.critic.model.state_dict(), made.model.state_dict()], folder / f"side-{side}.pt")
"""
BROKEN = episode(step([5, 6, 30], [31, 32]), terminated=False, truncated=True, error="boom")
PLAYED = [BROKEN, ANSWERED, CUT, episode(step([40], [41], 0.5))]


@pytest.mark.slow
def test_two_processes_train_the_policy_and_the_critic_of_one(tmp_path: Path, model: str) -> None:
    args = config(tmp_path, per_device_train_batch_size=4, num_generations=4, learning_rate=1e-4, max_steps=3)
    alone = trainer(tmp_path, model, PLAYED, args=args)
    alone.train()
    script = tmp_path / "script.py"
    script.write_text(TWO_SIDES)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, str(script), str(Path(__file__).parent), model, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sides = [torch.load(tmp_path / f"side-{side}.pt") for side in range(2)]
    for one, other in zip(*sides, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    log = json.loads((tmp_path / "log.json").read_text())
    for entry, expected in zip(log[:3], alone.state.log_history[:3], strict=True):
        for name in ("value", "return", "explained_variance", "loss", "clip_fraction", "grad_norm"):
            assert entry[f"critic/{name}"] == pytest.approx(expected[f"critic/{name}"], rel=1e-3, abs=1e-6)
        assert entry["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)


# -- recipes

RECIPE = """\
name: sums
model: ./model
env: PPOTest/Sums-v0
env_kwargs: {count: 12, max_steps: 2}
eval: {episodes: 4}
trl:
  max_steps: 2
  num_generations: 4
  per_device_train_batch_size: 8
  max_completion_length: 6
  learning_rate: 1e-3
  gradient_checkpointing: false
  save_steps: 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    if "PPOTest/Sums-v0" not in gym.registry:
        gym.register("PPOTest/Sums-v0", sum_env)
    tiny_llama(tmp_path / "model", layers=1)
    path = tmp_path / "sums.yaml"
    path.write_text(RECIPE)
    return path


def test_one_key_makes_any_recipe_one_of_ppo(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    changes = {"algorithm": "ppo", "credit.lam": 0.9, "critic.epochs": 2}
    train.run(recipe, output=out, overrides=changes, quiet=True)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    logged = [entry for entry in map(json.loads, lines) if "critic/loss" in entry]
    assert [entry["step"] for entry in logged] == [1, 2]
    assert all(entry["agent/drift"] == 0 and "critic/explained_variance" in entry for entry in logged)
    assert logged[0]["agent/truncated_fraction"] > 0  # bootstrapped from the environment's own next prompt
    for folder in ("checkpoint-2", "policy"):
        assert (out / folder / "critic" / "model.safetensors").is_file()
    assert (out / "checkpoint-2" / "critic" / "optimizer.pt").is_file()


def test_a_wrong_key_of_the_critic_is_told_with_its_place(recipe: Path) -> None:
    with pytest.raises(RecipeError, match=r"sums.yaml:15:10: unknown key 'warm_up'; did you mean 'warmup'"):
        train.run(recipe_of(recipe, "critic: {warm_up: 3}"))
    with pytest.raises(RecipeError, match=r"sums.yaml:15:18: key 'critic.epochs' must be at least 1"):
        train.run(recipe_of(recipe, "critic: {epochs: 0}"))
    with pytest.raises(RecipeError, match=r"sums.yaml:\d+:\d+: critic.tool_tokens needs critic.level: token"):
        train.run(recipe_of(recipe, "critic: {tool_tokens: true}"))
    with pytest.raises(RecipeError, match=r"sums.yaml:15:1: critic.model: cannot load './nowhere'"):
        train.run(recipe_of(recipe, "critic: {model: ./nowhere}"), output=recipe.parent / "out", quiet=True)


def recipe_of(path: Path, line: str) -> Path:
    path.write_text(f"{RECIPE}algorithm: ppo\n{line}\n")
    return path
