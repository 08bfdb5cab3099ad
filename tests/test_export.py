"""Episodes as data sets: what is written comes back, and nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_r1_env import export
from agent_r1_env.cli import main
from agent_r1_env.episode import Episode, EpisodeFile, Step
from agent_r1_env.errors import UnknownName
from agent_r1_env.overlong import Limit

PAD = 99


def turn(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def grown(reward: float, group: int = 0) -> Episode:
    """Two steps in a context that grew: one row."""
    steps = [
        Step([1, 2], [10, 11], [-0.1, -0.2], reward=0.25, reply="call", messages=[turn("user", "q")]),
        Step(
            [1, 2, 10, 11, 3],
            [12],
            [-0.3],
            reward=reward - 0.25,
            reply="answer",
            kept=1,
            messages=[turn("assistant", "call"), turn("tool", "r", tool_call_id="c0", name="t")],
        ),
    ]
    tools = [
        {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
    ]
    return Episode("Test/E-v0", "task", 0, group, steps, policy_version=3, tools=tools)


def rewritten() -> Episode:
    """Two steps, the second of which sees a summary: two rows."""
    steps = [
        Step([1, 2], [10], [-0.1], reward=0.0, reply="call", messages=[turn("user", "q")]),
        Step([7], [12, 13], [-0.3, -0.4], reward=1.0, reply="answer", messages=[turn("user", "summary")]),
    ]
    return Episode("Test/E-v0", "task", 0, 0, steps, truncation_reward=0.5, policy_version=3)


EPISODES = [grown(1.0), grown(0.0), rewritten()]


def read(path: Path) -> list[dict[str, Any]]:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    if path.is_dir():
        made = datasets.load_from_disk(str(path))
    else:
        kind = {".parquet": "parquet", ".jsonl": "json"}[path.suffix]
        made = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=path.parent / "c")
    return list(made)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows"])
def test_rows_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    pytest.importorskip("datasets")
    given = export.advantages(EPISODES)
    batch = export.rows(EPISODES, given)
    export.write(list(export.row_records(batch, EPISODES)), tmp_path / name)
    again = export.read_rows(read(tmp_path / name))
    assert len(again) == 4
    for old, new in zip(batch, again, strict=True):
        same = replace(new, logprobs=old.logprobs, advantages=old.advantages)
        assert same == old
        assert new.logprobs == pytest.approx(old.logprobs)
        assert new.advantages == pytest.approx(old.advantages)


def test_a_row_holds_prompt_and_completion_in_one() -> None:
    (record, *_) = export.row_records(export.rows(EPISODES, [[1, 2], [3, 4], [5, 6]]), EPISODES)
    assert record["input_ids"] == [1, 2, 10, 11, 3, 12]
    assert record["loss_mask"] == record["advantage_mask"] == [0, 0, 1, 1, 0, 1]
    assert record["advantages"] == [0, 0, 1, 1, 0, 2]
    assert record["logprobs"] == [0, 0, -0.1, -0.2, 0, -0.3]
    assert record["position_ids"] == [0, 1, 2, 3, 4, 5]
    assert (record["prompt_length"], record["reward"], record["policy_version"]) == (2, 1.0, 3)


def test_advantages_compare_tries_at_one_task_by_the_same_weights() -> None:
    pair = [grown(1.0), grown(0.0)]
    assert export.advantages(pair, "rloo") == [[1.0, 1.0], [-1.0, -1.0]]
    apart = [grown(1.0), replace(grown(0.0), policy_version=4)]
    assert export.advantages(apart) == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(UnknownName, match="did you mean 'rloo'"):
        export.advantages(pair, "rlo")


def test_a_broken_environment_moves_no_baseline_and_has_no_row() -> None:
    broken = replace(grown(9.0), error="boom")
    three = [grown(1.0), broken, grown(0.0)]
    assert export.advantages(three, "rloo") == [[1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]]
    assert [row.episode for row in export.rows(three)] == [0, 2]


def test_limits_are_applied_to_rows() -> None:
    assert [row.cut for row in export.rows(EPISODES, limit=Limit(4))] == [1, 1, 0, 0]


def test_verl_gets_its_layout() -> None:
    records = list(export.verl_records(export.rows(EPISODES), EPISODES, PAD))
    assert records[0] == {
        "prompts": [1, 2],
        "responses": [10, 11, 3, 12],
        "response_mask": [1, 1, 0, 1],
        "input_ids": [1, 2, 10, 11, 3, 12],
        "attention_mask": [1] * 6,
        "position_ids": [0, 1, 2, 3, 4, 5],
        "rollout_log_probs": [-0.1, -0.2, 0.0, -0.3],
        "rm_scores": [0.0, 0.0, 0.0, 1.0],
        "uid": "Test/E-v0/task/0/3",
        "__num_turns__": 4,
        "data_source": "Test/E-v0",
        "agent_name": "agent_r1_env",
    }
    last = records[3]
    assert last["prompts"] == [PAD, 7]
    assert last["responses"] == [12, 13, PAD, PAD]
    assert last["attention_mask"] == [0, 1, 1, 1, 0, 0]
    assert last["position_ids"][:4] == [0, 0, 1, 2]
    assert last["response_mask"] == [1, 1, 0, 0]


@pytest.mark.parametrize("step_rewards", [False, True])
def test_the_scores_of_an_episode_sum_to_its_reward(step_rewards: bool) -> None:
    batch = export.rows(EPISODES)
    records = list(export.verl_records(batch, EPISODES, PAD, step_rewards=step_rewards))
    for number, episode in enumerate(EPISODES):
        own = [record for record, row in zip(records, batch, strict=True) if row.episode == number]
        assert sum(sum(record["rm_scores"]) for record in own) == pytest.approx(episode.reward)
    assert records[0]["rm_scores"] == ([0, 0.25, 0, 0.75] if step_rewards else [0, 0, 0, 1.0])


def test_conversations_hold_each_reply_as_trainable_once() -> None:
    first, _, third, fourth = export.sft_records(EPISODES)
    assert [(m["role"], m["content"], m["trainable"]) for m in first["messages"]] == [
        ("user", "q", False),
        ("assistant", "call", True),
        ("tool", "r", False),
        ("assistant", "answer", True),
    ]
    assert first["messages"][2]["tool_call_id"] == "c0"
    assert [m["content"] for m in third["messages"]] == ["q", "call"]
    assert [m["content"] for m in fourth["messages"]] == ["summary", "answer"]


def test_a_reply_that_is_shown_again_is_not_taught_twice() -> None:
    steps = [
        Step([], [], [], reply="a", messages=[turn("user", "q")]),
        Step([], [], [], reply="b", messages=[turn("user", "Q!"), turn("assistant", "a"), turn("user", "p")]),
    ]
    found = list(export.sft_records([Episode("Test/E-v0", None, None, 0, steps)]))
    taught = [m["content"] for each in found for m in each["messages"] if m["trainable"]]
    assert taught == ["a", "b"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "episodes.jsonl"
    with EpisodeFile(path) as written:
        for episode in (*EPISODES, replace(grown(1.0), error="boom")):
            written.append(episode)
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], file: Path) -> Run:
    pytest.importorskip("datasets")

    def run(*arguments: Any, of: Path = file) -> tuple[int, str, str]:
        status = main(["export", str(of), *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_the_command_says_what_it_left_out(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "made" / "rows.parquet"
    status, said, _ = run("--to", "parquet", "--out", out, "--max-tokens", 4, "--min-reward", 0.5)
    assert status == 0
    assert said.splitlines() == [
        f"3 rows of 3 episodes: {out}",
        "left out: 1 episodes with less reward",
        "left out: 1 episodes in which the environment broke",
        "overlong rows: 1",
        "overlong episodes: 1",
        "overlong cut tokens: 1",
    ]
    assert len(read(out)) == 3


def test_the_command_writes_conversations_with_their_tools(run: Run, tmp_path: Path) -> None:
    status, said, _ = run("--to", "sft", "--out", tmp_path / "sft.parquet")
    assert (status, said.splitlines()[0]) == (0, f"4 conversations of 4 episodes: {tmp_path / 'sft.parquet'}")
    (first, *_) = read(tmp_path / "sft.parquet")
    assert first["messages"] == next(export.sft_records(EPISODES))["messages"]
    assert first["tools"] == [dict(tool) for tool in EPISODES[0].tools]


def test_the_command_writes_for_verl(run: Run, tmp_path: Path) -> None:
    status, _, _ = run("--to", "verl", "--out", tmp_path / "verl", "--pad-token", PAD)
    assert status == 0
    (first, *_) = read(tmp_path / "verl")
    assert first["rollout_log_probs"] == pytest.approx([-0.1, -0.2, 0.0, -0.3])
    assert {len(record["input_ids"]) for record in read(tmp_path / "verl")} == {6}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--to", "parquet", "--algorithm", "grpp"], "did you mean 'grpo'", id="algorithm"),
        pytest.param(["--to", "parquet", "--algorithm", "ppo"], "--algorithm: ppo needs", id="critic"),
        pytest.param(["--to", "sft", "--min-reward", "7"], "nothing to export: left out: 4", id="nothing"),
    ],
)
def test_a_mistake_is_told_in_a_line(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    status, _, err = run(*arguments, "--out", tmp_path / "x.parquet")
    assert status == 2
    assert message in err
    assert not (tmp_path / "x.parquet").exists()


def test_a_file_that_is_not_there_is_told(run: Run, tmp_path: Path) -> None:
    status, _, err = run("--to", "sft", "--out", tmp_path / "x", of=tmp_path / "no.jsonl")
    assert status == 2
    assert "there is no file" in err
