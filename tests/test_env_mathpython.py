"""The catalogue entry of problems that are solved with code."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fuzz
import gymnasium as gym
import pytest

import agent_r1_env  # noqa: F401 - registers the environment
from agent_r1_env import sandbox
from agent_r1_env.catalog import builtin_root
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import CatalogError, DataError
from agent_r1_env.evaluate import evaluate
from agent_r1_env.testing import answer

ID = "AgentR1/MathPython-v0"
FOLDER = builtin_root() / "envs" / "mathpython"
SPLITS = ("train", "validation")
# The entry needs a sandbox to be made at all; what it ships is checked anywhere.
needs_sandbox = pytest.mark.skipif(
    bool(sandbox.unavailable("process")), reason=sandbox.unavailable("process") or ""
)


def made(**options: Any) -> ToolEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def rows(split: str) -> list[dict[str, Any]]:
    text = gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(code: str) -> str:
    return f"<code>\n```python\n{code}\n```\n</code>"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mathpython_make_problems", FOLDER / "make_problems.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


# -- the embedded set


def test_the_script_makes_the_committed_files_again(script: ModuleType) -> None:
    """Which also finds every answer once more, in two ways."""
    for split, rows in script.problems().items():
        text = script.encode(rows)
        assert gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()) == text


def test_a_program_that_finds_another_answer_is_not_taken(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "KINDS", (lambda rng: script.Problem("What is 1 + 1?", "print(3)", 2),))
    with pytest.raises(ValueError, match="3 is not 2"):
        script.problems()


def test_problems_are_of_many_kinds_and_stand_in_one_split_only() -> None:
    train, validation = map(rows, SPLITS)
    assert len({row["type"] for row in train}) == len({row["type"] for row in validation}) == 25
    assert {row["problem"] for row in train}.isdisjoint(row["problem"] for row in validation)
    assert (len(train), len(validation)) == (250, 125)


def test_answers_are_whole_numbers_fractions_and_decimals_and_no_literals_of_their_programs() -> None:
    asked = [row for split in SPLITS for row in rows(split)]
    assert any("/" in row["answer"] for row in asked) and any("." in row["answer"] for row in asked)
    assert not any(f"print({row['answer']})" in row["program"] for row in asked)
    assert sum(path.stat().st_size for path in FOLDER.glob("*.gz")) < 60_000


# -- scores of the scripted policies


@needs_sandbox
@pytest.mark.parametrize(
    ("policy", "split", "score"),
    [
        ("oracle", "train", 1.0),
        ("naive", "validation", 0.0),
        ("random", "validation", 0.0),
        pytest.param("oracle", "validation", 1.0, marks=pytest.mark.slow),
    ],
)
def test_policies_score_what_they_are_known_to(policy: str, split: str, score: float) -> None:
    whole = (policy, split) == ("oracle", "validation")
    found = evaluate(ID, policy=policy, n=None if whole else 20, env_kwargs={"split": split})
    assert found.n == (125 if whole else 20)
    assert found.reward.mean == score
    assert found.failed == 0


@needs_sandbox
def test_the_oracle_answers_what_its_program_printed() -> None:
    env = made()
    for number in range(5):
        env.reset(options={"task": number})
        task = env.task
        assert task is not None
        *_, info = env.step(run(task.data["program"]))
        assert info["calls"][0]["result"] == task.answers[0]
    env.close()


@needs_sandbox
def test_problems_of_gsm8k_are_read_and_solved(shared_data: Path) -> None:
    data = str(shared_data / "gsm8k" / "test.jsonl")
    found = evaluate(ID, policy="oracle", n=10, env_kwargs={"data": data})
    assert (found.n, found.reward.mean, found.invalid_call_rate) == (10, 1.0, 0.0)
    tasks = made(data=data).tasks
    assert len(tasks) == 1319
    assert all("<<" not in task.question and "####" not in task.answers[0] for task in tasks)


# -- real data


@needs_sandbox
def test_rows_of_many_sets_are_read(tmp_path: Path) -> None:
    prompt = (
        "Solve the following math problem step by step. The last line is of the form Answer: $Answer.\n\n"
        'What is 6 * 7?\n\nRemember to put your answer on its own line after "Answer:".'
    )
    file = write(
        tmp_path / "math.jsonl",
        {
            "problem": "A?",
            "level": "Level 1",
            "type": "Algebra",
            "solution": "So $\\boxed{\\frac{1}{2}}$.",
        },
        {"problem": "B?", "solution": "Then $\\boxed{3}$", "answer": "3", "unique_id": "test/b.json"},
        {"question": "C?", "answer": "It is <<1+1=2>>2.\n#### 2"},
        {"prompt": [{"role": "user", "content": prompt}], "reward_model": {"ground_truth": "42"}},
        {"prompt": "D?", "solution": "34", "answer": None},
        {"question": "E?", "final_answer": 7},
        {"Problem": "F?", "Answer": 0.5},
    )
    tasks = list(made(data=file).tasks)
    assert [task.question for task in tasks] == ["A?", "B?", "C?", "What is 6 * 7?", "D?", "E?", "F?"]
    assert [task.answers[0] for task in tasks] == ["\\frac{1}{2}", "3", "2", "42", "34", "7", "0.5"]
    assert tasks[0].kind == "Algebra" and tasks[1].id == "test/b.json"


@needs_sandbox
def test_a_parquet_file_in_the_form_of_dapo_is_read(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    row = {"prompt": [{"role": "user", "content": "What?"}], "reward_model": {"ground_truth": "34"}}
    parquet.write_table(pyarrow.Table.from_pylist([row, row]), tmp_path / "dapo.parquet")
    tasks = made(data=str(tmp_path / "dapo.parquet")).tasks
    assert [(task.question, task.answers) for task in tasks] == [("What?", ("34",))] * 2


@needs_sandbox
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"answer": "1"}, "the row has no 'problem' or 'question' or 'prompt'"),
        ({"problem": "A?"}, "the row has no 'answer'"),
        ({"problem": "A?", "solution": "long " * 99}, "the text is no answer, and holds none in .*boxed"),
        ({"problem": "A?", "solution": "so \\boxed{}"}, "what stands in .*boxed.* is empty"),
        ({"problem": "A?", "answer": ["1"]}, "expected a text, found list"),
        ({"prompt": [{"role": "user"}], "answer": "1"}, "the row has no 'prompt'"),
    ],
)
def test_a_wrong_row_is_told_with_its_place(row: dict[str, Any], told: str, tmp_path: Path) -> None:
    file = write(tmp_path / "math.jsonl", {"problem": "Fine?", "answer": "1"}, row)
    with pytest.raises(DataError, match=f"row 2, .*{told}"):
        made(data=file)


# -- the answer


@needs_sandbox
@pytest.mark.parametrize(
    ("gold", "said", "right"),
    [
        ("3/7", "6/14", True),
        ("3/7", "\\boxed{\\frac{3}{7}}", True),
        ("3/7", "0.43", False),
        ("1.6338", "1.6338", True),
        ("1.6338", "1.64", False),
        ("15373", "15,373", True),
        ("15373", "15374", False),
    ],
)
def test_an_answer_is_compared_by_its_value(gold: str, said: str, right: bool, tmp_path: Path) -> None:
    env = made(data=write(tmp_path / "one.jsonl", {"problem": "What?", "answer": gold}))
    env.reset(seed=0)
    _, reward, *_ = env.step(answer(said))
    env.close()
    assert reward == float(right)


# -- what a model meets


@needs_sandbox
def test_code_is_run_and_its_output_comes_back_in_an_interpreter_block() -> None:
    env = made()
    observation, _ = env.reset(seed=0)
    assert "<code>" in observation and "<interpreter>" in observation
    observation, *_ = env.step("Let me see.\n" + run("x = 6\nprint(x * 7)"))
    assert observation.rpartition("<|im_start|>user\n")[2].startswith("<interpreter>\n42\n</interpreter>")
    observation, *_ = env.step(run("1 / 0"))
    assert "ZeroDivisionError" in observation
    env.close()


@needs_sandbox
def test_nothing_is_kept_between_blocks_so_that_copies_go_on_alike() -> None:
    env = made()
    env.reset(seed=0)
    env.step(run("x = 1"))
    copy = env.clone()
    for each in (env, copy):
        *_, info = each.step(run("print(x)"))
        assert "NameError" in info["calls"][0]["result"]
    assert env.history == copy.history
    copy.close()
    env.close()


@needs_sandbox
def test_code_that_does_not_end_or_floods_is_stopped() -> None:
    env = made(tool_config={"python": {"cpu_seconds": 1}})
    env.reset(seed=0)
    *_, info = env.step(run("while True: pass"))
    assert "stopped: more than 1 s of CPU time" in info["calls"][0]["result"]
    *_, info = env.step(run("while True: print('x' * 99)"))
    assert "the output is longer than 4000 characters" in info["calls"][0]["result"]
    env.close()


@needs_sandbox
@pytest.mark.slow
def test_arbitrary_replies_never_raise_and_never_show_the_answer(tmp_path: Path) -> None:
    row = {"problem": "What?", "answer": "8675309", "program": "print(8675 * 1000 + 309)  # solved"}
    env = made(data=write(tmp_path / "one.jsonl", row))
    texts = list(fuzz.seen(env, 2, 300, ["print(1)", "answer", "task", "import os", "globals()", "8675"]))
    assert len(texts) >= 300
    assert not any("8675309" in text or "solved" in text for text in texts)
    env.close()


@needs_sandbox
def test_a_prompt_holds_neither_program_nor_answer() -> None:
    env = made()
    for number, task in enumerate(env.tasks):
        observation, info = env.reset(options={"task": number})
        shown = observation + json.dumps(info)
        assert task.data["program"] not in shown and "mathpython" not in shown
    env.close()


def test_a_machine_without_a_sandbox_is_told_so_when_the_environment_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "no_namespaces", lambda: "unshare: Operation not permitted")
    with pytest.raises(
        CatalogError, match=r"unshare: Operation not permitted\); allow it with network: true"
    ):
        made(tool_config={"python": {"level": "process"}})
