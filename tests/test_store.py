"""What a rollout asks for, what a file has of it, and what is counted of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_r1_env.episode import Episode, EpisodeFile, Step
from agent_r1_env.errors import AgentR1Error, DataError
from agent_r1_env.play import EpisodeRequest
from agent_r1_env.store import Plan, Tally, kept, key_of

TASKS = [f"t{number}" for number in range(5)]


def of(request: EpisodeRequest, **more: object) -> Episode:
    return Episode("E-v0", None, request.seed, request.group, sample=request.sample, **more)  # type: ignore[arg-type]


def test_a_plan_goes_through_all_tasks_before_it_begins_anew() -> None:
    asked = list(Plan(12, 1, 0, TASKS).requests())
    assert [request.task for request in asked] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert [request.sample for request in asked] == [0] * 5 + [1] * 5 + [2] * 2


def test_the_samples_of_a_task_follow_one_another_and_make_a_group() -> None:
    asked = list(Plan(20, 3, 0, TASKS).requests())
    assert [(request.task, request.sample) for request in asked[:4]] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [(request.task, request.sample) for request in asked[15:18]] == [(0, 3), (0, 4), (0, 5)]
    assert all(request.group == request.task for request in asked)


def test_every_request_has_a_key_a_seed_and_a_salt_of_its_own() -> None:
    asked = list(Plan(40, 3, 0, TASKS).requests())
    assert len({key_of(request) for request in asked}) == 40
    assert len({request.seed for request in asked}) == len({request.salt for request in asked}) == 40


def test_the_seed_of_an_episode_depends_on_its_task_and_sample_alone() -> None:
    few = {(r.task, r.sample): r.seed for r in Plan(3, 1, 7, TASKS).requests()}
    many = {(r.task, r.sample): r.seed for r in Plan(25, 5, 7, TASKS).requests()}
    assert few.items() <= many.items()


def test_an_environment_without_a_list_of_tasks_is_asked_by_seeds() -> None:
    asked = list(Plan(4, 2, 0, None).requests())
    assert [request.task for request in asked] == [None] * 4
    assert [(request.group, request.sample) for request in asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_file_tells_what_it_has_and_the_plan_asks_for_the_rest(tmp_path: Path) -> None:
    plan, path = Plan(10, 2, 0, TASKS), tmp_path / "episodes.jsonl"
    asked = list(plan.requests())
    with EpisodeFile(path) as file:
        for request in asked[::3]:
            file.append(of(request))
    with open(path, "ab") as raw:
        raw.write(b'{"env_id": "E-v0", "se')
    left = list(plan.requests(kept(path, "E-v0", plan)))
    assert left == [request for place, request in enumerate(asked) if place % 3]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        pytest.param(Plan(10, 2, 1, TASKS), "5 episodes that this run does not ask for", id="seed"),
        pytest.param(Plan(2, 2, 0, TASKS), "does not ask for", id="fewer"),
        pytest.param(Plan(10, 2, 0, ["other", *TASKS]), "does not ask for", id="tasks"),
    ],
)
def test_the_file_of_another_run_is_refused(tmp_path: Path, other: Plan, said: str) -> None:
    path = tmp_path / "episodes.jsonl"
    with EpisodeFile(path) as file:
        for request in list(Plan(10, 2, 0, TASKS).requests())[:5]:
            file.append(of(request))
    with pytest.raises(AgentR1Error, match=said):
        kept(path, "E-v0", other)


def test_the_file_of_another_environment_is_refused_with_its_line(tmp_path: Path) -> None:
    plan, path = Plan(10, 2, 0, TASKS), tmp_path / "episodes.jsonl"
    with EpisodeFile(path) as file:
        file.append(of(next(plan.requests())))
    with pytest.raises(AgentR1Error, match=r"episodes.jsonl:1 is an episode of E-v0, not F-v0"):
        kept(path, "F-v0", plan)


def test_an_episode_that_stands_there_twice_is_told(tmp_path: Path) -> None:
    plan, path = Plan(10, 2, 0, TASKS), tmp_path / "episodes.jsonl"
    with EpisodeFile(path) as file:
        for _ in range(2):
            file.append(of(next(plan.requests())))
    with pytest.raises(AgentR1Error, match=":2 stands there a second time"):
        kept(path, "E-v0", plan)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(DataError, match="row 1: not an episode"):
        kept(path, "E-v0", Plan(1, 1, 0, TASKS))


def test_a_tally_counts_and_keeps_out_what_the_time_limit_cut() -> None:
    tally = Tally()
    request = next(Plan(1, 1, 0, TASKS).requests())
    step = Step((), (), (), 0.5, reply_tokens=7)
    assert tally.mean_reward is None
    assert tally.add(of(request, steps=(step, step), stop_reason="answer"))
    assert tally.add(of(request, steps=(step,), stop_reason="error", error="OSError: gone"))
    assert not tally.add(of(request, stop_reason="time_limit"))
    assert (tally.episodes, tally.failed, tally.unfinished) == (2, 1, 1)
    assert tally.mean_reward == 1.0, "a broken episode says nothing of the policy"
    assert (tally.tokens, tally.steps) == (21, 3)
    assert tally.stops == {"answer": 1, "error": 1}
