"""Giving episodes to workers that may die: nobody is overloaded, and who kills workers is found out."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from agent_r1_env.dispatch import Crew, Job
from agent_r1_env.errors import WorkerLost


def crew(*workers: str, at_once: int = 2, **options: int) -> Crew:
    made = Crew(at_once, **options)
    for worker in workers:
        made.join(worker)
    return made


def test_a_worker_has_no_more_than_it_may_at_once() -> None:
    some = crew("a", "b")
    taken = Counter(some.take(Job(number)) for number in range(9))
    assert taken == {"a": 2, "b": 2, None: 5}


def test_the_worker_that_has_least_is_next() -> None:
    some = crew("a", "b", at_once=4)
    first = Job(0)
    assert [some.take(first), some.take(Job(1)), some.take(Job(2))] == ["a", "b", "a"]
    some.finished("a", first)
    assert some.take(Job(3)) == "a"


def test_what_a_dead_worker_had_is_begun_again() -> None:
    some = crew("a", "b")
    one, other = Job(0), Job(1)
    assert (some.take(one), some.take(other)) == ("a", "b")
    some.died("a", "killed")
    some.died("a", "killed")
    assert (one.deaths, other.deaths) == (1, 0)
    assert (some.lost, some.redone) == (1, 1)
    assert some.take(one) == "b"


def suspect(some: Crew) -> Job:
    """A job that has one try left."""
    job = Job(99)
    for worker in ("x", "y"):
        some.join(worker)
        assert some.take(job) == worker
        some.died(worker, "killed")
    return job


def test_the_last_try_is_on_a_worker_that_has_nothing_else() -> None:
    some = crew()
    last = suspect(some)
    some.join("a")
    assert some.take(last) == "a"
    assert some.take(Job(1)) is None, "nobody joins it"
    some.finished("a", last)
    assert some.take(Job(1)) == "a"


def test_a_busy_worker_is_emptied_for_a_last_try() -> None:
    some = crew()
    last = suspect(some)
    some.join("busy")
    before = [Job(0), Job(1)]
    assert [some.take(job) for job in before] == ["busy", "busy"]
    assert some.take(last) is None
    some.finished("busy", before[0])
    assert some.take(Job(2)) is None, "it is being emptied"
    some.finished("busy", before[1])
    assert some.take(last) == "busy"


def test_a_last_try_that_is_called_off_frees_the_worker_that_was_emptied() -> None:
    some = crew()
    last = suspect(some)
    some.join("busy")
    some.take(Job(0))
    assert some.take(last) is None
    assert some.take(Job(1)) is None
    some.let_go(last)
    assert some.take(Job(1)) == "busy"


def test_the_worker_that_is_being_emptied_may_die_itself() -> None:
    some = crew()
    last = suspect(some)
    some.join("busy")
    some.take(Job(0))
    assert some.take(last) is None
    some.died("busy", "killed")
    some.join("new")
    assert some.take(last) == "new"


def test_workers_that_die_in_a_row_end_the_run_and_the_reason_is_told() -> None:
    some = crew("a", "b", "c", max_in_a_row=3)
    some.died("a", "no memory")
    some.missed("no memory")
    with pytest.raises(WorkerLost, match="3 in a row .* no memory"):
        some.died("b", "no memory")


def test_an_episode_played_in_between_begins_a_new_row() -> None:
    some = crew("good", max_in_a_row=2)
    for name in "abcdefgh":
        some.join(name)
        some.died(name, "killed")
        job = Job(0)
        assert some.take(job) == "good"
        some.finished("good", job)
    assert some.lost == 8


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts must be at least 1, got 0"):
        Crew(1, max_attempts=0)


@pytest.mark.parametrize("seed", range(20))
def test_every_job_ends_once_and_only_the_guilty_are_given_up(seed: int) -> None:
    chance = random.Random(seed)
    poison = set(chance.sample(range(60), 3))
    some = crew("0", "1", "2", at_once=chance.randint(1, 5), max_in_a_row=1000)
    waiting = [Job(number) for number in range(60)]
    has: dict[str, list[Job]] = {"0": [], "1": [], "2": []}
    ended: Counter[int] = Counter()
    given_up: set[int] = set()
    accidents, made = 0, 3
    while waiting or any(has.values()):
        for job in list(waiting):
            worker = some.take(job)
            if worker is not None:
                waiting.remove(job)
                has[str(worker)].append(job)
        worker = chance.choice([worker for worker, jobs in has.items() if jobs])
        job = chance.choice(has[worker])
        accident = accidents < 6 and chance.random() < 0.05 and len(has[worker]) > 1
        if job.number in poison or accident:
            accidents += accident
            some.died(worker, "killed")
            for lost in has.pop(worker):
                if some.given_up(lost):
                    given_up.add(lost.number)
                    ended[lost.number] += 1
                else:
                    waiting.append(lost)
            has[str(made)] = []
            some.join(str(made))
            made += 1
        else:
            has[worker].remove(job)
            some.finished(worker, job)
            ended[job.number] += 1
    assert given_up == poison
    assert ended == Counter(range(60))
    assert some.played == 57
