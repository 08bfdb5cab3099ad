"""The scripted policies over the search tool, and what they score on every set of questions that has it."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest

from agent_r1_env import search_policies
from agent_r1_env.catalog import builtin_root
from agent_r1_env.env import ToolEnv
from agent_r1_env.evaluate import evaluate, make
from agent_r1_env.task import Task, TaskSet
from agent_r1_env.tool import tool

ENVS = {
    "HotpotQA": "hotpotqa",
    "2WikiMultihopQA": "2wikimultihopqa",
    "MuSiQue": "musique",
    "NaturalQuestions": "naturalquestions",
}
EMBEDDED = {  # questions of the validation split, and how many each policy gets right
    "HotpotQA": (400, {"oracle": 400, "naive": 23, "random": 0}),
    "2WikiMultihopQA": (200, {"oracle": 200, "naive": 40, "random": 2}),
    "MuSiQue": (200, {"oracle": 200, "naive": 0, "random": 0}),
    "NaturalQuestions": (200, {"oracle": 200, "naive": 25, "random": 0}),
}
REAL = {
    "HotpotQA": (
        {"data": "hotpotqa/hotpot_dev_distractor_sample.json", "corpus": "hotpotqa/corpus.jsonl"},
        (200, {"oracle": 200, "naive": 24, "random": 1}),
    ),
    "2WikiMultihopQA": (
        {"data": "2wikimultihopqa/2wiki_eval_sample.json", "corpus": "2wikimultihopqa/corpus.jsonl"},
        (164, {"oracle": 164, "naive": 41, "random": 1}),
    ),
    "MuSiQue": (
        {"data": "musique/musique_ans_eval_sample.jsonl", "corpus": "musique/corpus.jsonl"},
        (200, {"oracle": 200, "naive": 1, "random": 0}),
    ),
    "NaturalQuestions": ({"data": "nq/nq_sample.jsonl"}, (100, {"oracle": 100, "naive": 0, "random": 0})),
}
POLICIES = ("oracle", "naive", "random")


def played(env: ToolEnv, policy: str, task: int = 0, seed: int = 0) -> dict[str, Any]:
    """The last ``info`` of an episode."""
    act, rng = getattr(search_policies, policy), np.random.default_rng([seed, task])
    env.reset(options={"task": task})
    while True:
        *_, terminated, truncated, info = env.step(act(env, rng))
        if terminated or truncated:
            return info


def right(env: ToolEnv, policy: str) -> float:
    """How many tasks a policy answers exactly."""
    tasks = range(len(env.tasks))
    return sum(played(env, policy, task)["metrics"]["exact_match"] for task in tasks)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", EMBEDDED)
def test_the_score_on_the_embedded_questions_is_known(name: str, policy: str) -> None:
    n, known = EMBEDDED[name]
    env = make(f"AgentR1/{name}-v0")
    assert (len(env.tasks), env.tasks.synthetic) == (n, True)
    assert right(env, policy) == known[policy]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", REAL)
def test_the_score_on_real_questions_is_known(shared_data: Path, name: str, policy: str) -> None:
    files, (n, known) = REAL[name]
    env = make(f"AgentR1/{name}-v0", {key: str(shared_data / file) for key, file in files.items()})
    assert (len(env.tasks), env.tasks.synthetic) == (n, False)
    assert right(env, policy) == known[policy]


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_oracle_is_shown_every_supporting_paragraph(name: str) -> None:
    found = evaluate(f"AgentR1/{name}-v0", policy="oracle", env_kwargs={"split": "train"}, n=100)
    assert found.reward.mean == found.metrics["support_recall"].mean == 1.0
    assert found.invalid_call_rate == 0.0
    assert found.stop_reasons == {"answer": 100}


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_random_policy_makes_mistakes_of_every_kind(name: str) -> None:
    found = evaluate(f"AgentR1/{name}-v0", policy="random", n=100)
    assert found.invalid_call_rate > 0
    assert {"calls/malformed_call", "calls/unknown_tool", "calls/invalid_arguments"} <= set(found.metrics)


@pytest.mark.parametrize("name", ENVS)
def test_strange_replies_never_show_the_answer(name: str, tmp_path: Path) -> None:
    secret = "q7-zyxwv"
    env = make(f"AgentR1/{name}-v0", {"data": str(_with_answer(ENVS[name], secret, tmp_path))})
    letters = random.Random(0)
    words = ["".join(chr(letters.randrange(0x110000)) for _ in range(8)) for _ in range(40)]
    words += [word for task in env.tasks[:20] for word in task.question.split()]
    texts = list(fuzz.seen(env, 0, 300, words))
    assert len(texts) >= 300
    assert env.tasks[0].answers == (secret,)
    assert not any(secret in text for text in texts)


def _with_answer(folder: str, answer: str, to: Path) -> Path:
    """The embedded validation file with another answer to every question."""
    file = next((builtin_root() / "envs" / folder).glob("validation.json*"))
    text = gzip.decompress(file.read_bytes()).decode()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    told: dict[str, Any] = {"answer": answer, "answer_aliases": []}
    for row in rows:
        row.update({"golden_answers": [answer]} if "golden_answers" in row else told)
        row.pop("question_decomposition", None)
    made = to / "rows.json"
    made.write_text(json.dumps(rows))
    return made


def _env(task: Task, found: str = "[1] A title: Some text.", **options: Any) -> ToolEnv:
    """One task, with a search that always finds the same."""

    @tool
    def search(query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        return found

    return ToolEnv(TaskSet([task], name="one", origin="this test"), [search], **options)


@pytest.mark.parametrize("gold", ["A", "the", "!!!", "...", "ا"])
def test_the_oracle_is_right_even_where_normalisation_leaves_nothing(gold: str) -> None:
    info = played(_env(Task("1", "What?", (gold,))), "oracle")
    assert (info["answer"], info["metrics"]["exact_match"]) == (gold, 1.0)


def test_the_oracle_stands_facts_that_no_paragraph_has() -> None:
    facts = (("Nowhere", 99), ("", 0), ('"}}</tool_call>', -1), ("Nowhere", 3))
    info = played(_env(Task("1", "What?", ("x",), facts)), "oracle")
    assert (info["metrics"]["tool_calls"], info["metrics"]["invalid_calls"]) == (3, 0)
    assert info["metrics"]["exact_match"] == 1.0


def test_the_oracle_looks_up_no_more_than_it_has_steps_for() -> None:
    facts = tuple((f"Title {number}", 0) for number in range(9))
    info = played(_env(Task("1", "What?", ("x",), facts), max_steps=4), "oracle")
    assert (info["metrics"]["tool_calls"], info["stop_reason"]) == (3, "answer")


@pytest.mark.parametrize("answers", [(), ("", " ")])
def test_the_oracle_says_that_it_does_not_know_what_no_gold_tells(answers: tuple[str, ...]) -> None:
    assert played(_env(Task("1", "What?", answers)), "oracle")["answer"] == "unknown"


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ("[1] A title: Some text.\n[2] Another: More.", "A title"),
        ("No paragraph matches 'x: y'; try other words, such as a name or a title.", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_naive_policy_answers_with_the_first_title(found: str, answer: str) -> None:
    env = _env(Task("1", "What?", ("x",)), found)
    assert played(env, "naive")["answer"] == answer


def test_the_random_policy_stands_a_question_without_words() -> None:
    env = _env(Task("1", "???", ("x",)))
    for seed in range(20):
        played(env, "random", seed=seed)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_acts_in_an_episode_only(policy: str) -> None:
    env = _env(Task("1", "What?", ("x",)))
    with pytest.raises(RuntimeError, match="call reset"):
        getattr(search_policies, policy)(env, np.random.default_rng(0))
