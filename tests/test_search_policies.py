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
from agent_r1_env.evaluate import evaluate, make, play
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


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", EMBEDDED)
def test_the_score_on_the_embedded_questions_is_known(name: str, policy: str) -> None:
    n, right = EMBEDDED[name]
    found = evaluate(f"AgentR1/{name}-v0", policy=policy)
    assert found.n == n
    assert found.synthetic
    assert found.metrics["exact_match"].mean == pytest.approx(right[policy] / n)
    assert (found.invalid_call_rate > 0) == (policy == "random")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", REAL)
def test_the_score_on_real_questions_is_known(shared_data: Path, name: str, policy: str) -> None:
    files, (n, right) = REAL[name]
    given = {key: str(shared_data / file) for key, file in files.items()}
    found = evaluate(f"AgentR1/{name}-v0", policy=policy, env_kwargs=given)
    assert found.n == n
    assert not found.synthetic
    assert found.metrics["exact_match"].mean == pytest.approx(right[policy] / n)


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_oracle_is_shown_every_supporting_paragraph(name: str) -> None:
    found = evaluate(f"AgentR1/{name}-v0", policy="oracle", env_kwargs={"split": "train"}, n=100)
    assert found.reward.mean == found.metrics["support_recall"].mean == 1.0
    assert found.stop_reasons == {"answer": 100}


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
    episode = play(_env(Task("1", "What?", (gold,))), "", search_policies.oracle, 0, 0)
    assert (episode.answer, episode.metrics["exact_match"]) == (gold, 1.0)


def test_the_oracle_stands_facts_that_no_paragraph_has() -> None:
    facts = (("Nowhere", 99), ("", 0), ('"}}</tool_call>', -1), ("Nowhere", 3))
    episode = play(_env(Task("1", "What?", ("x",), facts)), "", search_policies.oracle, 0, 0)
    assert (episode.metrics["tool_calls"], episode.metrics["invalid_calls"]) == (3, 0)
    assert episode.metrics["exact_match"] == 1.0


def test_the_oracle_looks_up_no_more_than_it_has_steps_for() -> None:
    facts = tuple((f"Title {number}", 0) for number in range(9))
    episode = play(_env(Task("1", "What?", ("x",), facts), max_steps=4), "", search_policies.oracle, 0, 0)
    assert (episode.metrics["tool_calls"], episode.stop_reason) == (3, "answer")


@pytest.mark.parametrize("answers", [(), ("", " ")])
def test_the_oracle_says_that_it_does_not_know_what_no_gold_tells(answers: tuple[str, ...]) -> None:
    assert play(_env(Task("1", "What?", answers)), "", search_policies.oracle, 0, 0).answer == "unknown"


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
    assert play(env, "", search_policies.naive, 0, 0).answer == answer


def test_the_random_policy_stands_a_question_without_words() -> None:
    env = _env(Task("1", "???", ("x",)))
    for seed in range(20):
        play(env, "", search_policies.random, 0, seed)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_acts_in_an_episode_only(policy: str) -> None:
    env = _env(Task("1", "What?", ("x",)))
    with pytest.raises(RuntimeError, match="call reset"):
        getattr(search_policies, policy)(env, np.random.default_rng(0))
