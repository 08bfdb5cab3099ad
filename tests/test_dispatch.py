"""Handing requests to workers that may die: each comes back once, and who kills workers is found out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from agent_r1_env.dispatch import Dispatch, Job
from agent_r1_env.errors import WorkerLost
from agent_r1_env.play import EpisodeRequest


def requests(count: int) -> list[EpisodeRequest]:
    return [EpisodeRequest(number, number) for number in range(count)]


def handed_out(dispatch: Dispatch, worker: str) -> list[int]:
    found = []
    while (job := dispatch.next_for(worker)) is not None:
        found.append(job.number)
    return found


def test_a_worker_gets_no_more_than_it_may_have_at_once() -> None:
    dispatch = Dispatch(requests(10), 3)
    assert handed_out(dispatch, "a") == [0, 1, 2]
    dispatch.finished("a", 1)
    assert handed_out(dispatch, "a") == [3]
    assert handed_out(dispatch, "b") == [4, 5, 6]


def test_requests_are_read_only_when_they_are_handed_out() -> None:
    read = []

    def endless() -> Iterator[EpisodeRequest]:
        for request in requests(1000):
            read.append(request)
            yield request

    dispatch = Dispatch(endless(), 4)
    handed_out(dispatch, "a")
    handed_out(dispatch, "b")
    assert len(read) == 8


def test_what_a_dead_worker_had_goes_to_another_with_its_old_number() -> None:
    dispatch = Dispatch(requests(4), 2)
    handed_out(dispatch, "a")
    assert dispatch.died("a", "killed") == []
    assert handed_out(dispatch, "b") == [0, 1]
    assert (dispatch.lost, dispatch.redone) == (1, 2)


def test_a_request_is_tried_the_last_time_on_a_worker_that_has_nothing_else() -> None:
    dispatch = Dispatch(requests(5), 2)
    for worker in "ab":
        handed_out(dispatch, worker)
        dispatch.died(worker, "killed")
    assert handed_out(dispatch, "c") == [0], "alone"
    assert handed_out(dispatch, "d") == [1], "alone, too"
    assert handed_out(dispatch, "e") == [2, 3]
    dispatch.finished("c", 0)
    assert handed_out(dispatch, "c") == [4]


def test_a_busy_worker_is_emptied_for_a_request_that_is_to_run_alone() -> None:
    dispatch = Dispatch(requests(9), 2)
    handed_out(dispatch, "busy")
    for worker in "ab":
        handed_out(dispatch, worker)
        dispatch.died(worker, "killed")
    dispatch.finished("busy", 0)
    assert handed_out(dispatch, "busy") == [], "it still has request 1"
    dispatch.finished("busy", 1)
    assert handed_out(dispatch, "busy") == [2]


def test_the_worker_that_was_being_emptied_may_die_itself() -> None:
    dispatch = Dispatch(requests(9), 2)
    handed_out(dispatch, "busy")
    for worker in "ab":
        handed_out(dispatch, worker)
        dispatch.died(worker, "killed")
    dispatch.finished("busy", 0)
    assert handed_out(dispatch, "busy") == []
    dispatch.died("busy", "killed")
    assert handed_out(dispatch, "c") == [2]


def test_workers_that_die_in_a_row_end_the_run_and_the_reason_is_told() -> None:
    dispatch = Dispatch(requests(99), 1, max_in_a_row=2)
    for worker in "ab":
        handed_out(dispatch, worker)
        dispatch.died(worker, "no memory")
    with pytest.raises(WorkerLost, match="3 workers died .* no memory"):
        dispatch.died("c", "no memory")


def test_an_episode_played_in_between_begins_a_new_row() -> None:
    dispatch = Dispatch(requests(99), 1, max_in_a_row=2)
    for worker in "abcdefgh":
        job = dispatch.next_for(worker)
        assert job is not None
        dispatch.died(worker, "killed")
        if dispatch.lost % 2 == 0:
            good = dispatch.next_for("good")
            assert good is not None
            dispatch.finished("good", good.number)
    assert dispatch.lost == 8


@pytest.mark.parametrize("seed", range(20))
def test_every_request_comes_back_once_whatever_dies(seed: int) -> None:
    chance = random.Random(seed)
    poison = set(chance.sample(range(60), 3))
    dispatch = Dispatch(requests(60), chance.randint(1, 5), max_in_a_row=1000)
    workers: dict[int, list[Job]] = {number: [] for number in range(3)}
    came_back: Counter[int] = Counter()
    given_up: list[int] = []
    deaths, new = 0, 3
    while True:
        for worker, jobs in workers.items():
            while (job := dispatch.next_for(worker)) is not None:
                jobs.append(job)
        if dispatch.done:
            break
        worker = chance.choice([worker for worker, jobs in workers.items() if jobs])
        job = chance.choice(workers[worker])
        by_chance = deaths < 6 and chance.random() < 0.05 and len(workers[worker]) > 1
        if job.number in poison or by_chance:
            deaths += by_chance
            given_up += [job.number for job in dispatch.died(worker, "killed")]
            del workers[worker]
            workers[new] = []
            new += 1
        else:
            workers[worker].remove(job)
            dispatch.finished(worker, job.number)
            came_back[job.number] += 1
    assert set(given_up) == poison, "nobody else is given up"
    assert sorted([*came_back.elements(), *given_up]) == list(range(60))
    assert dispatch.played == 57 and dispatch.given_up == 3
