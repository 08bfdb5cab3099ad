"""Whole training runs: what they leave on disk, how they go on after a kill, and vLLM beside the trainer."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import pytest

pytest.importorskip("trl")

from trl import GRPOConfig

from agent_r1_env import health, metrics, train
from agent_r1_env.catalog import builtin_root
from agent_r1_env.episode import read_episodes
from agent_r1_env.errors import RecipeError
from agent_r1_env.health import Monitor
from agent_r1_env.heldout import HeldOut
from agent_r1_env.progress import Progress
from agent_r1_env.recipe import load
from agent_r1_env.recorder import Recorder
from agent_r1_env.results import NothingToResume, Results, RunExists
from agent_r1_env.testing import sum_env, tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

RECIPE = """\
name: sums
model: ./model
env: Test/Sums-v0
env_kwargs: {{count: 12, max_steps: 2}}
eval: {{episodes: 4}}
trl:
  max_steps: {steps}
  num_generations: 4
  per_device_train_batch_size: 8
  max_completion_length: 6
  learning_rate: 1e-3
  gradient_checkpointing: false
  save_steps: 1
"""
FILES = [
    *(
        "episodes.jsonl",
        "eval_after.jsonl",
        "eval_before.jsonl",
        "eval_1.jsonl",
        "metrics.jsonl",
        "reward.png",
    ),
    *("run.json", "best/best.json", "best/model.safetensors", "best/tokenizer.json"),
]


@pytest.fixture(scope="module", autouse=True)
def _environment() -> None:
    gym.register("Test/Sums-v0", sum_env)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path)


def write_recipe(folder: Path, steps: int = 2) -> Path:
    tiny_llama(folder / "model", layers=1)
    path = folder / "sums.yaml"
    path.write_text(RECIPE.format(steps=steps))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two updates with an evaluation after the first, and ``screen.txt`` of it."""
    folder = tmp_path_factory.mktemp("finished")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        changes = {"eval.every": 1, "save_total_limit": 1}
        found = train.run(write_recipe(folder), output=folder / "out", seed=3, overrides=changes)
    assert found["after"] == json.loads((folder / "out" / "run.json").read_text())["after"]
    (folder / "out" / "screen.txt").write_text(out.getvalue() + err.getvalue())
    return folder / "out"


def test_a_run_leaves_everything_that_it_promises(finished: Path) -> None:
    assert [name for name in FILES if not (finished / name).exists()] == []
    assert [entry["step"] for entry in Results(finished).logged()] == [1, 2]
    assert {entry["agent/drift"] for entry in Results(finished).logged()} == {0}
    assert [e.policy_version for e in read_episodes(finished / "episodes.jsonl")] == [0] * 8 + [1] * 8
    assert len(list(read_episodes(finished / "eval_before.jsonl"))) == 4
    notes = json.loads((finished / "run.json").read_text())
    assert (notes["state"], notes["seed"], notes["steps"]) == ("finished", 3, 2)
    assert notes["versions"]["trl"].startswith("1.16")
    screen = (finished / "screen.txt").read_text()
    assert "EM " in screen and "reward.png" in screen and "--model" in screen
    assert "training 2/2  reward" in screen
    assert "held-out tasks after update 1: exact_match 0.000, the best so far" in screen


def test_every_logged_number_is_documented_and_in_its_range(finished: Path) -> None:
    for entry in (*Results(finished).logged(), *Results(finished).evaluated()):
        for name, value in entry.items():
            if name != "step" and value is not None:
                known = metrics.describe(name)
                assert known.low <= value <= known.high, name
    assert "agent/tokens_per_reply" in entry or "agent/tokens_per_reply" in Results(finished).logged()[0]


def test_evaluations_play_the_same_tasks_each_time(finished: Path) -> None:
    played = [
        sorted((e.task_id, e.seed) for e in read_episodes(finished / f"eval_{when}.jsonl"))
        for when in ("before", "1", "after")
    ]
    assert played[0] == played[1] == played[2]
    assert [entry["step"] for entry in Results(finished).evaluated()] == [0, 1, 2]
    assert {entry["eval/episodes"] for entry in Results(finished).evaluated()} == {4}


def test_the_best_policy_outlives_its_checkpoint(finished: Path) -> None:
    assert Results(finished).best_record() == {"step": 1, "metric": "exact_match", "value": 0.0}
    assert [path.name for path in finished.glob("checkpoint-*")] == ["checkpoint-2"]


def test_the_same_seed_gives_the_same_run_evaluated_or_not(
    finished: Path, recipe: Path, tmp_path: Path
) -> None:
    train.run(recipe, output=tmp_path / "out", seed=3, quiet=True)
    replies = []
    for folder in (finished, tmp_path / "out"):
        episodes = read_episodes(folder / "episodes.jsonl")
        replies.append(sorted((e.policy_version, e.group, *(s.reply for s in e.steps)) for e in episodes))
    assert replies[0] == replies[1]
    assert not (tmp_path / "out" / "best").exists()


def test_the_trained_policy_loads_with_its_tokenizer(recipe: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # A random policy is never paid; weight decay moves its weights all the same.
    train.run(recipe, output=tmp_path / "out", overrides={"weight_decay": 0.5}, quiet=True)
    policy = tmp_path / "out" / "policy"
    assert AutoTokenizer.from_pretrained(policy).chat_template
    weights = [
        AutoModelForCausalLM.from_pretrained(folder).lm_head.weight for folder in (policy, tmp_path / "model")
    ]
    assert not weights[0].equal(weights[1])


def test_evaluated_tasks_are_kept_out_of_training(recipe: Path, tmp_path: Path) -> None:
    train.run(recipe, output=tmp_path / "out", overrides={"env_kwargs.count": 6}, quiet=True)
    evaluated = {e.task_id for e in read_episodes(tmp_path / "out" / "eval_before.jsonl")}
    trained = {e.task_id for e in read_episodes(tmp_path / "out" / "episodes.jsonl")}
    assert len(evaluated) == 4
    assert len(trained) == 2
    assert not evaluated & trained


def test_holding_out_every_task_is_refused(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="all 4 tasks are held out"):
        train.run(recipe, output=tmp_path / "out", overrides={"env_kwargs.count": 4}, quiet=True)


def test_a_recipe_may_leave_the_wire_format_to_the_model(recipe: Path, tmp_path: Path) -> None:
    train.run(recipe, output=tmp_path / "out", overrides={"env_kwargs.format": "auto"}, quiet=True)
    assert len(list(read_episodes(tmp_path / "out" / "eval_after.jsonl"))) == 4
    assert len(list(read_episodes(tmp_path / "out" / "episodes.jsonl"))) == 16


def test_advice_names_settings_of_trl_that_exist() -> None:
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    for _, advice in health._RULES.values():
        assert set(re.findall(r"trl\.(\w+)", advice)) <= known


def test_a_resumed_run_does_not_repeat_its_warnings(tmp_path: Path) -> None:
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=9)
    told = io.StringIO()
    for begin in (1, 4):
        recorder = Recorder(Results(tmp_path), Progress(stream=told), Monitor())
        recorder.on_train_begin(None, state, None)
        for state.global_step in range(begin, begin + 3):
            recorder.on_log(None, state, None, {"reward": 0.5, "agent/truncated_fraction": 1.0})
    assert told.getvalue().count("warning: truncation, updates 1 to 3") == 1
    assert [each["step"] for each in Results(tmp_path).warnings()] == [3]


class Untrained:
    """What `HeldOut.keep` asks of a trainer."""

    accelerator = SimpleNamespace(is_main_process=True)

    def save_model(self, folder: str) -> None:
        Path(folder).mkdir()


def test_the_best_is_the_highest_score_and_of_equals_the_first(recipe: Path, tmp_path: Path) -> None:
    results = Results(tmp_path)
    plan = load(recipe, {"eval.best": "reward"})
    held_out = HeldOut(plan, cast(Any, Untrained()), results, Progress(quiet=True))
    scores = [0.3, None, 0.5, 0.5, 0.4, 0.6]
    kept = [
        held_out.keep(step, {"metrics": {}, "reward": {"mean": value}})
        for step, value in enumerate(scores, 1)
    ]
    assert kept == [True, False, True, False, False, True]
    assert results.best_record() == {"step": 6, "metric": "reward", "value": 0.6}
    assert sorted(path.name for path in tmp_path.glob(".best*")) == []


def test_a_folder_with_a_run_is_not_overwritten(recipe: Path, tmp_path: Path) -> None:
    Results(tmp_path / "out").folder.mkdir()
    Results(tmp_path / "out").note(state="finished")
    with pytest.raises(RunExists, match="go on with --resume"):
        train.run(recipe, output=tmp_path / "out", quiet=True)


def test_there_must_be_a_run_to_resume(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingToResume, match="no run in .*out to resume"):
        train.run(recipe, output=tmp_path / "out", resume=True, quiet=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"learning_rat": 1.0},
            r"sums.yaml:6:1: trl.GRPOConfig has no 'learning_rat'; did you mean 'learning_rate'",
        ),
        ({"num_generations": 3}, r"sums.yaml:8:3: .*divisible by num_generations \(3\)$"),
        ({"loss_type": "vespo"}, r"sums.yaml:6:1: .*vespo"),
        ({"eval.every": 1, "eval.episodes": 0}, r"sums.yaml:5:\d+: every needs episodes"),
        ({"health.entropy": 0.1}, r"sums.yaml:.*no limit named 'entropy'.*did you mean 'entropy_low'"),
        ({"eval.best": "exact_mach"}, r"sums.yaml:5:\d+: .*did you mean 'exact_match'"),
        ({"model": "./nowhere"}, r"sums.yaml:2:1: there is no folder ./nowhere"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_told_with_its_place(
    recipe: Path, tmp_path: Path, changes: Any, told: str
) -> None:
    with pytest.raises(RecipeError, match=told):
        train.run(recipe, output=tmp_path / "out", overrides=changes, quiet=True)


SCRIPT = """
import sys
import gymnasium as gym
from agent_r1_env import train
from agent_r1_env.testing import sum_env

gym.register("Test/Sums-v0", sum_env)
if __name__ == "__main__":
    train.run(sys.argv[1], output=sys.argv[2], resume="--resume" in sys.argv, quiet=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def wait_for(condition: Any, process: subprocess.Popen[Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"the run ended early with {process.returncode}"
        assert time.monotonic() < end, "the run did not get far enough in time"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_run_stays_readable_and_goes_on(tmp_path: Path, script: Path) -> None:
    recipe, out = write_recipe(tmp_path, steps=60), tmp_path / "out"
    process = subprocess.Popen([sys.executable, script, recipe, out])
    wait_for(lambda: (out / "checkpoint-4" / "trainer_state.json").exists(), process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    results = Results(out)
    played = [episode.policy_version for episode in read_episodes(results.episodes)]
    checkpoint = results.last_checkpoint()
    assert checkpoint is not None and len(played) >= 8 * 4
    done = int(checkpoint.name.rpartition("-")[2])
    torn = out / f"checkpoint-{done + 1}"  # as a kill in the middle of saving leaves it
    torn.mkdir(exist_ok=True)
    (torn / "model.safetensors").write_bytes(b"half")
    before = (out / "eval_before.jsonl").read_bytes()

    recipe.write_text(RECIPE.format(steps=done + 2))
    subprocess.run([sys.executable, script, recipe, out, "--resume"], check=True, timeout=240)

    assert [entry["step"] for entry in results.logged()] == list(range(1, done + 3))
    versions = [episode.policy_version for episode in read_episodes(results.episodes)]
    assert versions[: len(played)] == played
    assert versions[len(played) :] == [done] * 8 + [done + 1] * 8
    assert (out / "eval_before.jsonl").read_bytes() == before
    assert results.notes()["state"] == "finished"


@pytest.mark.slow
def test_two_processes_train_one_policy(tmp_path: Path, script: Path) -> None:
    recipe, out = write_recipe(tmp_path), tmp_path / "out"
    recipe.write_text(recipe.read_text().replace("episodes: 4", "episodes: 4, every: 1"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    finished = subprocess.run([*launch, script, recipe, out], capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr[-3000:]
    logged = Results(out).logged()
    assert [entry["step"] for entry in logged] == [1, 2]
    assert {entry["agent/drift"] for entry in logged} == {0}
    assert [entry["step"] for entry in Results(out).evaluated()] == [0, 1, 2]
    assert (out / "best" / "model.safetensors").exists()
    episodes = list(read_episodes(out / "episodes.jsonl"))
    assert len(episodes) == 2 * 16
    assert {episode.group for episode in episodes} == {0, 1, 2, 3}


VLLM = """
import json, sys
import agent_r1_env
from trl import GRPOConfig
from agent_r1_env.grpo import AgentGRPOTrainer
from agent_r1_env.lora import Lora

SETTINGS = dict(
    use_vllm=True, vllm_max_model_length=1024, use_cpu=True, gradient_checkpointing=False,
    max_steps=2, num_generations=8, per_device_train_batch_size=16, max_completion_length=48,
    learning_rate=5e-3, lr_scheduler_type="constant",
    logging_steps=1, report_to="none", save_strategy="no", disable_tqdm=True,
)

if __name__ == "__main__":
    data = {"split": "train", "source": "embedded"}
    args = GRPOConfig(sys.argv[2], **SETTINGS)
    adapter = Lora(r=8, alpha=32).config() if sys.argv[4] == "adapter" else None
    trainer = AgentGRPOTrainer(
        sys.argv[1], "AgentR1/HotpotQA-v0", args, env_kwargs=data, peft_config=adapter
    )
    trainer.train()
    trainer.close()
    json.dump([entry for entry in trainer.state.log_history if "reward" in entry], open(sys.argv[3], "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["all weights", "adapter"])
def test_vllm_and_the_trainer_agree_before_and_after_an_update(tmp_path: Path, trained: str) -> None:
    """The second batch is sampled with weights that moved far, so that a stale weight in vLLM shows."""
    pytest.importorskip("vllm")
    if trained == "adapter":
        pytest.importorskip("peft")
    policy = builtin_root() / "trainers" / "quickstart" / "policy"
    if not policy.is_dir():
        pytest.skip(f"no quickstart policy at {policy}")
    script = tmp_path / "script.py"
    script.write_text(VLLM)
    command: list[Any] = [sys.executable, script, policy, tmp_path / "out", tmp_path / "log.json", trained]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr[-3000:]
    log = json.loads((tmp_path / "log.json").read_text())
    assert len(log) == 2
    assert log[0]["grad_norm"] > 0
    for entry in log:
        assert entry["sampling/sampling_logp_difference/mean"] < 1e-4
        assert entry["sampling/sampling_logp_difference/max"] < 1e-2
        assert entry["agent/drift"] == 0
