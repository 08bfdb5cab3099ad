"""The catalogue entry of word problems."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fuzz
import gymnasium as gym
import pytest

import agent_r1_env  # noqa: F401 - registers the environment
from agent_r1_env import expression, sandbox
from agent_r1_env.catalog import builtin_root
from agent_r1_env.env import ToolEnv
from agent_r1_env.evaluate import evaluate
from agent_r1_env.testing import answer, call

ID = "AgentR1/GSM8K-v0"
FOLDER = builtin_root() / "envs" / "gsm8k"
SPLITS = ("train", "validation")
Rows = list[dict[str, Any]]


def made(**options: Any) -> ToolEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, ToolEnv)
    return env


def rows(split: str) -> Rows:
    text = gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gsm8k_make_problems", FOLDER / "make_problems.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def problem(folder: Path, number: str, question: str = "How many?") -> str:
    """A file with one problem in the official form."""
    file = folder / "one.jsonl"
    file.write_text(json.dumps({"question": question, "answer": f"It is <<1+1=2>>2.\n#### {number}"}) + "\n")
    return str(file)


# -- the embedded set


def test_the_script_makes_the_committed_files_again(script: ModuleType) -> None:
    for split in SPLITS:
        text = script.encode(script.problems(split))
        assert gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()) == text


def test_no_problem_stands_in_both_splits() -> None:
    questions = [{row["question"] for row in rows(split)} for split in SPLITS]
    assert [len(each) for each in questions] == [420, 210]
    assert questions[0].isdisjoint(questions[1])


@pytest.mark.parametrize("split", SPLITS)
def test_every_step_is_right_and_the_last_one_gives_the_answer(split: str) -> None:
    for row in rows(split):
        *lines, last = row["answer"].splitlines()
        steps = [match.groups() for line in lines for match in re.finditer(r"<<(.*?)=([^=]*)>>", line)]
        assert 2 <= len(steps) == len(lines) <= 6
        assert all(expression.evaluate(calculation) == result for calculation, result in steps)
        assert last == f"#### {steps[-1][1]}"


@pytest.mark.parametrize("split", SPLITS)
def test_first_steps_use_numbers_of_the_question_and_later_ones_results(split: str) -> None:
    for row in rows(split):
        known = set(re.findall(r"\d+(?:\.\d+)?", row["question"])) | {"1.5", "2", "3", "4", "5", "100"}
        for calculation, result in re.findall(r"<<(.*?)=([^=]*)>>", row["answer"]):
            assert set(re.findall(r"\d+(?:\.\d+)?", calculation)) <= known, row
            known.add(result)


def test_the_embedded_set_says_that_it_is_synthetic() -> None:
    assert made(split="train").tasks.synthetic
    assert sum(path.stat().st_size for path in FOLDER.glob("*.gz")) < 100_000


# -- scores of the scripted policies


@pytest.mark.parametrize(
    ("policy", "split", "score"),
    [
        ("oracle", "train", 1.0),
        ("oracle", "validation", 1.0),
        ("naive", "validation", 5 / 210),
        ("random", "validation", 0.0),
    ],
)
def test_policies_score_what_they_are_known_to(policy: str, split: str, score: float) -> None:
    found = evaluate(ID, policy=policy, env_kwargs={"split": split})
    assert found.reward.mean == pytest.approx(score, abs=1e-9)
    assert found.failed == 0


@pytest.mark.parametrize(("policy", "score"), [("oracle", 1.0), ("naive", 17 / 1319)])
def test_policies_score_the_same_on_the_real_test_set(policy: str, score: float, shared_data: Path) -> None:
    data = str(shared_data / "gsm8k" / "test.jsonl")
    found = evaluate(ID, policy=policy, env_kwargs={"data": data})
    assert found.n == 1319
    assert found.reward.mean == pytest.approx(score, abs=1e-9)
    assert found.invalid_call_rate == 0.0


@pytest.mark.parametrize("name", ["test.jsonl", "train_first1000.jsonl"])
def test_the_calculator_finds_every_step_of_the_real_solutions(name: str, shared_data: Path) -> None:
    wrong = []
    for line in (shared_data / "gsm8k" / name).read_text("utf-8").splitlines():
        for calculation, result in re.findall(r"<<(.*?)=([^=]*)>>", json.loads(line)["answer"]):
            found, told = (
                float(expression.evaluate(each)) if each != "3/4" else 0.75 for each in (calculation, result)
            )
            if abs(found - told) > 0.02 * max(1, abs(told)):  # the solutions round as people do
                wrong.append((calculation, result, found))
    assert wrong == []


def test_the_same_seed_gives_the_same_episode() -> None:
    episodes = []
    for _ in range(2):
        env = made()
        episodes.append(list(fuzz.seen(env, 5, 30)))
        env.close()
    assert episodes[0] == episodes[1]


# -- the answer


@pytest.mark.parametrize(
    ("gold", "said", "right"),
    [
        ("1,234", "1234", True),
        ("1,234", "$1,234.00", True),
        ("-5", "-5", True),
        ("-5", "5", False),
        ("0.5", "1/2", True),
        ("0.5", "5", False),
        ("7.2", "72", False),
        ("72", "72.0 apples", True),
        ("72", "\\boxed{72}", True),
        ("72", "172", False),
        ("72", "", False),
    ],
)
def test_an_answer_is_compared_by_its_value(gold: str, said: str, right: bool, tmp_path: Path) -> None:
    env = made(data=problem(tmp_path, gold))
    env.reset(seed=0)
    _, reward, *_ = env.step(answer(said))
    assert reward == float(right)


# -- checking oneself


def test_a_model_may_check_its_answer_by_value_but_not_often(tmp_path: Path) -> None:
    env = made(data=problem(tmp_path, "1,234.5"))
    env.reset(seed=0)
    told = []
    for guess in ("12345", "1234.50", "1234.5"):
        *_, info = env.step(call("check_answer", answer=guess))
        told.append(info["calls"][0]["result"])
    assert told == [
        "The answer is wrong. 1 try is left.",
        "The answer is right. No try is left.",
        "error: no try is left; only 2 are allowed",
    ]


@pytest.mark.parametrize("tools", [None, ["calculator"], ["check_answer"], []])
def test_arbitrary_replies_never_raise_and_never_show_the_answer(
    tools: list[str] | None, tmp_path: Path
) -> None:
    env = made(data=problem(tmp_path, "8,675,309"), **({} if tools is None else {"tools": tools}))
    texts = list(fuzz.seen(env, 1, 300, ["1+1", "gold", "answer", "8", "67", "5309", "2^5"]))
    assert len(texts) >= 300
    assert not any("8675309" in text or "8,675,309" in text or "####" in text for text in texts)


def test_a_prompt_holds_nothing_of_the_solution() -> None:
    env = made()
    for number, task in enumerate(env.tasks):
        observation, info = env.reset(options={"task": number})
        shown = observation + json.dumps(info)
        assert "####" not in shown and "<<" not in shown
        assert not any(line in shown for line in task.data["solution"].splitlines())


# -- other tools


def test_the_problems_can_be_put_without_tools() -> None:
    env = made(tools=[])
    observation, info = env.reset(seed=0)
    assert info["tools"] == [] and "calculator" not in observation
    assert (
        evaluate(ID, policy="oracle", n=5, env_kwargs={"tools": ["calculator"]}).metrics["tool_calls"].mean
        > 1
    )


@pytest.mark.skipif(bool(sandbox.unavailable("process")), reason=sandbox.unavailable("process") or "")
def test_the_problems_can_be_put_with_python() -> None:
    env = made(tools=["python", "check_answer"])
    env.reset(options={"task": 0})
    *_, info = env.step(call("python", code="print(6 * 7)"))
    assert info["calls"][0]["result"] == "42"
    env.close()
    found = evaluate(ID, policy="oracle", n=5, env_kwargs={"tools": ["python"]})
    assert found.reward.mean == 1.0
    assert found.metrics["tool_calls"].mean >= 2
